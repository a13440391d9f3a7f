//! Pod Security Admission as a plugin: it rejects pods, and warns about workloads and about the pods of a namespace.
//!
//! Implements: Admission Control, "PodSecurity". The configuration may be replaced while the server runs. Upstream stops
//! looking at the pods of a namespace after 3000 of them or a second; that is done only where a release is emulated.

use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use palisade_admission::metrics::Counters;
use palisade_admission::pod_security::{AUDIT_PREFIX, PodSecurity, Request as PodRequest, Screened, Verdict};
use palisade_admission::review::is_significant_update;
use palisade_apimachinery::Status;
use palisade_model::compat::Compat;
use palisade_model::metadata::{ObjectMeta, StringMap};
use palisade_model::pod::Pod;
use palisade_model::prepare::Prepared;
use palisade_model::workload::{read_template, workload_resource};
use palisade_policy::exceptions::set::{ExceptionSet, Excused, NamespaceExceptions};
use palisade_policy::exceptions::workload::{Provenance, Workload, of_pod, of_template};
use palisade_policy::standards::evaluator::{Evaluator, StandardsOutcome};
use palisade_policy::standards::namespace::{self, ExistingPods, Limit, NamespaceVerdict};
use palisade_policy::standards::policy::{Exemptions, Policy};
use self_cell::self_cell;
use serde::Deserialize;
use serde_json::Value;

use super::rules::{read_pod, undecodable};
use super::{exceptions, namespace_labels};
use super::{existing_pods, existing_templates};
use crate::admission_chain::{Admission, Notes, Operation, Plugin, Request};
use crate::storage::Object;

/// Upstream's limits on looking at existing pods.
const RELEASE_LIMIT: (usize, Duration) = (3000, Duration::from_secs(1));

self_cell! {
    /// A stored pod, read once and kept with its bytes.
    struct PodReading {
        owner: (Bytes, Compat),
        #[covariant]
        dependent: PreparedOrNot,
    }
}

type PreparedOrNot<'a> = Result<Prepared<'a>, serde_json::Error>;

fn reading(json: &Bytes, compat: &Compat) -> PodReading {
    PodReading::new((json.clone(), *compat), |(json, compat)| {
        serde_json::from_slice(json).map(|pod| Prepared::stored(pod, compat))
    })
}

/// The plugin.
#[derive(Debug)]
pub struct PodSecurityPlugin {
    compat: Compat,
    security: RwLock<Arc<PodSecurity>>,
    counters: Counters,
}

impl PodSecurityPlugin {
    /// The plugin of a release or of Palisade's extensions, with nothing configured.
    #[must_use]
    pub fn new(compat: Compat) -> Self {
        let security = Self::configured(&compat, Policy::default(), Exemptions::default());
        Self { compat, security: RwLock::new(security), counters: Counters::default() }
    }

    /// Replaces the configuration; requests under way end with the old one.
    pub fn configure(&self, defaults: Policy, exemptions: Exemptions) {
        let security = Self::configured(&self.compat, defaults, exemptions);
        match self.security.write() {
            Ok(mut current) => *current = security,
            Err(mut poisoned) => **poisoned.get_mut() = security,
        }
    }

    fn configured(compat: &Compat, defaults: Policy, exemptions: Exemptions) -> Arc<PodSecurity> {
        Arc::new(PodSecurity { evaluator: Evaluator::of(compat), defaults, exemptions })
    }

    fn current(&self) -> Arc<PodSecurity> {
        match self.security.read() {
            Ok(current) => current.clone(),
            Err(poisoned) => poisoned.into_inner().clone(),
        }
    }

    fn judge_namespace(
        &self,
        request: &Request<'_>,
        object: &Value,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        if !request.subresource.is_empty() {
            return Ok(());
        }
        let security = self.current();
        let new = labels_of(request, object)?;
        let (defaults, exemptions) = (&security.defaults, &security.exemptions);
        let verdict = match request.old_object {
            None => namespace::create(request.name, &new, defaults, exemptions),
            Some(old) => {
                namespace::update(request.name, &new, &labels_of(request, old)?, defaults, exemptions)
            }
        };
        match verdict {
            NamespaceVerdict::Allowed(warnings) => notes.warnings.extend(warnings),
            NamespaceVerdict::Invalid(problems) => {
                return Err(Status::invalid(
                    request.kind.kind_name(),
                    request.name,
                    &problems,
                    request.kind.emulated,
                ));
            }
            NamespaceVerdict::CheckPods(policy) => {
                let stored = request.cluster.list("pods", request.name);
                let evaluator = &security.evaluator;
                if self.compat.is_designs() {
                    let set = self.exceptions(request);
                    let own = NamespaceExceptions {
                        set: &set,
                        namespace: request.name,
                        labels: Some(&new),
                        now: exceptions::now(),
                    };
                    let existing =
                        ExistingPods::new(evaluator, exemptions, policy, Limit::None).excused_by(own);
                    let found = existing_pods::violations(&existing, &stored, &self.compat);
                    notes.warnings.extend(existing.summary(request.name, &found, stored.len(), stored.len()));
                    let templates =
                        existing_templates::warnings(&existing, request.cluster, request.name, &self.compat);
                    notes.warnings.extend(templates);
                    return Ok(());
                }
                let start = Instant::now();
                let (pods, time) = RELEASE_LIMIT;
                let existing = ExistingPods::new(evaluator, exemptions, policy, Limit::Pods(pods));
                let readings = self.readings(&stored);
                // swallowed: those that cannot be read are warned about below
                let pods = readings.iter().filter_map(|reading| reading.borrow_dependent().as_ref().ok());
                let expired = || start.elapsed() > time;
                notes.warnings.extend(existing.warnings(request.name, pods, expired));
                for (pod, reading) in stored.iter().zip(&readings) {
                    if let Err(error) = reading.borrow_dependent() {
                        notes.warnings.push(format!("pod {:?} cannot be decoded: {error}", pod.name()));
                    }
                }
            }
        }
        Ok(())
    }

