//! Measurements, never tests: a table on the terminal and in BENCHMARKS.md, with the machine named.
//!
//! Whatever is compared is measured in one run. Each figure is the best of several rounds, which is the one least
//! disturbed by whatever else the machine does.

use std::{
    borrow::Cow,
    fmt::Write as _,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use palisade_admission::{
    admission_review::{PodSecurityFacts, Review, ReviewFacts},
    pod_security::{ExceptionFacts, PodSecurity},
};
use palisade_model::{compat::Compat, metadata::StringMap, pod::Pod, prepare::Prepared};
use palisade_policy::standards::{
    evaluator::Evaluator,
    level::{Level, LevelVersion, Version},
    namespace::{ExistingPods, Limit},
    policy::{Exemptions, Policy},
};

use serde_json::Value;

use crate::{
    Failure,
    process::{cargo, exists, output, run},
    root, setup,
};

const ROUNDS: usize = 7;
const FILES: usize = 10_000;
const PODS: usize = 100_000;

/// A pod as people deploy it that passes restricted.
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-5d8f7c9b4-x2x9k","namespace":"shop","labels":{"app":"web","pod-template-hash":"5d8f7c9b4"},"annotations":{"prometheus.io/scrape":"true"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d8f7c9b4","uid":"9c6f7e3a-8f1e-4a3e-9d53-0f1a2b3c4d5e","controller":true}]},"spec":{"serviceAccountName":"web","securityContext":{"runAsNonRoot":true,"runAsUser":10001,"fsGroup":10001,"seccompProfile":{"type":"RuntimeDefault"}},"initContainers":[{"name":"migrate","image":"registry.example/shop/migrate:1.4.2","command":["/migrate"],"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}],"containers":[{"name":"web","image":"registry.example/shop/web:1.4.2","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"DATABASE_URL","valueFrom":{"secretKeyRef":{"name":"db","key":"url"}}}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"256Mi"}},"readinessProbe":{"httpGet":{"path":"/ready","port":8080}},"livenessProbe":{"httpGet":{"path":"/healthz","port":8080}},"securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}},"volumeMounts":[{"name":"tmp","mountPath":"/tmp"},{"name":"config","mountPath":"/etc/web"}]},{"name":"proxy","image":"registry.example/mesh/proxy:2.1.0","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}],"volumes":[{"name":"tmp","emptyDir":{}},{"name":"config","configMap":{"name":"web"}},{"name":"token","projected":{"sources":[]}}]}}"#;

struct Line {
    what: Cow<'static, str>,
    figure: String,
    target: Cow<'static, str>,
    met: bool,
}

/// Measures in a release build and writes the table.
pub(crate) fn run_bench() -> Result<(), Failure> {
    if cfg!(debug_assertions) {
        build("--examples", &[])?;
        return run(&mut cargo(&["run", "--release", "--quiet", "--package", "xtask", "--", "bench"]));
    }
    let mut lines = Vec::new();
    evaluation(&mut lines)?;
    review(&mut lines)?;
    namespace(&mut lines)?;
    command_line(&mut lines)?;
    rollout(&mut lines)?;
    // What is known is written down before the longest part begins.
    write_table(&lines)?;
    server(&mut lines)?;
    write_table(&lines)?;
    webhook(&mut lines)?;
    write_table(&lines)?;
    node(&mut lines)?;
    report(&lines)
}

/// The heading of the part of the page that a run of its own writes.
const AGAINST: &str = "\n## Against Kubernetes\n";

