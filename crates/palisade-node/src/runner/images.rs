//! Images: there already, to be pulled, or not to be had.
//!
//! Implements: the kubelet's image manager (`pkg/kubelet/images/image_manager.go`): pull policies, back-off, and the words
//! users see.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{backoff::BackOff, plan::Reason};
use crate::{
    cri::proto::{Image, PodSandboxConfig},
    events::EventType,
    node::Node,
    pod::{Container, RunPod},
};

/// What is remembered about pulling the images of a pod.
#[derive(Debug, Default)]
pub(super) struct Images {
    back_off: BackOff,
    failed: BTreeMap<String, (Timestamp, String)>,
}

impl Images {
    /// The image of a container, pulled if its policy requests it.
    pub(super) async fn ensure(
        &mut self,
        node: &Node,
        pod: &RunPod,
        path: &str,
        container: &Container,
        sandbox: &PodSandboxConfig,
    ) -> Result<Image, Reason> {
        let record = |kind: EventType, reason: &str, message: &str| {
            node.recorder.record(&pod.key, path, kind, reason, message);
        };
        let fail = |reason: &str, message: String| Reason { reason: reason.to_owned(), message };
        let shown = &container.image;
        let minor = node.config.compat.kubelet.minor();
        if let Err(why) = check_reference(shown) {
            let what = if minor >= 28 { "name" } else { "reference" };
            let message = format!(
                "Failed to apply default image tag {shown:?}: couldn't parse image {what} {shown:?}: {why}"
            );
            record(EventType::Warning, "InspectFailed", &message);
            return Err(fail("InvalidImageName", message));
        }
        let image = container.tagged_image();
        let found = node.runtime.image_status(&image).await.map_err(|error| {
            let message = format!("Failed to inspect image {image:?}: {error}");
            record(EventType::Warning, "InspectFailed", &message);
            fail("ImageInspectError", message)
        })?;
        match (found, container.pull_policy()) {
            (Some(found), "IfNotPresent" | "Never") => {
                let end = if minor >= 35 { " and can be accessed by the pod" } else { "" };
                let message = format!("Container image {shown:?} already present on machine{end}");
                record(EventType::Normal, "Pulled", &message);
                return Ok(found);
            }
            (None, "Never") => {
                let message = format!("Container image {shown:?} is not present with pull policy of Never");
                record(EventType::Warning, "ErrImageNeverPull", &message);
                return Err(fail("ErrImageNeverPull", message));
            }
            _ => {}
        }
        let now = Timestamp::now();
        if let Some((failed, why)) = self.failed.get(&image)
            && self.back_off.waiting(&image, *failed, now).is_some()
        {
            // Releases report the reason since v1.32.
            let end = if minor >= 32 { format!(": ErrImagePull: {why}") } else { String::new() };
            let message = format!("Back-off pulling image {shown:?}{end}");
            record(EventType::Normal, "BackOff", &format!("Back-off pulling image {shown:?}"));
            return Err(fail("ImagePullBackOff", message));
        }
        record(EventType::Normal, "Pulling", &format!("Pulling image {shown:?}"));
        let pulled = node.runtime.pull_image(&image, sandbox.clone()).await;
        if let Err(error) = pulled {
            let now = Timestamp::now();
            self.back_off.tried(&image, now, now);
            // A code without meaning is left out, so that the message begins with its cause.
            let why = if error.code == "Unknown" { error.message } else { error.to_string() };
            record(EventType::Warning, "Failed", &format!("Failed to pull image {shown:?}: {why}"));
            self.failed.insert(image, (now, why.clone()));
            return Err(fail("ErrImagePull", why));
        }
        self.failed.remove(&image);
        record(EventType::Normal, "Pulled", &format!("Successfully pulled image {shown:?}"));
        match node.runtime.image_status(&image).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(fail("ErrImagePull", format!("image {image:?} is gone after it was pulled"))),
            Err(error) => {
                Err(fail("ImageInspectError", format!("Failed to inspect image {image:?}: {error}")))
            }
        }
    }
}

/// Why a text names no image, in the words of `distribution/reference`, which every kubelet reads images with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ImageNameError {
    /// It could be an id.
    #[error("invalid repository name ({0}), cannot specify 64-byte hexadecimal strings")]
    LooksLikeId(String),
    /// A capital letter in a path.
    #[error("invalid reference format: repository name ({0}) must be lowercase")]
    Uppercase(String),
    /// It does not follow the grammar.
    #[error("invalid reference format")]
    Format,
    /// A digest that is not made with SHA-2.
    #[error("unsupported digest algorithm")]
    DigestAlgorithm,
    /// A digest of another length than its algorithm has.
    #[error("invalid checksum digest length")]
    DigestLength,
}

