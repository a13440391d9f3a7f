//! Side by side with a real kube-apiserver and its etcd, on the same machine in the same run: the same requests in turns.
//!
//! Both store durably, write an audit log and run without controllers. CPU and memory are those of all processes of a server, as the
//! kernel reports them; the load is made on the same processors. Each figure is the best of the rounds.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use tokio::sync::Barrier;
use tokio_rustls::TlsConnector;

use super::definitions::Print;
use super::{CONNECTIONS, Failure, Up, administrator, connect, request, send};

const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(4);
const LISTED: usize = 3_000;
const LISTERS: usize = 4;
const WATCHERS: usize = 100;
const WRITES: usize = 200;
const JSON: &str = "application/json";
/// No scheduler takes it: nothing but the request changes the pod.
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME","labels":{"app":"load"}},"spec":{"schedulerName":"none","securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"c","image":"busybox","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}"#;

/// A server under test.
struct Side {
    address: String,
    tls: TlsConnector,
    processes: Vec<u32>,
}

/// The cluster that the script started; it is stopped when this is dropped.
struct Real<'a> {
    script: &'a Path,
    folder: tempfile::TempDir,
}

impl Drop for Real<'_> {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = Command::new(self.script).arg("stop").arg(self.folder.path()).status();
    }
}

impl<'a> Real<'a> {
    fn start(script: &'a Path) -> Result<(Self, Side), Failure> {
        let folder = tempfile::tempdir()?;
        let started = Command::new(script).arg("start").arg(folder.path()).arg("etcd,apiserver").output()?;
        let real = Self { script, folder };
        if !started.status.success() {
            return Err(
                format!("the cluster does not start: {}", String::from_utf8_lossy(&started.stderr)).into()
            );
        }
        let kubeconfig = std::fs::read_to_string(real.folder.path().join("kubeconfig"))?;
        let address = kubeconfig.split("https://").nth(1).and_then(|rest| rest.split('"').next());
        let pids = std::fs::read_to_string(real.folder.path().join("pids"))?;
        let side = Side {
            address: address.ok_or("no address in the kubeconfig")?.to_owned(),
            tls: administrator(&kubeconfig)?,
            processes: pids.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect(),
        };
        Ok((real, side))
    }
}

impl Side {
    /// CPU time that its processes have had, in seconds.
    fn cpu(&self) -> Result<f64, Failure> {
        // The kernel counts in hundredths of a second for programs.
        const TICKS: f64 = 100.0;
        let mut ticks = 0.0;
        for process in &self.processes {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            for field in fields.skip(11).take(2) {
                ticks += field.parse::<f64>()?;
            }
        }
        Ok(ticks / TICKS)
    }

    /// Resident memory in MB.
    fn memory(&self) -> Result<f64, Failure> {
        let mut kib = 0.0;
        for process in &self.processes {
            let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let number = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
            kib += number.parse::<f64>()?;
        }
        Ok(kib / 1024.0)
    }

    async fn create(&self, path: &str, body: String) -> Result<(), Failure> {
        let mut sender = connect(&self.address, &self.tls).await?;
        let (code, _, answer) = send(&mut sender, request("POST", path, JSON, body)?).await?;
        // What is there already need not be created.
        if matches!(code, 201 | 409) { Ok(()) } else { Err(refused(path, code, &answer)) }
    }
}

fn refused(path: &str, code: u16, answer: &Bytes) -> Failure {
    let text = String::from_utf8_lossy(answer);
    format!("{path}: {code}: {}", text.chars().take(500).collect::<String>()).into()
}

/// What one round found.
#[derive(Debug, Clone, Copy)]
struct Round {
    rate: f64,
    cpu: f64,
}

type Make = Arc<dyn Fn(usize) -> Result<Request<Full<Bytes>>, Failure> + Send + Sync>;

/// Sends requests over so many connections for the time of a round.
async fn round(
    side: &Side,
    connections: usize,
    make: &Make,
    number: &Arc<AtomicUsize>,
) -> Result<Round, Failure> {
    let (before, began) = (side.cpu()?, Instant::now());
    let mut clients = Vec::new();
    for _ in 0..connections {
        let mut sender = connect(&side.address, &side.tls).await?;
        let (make, number) = (make.clone(), number.clone());
        clients.push(tokio::spawn(async move {
            let mut done = 0_u32;
            while began.elapsed() < ROUND {
                let request = make(number.fetch_add(1, Ordering::Relaxed))?;
                let path = request.uri().to_string();
                let (code, _, answer) = send(&mut sender, request).await?;
                if !matches!(code, 200 | 201) {
                    return Err(refused(&path, code, &answer));
                }
                done += 1;
            }
            Ok(done)
        }));
    }
    let mut done = 0.0;
    for client in clients {
        done += f64::from(client.await??);
    }
    Ok(Round { rate: done / began.elapsed().as_secs_f64(), cpu: (side.cpu()? - before) / done })
}

