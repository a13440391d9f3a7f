//! The recordings of a real API server, replayed over HTTPS.

#[path = "../../../../xtask/src/conformance_server/mod.rs"]
pub(crate) mod conformance_server;

use palisade_apiserver::Server;
use palisade_base::version::KubeVersion;

use crate::support;

#[tokio::test]
async fn answers_as_the_recorded_api_server_did() {
    let directory = conformance_server::folder().join("api-v1.37");
    assert!(directory.is_dir(), "no recordings in {}; set PALISADE_RECORDINGS", directory.display());
    let records = conformance_server::read(&directory).expect("recordings");
    let builder = Server::builder().disable_plugins(["ServiceAccount".to_owned()]);
    let server = support::start(builder).await;
    let report = conformance_server::replay(&records, &support::admin(&server)).await.expect("replay");
    let shown = std::env::var("DIFFERENCES").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    println!("{}", report.render(shown));
    let (steps, equal) = report.totals();
    conformance_server::assert_enough(steps, 200);
    assert!(equal * 100 >= steps * 95, "{}", report.render(20));
    let worse = report.differences.iter().filter(|d| d.verdict == conformance_server::Verdict::Different);
    // This server streams initial lists; the recorded one had a storage that could not.
    let worse: Vec<&str> =
        worse.map(|d| d.at.as_str()).filter(|at| !at.contains("sendInitialEvents=true")).collect();
    assert!(worse.is_empty(), "{worse:#?}");
}

/// The recordings about pod security, every one of them equal: says how many.
async fn pods_of(release: &str, version: KubeVersion) -> String {
    let records = conformance_server::read(&conformance_server::folder().join(release)).expect("recordings");
    let builder =
        Server::builder().version(version).disable_plugins(["ServiceAccount".to_owned()]).controllers(false);
    let server = support::start(builder).await;
    let report = conformance_server::replay(&records, &support::admin(&server)).await.expect("replay");
    let (steps, equal) = report.totals();
    conformance_server::assert_enough(steps, 2000);
    assert_eq!(steps, equal, "{}", report.render(12));
    format!("{release}: {equal} of {steps} answers about pods equal")
}

#[tokio::test]
async fn judges_pods_as_v1_24_did() {
    println!("{}", pods_of("v1.24", KubeVersion::v1(24)).await);
}

#[tokio::test]
async fn judges_pods_as_v1_37_did() {
    println!("{}", pods_of("v1.37", KubeVersion::v1(37)).await);
}
