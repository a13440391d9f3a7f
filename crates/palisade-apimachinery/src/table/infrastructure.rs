//! Columns and rows of the kinds of networking, storage, scheduling, devices, autoscaling, flow control, certificates and
//! admission policies.

use palisade_base::time;
use serde_json::Value;

use super::rows::selector;
use super::{Clock, Column, column};
use crate::kinds::autoscaling;
use crate::rest::path::Get;
use crate::scheme::Kind;

/// Columns by group and kind; those with `#` are whole numbers, with `?` yes or no, with `+` wide ones.
const COLUMNS: &[(&str, &str, &[&str])] = &[
    ("", "ComponentStatus", &["Name", "Status", "Message", "Error"]),
    (
        "",
        "PersistentVolume",
        &[
            "Name",
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "VolumeAttributesClass",
            "Reason",
            "Age",
            "+VolumeMode",
        ],
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", &["Name", "#Mutations", "ParamKind", "Age"]),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        &["Name", "#Validations", "ParamKind", "Age"],
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
        &["Name", "PolicyName", "ParamRef", "Age"],
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        &["Name", "PolicyName", "ParamRef", "Age"],
    ),
    ("apiregistration.k8s.io", "APIService", &["Name", "Service", "Available", "Age"]),
    (
        "autoscaling",
        "HorizontalPodAutoscaler",
        &["Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"],
    ),
    (
        "certificates.k8s.io",
        "CertificateSigningRequest",
        &["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"],
    ),
    ("certificates.k8s.io", "ClusterTrustBundle", &["Name", "SignerName"]),
    (
        "certificates.k8s.io",
        "PodCertificateRequest",
        &[
            "Name",
            "PodName",
            "ServiceAccountName",
            "NodeName",
            "SignerName",
            "State",
            "UnverifiedUserAnnotations",
        ],
    ),
    ("discovery.k8s.io", "EndpointSlice", &["Name", "AddressType", "Ports", "Endpoints", "Age"]),
    (
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
        &["Name", "PriorityLevel", "MatchingPrecedence", "DistinguisherMethod", "Age", "MissingPL"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        &["Name", "Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"],
    ),
    ("networking.k8s.io", "Ingress", &["Name", "Class", "Hosts", "Address", "Ports", "Age"]),
    ("networking.k8s.io", "IngressClass", &["Name", "Controller", "Parameters", "Age"]),
    ("networking.k8s.io", "IPAddress", &["Name", "ParentRef"]),
    ("networking.k8s.io", "NetworkPolicy", &["Name", "Pod-Selector", "Age"]),
    ("networking.k8s.io", "ServiceCIDR", &["Name", "CIDRs", "Age"]),
    ("resource.k8s.io", "DeviceClass", &["Name", "Age"]),
    ("resource.k8s.io", "DeviceTaintRule", &["Name", "Key", "Value", "Effect", "TimeAdded", "Age"]),
    ("resource.k8s.io", "ResourceClaim", &["Name", "State", "Age"]),
    ("resource.k8s.io", "ResourceClaimTemplate", &["Name", "Age"]),
    ("resource.k8s.io", "ResourceSlice", &["Name", "Node", "Driver", "Pool", "Age"]),
    ("scheduling.k8s.io", "PriorityClass", &["Name", "#Value", "?Global-Default", "Age", "PreemptionPolicy"]),
    (
        "storage.k8s.io",
        "CSIDriver",
        &[
            "Name",
            "?AttachRequired",
            "?PodInfoOnMount",
            "?StorageCapacity",
            "TokenRequests",
            "?RequiresRepublish",
            "Modes",
            "Age",
        ],
    ),
    ("storage.k8s.io", "CSINode", &["Name", "#Drivers", "Age"]),
    (
        "storage.k8s.io",
        "StorageClass",
        &["Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"],
    ),
    ("storage.k8s.io", "VolumeAttachment", &["Name", "Attacher", "PV", "Node", "?Attached", "Age"]),
    ("storage.k8s.io", "VolumeAttributesClass", &["Name", "DriverName", "Age"]),
];

/// The columns of a kind that is here.
pub(super) fn columns(kind: &Kind) -> Option<Vec<Column>> {
    let (.., names) = COLUMNS.iter().find(|(group, name, _)| *group == kind.group && *name == kind.kind)?;
    let columns = names.iter().map(|name| match name.split_at(1) {
        ("#", name) => column(name, "integer", 0),
        ("?", name) => column(name, "boolean", 0),
        ("+", name) => column(name, "string", 1),
        _ => column(name, "string", 0),
    });
    Some(columns.collect())
}

fn or(text: &str, other: &str) -> Value {
    if text.is_empty() { other.into() } else { text.into() }
}

/// The texts of a list, or what stands for none.
fn texts(list: &[Value], none: &str) -> Value {
    let texts: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    or(&texts.join(","), none)
}

/// The first three texts, and how many more there are.
fn first_three(mut all: Vec<String>, none: &str) -> Value {
    let more = all.len().saturating_sub(3);
    all.truncate(3);
    match (all.is_empty(), more) {
        (true, _) => none.into(),
        (false, 0) => all.join(",").into(),
        (false, more) => format!("{} + {more} more...", all.join(",")).into(),
    }
}

/// The cells of an object of a kind that is here.
pub(super) fn cells(kind: &Kind, object: &Value, clock: Clock) -> Option<Vec<Value>> {
    if !COLUMNS.iter().any(|(group, name, _)| *group == kind.group && *name == kind.kind) {
        return None;
    }
    let empty = Value::Null;
    let meta = object.get("metadata").unwrap_or(&empty);
    let spec = object.get("spec").unwrap_or(&empty);
    let status = object.get("status").unwrap_or(&empty);
    let age = || Value::from(clock.since(meta.get("creationTimestamp")));
    let mut row = vec![shown_name(kind, meta)];
    row.extend(match kind.kind.as_str() {
        "ComponentStatus" => component(object),
        "PersistentVolume" => volume(object, spec, status, age()),
        "MutatingAdmissionPolicy" => vec![spec.list("mutations").len().into(), param_kind(spec), age()],
        "ValidatingAdmissionPolicy" => vec![spec.list("validations").len().into(), param_kind(spec), age()],
        "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => {
            vec![spec.text("policyName").into(), param_ref(spec), age()]
        }
        "APIService" => vec![service_of(spec), availability(status), age()],
        "HorizontalPodAutoscaler" if kind.is_stored_otherwise() => {
            // swallowed: annotations were read when the object was written; without them, its own fields are shown
            let whole = autoscaling::to_v2(object.clone()).unwrap_or_else(|_| object.clone());
            autoscaler(whole.get("spec").unwrap_or(&empty), whole.get("status").unwrap_or(&empty), age())
        }
        "HorizontalPodAutoscaler" => autoscaler(spec, status, age()),
        "CertificateSigningRequest" => signing_request(spec, status, age()),
        "ClusterTrustBundle" => vec![or(spec.text("signerName"), "<none>")],
        "PodCertificateRequest" => pod_certificate(spec, status),
        "EndpointSlice" => endpoint_slice(object, age()),
        "FlowSchema" => flow_schema(spec, status, age()),
        "PriorityLevelConfiguration" => priority_level(spec, age()),
        "Ingress" => ingress(meta, spec, status, age()),
        "IngressClass" => vec![spec.text("controller").into(), parameters(spec), age()],
        // Upstream prints an age without a column for it.
        "IPAddress" => vec![parent(spec), age()],
        "NetworkPolicy" => vec![selector(spec.get("podSelector")), age()],
        "ServiceCIDR" => vec![texts(spec.list("cidrs"), ""), age()],
        "DeviceClass" | "ResourceClaimTemplate" => vec![age()],
        "DeviceTaintRule" => {
            let taint = spec.get("taint").unwrap_or(&empty);
            let added = clock.since(taint.get("timeAdded")).into();
            vec![
                taint.text("key").into(),
                taint.text("value").into(),
                taint.text("effect").into(),
                added,
                age(),
            ]
        }
        "ResourceClaim" => vec![claim_state(object, status), age()],
        "ResourceSlice" => {
            let pool = spec.get("pool").map_or("", |pool| pool.text("name"));
            vec![spec.text("nodeName").into(), spec.text("driver").into(), pool.into(), age()]
        }
        "PriorityClass" => vec![
            object.int("value").unwrap_or(0).into(),
            object.flag("globalDefault").unwrap_or(false).into(),
            age(),
            object.text("preemptionPolicy").into(),
        ],
        "CSIDriver" => driver(spec, age()),
        "CSINode" => vec![spec.list("drivers").len().into(), age()],
        "StorageClass" => storage_class(object, age()),
        "VolumeAttachment" => vec![
            spec.text("attacher").into(),
            spec.get("source").map_or("", |source| source.text("persistentVolumeName")).into(),
            spec.text("nodeName").into(),
            status.flag("attached").unwrap_or(false).into(),
            age(),
        ],
        "VolumeAttributesClass" => vec![object.text("driverName").into(), age()],
        _ => return None,
    });
    Some(row)
}

