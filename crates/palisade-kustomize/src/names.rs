//! References to objects whose names have changed.
//!
//! Implements: the `nameReference` part of kustomize's default configuration, for the kinds that workloads refer to.

use crate::{
    object::{Id, Object, is_cluster_scoped},
    tree::{Node, Value},
};

/// An object that others may refer to.
struct Target {
    ids: Vec<Id>,
    layers: Vec<usize>,
}

impl Target {
    fn name(&self) -> &str {
        self.ids.last().map_or("", |id| &id.name)
    }

    fn namespace(&self) -> &str {
        self.ids.last().map_or("", |id| &id.namespace)
    }
}

/// Gives references the names that their objects have now.
pub(crate) fn update(objects: &mut [Object]) {
    if objects.iter().all(|object| object.before.is_empty()) {
        return;
    }
    let targets: Vec<Target> =
        objects.iter().map(|object| Target { ids: object.ids(), layers: object.layers.clone() }).collect();
    for object in objects {
        let referrer = Referrer {
            targets: &targets,
            namespaces: object.ids().iter().map(|id| id.effective_namespace().to_owned()).collect(),
            layers: object.layers.clone(),
            is_cluster_scoped: is_cluster_scoped(object.node.text(&["kind"])),
        };
        referrer.update(object);
    }
}

struct Referrer<'t> {
    targets: &'t [Target],
    namespaces: Vec<String>,
    layers: Vec<usize>,
    is_cluster_scoped: bool,
}

impl Referrer<'_> {
    /// The object that a name means, if there is no doubt.
    fn find(&self, kind: &str, name: &str, namespace: Option<&str>) -> Option<&Target> {
        let means = |id: &Id| {
            id.kind == kind
                && id.name == name
                && match namespace {
                    Some(namespace) => id.effective_namespace() == namespace,
                    None => {
                        self.is_cluster_scoped
                            || is_cluster_scoped(kind)
                            || self.namespaces.iter().any(|known| known == id.effective_namespace())
                    }
                }
        };
        let candidates = self.targets.iter().filter(|target| target.ids.iter().any(means));
        let common = |target: &Target| {
            let shared = target.layers.iter().filter(|layer| self.layers.contains(layer));
            shared.count()
        };
        let mut ranked: Vec<(usize, &Target)> = candidates.map(|target| (common(target), target)).collect();
        ranked.sort_by_key(|(common, _)| std::cmp::Reverse(*common));
        match ranked.as_slice() {
            [(_, only)] => Some(only),
            [(most, first), (next, _), ..] if most > next => Some(first),
            _ => None,
        }
    }

    fn rename(&self, node: Option<&mut Node>, kind: &str) {
        let Some(node) = node else { return };
        let Some(target) = node.as_str().and_then(|name| self.find(kind, name, None)) else { return };
        if !target.name().is_empty() {
            node.value = Value::Scalar(target.name().into());
        }
    }

    fn update(&self, object: &mut Object) {
        let kind = object.node.text(&["kind"]).to_owned();
        let template = object.template();
        let node = &mut object.node;
        let spec = match (kind.as_str(), template) {
            ("Pod", _) => node.at_mut(&["spec"]),
            (_, Some(template)) => node.at_mut(template).and_then(|template| template.get_mut("spec")),
            _ => None,
        };
        if let Some(spec) = spec {
            self.pod(spec);
        }
        match kind.as_str() {
            "StatefulSet" => self.rename(node.at_mut(&["spec", "serviceName"]), "Service"),
            "ServiceAccount" => {
                for field in ["imagePullSecrets", "secrets"] {
                    self.names(node.get_mut(field), "Secret");
                }
            }
            "Ingress" => {
                let tls = node.at_mut(&["spec", "tls"]).map(Node::items_mut).unwrap_or_default();
                for entry in tls {
                    self.rename(entry.get_mut("secretName"), "Secret");
                }
                self.rename(node.at_mut(&["spec", "defaultBackend", "service", "name"]), "Service");
                let rules = node.at_mut(&["spec", "rules"]).map(Node::items_mut).unwrap_or_default();
                for rule in rules {
                    let paths = rule.at_mut(&["http", "paths"]).map(Node::items_mut).unwrap_or_default();
                    for path in paths {
                        self.rename(path.at_mut(&["backend", "service", "name"]), "Service");
                    }
                }
            }
            "HorizontalPodAutoscaler" => {
                let target = node.text(&["spec", "scaleTargetRef", "kind"]).to_owned();
                self.rename(node.at_mut(&["spec", "scaleTargetRef", "name"]), &target);
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                let role = node.text(&["roleRef", "kind"]).to_owned();
                self.rename(node.at_mut(&["roleRef", "name"]), &role);
                let subjects = node.get_mut("subjects").map(Node::items_mut).unwrap_or_default();
                for subject in subjects {
                    self.subject(subject);
                }
            }
            _ => {}
        }
    }

    fn subject(&self, subject: &mut Node) {
        if subject.text(&["kind"]) != "ServiceAccount" {
            return;
        }
        let (name, namespace) = (subject.text(&["name"]).to_owned(), subject.text(&["namespace"]).to_owned());
        let namespace = if namespace.is_empty() { "default" } else { &namespace };
        let Some(target) = self.find("ServiceAccount", &name, Some(namespace)) else { return };
        for (field, new) in [("name", target.name()), ("namespace", target.namespace())] {
            if let Some(value) = subject.get_mut(field).filter(|_| !new.is_empty()) {
                value.value = Value::Scalar(new.into());
            }
        }
    }

    /// The names of a list of references.
    fn names(&self, list: Option<&mut Node>, kind: &str) {
        for item in list.map(Node::items_mut).unwrap_or_default() {
            self.rename(item.get_mut("name"), kind);
        }
    }

    fn pod(&self, spec: &mut Node) {
        self.rename(spec.get_mut("serviceAccountName"), "ServiceAccount");
        self.rename(spec.get_mut("priorityClassName"), "PriorityClass");
        self.names(spec.get_mut("imagePullSecrets"), "Secret");
        for field in ["containers", "initContainers"] {
            for container in spec.get_mut(field).map(Node::items_mut).unwrap_or_default() {
                for env in container.get_mut("env").map(Node::items_mut).unwrap_or_default() {
                    self.rename(env.at_mut(&["valueFrom", "configMapKeyRef", "name"]), "ConfigMap");
                    self.rename(env.at_mut(&["valueFrom", "secretKeyRef", "name"]), "Secret");
                }
                for from in container.get_mut("envFrom").map(Node::items_mut).unwrap_or_default() {
                    self.rename(from.at_mut(&["configMapRef", "name"]), "ConfigMap");
                    self.rename(from.at_mut(&["secretRef", "name"]), "Secret");
                }
            }
        }
        for volume in spec.get_mut("volumes").map(Node::items_mut).unwrap_or_default() {
            self.rename(volume.at_mut(&["configMap", "name"]), "ConfigMap");
            self.rename(volume.at_mut(&["secret", "secretName"]), "Secret");
            self.rename(volume.at_mut(&["persistentVolumeClaim", "claimName"]), "PersistentVolumeClaim");
            let sources = volume.at_mut(&["projected", "sources"]).map(Node::items_mut).unwrap_or_default();
            for source in sources {
                self.rename(source.at_mut(&["configMap", "name"]), "ConfigMap");
                self.rename(source.at_mut(&["secret", "name"]), "Secret");
            }
        }
    }
}
