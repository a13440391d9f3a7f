//! The least that must work.

use serde_json::json;

use crate::lab::{Lab, designs, sleeper};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_and_goes() {
    let lab = Lab::new(designs());
    let pod = lab.apply(sleeper("plain", json!({}), json!({})));
    lab.until_running(&pod).await;
    lab.delete(&pod).await;
}
