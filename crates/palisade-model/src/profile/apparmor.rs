//! AppArmor references in annotations.
//!
//! Implements: the annotation values of the AppArmor design. There is no pod-level annotation.

use super::ProfileRef;
use crate::text::Text;

/// Prefix of the annotation of one container; the container's name follows.
pub const ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The longest profile name the API takes, in bytes: a page, as the kernel reads it, less its terminator.
pub const MAX_PROFILE_NAME: usize = 4095;

const LOCALHOST: &str = "localhost/";

/// The annotation key of a container.
#[must_use]
pub fn annotation(container: &str) -> String {
    format!("{ANNOTATION_PREFIX}{container}")
}

/// Whether the key is an AppArmor annotation.
#[must_use]
pub fn is_annotation(key: &str) -> bool {
    key.starts_with(ANNOTATION_PREFIX)
}

/// Whether an API server takes the value as an annotation.
#[must_use]
pub fn is_valid_annotation(value: &str) -> bool {
    value.is_empty() || value == "runtime/default" || value == "unconfined" || value.starts_with(LOCALHOST)
}

/// What an annotation value refers to; a name that the field would not take refers to nothing.
#[must_use]
pub fn from_annotation(value: &str) -> Option<ProfileRef<'_>> {
    match value {
        "unconfined" => Some(ProfileRef::Unconfined),
        "runtime/default" => Some(ProfileRef::RuntimeDefault),
        _ => {
            let name = value.strip_prefix(LOCALHOST)?;
            let usable = !name.is_empty() && name.trim() == name && name.len() <= MAX_PROFILE_NAME;
            usable.then(|| ProfileRef::Localhost(Text::borrowed(name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ProfileRef, from_annotation};
    use crate::text::Text;

    #[test]
    fn takes_only_names_that_the_field_takes() {
        let long = format!("localhost/{}", "x".repeat(4096));
        for (value, expected) in [
            ("unconfined", Some(ProfileRef::Unconfined)),
            ("runtime/default", Some(ProfileRef::RuntimeDefault)),
            ("docker/default", None),
            ("", None),
            ("localhost/", None),
            ("localhost/ padded", None),
            (long.as_str(), None),
            ("localhost//usr/sbin/ntpd", Some(ProfileRef::Localhost(Text::borrowed("/usr/sbin/ntpd")))),
        ] {
            assert_eq!(from_annotation(value), expected, "{value}");
        }
    }
}
