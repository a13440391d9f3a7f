//! What an API server would say to an object: decoded, defaulted and validated as on create, without a server.
//!
//! A fix must not write what no server accepts, and a preview compares two releases. Of admission only Pod Security is asked, and
//! by the preview alone: other plugins and webhooks differ from cluster to cluster.

use std::collections::BTreeSet;

use palisade_admission::pod_security::PodSecurity;
use palisade_apimachinery::{
    FieldValidation, Scheme, Status,
    rest::{CreateContext, Extra, before_create, on_create_request},
};
use palisade_model::{
    compat::Compat,
    pod::Pod,
    prepare::{Prepared, Subject},
    validation::{Scope, validate_create_in},
    workload::{WorkloadKind, group_of, read_template},
};
use palisade_policy::{
    exceptions::set::Excused,
    standards::{
        evaluator::Evaluator,
        policy::{Exemptions, Policy},
    },
};
use serde_json::{Value, json};

/// The kinds of a release, ready to judge objects.
#[derive(Debug)]
pub struct ServerSide {
    scheme: Scheme,
    compat: Compat,
    pod_security: PodSecurity,
}

/// How an API server answers a create.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerAnswer {
    /// Why it rejects the object.
    pub refusal: Option<Refusal>,
    /// What it warns about.
    pub warnings: Vec<String>,
    /// The pod or the template as it is stored.
    pub stored: Option<Value>,
}

/// Why an object is rejected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason {
    /// The field, as upstream writes it; empty if there is none.
    pub field: String,
    /// The machine-readable reason of the field or of the whole answer.
    pub reason: String,
    /// The sentence.
    pub message: String,
}

/// A rejection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status code.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: String,
    /// The sentence.
    pub message: String,
    /// The fields behind it.
    pub causes: Vec<Reason>,
}

impl From<&Status> for Refusal {
    fn from(status: &Status) -> Self {
        let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
        Self {
            code: status.code,
            reason: status.reason.to_string(),
            message: status.message.clone(),
            causes: causes
                .iter()
                .map(|cause| Reason {
                    field: cause.field.clone(),
                    reason: cause.reason.to_string(),
                    message: cause.message.clone(),
                })
                .collect(),
        }
    }
}

/// The object that was asked about.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its content.
    pub object: &'a Value,
    /// Its `apiVersion`.
    pub api_version: &'a str,
    /// Its kind.
    pub workload: &'static WorkloadKind,
    /// Its namespace where it names none.
    pub namespace: &'a str,
}

impl ServerSide {
    /// An API server of a release.
    #[must_use]
    pub fn new(compat: Compat) -> Self {
        let pod_security = PodSecurity {
            evaluator: Evaluator::of(&compat),
            defaults: Policy::default(),
            exemptions: Exemptions::default(),
        };
        Self { scheme: Scheme::new(compat.api), compat, pod_security }
    }

    /// Whether the release serves objects of this kind itself; of others only the template can be judged.
    #[must_use]
    pub fn serves(&self, asked: &Asked<'_>) -> bool {
        let (group, version) = group_version(asked.api_version);
        self.scheme.by_kind(group, version, asked.workload.kind).is_some()
    }

    /// Why it rejects the object; empty if it takes it.
    #[must_use]
    pub fn rejections(&self, asked: &Asked<'_>) -> Vec<String> {
        let (group, version) = group_version(asked.api_version);
        let result = match self.scheme.by_kind(group, version, asked.workload.kind) {
            Some(kind) => {
                self.create(kind, asked.object.clone(), asked.workload, asked.namespace, &mut Vec::new())
            }
            None => self.create_template(asked, &mut Vec::new()),
        };
        match result {
            Ok(_) => Vec::new(),
            Err(status) => reasons(&status),
        }
    }

