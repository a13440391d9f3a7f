//! What makes a finding the same finding tomorrow: the object, the rule, the field and the value; not the line.
//!
//! Baselines compare findings by it, and code scanning follows them from run to run. Positions in lists are left out,
//! because they move when something is added above; a container is known by its name.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use palisade_base::sha256;

use crate::{
    diagnostic::{Diagnostic, ObjectId},
    judge::{FileReport, Verdict},
};

/// A finding, without its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FindingIdentity {
    /// Kind of the object; empty for a finding about the file.
    pub kind: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its name, or the prefix of a generated one.
    pub name: Option<String>,
    /// The code of the finding.
    pub code: String,
    /// The field, with `[*]` for positions in lists.
    pub path: Option<String>,
    /// The container.
    pub container: Option<String>,
    /// The offending value; for findings that have none, what is wrong in words.
    pub value: Option<String>,
}

impl FindingIdentity {
    /// What a finding about an object is known by. One that is about several containers is known by each of them.
    #[must_use]
    pub fn of(finding: &Diagnostic, object: Option<&Verdict>) -> Vec<Self> {
        let is_standard = finding.code.as_str().starts_with("pss/");
        // The words of other findings have the value.
        let words = || (!is_standard).then(|| without_positions(&finding.summary));
        let one = Self {
            kind: object.map(|object| object.kind.clone()).unwrap_or_default(),
            namespace: object.and_then(|object| object.namespace.clone()),
            name: object.and_then(|object| object.name.clone()),
            code: finding.code.as_str().to_owned(),
            path: finding.path.as_deref().map(without_positions),
            container: finding.container.clone(),
            value: finding.value.clone().or_else(words),
        };
        if finding.containers.is_empty() {
            return vec![one];
        }
        finding.containers.iter().map(|name| Self { container: Some(name.clone()), ..one.clone() }).collect()
    }
}

/// The objects of a report by their place in the file.
pub(crate) fn objects(report: &FileReport) -> HashMap<&ObjectId, &Verdict> {
    report.verdicts.iter().map(|verdict| (&verdict.id, verdict)).collect()
}

/// A fingerprint for each finding of a report, the same in every run. Findings that differ in nothing but their place are numbered.
#[must_use]
pub fn fingerprints(report: &FileReport) -> Vec<String> {
    let objects = objects(report);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    report
        .diagnostics
        .iter()
        .map(|finding| {
            let object = finding.object.as_ref().and_then(|id| objects.get(id).copied());
            let mut text = String::new();
            push_part(&finding.file, &mut text);
            for identity in FindingIdentity::of(finding, object) {
                let parts = [
                    Some(&identity.kind),
                    identity.namespace.as_ref(),
                    identity.name.as_ref(),
                    Some(&identity.code),
                    identity.path.as_ref(),
                    identity.container.as_ref(),
                    identity.value.as_ref(),
                ];
                for part in parts {
                    push_part(part.map_or("", String::as_str), &mut text);
                }
            }
            let count = seen.entry(text.clone()).or_default();
            *count += 1;
            if *count > 1 {
                push_part(&count.to_string(), &mut text);
            }
            // Half of a hash is enough to tell findings apart.
            let mut hash = sha256::hex(text.as_bytes());
            hash.truncate(32);
            hash
        })
        .collect()
}

/// The length first, so that no two lists of parts have the same text.
fn push_part(part: &str, text: &mut String) {
    let _ = write!(text, "{}:{part},", part.len());
}

/// `spec.containers[3].ports[0]` as `spec.containers[*].ports[*]`; keys in brackets stay.
fn without_positions(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let (before, bracket) = rest.split_at(at);
        plain.push_str(before);
        let digits = bracket.bytes().skip(1).take_while(u8::is_ascii_digit).count();
        if digits > 0 && bracket.as_bytes().get(digits + 1) == Some(&b']') {
            plain.push_str("[*]");
            rest = bracket.get(digits + 2..).unwrap_or_default();
        } else {
            plain.push('[');
            rest = bracket.get(1..).unwrap_or_default();
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::without_positions;

    #[test]
    fn positions_in_lists_are_no_part_of_an_identity() {
        for (text, expected) in [
            ("spec.containers[3].ports[0].hostPort", "spec.containers[*].ports[*].hostPort"),
            ("metadata.annotations[seccomp/pod]", "metadata.annotations[seccomp/pod]"),
            ("a[12", "a[12"),
            ("a[]b[1]", "a[]b[*]"),
            ("é[7]é", "é[*]é"),
        ] {
            assert_eq!(without_positions(text), expected, "{text}");
        }
    }
}
