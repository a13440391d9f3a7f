//! Writes reports, each when it changes and not more often than every half minute.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use palisade_base::time::Time;
use palisade_model::metadata::StringMap;
use palisade_policy::exceptions::set::{ExceptionSet, NamespaceExceptions};
use tokio::time::{Instant, sleep};

use super::{
    kind::ReportKind,
    observe::{Digest, excused, written},
    plan::{
        ClusterFindings, Counts, MOST_SERIES, NAME as REPORT, NamespaceFindings, Outcome, Row, report, rows,
    },
};
use crate::{
    api::{ApiError, Patch},
    cluster::{ExcusedObjects, NamespaceRecord, RejectedWorkload},
    context::{Context, Turns},
    metrics::WriteOutcome,
    observe::State,
    time,
};

/// The name of the controller.
pub const NAME: &str = "reports";
const MANAGER: &str = "palisade-reports";

/// How often one namespace is reported at most.
const INTERVAL: Duration = Duration::from_secs(30);
/// How often it is looked which kind of report there is, and whether all reports are as they were written.
const RESYNC: Duration = Duration::from_mins(10);
/// How many namespaces are reported in a turn; the others follow.
const MOST_AT_ONCE: usize = 50;
/// What changes within it is reported together.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until dropped.
pub async fn run(context: Arc<Context>) {
    let mut turns = Turns::begin(&context, NAME).await;
    let mut reporter = Reporter::default();
    loop {
        reporter.turn(&context).await;
        sleep(PAUSE).await;
        turns.next(None).await;
    }
}

/// What the report of a namespace was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Basis {
    uid: String,
    revision: u64,
    /// The exceptions in force for it, and their versions.
    exceptions: Vec<(String, String)>,
    /// Of what is rejected.
    rejected: u64,
}

/// A namespace that was reported.
#[derive(Debug)]
struct Reported {
    basis: Basis,
    at: Instant,
    counts: Counts,
    violations: Vec<Row>,
}

/// A namespace that is to be reported.
#[derive(Debug)]
struct Due {
    basis: Basis,
    findings: NamespaceFindings,
    labels: StringMap<'static>,
}

/// The kind of report that the cluster serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Served {
    /// Not known yet.
    #[default]
    Unknown,
    /// It serves neither.
    Neither,
    /// It serves this one.
    Kind(ReportKind),
}

#[derive(Debug, Default)]
struct Reporter {
    kind: Served,
    /// When to look again which kind there is; `None`: now.
    look_at: Option<Instant>,
    /// The reports that are there.
    written: BTreeMap<String, Digest>,
    reported: BTreeMap<String, Reported>,
}

impl Reporter {
    async fn turn(&mut self, context: &Context) {
        if let Err(error) = self.look(context).await {
            tracing::warn!(%error, "failed to list reports");
            self.look_at = Some(Instant::now() + INTERVAL);
        }
        if self.kind == Served::Unknown {
            return;
        }
        let now = time::now();
        let (exceptions, due) = self.observe(context, now);
        let compat = context.observed.lock().cluster.compat();
        for Due { mut basis, findings, labels } in due {
            let (mut excused_objects, mut is_done) = (ExcusedObjects::new(), true);
            if !basis.exceptions.is_empty() && !findings.objects.is_empty() {
                let own = NamespaceExceptions {
                    set: &exceptions,
                    namespace: &findings.namespace,
                    labels: Some(&labels),
                    now,
                };
                match excused(&context.api, &compat, &own).await {
                    Ok(found) => excused_objects = found,
                    Err(error) => {
                        tracing::warn!(namespace = findings.namespace, %error, "failed to read what exceptions are for");
                        is_done = false;
                    }
                }
            }
            let rows = rows(&findings, &excused_objects);
            if !is_done || !self.write(context, &findings, &rows).await {
                // Tried again after the interval.
                basis.uid.clear();
            }
            let fails = rows.iter().filter(|row| row.outcome == Outcome::Fail && !row.field.is_empty());
            let violations = fails.take(MOST_SERIES).cloned().collect();
            let reported = Reported { basis, at: Instant::now(), counts: Counts::count(&rows), violations };
            self.reported.insert(findings.namespace, reported);
        }
        let all = self.reported.iter();
        let found = ClusterFindings::of(
            all.map(|(name, reported)| (name, (reported.counts, reported.violations.as_slice()))),
        );
        context.metrics.set_findings(Some(found));
    }