/// The name; that of the default storage class says so.
fn shown_name(kind: &Kind, meta: &Value) -> Value {
    let annotations = meta.get("annotations").unwrap_or(&Value::Null);
    let marks =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let is_default = kind.kind == "StorageClass" && marks.iter().any(|mark| annotations.text(mark) == "true");
    let name = meta.text("name");
    if is_default { format!("{name} (default)").into() } else { name.into() }
}

fn component(object: &Value) -> Vec<Value> {
    let healthy = object.list("conditions").iter().find(|condition| condition.text("type") == "Healthy");
    let state = match healthy.map_or("", |condition| condition.text("status")) {
        "True" => "Healthy",
        "False" => "Unhealthy",
        _ => "Unknown",
    };
    let text = |field: &str| healthy.map_or("", |condition| condition.text(field)).into();
    vec![state.into(), text("message"), text("error")]
}

fn volume(object: &Value, spec: &Value, status: &Value, age: Value) -> Vec<Value> {
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    let claim = spec.get("claimRef").filter(|claim| claim.is_object());
    let claim = claim.map(|claim| format!("{}/{}", claim.text("namespace"), claim.text("name")));
    vec![
        spec.get("capacity").map_or("", |capacity| capacity.text("storage")).into(),
        access_modes(spec.list("accessModes")).into(),
        spec.text("persistentVolumeReclaimPolicy").into(),
        if deleting { "Terminating" } else { status.text("phase") }.into(),
        claim.unwrap_or_default().into(),
        spec.text("storageClassName").into(),
        or(spec.text("volumeAttributesClassName"), "<unset>"),
        status.text("reason").into(),
        age,
        or(spec.text("volumeMode"), "<unset>"),
    ]
}

