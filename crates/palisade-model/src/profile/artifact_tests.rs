//! What refers to an artifact, and what an artifact must be: each attack with a harmless twin.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const PROFILE: &str =
    r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir"],"action":"SCMP_ACT_ERRNO"}]}"#;

fn digest() -> String {
    "0123456789abcdef".repeat(4)
}

#[test]
fn references_are_pinned_by_digest_and_name_their_registry() {
    use ReferenceError::{Digest, NoDigest, Registry, Repository, Tagged};

    let digest = digest();
    for good in [
        "registry.example.com/team/profile",
        "registry.example.com:5000/a",
        "localhost/a",
        "localhost:5000/a/b/c",
        "127.0.0.1:5000/a__b/c--d/e.f",
        "[::1]:5000/a",
        "host:1/a",
    ] {
        let text = format!("{good}@sha256:{digest}");
        let reference = ArtifactReference::parse(&text).unwrap();
        assert_eq!((reference.to_string(), reference.repository.to_string()), (text, good.to_owned()));
    }
    for (text, expected) in [
        ("registry.example.com/a:latest", Tagged),
        (&format!("registry.example.com/a:v1@sha256:{digest}"), Tagged),
        ("registry.example.com:5000/a:v1", Tagged),
        ("registry.example.com/a", NoDigest),
        ("registry.example.com:5000/a", NoDigest),
        ("", NoDigest),
        ("registry.example.com/a@sha256:12", Digest),
        (&format!("registry.example.com/a@sha256:{}", digest.to_uppercase()), Digest),
        (&format!("registry.example.com/a@sha512:{digest}{digest}"), Digest),
        (&format!("registry.example.com/a@sha256:{digest}@sha256:{digest}"), Digest),
        (&format!("a@sha256:{digest}"), Registry),
        (&format!("library/a@sha256:{digest}"), Registry),
        (&format!("Registry.example.com/a@sha256:{digest}"), Registry),
        (&format!("user:password@registry.example.com/a@sha256:{digest}"), Digest),
        (&format!("https://registry.example.com/a@sha256:{digest}"), Registry),
        (&format!("registry.example.com:0/a@sha256:{digest}"), Registry),
        (&format!("registry.example.com:99999/a@sha256:{digest}"), Registry),
        (&format!("registry.example.com:+5/a@sha256:{digest}"), Registry),
        (&format!("[::1/a@sha256:{digest}"), Registry),
        (&format!("registry..example.com/a@sha256:{digest}"), Registry),
        (&format!("registry.example.com/../a@sha256:{digest}"), Repository),
        (&format!("registry.example.com//a@sha256:{digest}"), Repository),
        (&format!("registry.example.com/A@sha256:{digest}"), Repository),
        (&format!("registry.example.com/a?x=y@sha256:{digest}"), Repository),
        (&format!("registry.example.com/a#b@sha256:{digest}"), Repository),
        (&format!("registry.example.com/a%2fb@sha256:{digest}"), Repository),
        (&format!("registry.example.com/a b@sha256:{digest}"), Repository),
        (&format!("registry.example.com/{}@sha256:{digest}", "a".repeat(256)), Repository),
    ] {
        assert_eq!(ArtifactReference::parse(text), Err(expected), "{text}");
    }
}

#[test]
fn targets_of_a_push_may_have_a_tag_and_no_digest() {
    for (text, repository, tag) in [
        ("registry.example.com/a", "registry.example.com/a", None),
        ("oci://localhost:5000/a/b:v1", "localhost:5000/a/b", Some("v1")),
        ("localhost:5000/a", "localhost:5000/a", None),
    ] {
        let target = PushTarget::parse(text).unwrap();
        assert_eq!(
            (target.repository.to_string().as_str(), target.tag.as_deref()),
            (repository, tag),
            "{text}"
        );
    }
    for wrong in
        ["a", "localhost:5000/a:", "localhost:5000/a:.x", "localhost:5000/a:b/c", "localhost:5000/a:b c"]
    {
        assert!(PushTarget::parse(wrong).is_err(), "{wrong}");
    }
    assert!(PushTarget::parse(&format!("localhost/a@sha256:{}", digest())).is_err());
}