/// Watchers that each get every write: events a second, and CPU for each.
async fn watch(side: &Side, number: usize) -> Result<Round, Failure> {
    let path = "/api/v1/namespaces/bench/configmaps";
    let open = Arc::new(Barrier::new(WATCHERS + 1));
    let mut watching = Vec::new();
    for _ in 0..WATCHERS {
        let mut sender = connect(&side.address, &side.tls).await?;
        let open = open.clone();
        // From any state: kube-apiserver waits for the newest one until a change of the resource brings its cache there.
        let watch = format!("{path}?watch=true&resourceVersion=0&labelSelector=round%3Dr{number}");
        let address = side.address.clone();
        watching.push(tokio::spawn(async move {
            let response = sender.send_request(request("GET", &watch, JSON, String::new())?).await?;
            open.wait().await;
            let code = response.status().as_u16();
            let mut body = response.into_body();
            if code != 200 {
                return Err(refused(&watch, code, &body.collect().await?.to_bytes()));
            }
            let (mut seen, mut last) = (0, Bytes::new());
            while seen < WRITES {
                let Some(frame) = body.frame().await else {
                    let last = String::from_utf8_lossy(&last);
                    return Err(format!("a watch of {address} ended after {seen} events: {last}").into());
                };
                last = frame?.into_data().unwrap_or_default();
                seen += memchr::memchr_iter(b'\n', &last).count();
            }
            Ok(())
        }));
    }
    open.wait().await;
    let (before, began) = (side.cpu()?, Instant::now());
    let mut sender = connect(&side.address, &side.tls).await?;
    for write in 0..WRITES {
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"r{number}-{write}","labels":{{"round":"r{number}"}}}}}}"#
        );
        let (code, _, answer) = send(&mut sender, request("POST", path, JSON, body)?).await?;
        if code != 201 {
            return Err(refused(path, code, &answer));
        }
    }
    for watcher in watching {
        watcher.await??;
    }
    let events = f64::from(u32::try_from(WATCHERS * WRITES)?);
    Ok(Round { rate: events / began.elapsed().as_secs_f64(), cpu: (side.cpu()? - before) / events })
}

/// The best of the rounds: the one that other work on the machine disturbed least.
fn best(rounds: &[Round]) -> Round {
    let of = |value: fn(&Round) -> f64, choose: fn(f64, f64) -> f64| rounds.iter().map(value).reduce(choose);
    Round {
        rate: of(|round| round.rate, f64::max).unwrap_or(f64::NAN),
        cpu: of(|round| round.cpu, f64::min).unwrap_or(f64::NAN),
    }
}

/// What is wanted of a figure: so many times the rate, so small a part of the CPU.
struct Target {
    text: &'static str,
    rate: f64,
    cpu: f64,
}

const NONE: Target = Target { text: "", rate: 0.0, cpu: 0.0 };

fn report(
    print: Print<'_>,
    what: &str,
    unit: &str,
    target: &Target,
    ours: &[Round],
    theirs: &[Round],
) -> Result<(), Failure> {
    let (ours, theirs) = (best(ours), best(theirs));
    let (rate, cpu) = (ours.rate / theirs.rate, theirs.cpu / ours.cpu);
    let figure = format!(
        "{:.0} {unit}/s against {:.0}: {rate:.1} times; CPU {:.3} ms against {:.3} ms: 1/{cpu:.1}",
        ours.rate,
        theirs.rate,
        ours.cpu * 1e3,
        theirs.cpu * 1e3
    );
    let met = target.text.is_empty() || (rate >= target.rate && cpu >= target.cpu);
    Ok(print(what, figure, target.text, met)?)
}

