//! PodSecurityPolicies.
//!
//! Implements: `pkg/apis/policy/validation` and the defaults of `policy/v1beta1`, as v1.19 to v1.24 had them, texts included.
//!
//! Leaves to others: the annotations about profiles and `spec.seccomp`, which `palisade-policy` reads.

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use serde_json::{Value, json};

use super::{
    Strategy, no_prepare_create, no_prepare_update, no_reset, section, set_default, validate_meta_only,
};
use crate::rest::meta;
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

const SPEC: Path<'static> = Path::Root("spec");
const GROUP_RULES: &[&str] = &["MayRunAs", "MustRunAs", "RunAsAny"];
const VOLUMES: &[&str] = &[
    "*",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephFS",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];
/// The most characters of a sysctl's name.
const SYSCTL_MAX: usize = 253;
const SYSCTL_PATTERN: &str = "([a-z0-9]([-_a-z0-9]*[a-z0-9])?\\.)*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]";

pub(crate) static POD_SECURITY_POLICY: Strategy = Strategy {
    default: |object, _| {
        if let Some(spec) = section(object, "spec") {
            // The field came later, and policies of before must stay as permissive as they were.
            set_default(spec, "allowPrivilegeEscalation", true);
        }
    },
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: validate_policy,
    validate_update: |new, old, _, kind, errors| {
        meta::validate_update(new, old, errors);
        validate_policy(new, kind, errors);
    },
    reset_fields: no_reset,
};

fn validate_policy(object: &Value, kind: &Kind, errors: &mut Errors) {
    validate_meta_only(object, kind, errors);
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let part = |name: &str| spec.get(name).unwrap_or(&empty);
    let run_as_user = SPEC.field("runAsUser");
    strategy(part("runAsUser"), &run_as_user, &["MustRunAs", "MustRunAsNonRoot", "RunAsAny"], errors);
    if let Some(group) = spec.child("runAsGroup") {
        validate_run_as_group(group, errors);
    }
    strategy(part("seLinux"), &SPEC.field("seLinux"), &["MustRunAs", "RunAsAny"], errors);
    strategy(part("supplementalGroups"), &SPEC.field("supplementalGroups"), GROUP_RULES, errors);
    strategy(part("fsGroup"), &SPEC.field("fsGroup"), GROUP_RULES, errors);
    for volume in texts(spec, "volumes").filter(|volume| !VOLUMES.contains(volume)) {
        errors.not_supported(&SPEC.field("volumes"), volume, VOLUMES);
    }
    validate_capabilities(spec, errors);
    if spec.flag("defaultAllowPrivilegeEscalation") == Some(true)
        && spec.flag("allowPrivilegeEscalation") != Some(true)
    {
        errors.invalid(
            &SPEC.field("defaultAllowPrivilegeEscalation"),
            true,
            "Cannot set DefaultAllowPrivilegeEscalation to true without also setting AllowPrivilegeEscalation to true",
        );
    }
    validate_volumes(spec, errors);
    validate_sysctls(spec, errors);
    if let Some(class) = spec.child("runtimeClass") {
        validate_runtime_class(class, errors);
    }
}

fn texts<'v>(object: &'v Value, key: &str) -> impl Iterator<Item = &'v str> {
    object.list(key).iter().map(|item| item.as_str().unwrap_or_default())
}

/// A rule and its ranges.
fn strategy(options: &Value, at: &Path<'_>, rules: &[&str], errors: &mut Errors) {
    if !rules.contains(&options.text("rule")) {
        errors.not_supported(&at.field("rule"), options.text("rule"), rules);
    }
    ranges(options, at, errors);
}

fn ranges(options: &Value, at: &Path<'_>, errors: &mut Errors) {
    let list = at.field("ranges");
    for (index, range) in options.list("ranges").iter().enumerate() {
        let at = list.index(index);
        let (min, max) = (range.int("min").unwrap_or(0), range.int("max").unwrap_or(0));
        if min < 0 {
            errors.invalid(&at.field("min"), min, "min cannot be negative");
        }
        if max < 0 {
            errors.invalid(&at.field("max"), max, "max cannot be negative");
        }
        if min > max {
            errors.invalid(&at.field("min"), min, "min cannot be greater than max");
        }
    }
}

fn validate_run_as_group(group: &Value, errors: &mut Errors) {
    let at = SPEC.field("runAsGroup");
    let list = BadValue::Json(group.get("ranges").cloned().unwrap_or(Value::Null));
    match group.text("rule") {
        "RunAsAny" if !group.list("ranges").is_empty() => {
            errors.invalid(&at.field("ranges"), list, "Ranges must be empty");
        }
        "RunAsAny" => {}
        "MustRunAs" | "MayRunAs" => {
            if group.list("ranges").is_empty() {
                errors.invalid(&at.field("ranges"), list, "must provide at least one range");
            }
            ranges(group, &at, errors);
        }
        other => errors.not_supported(&at.field("rule"), other, &["MustRunAs", "RunAsAny", "MayRunAs"]),
    }
}

