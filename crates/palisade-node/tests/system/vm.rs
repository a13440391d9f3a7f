//! AppArmor for real: a virtual machine whose kernel has it, with cgroup v2.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use palisade_testkit::images;
use serde_json::{Value, json};

use crate::{
    lab::{DENY_MKDIR, IMAGE},
    resilience::AgentProcess,
};

/// Allows everything but writing below /denied.
const PROFILE: &str = "profile palisade-lab flags=(attach_disconnected,mediate_deleted) {\n  file,\n  capability,\n  network,\n  \
                       signal,\n  ptrace,\n  umount,\n  unix,\n  deny /denied/** w,\n}\n";

const CONFIG: &str = r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
"#;

const RUN: &str = r#"
grep ' /sys/fs/cgroup ' /proc/mounts
containerd --config /payload/config.toml > /tmp/containerd.log 2>&1 &
until ctr version > /dev/null 2>&1; do sleep 0.2; done
for image in /payload/*.tar; do ctr -n k8s.io images import "$image" > /dev/null || exit 1; done
cp -r /payload/api /tmp/api
/payload/folder_agent /tmp/api > /tmp/agent.log 2>&1 &
# Pods that name the profiles of namespaces come once these are loaded.
tries=0
until grep -q '"appArmorProfilesLoaded":3' /tmp/api/apparmor.json 2>/dev/null; do
  tries=$((tries+1)); [ $tries -gt 600 ] && break; sleep 0.2
done
cp /payload/late/*.json /tmp/api/objects/
# Every pod runs, or waits for what will never come.
tries=0
until [ "$(grep -l -e '"running":{' -e '"reason":"CreateContainerError"' /tmp/api/status/*.json 2>/dev/null | wc -l)" = 10 ]; do
  tries=$((tries+1)); [ $tries -gt 1500 ] && break; sleep 0.2
done
sleep 3
for file in /tmp/api/status/*.json; do echo; echo "REPORT $(basename $file .json) $(cat $file)"; done
for log in /var/lib/palisade/logs/*/c/0.log; do
  echo; echo "LOG $(echo $log | sed 's|.*/default_\([^_]*\)_.*|\1|') $(cut -d' ' -f4- $log | tr '\n' ';')"
done
echo; echo "ROWS $(cat /tmp/api/apparmor.json)"
profiles=/sys/kernel/security/apparmor/profiles
# Without those that the kernel makes for programs of a profile in the mode Complain.
echo "LOADED $(grep ^palisade/ $profiles | grep -v // | sort | tr '\n' ';')"
# Its object is gone, and a container runs with it: it stays. Then the container is gone as well.
rm /tmp/api/apparmor/web.json
sleep 8
echo "KEPT $(grep ^palisade/ $profiles | grep -v // | sort | tr '\n' ';')"
echo "REMOVING $(cat /tmp/api/apparmor.json)"
rm /tmp/api/objects/ns-web.json
tries=0
while grep -q '^palisade/shop/web ' $profiles; do
  tries=$((tries+1)); [ $tries -gt 600 ] && break; sleep 0.2
done
echo "LEFT $(grep ^palisade/ $profiles | grep -v // | sort | tr '\n' ';')"
tail -3 /tmp/agent.log
exit 0
"#;

fn pod(name: &str, context: Value) -> Value {
    let script = "cat /proc/self/attr/current; mkdir -p /denied; touch /denied/x; echo rc=$?; mkdir /tmp/y; echo mkdir=$?; mkdir -p /mnt; mount -t tmpfs x /mnt; echo mount=$?; sleep 600";
    json!({"kind": "Pod", "metadata": {"name": name}, "spec": {"hostNetwork": true, "containers": [
        {"name": "c", "image": IMAGE, "command": ["sh", "-c", script], "securityContext": context}]}})
}

