//! A pod that passes is judged without allocating: every pod of a cluster is judged, most of them again and again.

use palisade_model::{compat::Compat, prepare::Prepared};
use palisade_policy::standards::{
    evaluator::Evaluator,
    level::{Level, LevelVersion, Version},
};

const POD: &str = r#"{"metadata": {"name": "web"}, "spec": {
    "hostUsers": true,
    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"},
        "sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]},
    "volumes": [{"name": "tmp", "emptyDir": {}}],
    "initContainers": [{"name": "init", "image": "i", "securityContext":
        {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
    "containers": [{"name": "web", "image": "i", "ports": [{"containerPort": 8080}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 8080}},
        "securityContext": {"allowPrivilegeEscalation": false, "runAsUser": 1000,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}]}}"#;

#[test]
fn a_pod_that_passes_is_judged_without_allocating() {
    let pod = Prepared::stored(serde_json::from_str(POD).unwrap(), &Compat::designs());
    let evaluator = Evaluator::default();
    for level in [Level::Baseline, Level::Restricted] {
        for version in (22..=evaluator.newest()).map(u64::from).map(Version::Minor).chain([Version::Latest]) {
            let policy = LevelVersion::new(level, version);
            let judge = || assert!(evaluator.evaluate(policy, &pod).allowed(), "{policy}");
            judge();
            assert_eq!(allocation_counter::measure(judge).count_total, 0, "{policy}");
        }
    }
}