/// `RWO,ROX`
pub(super) fn access_modes(modes: &[Value]) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    modes.iter().map(short).collect::<Vec<_>>().join(",")
}

fn param_kind(spec: &Value) -> Value {
    match spec.child("paramKind") {
        Some(kind) => format!("{}/{}", kind.text("apiVersion"), kind.text("kind")).into(),
        None => "<unset>".into(),
    }
}

fn param_ref(spec: &Value) -> Value {
    let Some(param) = spec.child("paramRef") else { return "<unset>".into() };
    match (param.text("namespace"), param.text("name")) {
        ("", "") => selector(param.get("selector")),
        ("", name) => name.into(),
        (namespace, "") => {
            format!("{namespace}/{}", selector(param.get("selector")).as_str().unwrap_or_default()).into()
        }
        (namespace, name) => format!("{namespace}/{name}").into(),
    }
}

fn service_of(spec: &Value) -> Value {
    match spec.child("service") {
        Some(service) => format!("{}/{}", service.text("namespace"), service.text("name")).into(),
        None => "Local".into(),
    }
}

fn availability(status: &Value) -> Value {
    let available = status.list("conditions").iter().find(|condition| condition.text("type") == "Available");
    match available {
        None => "Unknown".into(),
        Some(condition) if condition.text("status") == "True" => "True".into(),
        Some(condition) => format!("{} ({})", condition.text("status"), condition.text("reason")).into(),
    }
}

