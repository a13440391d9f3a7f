//! Columns and rows of the built-in kinds, apart from pods.

use palisade_base::label_selector::LabelSelector;
use palisade_base::time;
use serde_json::Value;

use super::{Clock, Column, column, infrastructure, pod};
use crate::rest::path::Get;
use crate::scheme::Kind;

/// The columns of a kind: those every row shows, then the wide ones.
pub(super) fn columns(kind: &Kind) -> Vec<Column> {
    if let Some(columns) = infrastructure::columns(kind) {
        return columns;
    }
    let layout: &[(&str, &str, i64)] = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => &[
            ("Name", "string", 0),
            ("Ready", "string", 0),
            ("Status", "string", 0),
            ("Restarts", "string", 0),
            ("Age", "string", 0),
            ("IP", "string", 1),
            ("Node", "string", 1),
            ("Nominated Node", "string", 1),
            ("Readiness Gates", "string", 1),
        ],
        ("apps", "Deployment") => &[
            ("Name", "string", 0),
            ("Ready", "string", 0),
            ("Up-to-date", "string", 0),
            ("Available", "string", 0),
            ("Age", "string", 0),
            ("Containers", "string", 1),
            ("Images", "string", 1),
            ("Selector", "string", 1),
        ],
        ("apps", "StatefulSet") => &[
            ("Name", "string", 0),
            ("Ready", "string", 0),
            ("Age", "string", 0),
            ("Containers", "string", 1),
            ("Images", "string", 1),
        ],
        ("apps", "DaemonSet") => &[
            ("Name", "string", 0),
            ("Desired", "integer", 0),
            ("Current", "integer", 0),
            ("Ready", "integer", 0),
            ("Up-to-date", "integer", 0),
            ("Available", "integer", 0),
            ("Node Selector", "string", 0),
            ("Age", "string", 0),
            ("Containers", "string", 1),
            ("Images", "string", 1),
            ("Selector", "string", 1),
        ],
        ("apps", "ReplicaSet") | ("", "ReplicationController") => &[
            ("Name", "string", 0),
            ("Desired", "integer", 0),
            ("Current", "integer", 0),
            ("Ready", "integer", 0),
            ("Age", "string", 0),
            ("Containers", "string", 1),
            ("Images", "string", 1),
            ("Selector", "string", 1),
        ],
        ("apps", "ControllerRevision") => &[
            ("Name", "string", 0),
            ("Controller", "string", 0),
            ("Revision", "string", 0),
            ("Age", "string", 0),
        ],
        ("batch", "Job") => &[
            ("Name", "string", 0),
            ("Status", "string", 0),
            ("Completions", "string", 0),
            ("Duration", "string", 0),
            ("Age", "string", 0),
            ("Containers", "string", 1),
            ("Images", "string", 1),
            ("Selector", "string", 1),
        ],
        ("batch", "CronJob") => &[
            ("Name", "string", 0),
            ("Schedule", "string", 0),
            ("Timezone", "string", 0),
            ("Suspend", "boolean", 0),
            ("Active", "integer", 0),
            ("Last Schedule", "string", 0),
            ("Age", "string", 0),
            ("Containers", "string", 1),
            ("Images", "string", 1),
            ("Selector", "string", 1),
        ],
        ("", "ConfigMap") => &[("Name", "string", 0), ("Data", "string", 0), ("Age", "string", 0)],
        ("", "Secret") => {
            &[("Name", "string", 0), ("Type", "string", 0), ("Data", "string", 0), ("Age", "string", 0)]
        }
        ("", "ServiceAccount") if kind.emulated.at_least(34) => {
            &[("Name", "string", 0), ("Age", "string", 0)]
        }
        ("", "ServiceAccount") => &[("Name", "string", 0), ("Secrets", "string", 0), ("Age", "string", 0)],
        ("", "Namespace") => &[("Name", "string", 0), ("Status", "string", 0), ("Age", "string", 0)],
        ("", "Node") => &[
            ("Name", "string", 0),
            ("Status", "string", 0),
            ("Roles", "string", 0),
            ("Age", "string", 0),
            ("Version", "string", 0),
            ("Internal-IP", "string", 1),
            ("External-IP", "string", 1),
            ("OS-Image", "string", 1),
            ("Kernel-Version", "string", 1),
            ("Container-Runtime", "string", 1),
        ],
        ("" | "events.k8s.io", "Event") => &[
            ("Last Seen", "string", 0),
            ("Type", "string", 0),
            ("Reason", "string", 0),
            ("Object", "string", 0),
            ("Subobject", "string", 1),
            ("Source", "string", 1),
            ("Message", "string", 0),
            ("First Seen", "string", 1),
            ("Count", "string", 1),
            ("Name", "string", 1),
        ],
        ("", "PodTemplate") => &[
            ("Name", "string", 0),
            ("Containers", "string", 0),
            ("Images", "string", 0),
            ("Pod Labels", "string", 0),
        ],
        ("", "Service") => &[
            ("Name", "string", 0),
            ("Type", "string", 0),
            ("Cluster-IP", "string", 0),
            ("External-IP", "string", 0),
            ("Port(s)", "string", 0),
            ("Age", "string", 0),
            ("Selector", "string", 1),
        ],
        ("", "Endpoints") => &[("Name", "string", 0), ("Endpoints", "string", 0), ("Age", "string", 0)],
        ("", "ResourceQuota") => {
            &[("Name", "string", 0), ("Request", "string", 0), ("Limit", "string", 0), ("Age", "string", 0)]
        }
        ("", "PersistentVolumeClaim") => &[
            ("Name", "string", 0),
            ("Status", "string", 0),
            ("Volume", "string", 0),
            ("Capacity", "string", 0),
            ("Access Modes", "string", 0),
            ("StorageClass", "string", 0),
            ("VolumeAttributesClass", "string", 0),
            ("Age", "string", 0),
            ("VolumeMode", "string", 1),
        ],
        ("policy", "PodDisruptionBudget") => &[
            ("Name", "string", 0),
            ("Min Available", "string", 0),
            ("Max Unavailable", "string", 0),
            ("Allowed Disruptions", "integer", 0),
            ("Age", "string", 0),
        ],
        ("policy", "PodSecurityPolicy") => &[
            ("Name", "string", 0),
            ("Priv", "string", 0),
            ("Caps", "string", 0),
            ("SELinux", "string", 0),
            ("RunAsUser", "string", 0),
            ("FSGroup", "string", 0),
            ("SupGroup", "string", 0),
            ("ReadOnlyRootFs", "string", 0),
            ("Volumes", "string", 0),
        ],
        ("coordination.k8s.io", "Lease") => {
            &[("Name", "string", 0), ("Holder", "string", 0), ("Age", "string", 0)]
        }
        ("node.k8s.io", "RuntimeClass") => {
            &[("Name", "string", 0), ("Handler", "string", 0), ("Age", "string", 0)]
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &[
            ("Name", "string", 0),
            ("Role", "string", 0),
            ("Age", "string", 0),
            ("Users", "string", 1),
            ("Groups", "string", 1),
            ("ServiceAccounts", "string", 1),
        ],
        ("admissionregistration.k8s.io", _) => {
            &[("Name", "string", 0), ("Webhooks", "integer", 0), ("Age", "string", 0)]
        }
        _ => &[("Name", "string", 0), ("Created At", "date", 0)],
    };
    layout.iter().map(|(name, kind, priority)| column(name, kind, *priority)).collect()
}