fn payload(folder: &Path) {
    let built = folder.join("built");
    fs::create_dir_all(&built).unwrap();
    let payload = folder.join("payload");
    fs::create_dir_all(payload.join("api/objects")).unwrap();
    let pause: &[&str] = &["sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"];
    for (number, (name, command)) in
        [(IMAGE, &["sh"][..]), ("localhost/pause:1", pause)].into_iter().enumerate()
    {
        let archive = images::archive(&built, name, "", command);
        fs::copy(archive, payload.join(format!("{number}.tar"))).unwrap();
    }
    let agent = payload.join("folder_agent");
    fs::copy(AgentProcess::program(), &agent).unwrap();
    // Symbols would only make the machine's memory file larger.
    Command::new("strip").arg(&agent).status().ok();
    fs::write(payload.join("config.toml"), CONFIG).unwrap();
    fs::write(payload.join("run"), RUN).unwrap();
    // The agent loads it, as it would for an administrator.
    fs::write(payload.join("api/node.json"), json!({"appArmorProfile": PROFILE}).to_string()).unwrap();
    let app_armor = |profile: Value| json!({"appArmorProfile": profile});
    let seccomp = json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/p"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "palisade-lab"}});
    for (name, context) in [
        ("localhost", app_armor(json!({"type": "Localhost", "localhostProfile": "palisade-lab"}))),
        ("default", app_armor(json!({"type": "RuntimeDefault"}))),
        ("unconfined", app_armor(json!({"type": "Unconfined"}))),
        ("unset", json!({})),
        ("missing", app_armor(json!({"type": "Localhost", "localhostProfile": "absent"}))),
        (
            "privileged",
            json!({"privileged": true, "appArmorProfile": {"type": "Localhost", "localhostProfile": "palisade-lab"}}),
        ),
        ("both", seccomp),
    ] {
        fs::write(payload.join(format!("api/objects/{name}.json")), pod(name, context).to_string()).unwrap();
    }
    // Profiles of namespaces, and what is rejected of them; then the pods that name them.
    for folder in ["api/apparmor", "late"] {
        fs::create_dir_all(payload.join(folder)).unwrap();
    }
    for (file, namespace, name, spec) in [
        ("web", "shop", "web", json!({"rules": "file,\nnetwork,\ncapability,\numount,\ndeny /denied/** w,"})),
        ("open", "shop", "open", json!({"rules": "file,\nnetwork,\ncapability,\numount,\n/** rwkl,"})),
        (
            "log",
            "lab",
            "log",
            json!({"rules": "# nothing is allowed, and so everything is logged", "mode": "Complain"}),
        ),
        ("loose", "shop", "loose", json!({"rules": "file,", "mode": "Complain"})),
        ("bad", "shop", "bad", json!({"rules": "file,\nchange_profile,"})),
    ] {
        let object = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "AppArmorProfile",
            "metadata": {"namespace": namespace, "name": name}, "spec": spec});
        fs::write(payload.join(format!("api/apparmor/{file}.json")), object.to_string()).unwrap();
    }
    let of = |name: &str| app_armor(json!({"type": "Localhost", "localhostProfile": name}));
    let mut privileged = of("palisade/shop/open");
    privileged["privileged"] = json!(true);
    for (name, context) in
        [("ns-web", of("palisade/shop/web")), ("ns-log", of("palisade/lab/log")), ("ns-open", privileged)]
    {
        fs::write(payload.join(format!("late/{name}.json")), pod(name, context).to_string()).unwrap();
    }
    let map = json!({"kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"p": DENY_MKDIR}});
    fs::write(payload.join("api/objects/map.json"), map.to_string()).unwrap();
}

#[test]
fn app_armor_confines_in_a_machine_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    payload(folder.path());
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "-p", "xtask", "--", "vm", "--payload"])
        .arg(folder.path().join("payload"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    let console = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{console}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut reports: BTreeMap<String, Value> = BTreeMap::new();
    let mut logs: BTreeMap<String, String> = BTreeMap::new();
    for line in console.lines() {
        let mut words = line.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("REPORT"), Some(name), Some(text)) => {
                reports.insert(name.to_owned(), serde_json::from_str(text).unwrap_or(Value::Null));
            }
            (Some("LOG"), Some(name), Some(text)) => {
                logs.insert(name.to_owned(), text.to_owned());
            }
            _ => {}
        }
    }
    assert!(console.contains("cgroup2 /sys/fs/cgroup cgroup2"), "{console}");
    assert_eq!(reports.len(), 10, "{console}");
    let row = |name: &str, check: &str| {
        let rows = reports[name]["verified"]["containers"][0]["rows"].as_array().cloned().unwrap_or_default();
        rows.into_iter()
            .find(|row| row["check"] == check)
            .unwrap_or_else(|| panic!("{name}: {check}\n{console}"))
    };
    for (name, label, touched) in [
        ("localhost", "palisade-lab (enforce)", "rc=1"),
        ("default", "cri-containerd.apparmor.d (enforce)", "rc=0"),
        ("unconfined", "unconfined", "rc=0"),
        ("unset", "cri-containerd.apparmor.d (enforce)", "rc=0"),
        ("privileged", "palisade-lab (enforce)", "rc=1"),
        ("both", "palisade-lab (enforce)", "rc=1"),
    ] {
        assert_eq!(row(name, "appArmor")["kernel"], label, "{name}");
        assert_eq!(row(name, "appArmor")["ok"], true, "{name}");
        assert!(logs[name].contains(label) && logs[name].contains(touched), "{name}: {}", logs[name]);
    }
    assert!(logs["both"].contains("mkdir=1"), "seccomp and AppArmor together: {}", logs["both"]);
    assert_eq!(row("both", "seccomp")["kernel"], "filter, 1 filter");
    profiles_of_namespaces_are_loaded_and_removed(&console, &logs);
    for (name, label, is_enforced) in [
        ("ns-web", "palisade/shop/web (enforce)", true),
        // What is only logged is never called enforced.
        ("ns-log", "palisade/lab/log//null-/bin/busybox (complain)", false),
        ("ns-open", "palisade/shop/open (enforce)", true),
    ] {
        let found = row(name, "appArmor");
        assert_eq!((&found["kernel"], &found["ok"]), (&json!(label), &json!(is_enforced)), "{name}");
    }
    let waiting = &reports["missing"]["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(
        (waiting["reason"].as_str(), waiting["message"].as_str()),
        (
            Some("CreateContainerError"),
            Some(
                "failed to get container spec opts: failed to generate apparmor spec opts: apparmor profile not found absent"
            )
        )
    );
}

