//! Kubernetes' own end-to-end tests, `e2e.test` of `../shared/kubernetes`, against `palisade up --node --emulate-kubernetes v1.37`.
//!
//! `cargo xtask e2e` chooses the tests through the environment and judges the results, which are written for it. The images are
//! made by `images.py` of that folder, except that upstream's agnhost has curl, a certificate and further users, its pause ends on SIGTERM, and its
//! shell keeps variables whose names are no identifiers; a web server stands in for nginx. Tests that upstream marks as serial run one
//! after another at the end. What Debian's containerd cannot do runs on containerd 2.3.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use palisade_testkit::{
    command::output,
    images::{self, Image},
    kubernetes::{Binaries, write_localhost_certificate},
    shared,
};
use serde_json::{Value, json};

use crate::world::World;

/// The registry that upstream's tests name; the images come from an archive.
const REGISTRY: &str = "registry.k8s.io/e2e-test-images";

/// Releases of an image that the tests expect beside the one that is made, for example to update a pod from one to the other.
const TAGS: [(&str, &str); 2] =
    [("agnhost:2.66.1", "agnhost:2.55"), ("busybox:1.37.0-2", "busybox:1.36.1-1")];

/// Upstream's pause ends on SIGTERM.
const PAUSE: &[&str] = &["sh", "-c", "trap exit TERM INT; while :; do sleep 3600 & wait; done"];

/// Makes images with the functions of `images.py`, beside those that it makes.
const MORE_IMAGES: &str = "
import os, runpy
made = runpy.run_path(os.environ['IMAGES'])
image, registry = made['image'], made['R']
image('../nginx.tar', [registry + 'nginx:1.27.0-2'], config={'Cmd': ['httpd', '-f', '-p', '80']})
";

/// Parts of the names of tests that need containerd 2.
const NEWER_CONTAINERD: [&str; 3] =
    ["[Feature:UserNamespacesSupport]", "[Feature:SupplementalGroupsPolicy]", "ImageVolume"];

/// Tests end on their own; this ends those that do not.
const GINKGO_TIMEOUT: &str = "-ginkgo.timeout=60m";

/// What `cargo xtask e2e` wants to run.
struct Choice {
    /// The names of the tests, one in a line.
    list: Option<PathBuf>,
    /// Part of the name.
    focus: Option<String>,
    /// How many tests run at a time.
    processes: usize,
    /// Runs what failed a second time.
    retry: bool,
    /// Where logs and results go.
    folder: PathBuf,
}

impl Choice {
    fn from_environment() -> Option<Self> {
        let variable = |name: &str| env::var(format!("PALISADE_E2E_{name}")).ok();
        Some(Self {
            list: variable("LIST").map(PathBuf::from),
            focus: variable("FOCUS"),
            processes: variable("PROCESSES").map_or(8, |number| number.parse().unwrap()),
            retry: variable("RETRY").is_some(),
            folder: variable("FOLDER").map(PathBuf::from)?,
        })
    }

    fn names(&self, all: &[String]) -> Vec<String> {
        let Some(list) = &self.list else {
            let focus = self.focus.as_deref().unwrap_or("[Conformance]");
            return all.iter().filter(|name| name.contains(focus)).cloned().collect();
        };
        let names: Vec<String> = fs::read_to_string(list).unwrap().lines().map(str::to_owned).collect();
        for name in &names {
            assert!(all.contains(name), "e2e.test has no test of this name: {name}");
        }
        names
    }
}

/// Not one of the system tests: `cargo xtask e2e` runs it.
#[test]
fn the_end_to_end_tests_of_kubernetes() {
    let choice = Choice::from_environment().expect("run by cargo xtask e2e");
    let Some(material) = shared("kubernetes") else { return };
    let binaries = Binaries::new(material.clone());
    for program in ["e2e.test", "kubectl", "agnhost", "nonewprivs"] {
        binaries.path(program);
    }
    let names = choice.names(&all_names(&binaries));
    assert!(!names.is_empty(), "no test has such a name");

    let needs_newer = |name: &&String| NEWER_CONTAINERD.iter().any(|part| name.contains(part));
    let (newer, usual): (Vec<_>, Vec<_>) = names.iter().partition(needs_newer);
    let mut results = BTreeMap::new();
    for (label, names) in [("usual", usual), ("containerd-2.3", newer)] {
        if names.is_empty() {
            continue;
        }
        let mut world = if label == "usual" {
            World::new()
        } else {
            World::with_newer_containerd(&material.join("containerd-2.3"))
        };
        import_images(&world, &material, &binaries);
        world.up(&["--emulate-kubernetes", "v1.37"]);
        let names: Vec<String> = names.into_iter().cloned().collect();
        let mut suite = Suite {
            world: &world,
            binaries: &binaries,
            choice: &choice,
            label,
            rounds: 0,
            results: BTreeMap::new(),
        };
        suite.run(&names);
        if choice.retry {
            let failed: Vec<String> = names.iter().filter(|name| !suite.passed(name)).cloned().collect();
            suite.run(&failed);
        }
        for name in names {
            let result = suite.results.get(&name).cloned().unwrap_or(json!({"state": "not run"}));
            results.insert(name, result);
        }
        fs::copy(world.path("up.log"), choice.folder.join(format!("up-{label}.log"))).unwrap();
    }
    let text = serde_json::to_string_pretty(&results).unwrap();
    fs::write(choice.folder.join("results.json"), text).unwrap();
}