fn validate_capabilities(spec: &Value, errors: &mut Errors) {
    let drops: Vec<&str> = texts(spec, "requiredDropCapabilities").collect();
    if !drops.is_empty() && texts(spec, "allowedCapabilities").any(|name| name == "*") {
        // These paths begin at the field, as upstream's do.
        let shown = BadValue::Json(json!(drops));
        let detail = "must be empty when all capabilities are allowed by a wildcard";
        errors.invalid(&Path::Root("requiredDropCapabilities"), shown, detail);
    }
    for field in ["defaultAddCapabilities", "allowedCapabilities"] {
        for name in texts(spec, field).filter(|name| drops.contains(name)) {
            let detail = format!("capability is listed in {field} and requiredDropCapabilities");
            errors.invalid(&Path::Root(field), name, detail);
        }
    }
}

fn validate_volumes(spec: &Value, errors: &mut Errors) {
    let paths = SPEC.field("allowedHostPaths");
    for (index, path) in spec.list("allowedHostPaths").iter().enumerate() {
        let prefix = path.text("pathPrefix");
        if prefix.is_empty() {
            errors.required(&paths.index(index), "is required");
            break;
        }
        if prefix.split('/').any(|element| element == "..") {
            errors.invalid(&paths.index(index), prefix, "must not contain '..'");
        }
    }
    // The name comes twice in upstream's path.
    let drivers = SPEC.field("allowedFlexVolumes");
    let drivers = drivers.field("allowedFlexVolumes");
    for (index, volume) in spec.list("allowedFlexVolumes").iter().enumerate() {
        if volume.text("driver").is_empty() {
            errors.required(&drivers.index(index).field("driver"), "must specify a driver");
        }
    }
}

/// Whether a name is a sysctl, the last part of which may end in `*`.
fn is_sysctl_pattern(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inner = |b: u8| plain(b) || b == b'-' || b == b'_';
    let segment = |text: &str| match text.as_bytes() {
        [only] => plain(*only),
        [first, middle @ .., last] => plain(*first) && middle.iter().all(|b| inner(*b)) && plain(*last),
        [] => false,
    };
    let (head, last) = name.rsplit_once('.').map_or((None, name), |(head, last)| (Some(head), last));
    let end = match last.as_bytes() {
        [only] => plain(*only) || *only == b'*',
        [first, middle @ .., last] => {
            plain(*first) && middle.iter().all(|b| inner(*b)) && (plain(*last) || *last == b'*')
        }
        [] => false,
    };
    name.len() <= SYSCTL_MAX && end && head.is_none_or(|head| head.split('.').all(segment))
}

fn validate_sysctls(spec: &Value, errors: &mut Errors) {
    for field in ["allowedUnsafeSysctls", "forbiddenSysctls"] {
        let at = SPEC.field(field);
        let mut covers_all = false;
        for (index, name) in texts(spec, field).enumerate() {
            if name.is_empty() {
                errors.invalid(&at.index(index), name, "empty sysctl not allowed");
            } else if !is_sysctl_pattern(name) {
                let detail =
                    format!("must have at most {SYSCTL_MAX} characters and match regex {SYSCTL_PATTERN}");
                errors.invalid(&at.index(index), name, detail);
            } else if name.starts_with('*') {
                covers_all = true;
            }
        }
        if covers_all && spec.list(field).len() > 1 {
            errors.forbidden(&at.field("items"), "if '*' is present, must not specify other sysctls");
        }
    }
    let (allowed_at, forbidden_at) = (SPEC.field("allowedUnsafeSysctls"), SPEC.field("forbiddenSysctls"));
    for (i, allowed) in texts(spec, "allowedUnsafeSysctls").enumerate() {
        for (j, forbidden) in texts(spec, "forbiddenSysctls").enumerate() {
            let in_allowed = format!("sysctl overlaps with {forbidden}");
            let in_forbidden = format!("sysctl overlaps with {allowed}");
            match (allowed.strip_suffix('*'), forbidden.strip_suffix('*')) {
                (Some(a), Some(f)) if a.starts_with(f) => {
                    errors.invalid(&allowed_at.index(i), allowed, in_allowed);
                }
                (Some(a), Some(f)) if f.starts_with(a) => {
                    errors.invalid(&forbidden_at.index(j), forbidden, in_forbidden);
                }
                (Some(a), None) if forbidden.starts_with(a) => {
                    errors.invalid(&forbidden_at.index(j), forbidden, in_forbidden);
                }
                (None, Some(f)) if allowed.starts_with(f) => {
                    errors.invalid(&allowed_at.index(i), allowed, in_allowed);
                }
                (None, None) if allowed == forbidden => {
                    errors.invalid(&allowed_at.index(i), allowed, in_allowed);
                }
                _ => {}
            }
        }
    }
}

