//! Kinds that the server stores for other components: networking, storage, scheduling, devices, autoscaling and flow control.
//!
//! Implements: defaults and the common rules of `pkg/apis/{networking,discovery,storage,scheduling,resource,autoscaling,
//! flowcontrol,storagemigration}` and of persistent volumes in `pkg/apis/core`. Nothing in this server acts on these objects,
//! except where `docs/up.md` names it.

use palisade_base::field_path::Path;
use palisade_base::go;
use serde_json::{Value, json};

use super::{
    Strategy, bump_generation, keep, no_default, no_prepare_create, no_prepare_update, no_reset, set_default,
    set_generation, update_spec_or_status, validate_meta_only, validate_update_meta_only,
};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

/// Without a status: defaults, rules, and what an update may not change.
macro_rules! plain {
    ($name:ident, $default:expr, $validate:expr, $immutable:expr) => {
        pub(crate) static $name: Strategy = Strategy {
            default: $default,
            prepare_create: no_prepare_create,
            prepare_update: no_prepare_update,
            validate: |object, kind, errors| {
                validate_meta_only(object, kind, errors);
                ($validate)(object, errors);
            },
            validate_update: |new, old, _, _, errors| {
                meta::validate_update(new, old, errors);
                ($validate)(new, errors);
                unchanged(new, old, $immutable, errors);
            },
            reset_fields: no_reset,
        };
    };
}

/// With a spec and a status, each written through its own path.
macro_rules! with_status {
    ($name:ident, $default:expr, $create:expr, $validate:expr, $immutable:expr) => {
        pub(crate) static $name: Strategy = Strategy {
            default: $default,
            prepare_create: |object, _| {
                if let Some(object) = object.as_object_mut() {
                    object.remove("status");
                }
                ($create)(object);
            },
            prepare_update: update_spec_or_status,
            validate: |object, kind, errors| {
                validate_meta_only(object, kind, errors);
                ($validate)(object, errors);
            },
            validate_update: |new, old, subresource, _, errors| {
                meta::validate_update(new, old, errors);
                if subresource.is_empty() {
                    ($validate)(new, errors);
                    unchanged(new, old, $immutable, errors);
                }
            },
            reset_fields: spec_or_status,
        };
    };
}

pub(super) fn spec_or_status(subresource: &str) -> ResetFields {
    match subresource {
        "" => ResetFields::Exclude(&[&["status"]]),
        "status" => ResetFields::Exclude(&[&["spec"]]),
        _ => ResetFields::NONE,
    }
}

fn unchanged(new: &Value, old: &Value, fields: &[&'static str], errors: &mut Errors) {
    for field in fields {
        errors.immutable(&Path::Root(field), new.get(field), old.get(field));
    }
}

fn any(_: &Value, _: &mut Errors) {}

/// A text field at the top that must be set.
fn required(object: &Value, field: &'static str, errors: &mut Errors) {
    if object.text(field).is_empty() {
        errors.required(&Path::Root(field), "");
    }
}

/// A text field of the spec that must be set.
fn required_in_spec(object: &Value, field: &str, errors: &mut Errors) {
    if object.get("spec").is_none_or(|spec| spec.text(field).is_empty()) {
        errors.required(&Path::Root("spec").field(field), "");
    }
}

fn one_of(value: &str, at: &Path<'_>, supported: &[&str], errors: &mut Errors) {
    if !value.is_empty() && !supported.contains(&value) {
        errors.not_supported(at, value, supported);
    }
}

fn items_mut<'v>(object: &'v mut Value, pointer: &str) -> impl Iterator<Item = &'v mut Value> {
    object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

fn default_protocols<'v>(ports: impl Iterator<Item = &'v mut Value>) {
    ports.for_each(|port| set_default(port, "protocol", "TCP"));
}

plain!(
    ENDPOINTS,
    |object, _| {
        for subset in items_mut(object, "/subsets") {
            default_protocols(items_mut(subset, "/ports"));
        }
    },
    any,
    &[]
);

const ADDRESS_TYPES: &[&str] = &["FQDN", "IPv4", "IPv6"];

plain!(
    ENDPOINT_SLICE,
    |object, _| {
        for port in items_mut(object, "/ports") {
            set_default(port, "name", "");
            set_default(port, "protocol", "TCP");
        }
    },
    |object: &Value, errors: &mut Errors| {
        required(object, "addressType", errors);
        one_of(object.text("addressType"), &Path::Root("addressType"), ADDRESS_TYPES, errors);
        for (i, endpoint) in object.list("endpoints").iter().enumerate() {
            if endpoint.list("addresses").is_empty() {
                let endpoints = Path::Root("endpoints");
                let endpoint = endpoints.index(i);
                errors.required(&endpoint.field("addresses"), "must contain at least 1 address");
            }
        }
    },
    &["addressType"]
);

