//! The engine of `palisade check` in a browser: a request in JSON in, a response in JSON out.
//!
//! `cargo xtask playground` compiles this for `wasm32-unknown-unknown` and puts it into `page/`, which runs without any server and sends
//! nothing anywhere. Verdicts, findings and fixes are those of the command line, because they are made by the same functions. Files,
//! charts, overlays and clusters are not there: one text is checked.
//!
//! [`response`] has all the rules; [`exchange`] carries the two texts across the border of WebAssembly.

#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod exchange;

use std::sync::{Arc, LazyLock};

use jiff::civil::Date;
use palisade_base::version::{KubeVersion, NEWEST_MINOR, OLDEST_MINOR};
use palisade_check::{
    diagnostic::{Diagnostic, Severity},
    fix::{FixOptions, fix_text},
    json::Finding,
    judge::{FileReport, Settings, Verdict, definitions_of, judge_text},
};
use palisade_model::compat::Compat;
use palisade_policy::standards::level::{Level, LevelVersion, Version};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the page sends.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    /// The manifests.
    text: String,
    level: String,
    /// `latest` or a version of the standards.
    policy_version: String,
    /// `v1.37`, or `extended`.
    kubernetes_version: String,
    /// Today, for suppressions that end: a page has a clock, an engine has none.
    today: String,
    /// Which fixes to make.
    #[serde(default)]
    fix: Fixes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Fixes {
    #[default]
    None,
    Safe,
    All,
}

/// Why a request cannot be answered.
#[derive(Debug, Error)]
enum RequestError {
    #[error("the request cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("{0:?} is no level: privileged, baseline or restricted")]
    Level(String),
    #[error("{0:?} is no version of the standards that is known")]
    PolicyVersion(String),
    #[error("{0:?} is no date such as 2027-01-31")]
    Date(String),
    #[error("{0:?} is no supported release: v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR}, or extended")]
    Release(String),
}

/// What is known about a text as a whole. Only one of them is a yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    /// Every object with pods is allowed, and nothing is wrong with it.
    Clean,
    /// Something is wrong.
    Findings,
    /// Nothing is wrong with what is known, and not all is known.
    Undecided,
    /// There is no object with pods.
    Nothing,
}

impl Outcome {
    fn of(report: &FileReport) -> Self {
        let is_error = |finding: &Diagnostic| finding.severity == Severity::Error;
        // A denied object without an error was accepted by a suppression, as on the command line.
        if report.errors > 0 || report.diagnostics.iter().any(is_error) {
            Self::Findings
        } else if report.verdicts.is_empty() {
            Self::Nothing
        } else if report.verdicts.iter().any(|verdict| verdict.undecided) {
            Self::Undecided
        } else {
            Self::Clean
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'r> {
    outcome: Outcome,
    /// The rules that applied, in words.
    judged_at: String,
    objects: Vec<ObjectView<'r>>,
    findings: Vec<FindingView<'r>>,
    /// Objects that hold no pod.
    skipped: usize,
    /// Findings that were accepted in the text.
    suppressed: usize,
    /// The text with the fixes that were wanted; null if nothing was changed.
    fixed: Option<&'r str>,
    /// What was not fixed, and why.
    notes: &'r [String],
    /// Whether there are fixes of each class.
    can_fix: CanFix,
}

#[derive(Debug, Default, Serialize)]
struct CanFix {
    safe: bool,
    all: bool,
}

#[derive(Debug, Serialize)]
struct ObjectView<'r> {
    title: String,
    verdict: &'static str,
    message: &'r str,
}

impl<'r> From<&'r Verdict> for ObjectView<'r> {
    fn from(verdict: &'r Verdict) -> Self {
        let word = match (verdict.allowed, verdict.undecided) {
            (true, _) => "allowed",
            (false, true) => "undecided",
            (false, false) => "denied",
        };
        Self { title: verdict.title(), verdict: word, message: &verdict.message }
    }
}

/// A finding with what only people read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FindingView<'r> {
    #[serde(flatten)]
    finding: Finding<'r>,
    end_line: Option<usize>,
    label: Option<&'r str>,
    subject: Option<&'r str>,
    because: &'r [String],
}

