//! Workloads that may have no pods yet: scaled to zero, or a CronJob between its runs.
//!
//! A template is kept as the part of its text that can decide something, because what admission makes of it changes
//! with constraints and grants. A template that no constraint admits is a violation: its pods never run.

use palisade_model::{
    compat::Compat,
    metadata::ObjectMeta,
    pod::Pod,
    prepare::{Prepared, Subject as PodSubject},
    workload::{WorkloadKind, workload_kind},
};
use palisade_policy::{
    enforcement::classify::is_by_user,
    exceptions::{set::NamespaceExceptions, workload::of_made_template},
    scc::{
        choose::{Admission, Identity, Malformed, Operation, Request, SUBJECT_TYPE, VALIDATED},
        decision::{ConstraintDecision, Refusal},
        evaluate::Options,
        grants::Grants,
        set::ConstraintSet,
    },
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    judged::{DEFAULT_ACCOUNT, Judge, Judged, Subject, Supply},
    namespace::NamespaceRecord,
    supply::{has_ended, lacks_pods, supply},
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

/// What makes pods out of templates: one of the cluster's own controllers.
const CONTROLLER: &str = "system:serviceaccount:kube-system:workload-controller";

/// A template, ready to be judged again.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) kind: &'static WorkloadKind,
    pub(super) name: Box<str>,
    /// Its unique id; empty in manifests.
    pub(super) uid: Box<str>,
    text: Box<str>,
    supply: Supply,
    /// Whether fewer pods exist than it requests, for whatever reason.
    pub(super) lacks_pods: bool,
    /// The workload that controls this one.
    owner: Option<Owner>,
    /// Whether it makes no pods any more, as a ReplicaSet of an old revision.
    pub(super) is_idle: bool,
    /// The key of the workload that controls it, if that decides for it as long as it is there.
    pub(super) left_to: Option<u64>,
    /// The list that brought it, see [`super::Cluster::begin_list`].
    pub(super) list: u8,
}

/// The workload that controls another.
#[derive(Debug)]
pub(super) struct Owner {
    /// The table entry of its kind.
    pub(super) kind: &'static WorkloadKind,
    /// Its name.
    pub(super) name: Box<str>,
}

/// What a workload holds where its template should be.
#[derive(Debug)]
pub(super) enum Held {
    /// A template.
    Template(Template),
    /// Nothing, in a kind of which that is a use.
    Nothing,
    /// Something that is no template.
    Unreadable(&'static str),
}

impl Template {
    /// The template of a workload, or the pod itself.
    pub(super) fn read(kind: &'static WorkloadKind, name: &str, object: &Value, list: u8) -> Held {
        let template = kind.path.iter().try_fold(object, |value, field| value.get(field));
        let Some(template) = template.filter(|template| !template.is_null()) else {
            // Custom kinds may refer to another workload instead.
            return if kind.built_in { Held::Unreadable("it has no pod template") } else { Held::Nothing };
        };
        let Some(spec) = template.get("spec").and_then(Value::as_object) else {
            return Held::Unreadable("its pod template has no spec");
        };
        let part = |field: &str| template.get("metadata").and_then(|own| own.get(field)).cloned();
        let mut kept = json!({
            "metadata": {"name": name, "annotations": part("annotations").unwrap_or_default()},
            "spec": what_decides(spec),
        });
        // Exceptions select by them.
        if let Some(labels) = part("labels") {
            kept["metadata"]["labels"] = labels;
        }
        Held::Template(Self {
            kind,
            name: name.into(),
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().into(),
            text: kept.to_string().into(),
            supply: supply(kind, object),
            lacks_pods: lacks_pods(kind, object),
            owner: owner(object),
            is_idle: is_idle(kind, object),
            left_to: None,
            list,
        })
    }

