//! The pods and claims of a StatefulSet. Pure.

use serde_json::{Value, json};

use crate::workloads::{
    meta::{Meta, controller_reference},
    object::{Object, at, list},
    pod::Pod,
    replica_set::plan::pod_of,
    revisions::HASH,
};

const NAME: &str = "statefulset.kubernetes.io/pod-name";
const INDEX: &str = "apps.kubernetes.io/pod-index";

/// The ordinal of a pod, if its name is one of the StatefulSet.
#[must_use]
pub fn ordinal(set: &Object, pod: &Pod) -> Option<i64> {
    let text = pod.meta.name.strip_prefix(&*set.meta.name)?.strip_prefix('-')?;
    // `web-01` is not `web-1`.
    let number: i64 = text.parse().ok()?;
    (number >= 0 && number.to_string() == text).then_some(number)
}

/// The name of the claim of an ordinal.
#[must_use]
pub fn claim_name(set: &Object, template: &Value, ordinal: i64) -> String {
    let name = template["metadata"]["name"].as_str().unwrap_or_default();
    format!("{name}-{}-{ordinal}", set.meta.name)
}

/// The pod of an ordinal, with the template of a revision.
#[must_use]
pub fn pod(set: &Object, revision: &Object, ordinal: i64) -> Value {
    let reference = controller_reference("apps/v1", "StatefulSet", &set.meta);
    let mut template = revision.at("/data/spec/template").clone();
    if let Some(template) = template.as_object_mut() {
        template.remove("$patch");
    }
    let mut pod = pod_of(&template, &set.meta, &reference);
    let name = format!("{}-{ordinal}", set.meta.name);
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("generateName");
    }
    pod["metadata"]["name"] = json!(name);
    for (key, value) in labels(&name, ordinal) {
        pod["metadata"]["labels"][key] = json!(value);
    }
    pod["metadata"]["labels"][HASH] = json!(revision.meta.name);
    let spec = &mut pod["spec"];
    spec["hostname"] = json!(name);
    spec["subdomain"] = set.at("/spec/serviceName").clone();
    let claims = set.list("/spec/volumeClaimTemplates");
    if !claims.is_empty() {
        let mut volumes: Vec<Value> = claims
            .iter()
            .map(|claim| {
                json!({"name": claim["metadata"]["name"],
                    "persistentVolumeClaim": {"claimName": claim_name(set, claim, ordinal), "readOnly": false}})
            })
            .collect();
        let is_claim =
            |volume: &Value| claims.iter().any(|claim| claim["metadata"]["name"] == volume["name"]);
        volumes.extend(list(&spec["volumes"]).iter().filter(|volume| !is_claim(volume)).cloned());
        spec["volumes"] = volumes.into();
    }
    pod
}