/// Measures everything; `script` starts the real API server.
pub(super) async fn measure(palisade: &Path, script: &Path, print: Print<'_>) -> Result<(), Failure> {
    let data = tempfile::tempdir()?;
    let (folder, audit) = (data.path().join("data"), data.path().join("audit.log"));
    let options = [
        format!("--data-dir={}", folder.display()),
        format!("--audit-log={}", audit.display()),
        "--emulate-kubernetes=v1.37".to_owned(),
        "--controllers=none".to_owned(),
    ];
    let up = Up::start(palisade, &options.each_ref().map(String::as_str)).await?;
    let ours = Side { address: up.address.clone(), tls: up.tls.clone(), processes: vec![up.child.id()] };
    let (_real, theirs) = Real::start(script)?;
    let sides = [&ours, &theirs];
    for side in sides {
        for (path, object) in [
            ("namespaces", r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bench"}}"#),
            (
                "namespaces/bench/serviceaccounts",
                r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#,
            ),
        ] {
            side.create(&format!("/api/v1/{path}"), object.to_owned()).await?;
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = [ours.memory()?, theirs.memory()?];

    let pods = "/api/v1/namespaces/bench/pods";
    let post = |path: String| -> Make {
        Arc::new(move |number| Ok(request("POST", &path, JSON, POD.replace("NAME", &format!("p{number}")))?))
    };
    let get =
        |path: &'static str| -> Make { Arc::new(move |_| Ok(request("GET", path, JSON, String::new())?)) };
    let eightfold = Target { text: "8 times the rate, 1/10 of the CPU", rate: 8.0, cpu: 10.0 };
    let dry = Target { text: "8 times the rate", rate: 8.0, cpu: 0.0 };
    let steps: [(&str, &str, Target, usize, Make); 2] = [
        ("dry-run pod create", "req", dry, CONNECTIONS, post(format!("{pods}?dryRun=All"))),
        ("durable pod create", "req", eightfold, CONNECTIONS, post(pods.to_owned())),
    ];
    let mut numbers: BTreeMap<&str, Arc<AtomicUsize>> = BTreeMap::new();
    for (what, unit, target, connections, make) in &steps {
        let found = rounds(sides, *connections, make, numbers.entry(what).or_default()).await?;
        report(print, what, unit, target, &found[0], &found[1])?;
    }
    // The same number of objects on either side for what reads them.
    for side in sides {
        side.create(
            "/api/v1/namespaces",
            r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"read"}}"#.to_owned(),
        )
        .await?;
        let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
        side.create("/api/v1/namespaces/read/serviceaccounts", account.to_owned()).await?;
        fill(side).await?;
    }
    for (what, connections, make) in [
        ("get of a pod", CONNECTIONS, get("/api/v1/namespaces/read/pods/p0")),
        ("list of 3,000 pods", LISTERS, get("/api/v1/namespaces/read/pods")),
    ] {
        let found = rounds(sides, connections, &make, &Arc::default()).await?;
        report(print, what, "req", &NONE, &found[0], &found[1])?;
    }
    let mut found = [Vec::new(), Vec::new()];
    for number in 0..ROUNDS {
        for (side, found) in sides.iter().zip(&mut found) {
            found.push(watch(side, number).await?);
        }
    }
    report(print, "100 watches of 200 durable writes", "events", &NONE, &found[0], &found[1])?;

    for (what, [ours, theirs], target) in [
        ("resident when idle", idle, ""),
        ("resident after all of this", [ours.memory()?, theirs.memory()?], "1/10"),
    ] {
        let ratio = theirs / ours;
        let figure = format!("{ours:.0} MB against {theirs:.0} MB: 1/{ratio:.1}");
        print(what, figure, target, target.is_empty() || ratio >= 10.0)?;
    }
    Ok(())
}

/// Rounds on either side in turns.
async fn rounds(
    sides: [&Side; 2],
    connections: usize,
    make: &Make,
    number: &Arc<AtomicUsize>,
) -> Result<[Vec<Round>; 2], Failure> {
    let mut found = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (side, found) in sides.iter().zip(&mut found) {
            found.push(round(side, connections, make, number).await?);
        }
    }
    Ok(found)
}

/// The pods that are listed.
async fn fill(side: &Side) -> Result<(), Failure> {
    let mut clients = Vec::new();
    for part in 0..CONNECTIONS {
        let mut sender = connect(&side.address, &side.tls).await?;
        clients.push(tokio::spawn(async move {
            let path = "/api/v1/namespaces/read/pods";
            for number in (part..LISTED).step_by(CONNECTIONS) {
                let body = POD.replace("NAME", &format!("p{number}"));
                let (code, _, answer) = send(&mut sender, request("POST", path, JSON, body)?).await?;
                if code != 201 {
                    return Err(refused(path, code, &answer));
                }
            }
            Ok(())
        }));
    }
    for client in clients {
        client.await??;
    }
    Ok(())
}
