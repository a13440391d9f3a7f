//! `seccompProfile` and `appArmorProfile`: a union discriminated by `type`.
//!
//! Implements: `validateSeccompProfileField` and `validateAppArmorProfileField`, and the same for the type
//! `ConfigMap` of the ConfigMap profile design and the type `OCI` of KEP-6061.

use palisade_base::{
    field_error::{BadValue, FieldError, FieldErrorKind},
    field_path::FieldPath,
    go::{JsonQuoted, Quoted},
};

use super::named_string;
use crate::{
    compat::Compat,
    pod_view::{ContainerRef, PodView},
    profile::{
        apparmor::MAX_PROFILE_NAME, artifact::ArtifactReference, baseline::BaselineProfile, kind, seccomp,
    },
    security_context::{OciProfileField, ProfileField},
};

const TYPES: [&str; 3] = [kind::LOCALHOST, kind::RUNTIME_DEFAULT, kind::UNCONFINED];

/// The types of seccomp profiles, in the order of messages.
fn seccomp_types(compat: &Compat) -> Vec<&'static str> {
    let mut types = Vec::with_capacity(5);
    types.extend(compat.has_config_map_profiles().then_some(kind::CONFIG_MAP));
    types.push(kind::LOCALHOST);
    types.extend(compat.has_oci_profiles().then_some(kind::OCI));
    types.extend([kind::RUNTIME_DEFAULT, kind::UNCONFINED]);
    types
}

pub(super) fn validate_seccomp(
    profile: &ProfileField<'_>,
    path: &FieldPath,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    let localhost_at = || path.clone().field("localhostProfile");
    let config_map_at = || path.clone().field("configMapProfile");
    let oci_at = || path.clone().field("oci");
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
        kind::OCI if compat.has_oci_profiles() => match &profile.oci {
            None => {
                problems.push(FieldError::required(oci_at(), "must be set when seccomp type is OCI"));
            }
            Some(oci) => validate_oci(oci, &oci_at(), compat, problems),
        },
        other => {
            let at = path.clone().field("type");
            problems.push(FieldError::not_supported(at, named_string(other, compat), &seccomp_types(compat)));
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
    if compat.has_oci_profiles()
        && profile.kind != kind::OCI
        && let Some(oci) = &profile.oci
    {
        let detail = "can only be set when seccomp type is OCI";
        problems.push(FieldError::invalid(oci_at().field("reference"), oci.reference.as_str(), detail));
    }
}

fn validate_oci(oci: &OciProfileField<'_>, at: &FieldPath, compat: &Compat, problems: &mut Vec<FieldError>) {
    const BASE_TYPES: [&str; 2] = [kind::LOCALHOST, kind::RUNTIME_DEFAULT];
    let reference = || at.clone().field("reference");
    if oci.reference.is_empty() {
        problems.push(FieldError::required(reference(), "must name an artifact by its digest"));
    } else if let Err(error) = ArtifactReference::parse(&oci.reference) {
        problems.push(FieldError::invalid(reference(), oci.reference.as_str(), error.to_string()));
    }
    let Some(base) = &oci.base_profile else { return };
    let at = at.clone().field("baseProfile");
    let file = || at.clone().field("localhostProfile");
    match (base.kind.as_str(), base.localhost_profile.as_deref()) {
        ("", _) => problems.push(FieldError::required(at.clone().field("type"), "must be set")),
        (kind::LOCALHOST, None) => {
            problems
                .push(FieldError::required(file(), "must be set when the base profile's type is Localhost"));
        }
        (kind::LOCALHOST, Some(path)) => {
            let problem = BaselineProfile::path_problem(path);
            problems.extend(problem.map(|detail| FieldError::invalid(file(), path, detail)));
        }
        (kind::RUNTIME_DEFAULT, None) => {}
        (kind::RUNTIME_DEFAULT, Some(path)) => {
            let detail = "can only be set when the base profile's type is Localhost";
            problems.push(FieldError::invalid(file(), path, detail));
        }
        (other, _) => {
            let at = at.clone().field("type");
            problems.push(FieldError::not_supported(at, named_string(other, compat), &BASE_TYPES));
        }
    }
}

/// Runtimes apply no profile to a privileged container: the type is new, so that nobody relies on one that is ignored.
pub(super) fn validate_privileged(
    view: &PodView<'_, '_>,
    container: &ContainerRef<'_, '_>,
    compat: &Compat,
    problems: &mut Vec<FieldError>,
) {
    let context = container.security_context();
    if !compat.has_oci_profiles() || context.and_then(|context| context.privileged) != Some(true) {
        return;
    }
    let own = context.and_then(|context| context.seccomp_profile.as_ref());
    let of_pod = || view.security_context().and_then(|context| context.seccomp_profile.as_ref());
    if own.or_else(of_pod).is_some_and(|profile| profile.kind == kind::OCI) {
        let at = container.path(view).fields(&["securityContext", "privileged"]);
        problems.push(FieldError::invalid(
            at,
            BadValue::Plain("true".to_owned()),
            "must not be true when the seccomp type is OCI: runtimes apply no profile to a privileged container",
        ));
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