fn count(object: &Value, pointer: &str) -> Value {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0).into()
}

fn containers(template: Option<&Value>) -> (Value, Value) {
    let join = |field: &str| -> Value {
        let list = template.and_then(|t| t.get("spec")).map_or(&[][..], |s| s.list("containers"));
        list.iter().map(|c| c.text(field)).collect::<Vec<_>>().join(",").into()
    };
    (join("name"), join("image"))
}

/// `a=b,c=d`, or `<none>`.
pub(super) fn labels(value: Option<&Value>) -> Value {
    let text: Vec<String> = value
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    if text.is_empty() { "<none>".into() } else { text.join(",").into() }
}

pub(super) fn selector(value: Option<&Value>) -> Value {
    match value.filter(|v| !v.is_null()) {
        Some(value) => {
            let text = LabelSelector::from_object(value).to_string();
            if text.is_empty() { "<none>".into() } else { text.into() }
        }
        None => "<none>".into(),
    }
}

pub(super) fn cells(kind: &Kind, object: &Value, clock: Clock) -> Vec<Value> {
    if let Some(cells) = infrastructure::cells(kind, object, clock) {
        return cells;
    }
    let empty = Value::Null;
    let meta = object.get("metadata").unwrap_or(&empty);
    let spec = object.get("spec").unwrap_or(&empty);
    let name = || Value::from(meta.text("name"));
    let age = || Value::from(clock.since(meta.get("creationTimestamp")));
    let template = || containers(spec.get("template"));
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => pod::cells(object, clock),
        ("apps", "Deployment") => {
            let (names, images) = template();
            let ready =
                format!("{}/{}", count(object, "/status/readyReplicas"), spec.int("replicas").unwrap_or(0));
            vec![
                name(),
                ready.into(),
                count(object, "/status/updatedReplicas"),
                count(object, "/status/availableReplicas"),
                age(),
                names,
                images,
                selector(spec.get("selector")),
            ]
        }
        ("apps", "StatefulSet") => {
            let (names, images) = template();
            let ready =
                format!("{}/{}", count(object, "/status/readyReplicas"), spec.int("replicas").unwrap_or(0));
            vec![name(), ready.into(), age(), names, images]
        }
        ("apps", "DaemonSet") => {
            let (names, images) = template();
            vec![
                name(),
                count(object, "/status/desiredNumberScheduled"),
                count(object, "/status/currentNumberScheduled"),
                count(object, "/status/numberReady"),
                count(object, "/status/updatedNumberScheduled"),
                count(object, "/status/numberAvailable"),
                labels(spec.pointer("/template/spec/nodeSelector")),
                age(),
                names,
                images,
                selector(spec.get("selector")),
            ]
        }
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            let (names, images) = template();
            let chosen = if kind.group.is_empty() {
                labels(spec.get("selector"))
            } else {
                selector(spec.get("selector"))
            };
            vec![
                name(),
                count(object, "/spec/replicas"),
                count(object, "/status/replicas"),
                count(object, "/status/readyReplicas"),
                age(),
                names,
                images,
                chosen,
            ]
        }
        ("apps", "ControllerRevision") => {
            let owner = meta.list("ownerReferences").iter().find(|o| o.flag("controller") == Some(true));
            let controller = owner.map_or_else(
                || "<none>".to_owned(),
                |o| {
                    let group = o.text("apiVersion").split_once('/').map_or("", |(group, _)| group);
                    let kind = o.text("kind").to_lowercase();
                    let dot = if group.is_empty() { "" } else { "." };
                    format!("{kind}{dot}{group}/{}", o.text("name"))
                },
            );
            vec![name(), controller.into(), count(object, "/revision"), age()]
        }
        ("batch", "Job") => job(object, spec, name(), age(), clock),
        ("batch", "CronJob") => {
            let job = spec.pointer("/jobTemplate/spec");
            let (names, images) = containers(job.and_then(|j| j.get("template")));
            let zone = spec.text("timeZone");
            let last = object.pointer("/status/lastScheduleTime").filter(|t| !t.is_null());
            vec![
                name(),
                spec.text("schedule").into(),
                if zone.is_empty() { "<none>".into() } else { zone.into() },
                if spec.flag("suspend") == Some(true) { "True".into() } else { "False".into() },
                object.get("status").map_or(0, |s| s.list("active").len()).into(),
                last.map_or_else(|| "<none>".to_owned(), |t| clock.since(Some(t))).into(),
                age(),
                names,
                images,
                selector(job.and_then(|j| j.get("selector"))),
            ]
        }
        ("", "ConfigMap") => {
            let entries = object.entries("data").count() + object.entries("binaryData").count();
            vec![name(), entries.into(), age()]
        }
        ("", "Secret") => {
            vec![name(), object.text("type").into(), object.entries("data").count().into(), age()]
        }
        ("", "ServiceAccount") if kind.emulated.at_least(34) => vec![name(), age()],
        ("", "ServiceAccount") => vec![name(), object.list("secrets").len().into(), age()],
        ("", "Namespace") => {
            let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
            vec![name(), phase.into(), age()]
        }
        ("", "Node") => node(object, meta, spec, name(), age()),
        ("" | "events.k8s.io", "Event") => event(object, name(), clock),
        ("", "PodTemplate") => {
            let template = object.get("template");
            let (names, images) = containers(template);
            vec![name(), names, images, labels(template.and_then(|t| t.pointer("/metadata/labels")))]
        }
        ("", "Service") => service(spec, name(), age()),
        ("", "Endpoints") => vec![name(), endpoints(object), age()],
        ("", "ResourceQuota") => {
            let [request, limit] = quota(object);
            vec![name(), request, limit, age()]
        }
        ("", "PersistentVolumeClaim") => claim(object, spec, name(), age()),
        ("policy", "PodDisruptionBudget") => {
            let bound = |field: &str| match spec.get(field) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => "N/A".to_owned(),
            };
            let allowed = object.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0);
            vec![name(), bound("minAvailable").into(), bound("maxUnavailable").into(), allowed.into(), age()]
        }
        ("policy", "PodSecurityPolicy") => {
            let rule = |part: &str| spec.get(part).map_or("", |part| part.text("rule")).into();
            let joined = |list: &str| {
                let items: Vec<&str> = spec.list(list).iter().filter_map(Value::as_str).collect();
                items.join(",").into()
            };
            let flag = |name: &str| spec.flag(name).unwrap_or(false).into();
            let (user, linux) = (rule("runAsUser"), rule("seLinux"));
            let (group, groups) = (rule("fsGroup"), rule("supplementalGroups"));
            let read_only = flag("readOnlyRootFilesystem");
            let caps = joined("allowedCapabilities");
            vec![name(), flag("privileged"), caps, linux, user, group, groups, read_only, joined("volumes")]
        }
        ("coordination.k8s.io", "Lease") => vec![name(), spec.text("holderIdentity").into(), age()],
        ("node.k8s.io", "RuntimeClass") => vec![name(), object.text("handler").into(), age()],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(object, name(), age()),
        ("admissionregistration.k8s.io", _) => vec![name(), object.list("webhooks").len().into(), age()],
        _ => vec![name(), meta.get("creationTimestamp").cloned().unwrap_or(Value::Null)],
    }
}

