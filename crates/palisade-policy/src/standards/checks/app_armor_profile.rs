//! A container may not lift its AppArmor confinement.
//!
//! Implements: Pod Security Standards, Baseline, "AppArmor". Fields and annotations are both looked at, in every
//! policy version: a field that is newer than the version would otherwise be a way around it.

use palisade_base::go::Quoted;
use palisade_model::{
    profile::{apparmor, kind},
    security_context::ProfileField,
};
use serde_json::json;

use super::super::cel::{self, CONTAINERS, CelRules, POD_CONTEXT};
use super::{
    Check, CheckVersion, Edit, Finding, Level, Options, PodView, Remedy, Violation, called, containers_where,
    message, names,
};

pub(super) static CHECK: Check = Check {
    id: "appArmorProfile",
    level: Level::Baseline,
    title: "AppArmor",
    why: "the runtime's profile keeps containers from files and calls that lead to the node",
    versions: &[CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 }],
};

const ALLOWED: &str = "RuntimeDefault or Localhost, or no profile";
pub(in crate::standards) const ALLOWED_TYPES: &[&str] = &[kind::RUNTIME_DEFAULT, kind::LOCALHOST];
const ALLOWED_ANNOTATIONS: &[&str] = &["", "runtime/default"];
const ALLOWED_ANNOTATION_PREFIX: &str = "localhost/";

fn is_bad(profile: &ProfileField<'_>) -> bool {
    !ALLOWED_TYPES.contains(&profile.kind.as_str())
}

fn is_bad_annotation(value: &str) -> bool {
    !(ALLOWED_ANNOTATIONS.contains(&value) || value.starts_with(ALLOWED_ANNOTATION_PREFIX))
}

fn since_v1_0(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    let of_pod = pod
        .security_context()
        .and_then(|context| context.app_armor_profile.as_ref())
        .filter(|profile| is_bad(profile));
    let bad = containers_where(pod, |container| {
        container
            .security_context()
            .and_then(|context| context.app_armor_profile.as_ref())
            .is_some_and(is_bad)
    });
    let annotations: Vec<_> = pod
        .metadata()
        .annotations
        .with_prefix(apparmor::ANNOTATION_PREFIX)
        .filter(|(_, _, value)| is_bad_annotation(value))
        .collect();
    if of_pod.is_none() && bad.is_empty() && annotations.is_empty() {
        return None;
    }

    let mut types = Vec::new();
    let mut findings = Vec::new();
    let mut field = |profile: &ProfileField<'_>,
                     path: palisade_base::field_path::FieldPath,
                     container: Option<&str>,
                     who: String| {
        types.push(profile.kind.as_str().to_owned());
        let mut edits = vec![Edit::Set(path.clone().field("type"), json!(kind::RUNTIME_DEFAULT))];
        if profile.localhost_profile.is_some() {
            edits.push(Edit::Remove(path.clone().field("localhostProfile")));
        }
        findings.push(Finding {
            path: path.field("type"),
            container: container.map(str::to_owned),
            value: Some(profile.kind.as_str().to_owned()),
            summary: format!("{who} requests the AppArmor profile type \"{}\"", profile.kind),
            allowed: ALLOWED,
            remedy: Remedy::Edits(edits),
        });
    };
    if let Some(profile) = of_pod {
        field(profile, pod.path(&["spec", "securityContext", "appArmorProfile"]), None, "pod".to_owned());
    }
    for container in &bad {
        if let Some(profile) =
            container.security_context().and_then(|context| context.app_armor_profile.as_ref())
        {
            let path = container.path(pod).fields(&["securityContext", "appArmorProfile"]);
            field(profile, path, Some(container.name()), called(container));
        }
    }
    let mut values = message::sorted_unique(types);
    values.extend(annotations.iter().map(|(_, key, value)| format!("{key}={}", Quoted(value))));

    for (name, key, value) in &annotations {
        let path = pod.annotation_path(key);
        let container = pod.container(name);
        let has_field = container
            .and_then(|container| container.security_context())
            .is_some_and(|context| context.app_armor_profile.is_some());
        // An annotation without its container, or beside a field, has no effect and can be removed. Alone it is the setting.
        let edit = if container.is_none() || has_field {
            Edit::Remove(path.clone())
        } else {
            Edit::Set(path.clone(), json!("runtime/default"))
        };
        findings.push(Finding {
            path,
            container: container.map(|container| container.name().to_owned()),
            value: Some((*value).to_owned()),
            summary: format!("annotation requests the AppArmor profile \"{value}\" for container \"{name}\""),
            allowed: "runtime/default or localhost/<profile>",
            remedy: Remedy::Edits(vec![edit]),
        });
    }

    let reason = message::plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    // Releases without the field had annotations alone, and reported them without the container.
    if options.newest < 30 {
        return Some(Violation {
            check: CHECK.id,
            reason,
            detail: values.join(", "),
            findings,
            masked: Vec::new(),
        });
    }
    let mut setters = Vec::with_capacity(3);
    if of_pod.is_some() {
        setters.push("pod".to_owned());
    }
    if !bad.is_empty() {
        setters.push(message::containers(&names(&bad)));
    }
    if !annotations.is_empty() {
        setters.push(message::plural("annotation", "annotations", annotations.len()).to_owned());
    }
    let detail = format!(
        "{} must not set AppArmor profile type to {}",
        setters.join(" and "),
        message::quoted(&values)
    );
    Some(Violation { check: CHECK.id, reason, detail, findings, masked: Vec::new() })
}

