//! The pods of an object, put together from its parts.

use palisade_kustomize::tree::{Node, Origin, Value};
use serde_json::json;

use super::{Sketch, SketchKind, kinds::Part, map, text};

/// The pods of an object, texts with manifests in it, and what is not known.
#[derive(Default)]
pub(super) struct Pods {
    pub(super) sketches: Vec<Sketch>,
    pub(super) texts: Vec<Node>,
    pub(super) undecided: Vec<String>,
}

/// The fields of a pod's specification that take part in a decision.
const SPEC_FIELDS: [&str; 10] = [
    "securityContext",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "os",
    "volumes",
    "containers",
    "initContainers",
    "ephemeralContainers",
];

/// The fields of a container that take part in a decision.
const CONTAINER_FIELDS: [&str; 9] = [
    "name",
    "image",
    "securityContext",
    "ports",
    "volumeMounts",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// The values at a path in which `*` is every item.
fn at<'n>(node: &'n Node, path: &[&str]) -> Vec<&'n Node> {
    let Some((first, rest)) = path.split_first() else { return vec![node] };
    if *first == "*" {
        let items = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
        return items.flat_map(|item| at(item, rest)).collect();
    }
    node.get(first).map(|next| at(next, rest)).unwrap_or_default()
}

/// Some fields of a map.
fn only(node: &Node, fields: &[&str]) -> Node {
    let entries = node.entries().iter().filter(|(key, _)| fields.contains(&key.as_str())).cloned();
    Node { value: Value::Map(entries.collect()), origin: node.origin, key: node.key }
}

fn put(node: &mut Node, key: &str, value: Node) {
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|(known, _)| known != key);
        entries.push((key.to_owned(), value));
    }
}

/// A map over another: what the upper has wins, and maps in both are put together.
fn over(base: &Node, upper: &Node) -> Node {
    let (Value::Map(lower), Value::Map(entries)) = (&base.value, &upper.value) else { return upper.clone() };
    let mut result = Node { value: Value::Map(lower.clone()), origin: upper.origin, key: upper.key };
    for (key, value) in entries {
        let merged = base.get(key).map_or_else(|| value.clone(), |known| over(known, value));
        put(&mut result, key, merged);
    }
    result
}

/// A container with the fields that decide; one without a name gets that.
fn container(node: &Node, name: &str) -> Node {
    let mut container = only(node, &CONTAINER_FIELDS);
    if container.get("name").is_none() {
        put(&mut container, "name", text(name));
    }
    container
}

fn containers(list: Option<&Node>, name: &str) -> Vec<Node> {
    let items = list.map(Node::items).unwrap_or_default();
    items.iter().enumerate().map(|(index, item)| container(item, &format!("{name}-{index}"))).collect()
}

fn list(items: Vec<Node>, origin: Option<Origin>) -> Option<Node> {
    (!items.is_empty()).then_some(Node { value: Value::List(items), origin, key: origin })
}

/// A specification with the fields that decide.
fn spec_of(node: &Node) -> Node {
    let mut spec = only(node, &SPEC_FIELDS);
    for field in ["containers", "initContainers"] {
        // What is no list stays as it is, so that it is judged as the wrong type that it is.
        let Some(known) = node.get(field).filter(|known| matches!(known.value, Value::List(_))) else {
            continue;
        };
        let made = Node { value: Value::List(containers(Some(known), field)), ..known.clone() };
        put(&mut spec, field, made);
    }
    spec
}

impl Pods {
    /// Adds a pod; its metadata may have annotations that decide.
    fn pod(&mut self, metadata: Option<&Node>, spec: Node) {
        let annotations = metadata.and_then(|metadata| metadata.get("annotations")).cloned();
        let node = map(
            None,
            vec![
                ("apiVersion", Some(text("v1"))),
                ("kind", Some(text("Pod"))),
                (
                    "metadata",
                    Some(map(None, vec![("name", Some(text("pod"))), ("annotations", annotations)])),
                ),
                ("spec", Some(spec)),
            ],
        );
        self.sketches.push(Sketch { node, kind: SketchKind::Pod });
    }

