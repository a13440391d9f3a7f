//! `palisade profile lint` for AppArmor: texts as apparmor.d(5) has them, and `AppArmorProfile` objects.
//!
//! Texts are administrators', in the whole language: `apparmor_parser` checks them without loading anything (`-QK`). Objects are
//! tenants', in a part of the language that is read here; what a node would load is checked by the parser as well, where there is one.

use std::{
    io::{self, Write as _},
    process::{Command, Stdio},
    sync::Arc,
};

use palisade_model::profile::{
    apparmor_profile::{AppArmorProfile, AppArmorProfileError},
    apparmor_rules::RulesError,
};
use palisade_yaml::{NodeRef, Span};

use crate::{
    diagnostic::{Code, Diagnostic},
    judge::FileReport,
    manifest::Object,
    source_map::Source,
};

/// The program that checks.
const PARSER: &str = "apparmor_parser";

/// Whether a text is an AppArmor profile: its first statement is none of JSON or YAML.
pub(super) fn is_profile(text: &str) -> bool {
    for line in text.lines().map(str::trim) {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        match first {
            "" => {}
            "#include" | "include" | "abi" | "profile" | "alias" => return !line.contains(": "),
            _ if first.starts_with('#') => {}
            _ => return first.starts_with("@{") || (first.starts_with(['/', '"']) && line.ends_with('{')),
        }
    }
    false
}

/// Checks a text; whether it could be checked.
pub(super) fn lint_text(text: &str, file: &Arc<str>, report: &mut FileReport) -> bool {
    let source = Source::new(text);
    match check(text) {
        Ok(None) => true,
        Ok(Some(message)) => {
            let mut problem = Diagnostic::error(Code::of("profile/apparmor-rejected"), file, message.clone())
                .because("apparmor_parser rejects the profile, and a node does not load it");
            if let Some(line) = line_in(&message).and_then(|line| source.lines().line_span(line)) {
                problem = problem.at(source.label(line, ""));
            }
            report.diagnostics.push(problem);
            true
        }
        Err(error) => {
            report.diagnostics.push(missing(file, &error));
            report.errors += 1;
            false
        }
    }
}

/// Checks an `AppArmorProfile`; whether it could be checked.
pub(super) fn lint_object(
    object: &Object<'_>,
    file: &Arc<str>,
    source: &Source<'_>,
    report: &mut FileReport,
) -> bool {
    let value = match object.node.to_json() {
        Ok(value) => value,
        Err(error) => {
            let problem = Diagnostic::error(Code::of("profile/not-a-profile"), file, error.to_string());
            report.diagnostics.push(problem.at(source.label(error.span, "")));
            report.errors += 1;
            return false;
        }
    };
    // Manifests may leave the namespace to kubectl.
    let mut value = value;
    if value["metadata"].is_object() && value["metadata"].get("namespace").is_none() {
        value["metadata"]["namespace"] = "default".into();
    }
    let profile = match AppArmorProfile::read(&value) {
        Ok(profile) => profile,
        Err(error) => {
            let span = place(object, &error, source);
            let problem = Diagnostic::error(Code::of("profile/apparmor-rules"), file, error.to_string())
                .at(source.label(span, ""))
                .because("nodes do not load the profile, and the webhook rejects the object");
            report.diagnostics.push(problem);
            return true;
        }
    };
    match check(&profile.text()) {
        Ok(None) => {}
        Ok(Some(message)) => {
            let problem = Diagnostic::error(Code::of("profile/apparmor-rejected"), file, message)
                .at(source.label(rules(object).map_or(Span::at(0), NodeRef::span), ""))
                .because("apparmor_parser rejects what nodes would load");
            report.diagnostics.push(problem);
        }
        // The rules were read; that is what decides about the object.
        Err(error) => {
            let message = format!("not compiled: {}", cannot_run(&error));
            report.diagnostics.push(Diagnostic::warning(
                Code::of("profile/apparmor-not-compiled"),
                file,
                message,
            ));
        }
    }
    true
}

fn rules<'n>(object: &Object<'n>) -> Option<NodeRef<'n>> {
    object.node.get("spec")?.get("rules")
}

/// Where the error is: the line of the rule, if the text is there as it is.
fn place(object: &Object<'_>, error: &AppArmorProfileError, source: &Source<'_>) -> Span {
    let Some(node) = rules(object) else { return object.node.span() };
    let AppArmorProfileError::Rules(RulesError::Rule { line, .. }) = error else { return node.span() };
    let found = super::literal(node).and_then(|literal| {
        let header = source.lines().position(literal.start).line;
        source.lines().line_span(header + line)
    });
    found.unwrap_or_else(|| node.span())
}

fn missing(file: &Arc<str>, error: &io::Error) -> Diagnostic {
    Diagnostic::error(
        Code::of("profile/apparmor-parser"),
        file,
        format!("not checked: {}", cannot_run(error)),
    )
    .help("install apparmor_parser (package apparmor)")
}

fn cannot_run(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "apparmor_parser is not installed".to_owned(),
        _ => format!("apparmor_parser cannot be run: {error}"),
    }
}

/// What the parser says is wrong with a text.
fn check(text: &str) -> io::Result<Option<String>> {
    let mut child = Command::new(PARSER)
        .args(["--skip-kernel-load", "--skip-cache", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A parser that stops reading has the reason on its standard error.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.lines().map(str::trim).find(|line| line.to_ascii_lowercase().contains("error"));
    Ok(Some(error.unwrap_or(said.trim()).to_owned()))
}

/// The line that a message of the parser names.
fn line_in(message: &str) -> Option<usize> {
    let rest = message.split_once("line ")?.1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    // swallowed: a message without a number names no line
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{is_profile, line_in};

    #[test]
    fn texts_of_apparmor_are_recognized() {
        for (text, expected) in [
            ("profile web {\n}\n", true),
            ("# comment\n#include <tunables/global>\nprofile web {}", true),
            ("abi <abi/3.0>,\ninclude <tunables/global>\n", true),
            ("/usr/sbin/ntpd {\n}", true),
            ("@{X}=/etc\nprofile x {}", true),
            ("{\"defaultAction\": \"SCMP_ACT_ERRNO\"}", false),
            ("apiVersion: v1\nkind: ConfigMap\n", false),
            ("# a comment\nkind: ConfigMap\n", false),
            ("profile: x\n", false),
            ("", false),
        ] {
            assert_eq!(is_profile(text), expected, "{text:?}");
        }
        assert_eq!(line_in("AppArmor parser error at line 12: syntax error"), Some(12));
        assert_eq!(line_in("AppArmor parser error: nothing"), None);
    }
}
