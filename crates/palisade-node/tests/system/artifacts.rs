//! Seccomp profiles from a registry, down to the system call.

use std::fs;

use palisade_base::sha256;
use palisade_model::{compat::Compat, profile::artifact::PushTarget};
use palisade_node::{api::Secret, node::NodeConfig};
use palisade_registry::{Client, Keyring, Transport};
use palisade_testkit::docker_registry::{Access, DockerRegistry};
use serde_json::{Value, json};

use crate::{
    lab::{DENY_MKDIR, Lab, designs, sleeper, waiting},
    profiles::ALLOW_ALL_BUT_ONE,
};

fn compat() -> Compat {
    let mut compat = designs();
    compat.gates.security_profile_oci_artifact = true;
    compat
}

fn lab() -> Lab {
    Lab::with_config(compat(), |config| NodeConfig { registries: Transport::PlainHttpOnLoopback, ..config })
}

/// Pushes a profile; the reference to it.
async fn push(registry: &DockerRegistry, profile: &str) -> String {
    let target = PushTarget::parse(&format!("{}/team/profile", registry.name)).unwrap();
    let mut keyring = Keyring::default();
    keyring.add_config(registry.docker_config().as_bytes()).unwrap();
    let client = Client::new(Transport::PlainHttpOnLoopback).unwrap();
    client.push(&target, profile, &keyring.matching(&target.repository)).await.unwrap().to_string()
}

fn oci(reference: &str) -> Value {
    json!({"seccompProfile": {"type": "OCI", "oci": {"reference": reference}}})
}

