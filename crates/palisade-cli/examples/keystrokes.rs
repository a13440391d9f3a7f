//! How long `palisade lsp` takes for a keystroke in a manifest of 5,000 lines: change, judge, findings as JSON.
//!
//! `cargo run --release -p palisade --example keystrokes`. `perf stat -e instructions:u` counts instructions where times are noisy.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{fmt::Write as _, sync::Arc, time::Instant};

use palisade_cli::lsp::{ChartQueue, Options, Server, message::Message};
use serde_json::{Value, json};

const LINES: usize = 5000;
const KEYSTROKES: u32 = 200;

/// Deployments with findings, of 25 lines each.
fn manifest() -> String {
    let mut text = String::new();
    for number in 0..LINES / 25 {
        let _ = write!(
            text,
            "---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-{number}
  namespace: shop
  labels:
    app: web
spec:
  replicas: 2
  selector:
    matchLabels: {{app: web}}
  template:
    metadata:
      labels: {{app: web}}
    spec:
      hostNetwork: true
      containers:
        - name: web # the shop
          image: nginx:1.27
          ports:
            - containerPort: 8080
          securityContext:
            privileged: true
            allowPrivilegeEscalation: false
"
        );
    }
    text
}

fn main() {
    let mut server = Server::new(Options::default(), Arc::new(ChartQueue::default()));
    let uri = "file:///shop.yaml";
    let mut send = |message: Value| {
        server.handle(Message::parse(message.to_string().as_bytes()));
        while server.judge_next() {}
        server.take_output().iter().map(|message| message.to_string().len()).sum::<usize>()
    };
    send(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}));
    let text = manifest();
    let lines = text.lines().count();
    send(json!({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument":
        {"uri": uri, "languageId": "yaml", "version": 0, "text": text}}}));
    let mut times = Vec::new();
    let mut bytes = 0;
    for number in 1..=KEYSTROKES {
        let place = json!({"line": 2519, "character": 23});
        let change = json!({"range": {"start": place, "end": place}, "text": "x"});
        let begin = Instant::now();
        bytes = send(json!({"jsonrpc": "2.0", "method": "textDocument/didChange", "params":
            {"textDocument": {"uri": uri, "version": number}, "contentChanges": [change]}}));
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
    println!(
        "{lines} lines, {KEYSTROKES} keystrokes: median {:?}, p99 {:?}, {bytes} bytes of findings",
        at(50),
        at(99)
    );
}