/// The names of all tests of the suite.
fn all_names(binaries: &Binaries) -> Vec<String> {
    let listed = output(Command::new(binaries.path("e2e.test")).arg("-list-tests")).expect_success();
    // A line is `file.go:12: [sig-node] name`.
    let name = |line: &str| line.split_once(": [sig-").map(|(_, name)| format!("[sig-{name}"));
    listed.lines().filter_map(name).collect()
}

fn import_images(world: &World, material: &Path, binaries: &Binaries) {
    let archives = world.path("images");
    let mut script = Command::new("python3");
    script.arg(material.join("images.py")).arg(binaries.folder()).arg(&archives);
    let _ = output(&mut script).expect_success();
    let mut more = Command::new("python3");
    more.args(["-c", MORE_IMAGES]).arg(binaries.folder()).arg(&archives);
    let _ = output(more.env("IMAGES", material.join("images.py"))).expect_success();
    for archive in fs::read_dir(&archives).unwrap() {
        world.containerd.import(&archive.unwrap().path());
    }
    world.containerd.import(&world.path("nginx.tar"));
    write_localhost_certificate(&archives);
    let mut agnhost = Image {
        name: &format!("{REGISTRY}/agnhost:2.66.1"),
        entrypoint: &["/agnhost"],
        command: &["pause"],
        users: "user-defined-in-image:x:1000:1000::/:/bin/sh\n",
        groups: "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
        ..Image::default()
    };
    agnhost.add_program(Path::new("/usr/bin/curl"));
    for (file, path) in [
        (binaries.path("agnhost"), "/agnhost"),
        (binaries.path("agnhost"), "/agnhost-2"),
        (archives.join("localhost.crt"), "/localhost.crt"),
        (archives.join("localhost.key"), "/localhost.key"),
    ] {
        agnhost.files.push((file, path.into()));
    }
    world.containerd.import(&images::write(&archives, &agnhost));
    for name in ["registry.k8s.io/pause:3.10.2", "localhost/pause:1"] {
        world.containerd.import(&images::archive(&archives, name, "", PAUSE));
    }
    fs::remove_dir_all(&archives).unwrap();
    for (image, name) in TAGS {
        world.containerd.tag(&format!("{REGISTRY}/{image}"), &format!("{REGISTRY}/{name}"));
    }
}

struct Suite<'a> {
    world: &'a World,
    binaries: &'a Binaries,
    choice: &'a Choice,
    /// Of the runtime, for the names of logs.
    label: &'a str,
    rounds: usize,
    results: BTreeMap<String, Value>,
}

impl Suite<'_> {
    fn passed(&self, name: &str) -> bool {
        self.results.get(name).is_some_and(|result| result["state"] == "passed")
    }

    /// Runs tests, several at a time and then the serial ones.
    fn run(&mut self, names: &[String]) {
        self.rounds += 1;
        let (serial, parallel): (Vec<_>, Vec<_>) =
            names.iter().map(String::as_str).partition(|name| name.contains("[Serial]"));
        let share = |number: usize| -> Vec<&str> {
            parallel.iter().skip(number).step_by(self.choice.processes).copied().collect()
        };
        let running: Vec<_> = (0..self.choice.processes)
            .filter_map(|number| self.start(&number.to_string(), &share(number)))
            .collect();
        for started in running {
            self.finish(started);
        }
        if let Some(started) = self.start("serial", &serial) {
            self.finish(started);
        }
    }

    fn start(&self, label: &str, names: &[&str]) -> Option<(Child, PathBuf)> {
        if names.is_empty() {
            return None;
        }
        let file =
            |kind: &str| self.choice.folder.join(format!("{}-{}-{label}.{kind}", self.label, self.rounds));
        let log = fs::File::create(file("log")).unwrap();
        let report = file("json");
        let focus: Vec<String> = names.iter().map(|name| pattern(name)).collect();
        let path = env::var("PATH").unwrap();
        let child = Command::new(self.binaries.path("e2e.test"))
            .arg("-kubeconfig")
            .arg(self.world.path("kubeconfig"))
            .args(["-ginkgo.v", "-ginkgo.no-color", "-num-nodes=1", GINKGO_TIMEOUT])
            .arg(format!("-ginkgo.focus=({})$", focus.join("|")))
            .arg(format!("-ginkgo.json-report={}", report.display()))
            .env("PATH", format!("{}:{path}", self.binaries.folder().display()))
            .env("HOME", self.world.folder.path())
            .current_dir(&self.choice.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Some((child, report))
    }

    /// Waits for a process and takes the results from its report.
    fn finish(&mut self, (mut child, report): (Child, PathBuf)) {
        child.wait().unwrap();
        let suites: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
        for spec in suites[0]["SpecReports"].as_array().unwrap() {
            let ran = spec["State"] != "skipped" || !spec["Failure"].is_null();
            if !ran || spec["LeafNodeType"] != "It" {
                continue;
            }
            let outer = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
            let words: Vec<_> = outer.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str).collect();
            let seconds = spec["RunTime"].as_u64().unwrap_or_default() / 1_000_000_000;
            let result = json!({"state": spec["State"], "message": spec["Failure"]["Message"], "seconds": seconds, "round": self.rounds});
            self.results.insert(words.join(" "), result);
        }
    }
}

/// A regular expression for a name.
fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    for character in name.chars() {
        match character {
            // A shell or a log might have changed them.
            '"' | '\'' | '`' => pattern.push('.'),
            ' ' => pattern.push(' '),
            other if other.is_alphanumeric() => pattern.push(other),
            other => pattern.extend(['\\', other]),
        }
    }
    pattern
}