/// Whether the value of an annotation is forbidden.
pub(in crate::standards) fn cel_bad_annotation(value: &str) -> String {
    format!(
        "!({value} in {} || {value}.startsWith({}))",
        cel::list(ALLOWED_ANNOTATIONS),
        cel::text(ALLOWED_ANNOTATION_PREFIX)
    )
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let bad = |context: &str| {
        format!(
            "{context}.?appArmorProfile.optMap(p, !(p.?type.orValue('') in {})).orValue(false)",
            cel::list(ALLOWED_TYPES)
        )
    };
    let (bad_pod, bad_container) = (bad(POD_CONTEXT), bad("c.?securityContext"));
    let of_pod = rules.define("appArmorOfPod", bad_pod);
    let names = rules.names_where("appArmorContainers", &bad_container);
    let annotations = rules.define(
        "appArmorAnnotations",
        format!(
            "variables.annotations.filter(k, k.startsWith({}) && {})",
            cel::text(apparmor::ANNOTATION_PREFIX),
            cel_bad_annotation("variables.annotations[k]"),
        ),
    );
    let types = rules.sorted_unique(&format!(
        "({of_pod} ? [{POD_CONTEXT}.appArmorProfile.?type.orValue('')] : []) + \
         {CONTAINERS}.map(c, {bad_container}, c.securityContext.appArmorProfile.?type.orValue(''))"
    ));
    let pairs = rules
        .sorted_unique(&format!("{annotations}.map(k, k + '=' + strings.quote(variables.annotations[k]))"));
    let values = rules.define("appArmorValues", format!("{types} + {pairs}"));
    let detail = if rules.options().newest < 30 {
        format!("{values}.join(', ')")
    } else {
        format!(
            "(({of_pod} ? ['pod'] : []) + (size({names}) > 0 ? [{}] : []) + (size({annotations}) > 0 ? [{}] : []))\
             .join(' and ') + ' must not set AppArmor profile type to ' + {}",
            cel::containers(&names),
            cel::plural("annotation", "annotations", &annotations),
            cel::quoted(&values)
        )
    };
    let reason = cel::plural("forbidden AppArmor profile", "forbidden AppArmor profiles", &values);
    format!("size({values}) > 0 ? {reason} + ' (' + {detail} + ')' : ''")
}
