//! Upstream's own pods, judged in the level and version of their folder.

use std::{fs, path::Path};

use palisade_testkit::shared;

use crate::support::Project;

fn folders(root: &Path) -> Vec<(String, String)> {
    let mut folders = Vec::new();
    for level in ["baseline", "restricted"] {
        for version in fs::read_dir(root.join(level)).unwrap() {
            folders.push((level.to_owned(), version.unwrap().file_name().into_string().unwrap()));
        }
    }
    folders
}

#[test]
fn every_verdict_is_upstreams() {
    let Some(root) = shared("fixtures/pod-security-standards") else { return };
    let project = Project::new();
    let mut judged = 0;
    for (level, version) in folders(&root) {
        let folder = root.join(&level).join(&version);
        let run = project.run(&[
            "check",
            folder.to_str().unwrap(),
            "--level",
            &level,
            "--policy-version",
            &version,
            "-o",
            "json",
        ]);
        for object in run.json()["objects"].as_array().unwrap() {
            let expected = object["file"].as_str().unwrap().contains("/pass/");
            assert_eq!(object["allowed"], expected, "{level} {version} {object}");
            assert_eq!(object["message"].as_str().unwrap().is_empty(), expected);
            judged += 1;
        }
        assert_eq!(run.json()["summary"]["errors"], 0);
    }
    assert!(judged >= 1600, "{judged}");
}

#[test]
fn a_whole_tree_is_judged_in_one_run() {
    let Some(root) = shared("fixtures/pod-security-standards") else { return };
    let run = Project::new().run(&["check", root.to_str().unwrap(), "-o", "json"]);
    assert!(run.json()["summary"]["objects"].as_u64().unwrap() >= 1600);
}

#[test]
fn everything_mechanical_is_fixed_and_stays_fixed() {
    let Some(root) = shared("fixtures/pod-security-standards") else { return };
    for (level, version) in folders(&root) {
        let project = Project::new();
        for entry in fs::read_dir(root.join(&level).join(&version).join("fail")).unwrap() {
            let entry = entry.unwrap();
            project.file(entry.file_name().to_str().unwrap(), fs::read(entry.path()).unwrap());
        }
        let fix =
            ["check", ".", "--level", &level, "--policy-version", &version, "--fix", "-q", "-o", "json"];
        let first = project.run(&fix).json();
        let content = |project: &Project| -> Vec<(std::ffi::OsString, Vec<u8>)> {
            let mut files: Vec<_> = fs::read_dir(project.path("."))
                .unwrap()
                .map(|entry| entry.unwrap())
                .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
                .collect();
            files.sort();
            files
        };
        let before = content(&project);
        let again = project.run(&fix).json();
        assert_eq!(first["objects"], again["objects"], "{level} {version}");
        assert_eq!(before, content(&project), "{level} {version}: running it again changes nothing");

        for object in again["objects"].as_array().unwrap() {
            let file = object["file"].as_str().unwrap();
            // What shares something of the node cannot be fixed by a machine.
            let manual = ["hostnamespaces", "hostpathvolumes", "restrictedvolumes", "windowshostprocess"]
                .iter()
                .any(|stem| file.contains(stem));
            assert_eq!(object["allowed"], !manual, "{level} {version} {object}");
        }
        for finding in again["findings"].as_array().unwrap() {
            assert!(finding["fix"].is_null(), "{level} {version} {finding}");
        }
    }
}