impl<'r> From<&'r Diagnostic> for FindingView<'r> {
    fn from(finding: &'r Diagnostic) -> Self {
        Self {
            finding: Finding::from(finding),
            end_line: finding.at.as_ref().map(|label| label.end_line),
            label: finding.at.as_ref().map(|label| label.text.as_str()),
            subject: finding.subject.as_deref(),
            because: &finding.because,
        }
    }
}

#[derive(Debug, Serialize)]
struct ErrorView {
    error: String,
}

/// The response to a request, both in JSON. A request that cannot be answered gets `{"error": …}`, never a verdict.
#[must_use]
pub fn response(request: &str) -> String {
    let answered = answer(request).unwrap_or_else(|error| to_json(&ErrorView { error: error.to_string() }));
    // Every page understands this; a text that cannot be written as JSON does not exist in these types.
    if answered.is_empty() { "{\"error\":\"the response cannot be written\"}".to_owned() } else { answered }
}

fn answer(request: &str) -> Result<String, RequestError> {
    let request: Request = serde_json::from_str(request)?;
    let settings = settings(&request)?;
    let file: Arc<str> = Arc::from("manifest.yaml");
    let text = request.text.as_str();
    let can_fix = |may_change| {
        let fixed = fix_text(&file, text, &settings, &[], FixOptions { may_change, partial: false });
        fixed.text.is_some()
    };
    let fixed = match request.fix {
        Fixes::None => None,
        wanted => {
            let options = FixOptions { may_change: wanted == Fixes::All, partial: false };
            Some(fix_text(&file, text, &settings, &[], options))
        }
    };
    let (mut report, fixed_text, notes) = match &fixed {
        Some(fixed) => {
            let listed = fixed.listed.iter().filter(|listed| listed.made);
            let mut notes: Vec<String> = listed
                .map(|fix| {
                    format!("{}: {} ({}: {})", fix.object, fix.help, fix.effect.name(), fix.effect.reason())
                })
                .collect();
            notes.extend(fixed.refused.iter().map(|reason| format!("not fixed: {reason}")));
            (fixed.report.clone(), fixed.text.as_deref(), notes)
        }
        None => (judge_text(&file, text, &settings, &[]), None, Vec::new()),
    };
    report.name_foreign(true);
    let may_be_fixed =
        request.fix == Fixes::None && report.diagnostics.iter().any(|finding| finding.fix.is_some());
    let can_fix =
        if may_be_fixed { CanFix { safe: can_fix(false), all: can_fix(true) } } else { CanFix::default() };
    let api = &settings.compat.api;
    Ok(to_json(&Response {
        outcome: Outcome::of(&report),
        judged_at: format!("{} for Kubernetes {api}", settings.policy),
        objects: report.verdicts.iter().map(ObjectView::from).collect(),
        findings: report.diagnostics.iter().map(FindingView::from).collect(),
        skipped: report.skipped,
        suppressed: report.suppressed,
        fixed: fixed_text,
        notes: &notes,
        can_fix,
    }))
}

fn settings(request: &Request) -> Result<Settings, RequestError> {
    let level: Level = request.level.parse().map_err(|_| RequestError::Level(request.level.clone()))?;
    let unknown = || RequestError::PolicyVersion(request.policy_version.clone());
    let version: Version = request.policy_version.parse().map_err(|_| unknown())?;
    if matches!(version, Version::Minor(minor) if minor > u64::from(NEWEST_MINOR)) {
        return Err(unknown());
    }
    let today: Date = request.today.parse().map_err(|_| RequestError::Date(request.today.clone()))?;
    let policy = LevelVersion::new(level, version);
    let mut settings = Settings::new(policy, compat(&request.kubernetes_version)?, today);
    let text = request.text.clone();
    settings.definitions = LazyLock::new(Box::new(move || definitions_of(&text)));
    Ok(settings)
}

fn compat(release: &str) -> Result<Compat, RequestError> {
    if release == "extended" {
        return Ok(Compat::designs());
    }
    let unknown = || RequestError::Release(release.to_owned());
    let version: KubeVersion = release.parse().map_err(|_| unknown())?;
    let minor = version.minor();
    if (OLDEST_MINOR..=NEWEST_MINOR).contains(&minor) {
        Ok(Compat::kubernetes(minor))
    } else {
        Err(unknown())
    }
}

/// Nothing here can fail to be written as JSON: keys are strings, numbers are integers. If it did, the text is empty.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
