//! Recordings against the kernel and a real runtime: what is called is recorded, what is recorded is enough to run, and what is
//! missing is reported.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use palisade_model::{
    pod_view::ContainerKind,
    profile::{
        algebra::Strictness,
        architecture::Architecture,
        filter::Filter,
        recording::{Phase, Recording, unconfined},
        syscalls::Syscall,
    },
};
use palisade_node::{
    api::PodKey,
    kernel::seccomp::recorded_in_vain,
    pod::RunPod,
    profiles::baseline::Bounds,
    recording::{Recordable, Recorder},
};
use palisade_testkit::{
    images::{self, Image},
    shared,
};
use serde_json::{Value, json};

use crate::{
    lab::{IMAGE, Lab, designs, sleeper},
    resilience::example,
};

const MACHINE: Architecture = Architecture::COMMON;

/// A process that makes calls under a profile, and hands its listener to a recorder as runc does.
fn caller(socket: &str, token: &str, profile: &str, count: usize, rounds: usize) -> Child {
    let mut child = Command::new(example("recorded_calls"))
        .args([socket, token, &count.to_string(), &rounds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(profile.as_bytes()).unwrap();
    child
}

/// How long the calls took, in microseconds, and how many failed with ENOSYS in the end.
fn result(child: Child) -> (u64, u64) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let (time, missing) = text.trim().split_once(' ').unwrap();
    (time.parse().unwrap(), missing.parse().unwrap())
}

fn pod() -> PodKey {
    PodKey { namespace: "default".to_owned(), name: "p".to_owned(), uid: "u".to_owned() }
}

fn recordable(pod: &PodKey, kind: ContainerKind) -> Recordable<'_> {
    Recordable { pod, container: "c", kind, has_probes: false }
}

/// The names of the first calls that the caller makes and a recorder sees.
fn seen_calls(count: usize) -> BTreeSet<&'static str> {
    let names: BTreeSet<_> = recorded_in_vain().take(count).map(Syscall::name).collect();
    assert_eq!(names.len(), count);
    names
}

/// `cargo xtask bench` records a thousand of them.
#[test]
fn three_hundred_calls_of_a_short_process_are_recorded_whole() {
    let (whole, longest) = record_whole(50);
    println!("{whole} of 50 recorded whole, 300 calls in at most {longest} µs");
}

/// How many recordings of 300 calls are whole, and the longest time that the calls took.
fn record_whole(runs: usize) -> (usize, u64) {
    let planned = seen_calls(300);
    let folder = tempfile::tempdir().unwrap();
    let base = unconfined(MACHINE).unwrap();
    let (mut whole, mut longest) = (0, 0);
    for run in 0..runs {
        let journal = folder.path().join(run.to_string());
        let recorder = Recorder::start(&folder.path().join("sockets"), &journal).unwrap();
        let (profile, token) = recorder.plan(recordable(&pod(), ContainerKind::App), &base).unwrap();
        let socket = recorder.socket().to_str().unwrap();
        let (time, _) = result(caller(socket, &token, &profile.to_oci().to_string(), 300, 1));
        let recording = recorder.finish();
        let calls = recording.calls();
        let missing: Vec<_> = planned.iter().filter(|name| !calls.contains(*name)).collect();
        assert!(missing.is_empty() && recording.is_complete(), "{missing:?} {}", recording.statement(None));
        let written = fs::read_to_string(&journal).unwrap();
        assert_eq!(Recording::replay(&written).unwrap(), recording, "the journal is the recording");
        whole += 1;
        longest = longest.max(time);
    }
    (whole, longest)
}

/// The time of a call with the profile that `of` makes of that of a recorder, in microseconds.
fn time_of_call(of: impl Fn(Filter) -> Filter) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let base = unconfined(MACHINE).unwrap();
    let recorder = Recorder::resume(&folder.path().join("sockets"), &folder.path().join("journal")).unwrap();
    let (profile, token) = recorder.plan(recordable(&pod(), ContainerKind::App), &base).unwrap();
    let rounds = 50;
    let profile = of(profile).to_oci().to_string();
    let (time, _) = result(caller(recorder.socket().to_str().unwrap(), &token, &profile, 300, rounds));
    std::time::Duration::from_micros(time).as_secs_f64() * 1e6
        / f64::from(300 * u16::try_from(rounds).unwrap())
}