/// Measures side by side with a real kube-apiserver and writes its part of the page.
pub(crate) fn run_against_kubernetes() -> Result<(), Failure> {
    let script = root().join("../shared/kubernetes/cluster");
    if !script.is_file() {
        return Err(Failure(
            "NOT MEASURED: there is no kube-apiserver to compare with; it takes ../shared/kubernetes"
                .to_owned(),
        ));
    }
    setup::need_api_server()?;
    build("--example", &["measure"])?;
    // Unpacked once, and found again by the tests.
    let binaries = root().join("target/kubernetes");
    fs::create_dir_all(&binaries).map_err(|error| Failure(error.to_string()))?;
    let mut command = Command::new(root().join("target/release/examples/measure"));
    command.arg(root().join("target/release/palisade")).arg("kubernetes").arg(script);
    command.env("KUBERNETES_BINARIES", binaries).current_dir(root());
    let lines = printed_lines(&output(&mut command)?)?;
    let table = render_table(&lines);
    let page =
        fs::read_to_string(root().join("BENCHMARKS.md")).map_err(|error| Failure(error.to_string()))?;
    let others = page.split_once(AGAINST).map_or(page.as_str(), |(others, _)| others).trim_end();
    let text = format!(
        "{others}\n{AGAINST}\nMade by `cargo xtask bench --against-kubernetes` on {}: `palisade up --data-dir` and kube-apiserver v1.37 with \
         its etcd, in turns in one run, the load on the same cores. Both store durably, write an audit log and run without controllers. CPU is \
         that of the server's processes for each request or event, memory is resident; each figure is the best of three rounds.\n\n{table}",
        machine()
    );
    fs::write(root().join("BENCHMARKS.md"), text).map_err(|error| Failure(error.to_string()))?;
    println!("{table}");
    if lines.iter().all(|line| line.met) { Ok(()) } else { Err(Failure("a target is missed".to_owned())) }
}

/// Builds the program alone, with the features it is shipped with, and what measures together.
fn build(what: &str, names: &[&str]) -> Result<(), Failure> {
    run(&mut cargo(&["build", "--release", "--quiet", "--bin", "palisade"]))?;
    run(cargo(&["build", "--release", "--quiet", "--workspace", what]).args(names))
}