fn validate_runtime_class(class: &Value, errors: &mut Errors) {
    let at = SPEC.field("runtimeClass");
    let names_at = at.field("allowedRuntimeClassNames");
    let names: Vec<&str> = texts(class, "allowedRuntimeClassNames").collect();
    for (index, name) in names.iter().enumerate() {
        if *name != "*" {
            errors.format(&names_at.index(index), name, names::dns1123_subdomain(name));
        }
        if names.iter().take(index).any(|earlier| earlier == name) {
            errors.duplicate(&names_at.index(index), *name);
        }
    }
    if let Some(default) = class.child("defaultRuntimeClassName").and_then(Value::as_str) {
        errors.format(&at.field("defaultRuntimeClassName"), default, names::dns1123_subdomain(default));
        if !names.contains(&default) && !names.contains(&"*") {
            errors.required(&names_at, format!("default {default:?} must be allowed"));
        }
    }
    if names.len() > 1 && names.contains(&"*") {
        let shown = BadValue::Json(json!(names));
        errors.invalid(&names_at, shown, "if '*' is present, must not specify other RuntimeClass names");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{POD_SECURITY_POLICY, is_sysctl_pattern};
    use crate::rest::path::Errors;
    use crate::scheme::Scheme;
    use palisade_base::version::KubeVersion;

    fn problems(change: &Value) -> Vec<String> {
        let scheme = Scheme::new(KubeVersion::v1(24));
        let kind = scheme.by_kind("policy", "v1beta1", "PodSecurityPolicy").unwrap();
        let any = json!({"rule": "RunAsAny"});
        let mut object = json!({"metadata": {"name": "p"}, "spec": {
            "seLinux": any, "runAsUser": any, "supplementalGroups": any, "fsGroup": any}});
        for (key, value) in change.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        let mut errors = Errors::new(KubeVersion::v1(24));
        (POD_SECURITY_POLICY.validate)(&object, kind, &mut errors);
        errors
            .list
            .iter()
            .map(|error| format!("{}: {}", error.field(), error.body(KubeVersion::v1(24))))
            .collect()
    }

    #[test]
    fn rejects_what_upstream_rejects() {
        for (change, expected) in [
            (json!({"runAsUser": {"rule": "Bogus"}}), "spec.runAsUser.rule: Unsupported value: \"Bogus\""),
            (json!({"seLinux": {}}), "spec.seLinux.rule: Unsupported value: \"\""),
            (
                json!({"fsGroup": {"rule": "MustRunAs", "ranges": [{"min": 2, "max": 1}]}}),
                "spec.fsGroup.ranges[0].min: Invalid value: 2: min cannot be greater than max",
            ),
            (json!({"runAsGroup": {"rule": "MustRunAs"}}), "spec.runAsGroup.ranges: Invalid value"),
            (json!({"volumes": ["secret", "bogus"]}), "spec.volumes: Unsupported value: \"bogus\""),
            (
                json!({"requiredDropCapabilities": ["ALL"], "allowedCapabilities": ["*"]}),
                "requiredDropCapabilities: Invalid value",
            ),
            (
                json!({"requiredDropCapabilities": ["KILL"], "defaultAddCapabilities": ["KILL"]}),
                "defaultAddCapabilities: Invalid value: \"KILL\": capability is listed in defaultAddCapabilities and requiredDropCapabilities",
            ),
            (
                json!({"defaultAllowPrivilegeEscalation": true, "allowPrivilegeEscalation": false}),
                "spec.defaultAllowPrivilegeEscalation: Invalid value: true: Cannot set",
            ),
            (
                json!({"allowedHostPaths": [{"pathPrefix": "/a/../b"}]}),
                "spec.allowedHostPaths[0]: Invalid value: \"/a/../b\": must not contain '..'",
            ),
            (
                json!({"allowedFlexVolumes": [{}]}),
                "spec.allowedFlexVolumes.allowedFlexVolumes[0].driver: Required value: must specify a driver",
            ),
            (
                json!({"allowedUnsafeSysctls": ["Bad"]}),
                "spec.allowedUnsafeSysctls[0]: Invalid value: \"Bad\": must have at most 253 characters",
            ),
            (
                json!({"allowedUnsafeSysctls": ["net.*"], "forbiddenSysctls": ["net.core.x"]}),
                "spec.forbiddenSysctls[0]: Invalid value: \"net.core.x\": sysctl overlaps with net.*",
            ),
            (
                json!({"runtimeClass": {"allowedRuntimeClassNames": ["a"], "defaultRuntimeClassName": "b"}}),
                "spec.runtimeClass.allowedRuntimeClassNames: Required value: default \"b\" must be allowed",
            ),
        ] {
            let found = problems(&change);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{change}: {found:?}");
        }
        assert_eq!(problems(&json!({})), Vec::<String>::new());
    }

    #[test]
    fn reads_patterns_of_sysctls() {
        for (name, valid) in [
            ("*", true),
            ("kernel.shm*", true),
            ("net.core.somaxconn", true),
            ("a", true),
            ("", false),
            ("a..b", false),
            ("a.*.b", false),
            ("-a", false),
            ("A", false),
        ] {
            assert_eq!(is_sysctl_pattern(name), valid, "{name}");
        }
    }
}