    /// Looks now and then which kind of report there is, and which reports.
    async fn look(&mut self, context: &Context) -> Result<(), ApiError> {
        if self.look_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        let kind = ReportKind::served(&context.api).await?.map_or(Served::Neither, Served::Kind);
        if self.kind != kind {
            let found = match kind {
                Served::Kind(kind) => kind.api_version(),
                Served::Neither | Served::Unknown => {
                    "none: the cluster has neither openreports.io/v1alpha1 nor wgpolicyk8s.io/v1alpha2"
                        .to_owned()
                }
            };
            tracing::info!(kind = found, "kind of reports");
        }
        self.written = match kind {
            Served::Kind(kind) => written(&context.api, kind).await?,
            Served::Neither | Served::Unknown => BTreeMap::new(),
        };
        self.kind = kind;
        self.look_at = Some(Instant::now() + RESYNC);
        // What others changed or deleted is written again.
        self.reported.clear();
        Ok(())
    }

    /// What is to be reported now, and the exceptions.
    fn observe(&mut self, context: &Context, now: Time) -> (ExceptionSet, Vec<Due>) {
        let state = context.observed.lock();
        let exceptions = ExceptionSet::read(state.exceptions.values());
        let mut rejected: BTreeMap<String, Vec<RejectedWorkload>> = BTreeMap::new();
        for workload in state.cluster.rejected_workloads() {
            rejected.entry(workload.namespace.clone()).or_default().push(workload);
        }
        self.reported.retain(|name, _| state.cluster.namespace(name).is_some());
        self.written.retain(|name, _| state.cluster.namespace(name).is_some());
        let has_rollout = !context.observed.scope().workloads_only;
        let mut due = Vec::new();
        for record in state.cluster.namespaces().filter(|record| !record.is_terminating()) {
            let own = rejected.get(record.name()).map_or(&[][..], Vec::as_slice);
            let basis = basis(&state, record, &exceptions, own, now);
            let is_due = self
                .reported
                .get(record.name())
                .is_none_or(|reported| reported.basis != basis && reported.at.elapsed() >= INTERVAL);
            if is_due {
                let findings = findings(record, has_rollout, own);
                due.push(Due { basis, findings, labels: record.labels().clone() });
            }
            if due.len() == MOST_AT_ONCE {
                break;
            }
        }
        (exceptions, due)
    }

    /// Writes the report of a namespace if it is not there as it should be; returns whether it is now.
    async fn write(&mut self, context: &Context, findings: &NamespaceFindings, rows: &[Row]) -> bool {
        let Served::Kind(kind) = self.kind else { return true };
        let namespace = &findings.namespace;
        let path = kind.resource().object(Some(namespace), REPORT);
        let known = self.written.get(namespace).copied();
        let result = match report(kind, findings, rows) {
            Some(report) => {
                let digest = Digest::of(&report);
                if known == Some(digest) {
                    return true;
                }
                let written = context.api.patch(&path, MANAGER, Patch::Apply { force: true }, &report).await;
                written.map(|_| self.written.insert(namespace.clone(), digest))
            }
            None if known.is_none() => return true,
            None => context.api.delete(&path).await.map(|()| self.written.remove(namespace)),
        };
        let outcome = match &result {
            Ok(_) => WriteOutcome::Done,
            Err(error) if error.is_terminating() => WriteOutcome::Gone,
            Err(error) => {
                tracing::warn!(namespace, %error, "failed to write a report");
                if error.is_not_found() {
                    // The kind itself may be gone.
                    self.look_at = None;
                }
                WriteOutcome::Failed
            }
        };
        context.metrics.wrote(NAME, outcome);
        outcome != WriteOutcome::Failed
    }
}

fn basis(
    state: &State,
    record: &NamespaceRecord,
    exceptions: &ExceptionSet,
    rejected: &[RejectedWorkload],
    now: Time,
) -> Basis {
    let in_force = exceptions.readable().iter().filter(|exception| {
        exception.counts_at(now) && exception.selects_namespace(record.name(), Some(record.labels()))
    });
    let version = |name: &String| {
        let object = state.exceptions.get(name);
        object.map(|object| object["metadata"]["resourceVersion"].to_string()).unwrap_or_default()
    };
    let mut hasher = DefaultHasher::new();
    for workload in rejected {
        (&workload.uid, workload.by.as_str(), &workload.message).hash(&mut hasher);
    }
    Basis {
        uid: record.uid().to_owned(),
        revision: record.revision(),
        exceptions: in_force.map(|exception| (exception.name.clone(), version(&exception.name))).collect(),
        rejected: hasher.finish(),
    }
}

fn findings(record: &NamespaceRecord, has_rollout: bool, rejected: &[RejectedWorkload]) -> NamespaceFindings {
    // Without a rollout, nothing but its own label decides.
    let to_come = record.level_to_test().filter(|_| has_rollout);
    NamespaceFindings {
        namespace: record.name().to_owned(),
        uid: record.uid().to_owned(),
        held_to: to_come.into_iter().fold(record.enforced(), Ord::max),
        objects: record.findings(),
        undecided: record.doubts(),
        rejected: rejected.to_vec(),
        compliant: record.compliant(),
    }
}