/// Whether a text can name an image at all: lower-case path elements, a tag, a digest.
fn check_reference(image: &str) -> Result<(), ImageNameError> {
    if image.len() == 64 && image.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(ImageNameError::LooksLikeId(image.to_owned()));
    }
    let repository = in_repository(image);
    if repository.chars().any(char::is_uppercase) {
        return Err(ImageNameError::Uppercase(repository));
    }
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.split_once(':').map(|(_, tag)| tag);
    let path = match tag {
        Some(tag) => name.strip_suffix(tag).and_then(|name| name.strip_suffix(':')).unwrap_or(name),
        None => name,
    };
    let word = |text: &str, allowed: fn(u8) -> bool| !text.is_empty() && text.bytes().all(allowed);
    let mut elements = path.split('/').peekable();
    let has_host = is_host(elements.peek().copied().filter(|_| path.contains('/')).unwrap_or_default());
    let host = if has_host { elements.next() } else { None };
    let well_formed = host.is_none_or(is_host_name)
        && elements.all(is_element)
        && tag.is_none_or(|tag| {
            tag.len() <= 128
                && !tag.starts_with(['.', '-'])
                && word(tag, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        });
    if !well_formed {
        return Err(ImageNameError::Format);
    }
    let Some(digest) = digest else { return Ok(()) };
    let hex = |text: &str| text.len() >= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match digest.split_once(':') {
        Some((algorithm, text)) if hex(text) && algorithm.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            let length = match algorithm {
                "sha256" => 64,
                "sha384" => 96,
                "sha512" => 128,
                _ => return Err(ImageNameError::DigestAlgorithm),
            };
            if text.len() == length { Ok(()) } else { Err(ImageNameError::DigestLength) }
        }
        _ => Err(ImageNameError::Format),
    }
}

/// Whether the first element names a registry rather than a repository.
fn is_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase)
}

/// Names between dots, or an address in brackets; and perhaps a port.
fn is_host_name(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_label = |label: &str| {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric();
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| is_letter(byte) || byte == b'-')
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
        && match address {
            Some(address) => address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'),
            None => name.split('.').all(is_label),
        }
}

/// The repository inside its registry, without tag; Docker's own registry has a folder for images without one.
fn in_repository(image: &str) -> String {
    let rest = match image.split_once('/') {
        Some((first, rest)) if is_host(first) => rest.to_owned(),
        Some(_) => image.to_owned(),
        None => format!("library/{image}"),
    };
    rest.split_once(':').map_or(rest.clone(), |(name, _)| name.to_owned())
}

/// Letters and digits, with separators between them only: a dot, one or two underscores, any number of dashes.
fn is_element(element: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = element.as_bytes();
    let ends_well = |byte: Option<&u8>| byte.is_some_and(|byte| is_plain(*byte));
    ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes
            .split(|byte| is_plain(*byte))
            .all(|between| matches!(between, b"" | b"." | b"_" | b"__") || between.iter().all(|&b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::check_reference;

    #[test]
    fn rejects_invalid_image_references() {
        let digest = "0123456789abcdef".repeat(4);
        let good = format!("a@sha256:{digest}");
        let both = format!("r.example/a:1@sha256:{digest}");
        let bare_digest =
            format!("invalid repository name ({digest}), cannot specify 64-byte hexadecimal strings");
        let lower =
            |name: &str| format!("invalid reference format: repository name ({name}) must be lowercase");
        let (busybox, deep) = (lower("library/Busybox"), lower("team/App"));
        let invalid = "invalid reference format";
        for (image, expected) in [
            ("busybox", Ok(())),
            ("localhost/busybox:1", Ok(())),
            ("r.example:5000/a/b:v1.2_3", Ok(())),
            ("a__b/c--d/e.f", Ok(())),
            ("Registry/a", Ok(())),
            ("[::1]:5000/a", Ok(())),
            ("r.example:port/a", Err(invalid)),
            (&good, Ok(())),
            (&both, Ok(())),
            (&digest, Err(bare_digest.as_str())),
            ("Busybox", Err(&busybox)),
            ("Busybox:1", Err(&busybox)),
            ("r.example/team/App:1", Err(&deep)),
            ("a b", Err(invalid)),
            ("", Err(invalid)),
            ("a:", Err(invalid)),
            ("a:-1", Err(invalid)),
            ("a//b", Err(invalid)),
            ("a_/b", Err(invalid)),
            ("a___b", Err(invalid)),
            ("a@x", Err(invalid)),
            ("a@sha256:00ff", Err(invalid)),
            ("a@md5:00112233445566778899aabbccddeeff", Err("unsupported digest algorithm")),
            ("a@sha256:00112233445566778899aabbccddeeff", Err("invalid checksum digest length")),
            ("https://r.example/a", Err(invalid)),
            ("../etc", Err(invalid)),
        ] {
            let found = check_reference(image).err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected.err(), "{image}");
        }
    }
}