plain!(
    INGRESS_CLASS,
    |object, _| {
        if let Some(parameters) = object.pointer_mut("/spec/parameters").filter(|p| p.is_object()) {
            set_default(parameters, "scope", "Cluster");
        }
    },
    |object: &Value, errors: &mut Errors| required_in_spec(object, "controller", errors),
    &[]
);

pub(crate) static NETWORK_POLICY: Strategy = Strategy {
    default: |object, _| {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
        for (rules, to) in [("ingress", "/ports"), ("egress", "/ports")] {
            for rule in spec.get_mut(rules).and_then(Value::as_array_mut).into_iter().flatten() {
                default_protocols(items_mut(rule, to));
            }
        }
        if spec.list("policyTypes").is_empty() {
            let egress = !spec.list("egress").is_empty();
            spec["policyTypes"] = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        }
    },
    prepare_create: |object, _| set_generation(object),
    prepare_update: |new, old, _, _| {
        let changed = new.get("spec") != old.get("spec");
        bump_generation(new, old, changed);
    },
    validate: |object, kind, errors| {
        validate_meta_only(object, kind, errors);
        validate_policy_types(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_policy_types(new, errors);
    },
    reset_fields: no_reset,
};

fn validate_policy_types(object: &Value, errors: &mut Errors) {
    let spec = Path::Root("spec");
    let types = object.get("spec").map_or(&[][..], |spec| spec.list("policyTypes"));
    let at = spec.field("policyTypes");
    for (i, policy_type) in types.iter().enumerate() {
        one_of(policy_type.as_str().unwrap_or_default(), &at.index(i), &["Egress", "Ingress"], errors);
    }
}

with_status!(INGRESS, no_default, set_generation, validate_ingress, &[]);

const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];

fn validate_ingress(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let root = Path::Root("spec");
    if spec.list("rules").is_empty() && spec.child("defaultBackend").is_none() {
        let either = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(&root, spec, either);
    }
    let rules = root.field("rules");
    for (i, rule) in spec.list("rules").iter().enumerate() {
        let (rule_at, http) = (rules.index(i), rule.child("http"));
        let http_at = rule_at.field("http");
        let paths_at = http_at.field("paths");
        for (i, path) in http.map_or(&[][..], |http| http.list("paths")).iter().enumerate() {
            let at = paths_at.index(i);
            let path_type = path.text("pathType");
            if path_type.is_empty() {
                errors.required(&at.field("pathType"), "pathType must be specified");
            }
            one_of(path_type, &at.field("pathType"), PATH_TYPES, errors);
            let text = path.text("path");
            if matches!(path_type, "Exact" | "Prefix") && !text.starts_with('/') {
                errors.invalid(&at.field("path"), text, "must be an absolute path");
            }
        }
    }
}

pub(crate) static IP_ADDRESS: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: |object, _, errors| {
        meta::validate(object, false, NameRule::Address, errors);
        validate_address(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_address(new, errors);
        unchanged(new, old, &["spec"], errors);
    },
    reset_fields: no_reset,
};

fn validate_address(object: &Value, errors: &mut Errors) {
    if object.get("spec").is_none_or(|spec| spec.child("parentRef").is_none()) {
        errors.required(&Path::Root("spec").field("parentRef"), "");
    }
}

with_status!(
    SERVICE_CIDR,
    no_default,
    |_: &mut Value| {},
    |object: &Value, errors: &mut Errors| {
        if object.get("spec").is_none_or(|spec| spec.list("cidrs").is_empty()) {
            errors.required(&Path::Root("spec").field("cidrs"), "at least one CIDR required");
        }
    },
    &[]
);

plain!(
    STORAGE_CLASS,
    |object, _| {
        set_default(object, "reclaimPolicy", "Delete");
        set_default(object, "volumeBindingMode", "Immediate");
    },
    |object: &Value, errors: &mut Errors| {
        required(object, "provisioner", errors);
        let policies = &["Delete", "Retain"];
        one_of(object.text("reclaimPolicy"), &Path::Root("reclaimPolicy"), policies, errors);
        let modes = &["Immediate", "WaitForFirstConsumer"];
        one_of(object.text("volumeBindingMode"), &Path::Root("volumeBindingMode"), modes, errors);
    },
    &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"]
);