/// The best time of one call, over several rounds of many calls.
fn best(calls: u32, mut call: impl FnMut()) -> Duration {
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed() / calls
    };
    (0..ROUNDS).map(|_| round(&mut call)).min().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn evaluation(lines: &mut Vec<Line>) -> Result<(), Failure> {
    let pod: Pod<'_> = serde_json::from_str(POD).map_err(|error| Failure(error.to_string()))?;
    let evaluator = Evaluator::default();
    let view = Prepared::stored(pod, &Compat::designs());
    let policy = LevelVersion::new(Level::Restricted, Version::Latest);
    if !evaluator.evaluate(policy, &view).allowed() {
        return Err(Failure("the pod of the benchmark does not pass".to_owned()));
    }
    let time = best(200_000, || {
        std::hint::black_box(evaluator.evaluate(policy, std::hint::black_box(&view)));
    });
    let allocations = allocation_counter::measure(|| {
        std::hint::black_box(evaluator.evaluate(policy, &view));
    })
    .count_total;
    lines.push(Line {
        what: "a parsed pod that passes, judged at restricted".into(),
        figure: format!("{:.3} us, {allocations} allocations", micros(time)),
        target: "0.6 us, 4 allocations".into(),
        met: micros(time) <= 0.6 && allocations <= 4,
    });
    let parse = best(20_000, || {
        std::hint::black_box(serde_json::from_str::<Pod<'_>>(std::hint::black_box(POD)).is_ok());
    });
    let allocations = allocation_counter::measure(|| {
        std::hint::black_box(serde_json::from_str::<Pod<'_>>(POD).is_ok());
    })
    .count_total;
    lines.push(Line {
        what: "reading that pod from JSON".into(),
        figure: format!("{:.2} us, {allocations} allocations", micros(parse)),
        target: "".into(),
        met: true,
    });
    Ok(())
}

fn review(lines: &mut Vec<Line>) -> Result<(), Failure> {
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002","kind":{{"group":"","version":"v1","kind":"Pod"}},"resource":{{"group":"","version":"v1","resource":"pods"}},"name":"web-5d8f7c9b4-x2x9k","namespace":"shop","operation":"CREATE","userInfo":{{"username":"system:serviceaccount:kube-system:replicaset-controller","groups":["system:serviceaccounts","system:authenticated"]}},"object":{POD},"oldObject":null,"dryRun":false}}}}"#
    );
    let security = PodSecurity {
        evaluator: Evaluator::default(),
        defaults: Policy::default(),
        exemptions: Exemptions::default(),
    };
    let labels: StringMap<'_> =
        [("pod-security.kubernetes.io/enforce".into(), "restricted".into())].into_iter().collect();
    let reading = Compat::kubernetes(palisade_base::version::NEWEST_MINOR);
    let answer = || -> Option<Vec<u8>> {
        let review = Review::parse(std::hint::black_box(body.as_bytes())).ok()?;
        let response = review.answer(
            &security,
            &reading,
            ReviewFacts {
                pod_security: &PodSecurityFacts::Namespace(Ok(&labels)),
                future: None,
                exceptions: ExceptionFacts::NONE,
            },
            Limit::None,
            || false,
        );
        response.to_bytes(&review.uid).ok()
    };
    let answered =
        answer().ok_or_else(|| Failure("the review of the benchmark is not answered".to_owned()))?;
    if !String::from_utf8_lossy(&answered).contains("\"allowed\":true") {
        return Err(Failure("the review of the benchmark is refused".to_owned()));
    }
    let time = best(20_000, || {
        std::hint::black_box(answer());
    });
    let allocations = allocation_counter::measure(|| {
        std::hint::black_box(answer());
    })
    .count_total;
    lines.push(Line {
        what: "AdmissionReview, bytes to verdict bytes".into(),
        figure: format!("{:.2} us, {allocations} allocations", micros(time)),
        target: "".into(),
        met: true,
    });
    Ok(())
}

fn namespace(lines: &mut Vec<Line>) -> Result<(), Failure> {
    let names: Vec<String> = (0..PODS)
        .map(|index| {
            let privileged = index % 3 == 0;
            POD.replacen("web-5d8f7c9b4-x2x9k", &format!("web-{index}"), 1)
                .replacen("\"controller\":true", "\"controller\":false", 1)
                .replacen("\"readOnlyRootFilesystem\":true", &format!("\"privileged\":{privileged}"), 1)
        })
        .collect();
    let pods: Vec<Prepared<'_>> = names
        .iter()
        .filter_map(|json| serde_json::from_str(json).ok())
        .map(|pod| Prepared::stored(pod, &Compat::designs()))
        .collect();
    let evaluator = Evaluator::default();
    let exemptions = Exemptions::default();
    let policy = LevelVersion::new(Level::Restricted, Version::Latest);
    let mut found = 0;
    let time = best(1, || {
        let existing = ExistingPods::new(&evaluator, &exemptions, policy, Limit::None);
        found = existing.warnings("shop", &pods, || false).len();
    });
    if found != 2 {
        return Err(Failure(format!("{found} warnings instead of 2")));
    }
    lines.push(Line {
        what: "100,000 pods of a namespace judged, a third of them refused".into(),
        figure: format!("{:.0} ms", time.as_secs_f64() * 1e3),
        target: "1 s".into(),
        met: time < Duration::from_secs(1),
    });
    Ok(())
}

fn command_line(lines: &mut Vec<Line>) -> Result<(), Failure> {
    let palisade = root().join("target/release/palisade");
    let folder = tempfile::tempdir().map_err(|error| Failure(error.to_string()))?;
    write_manifests(folder.path())?;
    let mut check = Command::new(&palisade);
    check.args(["check", "--level=restricted", "-o", "json"]).arg(folder.path());
    let (mut fastest, mut memory) = (Duration::MAX, 0);
    for _ in 0..ROUNDS {
        let (time, peak) = timed(&mut check)?;
        fastest = fastest.min(time);
        memory = memory.max(peak);
    }
    let rate = f64::from(u32::try_from(FILES).unwrap_or(u32::MAX)) / fastest.as_secs_f64();
    lines.push(Line {
        what: "10,000 one-pod files through check".into(),
        figure: format!("{rate:.0} files/s, {} MB", memory / 1024),
        target: "10,000 files/s, 100 MB".into(),
        met: rate > 10_000.0 && memory < 100 * 1024,
    });
    let one = folder.path().join("pod-0.yaml");
    let mut start = Command::new(&palisade);
    start.args(["check", "--level=baseline"]).arg(one);
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..21 {
        times.push(timed(&mut start)?.0);
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    lines.push(Line {
        what: "check of one file, from start to exit".into(),
        figure: format!("{:.1} ms", median.as_secs_f64() * 1e3),
        target: "10 ms".into(),
        met: median < Duration::from_millis(10),
    });
    Ok(())
}

/// The embedded API server, measured from outside by a program over TLS.
fn server(lines: &mut Vec<Line>) -> Result<(), Failure> {
    example(lines, "allocations", &[])?;
    example(lines, "measure", &[root().join("target/release/palisade")])
}

/// The webhook, likewise.
fn webhook(lines: &mut Vec<Line>) -> Result<(), Failure> {
    example(lines, "reviews", &[root().join("target/release/palisade")])
}

/// The readiness of a cluster with a million pods.
fn rollout(lines: &mut Vec<Line>) -> Result<(), Failure> {
    example(lines, "rollout_measure", &[])
}

/// Figures that an example of a crate prints: what, figure, target, whether it is met, separated by tabs.
fn example(lines: &mut Vec<Line>, name: &str, arguments: &[std::path::PathBuf]) -> Result<(), Failure> {
    let program = root().join("target/release/examples").join(name);
    let printed = output(Command::new(program).args(arguments).current_dir(root()))?;
    lines.extend(printed_lines(&printed)?);
    Ok(())
}

fn printed_lines(printed: &str) -> Result<Vec<Line>, Failure> {
    let line = |line: &str| {
        let [what, figure, target, met] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(Failure(format!("cannot read the line: {line}")));
        };
        let (what, target) = (what.to_owned().into(), target.to_owned().into());
        Ok(Line { what, figure: figure.to_owned(), target, met: met == "true" })
    };
    printed.lines().map(line).collect()
}

/// The node on a real runtime, where there is one: only root can measure it.
fn node(lines: &mut Vec<Line>) -> Result<(), Failure> {
    if !setup::is_root() || !exists("containerd") {
        println!("NOT MEASURED: the node; it takes root and containerd");
        return Ok(());
    }
    let start = measured("measures_the_start_of_a_pod")?;
    let memory = measured("the_agent_is_small")?;
    let recordings = measured("measures_recordings")?;
    let number = |figures: &Value, key: &str| figures.get(key).and_then(Value::as_f64).unwrap_or(f64::MAX);
    let (idle, busy) = (number(&memory, "idleMemoryKB") / 1024.0, number(&memory, "memoryKB") / 1024.0);
    let recorded = number(&recordings, "whole");
    let longest = number(&recordings, "longestUs") / 1000.0;
    let (call, plain) = (number(&recordings, "recordedUs"), number(&recordings, "plainUs"));
    let (whole, added) = (number(&start, "startMs"), number(&start, "addedStartMs"));
    for (what, figure, target, met) in [
        ("node agent, idle", format!("{idle:.1} MB"), "15 MB", idle < 15.0),
        ("node agent with 100 pods", format!("{busy:.1} MB"), "40 MB", busy < 40.0),
        (
            "start of a pod, over the runtime's own time",
            format!("{added:.1} ms of {whole:.0} ms"),
            "20 ms",
            added < 20.0,
        ),
        (
            "programs of 300 system calls that end at once, recorded whole",
            format!("{recorded} of 1000, the calls in at most {longest:.0} ms"),
            "1000 of 1000",
            (recorded - 1000.0).abs() < 0.5,
        ),
        ("a system call that is recorded", format!("{call:.1} us, {plain:.2} us without"), "", true),
    ] {
        lines.push(Line { what: what.into(), figure, target: target.into(), met });
    }
    Ok(())
}

/// What a measurement among the tests on a real runtime prints.
fn measured(test: &str) -> Result<Value, Failure> {
    let printed = output(&mut cargo(&[
        "nextest",
        "run",
        "--release",
        "--workspace",
        "--profile",
        "bench",
        "--no-capture",
        // The others are not measured and take minutes each to link.
        "--test",
        "system",
        test,
    ]))?;
    let figures =
        printed.lines().find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object));
    figures.ok_or_else(|| Failure(format!("{test} printed no figures")))
}