    /// Adds what is at a path that the user or a definition names: templates, or specifications.
    pub(super) fn add_at(&mut self, root: &Node, path: &[&str]) {
        for node in at(root, path) {
            // Which of the two its controller reads is not known.
            if let Some(spec) = node.get("spec") {
                self.read_pod(node.get("metadata"), spec);
            }
            if node.get("containers").is_some() {
                self.read_pod(None, node);
            }
        }
    }

    /// Adds a pod that is written out. Without containers it is none, and what its controller makes of it is not known.
    fn read_pod(&mut self, metadata: Option<&Node>, spec: &Node) {
        let is_empty = |list: &Node| match &list.value {
            Value::List(items) => items.is_empty(),
            Value::Scalar(scalar) => scalar.is_null(),
            Value::Map(_) => false,
        };
        if spec.get("containers").is_none_or(is_empty) {
            self.undecided.push("it has a pod without containers".to_owned());
        }
        self.pod(metadata, spec_of(spec));
    }

    /// Adds the pods of a part.
    pub(super) fn add(&mut self, part: &Part, root: &Node) {
        match *part {
            Part::Operator(path, made) => {
                for node in at(root, path) {
                    self.operator(node, made);
                }
            }
            Part::Workflow(path) => {
                for node in at(root, path) {
                    self.workflow(node);
                }
            }
            Part::Tasks(path, templates) => {
                let template = templates.iter().find_map(|path| at(root, path).first().copied());
                for node in at(root, path) {
                    self.task(node, template);
                }
            }
            Part::Spark(path, role) => {
                for node in at(root, path) {
                    self.spark(node, role);
                }
            }
            Part::Flink(role) => self.flink(root, role),
            Part::Strimzi(path) => {
                for node in at(root, path) {
                    self.strimzi(node);
                }
            }
            Part::Manifests(path) => {
                for node in at(root, path) {
                    if node.get("apiVersion").is_some() && node.get("kind").is_some() {
                        self.sketches.push(Sketch { node: node.clone(), kind: SketchKind::Manifest });
                    }
                }
            }
            Part::Changes(path, reason) => {
                let is_set = |node: &&Node| !node.items().is_empty() || !node.entries().is_empty();
                if at(root, path).iter().any(is_set) {
                    self.undecided.push(reason.to_owned());
                }
            }
            Part::Texts(path) => {
                let texts = at(root, path).into_iter().filter(|node| {
                    let text = node.as_str().unwrap_or_default();
                    text.contains("apiVersion") && text.contains("kind")
                });
                self.texts.extend(texts.cloned());
            }
        }
    }