plain!(
    VOLUME_ATTRIBUTES_CLASS,
    no_default,
    |object: &Value, errors: &mut Errors| required(object, "driverName", errors),
    &["driverName", "parameters"]
);

plain!(
    CSI_DRIVER,
    |object, _| {
        let Some(spec) = super::section(object, "spec") else { return };
        set_default(spec, "attachRequired", true);
        set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        set_default(spec, "podInfoOnMount", false);
        set_default(spec, "requiresRepublish", false);
        set_default(spec, "seLinuxMount", false);
        set_default(spec, "storageCapacity", false);
        if spec.list("volumeLifecycleModes").is_empty() {
            spec["volumeLifecycleModes"] = json!(["Persistent"]);
        }
    },
    |object: &Value, errors: &mut Errors| {
        let spec = Path::Root("spec");
        let modes = object.get("spec").map_or(&[][..], |spec| spec.list("volumeLifecycleModes"));
        let at = spec.field("volumeLifecycleModes");
        for (i, mode) in modes.iter().enumerate() {
            one_of(mode.as_str().unwrap_or_default(), &at.index(i), &["Ephemeral", "Persistent"], errors);
        }
    },
    &[]
);

pub(crate) static CSI_NODE: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: |new, old, subresource, _| {
        keep(new, old, if subresource == "status" { "spec" } else { "status" });
    },
    validate: |object, kind, errors| {
        validate_meta_only(object, kind, errors);
        validate_drivers(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_drivers(new, errors);
    },
    reset_fields: spec_or_status,
};

fn validate_drivers(object: &Value, errors: &mut Errors) {
    let spec = Path::Root("spec");
    let list = spec.field("drivers");
    let drivers = object.get("spec").map_or(&[][..], |spec| spec.list("drivers"));
    for (i, driver) in drivers.iter().enumerate() {
        let (at, name) = (list.index(i), driver.text("name"));
        for field in ["name", "nodeID"] {
            if driver.text(field).is_empty() {
                errors.required(&at.field(field), "");
            }
        }
        if drivers.iter().take(i).any(|other| other.text("name") == name) {
            errors.duplicate(&at.field("name"), name);
        }
    }
}

plain!(
    CSI_STORAGE_CAPACITY,
    no_default,
    |object: &Value, errors: &mut Errors| required(object, "storageClassName", errors),
    &["nodeTopology", "storageClassName"]
);

with_status!(
    VOLUME_ATTACHMENT,
    no_default,
    |_: &mut Value| {},
    |object: &Value, errors: &mut Errors| {
        required_in_spec(object, "attacher", errors);
        required_in_spec(object, "nodeName", errors);
        if object
            .pointer("/spec/source")
            .is_none_or(|source| source.as_object().is_none_or(serde_json::Map::is_empty))
        {
            let spec = Path::Root("spec");
            errors.required(
                &spec.field("source"),
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            );
        }
    },
    &["spec"]
);