    fn readings(&self, stored: &[Arc<Object>]) -> Vec<Arc<PodReading>> {
        stored.iter().map(|pod| pod.view(|json| reading(json, &self.compat))).collect()
    }

    fn judge_pod(
        &self,
        request: &Request<'_>,
        object: &Value,
        review: &PodRequest<'_>,
    ) -> Result<Verdict, Box<Status>> {
        let security = self.current();
        if let Some(verdict) = security.exempt(review) {
            return Ok(verdict);
        }
        let labels = namespace_labels(request)?;
        let (policy, label_error) = match security.screen(review, &labels) {
            Screened::Done(verdict) => return Ok(verdict),
            Screened::Judge(policy, error) => (policy, error),
        };
        if review.is_pod {
            let (pod, old) = read_pod(request, object, &self.compat)?;
            let is_insignificant =
                |old: Pod<'_>| !is_significant_update(&pod, &Prepared::stored(old, &self.compat));
            if old.is_some_and(is_insignificant) {
                return Ok(Verdict::default());
            }
            let provenance = match request.operation {
                Operation::Create => Provenance::CreatedBy(&request.user.name),
                _ => Provenance::Unknown,
            };
            let workloads = || of_pod(&pod.pod().metadata, provenance);
            let excuse = |outcome| self.excuse(request, &labels, outcome, &pod, &workloads());
            return Ok(security.judge(&policy, label_error, true, &pod, &excuse));
        }
        let workload = workload_resource(&request.kind.group, &request.kind.plural);
        let Some(workload) = workload.filter(|workload| workload.built_in) else {
            return Ok(Verdict::default());
        };
        let template = read_template(object, workload.path);
        let Some(pod) = template.map_err(|error| undecodable(request.kind, &error))? else {
            return Ok(Verdict::default());
        };
        let pod = Prepared::new(pod, workload.subject(), &self.compat);
        let workloads = of_template(workload, request.name);
        let excuse = |outcome| self.excuse(request, &labels, outcome, &pod, &workloads);
        Ok(security.judge(&policy, label_error, false, &pod, &excuse))
    }

    /// The exceptions of the server. An emulated release has none.
    fn exceptions(&self, request: &Request<'_>) -> ExceptionSet {
        if self.compat.is_designs() { exceptions::stored(request) } else { ExceptionSet::default() }
    }

    /// What exceptions leave of a verdict. They are read only for a pod that violates something.
    fn excuse(
        &self,
        request: &Request<'_>,
        labels: &StringMap<'_>,
        outcome: StandardsOutcome,
        pod: &Prepared<'_>,
        workloads: &[Workload],
    ) -> Excused {
        let set = self.exceptions(request);
        let (namespace, now) = (request.namespace, exceptions::now());
        NamespaceExceptions { set: &set, namespace, labels: Some(labels), now }
            .excuse(outcome, pod, workloads)
    }
}

fn labels_of<'v>(request: &Request<'_>, object: &'v Value) -> Result<StringMap<'v>, Box<Status>> {
    let metadata = object.get("metadata").map(ObjectMeta::deserialize).transpose();
    let metadata = metadata.map_err(|error| undecodable(request.kind, &error))?;
    Ok(metadata.unwrap_or_default().labels)
}

impl Plugin for PodSecurityPlugin {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, notes: &mut Notes) -> Admission {
        let Some(object) = object else { return Ok(()) };
        if !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        if request.kind.group.is_empty() && request.kind.plural == "namespaces" {
            return self.judge_namespace(request, object, notes);
        }
        let workload = workload_resource(&request.kind.group, &request.kind.plural);
        let Some(workload) = workload.filter(|workload| workload.built_in) else { return Ok(()) };
        let review = PodRequest {
            namespace: request.namespace,
            user: &request.user.name,
            subresource: request.subresource,
            is_pod: workload.path.is_empty(),
        };
        let verdict = self.judge_pod(request, object, &review)?;
        let operation = if request.operation == Operation::Create { "create" } else { "update" };
        let resource = if review.is_pod { "pod" } else { "controller" };
        self.counters.count(operation, resource, request.subresource, &verdict.counted);
        notes
            .audit
            .extend(verdict.audit.into_iter().map(|(key, value)| (format!("{AUDIT_PREFIX}{key}"), value)));
        if let Some(denied) = verdict.denied {
            return Err(request.forbidden(&denied));
        }
        notes.warnings.extend(verdict.warnings);
        Ok(())
    }

    fn metrics(&self, out: &mut String) {
        out.push_str(&self.counters.text());
    }
}