    /// What it answers to a create in a namespace with this policy. Of a kind that the release does not serve itself the template
    /// counts, as that of a custom resource.
    #[must_use]
    pub fn answer(&self, asked: &Asked<'_>, policy: &Policy) -> ServerAnswer {
        let mut warnings = Vec::new();
        let (group, version) = group_version(asked.api_version);
        let kind = self.scheme.by_kind(group, version, asked.workload.kind);
        let created = match kind {
            Some(kind) => {
                self.create(kind, asked.object.clone(), asked.workload, asked.namespace, &mut warnings)
            }
            None => self.create_template(asked, &mut warnings),
        };
        let path = if kind.is_some() { asked.workload.path } else { &["template"][..] };
        let judged = created.and_then(|object| {
            let is_pod = path.is_empty();
            let pod: Option<Pod<'_>> = read_template(&object, path).map_err(|error| {
                Status::bad_request(format!("{} cannot be decoded: {error}", asked.workload.kind))
            })?;
            let subject = if is_pod { Subject::Pod } else { asked.workload.subject() };
            if let Some(pod) = pod {
                let pod = Prepared::written(pod, None, subject, &self.compat);
                let unexcused = |outcome| Excused { outcome, used: Vec::new() };
                let mut verdict = self.pod_security.judge(policy, None, is_pod, &pod, &unexcused);
                warnings.append(&mut verdict.warnings);
                if let Some(denied) = verdict.denied {
                    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                    let message = format!("pods {name:?} is forbidden: {denied}");
                    return Err(Status::new(403, "Forbidden", message));
                }
            }
            Ok(path.iter().try_fold(&object, |value, field| value.get(field)).cloned())
        });
        // An API server sends each warning once.
        let mut seen = BTreeSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        match judged {
            Ok(stored) => ServerAnswer { refusal: None, warnings, stored },
            Err(status) => ServerAnswer { refusal: Some(Refusal::from(&*status)), warnings, stored: None },
        }
    }

    /// A kind that the release does not serve makes pods all the same: its template is judged as one.
    fn create_template(&self, asked: &Asked<'_>, warnings: &mut Vec<String>) -> Result<Value, Box<Status>> {
        let template = asked.workload.path.iter().try_fold(asked.object, |value, field| value.get(field));
        let kind = self.scheme.by_kind("", "v1", "PodTemplate");
        let workload = palisade_model::workload::workload_kind("v1", "PodTemplate");
        let (Some(template), Some(kind), Some(workload)) = (template, kind, workload) else {
            return Ok(Value::Null);
        };
        let object = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "template"}, "template": template});
        self.create(kind, object, workload, asked.namespace, warnings)
    }

    fn create(
        &self,
        kind: &palisade_apimachinery::Kind,
        object: Value,
        workload: &'static WorkloadKind,
        namespace: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Value, Box<Status>> {
        let own = object.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
        let namespace = own.as_deref().unwrap_or(namespace);
        let validation = FieldValidation::parse("", self.compat.api).unwrap_or_default();
        let decoded = kind.decode_value(object, Vec::new(), validation)?;
        warnings.extend(decoded.warnings);
        let mut object = decoded.object;
        on_create_request(kind, &mut object, namespace)?;
        kind.default(&mut object)?;
        let typed = kind.read(object).map_err(|error| error.into_status(kind, ""))?;
        let mut object = typed.into_value();
        let (changes, errors, noted) = {
            let pod: Option<Pod<'_>> = read_template(&object, workload.path)
                .map_err(|error| Status::bad_request(format!("{} cannot be decoded: {error}", kind.kind)))?;
            match pod {
                Some(pod) => {
                    let pod = Prepared::written(pod, None, workload.subject(), &self.compat);
                    warnings.extend(pod.warnings().iter().cloned());
                    let errors = validate_create_in(Scope::SecurityContexts, &pod);
                    (pod.changes().to_vec(), errors, palisade_model::warnings::warnings(&pod))
                }
                // The validation of the kind reports it.
                None => (Vec::new(), Vec::new(), Vec::new()),
            }
        };
        for change in &changes {
            change.apply(&mut object);
        }
        // The moment and the names are of no importance to the rules.
        let context = CreateContext {
            namespace,
            now: "2026-01-01T00:00:00Z",
            uid: "00000000-0000-4000-8000-000000000000",
            suffix: "bcdfg",
        };
        warnings.extend(before_create(kind, &mut object, &context, &Extra { errors, warnings: noted })?);
        Ok(object)
    }
}

fn group_version(api_version: &str) -> (&str, &str) {
    (group_of(api_version), api_version.rsplit('/').next().unwrap_or_default())
}

/// Each cause, or the whole message where there are none.
fn reasons(status: &Status) -> Vec<String> {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    if causes.is_empty() {
        return vec![status.message.clone()];
    }
    causes
        .iter()
        .map(|cause| {
            if cause.field.is_empty() {
                cause.message.clone()
            } else {
                format!("{}: {}", cause.field, cause.message)
            }
        })
        .collect()
}