fn write_manifests(folder: &Path) -> Result<(), Failure> {
    let manifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: NAME\n  namespace: shop\n  labels:\n    app: web\n  annotations:\n    prometheus.io/scrape: \"true\"\nspec:\n  # Nothing here runs as root.\n  securityContext:\n    runAsNonRoot: true\n    seccompProfile:\n      type: RuntimeDefault\n  containers:\n  - name: web\n    image: registry.example/shop/web:1.4.2\n    ports:\n    - name: http\n      containerPort: 8080\n    env:\n    - name: DATABASE_URL\n      valueFrom:\n        secretKeyRef:\n          name: db\n          key: url\n    resources:\n      requests: {cpu: 100m, memory: 128Mi}\n      limits: {memory: 256Mi}\n    readinessProbe:\n      httpGet:\n        path: /ready\n        port: 8080\n    securityContext:\n      allowPrivilegeEscalation: false\n      readOnlyRootFilesystem: true\n      capabilities:\n        drop: [ALL]\n    volumeMounts:\n    - name: tmp\n      mountPath: /tmp\n  volumes:\n  - name: tmp\n    emptyDir: {}\n";
    for index in 0..FILES {
        // One in ten is refused, so that findings are made and reported as well.
        let mut text = manifest.replace("NAME", &format!("web-{index}"));
        if index % 10 == 0 {
            text = text.replace("readOnlyRootFilesystem: true", "privileged: true");
        }
        fs::write(folder.join(format!("pod-{index}.yaml")), text)
            .map_err(|error| Failure(error.to_string()))?;
    }
    Ok(())
}

