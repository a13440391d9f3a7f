//! What an API server makes of a constraint object before it stores it: defaults, and what it refuses.
//!
//! Implements: OpenShift's admission plugins `security.openshift.io/DefaultSecurityContextConstraints` and
//! `security.openshift.io/ValidateSecurityContextConstraints`. The shape of the object is the CRD schema's business.

use std::collections::BTreeSet;

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::change::{Change, NewValue};
use serde_json::{Value, json};

use super::constraint::{ANY, Constraint, Groups};

const HOST_PATH: &str = "hostPath";
const NONE: &str = "none";

/// What `*` becomes where folders of the node are not allowed: every type but that one.
const ALL_BUT_HOST_PATH: [&str; 29] = [
    "azureFile",
    "azureDisk",
    "flocker",
    "flexVolume",
    "emptyDir",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephFS",
    "downwardAPI",
    "fc",
    "configMap",
    "vsphere",
    "quobyte",
    "photonPersistentDisk",
    "projected",
    "portworxVolume",
    "scaleIO",
    "storageOS",
    "csi",
    "ephemeral",
    "image",
];

/// The defaults an object lacks.
#[must_use]
pub fn defaults(constraint: &Constraint, object: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut write = |at: FieldPath, value: Value| changes.push(Change { at, to: NewValue::Json(value) });
    for (field, groups) in
        [("fsGroup", &constraint.fs_group), ("supplementalGroups", &constraint.supplemental_groups)]
    {
        if groups.kind.is_empty() {
            write(FieldPath::of(&[field, "type"]), json!("RunAsAny"));
        }
    }
    for field in ["users", "groups"] {
        if object.get(field).is_none_or(Value::is_null) {
            write(FieldPath::of(&[field]), json!([]));
        }
    }
    let volumes = default_volumes(constraint);
    if constraint.volumes.as_ref() != Some(&volumes) {
        write(FieldPath::of(&["volumes"]), json!(volumes));
    }
    if constraint.allow_privilege_escalation.is_none() {
        write(FieldPath::of(&["allowPrivilegeEscalation"]), json!(true));
    }
    changes
}

/// `volumes` brought into line with the older `allowHostDirVolumePlugin`.
fn default_volumes(constraint: &Constraint) -> Vec<String> {
    let with_host = constraint.allow_host_dir_volume_plugin;
    let mut volumes: BTreeSet<&str> = match &constraint.volumes {
        None => [ANY].into(),
        Some(volumes) => volumes.iter().map(String::as_str).collect(),
    };
    if volumes.is_empty() {
        volumes.insert(if with_host { HOST_PATH } else { NONE });
    } else if with_host {
        if !volumes.contains(ANY) {
            volumes.insert(HOST_PATH);
        }
    } else {
        volumes.remove(HOST_PATH);
        if volumes.remove(ANY) {
            volumes.extend(ALL_BUT_HOST_PATH);
        }
    }
    volumes.into_iter().map(str::to_owned).collect()
}

/// What is wrong with an object.
#[must_use]
pub fn validate(constraint: &Constraint) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let at = |fields: &[&'static str]| FieldPath::of(fields);
    if let Some(priority) = constraint.priority.filter(|&priority| priority < 0) {
        problems.push(FieldError::invalid(at(&["priority"]), priority, "priority cannot be negative"));
    }
    let user = &constraint.run_as_user;
    if !["MustRunAs", "MustRunAsNonRoot", "MustRunAsRange", "RunAsAny"].contains(&user.kind.as_str()) {
        let detail =
            "invalid strategy type.  Valid values are MustRunAs, MustRunAsNonRoot, MustRunAsRange, RunAsAny";
        problems.push(FieldError::invalid(at(&["runAsUser", "type"]), Quoted(&user.kind), detail));
    }
    if let Some(uid) = user.uid.filter(|&uid| uid < 0) {
        problems.push(FieldError::invalid(at(&["runAsUser", "uid"]), uid, "uid cannot be negative"));
    }
    let context = &constraint.se_linux_context;
    if !["MustRunAs", "RunAsAny"].contains(&context.kind.as_str()) {
        let detail = "invalid strategy type.  Valid values are MustRunAs, RunAsAny";
        problems.push(FieldError::invalid(at(&["seLinuxContext", "type"]), Quoted(&context.kind), detail));
    }
    validate_groups("fsGroup", &constraint.fs_group, &mut problems);
    validate_groups("supplementalGroups", &constraint.supplemental_groups, &mut problems);
    validate_capabilities(constraint, &mut problems);
    if constraint.default_allow_privilege_escalation == Some(true)
        && constraint.allow_privilege_escalation == Some(false)
    {
        let detail = "Cannot set DefaultAllowPrivilegeEscalation to true without also setting \
                      AllowPrivilegeEscalation to true";
        problems.push(FieldError::invalid(at(&["defaultAllowPrivilegeEscalation"]), true, detail));
    }
    validate_volumes(constraint, &mut problems);
    validate_sysctls(constraint, &mut problems);
    problems
}

