//! The same objects as `kubectl kustomize` builds, for kustomizations of every shape.

use std::{fmt::Write as _, process::Command};

use palisade_yaml::{Limits, parse};
use serde_json::Value;

use crate::{
    cases::CASES,
    support::{Folder, sorted},
};

fn documents(text: &str) -> Vec<Value> {
    let parsed = parse(text, &Limits::default());
    assert!(parsed.errors.is_empty(), "{:?}\n{text}", parsed.errors);
    parsed.documents.iter().map(|document| document.root().to_json().unwrap()).collect()
}

#[test]
fn builds_what_kubectl_builds() {
    let has_kustomize = Command::new("kubectl")
        .args(["kustomize", "--help"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_kustomize {
        eprintln!("NOT RUN: kubectl with kustomize is not on PATH, so that builds were not compared");
        return;
    }
    let mut wrong = String::new();
    for case in CASES {
        let folder = Folder::new(case.files);
        let output = Command::new("kubectl")
            .args(["kustomize", case.root])
            .current_dir(folder.0.path())
            .output()
            .unwrap();
        let ours = folder.build(case.root);
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            if ours.problems.is_empty() {
                let _ =
                    writeln!(wrong, "{}: kubectl rejects it, and the build does not: {message}", case.name);
            } else if !case.fails {
                let _ = writeln!(wrong, "{}: kubectl rejects it: {message}", case.name);
            }
            continue;
        }
        if case.fails {
            let _ = writeln!(wrong, "{}: kubectl builds it", case.name);
            continue;
        }
        let expected = sorted(documents(&String::from_utf8(output.stdout).unwrap()));
        let built = sorted(ours.objects.iter().map(|object| object.node.to_json()).collect());
        if !ours.problems.is_empty() || built != expected {
            let _ = writeln!(wrong, "{}: {:?}", case.name, ours.problems);
            for index in 0..built.len().max(expected.len()) {
                let none = Value::Null;
                let pair = (built.get(index).unwrap_or(&none), expected.get(index).unwrap_or(&none));
                differences(pair.0, pair.1, &mut String::new(), &mut wrong);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Where two values differ, a line for each.
fn differences(built: &Value, kubectl: &Value, at: &mut String, into: &mut String) {
    let length = at.len();
    match (built, kubectl) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let _ = write!(at, ".{key}");
                let none = Value::Null;
                differences(a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none), at, into);
                at.truncate(length);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                let _ = write!(at, "[{index}]");
                differences(a, b, at, into);
                at.truncate(length);
            }
        }
        _ if built == kubectl => {}
        _ => {
            let _ = writeln!(into, "  {at}: built {built}, kubectl {kubectl}");
        }
    }
}
