//! Upstream's own pods, judged in the level and version of their folder.

use std::{fs, path::Path};

use palisade_cli::{
    manifest::objects,
    server_side::{Asked, ServerSide},
};
use palisade_model::compat::Compat;
use palisade_testkit::shared;
use serde::Deserialize as _;

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
fn verdicts_on_upstreams_fixtures_are_upstreams() {
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
fn checks_a_whole_tree_in_one_run() {
    let Some(root) = shared("fixtures/pod-security-standards") else { return };
    let run = Project::new().run(&["check", root.to_str().unwrap(), "-o", "json"]);
    assert!(run.json()["summary"]["objects"].as_u64().unwrap() >= 1600);
}

type Content = Vec<(std::ffi::OsString, String)>;

fn content(project: &Project) -> Content {
    let mut files: Content = fs::read_dir(project.path("."))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), fs::read_to_string(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// What an API server of the newest release says to the one object of a text.
fn rejections(text: &str) -> Vec<String> {
    let parsed = palisade_yaml::parse(text, &palisade_yaml::Limits::default());
    let object = objects(&parsed.documents[0]).remove(0);
    let value = serde_json::Value::deserialize(object.node).unwrap();
    let workload = object.workload.unwrap();
    let asked = Asked { object: &value, api_version: object.api_version, workload, namespace: "default" };
    ServerSide::new(Compat::kubernetes(37)).rejections(&asked)
}

#[test]
fn every_touched_fixture_is_valid_and_allowed_and_stays_so() {
    let Some(root) = shared("fixtures/pod-security-standards") else { return };
    let (mut touched, mut fixed) = (0, 0);
    for (level, version) in folders(&root) {
        for options in [&["--fix"][..], &["--unsafe-fixes"]] {
            let project = Project::new();
            for entry in fs::read_dir(root.join(&level).join(&version).join("fail")).unwrap() {
                let entry = entry.unwrap();
                project.file(entry.file_name().to_str().unwrap(), fs::read(entry.path()).unwrap());
            }
            let original = content(&project);
            let arguments =
                ["check", ".", "--level", &level, "--policy-version", &version, "-q", "-o", "json"];
            let fix = [&arguments[..], options].concat();
            let first = project.run(&fix).json();
            let after = content(&project);
            let again = project.run(&fix).json();
            assert_eq!(first["objects"], again["objects"], "{level} {version}");
            assert_eq!(after, content(&project), "{level} {version}: running it again changes nothing");

            for object in again["objects"].as_array().unwrap() {
                let file = object["file"].as_str().unwrap();
                let of = |content: &Content| content.iter().find(|(name, _)| name == file).unwrap().1.clone();
                let (old, new) = (of(&original), of(&after));
                if old != new {
                    touched += 1;
                    assert_eq!(object["allowed"], true, "{level} {version} {options:?} {object}");
                    assert_eq!(rejections(&new), [""; 0], "{level} {version} {options:?} {new}");
                }
                // What shares something of the node cannot be fixed by a machine.
                let manual = ["hostnamespaces", "hostpathvolumes", "restrictedvolumes", "windowshostprocess"]
                    .iter()
                    .any(|stem| file.contains(stem));
                if options == ["--unsafe-fixes"] && !manual && rejections(&old).is_empty() {
                    fixed += 1;
                    assert_eq!(object["allowed"], true, "{level} {version} {object}");
                }
            }
        }
    }
    assert!(touched > 500 && fixed > 500, "{touched} touched, {fixed} fixed");
}
