//! The recordings of real API servers, replayed over HTTPS.

use palisade_apiserver::Server;
use palisade_base::version::KubeVersion;
use palisade_testkit::recordings;
use palisade_testkit::replay::{Record, Report, replay};

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
    recordings::assert_enough(report.totals().0, 200);
    // This server streams initial lists; the recorded one had a storage that could not.
    let differs = |at: &str| !at.contains("sendInitialEvents=true");
    assert!(!report.differences.iter().any(|d| differs(&d.at)), "{}", report.render(20));
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
    judges_pods_as("v1.24", KubeVersion::v1(24)).await;
}

#[tokio::test]
async fn judges_pods_as_v1_37_did() {
    judges_pods_as("v1.37", KubeVersion::v1(37)).await;
}