/// What recording costs: a measurement for `cargo xtask bench`, which reads what is printed here.
#[test]
fn measures_recordings() {
    let (whole, longest) = record_whole(1000);
    let best = |time: &dyn Fn() -> f64| (0..5).map(|_| time()).fold(f64::MAX, f64::min);
    let recorded = best(&|| time_of_call(|profile| profile));
    let plain = best(&|| time_of_call(|_| unconfined(MACHINE).unwrap()));
    println!("{}", json!({"whole": whole, "longestUs": longest, "recordedUs": recorded, "plainUs": plain}));
    assert_eq!(whole, 1000);
}

#[test]
fn a_recorder_that_is_killed_leaves_a_lossy_recording() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mut recorder = Command::new(example("recorder"))
        .args([&folder.path().join("sockets"), &journal])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(recorder.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (socket, token, profile) = (lines.next().unwrap(), lines.next().unwrap(), lines.next().unwrap());
    let child = caller(&socket, &token, &profile, 100, 20_000);
    // In the middle: something was recorded, and the process calls on.
    while fs::read_to_string(&journal).unwrap().lines().count() < 50 {
        std::thread::yield_now();
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let (_, missing) = result(child);
    assert!(missing > 90, "{missing} of 100 calls fail with ENOSYS");
    let recording = Recording::replay(&fs::read_to_string(&journal).unwrap()).unwrap();
    let statement = recording.statement(None);
    assert_eq!(statement["complete"], false);
    assert_eq!(
        statement["lossy"][0],
        "the recorder ended before the containers did: their later calls failed with ENOSYS"
    );
    // A second one does not write over it.
    let error = Recorder::start(&folder.path().join("sockets"), &journal).unwrap_err().to_string();
    assert!(error.contains("did not end"), "{error}");
}

#[test]
fn a_recorder_serves_what_it_planned_and_denies_what_the_profile_denies() {
    let folder = tempfile::tempdir().unwrap();
    let sockets = folder.path().join("sockets");
    let recorder = Arc::new(Recorder::start(&sockets, &folder.path().join("journal")).unwrap());
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&sockets).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let names: Vec<&str> = seen_calls(20).into_iter().collect();
    let denied = json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [{"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]});
    let base = Filter::read(&denied).unwrap();
    let (profile, token) = recorder.plan(recordable(&pod(), ContainerKind::Init), &base).unwrap();
    let socket = recorder.socket().to_str().unwrap();
    let profile = profile.to_oci().to_string();
    // Without the token there is no recorder: every call fails, and none is recorded.
    let (_, missing) = result(caller(socket, "guessed", &profile, 40, 1));
    assert_eq!(missing, 40);
    assert_eq!(recorder.so_far().calls().len(), 0);
    let (_, missing) = result(caller(socket, &token, &profile, 40, 1));
    // A few others are calls that no kernel has any more.
    assert!((20..30).contains(&missing), "the kernel denies what the profile denies: {missing}");
    let recording = recorder.finish();
    assert!(names.iter().all(|name| !recording.calls().contains(name)), "and the recorder does not see it");
    assert!(recording.calls_in(Phase::Runtime).len() >= 20, "{}", recording.statement(None));
    let profile = recording.profile().unwrap();
    assert_eq!(profile.at_least_as_strict_as(&base, Strictness::Access), Ok(None));
    let gone = recorder.socket().to_owned();
    drop(recorder);
    assert!(!Path::new(&gone).exists());
}

/// Records a pod from its start to its end while `work` uses it; then runs it with the profile that was recorded, and `work` again.
async fn recorded_then_enforced(lab: &Lab, pod: Value, work: impl AsyncFn(&Lab, &RunPod)) -> Recording {
    let journal = lab.folder.path().join("journal");
    let recorder = Arc::new(Recorder::start(&lab.root.join("recorder"), &journal).unwrap());
    lab.node.recordings.record_all(Arc::clone(&recorder));
    let first = lab.apply(pod.clone());
    work(lab, &first).await;
    lab.source.delete(&first.key.uid, Some(2));
    lab.until_gone(&first).await;
    lab.node.recordings.stop(&recorder);
    let recording = recorder.finish();
    assert_eq!(Recording::replay(&fs::read_to_string(&journal).unwrap()).unwrap(), recording);
    assert!(recording.is_complete(), "{:#}", recording.statement(None));

    let profile = recording.profile().unwrap();
    let features = lab.node.features();
    let default = Bounds::of_usual_container(&features).runtime_default().unwrap();
    assert_eq!(profile.at_least_as_strict_as(&default, Strictness::Access), Ok(None));
    lab.put_profile("recorded", "p.json", &profile.to_oci().to_string());
    let mut enforced = pod;
    enforced["metadata"]["name"] = json!("enforced");
    enforced["spec"]["securityContext"]["seccompProfile"] =
        json!({"type": "ConfigMap", "configMapProfile": "recorded/p.json"});
    let second = lab.apply(enforced);
    work(lab, &second).await;
    lab.delete(&second).await;
    recording
}

fn restricted_pod(name: &str, containers: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"hostNetwork": true, "terminationGracePeriodSeconds": 2, "restartPolicy": "Never",
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1000, "runAsNonRoot": true},
            "containers": containers}})
}