fn autoscaler(spec: &Value, status: &Value, age: Value) -> Vec<Value> {
    let target = spec.get("scaleTargetRef").unwrap_or(&Value::Null);
    let metrics: Vec<String> = spec
        .list("metrics")
        .iter()
        .enumerate()
        .map(|(i, metric)| metric_text(metric, status.list("currentMetrics").get(i)))
        .collect();
    let shown = match metrics.len() {
        0 => "<none>".to_owned(),
        1 | 2 => metrics.join(", "),
        many => format!("{} + {} more...", metrics[..2].join(", "), many - 2),
    };
    vec![
        format!("{}/{}", target.text("kind"), target.text("name")).into(),
        shown.into(),
        spec.int("minReplicas").map_or_else(|| "<unset>".to_owned(), |least| least.to_string()).into(),
        spec.int("maxReplicas").unwrap_or(0).into(),
        status.int("currentReplicas").unwrap_or(0).into(),
        age,
    ]
}

/// `cpu: 12%/70%`, `100m/1`, `<unknown>/1 (avg)`
fn metric_text(metric: &Value, current: Option<&Value>) -> String {
    let (field, named) = match metric.text("type") {
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        _ => return "<unknown type>".to_owned(),
    };
    let empty = Value::Null;
    let source = metric.get(field).unwrap_or(&empty);
    let target = source.get("target").unwrap_or(&empty);
    let now = current.and_then(|current| current.get(field)?.get("current")).unwrap_or(&empty);
    let unknown = |text: &str| if text.is_empty() { "<unknown>".to_owned() } else { text.to_owned() };
    let shown = if let Some(utilization) = target.int("averageUtilization") {
        let now =
            now.int("averageUtilization").map_or_else(|| "<unknown>".to_owned(), |now| format!("{now}%"));
        format!("{now}/{utilization}%")
    } else if target.child("averageValue").is_some() {
        let average = if matches!(field, "external" | "object") { " (avg)" } else { "" };
        format!("{}/{}{average}", unknown(now.text("averageValue")), target.text("averageValue"))
    } else {
        format!("{}/{}", unknown(now.text("value")), target.text("value"))
    };
    if named { format!("{}: {shown}", source.text("name")) } else { shown }
}

fn signing_request(spec: &Value, status: &Value, age: Value) -> Vec<Value> {
    let is = |kind: &str| status.list("conditions").iter().any(|condition| condition.text("type") == kind);
    let mut state = if is("Denied") {
        "Denied"
    } else if is("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if is("Failed") {
        state.push_str(",Failed");
    }
    if !status.text("certificate").is_empty() {
        state.push_str(",Issued");
    }
    let duration = spec.int("expirationSeconds");
    vec![
        age,
        or(spec.text("signerName"), "<none>"),
        spec.text("username").into(),
        duration.map_or_else(|| "<none>".to_owned(), time::human_duration).into(),
        state.into(),
    ]
}

fn pod_certificate(spec: &Value, observed: &Value) -> Vec<Value> {
    let finals = ["Issued", "Denied", "Failed"];
    let known = observed.list("conditions").iter().map(|condition| condition.text("type"));
    let state = known.into_iter().find(|kind| finals.contains(kind)).unwrap_or("Pending");
    let annotations = spec.get("unverifiedUserAnnotations").filter(|annotations| annotations.is_object());
    vec![
        spec.text("podName").into(),
        spec.text("serviceAccountName").into(),
        spec.text("nodeName").into(),
        spec.text("signerName").into(),
        state.into(),
        super::rows::labels(annotations),
    ]
}

