//! What the agent costs in memory: the real binary as `palisade node`, idle and with a hundred pods.
//!
//! `cargo xtask bench` reads what is printed here. A debug build is several times as large and may use several times as much.

use std::{fs, process::Child, time::Duration};

use palisade_testkit::containerd::IMAGE;
use serde_json::{Value, json};

use crate::world::World;

const PODS: usize = 100;

fn resident_kilobytes(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn the_agent_is_small() {
    let mut world = World::new();
    world.spawn(world.palisade(&["up"]));
    let mut command = world.on_node(&["node"]);
    command.arg("--kubeconfig").arg(world.path("kubeconfig"));
    let mut agent = command.spawn().unwrap();
    world.until("node ready", || world.kubectl(&["get", "nodes"]).out.contains(" Ready ").then_some(()));
    std::thread::sleep(Duration::from_secs(3));
    let idle = resident_kilobytes(&agent);
    let pods: Vec<Value> = (0..PODS)
        .map(|number| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{number}")}, "spec": {
                "hostNetwork": true, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
                "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{"name": "c", "image": IMAGE, "command": ["sh", "-c", "sleep 600"]}]}})
        })
        .collect();
    world.apply(&pods);
    world.until("all pods running", || {
        let list = world.kubectl(&["get", "pods", "--no-headers", "--field-selector=status.phase=Running"]);
        (list.out.lines().count() == PODS).then_some(())
    });
    let busy = resident_kilobytes(&agent);
    println!("{}", json!({"idleMemoryKB": idle, "memoryKB": busy, "pods": PODS}));
    let (least, most) = if cfg!(debug_assertions) { (60 << 10, 120 << 10) } else { (15 << 10, 40 << 10) };
    assert!(idle < least, "{idle} kB idle");
    assert!(busy < most, "{busy} kB with {PODS} pods");
    agent.kill().unwrap();
    agent.wait().unwrap();
}