fn restricted() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn get(port: u16, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    std::io::read_to_string(stream).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_server_runs_with_its_profile_and_can_do_nothing_else() {
    let lab = Lab::new(designs());
    let port = free_port();
    let mut pod = restricted_pod(
        "server",
        json!([{"name": "c", "image": IMAGE, "securityContext": restricted(),
            "command": ["sh", "-c", format!("httpd -p {port} -h /www; trap 'rm /www/index.html; exit 0' TERM; sleep 600 & wait")],
            "volumeMounts": [{"name": "www", "mountPath": "/www"}],
            "readinessProbe": {"periodSeconds": 1, "exec": {"command": ["wget", "-q", "-O", "/dev/null", format!("http://127.0.0.1:{port}/index.html")]}}}]),
    );
    pod["spec"]["volumes"] = json!([{"name": "www", "emptyDir": {}}]);
    pod["spec"]["initContainers"] = json!([{"name": "i", "image": IMAGE, "securityContext": restricted(),
        "command": ["sh", "-c", "echo served > /www/index.html; chmod 644 /www/index.html"],
        "volumeMounts": [{"name": "www", "mountPath": "/www"}]}]);
    let recording = recorded_then_enforced(&lab, pod, async |lab, pod| {
        let ready = |status: &Value| status["containerStatuses"][0]["ready"] == true;
        lab.until(pod, "ready", ready).await;
        let page = tokio::task::spawn_blocking(move || get(port, "/index.html")).await.unwrap();
        assert!(page.contains("served"), "{page}");
        let (code, text) = lab.exec(pod, "c", "cat /www/index.html").await;
        assert_eq!((code, text.trim()), (0, "served"));
        if pod.key.name == "enforced" {
            let (code, text) = lab.exec(pod, "c", "mkdir /www/x").await;
            assert!(code != 0 && text.contains("not permitted"), "{text}");
        }
    })
    .await;
    println!("{:#}", recording.statement(None));
    assert_eq!(recording.containers().collect::<Vec<_>>(), ["c", "i"]);
    for (phase, call) in [
        (Phase::Runtime, "execve"),
        (Phase::Init, "openat"),
        (Phase::Start, "bind"),
        (Phase::Probe, "connect"),
        (Phase::Exec, "openat"),
        (Phase::Shutdown, "unlink"),
    ] {
        let calls = recording.calls_in(phase);
        assert!(calls.contains(call), "{phase:?} {calls:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_script_with_many_processes_runs_with_its_profile() {
    let lab = Lab::new(designs());
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (echo $i | cat | grep -q $i && mkdir /tmp/d$i && touch /tmp/d$i/f) & done; \
        wait; [ $(ls -d /tmp/d*/f | grep -c f) = 20 ] && rm -r /tmp/d1 && id > /tmp/id && echo all > /dev/termination-log";
    let pod = restricted_pod(
        "script",
        json!([{"name": "c", "image": IMAGE, "securityContext": restricted(), "command": ["sh", "-c", script]}]),
    );
    recorded_then_enforced(&lab, pod, async |lab, pod| {
        let ended = |status: &Value| matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
        let status = lab.until(pod, "ended", ended).await;
        let log =
            fs::read_dir(lab.root.join("logs")).unwrap().flatten().next().unwrap().path().join("c/0.log");
        let log = fs::read_to_string(log).unwrap();
        assert_eq!((&status["phase"], log.as_str()), (&json!("Succeeded"), ""), "{status:#}");
        assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["message"], "all\n", "{status:#}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_go_program_runs_with_its_profile() {
    let Some(material) = shared("kubernetes") else { return };
    let lab = Lab::new(designs());
    let program = lab.folder.path().join("agnhost");
    let unpacked = Command::new("xz")
        .args(["-dc".as_ref(), material.join("agnhost.xz").as_os_str()])
        .stdout(fs::File::create(&program).unwrap())
        .status()
        .unwrap();
    assert!(unpacked.success());
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let image = Image {
        name: "localhost/agnhost:1",
        entrypoint: &["/agnhost"],
        files: vec![(program, "/agnhost".into())],
        ..Image::default()
    };
    lab.containerd.import(&images::write(lab.folder.path(), &image));
    let (port, udp) = (free_port(), free_port());
    let arguments = [format!("--http-port={port}"), format!("--udp-port={udp}")];
    let pod = restricted_pod(
        "go",
        json!([{"name": "c", "image": "localhost/agnhost:1", "securityContext": restricted(),
            "args": ["netexec", arguments[0], arguments[1]],
            "readinessProbe": {"periodSeconds": 1, "httpGet": {"path": "/healthz", "port": port, "host": "127.0.0.1"}}}]),
    );
    let recording = recorded_then_enforced(&lab, pod, async |lab, pod| {
        let ready = |status: &Value| status["containerStatuses"][0]["ready"] == true;
        lab.until(pod, "ready", ready).await;
        for (path, expected) in [("/echo?msg=recorded", "recorded"), ("/shell?cmd=id", "uid=1000")] {
            let page = tokio::task::spawn_blocking(move || get(port, path)).await.unwrap();
            assert!(page.contains(expected), "{page}");
        }
    })
    .await;
    println!("{} calls, {}", recording.calls().len(), recording.statement(None)["phases"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recorded_runs_and_is_reported() {
    let lab = Lab::new(designs());
    fs::write(
        lab.root.join("seccomp/listener.json"),
        json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/nonexistent",
            "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_NOTIFY"}]})
        .to_string(),
    )
    .unwrap();
    let journal = lab.folder.path().join("journal");
    let recorder = Arc::new(Recorder::start(&lab.root.join("recorder"), &journal).unwrap());
    lab.node.recordings.record_all(Arc::clone(&recorder));
    let privileged = lab.apply(sleeper("privileged", json!({}), json!({"privileged": true})));
    let unconfined = lab.apply(sleeper("unconfined", json!({}), json!({})));
    lab.until_running(&privileged).await;
    lab.until_running(&unconfined).await;
    assert_eq!(lab.kernel(&unconfined, "c").await.seccomp_mode, 2);
    // A call that the runtime's default denies is made, recorded and reported.
    let (code, text) = lab.exec(&unconfined, "c", "unshare -U true").await;
    assert_eq!(code, 0, "{text}");
    let recording = recorder.finish();
    let bounds = Bounds::of_usual_container(&lab.node.features());
    let statement = recording.statement(Some(&bounds.runtime_default().unwrap()));
    assert_eq!(
        statement["lossy"],
        json!(["container \"c\" is not recorded: runtimes apply no profile to privileged containers"])
    );
    let beyond = statement["beyondRuntimeDefault"].to_string();
    assert!(beyond.contains("unshare(0x10000000)"), "{beyond}");
    // What runs is served on.
    assert_eq!(lab.exec(&unconfined, "c", "mkdir /tmp/later").await.0, 0);
}