fn endpoint_slice(object: &Value, age: Value) -> Vec<Value> {
    let number = |port: &Value| port.int("port").map_or_else(|| "*".to_owned(), |port| port.to_string());
    let ports = object.list("ports").iter().map(number).collect();
    let addresses = object.list("endpoints").iter().flat_map(|endpoint| endpoint.list("addresses"));
    let addresses = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    vec![
        object.text("addressType").into(),
        first_three(ports, "<unset>"),
        first_three(addresses, "<unset>"),
        age,
    ]
}

fn flow_schema(spec: &Value, status: &Value, age: Value) -> Vec<Value> {
    let dangling = status.list("conditions").iter().find(|condition| condition.text("type") == "Dangling");
    let text = |of: &str, field: &str| spec.get(of).map_or("", |of| of.text(field)).to_owned();
    vec![
        text("priorityLevelConfiguration", "name").into(),
        spec.int("matchingPrecedence").unwrap_or(0).into(),
        or(&text("distinguisherMethod", "type"), "<none>"),
        age,
        or(dangling.map_or("", |condition| condition.text("status")), "?"),
    ]
}

fn priority_level(spec: &Value, age: Value) -> Vec<Value> {
    let number = |pointer: &str| {
        let number = spec.pointer(pointer).and_then(Value::as_i64);
        number.map_or_else(|| "<none>".into(), Value::from)
    };
    vec![
        spec.text("type").into(),
        number("/limited/nominalConcurrencyShares"),
        number("/limited/limitResponse/queuing/queues"),
        number("/limited/limitResponse/queuing/handSize"),
        number("/limited/limitResponse/queuing/queueLengthLimit"),
        age,
    ]
}

fn ingress(meta: &Value, spec: &Value, status: &Value, age: Value) -> Vec<Value> {
    let annotation = meta.get("annotations").map_or("", |all| all.text("kubernetes.io/ingress.class"));
    let class =
        if spec.text("ingressClassName").is_empty() { annotation } else { spec.text("ingressClassName") };
    let rules = spec.list("rules");
    let mut hosts: Vec<&str> =
        rules.iter().map(|rule| rule.text("host")).filter(|host| !host.is_empty()).collect();
    let more = hosts.len() >= 3 && rules.len() > 3;
    hosts.truncate(3);
    let hosts = match (hosts.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => hosts.join(","),
        (false, true) => format!("{} + {} more...", hosts.join(","), rules.len() - 3),
    };
    let balancer = status.pointer("/loadBalancer/ingress").and_then(Value::as_array);
    let mut addresses: Vec<&str> = balancer
        .into_iter()
        .flatten()
        .map(|point| if point.text("ip").is_empty() { point.text("hostname") } else { point.text("ip") })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    let ports = if spec.list("tls").is_empty() { "80" } else { "80, 443" };
    vec![or(class, "<none>"), hosts.into(), addresses.join(",").into(), ports.into(), age]
}

fn parameters(spec: &Value) -> Value {
    let Some(parameters) = spec.child("parameters") else { return "<none>".into() };
    let (group, kind, name) = (parameters.text("apiGroup"), parameters.text("kind"), parameters.text("name"));
    let dot = if group.is_empty() { "" } else { "." };
    format!("{kind}{dot}{group}/{name}").into()
}

fn parent(spec: &Value) -> Value {
    let Some(parent) = spec.child("parentRef") else { return "<none>".into() };
    let (group, namespace) = (parent.text("group"), parent.text("namespace"));
    let mut text = parent.text("resource").to_owned();
    if !group.is_empty() {
        text = format!("{text}.{group}");
    }
    if !namespace.is_empty() {
        text = format!("{text}/{namespace}");
    }
    format!("{text}/{}", parent.text("name")).into()
}

fn claim_state(object: &Value, observed: &Value) -> Value {
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    let allocated = observed.child("allocation").is_some();
    let reserved = allocated && !observed.list("reservedFor").is_empty();
    let parts = [
        ("deleted", deleting),
        ("pending", !allocated && !deleting),
        ("allocated", allocated),
        ("reserved", reserved),
    ];
    let shown: Vec<&str> = parts.into_iter().filter_map(|(part, is)| is.then_some(part)).collect();
    shown.join(",").into()
}

