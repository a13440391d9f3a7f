//! Pod, Deployment, CronJob … and the pod template inside.
//!
//! The table holds every built-in kind with a template and the custom resources people most often deploy pods
//! with. A kind that is not in the table holds no pod that Palisade can find; callers count it and go on.

use std::{fmt, marker::PhantomData};

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::{pod::Pod, prepare::Subject, text::Text};

/// A kind of object that is a pod or holds a template.
#[derive(Debug, PartialEq, Eq)]
pub struct WorkloadKind {
    /// API group; empty for core.
    pub group: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Where the template is; empty for a pod.
    pub path: &'static [&'static str],
    /// Whether Pod Security Admission looks at it in a real cluster. Custom resources are not looked at: only the
    /// pods they make are.
    pub built_in: bool,
}

impl WorkloadKind {
    /// Pod or template.
    #[must_use]
    pub const fn subject(&self) -> Subject {
        if self.path.is_empty() { Subject::Pod } else { Subject::Template(self.path) }
    }
}

const SPEC_TEMPLATE: &[&str] = &["spec", "template"];

const fn built_in(
    group: &'static str,
    kind: &'static str,
    resource: &'static str,
    path: &'static [&'static str],
) -> WorkloadKind {
    WorkloadKind { group, kind, resource, path, built_in: true }
}

const fn custom(
    group: &'static str,
    kind: &'static str,
    resource: &'static str,
    path: &'static [&'static str],
) -> WorkloadKind {
    WorkloadKind { group, kind, resource, path, built_in: false }
}

/// Every kind known to hold a pod.
pub static WORKLOADS: &[WorkloadKind] = &[
    built_in("", "Pod", "pods", &[]),
    built_in("", "PodTemplate", "podtemplates", &["template"]),
    built_in("", "ReplicationController", "replicationcontrollers", SPEC_TEMPLATE),
    built_in("apps", "DaemonSet", "daemonsets", SPEC_TEMPLATE),
    built_in("apps", "Deployment", "deployments", SPEC_TEMPLATE),
    built_in("apps", "ReplicaSet", "replicasets", SPEC_TEMPLATE),
    built_in("apps", "StatefulSet", "statefulsets", SPEC_TEMPLATE),
    built_in("batch", "CronJob", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
    built_in("batch", "Job", "jobs", SPEC_TEMPLATE),
    // The old home of today's apps group; manifests of that age are still around.
    built_in("extensions", "DaemonSet", "daemonsets", SPEC_TEMPLATE),
    built_in("extensions", "Deployment", "deployments", SPEC_TEMPLATE),
    built_in("extensions", "ReplicaSet", "replicasets", SPEC_TEMPLATE),
    custom("apps.kruise.io", "BroadcastJob", "broadcastjobs", SPEC_TEMPLATE),
    custom("apps.kruise.io", "CloneSet", "clonesets", SPEC_TEMPLATE),
    custom("apps.kruise.io", "DaemonSet", "daemonsets", SPEC_TEMPLATE),
    custom("apps.kruise.io", "StatefulSet", "statefulsets", SPEC_TEMPLATE),
    custom("apps.openshift.io", "DeploymentConfig", "deploymentconfigs", SPEC_TEMPLATE),
    custom("argoproj.io", "Rollout", "rollouts", SPEC_TEMPLATE),
    custom("keda.sh", "ScaledJob", "scaledjobs", &["spec", "jobTargetRef", "template"]),
    custom("serving.knative.dev", "Configuration", "configurations", SPEC_TEMPLATE),
    custom("serving.knative.dev", "Revision", "revisions", &[]),
    custom("serving.knative.dev", "Service", "services", SPEC_TEMPLATE),
];

/// The group of an `apiVersion`.
#[must_use]
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The entry of a kind, whatever its version.
#[must_use]
pub fn workload_kind(api_version: &str, kind: &str) -> Option<&'static WorkloadKind> {
    let group = group_of(api_version);
    WORKLOADS.iter().find(|entry| entry.kind == kind && entry.group == group)
}

/// The entry of a resource, as a request names it.
#[must_use]
pub fn workload_resource(group: &str, resource: &str) -> Option<&'static WorkloadKind> {
    WORKLOADS.iter().find(|entry| entry.resource == resource && entry.group == group)
}

/// Reads the pod or template of a workload straight from its text, without building the rest of the object.
/// `None` if there is no template where one should be.
pub fn read_template<'de, D: Deserializer<'de>>(
    deserializer: D,
    path: &'static [&'static str],
) -> Result<Option<Pod<'de>>, D::Error> {
    TemplateAt(path, PhantomData).deserialize(deserializer)
}

struct TemplateAt<'de>(&'static [&'static str], PhantomData<&'de ()>);

impl<'de> DeserializeSeed<'de> for TemplateAt<'de> {
    type Value = Option<Pod<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return serde::Deserialize::deserialize(deserializer);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TemplateAt<'de> {
    type Value = Option<Pod<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", self.0.join("."))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((field, rest)) = self.0.split_first() else { return Ok(None) };
        let (mut found, mut seen) = (None, false);
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if key == *field {
                if std::mem::replace(&mut seen, true) {
                    return Err(de::Error::duplicate_field(field));
                }
                found = map.next_value_seed(TemplateAt(rest, PhantomData))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{WORKLOADS, read_template, workload_kind};

    #[test]
    fn finds_the_template_of_every_kind() {
        for entry in WORKLOADS {
            let mut text =
                r#"{"metadata":{"name":"t"},"spec":{"hostPID":true,"containers":[{"name":"c"}]}}"#.to_owned();
            for field in entry.path.iter().rev() {
                text = format!(r#"{{"other":[1,{{"spec":2}}],"{field}":{text}}}"#);
            }
            let mut json = serde_json::Deserializer::from_str(&text);
            let pod = read_template(&mut json, entry.path).unwrap().unwrap();
            assert_eq!(pod.spec.host_pid, Some(true), "{}", entry.kind);
        }
    }

    #[test]
    fn a_missing_or_null_template_is_none() {
        for text in ["{}", r#"{"spec":null}"#, r#"{"spec":{}}"#, r#"{"spec":{"template":null}}"#] {
            let mut json = serde_json::Deserializer::from_str(text);
            assert_eq!(read_template(&mut json, &["spec", "template"]).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn the_group_decides_and_the_version_does_not() {
        for (api_version, kind, found) in [
            ("v1", "Pod", true),
            ("apps/v1", "Deployment", true),
            ("apps/v1beta2", "Deployment", true),
            ("apps.kruise.io/v1alpha1", "CloneSet", true),
            ("v1", "Deployment", false),
            ("v1", "Service", false),
            ("serving.knative.dev/v1", "Service", true),
        ] {
            assert_eq!(workload_kind(api_version, kind).is_some(), found, "{api_version} {kind}");
        }
    }
}
