//! What an API server would say to an object: decoded, defaulted and validated as on create, without a server.
//!
//! Only a fix asks: it must not write what no server accepts. Admission besides the rules of the kind is not asked, because
//! plugins and webhooks differ from cluster to cluster.

use palisade_apimachinery::{
    FieldValidation, Scheme, Status,
    rest::{CreateContext, Extra, before_create, on_create_request},
};
use palisade_model::{
    compat::Compat,
    pod::Pod,
    prepare::Prepared,
    validation::{Scope, validate_create_in},
    workload::{WorkloadKind, group_of, read_template},
};
use serde_json::{Value, json};

/// The kinds of a release, ready to judge objects.
#[derive(Debug)]
pub struct ServerSide {
    scheme: Scheme,
    compat: Compat,
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
        Self { scheme: Scheme::new(compat.api), compat }
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
            Some(kind) => self.create(kind, asked.object.clone(), asked.workload, asked.namespace),
            None => self.create_template(asked),
        };
        match result {
            Ok(()) => Vec::new(),
            Err(status) => reasons(&status),
        }
    }

    /// A kind that the release does not serve makes pods all the same: its template is judged as one.
    fn create_template(&self, asked: &Asked<'_>) -> Result<(), Box<Status>> {
        let template = asked.workload.path.iter().try_fold(asked.object, |value, field| value.get(field));
        let kind = self.scheme.by_kind("", "v1", "PodTemplate");
        let workload = palisade_model::workload::workload_kind("v1", "PodTemplate");
        let (Some(template), Some(kind), Some(workload)) = (template, kind, workload) else { return Ok(()) };
        let object = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "template"}, "template": template});
        self.create(kind, object, workload, asked.namespace)
    }

    fn create(
        &self,
        kind: &palisade_apimachinery::Kind,
        object: Value,
        workload: &'static WorkloadKind,
        namespace: &str,
    ) -> Result<(), Box<Status>> {
        let own = object.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
        let namespace = own.as_deref().unwrap_or(namespace);
        let decoded = kind.decode_value(object, Vec::new(), FieldValidation::Warn)?;
        let mut object = decoded.object;
        on_create_request(kind, &mut object, namespace)?;
        kind.default(&mut object)?;
        let typed = kind.read(object).map_err(|error| error.into_status(kind, ""))?;
        let mut object = typed.into_value();
        let (changes, errors) = {
            let pod: Option<Pod<'_>> = read_template(&object, workload.path)
                .map_err(|error| Status::bad_request(format!("{} cannot be decoded: {error}", kind.kind)))?;
            match pod {
                Some(pod) => {
                    let pod = Prepared::written(pod, None, workload.subject(), &self.compat);
                    (pod.changes().to_vec(), validate_create_in(Scope::SecurityContexts, &pod))
                }
                // The validation of the kind reports it.
                None => (Vec::new(), Vec::new()),
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
        before_create(kind, &mut object, &context, &Extra { errors, warnings: Vec::new() }).map(drop)
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
