//! A profile that a ConfigMap holds: is it there, is it a document at all, and where it came from, by the pod.
//!
//! Implements: "Starting containers with non-existent profile" of the ConfigMap profile design, with bounds that the design
//! takes for granted: size, depth, and no NUL, which a C library behind the runtime would take for the end of a name. The design
//! requires valid JSON only and leaves the rest to the runtime; here a document must be a profile in every part, because a
//! tenant writes it and what a runtime drops or reads differently is not what was judged.
//! Reading the ConfigMap and hashing its bytes is the caller's.

use std::fmt;

use palisade_base::sha256;
use serde_json::Value;
use thiserror::Error;

use super::{
    ProfileRef,
    decision::TooComplex,
    document::COMMENT_KEYS,
    filter::{ARGUMENT_KEYS, Filter, FilterError, RULE_KEYS, TOP_KEYS},
    json::{self, JsonError},
    seccomp,
};

/// The largest profile taken: what a ConfigMap can hold.
pub const MAX_PROFILE_BYTES: usize = 1 << 20;

/// The deepest nesting taken; `serde_json`'s own bound.
const MAX_PROFILE_DEPTH: usize = 127;

/// Why a text is no profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// Larger than any ConfigMap.
    #[error("has {size} bytes, more than the {MAX_PROFILE_BYTES} a profile may have")]
    TooLarge {
        /// How large.
        size: usize,
    },
    /// Nothing, or nothing but blanks.
    #[error("is empty")]
    Empty,
    /// Not JSON.
    #[error("is not valid JSON: {0}")]
    NotJson(String),
    /// Nested deeper than any profile.
    #[error("is nested more than {MAX_PROFILE_DEPTH} levels deep, where a profile has five")]
    TooDeep,
    /// A key is there twice: the runtime may read another profile than the one that was checked.
    #[error("sets the key {0:?} twice, and readers disagree about which one counts")]
    DuplicateKey(String),
    /// JSON, but not a profile that has one meaning.
    #[error("is not a seccomp profile: {0}")]
    NotAProfile(String),
    /// A key that runtimes drop: the profile would mean something else than its author reads in it.
    #[error("is not a seccomp profile: {at}: is not a key of a profile: remove it, or write one of {known}")]
    UnknownKey {
        /// The key, with its path.
        at: String,
        /// The keys that may stand there.
        known: String,
    },
    /// A process outside the container would decide about calls, and may allow what the profile seems to deny.
    #[error(
        "leaves system calls to a listener: {at}: use SCMP_ACT_ERRNO or SCMP_ACT_LOG, and no listenerPath or listenerMetadata"
    )]
    Listener {
        /// The field.
        at: String,
    },
    /// It denies no system call. `Unconfined` has the same effect, and policies see it.
    #[error("confines nothing: no system call is denied")]
    ConfinesNothing,
    /// Too complex to evaluate.
    #[error("has rules too involved to be judged")]
    NotJudged,
    /// A NUL, written out or as `\u0000`: what comes after it would be lost on the way to the kernel.
    #[error("has a NUL character")]
    Nul,
}

/// Checks that a text is a profile that a tenant may bring along: JSON within bounds that has one meaning, no key that a runtime
/// drops, no call that a listener decides about, and at least one system call that is denied.
pub fn check_document(text: &str) -> Result<(), DocumentError> {
    let value = bounded_json(text)?;
    let filter = Filter::read(&value).map_err(|error| DocumentError::NotAProfile(error.to_string()))?;
    check_keys(&value)?;
    match filter.denied_call() {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(DocumentError::ConfinesNothing),
        Err(TooComplex) => Err(DocumentError::NotJudged),
    }
}

/// Checks that a runtime makes a filter of a file that an administrator put on the node: it takes `{}` for no profile at all, and
/// a key that is there twice for either. What the filter denies and who listens is the administrator's to decide; what every
/// runtime rejects by itself is left to the runtime: a document that is no object, an unknown action.
pub fn check_node_file(text: &str) -> Result<(), DocumentError> {
    match Filter::read(&bounded_json(text)?) {
        Ok(_) | Err(FilterError::NotAnObject | FilterError::UnknownAction { .. }) => Ok(()),
        Err(error) => Err(DocumentError::NotAProfile(error.to_string())),
    }
}