fn job(object: &Value, spec: &Value, name: Value, age: Value, clock: Clock) -> Vec<Value> {
    let empty = Value::Null;
    let status = object.get("status").unwrap_or(&empty);
    let succeeded = status.int("succeeded").unwrap_or(0);
    let completions = match (spec.int("completions"), spec.int("parallelism").unwrap_or(0)) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let seconds = |field: &str| {
        status.get(field).and_then(Value::as_str).and_then(|t| time::parse(t).ok()).map(|t| t.seconds)
    };
    let duration = match (seconds("startTime"), seconds("completionTime")) {
        (None, _) => String::new(),
        (Some(start), None) => time::human_duration(clock.0.saturating_sub(start)),
        (Some(start), Some(end)) => time::human_duration(end.saturating_sub(start)),
    };
    let is_true = |kind: &str| {
        status.list("conditions").iter().any(|c| c.text("type") == kind && c.text("status") == "True")
    };
    let state = if is_true("Complete") {
        "Complete"
    } else if is_true("Failed") {
        "Failed"
    } else if object.pointer("/metadata/deletionTimestamp").is_some() {
        "Terminating"
    } else if is_true("Suspended") {
        "Suspended"
    } else if is_true("FailureTarget") {
        "FailureTarget"
    } else if is_true("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let (names, images) = containers(spec.get("template"));
    vec![
        name,
        state.into(),
        completions.into(),
        duration.into(),
        age,
        names,
        images,
        selector(spec.get("selector")),
    ]
}

fn node(object: &Value, meta: &Value, spec: &Value, name: Value, age: Value) -> Vec<Value> {
    let empty = Value::Null;
    let observed = object.get("status").unwrap_or(&empty);
    let ready = observed.list("conditions").iter().find(|c| c.text("type") == "Ready");
    let mut states = vec![match ready {
        Some(c) if c.text("status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if spec.flag("unschedulable") == Some(true) {
        states.push("SchedulingDisabled");
    }
    let mut roles: Vec<&str> = meta
        .entries("labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => Some(role),
            _ if key == "kubernetes.io/role" => value.as_str().filter(|r| !r.is_empty()),
            _ => None,
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let roles = if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") };
    let address = |kind: &str| -> Value {
        let found = observed.list("addresses").iter().find(|a| a.text("type") == kind);
        found.map_or("<none>", |a| a.text("address")).into()
    };
    let info = |field: &str| -> Value {
        let text = observed.get("nodeInfo").map_or("", |i| i.text(field));
        if text.is_empty() { "<unknown>".into() } else { text.into() }
    };
    vec![
        name,
        states.join(",").into(),
        roles.into(),
        age,
        observed.get("nodeInfo").map_or("", |i| i.text("kubeletVersion")).into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn event(object: &Value, name: Value, clock: Clock) -> Vec<Value> {
    let empty = Value::Null;
    let pick = |old: &str, new: &str| object.child(old).or_else(|| object.child(new)).unwrap_or(&empty);
    let time_of = |old: &str, new: &str| {
        let found = object.child(old).or_else(|| object.child(new));
        found.map(|t| clock.since(Some(t)))
    };
    let micro = object.child("eventTime").map_or_else(|| "<unknown>".to_owned(), |t| clock.since(Some(t)));
    let first = time_of("firstTimestamp", "deprecatedFirstTimestamp").unwrap_or(micro);
    let mut last = time_of("lastTimestamp", "deprecatedLastTimestamp").unwrap_or_else(|| first.clone());
    let mut count = object.int("count").or_else(|| object.int("deprecatedCount")).unwrap_or(0);
    if let Some(series) = object.child("series") {
        last = clock.since(series.get("lastObservedTime"));
        count = series.int("count").unwrap_or(0).saturating_add(1);
    } else if count == 0 {
        count = 1;
    }
    let about = pick("involvedObject", "regarding");
    let target = match about.text("name") {
        "" => about.text("kind").to_lowercase(),
        name => format!("{}/{name}", about.text("kind").to_lowercase()),
    };
    let source = pick("source", "deprecatedSource");
    let or = |a: &str, b: &str| if a.is_empty() { b.to_owned() } else { a.to_owned() };
    let reporter = or(object.text("reportingComponent"), object.text("reportingController"));
    let component = or(source.text("component"), &reporter);
    let instance = or(source.text("host"), object.text("reportingInstance"));
    let source = if instance.is_empty() { component } else { format!("{component}, {instance}") };
    let message = or(object.text("message"), object.text("note"));
    vec![
        last.into(),
        object.text("type").into(),
        object.text("reason").into(),
        target.into(),
        about.text("fieldPath").into(),
        source.into(),
        message.trim().into(),
        first.into(),
        count.into(),
        name,
    ]
}

fn service(spec: &Value, name: Value, age: Value) -> Vec<Value> {
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let external: Vec<&str> = spec.list("externalIPs").iter().filter_map(Value::as_str).collect();
    let external = match spec.text("type") {
        "ExternalName" => spec.text("externalName").to_owned(),
        "LoadBalancer" if external.is_empty() => "<pending>".to_owned(),
        _ => or_none(&external.join(",")),
    };
    let ports: Vec<String> = spec
        .list("ports")
        .iter()
        .map(|p| {
            let (port, protocol) = (p.int("port").unwrap_or(0), p.text("protocol"));
            match p.int("nodePort").unwrap_or(0) {
                0 => format!("{port}/{protocol}"),
                node => format!("{port}:{node}/{protocol}"),
            }
        })
        .collect();
    vec![
        name,
        spec.text("type").into(),
        or_none(spec.text("clusterIP")).into(),
        external.into(),
        or_none(&ports.join(",")).into(),
        age,
        labels(spec.get("selector")),
    ]
}

/// The first three addresses, and how many more there are.
fn endpoints(object: &Value) -> Value {
    let mut all: Vec<String> = Vec::new();
    for subset in object.list("subsets") {
        let ports = subset.list("ports");
        for address in subset.list("addresses") {
            let ip = address.text("ip");
            let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{host}:{}", port.int("port").unwrap_or(0))));
        }
    }
    match all.len() {
        0 => "<none>".into(),
        1..=3 => all.join(",").into(),
        many => format!("{} + {} more...", all[..3].join(","), many - 3).into(),
    }
}

/// What is used of what may be requested, and of what may be the limit.
fn quota(object: &Value) -> [Value; 2] {
    let empty = Value::Null;
    let (spec, status) = (object.get("spec").unwrap_or(&empty), object.get("status").unwrap_or(&empty));
    let mut parts: [Vec<String>; 2] = Default::default();
    for (resource, hard) in spec.entries("hard") {
        let used = status.get("used").map_or("0", |used| used.text(resource));
        let used = if used.is_empty() { "0" } else { used };
        let part = format!("{resource}: {used}/{}", hard.as_str().unwrap_or_default());
        parts[usize::from(resource.starts_with("limits"))].push(part);
    }
    parts.map(|part| part.join(", ").into())
}

fn claim(object: &Value, spec: &Value, name: Value, age: Value) -> Vec<Value> {
    let empty = Value::Null;
    let status = object.get("status").unwrap_or(&empty);
    let deleting = object.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null());
    let phase = if deleting { "Terminating" } else { status.text("phase") };
    let (mut capacity, mut modes) = (String::new(), String::new());
    // Both are known only once there is a volume.
    if !spec.text("volumeName").is_empty() {
        modes = infrastructure::access_modes(status.list("accessModes"));
        status.get("capacity").map_or("", |c| c.text("storage")).clone_into(&mut capacity);
    }
    let or_unset = |text: &str| if text.is_empty() { "<unset>" } else { text }.to_owned();
    vec![
        name,
        phase.into(),
        spec.text("volumeName").into(),
        capacity.into(),
        modes.into(),
        spec.text("storageClassName").into(),
        or_unset(spec.text("volumeAttributesClassName")).into(),
        age,
        or_unset(spec.text("volumeMode")).into(),
    ]
}

fn binding(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let reference = object.get("roleRef").unwrap_or(&Value::Null);
    let role = format!("{}/{}", reference.text("kind"), reference.text("name"));
    let of = |kind: &str| -> Value {
        let list: Vec<String> = object
            .list("subjects")
            .iter()
            .filter(|s| s.text("kind") == kind)
            .map(|s| match (kind, s.text("namespace")) {
                ("ServiceAccount", namespace) if !namespace.is_empty() => {
                    format!("{namespace}/{}", s.text("name"))
                }
                _ => s.text("name").to_owned(),
            })
            .collect();
        list.join(", ").into()
    };
    vec![name, role.into(), age, of("User"), of("Group"), of("ServiceAccount")]
}