fn validate_groups(field: &'static str, groups: &Groups, problems: &mut Vec<FieldError>) {
    let known = ["MustRunAs", "RunAsAny"];
    if !known.contains(&groups.kind.as_str()) {
        problems.push(FieldError::not_supported(
            FieldPath::of(&[field, "type"]),
            Quoted(&groups.kind),
            &known,
        ));
    }
    for (index, range) in groups.ranges.iter().enumerate() {
        let at = |end| FieldPath::of(&[field, "ranges"]).index(index).field(end);
        if range.min < 0 {
            problems.push(FieldError::invalid(at("min"), range.min, "min cannot be negative"));
        }
        if range.max < 0 {
            problems.push(FieldError::invalid(at("max"), range.max, "max cannot be negative"));
        }
        if range.min > range.max {
            problems.push(FieldError::invalid(at("min"), range.min, "min cannot be greater than max"));
        }
    }
}

fn validate_capabilities(constraint: &Constraint, problems: &mut Vec<FieldError>) {
    let dropped = &constraint.required_drop_capabilities;
    for (field, list) in [
        ("defaultAddCapabilities", &constraint.default_add_capabilities),
        ("allowedCapabilities", &constraint.allowed_capabilities),
    ] {
        for name in list.iter().filter(|name| dropped.contains(name)) {
            let detail = format!("capability is listed in {field} and requiredDropCapabilities");
            problems.push(FieldError::invalid(FieldPath::of(&[field]), Quoted(name), detail));
        }
    }
    if !dropped.is_empty() && constraint.allowed_capabilities.iter().any(|name| name == ANY) {
        let detail = "required capabilities must be empty when all capabilities are allowed by a wildcard";
        problems.push(FieldError::invalid(
            FieldPath::of(&["requiredDropCapabilities"]),
            json!(dropped),
            detail,
        ));
    }
}

fn validate_volumes(constraint: &Constraint, problems: &mut Vec<FieldError>) {
    let volumes = constraint.volumes();
    if volumes.len() > 1 && volumes.iter().any(|volume| volume == NONE) {
        let detail = "if 'none' is specified, no other values are allowed";
        problems.push(FieldError::invalid(FieldPath::of(&["volumes"]), json!(volumes), detail));
    }
    let drivers = &constraint.allowed_flex_volumes;
    if drivers.is_empty() {
        return;
    }
    if constraint.allows_volume("flexVolume") {
        for (index, _) in drivers.iter().enumerate().filter(|(_, driver)| driver.driver.is_empty()) {
            let at = FieldPath::of(&["allowedFlexVolumes"]).index(index).field("driver");
            problems.push(FieldError::required(at, "must specify a driver"));
        }
    } else {
        let detail = "volumes does not include 'flexVolume' or '*', so no flex volumes are allowed";
        problems.push(FieldError::invalid(FieldPath::of(&["allowedFlexVolumes"]), json!(drivers), detail));
    }
}

fn validate_sysctls(constraint: &Constraint, problems: &mut Vec<FieldError>) {
    let Constraint { allowed_unsafe_sysctls: allowed, forbidden_sysctls: forbidden, .. } = constraint;
    for (field, list) in [("allowedUnsafeSysctls", allowed), ("forbiddenSysctls", forbidden)] {
        for (index, sysctl) in list.iter().enumerate() {
            let at = FieldPath::of(&[field]).index(index);
            if sysctl.is_empty() {
                problems.push(FieldError::invalid(at, Quoted(sysctl), "empty sysctl not allowed"));
            } else if sysctl == ANY && list.len() > 1 {
                let detail = "if '*' is present, must not specify other sysctls";
                problems.push(FieldError::invalid(at, Quoted(sysctl), detail));
            }
        }
    }
    for (index, sysctl) in allowed.iter().enumerate() {
        if let Some(other) = forbidden.iter().find(|other| overlap(sysctl, other)) {
            let at = FieldPath::of(&["allowedUnsafeSysctls"]).index(index);
            problems.push(FieldError::invalid(at, Quoted(sysctl), format!("sysctl overlaps with {other}")));
        }
    }
}

