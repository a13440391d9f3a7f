//! Replays what OpenShift's own code decided about security context constraints.
//!
//! Two kinds of records: the Pod Security level that a constraint implies in a namespace, and whole admissions of
//! pods, mutating and validating pass. Constraints named by a string are our own built-in manifests, so that these are
//! on trial as well. Malformed constraints refuse everything here, as upstream lets them; that they do not in
//! Palisade is the one wanted difference (`docs/openshift-differences.md`).

use std::{collections::BTreeMap, fmt::Write as _, path::Path, sync::LazyLock};

use palisade_model::{compat::Compat, metadata::StringMap, pod::Pod, prepare::Prepared};
use palisade_policy::scc::{
    audit::Audit,
    built_in,
    choose::{Admission, Identity, Malformed, Operation, Request, Subject},
    constraint::Constraint,
    decision::{ConstraintDecision, ConstraintOutcome},
    evaluate::Options,
    namespace_ranges::NamespaceRanges,
    set::ConstraintSet,
    to_standard::implied_level,
    update::is_insignificant,
};
use palisade_testkit::recordings;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// How a replay went.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// Records and equal answers, by group.
    pub(crate) groups: BTreeMap<String, (usize, usize)>,
    /// What differs, one text for each record.
    pub(crate) differences: Vec<String>,
}

impl Summary {
    /// Records and equal answers of all groups.
    pub(crate) fn total(&self) -> (usize, usize) {
        self.groups.values().fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1))
    }

    /// A table by group.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("\n{:<34} {:>7} {:>7} {:>9}\n", "OpenShift", "total", "equal", "different");
        let all = [("all".to_owned(), self.total())];
        for (group, (total, equal)) in self.groups.iter().chain(all.iter().map(|(name, count)| (name, count)))
        {
            let _ = writeln!(text, "{group:<34} {total:>7} {equal:>7} {:>9}", total - equal);
        }
        text
    }

    fn add(&mut self, record: &Value, group: String, difference: Option<String>) {
        let entry = self.groups.entry(group).or_default();
        entry.0 += 1;
        match difference {
            None => entry.1 += 1,
            Some(text) => self.differences.push(format!("{}: {text}", record["id"].as_str().unwrap_or("?"))),
        }
    }
}

/// Replays the recordings of a folder.
pub(crate) fn run(folder: &Path) -> Summary {
    let mut summary = Summary::default();
    for record in recordings::named::<Value>(folder, "scc-to-pss").unwrap() {
        summary.add(&record, "scc-to-pss".to_owned(), replay_level(&record));
    }
    for record in recordings::named::<Value>(folder, "scc-admission").unwrap() {
        let group = record["group"].as_str().unwrap_or("?");
        summary.add(&record, format!("scc-admission/{group}"), replay_admission(&record));
    }
    summary
}

fn replay_level(record: &Value) -> Option<String> {
    let constraint = match Constraint::read(&record["scc"]) {
        Ok(constraint) => constraint,
        Err(error) => return Some(error.to_string()),
    };
    let annotations = annotations_of(&record["namespace"]["annotations"]);
    let name = record["namespace"]["name"].as_str().unwrap_or_default();
    let given = match implied_level(&constraint, &NamespaceRanges::new(name, &annotations)) {
        Ok(implied) => json!({"level": implied.level.as_str()}),
        Err(error) => json!({"level": "privileged", "error": error.to_string()}),
    };
    let mut recorded = json!({"level": record["level"]});
    if let Some(error) = record["error"].as_str() {
        // Upstream prints the whole object where we print its name.
        recorded["error"] = json!(error.replace("<NAMESPACE>", name));
    }
    differ(&recorded, &given)
}

fn differ(recorded: &Value, given: &Value) -> Option<String> {
    (recorded != given).then(|| format!("\n  recorded: {recorded}\n  given:    {given}"))
}

fn annotations_of(value: &Value) -> StringMap<'_> {
    Option::<StringMap<'_>>::deserialize(value).ok().flatten().unwrap_or_default()
}

fn replay_admission(record: &Value) -> Option<String> {
    let replayed = match Replay::of(record).and_then(|replay| replay.answer(Malformed::RefuseAll)) {
        Ok(replayed) => replayed,
        Err(error) => return Some(error),
    };
    let mut recorded = record["result"].clone();
    let mut given = replayed.to_json();
    if recorded.get("audit").is_none() {
        given.as_object_mut()?.remove("audit");
    }
    if let Some(pod) = recorded.get_mut("pod") {
        *pod = security_part(pod);
    }
    let order: Vec<_> = constraints_of(record).iter().map(|constraint| json!(constraint.name())).collect();
    recorded["order"] = record["order"].clone();
    given["order"] = Value::Array(order);
    differ(&recorded, &given)
}

/// The constraints a record names, in our order.
pub(crate) fn constraints_of(record: &Value) -> ConstraintSet {
    static BUILT_IN: LazyLock<Vec<Value>> = LazyLock::new(|| built_in::objects().collect());
    let built_in = |name: &str| BUILT_IN.iter().find(|object| object["metadata"]["name"] == name);
    let listed = record["sccs"].as_array().map(Vec::as_slice).unwrap_or_default();
    ConstraintSet::read(listed.iter().filter_map(|scc| scc.as_str().map_or(Some(scc), built_in))).0
}

