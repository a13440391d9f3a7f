//! AppArmor profiles of namespaces: what is rejected when one is written, and when a pod names one of another namespace.
//!
//! Nodes load the profiles of all namespaces, and a kubelet lets every pod name every profile of its node. A profile of another namespace may be
//! in a mode that this one is not allowed, and its users change it as they like.

use std::borrow::Cow;

use palisade_base::{
    field_error::{BadValue, FieldError},
    field_path::{FieldPath, PathStep},
    go::Quoted,
};
use palisade_model::profile::{
    apparmor::ANNOTATION_PREFIX,
    apparmor_profile::{AppArmorProfile, AppArmorProfileError, is_usable},
};
use serde_json::Value;

const WHY: &str = "is a profile of another namespace: pods use profiles of nodes and of their own namespace";

/// What is wrong with an `AppArmorProfile` that is written: nodes would not load it.
#[must_use]
pub fn problems(object: &Value) -> Vec<FieldError> {
    let at = |field: &'static str| FieldPath::of(&["spec", field]);
    let shown = |field: &str| BadValue::Plain(object["spec"][field].to_string());
    let problem = match AppArmorProfile::read(object) {
        Ok(_) => return Vec::new(),
        Err(AppArmorProfileError::Rules(error)) => {
            FieldError::invalid(at("rules"), shown("rules"), error.to_string())
        }
        Err(AppArmorProfileError::Mode(mode)) => {
            FieldError::not_supported(at("mode"), Quoted(&mode), &["Enforce", "Complain"])
        }
        Err(error) => {
            let shown = BadValue::Plain(object["spec"].to_string());
            FieldError::invalid(FieldPath::of(&["spec"]), shown, error.to_string())
        }
    };
    vec![problem]
}

/// The profiles of other namespaces that a pod names; for a new ephemeral container, those that ephemeral containers name.
#[must_use]
pub fn of_other_namespaces(pod: &Value, namespace: &str, is_ephemeral: bool) -> Vec<FieldError> {
    let mut found = Vec::new();
    let spec = FieldPath::of(&["spec"]);
    if is_ephemeral {
        let containers = &pod["spec"]["ephemeralContainers"];
        search(containers, &spec.field("ephemeralContainers"), namespace, &mut found);
        return found;
    }
    search(&pod["spec"], &spec, namespace, &mut found);
    for (key, value) in pod["metadata"]["annotations"].as_object().into_iter().flatten() {
        let profile = value.as_str().and_then(|value| value.strip_prefix("localhost/"));
        if let Some(profile) = profile.filter(|_| key.starts_with(ANNOTATION_PREFIX))
            && !is_usable(profile, namespace)
        {
            let at = FieldPath::of(&["metadata", "annotations"]).key(key.as_str());
            found.push(FieldError::invalid(at, Quoted(profile), WHY));
        }
    }
    found
}

fn search(value: &Value, at: &FieldPath, namespace: &str, found: &mut Vec<FieldError>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                search(item, &at.clone().index(index), namespace, found);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let step = PathStep::Field(Cow::Owned(name.clone()));
                let at = FieldPath::from([at.steps(), &[step]].concat());
                if name == "appArmorProfile"
                    && let Some(profile) = value["localhostProfile"].as_str()
                    && !is_usable(profile, namespace)
                {
                    found.push(FieldError::invalid(at.field("localhostProfile"), Quoted(profile), WHY));
                } else {
                    search(value, &at, namespace, found);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{of_other_namespaces, problems};

    fn paths(pod: &Value, is_ephemeral: bool) -> Vec<String> {
        of_other_namespaces(pod, "shop", is_ephemeral).iter().map(|problem| problem.at.to_string()).collect()
    }

    #[test]
    fn a_pod_cannot_name_a_profile_of_another_namespace() {
        let profile =
            |name: &str| json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": name}});
        let pod = |context: Value, container: Value, annotation: &str| {
            json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": annotation}},
                "spec": {"securityContext": context, "containers": [{"name": "c", "securityContext": container}]}})
        };
        for (case, pod, expected) in [
            (
                "its own",
                pod(profile("palisade/shop/web"), profile("palisade/shop/db"), "localhost/palisade/shop/web"),
                &[][..],
            ),
            ("of the node", pod(profile("k8s-web"), json!({}), "runtime/default"), &[]),
            (
                "for the pod",
                pod(profile("palisade/lab/web"), json!({}), ""),
                &["spec.securityContext.appArmorProfile.localhostProfile"],
            ),
            (
                "for a container",
                pod(json!({}), profile("palisade/lab/web"), ""),
                &["spec.containers[0].securityContext.appArmorProfile.localhostProfile"],
            ),
            (
                "by annotation",
                pod(json!({}), json!({}), "localhost/palisade/lab/web"),
                &["metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]"],
            ),
            (
                "stacked",
                pod(profile("x//&palisade/lab/web"), json!({}), ""),
                &["spec.securityContext.appArmorProfile.localhostProfile"],
            ),
        ] {
            assert_eq!(paths(&pod, false), expected, "{case}");
            assert_eq!(paths(&pod, true), [""; 0], "{case}: no ephemeral container");
        }
        let debug = json!({"spec": {"ephemeralContainers": [{"name": "d", "securityContext": profile("palisade/lab/web")}]}});
        assert_eq!(
            paths(&debug, true),
            ["spec.ephemeralContainers[0].securityContext.appArmorProfile.localhostProfile"]
        );
    }

    #[test]
    fn rules_that_no_node_loads_are_rejected_when_they_are_written() {
        let object = |spec: Value| {
            json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "AppArmorProfile",
            "metadata": {"namespace": "shop", "name": "web"}, "spec": spec})
        };
        assert_eq!(problems(&object(json!({"rules": "file,\nnetwork inet stream,"}))), []);
        for (spec, expected) in [
            (json!({"rules": "file,\nmount,"}), "line 2: mount is not allowed"),
            (json!({"rules": "file,", "mode": "Unconfined"}), "supported values: \"Enforce\", \"Complain\""),
            (json!({"rules": "file,", "flags": "unconfined"}), "unknown field `flags`"),
        ] {
            let found: Vec<String> = problems(&object(spec)).iter().map(ToString::to_string).collect();
            assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        }
    }
}
