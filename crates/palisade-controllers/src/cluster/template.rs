//! Workloads that may have no pods yet: scaled to zero, or a CronJob between its runs.
//!
//! A template is kept as the part of its text that can decide something, because what admission makes of it changes
//! with constraints and grants.

use palisade_model::{
    compat::Compat,
    pod::Pod,
    prepare::{Prepared, Subject as PodSubject},
    workload::WorkloadKind,
};
use palisade_policy::{
    enforcement::classify::is_by_user,
    scc::{
        choose::{Admission, Identity, Malformed, Operation, Request, SUBJECT_TYPE, VALIDATED},
        decision::{Decision, Refusal},
        evaluate::Options,
        grants::Grants,
        set::ConstraintSet,
    },
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    judged::{DEFAULT_ACCOUNT, Judge, Judged, Subject},
    namespace::NamespaceRecord,
};

/// Fields of a container that decide nothing here, and take the most space.
const IRRELEVANT: [&str; 12] = [
    "args",
    "command",
    "env",
    "envFrom",
    "imagePullPolicy",
    "resizePolicy",
    "resources",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
];

/// Whoever makes pods out of templates: one of the cluster's own controllers.
const CONTROLLER: &str = "system:serviceaccount:kube-system:workload-controller";

/// A template, ready to be judged again.
#[derive(Debug)]
pub(super) struct Template {
    kind: &'static WorkloadKind,
    name: Box<str>,
    text: Box<str>,
    /// The list that brought it, see [`super::Cluster::begin_list`].
    pub(super) list: u8,
}

impl Template {
    /// The template of a workload; `None` if there is none.
    pub(super) fn read(kind: &'static WorkloadKind, name: &str, object: &Value, list: u8) -> Option<Self> {
        let template = kind.path.iter().try_fold(object, |value, field| value.get(field))?;
        let spec = template.get("spec")?.as_object()?;
        let mut kept: Map<String, Value> = spec
            .iter()
            .filter(|(field, _)| !matches!(field.as_str(), "affinity" | "tolerations" | "nodeSelector"))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect();
        for list in ["initContainers", "containers"] {
            for container in kept.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(fields) = container.as_object_mut() {
                    fields.retain(|field, _| !IRRELEVANT.contains(&field.as_str()));
                }
            }
        }
        let annotations = template.pointer("/metadata/annotations").cloned().unwrap_or_default();
        let kept = serde_json::json!({"metadata": {"name": name, "annotations": annotations}, "spec": kept});
        Some(Self { kind, name: name.into(), text: kept.to_string().into(), list })
    }

    /// Judges the pod that would come out of the template; `None` if no constraint would let it run at all.
    pub(super) fn judge(
        &self,
        judge: &mut Judge,
        namespace: &NamespaceRecord,
        grants: &Grants,
        constraints: &ConstraintSet,
    ) -> Option<Judged> {
        let mut object: Value = serde_json::from_str(&self.text).ok()?;
        if !constraints.is_empty() {
            admit(&mut object, namespace, grants, constraints, &judge.compat)?;
        }
        let pod = Pod::deserialize(&object).ok()?;
        let pod = Prepared::future_pod(pod, self.kind.subject(), &judge.compat);
        let annotations = &pod.pod().metadata.annotations;
        let subject = Subject {
            kind: self.kind.kind,
            name: &self.name,
            owner: None,
            service_account: pod.spec().service_account(),
            constraint: annotations.get(VALIDATED),
            is_by_user: is_by_user(annotations),
            list: self.list,
        };
        Some(judge.judge(&pod, &subject))
    }
}

/// Lets SCC admission write into a pod what it would write. `None` if it would refuse the pod.
fn admit(
    object: &mut Value,
    namespace: &NamespaceRecord,
    grants: &Grants,
    constraints: &ConstraintSet,
    compat: &Compat,
) -> Option<()> {
    let changes = {
        let mut pod = Pod::deserialize(&*object).ok()?;
        if pod.spec.service_account().is_empty() {
            pod.spec.service_account_name = DEFAULT_ACCOUNT.into();
        }
        // What a template says about these decides nothing: admission writes them.
        pod.metadata.annotations.retain(|key, _| key != VALIDATED && key != SUBJECT_TYPE);
        let pod = Prepared::new(pod, PodSubject::Pod, compat);
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
            .map(str::to_owned);
        let may_use = |identity: &Identity<'_>, constraint: &str| {
            grants.may_use(identity.name, identity.groups, namespace.name(), constraint)
        };
        let request = Request {
            operation: Operation::Create,
            subresource: "",
            pod: &pod,
            namespace: namespace.name(),
            namespace_annotations: Some(namespace.annotations()),
            user: CONTROLLER,
            groups: &groups,
            authorizer: &may_use,
        };
        let admission = Admission {
            constraints,
            options: Options::default(),
            malformed: Malformed::Skip,
            require_standard: false,
        };
        match admission.mutate(&request).decision {
            Decision::Admitted(admitted) => admitted.changes,
            // A namespace that has no ranges yet says nothing about its pods.
            Decision::Ignored | Decision::Refused(Refusal::AnnotationMissing { .. }) => Vec::new(),
            Decision::Refused(_) => return None,
        }
    };
    for change in &changes {
        change.apply(object);
    }
    Some(())
}
