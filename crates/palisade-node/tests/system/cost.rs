//! What the agent adds to the start of a pod: a measurement for `cargo xtask bench`, which reads what is printed here.

use std::process::Command;

use serde_json::Value;

use crate::{
    lab::{IMAGE, Lab, designs},
    resilience::example,
};

#[tokio::test(flavor = "multi_thread")]
async fn measures_the_start_of_a_pod() {
    let mut lab = Lab::new(designs());
    lab.stop_agent().await;
    let output = Command::new(example("node_cost")).arg(&lab.containerd.socket).arg(IMAGE).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("{figures}");
    assert!(figures["addedStartMs"].is_number());
}