#[test]
fn a_base_profile_follows_the_reference_in_an_annotation() {
    let reference = format!("registry.example.com/a@sha256:{}", digest());
    for base in [None, Some("runtime/default"), Some("localhost/team/base.json")] {
        let text = base.map_or(reference.clone(), |base| format!("{reference},{base}"));
        let found = ArtifactProfile::parse(&text).unwrap();
        assert_eq!(found.base.as_ref().map(ToString::to_string).as_deref(), base);
        assert_eq!(found.to_string(), text);
    }
    for base in [
        "",
        "unconfined",
        "localhost/",
        "localhost/../x",
        "localhost//etc/x",
        "localhost/a,localhost/b",
        "oci://x",
    ] {
        assert_eq!(ArtifactProfile::parse(&format!("{reference},{base}")), None, "{base}");
    }
}

fn manifest(change: impl FnOnce(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(&manifest_of(PROFILE)).unwrap();
    change(&mut value);
    value.to_string()
}

fn read(manifest: &str) -> Result<Layer, ArtifactError> {
    Layer::of_manifest(manifest.as_bytes(), &sha256::hex(manifest.as_bytes()))
}

#[test]
fn what_is_pushed_is_what_is_read() {
    let manifest = manifest_of(PROFILE);
    let layer = read(&manifest).unwrap();
    assert_eq!(layer.profile(PROFILE.as_bytes().to_vec()).as_deref(), Ok(PROFILE));
}

#[test]
fn a_manifest_has_one_layer_that_is_a_seccomp_profile() {
    let other = "application/vnd.cncf.apparmor-profile.config.v1+json";
    let tar = "application/vnd.oci.image.layer.v1.tar";
    for (case, change, expected) in [
        ("as it is pushed", Box::new(|_: &mut Value| {}) as Box<dyn FnOnce(&mut Value)>, "ok"),
        ("a layer as ORAS labels files", Box::new(|m| m["layers"][0]["mediaType"] = json!(tar)), "ok"),
        (
            "an empty configuration, and the artifact's type",
            Box::new(|m| m["config"]["mediaType"] = json!(EMPTY_MEDIA_TYPE)),
            "ok",
        ),
        (
            "an empty configuration, and the layer's type",
            Box::new(|m| {
                m["config"]["mediaType"] = json!(EMPTY_MEDIA_TYPE);
                m["artifactType"] = Value::Null;
            }),
            "ok",
        ),
        (
            "a file with its type, as ORAS pushes it",
            Box::new(|m| {
                m["config"]["mediaType"] = json!(EMPTY_MEDIA_TYPE);
                m["artifactType"] = json!("application/vnd.unknown.artifact.v1");
            }),
            "ok",
        ),
        (
            "another configuration",
            Box::new(|m| m["config"]["mediaType"] = json!(other)),
            "is not a seccomp profile: its media type is \"application/vnd.cncf.apparmor-profile.config.v1+json\"",
        ),
        (
            "another artifact",
            Box::new(|m| {
                m["config"]["mediaType"] = json!(EMPTY_MEDIA_TYPE);
                m["artifactType"] = json!(other);
            }),
            "is not a seccomp profile: its media type is",
        ),
        (
            "another layer, and nothing else that names a type",
            Box::new(|m| {
                m["config"]["mediaType"] = json!(EMPTY_MEDIA_TYPE);
                m["artifactType"] = Value::Null;
                m["layers"][0]["mediaType"] = json!(tar);
            }),
            "is not a seccomp profile: its media type is \"application/vnd.oci.image.layer.v1.tar\"",
        ),
        (
            "a container image",
            Box::new(|m| m["config"]["mediaType"] = json!("application/vnd.oci.image.config.v1+json")),
            "is not a seccomp profile: its media type is \"application/vnd.oci.image.config.v1+json\"",
        ),
        (
            "two layers",
            Box::new(|m| {
                let layer = m["layers"][0].clone();
                m["layers"].as_array_mut().unwrap().push(layer);
            }),
            "has 2 layers, where a seccomp profile has one",
        ),
        ("no layer", Box::new(|m| m["layers"] = json!([])), "has 0 layers, where a seccomp profile has one"),
        (
            "a layer of 1 MiB and a byte",
            Box::new(|m| m["layers"][0]["size"] = json!((1 << 20) + 1)),
            "has a profile of 1048577 bytes, more than the 1048576 a profile may have",
        ),
        ("a layer of 1 MiB", Box::new(|m| m["layers"][0]["size"] = json!(1 << 20)), "ok"),
        (
            "a negative size",
            Box::new(|m| m["layers"][0]["size"] = json!(-1)),
            "is not an OCI image manifest: the layer has no size",
        ),
        (
            "another digest algorithm",
            Box::new(|m| m["layers"][0]["digest"] = json!("md5:00112233445566778899aabbccddeeff")),
            "is not an OCI image manifest: the layer has no SHA-256 digest",
        ),
        (
            "an index",
            Box::new(|m| m["mediaType"] = json!("application/vnd.oci.image.index.v1+json")),
            "is not an OCI image manifest: it has another mediaType",
        ),
        (
            "another schema",
            Box::new(|m| m["schemaVersion"] = json!(1)),
            "is not an OCI image manifest: schemaVersion is not 2",
        ),
        (
            "no configuration",
            Box::new(|m| m["config"] = Value::Null),
            "is not an OCI image manifest: it has no config",
        ),
        (
            "larger than a manifest is",
            Box::new(|m| m["annotations"] = json!({"a": "x".repeat(MAX_MANIFEST_BYTES)})),
            "has a manifest of more than 65536 bytes",
        ),
    ] {
        let found = read(&manifest(change)).map_or_else(|error| error.to_string(), |_| "ok".to_owned());
        assert!(found.starts_with(expected), "{case}: {found}");
    }
    let twice = manifest_of(PROFILE).replacen('{', r#"{"layers":[],"#, 1);
    assert!(read(&twice).unwrap_err().to_string().contains("sets the key \"layers\" twice"));
}

#[test]
fn digests_and_sizes_are_verified() {
    let manifest = manifest_of(PROFILE);
    let layer = read(&manifest).unwrap();
    let error = Layer::of_manifest(manifest.as_bytes(), &digest()).unwrap_err().to_string();
    assert!(error.starts_with("has a manifest with the digest sha256:"), "{error}");
    let error = layer.profile(PROFILE.replace("mkdir", "rmdir").into_bytes()).unwrap_err().to_string();
    assert!(error.contains("the registry serves something else"), "{error}");
    let error = layer.profile(format!("{PROFILE} ").into_bytes()).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("has a profile of {} bytes where its manifest states {}", PROFILE.len() + 1, PROFILE.len())
    );
}

#[test]
fn profiles_from_registries_have_bounds_and_no_listener() {
    let entries = |count: usize| {
        let entry = json!({"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"});
        json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": vec![entry; count]}).to_string()
    };
    for (case, text, expected) in [
        ("a profile", PROFILE.to_owned(), "ok"),
        ("128 entries", entries(128), "ok"),
        ("129 entries", entries(129), "has 129 entries in syscalls, more than the 128"),
        (
            "a listener",
            PROFILE.replacen('{', r#"{"listenerPath":"/run/x.sock","#, 1),
            "leaves system calls to a listener: listenerPath",
        ),
        (
            "what a listener is given",
            PROFILE.replacen('{', r#"{"listenerMetadata":"x","#, 1),
            "leaves system calls to a listener: listenerMetadata",
        ),
        (
            "calls that a listener decides about",
            PROFILE.replace("SCMP_ACT_ERRNO", "SCMP_ACT_NOTIFY"),
            "leaves system calls to a listener: syscalls[0].action",
        ),
        ("no call is denied", r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#.to_owned(), "confines nothing"),
        (
            "1 MiB and a byte",
            format!("{PROFILE}{}", " ".repeat((1 << 20) + 1 - PROFILE.len())),
            "has a profile of 1048577 bytes",
        ),
    ] {
        let found = check_profile(&text).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        assert!(found.starts_with(expected), "{case}: {found}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9:/@.,\\[\\]_-]{0,120}", manifest in ".{0,200}") {
        let _ = (ArtifactReference::parse(&text), PushTarget::parse(&text), ArtifactProfile::parse(&text));
        let _ = read(&manifest);
    }

    #[test]
    fn what_is_read_is_written_the_same(path in "[a-z]{1,5}(/[a-z0-9]{1,5}){0,3}", port in 1u16..) {
        let text = format!("registry.example.com:{port}/{path}@sha256:{}", digest());
        prop_assert_eq!(ArtifactReference::parse(&text).unwrap().to_string(), text);
    }
}
