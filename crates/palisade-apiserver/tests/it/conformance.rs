//! The recordings of real API servers, replayed over HTTPS.

use palisade_apimachinery::KubeVersion;
use palisade_apiserver::Server;
use palisade_testkit::recordings;
use palisade_testkit::replay::{Record, Report, Verdict, replay};

use crate::support;

fn read(release: &str) -> Vec<Record> {
    recordings::of_folder(&recordings::folder().join(release))
        .expect("recordings; PALISADE_RECORDINGS names others")
}

#[allow(clippy::print_stdout, reason = "the figures of cargo xtask conformance")]
fn print(release: &str, report: &Report) {
    let shown = std::env::var("DIFFERENCES").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    println!("\n{release}\n{}", report.render(shown));
}

#[tokio::test]
async fn answers_as_the_recorded_api_server_did() {
    let builder = Server::builder().disable_plugins(["ServiceAccount".to_owned()]);
    let server = support::start(builder).await;
    let report = replay(&read("api-v1.37"), &support::admin(&server)).await.expect("replay");
    print("api-v1.37", &report);
    let (steps, equal) = report.totals();
    recordings::assert_enough(steps, 200);
    assert!(equal * 100 >= steps * 95, "{}", report.render(20));
    let worse = report.differences.iter().filter(|d| d.verdict == Verdict::Different);
    // This server streams initial lists; the recorded one had a storage that could not.
    let worse: Vec<&str> =
        worse.map(|d| d.at.as_str()).filter(|at| !at.contains("sendInitialEvents=true")).collect();
    assert!(worse.is_empty(), "{worse:#?}");
}

/// Replays the recordings about pod security: every answer is equal.
async fn judges_pods_as(release: &str, version: KubeVersion) {
    let builder =
        Server::builder().version(version).disable_plugins(["ServiceAccount".to_owned()]).controllers(false);
    let server = support::start(builder).await;
    let report = replay(&read(release), &support::admin(&server)).await.expect("replay");
    print(release, &report);
    let (steps, equal) = report.totals();
    recordings::assert_enough(steps, 2000);
    assert_eq!(steps, equal, "{}", report.render(12));
}

#[tokio::test]
async fn judges_pods_as_v1_24_did() {
    judges_pods_as("v1.24", KubeVersion::minor(24)).await;
}

#[tokio::test]
async fn judges_pods_as_v1_37_did() {
    judges_pods_as("v1.37", KubeVersion::minor(37)).await;
}