pub(crate) static VOLUME: Strategy = Strategy {
    default: |object, _| {
        if let Some(spec) = super::section(object, "spec") {
            set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
            set_default(spec, "volumeMode", "Filesystem");
        }
        if let Some(status) = super::section(object, "status") {
            set_default(status, "phase", "Pending");
        }
    },
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({"phase": "Pending"}));
        }
    },
    prepare_update: |new, old, subresource, _| {
        keep(new, old, if subresource == "status" { "spec" } else { "status" });
    },
    validate: |object, kind, errors| {
        validate_meta_only(object, kind, errors);
        validate_volume(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_volume(new, errors);
        let mode = |object: &Value| object.pointer("/spec/volumeMode").cloned();
        let spec = Path::Root("spec");
        errors.immutable(&spec.field("volumeMode"), mode(new).as_ref(), mode(old).as_ref());
    },
    reset_fields: spec_or_status,
};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn validate_volume(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let root = Path::Root("spec");
    let modes_at = root.field("accessModes");
    if spec.list("accessModes").is_empty() {
        errors.required(&modes_at, "");
    }
    for mode in spec.list("accessModes") {
        one_of(mode.as_str().unwrap_or_default(), &modes_at, ACCESS_MODES, errors);
    }
    if spec.entries("capacity").next().is_none() {
        errors.required(&root.field("capacity"), "");
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    let at = root.field("persistentVolumeReclaimPolicy");
    one_of(policy, &at, &["Delete", "Recycle", "Retain"], errors);
    one_of(spec.text("volumeMode"), &root.field("volumeMode"), &["Block", "Filesystem"], errors);
}

plain!(DEVICE_CLASS, no_default, any, &[]);

fn default_device_requests(spec: &mut Value) {
    for request in items_mut(spec, "/devices/requests") {
        let alternatives =
            request.get_mut("firstAvailable").and_then(Value::as_array_mut).map(std::mem::take);
        let mut alternatives = alternatives.unwrap_or_default();
        let exactly = request.get_mut("exactly").filter(|exactly| exactly.is_object());
        for request in exactly.into_iter().chain(&mut alternatives) {
            set_default(request, "allocationMode", "ExactCount");
            if request.text("allocationMode") == "ExactCount" && request.int("count").unwrap_or(0) == 0 {
                request["count"] = 1.into();
            }
            for toleration in items_mut(request, "/tolerations") {
                set_default(toleration, "operator", "Equal");
            }
        }
        if !alternatives.is_empty() {
            request["firstAvailable"] = alternatives.into();
        }
    }
}

with_status!(
    RESOURCE_CLAIM,
    |object, _| {
        object.get_mut("spec").into_iter().for_each(default_device_requests);
    },
    |_: &mut Value| {},
    any,
    &["spec"]
);

plain!(
    RESOURCE_CLAIM_TEMPLATE,
    |object, _| {
        object.pointer_mut("/spec/spec").into_iter().for_each(default_device_requests);
    },
    any,
    &["spec"]
);

pub(crate) static RESOURCE_SLICE: Strategy = Strategy {
    default: no_default,
    prepare_create: |object, _| set_generation(object),
    prepare_update: |new, old, _, _| {
        let changed = new.get("spec") != old.get("spec");
        bump_generation(new, old, changed);
    },
    validate: |object, kind, errors| {
        validate_meta_only(object, kind, errors);
        required_in_spec(object, "driver", errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        let field = |object: &Value, name: &str| object.pointer(&format!("/spec/{name}")).cloned();
        let spec = Path::Root("spec");
        for name in ["driver", "nodeName"] {
            errors.immutable(&spec.field(name), field(new, name).as_ref(), field(old, name).as_ref());
        }
    },
    reset_fields: no_reset,
};

/// The APIs of this server; those of other servers are refused, because nothing forwards requests to them.
pub(crate) static API_SERVICE: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: |new, old, subresource, _| {
        keep(new, old, if subresource == "status" { "spec" } else { "status" });
    },
    validate: |object, _, errors| {
        meta::validate(object, false, NameRule::PathSegment, errors);
        validate_api_service(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_api_service(new, errors);
    },
    reset_fields: spec_or_status,
};

fn validate_api_service(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let (root, metadata) = (Path::Root("spec"), Path::Root("metadata"));
    let required = format!("{}.{}", spec.text("version"), spec.text("group"));
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if name != required {
        let why = format!("must be `spec.version+\".\"+spec.group`: {}", go::quote(&required));
        errors.invalid(&metadata.field("name"), name, why);
    }
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = spec.int(field).unwrap_or(0);
        if priority <= 0 || priority > most {
            errors.invalid(&root.field(field), priority, format!("must be positive and less than {most}"));
        }
    }
    if spec.child("service").is_some() {
        let why = "requests are not forwarded to other API servers: this server serves its own APIs alone";
        errors.forbidden(&root.field("service"), why);
    }
}

with_status!(DEVICE_TAINT_RULE, no_default, set_generation, any, &[]);
with_status!(STORAGE_VERSION_MIGRATION, no_default, |_: &mut Value| {}, any, &["spec"]);

/// The rules of autoscalers, in the form of v2.
pub(super) fn validate_autoscaler(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let root = Path::Root("spec");
    let target = root.field("scaleTargetRef");
    for field in ["kind", "name"] {
        if spec.get("scaleTargetRef").is_none_or(|target| target.text(field).is_empty()) {
            errors.required(&target.field(field), "");
        }
    }
    let (least, most) = (spec.int("minReplicas").unwrap_or(1), spec.int("maxReplicas").unwrap_or(0));
    if least < 1 {
        errors.invalid(&root.field("minReplicas"), least, "must be greater than or equal to 1");
    }
    if most < 1 {
        errors.invalid(&root.field("maxReplicas"), most, "must be greater than 0");
    }
    if most < least {
        errors.invalid(&root.field("maxReplicas"), most, "must be greater than or equal to `minReplicas`");
    }
}

with_status!(
    AUTOSCALER,
    |object, _| {
        let Some(spec) = super::section(object, "spec") else { return };
        set_default(spec, "minReplicas", 1);
        if spec.list("metrics").is_empty() {
            let target = json!({"type": "Utilization", "averageUtilization": 80});
            spec["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
        }
    },
    |_: &mut Value| {},
    validate_autoscaler,
    &[]
);

with_status!(
    FLOW_SCHEMA,
    |object, _| {
        if let Some(spec) = super::section(object, "spec") {
            set_default(spec, "matchingPrecedence", 1000);
        }
    },
    set_generation,
    |object: &Value, errors: &mut Errors| {
        let level = object.pointer("/spec/priorityLevelConfiguration/name").and_then(Value::as_str);
        if level.is_none_or(str::is_empty) {
            let spec = Path::Root("spec");
            let level = spec.field("priorityLevelConfiguration");
            errors.required(&level.field("name"), "must reference a priority level");
        }
        let precedence = object.get("spec").and_then(|spec| spec.int("matchingPrecedence")).unwrap_or(0);
        if !(1..=10_000).contains(&precedence) {
            let at = Path::Root("spec");
            errors.invalid(
                &at.field("matchingPrecedence"),
                precedence,
                "must be a value between 1 and 10000, inclusive",
            );
        }
    },
    &[]
);

with_status!(
    PRIORITY_LEVEL,
    |object, _| {
        if let Some(exempt) = object.pointer_mut("/spec/exempt").filter(|exempt| exempt.is_object()) {
            set_default(exempt, "nominalConcurrencyShares", 0);
            set_default(exempt, "lendablePercent", 0);
        }
        let Some(limited) = object.pointer_mut("/spec/limited").filter(|limited| limited.is_object()) else {
            return;
        };
        set_default(limited, "nominalConcurrencyShares", 30);
        set_default(limited, "lendablePercent", 0);
        let Some(queuing) = limited.pointer_mut("/limitResponse/queuing").filter(|q| q.is_object()) else {
            return;
        };
        for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            if queuing.int(field).unwrap_or(0) == 0 {
                queuing[field] = value.into();
            }
        }
    },
    set_generation,
    |object: &Value, errors: &mut Errors| {
        required_in_spec(object, "type", errors);
        let spec = Path::Root("spec");
        let kind = object.get("spec").map_or("", |spec| spec.text("type"));
        one_of(kind, &spec.field("type"), &["Exempt", "Limited"], errors);
    },
    &[]
);

/// The highest priority that a class of users may have; those above are the system's.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

/// The classes of the system, with the value each must have.
const SYSTEM_CLASSES: &[(&str, i64)] =
    &[("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

pub(crate) static PRIORITY_CLASS: Strategy = Strategy {
    default: |object, _| set_default(object, "preemptionPolicy", "PreemptLowerPriority"),
    prepare_create: |object, _| set_generation(object),
    prepare_update: no_prepare_update,
    validate: validate_priority_class,
    validate_update: |new, old, subresource, kind, errors| {
        validate_update_meta_only(new, old, subresource, kind, errors);
        if new.int("value").unwrap_or(0) != old.int("value").unwrap_or(0) {
            errors.forbidden(&Path::Root("value"), "may not be changed in an update.");
        }
        let policy = (new.get("preemptionPolicy"), old.get("preemptionPolicy"));
        errors.immutable(&Path::Root("preemptionPolicy"), policy.0, policy.1);
    },
    reset_fields: no_reset,
};

fn validate_priority_class(object: &Value, kind: &Kind, errors: &mut Errors) {
    validate_meta_only(object, kind, errors);
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let value = object.int("value").unwrap_or(0);
    let system = SYSTEM_CLASSES.contains(&(name, value)) && object.flag("globalDefault") != Some(true);
    if name.starts_with("system-") && !system {
        let metadata = Path::Root("metadata");
        let why = "priority class names with 'system-' prefix are reserved for system use only. error: ";
        let known = SYSTEM_CLASSES.iter().any(|(known, _)| *known == name);
        let detail = if !known {
            format!("{name} is not a known system priority class")
        } else if object.flag("globalDefault") == Some(true) {
            format!("globalDefault of {name} must be false")
        } else {
            let expected =
                SYSTEM_CLASSES.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
            format!("value of {name} PriorityClass must be {expected}")
        };
        errors.forbidden(&metadata.field("name"), format!("{why}{detail}"));
    } else if !system && value > HIGHEST_PRIORITY {
        errors.forbidden(
            &Path::Root("value"),
            format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"),
        );
    }
    let policies = &["Never", "PreemptLowerPriority"];
    one_of(object.text("preemptionPolicy"), &Path::Root("preemptionPolicy"), policies, errors);
}
