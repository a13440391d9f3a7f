//! `seccompProfile` and `appArmorProfile`: a union discriminated by `type`.
//!
//! Implements: `validateSeccompProfileField` and `validateAppArmorProfileField`, and the same for the type
//! `ConfigMap` of the ConfigMap profile design.

use super::{named_string, quoted};
use crate::{
    compat::Compat,
    field_path::FieldPath,
    problem::Problem,
    profile::{apparmor::MAX_PROFILE_NAME, kind, seccomp},
    quote::JsonQuoted,
    security_context::ProfileField,
};

const TYPES: [&str; 3] = [kind::LOCALHOST, kind::RUNTIME_DEFAULT, kind::UNCONFINED];
const TYPES_WITH_CONFIG_MAP: [&str; 4] =
    [kind::CONFIG_MAP, kind::LOCALHOST, kind::RUNTIME_DEFAULT, kind::UNCONFINED];

pub(super) fn validate_seccomp(
    profile: &ProfileField<'_>,
    path: &FieldPath,
    compat: &Compat,
    problems: &mut Vec<Problem>,
) {
    let localhost_at = || path.clone().field("localhostProfile");
    let config_map_at = || path.clone().field("configMapProfile");
    let config_maps = compat.has_config_map_profiles();
    match profile.kind.as_str() {
        "" => problems.push(Problem::required(
            path.clone().field("type"),
            "type is required when seccompProfile is set",
        )),
        kind::UNCONFINED | kind::RUNTIME_DEFAULT => {}
        kind::LOCALHOST => match &profile.localhost_profile {
            None => {
                problems
                    .push(Problem::required(localhost_at(), "must be set when seccomp type is Localhost"));
            }
            Some(file) => validate_local_path(file, &localhost_at(), None, problems),
        },
        kind::CONFIG_MAP if config_maps => match &profile.config_map_profile {
            None => problems
                .push(Problem::required(config_map_at(), "must be set when seccomp type is ConfigMap")),
            Some(reference) if seccomp::config_map_reference(reference).is_none() => problems
                .push(Problem::invalid(config_map_at(), quoted(reference), "must be <ConfigMap name>/<key>")),
            Some(_) => {}
        },
        other => {
            let types = if config_maps { &TYPES_WITH_CONFIG_MAP[..] } else { &TYPES[..] };
            let at = path.clone().field("type");
            problems.push(Problem::not_supported(at, named_string(other, compat), types));
        }
    }
    if profile.kind != kind::LOCALHOST
        && let Some(file) = &profile.localhost_profile
    {
        problems.push(Problem::invalid(
            localhost_at(),
            print_seccomp_profile(&profile.kind, file, compat),
            "can only be set when seccomp type is Localhost",
        ));
    }
    if config_maps
        && profile.kind != kind::CONFIG_MAP
        && let Some(reference) = &profile.config_map_profile
    {
        let detail = "can only be set when seccomp type is ConfigMap";
        problems.push(Problem::invalid(config_map_at(), quoted(reference), detail));
    }
}

/// A path below the node's seccomp folder: relative, and never climbing.
pub(super) fn validate_local_path(
    path: &str,
    at: &FieldPath,
    called: Option<&str>,
    problems: &mut Vec<Problem>,
) {
    let mut report = |detail: &str| {
        let problem = Problem::invalid(at.clone(), quoted(path), detail);
        problems.push(match called {
            Some(called) => problem.called(called),
            None => problem,
        });
    };
    if path.starts_with('/') {
        report("must be a relative path");
    }
    if path.split('/').any(|element| element == "..") {
        report("must not contain '..'");
    }
}

// Upstream hands the whole internal struct to the error. Before v1.34 that prints a pointer, whose address means
// nothing to anybody; the recordings of real servers write it as below.
fn print_seccomp_profile(kind: &str, file: &str, compat: &Compat) -> String {
    if compat.prints_values_as_json() {
        format!("{{\"Type\":{},\"LocalhostProfile\":{}}}", JsonQuoted(kind), JsonQuoted(file))
    } else {
        format!("core.SeccompProfile{{Type:{}, LocalhostProfile:(*string)(0xPTR)}}", quoted(kind))
    }
}

pub(super) fn validate_app_armor(
    profile: &ProfileField<'_>,
    path: &FieldPath,
    compat: &Compat,
    problems: &mut Vec<Problem>,
) {
    let localhost_at = || path.clone().field("localhostProfile");
    match profile.kind.as_str() {
        "" => problems.push(Problem::required(
            path.clone().field("type"),
            "type is required when appArmorProfile is set",
        )),
        kind::UNCONFINED | kind::RUNTIME_DEFAULT => {
            if let Some(name) = &profile.localhost_profile {
                let detail = "can only be set when AppArmor type is Localhost";
                problems.push(Problem::invalid(localhost_at(), quoted(name), detail));
            }
        }
        kind::LOCALHOST => {
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            if name.is_empty() {
                problems
                    .push(Problem::required(localhost_at(), "must be set when AppArmor type is Localhost"));
            }
            if name.trim() != name {
                let detail = "must not be padded with whitespace";
                problems.push(Problem::invalid(localhost_at(), quoted(name), detail));
            }
            if name.len() > MAX_PROFILE_NAME {
                let detail = if compat.api_minor() >= 32 {
                    format!("may not be more than {MAX_PROFILE_NAME} bytes")
                } else {
                    format!("may not be longer than {MAX_PROFILE_NAME}")
                };
                problems.push(Problem::too_long(localhost_at(), detail));
            }
        }
        other => {
            let at = path.clone().field("type");
            problems.push(Problem::not_supported(at, named_string(other, compat), &TYPES));
        }
    }
}
