//! Seccomp references in annotations.
//!
//! Implements: the annotation values of the seccomp design, with `docker/default` as the old alias, and
//! `configmap/<name>/<key>` and `oci://<reference>`.

use super::{
    ProfileRef,
    artifact::{ArtifactProfile, SCHEME},
};
use crate::text::Text;

/// Annotation of the whole pod.
pub const POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Prefix of the annotation of one container; the container's name follows.
pub const CONTAINER_ANNOTATION_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";

const LOCALHOST: &str = "localhost/";
const CONFIG_MAP: &str = "configmap/";

/// The annotation key of a container.
#[must_use]
pub fn container_annotation(container: &str) -> String {
    format!("{CONTAINER_ANNOTATION_PREFIX}{container}")
}

/// Whether the key is one of the two seccomp annotations.
#[must_use]
pub fn is_annotation(key: &str) -> bool {
    key == POD_ANNOTATION || key.starts_with(CONTAINER_ANNOTATION_PREFIX)
}

/// What an annotation value refers to. `localhost/` alone, and anything unknown, refers to nothing.
#[must_use]
pub fn from_annotation(value: &str) -> Option<ProfileRef<'_>> {
    match value {
        "unconfined" => Some(ProfileRef::Unconfined),
        "runtime/default" | "docker/default" => Some(ProfileRef::RuntimeDefault),
        _ => {
            if let Some(path) = value.strip_prefix(LOCALHOST) {
                return (!path.is_empty()).then(|| ProfileRef::Localhost(Text::borrowed(path)));
            }
            if let Some(reference) = value.strip_prefix(SCHEME) {
                return ArtifactProfile::parse(reference).map(ProfileRef::Oci);
            }
            let (name, key) = config_map_reference(value.strip_prefix(CONFIG_MAP)?)?;
            Some(ProfileRef::ConfigMap { name: Text::borrowed(name), key: Text::borrowed(key) })
        }
    }
}

/// Splits `<name>/<key>`; both parts must be there, and neither may hold another slash.
#[must_use]
pub fn config_map_reference(reference: &str) -> Option<(&str, &str)> {
    let (name, key) = reference.split_once('/')?;
    (is_config_map_name(name) && is_config_map_key(key)).then_some((name, key))
}

/// RFC 1123 subdomain: what a ConfigMap may be called.
fn is_config_map_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// What a key of a ConfigMap may look like; `.` and anything with `..` at the front could climb out of a folder.
fn is_config_map_key(key: &str) -> bool {
    (1..=253).contains(&key.len())
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && key != "."
        && !key.starts_with("..")
}

#[cfg(test)]
mod tests {
    use super::{ArtifactProfile, ProfileRef, config_map_reference, from_annotation};
    use crate::text::Text;

    #[test]
    fn reads_every_annotation_form() {
        let artifact = format!("oci://registry.example.com/a@sha256:{}", "0".repeat(64));
        let based = format!("{artifact},localhost/team/base.json");
        let localhost = |path| Some(ProfileRef::Localhost(Text::borrowed(path)));
        for (value, expected) in [
            ("unconfined", Some(ProfileRef::Unconfined)),
            ("runtime/default", Some(ProfileRef::RuntimeDefault)),
            ("docker/default", Some(ProfileRef::RuntimeDefault)),
            ("localhost/a/b.json", localhost("a/b.json")),
            ("localhost//etc/p", localhost("/etc/p")),
            ("localhost/", None),
            ("", None),
            ("runtime/default-audit", None),
            ("Unconfined", None),
            (
                "configmap/web.seccomp/block.json",
                Some(ProfileRef::ConfigMap { name: "web.seccomp".into(), key: "block.json".into() }),
            ),
            ("configmap/web", None),
            ("configmap/web/", None),
            ("oci://registry.example.com/a:latest", None),
            ("oci://", None),
            (&artifact, ArtifactProfile::parse(&artifact["oci://".len()..]).map(ProfileRef::Oci)),
            (&based, ArtifactProfile::parse(&based["oci://".len()..]).map(ProfileRef::Oci)),
        ] {
            assert_eq!(from_annotation(value), expected, "{value}");
            if let Some(reference) = expected
                && value != "docker/default"
            {
                assert_eq!(reference.to_annotation(), value);
                assert_eq!(reference.to_field().reference(), Some(reference), "{value}");
            }
        }
    }

    #[test]
    fn a_config_map_reference_cannot_climb() {
        for bad in
            ["../x", "x/..", "x/../y", "a/b/c", "A/b", "-a/b", "a/", "/b", "a/..b", "a/.", "a_b/c", "a/b c"]
        {
            assert_eq!(config_map_reference(bad), None, "{bad}");
        }
        assert_eq!(config_map_reference("a.b-c/D_e.json"), Some(("a.b-c", "D_e.json")));
    }
}
