//! `seccompProfile` and `appArmorProfile`: a union discriminated by `type`.
//!
//! Implements: `validateSeccompProfileField` and `validateAppArmorProfileField`, and the same for the type
//! `ConfigMap` of the ConfigMap profile design.

use palisade_base::{
    field_error::{BadValue, FieldError, FieldErrorKind},
    field_path::FieldPath,
    go::{JsonQuoted, Quoted},
};

use super::named_string;
use crate::{
    compat::Compat,
    profile::{apparmor::MAX_PROFILE_NAME, kind, seccomp},
    security_context::ProfileField,
};

const TYPES: [&str; 3] = [kind::LOCALHOST, kind::RUNTIME_DEFAULT, kind::UNCONFINED];
const TYPES_WITH_CONFIG_MAP: [&str; 4] =
    [kind::CONFIG_MAP, kind::LOCALHOST, kind::RUNTIME_DEFAULT, kind::UNCONFINED];

pub(super) fn validate_seccomp(
    profile: &ProfileField<'_>,
    path: &FieldPath,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    let localhost_at = || path.clone().field("localhostProfile");
    let config_map_at = || path.clone().field("configMapProfile");
    let config_maps = compat.has_config_map_profiles();
    match profile.kind.as_str() {
        "" => problems.push(FieldError::required(
            path.clone().field("type"),
            "type is required when seccompProfile is set",
        )),
        kind::UNCONFINED | kind::RUNTIME_DEFAULT => {}
        kind::LOCALHOST => match &profile.localhost_profile {
            None => {
                problems
                    .push(FieldError::required(localhost_at(), "must be set when seccomp type is Localhost"));
            }
            Some(file) => validate_local_path(file, &localhost_at(), None, problems),
        },
        kind::CONFIG_MAP if config_maps => match &profile.config_map_profile {
            None => problems
                .push(FieldError::required(config_map_at(), "must be set when seccomp type is ConfigMap")),
            Some(reference) if seccomp::config_map_reference(reference).is_none() => problems.push(
                FieldError::invalid(config_map_at(), reference.as_str(), "must be <ConfigMap name>/<key>"),
            ),
            Some(_) => {}
        },
        other => {
            let types = if config_maps { &TYPES_WITH_CONFIG_MAP[..] } else { &TYPES[..] };
            let at = path.clone().field("type");
            problems.push(FieldError::not_supported(at, named_string(other, compat), types));
        }
    }
    if profile.kind != kind::LOCALHOST
        && let Some(file) = &profile.localhost_profile
    {
        problems.push(FieldError::invalid(
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
        problems.push(FieldError::invalid(config_map_at(), reference.as_str(), detail));
    }
}

/// A path below the node's seccomp folder: relative, and never climbing.
pub(super) fn validate_local_path(
    path: &str,
    at: &FieldPath,
    called: Option<&str>,
    problems: &mut Vec<FieldError>,
) {
    let mut report = |detail: &'static str| {
        let problem = FieldError::invalid(at.clone(), path, detail);
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
// nothing; the recordings of real servers write it as below.
fn print_seccomp_profile(kind: &str, file: &str, compat: &Compat) -> BadValue {
    BadValue::Plain(if compat.prints_values_as_json() {
        format!("{{\"Type\":{},\"LocalhostProfile\":{}}}", JsonQuoted(kind), JsonQuoted(file))
    } else {
        format!("core.SeccompProfile{{Type:{}, LocalhostProfile:(*string)(0xPTR)}}", Quoted(kind))
    })
}

pub(super) fn validate_app_armor(
    profile: &ProfileField<'_>,
    path: &FieldPath,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    let localhost_at = || path.clone().field("localhostProfile");
    match profile.kind.as_str() {
        "" => problems.push(FieldError::required(
            path.clone().field("type"),
            "type is required when appArmorProfile is set",
        )),
        kind::UNCONFINED | kind::RUNTIME_DEFAULT => {
            if let Some(name) = &profile.localhost_profile {
                let detail = "can only be set when AppArmor type is Localhost";
                problems.push(FieldError::invalid(localhost_at(), name.as_str(), detail));
            }
        }
        kind::LOCALHOST => {
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            if name.is_empty() {
                problems.push(FieldError::required(
                    localhost_at(),
                    "must be set when AppArmor type is Localhost",
                ));
            }
            if name.trim() != name {
                let detail = "must not be padded with whitespace";
                problems.push(FieldError::invalid(localhost_at(), name, detail));
            }
            if name.len() > MAX_PROFILE_NAME {
                let detail = if compat.api_minor() >= 32 {
                    format!("may not be more than {MAX_PROFILE_NAME} bytes")
                } else {
                    format!("may not be longer than {MAX_PROFILE_NAME}")
                };
                let kind = FieldErrorKind::TooLong;
                problems.push(FieldError::new(kind, localhost_at(), BadValue::Omitted, detail));
            }
        }
        other => {
            let at = path.clone().field("type");
            problems.push(FieldError::not_supported(at, named_string(other, compat), &TYPES));
        }
    }
}