/// Runs a command without its output; how long it took, and its largest resident size in KiB.
fn timed(command: &mut Command) -> Result<(Duration, u64), Failure> {
    let start = Instant::now();
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).spawn();
    let mut child = child.map_err(|error| Failure(format!("cannot run palisade: {error}")))?;
    let mut peak = 0;
    loop {
        peak = peak.max(peak_memory(&child));
        match child.try_wait().map_err(|error| Failure(error.to_string()))? {
            Some(_) => return Ok((start.elapsed(), peak)),
            None => thread::sleep(Duration::from_micros(200)),
        }
    }
}

fn peak_memory(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn report(lines: &[Line]) -> Result<(), Failure> {
    println!("{}", write_table(lines)?);
    if lines.iter().all(|line| line.met) { Ok(()) } else { Err(Failure("a target is missed".to_owned())) }
}

fn render_table(lines: &[Line]) -> String {
    let mut table = String::from("| what | measured | target | |\n| --- | --- | --- | --- |\n");
    for line in lines {
        let mark = if line.target.is_empty() {
            ""
        } else if line.met {
            "met"
        } else {
            "MISSED"
        };
        let _ = writeln!(table, "| {} | {} | {} | {mark} |", line.what, line.figure, line.target);
    }
    table
}

fn write_table(lines: &[Line]) -> Result<String, Failure> {
    let table = render_table(lines);
    let path = root().join("BENCHMARKS.md");
    let page = fs::read_to_string(&path).map_err(|error| Failure(error.to_string()))?;
    let against = page.split_once(AGAINST).map(|(_, rest)| format!("{AGAINST}{rest}")).unwrap_or_default();
    let text = format!(
        "# Benchmarks\n\nMade by `cargo xtask bench` on {}. Each figure is the best of {ROUNDS} rounds (start-up and readiness: the \
         median), since the best is the one least disturbed by other work on the machine.\n\n{table}{against}",
        machine()
    );
    fs::write(path, text).map_err(|error| Failure(error.to_string()))?;
    Ok(table)
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} with {cores} cores, Linux {}", model.unwrap_or("an unknown processor").trim(), kernel.trim())
}
