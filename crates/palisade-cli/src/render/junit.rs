//! JUnit XML: a suite for each file, a test case for each object.
//!
//! An object that is denied, or has another error, is a failure; a file or document that cannot be checked is an
//! error.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::human;
use crate::{
    diagnostic::{Diagnostic, ObjectId, Severity},
    judge::FileReport,
};

#[derive(Debug)]
pub(super) struct Suites(Report);

impl Default for Suites {
    fn default() -> Self {
        Self(Report::new("palisade"))
    }
}

impl Suites {
    pub(super) fn push(&mut self, report: &FileReport) {
        let mut suite = TestSuite::new(&*report.file);
        let mut by_object: HashMap<Option<&ObjectId>, Vec<Diagnostic>> = HashMap::new();
        for finding in report.diagnostics.iter().filter(|d| d.severity == Severity::Error) {
            by_object.entry(finding.object.as_ref()).or_default().push(finding.clone());
        }
        for verdict in &report.verdicts {
            let findings = by_object.remove(&Some(&verdict.id)).unwrap_or_default();
            let mut status = TestCaseStatus::success();
            if !findings.is_empty() {
                status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                let message = if verdict.allowed {
                    format!("{} is not valid", verdict.title())
                } else {
                    format!("violates PodSecurity \"{}\": {}", verdict.policy, verdict.message)
                };
                status.set_message(message);
                if let Some(first) = findings.first() {
                    status.set_type(first.code.as_str());
                }
                status.set_description(described(&findings));
            }
            let mut case = TestCase::new(verdict.title(), status);
            case.set_classname(&*report.file);
            suite.add_test_case(case);
        }
        // What is left is about the file, or about objects that could not be checked.
        let mut others: Vec<Diagnostic> = by_object.into_values().flatten().collect();
        others.sort_by(|a, b| a.order().cmp(&b.order()));
        for finding in &others {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(&*finding.summary).set_type(finding.code.as_str());
            status.set_description(described(std::slice::from_ref(finding)));
            let mut case = TestCase::new(&*report.file, status);
            case.set_classname(&*report.file);
            suite.add_test_case(case);
        }
        if !suite.test_cases.is_empty() {
            self.0.add_test_suite(suite);
        }
    }

    pub(super) fn finish(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = self.0.to_string().map_err(io::Error::other)?;
        // XML 1.0 has no way to write these two; other characters that it does not have are left out already.
        text.retain(|c| !matches!(c, '\u{fffe}' | '\u{ffff}'));
        out.write_all(text.as_bytes())
    }
}

fn described(findings: &[Diagnostic]) -> String {
    let mut text = String::new();
    human::diagnostics(findings, human::Style::PLAIN, &mut text);
    text
}
