//! Registries that attack their readers, each with a harmless twin.

use palisade_model::profile::artifact::{MAX_MANIFEST_BYTES, manifest_of};
use palisade_registry::{Client, Credentials, RegistryError, Transport};
use serde_json::{Value, json};

use crate::{
    PROFILE,
    fake::{Answer, Fake, honest},
};

async fn pull(fake: &Fake, manifest: &str, credentials: &[Credentials]) -> Result<String, RegistryError> {
    let client = Client::new(Transport::PlainHttpOnLoopback).unwrap();
    client.pull(&fake.reference(manifest), credentials).await
}

fn tenant() -> Credentials {
    Credentials { username: "tenant".to_owned(), password: "secret".to_owned() }
}

/// `tenant:secret`.
const BASIC: &str = "Basic dGVuYW50OnNlY3JldA==";

#[tokio::test]
async fn the_twin_of_all_attacks_is_pulled() {
    let fake = Fake::start(|path, _| honest(path, PROFILE)).await;
    assert_eq!(pull(&fake, &manifest_of(PROFILE), &[]).await.unwrap(), PROFILE);
}

#[tokio::test]
async fn content_with_another_digest_is_never_taken() {
    let other = PROFILE.replace("mkdir", "rmdir");
    let manifest = manifest_of(PROFILE);
    let fake = Fake::start({
        let other = other.clone();
        move |path, _| honest(path, &other)
    })
    .await;
    let error = pull(&fake, &manifest, &[]).await.unwrap_err();
    assert!(error.is_lasting() && error.to_string().starts_with("has a manifest with the digest"), "{error}");

    let fake =
        Fake::start(
            move |path, _| {
                if path.contains("/blobs/") { Answer::ok(other.clone()) } else { honest(path, PROFILE) }
            },
        )
        .await;
    let error = pull(&fake, &manifest, &[]).await.unwrap_err();
    assert!(error.is_lasting() && error.to_string().starts_with("has a profile with the digest"), "{error}");
}

#[tokio::test]
async fn bodies_are_read_within_their_limits() {
    let manifest = manifest_of(PROFILE);
    let endless = vec![b' '; 8 << 20];
    let fake = Fake::start({
        let endless = endless.clone();
        move |path, _| {
            if path.contains("/manifests/") { Answer::ok(endless.clone()) } else { honest(path, PROFILE) }
        }
    })
    .await;
    let error = pull(&fake, &manifest, &[]).await.unwrap_err().to_string();
    assert_eq!(error, format!("has a manifest of more than {MAX_MANIFEST_BYTES} bytes"));

    let fake = Fake::start(move |path, _| {
        if path.contains("/blobs/") { Answer::ok(endless.clone()) } else { honest(path, PROFILE) }
    })
    .await;
    let error = pull(&fake, &manifest, &[]).await.unwrap_err().to_string();
    let size = PROFILE.len();
    assert_eq!(error, format!("has a profile of more bytes than the {size} that its manifest states"));
}

#[tokio::test]
async fn a_manifest_that_breaks_a_rule_costs_no_second_request() {
    let change = |change: fn(&mut Value)| {
        let mut manifest: Value = serde_json::from_str(&manifest_of(PROFILE)).unwrap();
        change(&mut manifest);
        manifest.to_string()
    };
    for (manifest, expected) in [
        (change(|m| m["layers"][0]["size"] = json!((1 << 20) + 1)), "has a profile of 1048577 bytes"),
        (change(|m| m["layers"] = json!([m["layers"][0], m["layers"][0]])), "has 2 layers"),
        (
            change(|m| m["config"]["mediaType"] = json!("application/json")),
            "is not a seccomp profile: its media type",
        ),
    ] {
        let fake = Fake::start({
            let manifest = manifest.clone();
            move |_, _| Answer::ok(manifest.clone())
        })
        .await;
        let error = pull(&fake, &manifest, &[]).await.unwrap_err();
        assert!(error.is_lasting() && error.to_string().starts_with(expected), "{error}");
        assert_eq!(fake.asked().len(), 1);
    }
}

#[tokio::test]
async fn credentials_stay_with_the_registry_when_it_redirects() {
    let storage = Fake::start(|path, _| honest(path, PROFILE)).await;
    let place = format!("http://{}", storage.name);
    let registry = Fake::start(move |path, authorization| match authorization {
        Some(BASIC) if path.contains("/blobs/") => Answer::redirect(format!("{place}{path}")),
        Some(BASIC) => honest(path, PROFILE),
        _ => Answer::challenge("Basic realm=\"x\""),
    })
    .await;
    assert_eq!(pull(&registry, &manifest_of(PROFILE), &[tenant()]).await.unwrap(), PROFILE);
    let asked = storage.asked();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].ends_with(" -"), "{asked:?}");
}