    fn operator(&mut self, node: &Node, made: &[&str]) {
        let mut spec = spec_of(node);
        let defaults = Node::made(
            json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}),
            None,
        );
        for field in ["containers", "initContainers"] {
            let Some(known) = spec.get(field).cloned() else { continue };
            let items = known.items().iter().map(|item| {
                // It is a patch of what the operator makes.
                let is_made = made.contains(&item.text(&["name"])) && item.get("image").is_none();
                if is_made { over(&defaults, item) } else { item.clone() }
            });
            put(&mut spec, field, Node { value: Value::List(items.collect()), ..known.clone() });
        }
        self.pod(node.get("podMetadata"), spec);
    }

    fn workflow(&mut self, workflow: &Node) {
        if workflow.get("podSpecPatch").is_some() {
            self.undecided.push("podSpecPatch changes its pods".to_owned());
        }
        let mut templates: Vec<&Node> = at(workflow, &["templates", "*"]);
        for path in [
            &["templates", "*", "steps", "*", "*", "inline"][..],
            &["templates", "*", "dag", "tasks", "*", "inline"],
        ] {
            templates.extend(at(workflow, path));
        }
        let refers = workflow.get("workflowTemplateRef").is_some();
        if refers {
            self.undecided.push("its templates are those of another object".to_owned());
        }
        let defaults = workflow.get("templateDefaults");
        for template in templates {
            let merged = defaults.map_or_else(|| template.clone(), |defaults| over(defaults, template));
            let mut main: Vec<Node> = Vec::new();
            main.extend(merged.get("container").map(|node| container(node, "main")));
            main.extend(merged.get("script").map(|node| container(node, "main")));
            main.extend(containers(merged.at(&["containerSet", "containers"]), "main"));
            if main.is_empty() {
                continue;
            }
            if merged.get("podSpecPatch").is_some() && workflow.get("podSpecPatch").is_none() {
                self.undecided.push(format!("podSpecPatch changes the pods of {}", merged.text(&["name"])));
            }
            main.extend(containers(merged.get("sidecars"), "sidecar"));
            let context = merged.get("securityContext").or_else(|| workflow.get("securityContext"));
            let volumes = [workflow.get("volumes"), merged.get("volumes")].into_iter().flatten();
            let volumes: Vec<Node> = volumes.flat_map(Node::items).cloned().collect();
            let mut spec = map(
                template.origin,
                vec![
                    ("securityContext", context.cloned()),
                    ("hostNetwork", workflow.get("hostNetwork").cloned()),
                    ("volumes", list(volumes, template.origin)),
                    (
                        "initContainers",
                        list(containers(merged.get("initContainers"), "init"), template.origin),
                    ),
                    ("containers", list(main, template.origin)),
                ],
            );
            spec.key = template.origin;
            let metadata = merged.get("metadata").or_else(|| workflow.get("podMetadata"));
            self.pod(metadata, spec);
        }
    }

    fn task(&mut self, task: &Node, template: Option<&Node>) {
        let steps = task.get("stepTemplate");
        let with = |items: Option<&Node>, name: &str, base: Option<&Node>| -> Vec<Node> {
            let items = items.map(Node::items).unwrap_or_default();
            items
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    let merged = base.map_or_else(|| item.clone(), |base| over(base, item));
                    container(&merged, &format!("{name}-{index}"))
                })
                .collect()
        };
        let mut main = with(task.get("steps"), "step", steps);
        if task.items_at("steps").iter().any(|step| step.get("ref").is_some()) {
            self.undecided.push("steps refer to a StepAction".to_owned());
        }
        main.extend(with(task.get("sidecars"), "sidecar", None));
        if main.is_empty() {
            return;
        }
        let field = |name: &str| template.and_then(|template| template.get(name)).cloned();
        let volumes = [task.get("volumes"), template.and_then(|template| template.get("volumes"))];
        let volumes: Vec<Node> = volumes.into_iter().flatten().flat_map(Node::items).cloned().collect();
        // A Task has no context of its own: without a run's template there is nothing to edit.
        let mut spec = map(
            template.and_then(|template| template.origin),
            vec![
                ("securityContext", field("securityContext")),
                ("hostNetwork", field("hostNetwork")),
                ("volumes", list(volumes, task.origin)),
                ("containers", list(main, task.origin)),
            ],
        );
        spec.key = spec.origin.or(task.key).or(task.origin);
        self.pod(None, spec);
    }

    fn spark(&mut self, application: &Node, role: &str) {
        let Some(node) = application.get(role) else { return };
        if application
            .get("sparkConf")
            .is_some_and(|conf| conf.entries().iter().any(|(key, _)| key.contains("podTemplateFile")))
        {
            self.undecided.push("sparkConf names a file with a pod template".to_owned());
        }
        let name = if role == "driver" { "spark-kubernetes-driver" } else { "spark-kubernetes-executor" };
        let main = container(
            &map(
                node.origin,
                vec![
                    ("securityContext", node.get("securityContext").cloned()),
                    (
                        "ports",
                        node.get("ports").map(|ports| {
                            let items =
                                ports.items().iter().map(|port| only(port, &["containerPort", "hostPort"]));
                            Node { value: Value::List(items.collect()), ..ports.clone() }
                        }),
                    ),
                    ("volumeMounts", node.get("volumeMounts").cloned()),
                ],
            ),
            name,
        );
        let mut all = vec![main];
        all.extend(containers(node.get("sidecars"), "sidecar"));
        let mut spec = map(
            None,
            vec![
                ("securityContext", node.get("podSecurityContext").cloned()),
                ("hostNetwork", node.get("hostNetwork").cloned()),
                ("volumes", application.get("volumes").cloned()),
                ("initContainers", list(containers(node.get("initContainers"), "init"), node.origin)),
                ("containers", list(all, node.origin)),
            ],
        );
        spec.key = node.key;
        // A template of the pod is the base of the rest.
        if let Some(template) = node.at(&["template", "spec"]) {
            let base = spec_of(template);
            let known: Vec<Node> =
                base.get("containers").map(|list| list.items().to_vec()).unwrap_or_default();
            let own = spec.get("containers").map(|list| list.items().to_vec()).unwrap_or_default();
            let mut merged = over(&base, &spec);
            merged.origin = None;
            put(&mut merged, "containers", Node::made(json!([]), None));
            if let Some(items) = list(by_name(known, own), node.origin) {
                put(&mut merged, "containers", items);
            }
            spec = merged;
            spec.key = node.key;
        }
        let annotated = map(None, vec![("annotations", node.get("annotations").cloned())]);
        self.pod(Some(&annotated), spec);
    }

    fn flink(&mut self, root: &Node, role: &str) {
        let Some(spec) = root.get("spec") else { return };
        let own = spec.get(role).and_then(|role| role.get("podTemplate"));
        let common = spec.get("podTemplate");
        let of = |template: Option<&Node>| template.and_then(|template| template.get("spec")).map(spec_of);
        let items = |template: &Option<Node>| -> Vec<Node> {
            let list = template.as_ref().and_then(|spec| spec.get("containers"));
            list.map(|list| list.items().to_vec()).unwrap_or_default()
        };
        let (base, upper) = (of(common), of(own));
        let mut all = by_name(items(&base), items(&upper));
        if !all.iter().any(|container| container.text(&["name"]) == "flink-main-container") {
            all.push(map(None, vec![("name", Some(text("flink-main-container")))]));
        }
        let mut pod = match (&base, &upper) {
            (Some(base), Some(upper)) => over(base, upper),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => map(None, Vec::new()),
        };
        let origin = pod.origin.or(spec.origin);
        if let Some(all) = list(all, origin) {
            put(&mut pod, "containers", all);
        }
        pod.key = pod.key.or(spec.key);
        self.pod(own.or(common).and_then(|template| template.get("metadata")), pod);
    }

    fn strimzi(&mut self, component: &Node) {
        let Some(template) = component.get("template") else { return };
        let pod = template.get("pod");
        let named = template.entries().iter().filter_map(|(key, value)| {
            let name = key.strip_suffix("Container")?;
            // Without a context of its own a container has that of Strimzi's provider.
            value.get("securityContext").map(|_| container(value, name))
        });
        let mut spec = map(
            pod.and_then(|pod| pod.origin),
            vec![
                ("securityContext", pod.and_then(|pod| pod.get("securityContext")).cloned()),
                ("volumes", pod.and_then(|pod| pod.get("volumes")).cloned()),
                ("containers", list(named.collect(), template.origin)),
            ],
        );
        spec.key = pod.and_then(|pod| pod.key).or(template.key);
        self.pod(pod.and_then(|pod| pod.get("metadata")), spec);
    }
}

/// Containers over others, by name.
fn by_name(base: Vec<Node>, upper: Vec<Node>) -> Vec<Node> {
    let mut all = base;
    for item in upper {
        let same = all.iter_mut().find(|known| known.text(&["name"]) == item.text(&["name"]));
        match same {
            Some(known) => *known = over(known, &item),
            None => all.push(item),
        }
    }
    all
}

/// The items of the list at a key.
trait Items {
    fn items_at(&self, key: &str) -> &[Node];
}

impl Items for Node {
    fn items_at(&self, key: &str) -> &[Node] {
        self.get(key).map(Node::items).unwrap_or_default()
    }
}
