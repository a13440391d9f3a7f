//! Match conditions: which requests of its rules a webhook is called for.
//!
//! Implements: Dynamic Admission Control, "Matching requests: matchConditions", on by default since v1.28.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions>
//!
//! An update is sent only if it changes something that is judged, so that everything else goes on while no replica answers:
//! finalizers, owner references and labels of pods, what schedulers and autoscalers write, namespaces that are deleted. The
//! conditions name what is **not** judged; a field that they do not know is sent. A condition that cannot be evaluated rejects
//! the request where the failure policy is `Fail`, so every access is guarded.

use serde_json::{Value, json};

use super::objects::Kind;
use crate::options::Registration;

/// Fields of a pod's spec that no policy looks at and that an API server lets clients change.
pub const UNJUDGED_SPEC: &[&str] = &[
    "activeDeadlineSeconds",
    "affinity",
    "nodeSelector",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
];

/// Whether an annotation of a pod is judged, in CEL; `k` is its key.
const JUDGED_ANNOTATION: &str = "(k.contains('seccomp') || k.contains('apparmor') || k.contains('openshift.io/') || \
     k.contains('palisade.dev/') || k.contains('config.mirror'))";
/// Whether a label of a namespace is judged.
const JUDGED_LABEL: &str = "k.startsWith('pod-security.kubernetes.io/')";

/// The conditions of a webhook; none if it is called for all requests of its rules.
#[must_use]
pub fn match_conditions(kind: Kind, part: &str, options: &Registration) -> Vec<Value> {
    let condition = |name: &str, expression: String| json!({"name": name, "expression": expression});
    let judged = |expression: String| vec![condition("changes-what-is-judged", expression)];
    match (kind, part) {
        (_, "pods") => {
            let mut conditions = vec![condition("not-a-mirror-pod", NOT_A_MIRROR_POD.to_owned())];
            if let Some(account) = &options.service_account {
                let quoted = account.replace('\\', "\\\\").replace('\'', "\\'");
                // Its dry runs are pods of workloads, to be judged as any other.
                let others = format!(
                    "request.userInfo.username != '{quoted}' || (has(request.dryRun) && request.dryRun)"
                );
                conditions.push(condition("not-ourselves", others));
            }
            if kind == Kind::Validating {
                conditions.extend(judged(pod_changes()));
            }
            conditions
        }
        (_, "applied-pods") => judged(
            "has(object.metadata.annotations) && \
             object.metadata.annotations.exists(k, object.metadata.annotations[k].startsWith('configmap/'))"
                .to_owned(),
        ),
        (_, "namespaces") => judged(format!(
            "request.operation != 'UPDATE' ? \
             has(object.metadata.labels) && object.metadata.labels.exists(k, {JUDGED_LABEL}) : ({})",
            map_changes("metadata.labels", JUDGED_LABEL)
        )),
        // A PodTemplate has no spec, and is always sent.
        _ => judged(
            "request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec"
                .to_owned(),
        ),
    }
}

const NOT_A_MIRROR_POD: &str = "!(has(request.userInfo.groups) && 'system:nodes' in request.userInfo.groups && \
     has(request.userInfo.username) && request.userInfo.username.startsWith('system:node:') && \
     has(object.metadata.annotations) && 'kubernetes.io/config.mirror' in object.metadata.annotations)";

fn pod_changes() -> String {
    let unjudged = UNJUDGED_SPEC.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    format!(
        "request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || \
         !object.spec.all(k, k in [{unjudged}] || (k in oldObject.spec && object.spec[k] == oldObject.spec[k])) || \
         !oldObject.spec.all(k, k in [{unjudged}] || k in object.spec) || {}",
        map_changes("metadata.annotations", JUDGED_ANNOTATION)
    )
}

/// Whether an entry of a map of strings that is judged was added, changed or removed.
fn map_changes(at: &str, judged: &str) -> String {
    let (new, old) = (format!("object.{at}"), format!("oldObject.{at}"));
    format!(
        "(has({new}) && {new}.exists(k, {judged} && !(has({old}) && k in {old} && {old}[k] == {new}[k]))) || \
         (has({old}) && {old}.exists(k, {judged} && !(has({new}) && k in {new})))"
    )
}

#[cfg(test)]
mod tests {
    use palisade_model::pod::Pod;
    use serde_json::json;

    use super::UNJUDGED_SPEC;

    #[test]
    fn no_judge_reads_an_unjudged_field() {
        for field in UNJUDGED_SPEC {
            // A judge that read it could not read this value.
            let strange = json!({"metadata": {"name": "p"}, "spec": {"containers": [], *field: {"x": [1]}}});
            let plain = json!({"metadata": {"name": "p"}, "spec": {"containers": []}});
            let read = |value| palisade_model::json::from_value::<Pod<'_>>(value).unwrap();
            assert_eq!(read(&strange), read(&plain), "{field}");
        }
    }
}