#[tokio::test]
async fn a_challenge_behind_a_redirect_is_not_answered() {
    let phisher = Fake::start(|_, _| Answer::challenge("Basic realm=\"x\"")).await;
    let place = format!("http://{}", phisher.name);
    let registry = Fake::start(move |path, _| Answer::redirect(format!("{place}{path}"))).await;
    let error = pull(&registry, &manifest_of(PROFILE), &[tenant()]).await.unwrap_err().to_string();
    assert_eq!(error, format!("{} answers with 401 Unauthorized", phisher.name));
    assert!(phisher.asked().iter().all(|asked| asked.ends_with(" -")), "{:?}", phisher.asked());
}

#[tokio::test]
async fn redirects_end_and_what_they_lead_to_is_not_shown() {
    let circle = Fake::start(|path, _| Answer::redirect(path.to_owned())).await;
    let error = pull(&circle, &manifest_of(PROFILE), &[]).await.unwrap_err().to_string();
    assert_eq!(error, "the registry redirects more than 3 times");
    assert_eq!(circle.asked().len(), 4);

    let inner = Fake::start(|_, _| Answer::ok("the secrets of a service of this machine")).await;
    let place = format!("http://{}/", inner.name);
    let registry = Fake::start(move |_, _| Answer::redirect(place.clone())).await;
    let error = pull(&registry, &manifest_of(PROFILE), &[]).await.unwrap_err().to_string();
    assert!(error.starts_with("has a manifest with the digest") && !error.contains("secrets"), "{error}");

    for location in
        ["http://registry.example.com/x", "ftp://127.0.0.1/x", "//127.0.0.1/x", "http://a@127.0.0.1/"]
    {
        let registry = Fake::start(move |_, _| Answer::redirect(location)).await;
        let error = pull(&registry, &manifest_of(PROFILE), &[]).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("the registry leads to {location:?}")), "{error}");
    }
}

#[tokio::test]
async fn a_token_is_asked_for_this_repository_and_used_here_alone() {
    let tokens = Fake::start(|path, authorization| match authorization {
        Some(BASIC) => {
            let wanted = "/token?scope=repository%3Ateam%2Fprofile%3Apull&service=the%20service";
            assert_eq!(path, wanted, "the scope of the challenge is another one");
            Answer::ok(r#"{"token":"t0ken"}"#)
        }
        _ => Answer::status(401),
    })
    .await;
    let header = format!(
        r#"Bearer realm="http://{}/token",service="the service",scope="repository:other/secret:pull,push,delete""#,
        tokens.name
    );
    let registry = Fake::start(move |path, authorization| match authorization {
        Some("Bearer t0ken") => honest(path, PROFILE),
        None => Answer::challenge(header.clone()),
        Some(other) => panic!("{other} reached the registry"),
    })
    .await;
    let manifest = manifest_of(PROFILE);
    assert_eq!(pull(&registry, &manifest, &[tenant()]).await.unwrap(), PROFILE);
    let error = pull(&registry, &manifest, &[]).await.unwrap_err().to_string();
    assert!(error.ends_with("there are no credentials for it"), "{error}");
    assert_eq!(tokens.asked().len(), 2);
}

#[tokio::test]
async fn credentials_go_to_no_token_service_without_https() {
    for realm in ["http://tokens.example.com/token", "ftp://127.0.0.1/", "http://a@127.0.0.1/token", "/token"]
    {
        let registry =
            Fake::start(move |_, _| Answer::challenge(format!("Bearer realm=\"{realm}\",service=\"s\"")))
                .await;
        let error = pull(&registry, &manifest_of(PROFILE), &[tenant()]).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("the registry leads to {realm:?}")), "{error}");
        assert!(registry.asked().iter().all(|asked| asked.ends_with(" -")), "{:?}", registry.asked());
    }
}

#[tokio::test]
async fn answers_that_mean_nothing_are_errors() {
    for (answer, expected) in [
        (Answer::status(500), "answers with 500 Internal Server Error"),
        (Answer::status(204), "answers with 204 No Content"),
        (Answer::status(401), "there are no credentials for it"),
        (Answer::challenge("Negotiate"), "there are no credentials for it"),
        (Answer::status(302), "answers with 302 Found"),
        (Answer::ok("<html>"), "the registry serves something else"),
    ] {
        let answer = std::sync::Mutex::new(Some(answer));
        let registry =
            Fake::start(move |_, _| answer.lock().unwrap().take().unwrap_or_else(|| Answer::status(418)))
                .await;
        let error = pull(&registry, &manifest_of(PROFILE), &[]).await.unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
        assert!(!error.contains("what the server says"), "{error}");
    }
}