fn labels(name: &str, ordinal: i64) -> [(&'static str, String); 2] {
    [(NAME, name.to_owned()), (INDEX, ordinal.to_string())]
}

/// The labels that a pod has lost, as a patch.
#[must_use]
pub fn identity(pod: &Pod, ordinal: i64) -> Option<Value> {
    let wanted = labels(&pod.meta.name, ordinal);
    let is_missing = wanted.iter().any(|(key, value)| pod.meta.label(key) != Some(value));
    let labels: serde_json::Map<String, Value> =
        wanted.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    is_missing.then(|| json!({"metadata": {"uid": pod.meta.uid, "labels": labels}}))
}

/// Who owns the claims of an ordinal, by the retention policy: the StatefulSet, the pod, or nobody.
fn owners(set: &Object, pod: Option<&Meta>, is_condemned: bool) -> Vec<Value> {
    let policy = |key: &str| set.at("/spec/persistentVolumeClaimRetentionPolicy")[key] == "Delete";
    let (deleted, scaled) = (policy("whenDeleted"), policy("whenScaled"));
    let own = || controller_reference("apps/v1", "StatefulSet", &set.meta);
    match (deleted, scaled) {
        (_, true) if is_condemned => {
            pod.map(|pod| controller_reference("v1", "Pod", pod)).into_iter().collect()
        }
        (true, _) => vec![own()],
        _ => Vec::new(),
    }
}

/// The claims of an ordinal.
#[must_use]
pub fn claims(set: &Object, ordinal: i64) -> Vec<Value> {
    let make = |template: &Value| {
        let mut claim = template.clone();
        claim["apiVersion"] = json!("v1");
        claim["kind"] = json!("PersistentVolumeClaim");
        let metadata = &mut claim["metadata"];
        metadata["name"] = json!(claim_name(set, template, ordinal));
        metadata["namespace"] = json!(set.meta.namespace);
        for (key, value) in at(&set.value, "/spec/selector/matchLabels").as_object().into_iter().flatten() {
            metadata["labels"][key] = value.clone();
        }
        let owners = owners(set, None, false);
        if !owners.is_empty() {
            metadata["ownerReferences"] = owners.into();
        }
        if let Some(claim) = claim.as_object_mut() {
            claim.remove("status");
        }
        claim
    };
    set.list("/spec/volumeClaimTemplates").iter().map(make).collect()
}

/// The claim with the owners that the retention policy wants, if that changes it.
#[must_use]
pub fn owned_claim(set: &Object, claim: &Object, pod: &Pod, is_condemned: bool) -> Option<Value> {
    let known = list(claim.at("/metadata/ownerReferences"));
    let is_ours = |owner: &Value| {
        owner["uid"] == *set.meta.uid || (owner["kind"] == "Pod" && owner["name"] == *pod.meta.name)
    };
    let mut wanted: Vec<Value> = known.iter().filter(|owner| !is_ours(owner)).cloned().collect();
    wanted.extend(owners(set, Some(&pod.meta), is_condemned));
    let uids = |owners: &[Value]| {
        let mut uids: Vec<String> = owners.iter().map(|owner| owner["uid"].to_string()).collect();
        uids.sort();
        uids
    };
    if uids(known) == uids(&wanted) {
        return None;
    }
    let mut value = claim.value.clone();
    value["metadata"]["ownerReferences"] = wanted.into();
    Some(value)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{claims, ordinal, owned_claim, pod};
    use crate::workloads::{kind::STATEFUL_SET, mirror::Mirrored as _, object::Object, pod::Pod, revisions};

    fn set(policy: &Value) -> Object {
        Object::of(json!({"metadata": {"name": "web", "namespace": "n", "uid": "set"}, "spec": {"serviceName": "svc",
            "selector": {"matchLabels": {"a": "b"}}, "persistentVolumeClaimRetentionPolicy": policy,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"volumes": [{"name": "tmp"}, {"name": "data"}]}}}}))
        .unwrap()
    }

    fn named(name: &str) -> Pod {
        Pod::read(&json!({"metadata": {"name": name, "uid": name, "namespace": "n"}}).to_string()).unwrap()
    }

    #[test]
    fn a_pod_is_known_by_its_ordinal() {
        for (name, expected) in [
            ("web-0", Some(0)),
            ("web-10", Some(10)),
            ("web-01", None),
            ("web-x", None),
            ("web", None),
            ("webs-1", None),
        ] {
            assert_eq!(ordinal(&set(&json!({})), &named(name)), expected, "{name}");
        }
    }

    #[test]
    fn a_pod_has_a_name_a_revision_and_its_claims() {
        let set = set(&json!({}));
        let revision = Object::of(revisions::new(STATEFUL_SET, &set, 1)).unwrap();
        let made = pod(&set, &revision, 3);
        let labels = &made["metadata"]["labels"];
        assert_eq!(made["metadata"]["name"], "web-3");
        assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-3");
        assert_eq!(labels["controller-revision-hash"], *revision.meta.name);
        assert_eq!((&made["spec"]["hostname"], &made["spec"]["subdomain"]), (&json!("web-3"), &json!("svc")));
        let volumes = made["spec"]["volumes"].as_array().unwrap();
        assert_eq!(volumes.len(), 2, "{volumes:?}");
        assert_eq!(volumes[0]["persistentVolumeClaim"]["claimName"], "data-web-3");
        let claims = claims(&set, 3);
        assert_eq!(
            (&claims[0]["metadata"]["name"], &claims[0]["metadata"]["labels"]["a"]),
            (&json!("data-web-3"), &json!("b"))
        );
    }

    #[test]
    fn the_retention_policy_decides_who_owns_claims() {
        let policy = |deleted: &str, scaled: &str| json!({"whenDeleted": deleted, "whenScaled": scaled});
        let owned = |uids: &[&str]| {
            let owners: Vec<Value> =
                uids.iter().map(|uid| json!({"uid": uid, "kind": "StatefulSet"})).collect();
            Object::of(json!({"metadata": {"name": "data-web-0", "ownerReferences": owners}})).unwrap()
        };
        for (case, policy, known, is_condemned, expected) in [
            ("retained", policy("Retain", "Retain"), vec!["other"], true, None),
            (
                "no longer deleted",
                policy("Retain", "Retain"),
                vec!["set", "other"],
                false,
                Some(vec!["other"]),
            ),
            ("deleted with the set", policy("Delete", "Retain"), vec![], true, Some(vec!["set"])),
            ("deleted when scaled, in range", policy("Retain", "Delete"), vec![], false, None),
            ("deleted when scaled", policy("Retain", "Delete"), vec![], true, Some(vec!["web-0"])),
            ("both, in range", policy("Delete", "Delete"), vec![], false, Some(vec!["set"])),
            ("both", policy("Delete", "Delete"), vec!["set"], true, Some(vec!["web-0"])),
        ] {
            let changed = owned_claim(&set(&policy), &owned(&known), &named("web-0"), is_condemned);
            let uids = changed.map(|claim| {
                let owners = claim["metadata"]["ownerReferences"].as_array().unwrap().clone();
                owners.iter().map(|owner| owner["uid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
            });
            assert_eq!(uids, expected.map(|uids| uids.into_iter().map(str::to_owned).collect()), "{case}");
        }
    }
}