    pub(super) const fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Judges the pod that would come out of the template.
    pub(super) fn judge(
        &self,
        judge: &mut Judge,
        namespace: &NamespaceRecord,
        grants: &Grants,
        constraints: &ConstraintSet,
        exceptions: Option<&NamespaceExceptions<'_>>,
    ) -> Judged {
        let undecided = |reason: &str| Judged::undecided(self.kind.kind, &self.name, reason, self.list);
        // swallowed: undecided, which never counts as complies
        let Ok(mut object) = serde_json::from_str::<Value>(&self.text) else {
            return undecided("its pod template cannot be decoded");
        };
        let mut supply = &self.supply;
        let rejected;
        if !constraints.is_empty() {
            match admit(&mut object, namespace, grants, constraints, &judge.compat) {
                Admitted::Yes => {}
                Admitted::No(reason) => {
                    rejected = Supply::Rejected(reason);
                    supply = &rejected;
                }
                Admitted::Unknown(reason) => return undecided(&reason),
            }
        }
        let pod = match Pod::deserialize(&object) {
            Ok(pod) => Prepared::future_pod(pod, self.kind.subject(), &judge.compat),
            Err(error) => return undecided(&format!("its pod template cannot be decoded: {error}")),
        };
        let ObjectMeta { annotations, labels, .. } = &pod.pod().metadata;
        let workloads = match exceptions {
            Some(_) => of_made_template(self.kind, &self.name, labels),
            None => Vec::new(),
        };
        let subject = Subject {
            kind: self.kind.kind,
            name: &self.name,
            owner: self.owner.as_ref().map(|owner| (owner.kind.kind, &*owner.name)),
            service_account: pod.spec().service_account(),
            constraint: annotations.get(VALIDATED),
            is_by_user: is_by_user(annotations),
            list: self.list,
            workloads: &workloads,
        };
        judge.judge(&pod, &subject, supply, exceptions)
    }
}

/// The part of a pod's spec that can decide something.
pub(super) fn what_decides(spec: &Map<String, Value>) -> Map<String, Value> {
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
    kept
}

/// The workload that controls an object, if its kind is known.
fn owner(object: &Value) -> Option<Owner> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().filter(|owner| owner["controller"] == true).find_map(|owner| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        Some(Owner { kind: workload_kind(text("apiVersion"), text("kind"))?, name: text("name").into() })
    })
}

/// Whether a workload that another one controls makes no pods any more.
fn is_idle(kind: &WorkloadKind, object: &Value) -> bool {
    match kind.kind {
        "ReplicaSet" | "ReplicationController" => object["spec"]["replicas"] == 0,
        // The API server drops the status of what is created; only what it created has an identity.
        "Job" => has_ended(object) && object["metadata"].get("uid").is_some(),
        _ => false,
    }
}

/// Whether a constraint admits the pods of a template.
enum Admitted {
    Yes,
    No(String),
    Unknown(String),
}

/// Lets SCC admission write into a pod what it would write.
fn admit(
    object: &mut Value,
    namespace: &NamespaceRecord,
    grants: &Grants,
    constraints: &ConstraintSet,
    compat: &Compat,
) -> Admitted {
    let changes = {
        let mut pod = match Pod::deserialize(&*object) {
            Ok(pod) => pod,
            Err(error) => return Admitted::Unknown(format!("its pod template cannot be decoded: {error}")),
        };
        if pod.spec.service_account().is_empty() {
            pod.spec.service_account_name = DEFAULT_ACCOUNT.into();
        }
        // What a template has in these decides nothing: admission writes them.
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
            options: Options {
                config_map_profiles: compat.has_config_map_profiles(),
                oci_profiles: compat.has_oci_profiles(),
                ..Options::default()
            },
            malformed: Malformed::Skip,
            require_standard: false,
        };
        match admission.mutate(&request).decision {
            ConstraintDecision::Admitted(admitted) => admitted.changes,
            ConstraintDecision::Ignored => Vec::new(),
            ConstraintDecision::Refused(
                refusal @ (Refusal::AnnotationMissing { .. } | Refusal::NamespaceMissing { .. }),
            ) => {
                return Admitted::Unknown(refusal.to_string());
            }
            ConstraintDecision::Refused(Refusal::NotValidated { .. }) => {
                return Admitted::No(format!(
                    "no SecurityContextConstraints that service account {} may use admit its pods",
                    pod.spec().service_account()
                ));
            }
            ConstraintDecision::Refused(refusal) => return Admitted::No(refusal.to_string()),
        }
    };
    for change in &changes {
        change.apply(object);
    }
    Admitted::Yes
}