/// What a console line after a word is.
fn line<'c>(console: &'c str, word: &str) -> &'c str {
    let found = console.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {word}: {console}"))
}

fn profiles_of_namespaces_are_loaded_and_removed(console: &str, logs: &BTreeMap<String, String>) {
    let all = "palisade/lab/log (complain);palisade/shop/open (enforce);palisade/shop/web (enforce);";
    assert_eq!(line(console, "LOADED"), all);
    let states = |word: &str| -> Vec<String> {
        let status: Value = serde_json::from_str(line(console, word)).unwrap();
        let rows = status["appArmorProfiles"].as_array().unwrap().clone();
        rows.iter()
            .map(|row| format!("{} {}", row["state"].as_str().unwrap(), row["name"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(states("ROWS"), ["Rejected bad", "Rejected loose", "Loaded log", "Loaded open", "Loaded web"]);
    // The rules of the object, and the denials of the default profile whatever the rules are.
    assert!(logs["ns-web"].contains("rc=1") && logs["ns-web"].contains("mkdir=0"), "{}", logs["ns-web"]);
    let mount = "/mnt failed: Permission denied";
    assert!(logs["ns-open"].contains("rc=0") && logs["ns-open"].contains(mount), "{}", logs["ns-open"]);
    // What is only logged.
    assert!(logs["ns-log"].contains("rc=0") && logs["ns-log"].contains("mkdir=0"), "{}", logs["ns-log"]);
    assert_eq!(line(console, "KEPT"), all, "a container runs with it");
    assert!(states("REMOVING").contains(&"Removing web".to_owned()), "{console}");
    assert_eq!(line(console, "LEFT"), "palisade/lab/log (complain);palisade/shop/open (enforce);");
}
