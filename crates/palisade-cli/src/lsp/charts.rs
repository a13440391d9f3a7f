//! Charts of open documents, rendered beside the server: a large one takes longer than a keystroke.
//!
//! One thread works on the charts; of a chart that changes while it waits, the last state is rendered.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use lsp_types::Diagnostic as Shown;

use super::{findings, inbox::Inbox, rules::Rules, text::Text};
use crate::{
    charts::{ChartAnswer, ChartMode, HelmValues, Overlay, check_chart_with},
    diagnostic::{Diagnostic, ValuesPatch},
};

/// A chart in the state in which it is to be rendered.
#[derive(Debug)]
pub(super) struct ChartJob {
    /// Its folder.
    pub(super) root: PathBuf,
    /// Which state it is.
    pub(super) revision: u64,
    /// The open documents.
    pub(super) overlay: Overlay,
    /// What applies.
    pub(super) rules: Arc<Rules>,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct ChartResult {
    /// The folder.
    pub(super) root: PathBuf,
    /// The state.
    pub(super) revision: u64,
    /// Findings in templates, with values.
    pub(super) findings: Vec<Diagnostic>,
}

/// Judges a chart.
#[must_use]
pub(super) fn judge(job: &ChartJob) -> ChartResult {
    let mode = ChartMode { fix: false, diff: false, may_change: false, partial: false };
    let (settings, config) = (&job.rules.settings, &job.rules.config);
    let ChartAnswer { reports, .. } =
        check_chart_with(&job.root, &job.overlay, settings, config, &HelmValues::default(), mode);
    let mut findings = Vec::new();
    for mut report in reports {
        report.grade(&settings.severities);
        findings.append(&mut report.diagnostics);
    }
    ChartResult { root: job.root.clone(), revision: job.revision, findings }
}

/// The charts that wait for the thread.
#[derive(Debug, Default)]
pub struct ChartQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: BTreeMap<PathBuf, ChartJob>,
    is_closed: bool,
}

impl ChartQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a chart; an older state of it that waits is dropped.
    pub(super) fn add(&self, job: ChartJob) {
        self.lock().waiting.insert(job.root.clone(), job);
        self.changed.notify_all();
    }

    /// Nothing is rendered any more.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn wait(&self) -> Option<ChartJob> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some((_, job)) = state.waiting.pop_first() {
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts the thread. It ends with the process, or when the queue is closed.
pub(super) fn start(queue: Arc<ChartQueue>, inbox: Arc<Inbox>) -> std::io::Result<()> {
    let work = move || {
        while let Some(job) = queue.wait() {
            inbox.add_chart(judge(&job));
        }
    };
    thread::Builder::new().name("charts".to_owned()).spawn(work).map(drop)
}

/// The findings of a chart that are shown in one of its files, and the values that fix them.
pub(super) fn in_file<'f>(result: &'f ChartResult, path: &Path, text: &Text) -> Vec<(&'f Diagnostic, Shown)> {
    let is_values = path.file_name().is_some_and(|name| name == "values.yaml");
    let mut found = Vec::new();
    for finding in &result.findings {
        if Path::new(&*finding.file) == path {
            found.push((finding, findings::at(finding, findings::range(finding, text))));
        } else if let Some(patch) = finding.values.as_ref().filter(|patch| Path::new(&*patch.file) == path) {
            found.push((finding, of_values(finding, patch, text)));
        } else if is_values && Path::new(&*finding.file) == result.root {
            // What is wrong with the chart itself has no file of its own.
            found.push((finding, findings::at(finding, findings::range(finding, &Text::default()))));
        }
    }
    found
}

/// A finding of a template, at the key of the values that fixes it.
fn of_values(finding: &Diagnostic, patch: &ValuesPatch, text: &Text) -> Shown {
    let range = text.line_range(patch.line.unwrap_or(1));
    let mut shown = findings::at(finding, range);
    let place = match finding.line() {
        Some(line) => format!("{}:{line}", finding.file),
        None => finding.file.to_string(),
    };
    shown.message.push_str("\nrendered by ");
    shown.message.push_str(&place);
    shown
}