fn bounded_json(text: &str) -> Result<Value, DocumentError> {
    if text.len() > MAX_PROFILE_BYTES {
        return Err(DocumentError::TooLarge { size: text.len() });
    }
    if text.trim().is_empty() {
        return Err(DocumentError::Empty);
    }
    if text.contains('\0') {
        return Err(DocumentError::Nul);
    }
    let value = json::read(text).map_err(|error| match error {
        JsonError::Syntax(message) => DocumentError::NotJson(message),
        JsonError::TooDeep => DocumentError::TooDeep,
        JsonError::DuplicateKey(key) => DocumentError::DuplicateKey(key),
    })?;
    if has_nul(&value) { Err(DocumentError::Nul) } else { Ok(value) }
}

/// The keys of a document that [`Filter::read`] has read, so that its lists are lists of objects.
fn check_keys(document: &Value) -> Result<(), DocumentError> {
    for key in ["listenerPath", "listenerMetadata"] {
        if document.get(key).is_some_and(|value| !value.is_null()) {
            return Err(DocumentError::Listener { at: key.to_owned() });
        }
    }
    known_keys(document, "", TOP_KEYS)?;
    for (index, rule) in items(document, "syscalls").enumerate() {
        let at = format!("syscalls[{index}]");
        known_keys(rule, &format!("{at}."), RULE_KEYS)?;
        if rule.get("action").and_then(Value::as_str) == Some("SCMP_ACT_NOTIFY") {
            return Err(DocumentError::Listener { at: format!("{at}.action") });
        }
        for (index, argument) in items(rule, "args").enumerate() {
            known_keys(argument, &format!("{at}.args[{index}]."), ARGUMENT_KEYS)?;
        }
    }
    Ok(())
}

fn items<'v>(object: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    object.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn known_keys(object: &Value, at: &str, known: &[&str]) -> Result<(), DocumentError> {
    let is_unknown = |key: &&String| !known.contains(&key.as_str()) && !COMMENT_KEYS.contains(&key.as_str());
    match object.as_object().and_then(|fields| fields.keys().find(is_unknown)) {
        None => Ok(()),
        Some(key) => {
            let listener = |name: &&&str| !name.starts_with("listener");
            let known: Vec<&str> = known.iter().filter(listener).copied().collect();
            Err(DocumentError::UnknownKey { at: format!("{at}{key}"), known: known.join(", ") })
        }
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

/// Why a reference to a profile in a ConfigMap cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigMapProblem {
    /// There is no such ConfigMap in the pod's namespace.
    #[error(
        "configmap {name:?} not found in namespace {namespace:?}: it holds seccomp profile configmap/{name}/{key}"
    )]
    ConfigMapMissing {
        /// The pod's namespace.
        namespace: String,
        /// The ConfigMap.
        name: String,
        /// The key.
        key: String,
    },
    /// The ConfigMap has no such key.
    #[error("couldn't find key {key} in ConfigMap {namespace}/{name}")]
    KeyMissing {
        /// The pod's namespace.
        namespace: String,
        /// The ConfigMap.
        name: String,
        /// The key.
        key: String,
    },
    /// The key is there, but not as text.
    #[error(
        "key {key} of ConfigMap {namespace}/{name} is in binaryData: a seccomp profile is text and belongs in data"
    )]
    KeyBinary {
        /// The pod's namespace.
        namespace: String,
        /// The ConfigMap.
        name: String,
        /// The key.
        key: String,
    },
    /// The document is not one a runtime should be bothered with.
    #[error("seccomp profile {profile} {source}")]
    Document {
        /// The reference.
        profile: String,
        /// What is wrong.
        source: DocumentError,
    },
}

