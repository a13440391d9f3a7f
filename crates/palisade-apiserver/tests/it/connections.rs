//! Ten thousand connections: a server in a process of its own, because both ends together need more files than one may have.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use palisade_apiserver::Server;
use palisade_testkit::client::Client;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::get;

const CHILD: &str = "PALISADE_TEST_MANY_CONNECTIONS";
const CONNECTIONS: usize = 10_000;
/// What the server may need more for them, in MB.
const MEMORY: f64 = 250.0;

/// Not a test of its own: the server. It prints where it is and ends with its standard input.
#[test]
fn server_process() {
    if std::env::var(CHILD).is_err() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    runtime.block_on(async {
        let server = Server::builder().controllers(false).start().await.expect("server");
        let ca = server.ca.replace('\n', "|");
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nUP {} {} {ca}", server.address, server.token).expect("printed");
        out.flush().expect("printed");
        drop(out);
        let mut line = String::new();
        let _ = tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut line)).await;
    });
}

/// The child, ended when dropped.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Up {
    /// Resident memory in MB.
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("alive");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
        let kib: f64 = line.split_whitespace().next().expect("a number").parse().expect("a number");
        kib / 1024.0
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_are_held() {
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args(["connections::server_process", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("child");
    let mut up = Up(child);
    let mut lines = BufReader::new(up.0.stdout.take().expect("output")).lines();
    let printed =
        lines.find_map(|line| line.ok()?.strip_prefix("UP ").map(str::to_owned)).expect("an address");
    let [address, token, ca] = printed.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{printed}") };
    let client = Client::new(address, &ca.replace('|', "\n"), token).expect("client");
    assert_eq!(get(&client, "/readyz").await.code, 200);
    let before = up.memory();
    let mut held = Vec::with_capacity(CONNECTIONS);
    while held.len() < CONNECTIONS {
        let mut stream = TcpStream::connect(address).await.unwrap_or_else(|error| {
            panic!("{} connections and no more ({error}): ulimit -n must be above {CONNECTIONS}", held.len())
        });
        if held.len() % 10 == 0 {
            // The beginning of a TLS record, and nothing after it.
            stream.write_all(&[22, 3, 1, 2, 0, 1]).await.expect("sent");
        }
        held.push(stream);
    }
    let began = Instant::now();
    for _ in 0..20 {
        let fresh = Client::new(address, &ca.replace('|', "\n"), token).expect("client");
        assert_eq!(get(&fresh, "/readyz").await.code, 200, "a new client is served");
        assert_eq!(get(&client, "/api/v1/namespaces").await.code, 200, "an old one as well");
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let more = up.memory() - before;
    assert!(more < MEMORY, "{more:.0} MB for {CONNECTIONS} connections");
    drop(held);
    assert_eq!(get(&client, "/readyz").await.code, 200);
}