fn pull_secret(registry: &DockerRegistry) -> Secret {
    let data = [(".dockerconfigjson".to_owned(), registry.docker_config().into_bytes())];
    Secret { data: data.into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_from_a_registry_restricts_and_allows_no_more_than_the_runtimes_default() {
    let registry = DockerRegistry::start(Access::Anybody);
    let lab = lab();
    fs::write(lab.root.join("seccomp/base.json"), DENY_MKDIR).unwrap();
    let deny_mkdir = push(&registry, DENY_MKDIR).await;
    let open = push(&registry, ALLOW_ALL_BUT_ONE).await;
    let based = |base: Value| json!({"seccompProfile": {"type": "OCI", "oci": {"reference": open, "baseProfile": base}}});
    // mkdir is denied by our own profiles alone, a new user namespace by the runtime's default alone.
    let cases = [
        (sleeper("denies", oci(&deny_mkdir), json!({})), 1, DENY_MKDIR),
        (sleeper("open", oci(&open), json!({})), 0, ALLOW_ALL_BUT_ONE),
        (sleeper("of-container", json!({}), oci(&open)), 0, ALLOW_ALL_BUT_ONE),
        (
            sleeper("based", based(json!({"type": "Localhost", "localhostProfile": "base.json"})), json!({})),
            1,
            ALLOW_ALL_BUT_ONE,
        ),
        (
            sleeper("based-on-default", based(json!({"type": "RuntimeDefault"})), json!({})),
            0,
            ALLOW_ALL_BUT_ONE,
        ),
    ];
    for (pod, mkdir, source) in cases {
        let pod = lab.apply(pod);
        let status = lab.until_running(&pod).await;
        let name = &pod.key.name;
        let (code, text) = lab.exec(&pod, "c", "mkdir /tmp/x").await;
        assert_eq!(code, mkdir, "{name}: {text}");
        let (code, text) = lab.exec(&pod, "c", "unshare -U true").await;
        assert_ne!(code, 0, "{name} allows what the runtime's default denies: {text}");
        let hashes = &status["containerStatuses"][0]["securityContext"];
        assert_eq!(hashes["seccompProfileSourceHash"], sha256::hex(source.as_bytes()), "{name}");
        assert_ne!(hashes["seccompProfileHash"], hashes["seccompProfileSourceHash"], "{name}");
        let report =
            palisade_node::verify::verify_pod(&lab.node.config, &lab.node.runtime, Some(&lab.source), &pod)
                .await;
        let report = report.unwrap();
        assert!(!report.has_mismatch(), "{name}: {:#?}", report.lines());
        let pulled = lab.events(&pod).into_iter().any(|(_, reason, _)| reason == "SecurityProfilePulled");
        // One of each digest; later pods find it on the node.
        assert_eq!(pulled, matches!(name.as_str(), "denies" | "open"), "{name}");
    }
    // What was pulled is there without the registry.
    drop(registry);
    let later = lab.apply(sleeper("later", oci(&deny_mkdir), json!({})));
    lab.until_running(&later).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_is_opened_by_the_pull_secrets_of_the_pods_own_namespace() {
    let registry = DockerRegistry::start(Access::WithPassword);
    let lab = lab();
    let reference = push(&registry, DENY_MKDIR).await;
    lab.source.put_secret("default", "pull", pull_secret(&registry));
    lab.source.put_secret("other", "theirs", pull_secret(&registry));
    let with = |name: &str, namespace: &str, secrets: &[&str]| {
        let mut pod = sleeper(name, oci(&reference), json!({}));
        pod["metadata"]["namespace"] = json!(namespace);
        let secrets: Vec<_> = secrets.iter().map(|name| json!({"name": name})).collect();
        pod["spec"]["imagePullSecrets"] = json!(secrets);
        pod
    };
    let denied = format!(
        "cannot pull seccomp profile oci://{reference}: {} denies access to team/profile: there are no credentials for it",
        registry.name
    );
    let mine = lab.apply(with("mine", "default", &["pull"]));
    lab.until_running(&mine).await;
    // What a namespace has pulled is there for it alone.
    let stranger = lab.apply(with("stranger", "third", &[]));
    let status = lab.until_waiting(&stranger, "CreateContainerConfigError").await;
    assert_eq!(waiting(&status)["message"], denied);
    let thief = lab.apply(with("thief", "third", &["theirs"]));
    let status = lab.until_waiting(&thief, "CreateContainerConfigError").await;
    assert_eq!(waiting(&status)["message"], format!("{denied}; the pull secret theirs is not there"));
    let failed = lab.events(&thief).into_iter().any(|(_, reason, _)| reason == "SecurityProfilePullFailed");
    assert!(failed, "{:?}", lab.events(&thief));
    let broken = Secret { data: [(".dockerconfigjson".to_owned(), b"{".to_vec())].into() };
    lab.source.put_secret("third", "broken", broken);
    let unreadable = lab.apply(with("unreadable", "third", &["broken"]));
    let status = lab.until_waiting(&unreadable, "CreateContainerConfigError").await;
    let message = waiting(&status)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("the pull secret broken is not a Docker configuration"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_registry_has_keeps_a_container_waiting_and_what_is_no_profile_fails_it() {
    let registry = DockerRegistry::start(Access::Anybody);
    let lab = lab();
    let reference = push(&registry, DENY_MKDIR).await;
    let (repository, _) = reference.split_once('@').unwrap();
    let absent = format!("{repository}@sha256:{}", "0".repeat(64));
    let never = |name: &str, reference: &str| {
        let mut pod = sleeper(name, oci(reference), json!({}));
        pod["spec"]["restartPolicy"] = json!("Never");
        lab.apply(pod)
    };
    let pod = never("absent", &absent);
    let status = lab.until_waiting(&pod, "CreateContainerConfigError").await;
    let message = waiting(&status)["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with(&format!("cannot pull seccomp profile oci://{absent}: ")), "{message}");
    assert_eq!(status["phase"], "Pending", "it is retried");

    // The manifest of another artifact, which is no profile.
    let digest = registry.put_manifest("team/profile", &json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": format!("sha256:{}", sha256::hex(b"{}")), "size": 2},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": format!("sha256:{}", sha256::hex(DENY_MKDIR.as_bytes())),
            "size": DENY_MKDIR.len()}]})
    .to_string());
    let pod = never("image", &format!("{repository}@{digest}"));
    let status = lab.until_phase(&pod, "Failed").await;
    let message =
        status["containerStatuses"][0]["state"]["terminated"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("is not a seccomp profile: its media type is"), "{message}");

    // The twin runs.
    let fine = lab.apply(sleeper("fine", oci(&reference), json!({})));
    lab.until_running(&fine).await;
}