/// The text of a profile in a ConfigMap: what its `data` has under the key, and whether its `binaryData` has it instead.
pub fn text_in<'t>(
    (namespace, name, key): (&str, &str, &str),
    text: Option<&'t str>,
    is_binary: bool,
) -> Result<&'t str, ConfigMapProblem> {
    let (namespace, name, key) = (namespace.to_owned(), name.to_owned(), key.to_owned());
    match text {
        Some(text) => Ok(text),
        None if is_binary => Err(ConfigMapProblem::KeyBinary { namespace, name, key }),
        None => Err(ConfigMapProblem::KeyMissing { namespace, name, key }),
    }
}

/// A profile in a ConfigMap, and its hash once it was read: `configmap/<name>/<key>[@sha256:<hex>]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The ConfigMap, in the pod's namespace.
    pub name: String,
    /// The key in its data.
    pub key: String,
    /// SHA-256 of the bytes, in hexadecimal.
    pub hash: Option<String>,
}

impl Source {
    /// Reads the value of an annotation, ours or the older ones of Kubernetes.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (reference, hash) = match value.split_once('@') {
            Some((reference, digest)) => (
                reference,
                Some(digest.strip_prefix("sha256:").filter(|hash| sha256::is_hex(hash))?.to_owned()),
            ),
            None => (value, None),
        };
        match seccomp::from_annotation(reference)? {
            ProfileRef::ConfigMap { name, key } => {
                Some(Self { name: name.to_string(), key: key.to_string(), hash })
            }
            _ => None,
        }
    }

    /// The reference without the hash.
    #[must_use]
    pub fn reference(&self) -> ProfileRef<'static> {
        ProfileRef::ConfigMap { name: self.name.clone().into(), key: self.key.clone().into() }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configmap/{}/{}", self.name, self.key)?;
        self.hash.as_ref().map_or(Ok(()), |hash| write!(f, "@sha256:{hash}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn takes_profiles_within_bounds_and_nothing_else() {
        let profile = r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#;
        let large = format!("{profile}{}", " ".repeat(MAX_PROFILE_BYTES - profile.len()));
        let too_large = format!("{large} ");
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (case, text, expected) in [
            ("a profile", r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#, "ok"),
            (
                "one call is denied",
                r#"{"defaultAction":"SCMP_ACT_LOG","syscalls":[{"names":["mkdir"],"action":"SCMP_ACT_ERRNO"}]}"#,
                "ok",
            ),
            ("a list", "[]", "is not a seccomp profile: is not a JSON object"),
            ("a text", "\"SCMP_ACT_ERRNO\"", "is not a seccomp profile: is not a JSON object"),
            (
                "another document",
                r#"{"foo":1}"#,
                "is not a seccomp profile: has neither defaultAction nor syscalls: a runtime applies no profile at all",
            ),
            (
                "a key that is not known",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","foo":1}"#,
                "is not a seccomp profile: foo: is not a key of a profile: remove it, or write one of architectures, defaultAction, defaultErrnoRet, flags, syscalls",
            ),
            (
                "a condition of Docker's, which others drop",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["mount"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}]}"#,
                "is not a seccomp profile: syscalls[0].includes: is not a key of a profile: remove it, or write one of action, args, errnoRet, names",
            ),
            (
                "a key of a condition that is not known",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["clone"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"op":"SCMP_CMP_EQ","value":1,"mask":2}]}]}"#,
                "is not a seccomp profile: syscalls[0].args[0].mask: is not a key of a profile: remove it, or write one of index, op, value, valueTwo",
            ),
            (
                "comments",
                r#"{"comment":"x","$schema":"y","defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"comment":"z","names":["read"],"action":"SCMP_ACT_ALLOW"}]}"#,
                "ok",
            ),
            (
                "a listener decides",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["mount"],"action":"SCMP_ACT_NOTIFY"}]}"#,
                "leaves system calls to a listener: syscalls[0].action: use SCMP_ACT_ERRNO or SCMP_ACT_LOG, and no listenerPath or listenerMetadata",
            ),
            (
                "a listener decides about a call that does not exist",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["nope"],"action":"SCMP_ACT_NOTIFY"}]}"#,
                "leaves system calls to a listener: syscalls[0].action: use SCMP_ACT_ERRNO or SCMP_ACT_LOG, and no listenerPath or listenerMetadata",
            ),
            (
                "a listener",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","listenerPath":"/run/x.sock"}"#,
                "leaves system calls to a listener: listenerPath: use SCMP_ACT_ERRNO or SCMP_ACT_LOG, and no listenerPath or listenerMetadata",
            ),
            (
                "what a listener is given",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","listenerMetadata":""}"#,
                "leaves system calls to a listener: listenerMetadata: use SCMP_ACT_ERRNO or SCMP_ACT_LOG, and no listenerPath or listenerMetadata",
            ),
            (
                "no profile",
                "{}",
                "is not a seccomp profile: has neither defaultAction nor syscalls: a runtime applies no profile at all",
            ),
            (
                "null",
                "null",
                "is not a seccomp profile: has neither defaultAction nor syscalls: a runtime applies no profile at all",
            ),
            (
                "allows everything",
                r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#,
                "confines nothing: no system call is denied",
            ),
            (
                "logs everything",
                r#"{"defaultAction":"SCMP_ACT_LOG"}"#,
                "confines nothing: no system call is denied",
            ),
            (
                "only rules that allow",
                r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir"],"action":"SCMP_ACT_ALLOW"}]}"#,
                "confines nothing: no system call is denied",
            ),
            (
                "denies what does not exist",
                r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["nope"],"action":"SCMP_ACT_KILL"}]}"#,
                "confines nothing: no system call is denied",
            ),
            (
                "the same key twice",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultAction":"SCMP_ACT_ALLOW"}"#,
                "sets the key \"defaultAction\" twice, and readers disagree about which one counts",
            ),
            (
                "the same key in other letters",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultaction":"SCMP_ACT_ALLOW"}"#,
                "is not a seccomp profile: defaultaction: must be written defaultAction: runtimes read it as that key",
            ),
            (
                "an unknown action",
                r#"{"defaultAction":"NOPE"}"#,
                "is not a seccomp profile: defaultAction: \"NOPE\" is not an action",
            ),
            (
                "an unknown action of a rule",
                r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"ALLOW"}]}"#,
                "is not a seccomp profile: syscalls[0].action: \"ALLOW\" is not an action",
            ),
            ("1 MiB", &large, "ok"),
            ("1 MiB and a byte", &too_large, "has 1048577 bytes, more than the 1048576 a profile may have"),
            ("empty", "", "is empty"),
            ("blank", " \n", "is empty"),
            ("YAML", "defaultAction: SCMP_ACT_ALLOW", "is not valid JSON: expected value at line 1 column 1"),
            ("two documents", "{} {}", "is not valid JSON: trailing characters at line 1 column 4"),
            ("NUL", "{\0}", "has a NUL character"),
            ("NUL in a name", r#"{"names":["mkdir\u0000x"]}"#, "has a NUL character"),
            ("NUL in a key", r#"{"\u0000":1}"#, "has a NUL character"),
            ("deep", &nested(100_000), "is nested more than 127 levels deep, where a profile has five"),
        ] {
            let found = check_document(text).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn a_source_is_read_as_it_is_written() {
        let hash = "0123456789abcdef".repeat(4);
        for (value, hashed) in [
            ("configmap/web/a.json".to_owned(), false),
            (format!("configmap/web/a.json@sha256:{hash}"), true),
        ] {
            let source = Source::parse(&value).unwrap();
            assert_eq!((source.to_string(), source.hash.is_some()), (value, hashed));
        }
        for wrong in
            ["configmap/web", "configmap/web/a@sha256:12", "configmap/web/a@md5:12", "runtime/default", ""]
        {
            assert_eq!(Source::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = check_document(&text);
        }
    }
}