/// Whether some sysctl matches both patterns.
fn overlap(one: &str, other: &str) -> bool {
    match (one.strip_suffix('*'), other.strip_suffix('*')) {
        (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
        (Some(prefix), None) => other.starts_with(prefix),
        (None, Some(prefix)) => one.starts_with(prefix),
        (None, None) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Constraint, defaults, validate};
    use crate::scc::built_in;

    fn defaulted(mut object: Value) -> Value {
        for change in defaults(&Constraint::read(&object).unwrap(), &object) {
            change.apply(&mut object);
        }
        object
    }

    #[test]
    fn built_in_constraints_need_no_default_and_have_no_problem() {
        for object in built_in::objects() {
            assert_eq!(defaulted(object.clone()), object);
            assert_eq!(validate(&Constraint::read(&object).unwrap()), [], "{}", object["metadata"]["name"]);
        }
    }

    #[test]
    fn volumes_follow_the_older_switch() {
        let volumes = |object: Value| defaulted(object)["volumes"].clone();
        for (given, expected) in [
            (json!({"volumes": null, "allowHostDirVolumePlugin": true}), json!(["*"])),
            (json!({"volumes": [], "allowHostDirVolumePlugin": true}), json!(["hostPath"])),
            (json!({"volumes": []}), json!(["none"])),
            (json!({"volumes": ["secret"], "allowHostDirVolumePlugin": true}), json!(["hostPath", "secret"])),
            (json!({"volumes": ["secret", "hostPath", "csi"]}), json!(["csi", "secret"])),
        ] {
            assert_eq!(volumes(given.clone()), expected, "{given}");
        }
        let expanded = volumes(json!({"volumes": ["*"]}));
        assert_eq!(expanded.as_array().map(Vec::len), Some(29));
        let rest = defaulted(json!({"fsGroup": {"type": ""}, "volumes": ["secret"]}));
        assert_eq!(
            rest,
            json!({"fsGroup": {"type": "RunAsAny"}, "supplementalGroups": {"type": "RunAsAny"}, "users": [],
                   "groups": [], "volumes": ["secret"], "allowPrivilegeEscalation": true})
        );
    }

    #[test]
    fn reports_what_is_wrong() {
        let mut object = json!({
            "priority": -1, "runAsUser": {"type": "MustRunAs", "uid": -5}, "seLinuxContext": {"type": "Any"},
            "fsGroup": {"type": "MustRunAs", "ranges": [{"min": 5, "max": 3}]},
            "supplementalGroups": {"type": "MayRunAs"}, "allowedCapabilities": ["*", "KILL"],
            "requiredDropCapabilities": ["KILL"], "volumes": ["none", "secret"],
            "allowedFlexVolumes": [{"driver": "x"}], "allowPrivilegeEscalation": false,
            "defaultAllowPrivilegeEscalation": true, "allowedUnsafeSysctls": ["kernel.*", ""],
            "forbiddenSysctls": ["kernel.msgmax"],
        });
        let problems = |object: &Value| -> Vec<String> {
            validate(&Constraint::read(object).unwrap()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            problems(&object),
            [
                "priority: Invalid value: -1: priority cannot be negative",
                "runAsUser.uid: Invalid value: -5: uid cannot be negative",
                "seLinuxContext.type: Invalid value: \"Any\": invalid strategy type.  Valid values are MustRunAs, RunAsAny",
                "fsGroup.ranges[0].min: Invalid value: 5: min cannot be greater than max",
                "supplementalGroups.type: Unsupported value: \"MayRunAs\": supported values: \"MustRunAs\", \"RunAsAny\"",
                "allowedCapabilities: Invalid value: \"KILL\": capability is listed in allowedCapabilities and requiredDropCapabilities",
                "requiredDropCapabilities: Invalid value: [\"KILL\"]: required capabilities must be empty when all capabilities are allowed by a wildcard",
                "defaultAllowPrivilegeEscalation: Invalid value: true: Cannot set DefaultAllowPrivilegeEscalation to true without also setting AllowPrivilegeEscalation to true",
                "volumes: Invalid value: [\"none\",\"secret\"]: if 'none' is specified, no other values are allowed",
                "allowedFlexVolumes: Invalid value: [{\"driver\":\"x\"}]: volumes does not include 'flexVolume' or '*', so no flex volumes are allowed",
                "allowedUnsafeSysctls[1]: Invalid value: \"\": empty sysctl not allowed",
                "allowedUnsafeSysctls[0]: Invalid value: \"kernel.*\": sysctl overlaps with kernel.msgmax",
            ]
        );
        object["runAsUser"] = json!({"type": "Root"});
        assert!(
            problems(&object).iter().any(|text| text.contains("MustRunAsNonRoot, MustRunAsRange, RunAsAny"))
        );
    }
}