/// What a replay came to.
pub(crate) struct Replayed {
    allowed: bool,
    error: Option<(String, &'static str)>,
    pod: Value,
    audit: Audit,
    /// Constraints that were skipped.
    #[allow(dead_code, reason = "used by the tests of palisade-policy, which share this file")]
    pub(crate) skipped: Vec<String>,
}

impl Replayed {
    /// In the form of the recordings.
    pub(crate) fn to_json(&self) -> Value {
        let audit: Map<String, Value> =
            self.audit.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
        match &self.error {
            None => json!({"allowed": self.allowed, "pod": security_part(&self.pod), "audit": audit}),
            Some((error, by)) => {
                json!({"allowed": self.allowed, "error": error, "rejectedBy": by, "audit": audit})
            }
        }
    }
}

/// A record of an admission, ready to be replayed.
pub(crate) struct Replay<'v> {
    record: &'v Value,
    constraints: ConstraintSet,
    namespace_annotations: Option<StringMap<'v>>,
    groups: Vec<String>,
    old: Option<Pod<'v>>,
}

impl<'v> Replay<'v> {
    /// Reads a record.
    pub(crate) fn of(record: &'v Value) -> Result<Self, String> {
        let namespace = &record["namespace"];
        let present = namespace["absent"] != json!(true);
        let groups = record["user"]["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
        let old = match record.get("oldPod") {
            Some(old) => Some(Pod::deserialize(old).map_err(|error| error.to_string())?),
            None => None,
        };
        Ok(Self {
            record,
            constraints: constraints_of(record),
            namespace_annotations: present.then(|| annotations_of(&namespace["annotations"])),
            groups: groups.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            old,
        })
    }

    /// The same record under other constraints.
    #[allow(dead_code, reason = "used by the tests of palisade-policy, which share this file")]
    pub(crate) fn with_constraints(self, constraints: ConstraintSet) -> Self {
        Self { constraints, ..self }
    }

    /// Runs the passes of the record.
    pub(crate) fn answer(&self, malformed: Malformed) -> Result<Replayed, String> {
        let mut replayed = Replayed {
            allowed: true,
            error: None,
            pod: self.record["pod"].clone(),
            audit: Audit::default(),
            skipped: Vec::new(),
        };
        let passes: &[&'static str] =
            if self.record.get("passes").is_some() { &["validate"] } else { &["admit", "validate"] };
        for &pass in passes {
            let pod = replayed.pod.clone();
            let outcome = self.pass(&pod, pass, malformed)?;
            replayed.audit.merge(outcome.audit);
            replayed.skipped = outcome.skipped.iter().map(|error| error.constraint.clone()).collect();
            match outcome.decision {
                ConstraintDecision::Ignored => {}
                ConstraintDecision::Admitted(admitted) => {
                    for change in &admitted.changes {
                        change.apply(&mut replayed.pod);
                    }
                }
                ConstraintDecision::Refused(refusal) => {
                    let pod = Pod::deserialize(&pod).map_err(|error| error.to_string())?;
                    replayed.allowed = false;
                    replayed.error = Some((refusal.message(&pod), pass));
                    break;
                }
            }
        }
        Ok(replayed)
    }

    fn pass(&self, object: &Value, pass: &str, malformed: Malformed) -> Result<ConstraintOutcome, String> {
        let pod = Pod::deserialize(object).map_err(|error| error.to_string())?;
        let pod = Prepared::stored(pod, &Compat::kubernetes(37));
        let record = self.record;
        let granted = |identity: &Identity<'_>, constraint: &str| {
            let subject = match identity.subject {
                Subject::User => "user",
                Subject::ServiceAccount => "serviceaccount",
            };
            record["canUse"]
                .as_array()
                .is_some_and(|grants| grants.contains(&json!({"scc": constraint, "subject": subject})))
        };
        let request = Request {
            operation: match &self.old {
                Some(old) => Operation::Update {
                    old_annotations: &old.metadata.annotations,
                    is_insignificant: is_insignificant(&record["oldPod"], object),
                },
                None => Operation::Create,
            },
            subresource: record["subresource"].as_str().unwrap_or_default(),
            pod: &pod,
            namespace: record["namespace"]["name"].as_str().unwrap_or_default(),
            namespace_annotations: self.namespace_annotations.as_ref(),
            user: record["user"]["name"].as_str().unwrap_or_default(),
            groups: &self.groups,
            authorizer: &granted,
        };
        let admission = Admission {
            constraints: &self.constraints,
            options: Options::default(),
            malformed,
            require_standard: record["requireStandardSCCs"] == json!(true),
        };
        Ok(if pass == "admit" { admission.mutate(&request) } else { admission.validate(&request) })
    }
}

/// The part of a pod that the recordings keep, without what Go leaves out when it is empty.
fn security_part(pod: &Value) -> Value {
    let annotations = pod["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let mut spec = Map::new();
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if pod["spec"][field] == json!(true) {
            spec.insert(field.to_owned(), json!(true));
        }
    }
    for field in ["hostUsers", "shareProcessNamespace"] {
        if let Some(value) = pod["spec"].get(field).filter(|value| !value.is_null()) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    let context = pod["spec"].get("securityContext").filter(|context| !context.is_null());
    spec.insert("securityContext".to_owned(), context.map_or(json!({}), without_empty_lists));
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers: Vec<_> = pod["spec"][list]
            .as_array()
            .into_iter()
            .flatten()
            .map(|container| {
                let mut shown = json!({"name": container["name"]});
                if let Some(context) = container.get("securityContext").filter(|context| !context.is_null()) {
                    shown["securityContext"] = without_empty_lists(context);
                }
                shown
            })
            .collect();
        if !containers.is_empty() {
            spec.insert(list.to_owned(), Value::Array(containers));
        }
    }
    json!({"metadata": {"annotations": annotations}, "spec": spec})
}

fn without_empty_lists(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()))
            .map(|(key, value)| (key.clone(), without_empty_lists(value)))
            .collect::<Map<_, _>>()
            .into(),
        value => value.clone(),
    }
}