fn driver(spec: &Value, age: Value) -> Vec<Value> {
    let flag = |field: &str, default: bool| spec.flag(field).unwrap_or(default).into();
    let audiences: Vec<&str> =
        spec.list("tokenRequests").iter().map(|request| request.text("audience")).collect();
    vec![
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        or(&audiences.join(","), "<unset>"),
        flag("requiresRepublish", false),
        texts(spec.list("volumeLifecycleModes"), "<none>"),
        age,
    ]
}

fn storage_class(object: &Value, age: Value) -> Vec<Value> {
    vec![
        object.text("provisioner").into(),
        object.text("reclaimPolicy").into(),
        object.text("volumeBindingMode").into(),
        object.flag("allowVolumeExpansion").unwrap_or(false).into(),
        age,
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::LATEST;

    #[test]
    fn rows_are_those_of_a_real_server() {
        let metadata = json!({"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z"});
        for (group, name, mut object, expected) in [
            (
                "networking.k8s.io",
                "Ingress",
                json!({"spec": {"ingressClassName": "nginx", "tls": [{}], "rules": [{"host": "a.example.com"}]}}),
                json!(["a", "nginx", "a.example.com", "", "80, 443", "45s"]),
            ),
            (
                "networking.k8s.io",
                "NetworkPolicy",
                json!({"spec": {"podSelector": {}}}),
                json!(["a", "<none>", "45s"]),
            ),
            (
                "networking.k8s.io",
                "IPAddress",
                json!({"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}}),
                json!(["a", "services/default/kubernetes", "45s"]),
            ),
            (
                "discovery.k8s.io",
                "EndpointSlice",
                json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]}),
                json!(["a", "IPv4", "80", "10.0.0.1", "45s"]),
            ),
            (
                "autoscaling",
                "HorizontalPodAutoscaler",
                json!({"spec": {"maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                    "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 70}}}]}}),
                json!(["a", "Deployment/d", "cpu: <unknown>/70%", "1", 3, 0, "45s"]),
            ),
            (
                "scheduling.k8s.io",
                "PriorityClass",
                json!({"value": 1000, "preemptionPolicy": "PreemptLowerPriority"}),
                json!(["a", 1000, false, "45s", "PreemptLowerPriority"]),
            ),
            (
                "storage.k8s.io",
                "StorageClass",
                json!({"provisioner": "example.com/x", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
                    "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
                json!(["a (default)", "example.com/x", "Delete", "Immediate", false, "45s"]),
            ),
            (
                "",
                "PersistentVolume",
                json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "fast", "volumeMode": "Filesystem"},
                    "status": {"phase": "Pending"}}),
                json!([
                    "a",
                    "1Gi",
                    "RWO",
                    "Retain",
                    "Pending",
                    "",
                    "fast",
                    "<unset>",
                    "",
                    "45s",
                    "Filesystem"
                ]),
            ),
            (
                "flowcontrol.apiserver.k8s.io",
                "PriorityLevelConfiguration",
                json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 20,
                    "limitResponse": {"queuing": {"queues": 128, "handSize": 6, "queueLengthLimit": 50}}}}}),
                json!(["a", "Limited", 20, 128, 6, 50, "45s"]),
            ),
            ("resource.k8s.io", "ResourceClaim", json!({}), json!(["a", "pending", "45s"])),
            ("storage.k8s.io", "CSINode", json!({"spec": {"drivers": [{}]}}), json!(["a", 1, "45s"])),
        ] {
            let given = object.get("metadata").cloned();
            object["metadata"] = metadata.clone();
            if let Some(annotations) = given.as_ref().and_then(|given| given.get("annotations")) {
                object["metadata"]["annotations"] = annotations.clone();
            }
            let kind = LATEST.kinds().iter().find(|kind| kind.group == group && kind.kind == name).unwrap();
            assert_eq!(Value::from(cells(kind, &object, Clock(45)).unwrap()), expected, "{name}");
            assert!(columns(kind).is_some(), "{name}");
        }
    }
}
