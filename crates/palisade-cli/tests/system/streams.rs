//! `kubectl exec`, `attach`, `port-forward`, `cp` and `debug`, over WebSocket and over SPDY.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use palisade_testkit::command::CommandOutput;
use palisade_testkit::containerd::IMAGE;
use serde_json::{Value, json};

use crate::world::{World, output};

/// Serves a page on port 8080, and echoes what is attached to it.
const SCRIPT: &str = "trap 'exit 0' TERM; mkdir /tmp/www; echo page > /tmp/www/index.html; httpd -p 8080 -h /tmp/www; \
                      while read -r line; do echo \"got $line\"; done; sleep 600 & wait";

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": IMAGE, "stdin": true, "command": ["sh", "-c", SCRIPT]}]}})
}

/// A kubectl that uses one of the protocols.
fn kubectl(world: &World, websocket: bool, arguments: &[&str]) -> Command {
    let mut command = Command::new("kubectl");
    command.args(arguments).env("KUBECONFIG", world.path("kubeconfig")).env("HOME", world.folder.path());
    for variable in ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"] {
        command.env(variable, websocket.to_string());
    }
    command
}

fn with_input(command: &mut Command, input: &[u8]) -> CommandOutput {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    CommandOutput { code: done.status.code().unwrap_or(-1), out: text(done.stdout), err: text(done.stderr) }
}

/// Ends the process with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn kubectl_reaches_into_containers_over_both_protocols() {
    let mut world = World::new();
    world.up(&[]);
    world.apply(&[pod("web")]);
    world.until_ready("web");
    for websocket in [true, false] {
        let run = |arguments: &[&str]| output(&mut kubectl(&world, websocket, arguments));
        let hello = run(&["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
        assert_eq!((hello.code, hello.out.as_str()), (7, "out\n"), "{websocket}: {hello:?}");
        assert!(hello.err.starts_with("err\n"), "{websocket}: {hello:?}");
        assert_eq!(run(&["exec", "web", "--", "true"]).code, 0, "{websocket}");
        let missing = run(&["exec", "web", "--", "no-such-program"]);
        assert!(missing.code != 0 && missing.err.contains("no-such-program"), "{websocket}: {missing:?}");
        // The end of the input reaches the command: `cat` ends with it.
        let input = "line\n".repeat(40_000);
        let cat = with_input(
            &mut kubectl(&world, websocket, &["exec", "-i", "web", "--", "cat"]),
            input.as_bytes(),
        );
        assert_eq!((cat.code, cat.out.len()), (0, input.len()), "{websocket}: {}", cat.err);

        terminal(&world, websocket);
        copied(&world, websocket);
        forwarded(&world, websocket);

        let attached = with_input(&mut kubectl(&world, websocket, &["attach", "-i", "web"]), b"");
        assert_eq!(attached.code, 0, "{websocket}: {attached:?}");
    }
    assert_eq!(world.kubectl(&["exec", "gone", "--", "true"]).code, 1);
}

/// A terminal has a name and the size of the user's.
fn terminal(world: &World, websocket: bool) {
    let mut command = Command::new("script");
    let inner = "stty rows 33 cols 44; kubectl exec -it web -- sh -c 'test -t 0 && sleep 1 && stty size'";
    command.args(["-qec", inner, "/dev/null"]).stdin(Stdio::null());
    let given = kubectl(world, websocket, &[]);
    command.envs(given.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let done = output(&mut command);
    assert!(done.out.contains("33 44"), "{websocket}: {done:?}");
}

fn copied(world: &World, websocket: bool) {
    let (source, back) = (world.path("source"), world.path("back"));
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&source, &content).unwrap();
    for (from, to) in
        [(source.to_str().unwrap(), "web:/tmp/copied"), ("web:/tmp/copied", back.to_str().unwrap())]
    {
        let done = output(&mut kubectl(world, websocket, &["cp", from, to]));
        assert_eq!(done.code, 0, "{websocket}: {done:?}");
    }
    assert!(std::fs::read(&back).unwrap() == content, "{websocket}");
}

fn forwarded(world: &World, websocket: bool) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = kubectl(world, websocket, &["port-forward", "pod/web", &format!("{free}:8080")]);
    let mut child = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    // kubectl prints a line for each connection, and ends if nobody can read it.
    let mut printed = BufReader::new(child.0.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
    assert!(line.starts_with("Forwarding from"), "{websocket}: {line}");
    let page = world.until("page", || {
        let mut stream = TcpStream::connect(("127.0.0.1", free)).ok()?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        Some(page).filter(|page| page.contains("page"))
    });
    assert!(page.contains(" 200 OK"), "{websocket}: {page}");
    drop(printed);
}

#[test]
fn ephemeral_containers_of_kubectl_debug_are_judged() {
    let mut world = World::new();
    world.up(&["--emulate-kubernetes", "v1.37"]);
    let label = ["label", "namespace", "default", "pod-security.kubernetes.io/enforce=baseline"];
    assert_eq!(world.kubectl(&label).code, 0);
    world.apply(&[pod("web")]);
    world.until_ready("web");
    let debug = |profile: &str, name: &str| {
        world.kubectl(&[
            "debug",
            "web",
            "--image",
            IMAGE,
            "--profile",
            profile,
            "--container",
            name,
            "--",
            "sleep",
            "600",
        ])
    };
    let refused = debug("sysadmin", "root");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("violates PodSecurity \"baseline:latest\": privileged"), "{refused:?}");
    let admitted = debug("baseline", "tool");
    assert_eq!(admitted.code, 0, "{admitted:?}");
    let done = world.until("debug container", || {
        Some(world.kubectl(&["exec", "web", "-c", "tool", "--", "echo", "in"])).filter(|done| done.code == 0)
    });
    assert_eq!(done.out, "in\n");
}
