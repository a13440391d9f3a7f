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
    /// The image of a container, pulled if its policy asks for it.
    pub(super) async fn ensure(
        &mut self,
        node: &Node,
        pod: &RunPod,
        path: &str,
        container: &Container,
        sandbox: &PodSandboxConfig,
    ) -> Result<Image, Reason> {
        let say = |kind: EventType, reason: &str, message: &str| {
            node.recorder.say(&pod.key, path, kind, reason, message);
        };
        let fail = |reason: &str, message: String| Reason { reason: reason.to_owned(), message };
        let shown = &container.image;
        if !is_reference(shown) {
            let message = format!(
                "Failed to apply default image tag {shown:?}: couldn't parse image name {shown:?}: invalid reference format"
            );
            say(EventType::Warning, "InspectFailed", &message);
            return Err(fail("InvalidImageName", message));
        }
        let image = container.tagged_image();
        let found = node.runtime.image_status(&image).await.map_err(|error| {
            let message = format!("Failed to inspect image {image:?}: {error}");
            say(EventType::Warning, "InspectFailed", &message);
            fail("ImageInspectError", message)
        })?;
        match (found, container.pull_policy()) {
            (Some(found), "IfNotPresent" | "Never") => {
                let minor = node.config.compat.kubelet.minor();
                let end = if minor >= 35 { " and can be accessed by the pod" } else { "" };
                let message = format!("Container image {shown:?} already present on machine{end}");
                say(EventType::Normal, "Pulled", &message);
                return Ok(found);
            }
            (None, "Never") => {
                let message = format!("Container image {shown:?} is not present with pull policy of Never");
                say(EventType::Warning, "ErrImageNeverPull", &message);
                return Err(fail("ErrImageNeverPull", message));
            }
            _ => {}
        }
        let now = Timestamp::now();
        if let Some((failed, why)) = self.failed.get(&image)
            && self.back_off.waiting(&image, *failed, now).is_some()
        {
            // Releases tell the reason since v1.32.
            let minor = node.config.compat.kubelet.minor();
            let end = if minor >= 32 { format!(": ErrImagePull: {why}") } else { String::new() };
            let message = format!("Back-off pulling image {shown:?}{end}");
            say(EventType::Normal, "BackOff", &format!("Back-off pulling image {shown:?}"));
            return Err(fail("ImagePullBackOff", message));
        }
        say(EventType::Normal, "Pulling", &format!("Pulling image {shown:?}"));
        let pulled = node.runtime.pull_image(&image, sandbox.clone()).await;
        if let Err(error) = pulled {
            let now = Timestamp::now();
            self.back_off.tried(&image, now, now);
            self.failed.insert(image, (now, error.to_string()));
            say(EventType::Warning, "Failed", &format!("Failed to pull image {shown:?}: {error}"));
            return Err(fail("ErrImagePull", error.to_string()));
        }
        self.failed.remove(&image);
        say(EventType::Normal, "Pulled", &format!("Successfully pulled image {shown:?}"));
        match node.runtime.image_status(&image).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(fail("ErrImagePull", format!("image {image:?} is gone after it was pulled"))),
            Err(error) => {
                Err(fail("ImageInspectError", format!("Failed to inspect image {image:?}: {error}")))
            }
        }
    }
}

/// Whether a text can name an image at all: lower-case path elements, a tag, a digest.
fn is_reference(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.split_once(':').map(|(_, tag)| tag);
    let path = match tag {
        Some(tag) => name.strip_suffix(tag).and_then(|name| name.strip_suffix(':')).unwrap_or(name),
        None => name,
    };
    let word = |text: &str, allowed: fn(u8) -> bool| !text.is_empty() && text.bytes().all(allowed);
    let mut elements = path.split('/');
    let host_like =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    let path_like =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_');
    let first_is_host = path.contains('/');
    let first = elements.next().unwrap_or_default();
    word(first, if first_is_host { host_like } else { path_like })
        && elements.all(|element| word(element, path_like))
        && tag.is_none_or(|tag| {
            tag.len() <= 128 && word(tag, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        })
        && digest.is_none_or(|digest| {
            digest.contains(':')
                && word(digest, |b| {
                    b.is_ascii_alphanumeric() || matches!(b, b':' | b'+' | b'.' | b'-' | b'_')
                })
        })
}

#[cfg(test)]
mod tests {
    use super::is_reference;

    #[test]
    fn tells_images_from_nonsense() {
        for (image, expected) in [
            ("busybox", true),
            ("localhost/busybox:1", true),
            ("r.example:5000/a/b:v1.2_3", true),
            ("a@sha256:00ff", true),
            ("Busybox", false),
            ("a b", false),
            ("", false),
            ("a:", false),
            ("a//b", false),
            ("a@x", false),
            ("../etc", true),
        ] {
            assert_eq!(is_reference(image), expected, "{image}");
        }
    }
}
