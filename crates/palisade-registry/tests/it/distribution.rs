//! Debian's `docker-registry`, with and without a password.

use palisade_base::sha256;
use palisade_model::profile::artifact::{PushTarget, manifest_of};
use palisade_registry::{Client, Credentials, Keyring, Transport};
use palisade_testkit::docker_registry::{Access, DockerRegistry};

use crate::PROFILE;

fn client() -> Client {
    Client::new(Transport::PlainHttpOnLoopback).unwrap()
}

#[tokio::test]
async fn what_is_pushed_is_pulled_by_its_digest() {
    let registry = DockerRegistry::start(Access::Anybody);
    for name in ["team/profile", "team/profile:v1"] {
        let target = PushTarget::parse(&format!("{}/{name}", registry.name)).unwrap();
        // A second time nothing is there to be uploaded.
        for _ in 0..2 {
            let pushed = client().push(&target, PROFILE, &[]).await.unwrap();
            let digest = sha256::hex(manifest_of(PROFILE).as_bytes());
            assert_eq!(pushed.to_string(), format!("{}/team/profile@sha256:{digest}", registry.name));
            assert_eq!(client().pull(&pushed, &[]).await.unwrap(), PROFILE);
        }
    }
}

#[tokio::test]
async fn what_is_no_profile_is_not_pushed() {
    let registry = DockerRegistry::start(Access::Anybody);
    let target = PushTarget::parse(&format!("{}/team/profile", registry.name)).unwrap();
    let listener = PROFILE.replace("SCMP_ACT_ERRNO", "SCMP_ACT_NOTIFY");
    let error = client().push(&target, &listener, &[]).await.unwrap_err().to_string();
    assert!(error.starts_with("leaves system calls to a listener"), "{error}");
    let error = client().push(&target, r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#, &[]).await.unwrap_err();
    assert!(error.to_string().starts_with("confines nothing"), "{error}");
}

#[tokio::test]
async fn a_registry_with_a_password_is_open_to_who_has_it() {
    let registry = DockerRegistry::start(Access::WithPassword);
    let target = PushTarget::parse(&format!("{}/team/profile", registry.name)).unwrap();
    let mut keyring = Keyring::default();
    keyring.add_config(registry.docker_config().as_bytes()).unwrap();
    let right = keyring.matching(&target.repository);
    let wrong = Credentials { username: "tenant".to_owned(), password: "guess".to_owned() };

    let denied = |count| format!("{} denies access to team/profile: {count}", registry.name);
    let error = client().push(&target, PROFILE, &[]).await.unwrap_err().to_string();
    assert_eq!(error, denied("there are no credentials for it"));
    let pushed = client().push(&target, PROFILE, &right).await.unwrap();

    for (credentials, expected) in [
        (vec![], "there are no credentials for it"),
        (vec![wrong.clone()], "its credentials are not accepted"),
        (vec![wrong.clone(), wrong.clone()], "none of its 2 credentials is accepted"),
    ] {
        let error = client().pull(&pushed, &credentials).await.unwrap_err();
        assert!(!error.is_lasting());
        assert_eq!(error.to_string(), denied(expected));
    }
    // Each is tried, as a kubelet does with all that match.
    for credentials in [right.clone(), vec![wrong, right[0].clone()]] {
        assert_eq!(client().pull(&pushed, &credentials).await.unwrap(), PROFILE);
    }
}

#[tokio::test]
async fn what_is_not_there_is_not_lasting() {
    let registry = DockerRegistry::start(Access::Anybody);
    let target = PushTarget::parse(&format!("{}/team/profile", registry.name)).unwrap();
    let pushed = client().push(&target, PROFILE, &[]).await.unwrap();
    let mut other = pushed.clone();
    other.digest = "0".repeat(64);
    let error = client().pull(&other, &[]).await.unwrap_err();
    assert!(!error.is_lasting());
    assert_eq!(
        error.to_string(),
        format!("team/profile/manifests/sha256:{} is not in the registry", "0".repeat(64))
    );
    drop(registry);
    let error = client().pull(&pushed, &[]).await.unwrap_err();
    assert!(!error.is_lasting() && error.to_string().contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn plain_http_is_spoken_only_where_it_is_chosen() {
    let registry = DockerRegistry::start(Access::Anybody);
    let target = PushTarget::parse(&format!("{}/team/profile", registry.name)).unwrap();
    let error = Client::new(Transport::Https).unwrap().push(&target, PROFILE, &[]).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot reach {}", registry.name)), "{error}");
    assert!(client().push(&target, PROFILE, &[]).await.is_ok());
}
