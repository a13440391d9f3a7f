//! A profile that a registry holds as an OCI artifact: how a pod refers to it, and what the artifact must be.
//!
//! Implements: KEP-6061, "OCI Artifact-Based Security Profile Distribution" (alpha): digest-pinned references, exactly one layer
//! that is the profile itself, the media type, the bounds of size and entries, no listener.
//! <https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/6061-oci-artifact-security-profiles>
//! The KEP bounds the entries for one system call; here all entries of a profile together have that bound.
//!
//! Leaves to others: fetching (`palisade-registry`), the intersection with the baseline ([`super::baseline`]).

use std::fmt;

use palisade_base::sha256;
use serde_json::{Value, json};
use thiserror::Error;

use super::{
    baseline::BaselineProfile,
    config_map::{DocumentError, check_document},
    json::{self as strict_json, JsonError},
};
use crate::text::Text;

/// The media type of a seccomp profile.
pub const MEDIA_TYPE: &str = "application/vnd.cncf.seccomp-profile.config.v1+json";
/// The media type of an artifact's manifest.
pub const MANIFEST_MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of a configuration that holds nothing.
const EMPTY_MEDIA_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// What ORAS writes if it is not given a type.
const UNKNOWN_ARTIFACT_TYPE: &str = "application/vnd.unknown.artifact.v1";
/// The configuration that holds nothing.
pub const EMPTY_CONFIG: &[u8] = b"{}";

/// The largest manifest taken: one with a single layer and annotations.
pub const MAX_MANIFEST_BYTES: usize = 64 << 10;
/// The largest profile taken.
pub const MAX_LAYER_BYTES: usize = 1 << 20;
/// The most entries that a profile may have in `syscalls`.
pub const MAX_ENTRIES: usize = 128;

/// What annotations begin with that refer to an artifact.
pub const SCHEME: &str = "oci://";
/// The longest repository.
const MAX_REPOSITORY: usize = 255;

/// Why a text does not refer to an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReferenceError {
    /// A tag, which may name another profile tomorrow.
    #[error("must be pinned by digest, not by tag: <registry>/<repository>@sha256:<digest>")]
    Tagged,
    /// Nothing that names the content.
    #[error("must be pinned by digest: <registry>/<repository>@sha256:<digest>")]
    NoDigest,
    /// A digest that is not SHA-256 in lower case.
    #[error("must have a digest of 64 lower-case hexadecimal digits after sha256:")]
    Digest,
    /// No registry: which one is meant depends on who reads it.
    #[error(
        "must begin with the registry, a lower-case name with a dot or a port, or localhost: <registry>/<repository>@sha256:<digest>"
    )]
    Registry,
    /// A repository that no registry has.
    #[error(
        "must have a repository of lower-case letters, digits and separators: <registry>/<repository>@sha256:<digest>"
    )]
    Repository,
}

/// A repository of a registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Repository {
    /// Host, and port if it is not the usual one.
    pub registry: String,
    /// The path inside the registry.
    pub path: String,
}

impl Repository {
    fn parse(text: &str) -> Result<Self, ReferenceError> {
        let (registry, path) = text.split_once('/').ok_or(ReferenceError::Registry)?;
        if !is_registry(registry) {
            return Err(ReferenceError::Registry);
        }
        if text.len() > MAX_REPOSITORY || !path.split('/').all(is_element) {
            return Err(ReferenceError::Repository);
        }
        Ok(Self { registry: registry.to_owned(), path: path.to_owned() })
    }

    /// The host without the port, and without the brackets of an IPv6 address.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = match self.registry.rsplit_once(':') {
            Some((host, _)) if !self.registry.ends_with(']') => host,
            _ => self.registry.as_str(),
        };
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)
    }
}

/// An artifact, by the digest of its manifest: `<registry>/<repository>@sha256:<digest>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArtifactReference {
    /// Where it is.
    pub repository: Repository,
    /// SHA-256 of its manifest, in hexadecimal.
    pub digest: String,
}

impl ArtifactReference {
    /// Reads a reference without `oci://`.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let Some((name, digest)) = text.split_once('@') else {
            return Err(if split_tag(text).1.is_some() {
                ReferenceError::Tagged
            } else {
                ReferenceError::NoDigest
            });
        };
        let (repository, tag) = split_tag(name);
        if tag.is_some() {
            return Err(ReferenceError::Tagged);
        }
        let digest =
            digest.strip_prefix("sha256:").filter(|hex| sha256::is_hex(hex)).ok_or(ReferenceError::Digest)?;
        Ok(Self { repository: Repository::parse(repository)?, digest: digest.to_owned() })
    }
}

impl fmt::Display for ArtifactReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@sha256:{}", self.repository, self.digest)
    }
}

/// Where an artifact is pushed to: a repository, with a tag if one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushTarget {
    /// The repository.
    pub repository: Repository,
    /// The tag besides the digest.
    pub tag: Option<String>,
}

impl PushTarget {
    /// Reads `[oci://]<registry>/<repository>[:<tag>]`.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let (repository, tag) = split_tag(text.strip_prefix(SCHEME).unwrap_or(text));
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let is_tag = |tag: &&str| {
            (1..=128).contains(&tag.len()) && !tag.starts_with(['.', '-']) && tag.bytes().all(is_word)
        };
        let tag = match tag {
            Some(tag) => Some(Some(tag).filter(is_tag).ok_or(ReferenceError::Repository)?.to_owned()),
            None => None,
        };
        Ok(Self { repository: Repository::parse(repository)?, tag })
    }
}

/// A name and its tag; the port of a registry is none.
fn split_tag(name: &str) -> (&str, Option<&str>) {
    let path = name.rfind('/').map_or(0, |slash| slash + 1);
    match name.get(path..).and_then(|last| last.find(':')) {
        Some(colon) if path > 0 => (&name[..path + colon], Some(&name[path + colon + 1..])),
        _ => (name, None),
    }
}

/// A host that says where it is: with a dot, a port, or `localhost`.
fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| {
        // swallowed: what is no port is rejected
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    if let Some(address) = host.strip_prefix('[') {
        let address = address.strip_suffix(']').map(str::parse::<std::net::Ipv6Addr>);
        // swallowed: what is no address is rejected
        return matches!(address, Some(Ok(_))) && port.is_none_or(is_port);
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let names_itself = host.contains('.') || port.is_some() || host == "localhost";
    names_itself && host.len() <= 253 && host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Letters and digits, with a dot, one or two underscores, or dashes between them.
fn is_element(element: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = element.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| is_plain(*byte));
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .split(|byte| is_plain(*byte))
            .all(|between| matches!(between, b"" | b"." | b"_" | b"__") || between.iter().all(|&b| b == b'-'))
}

/// What a pod refers to: an artifact, and a profile that it is combined with besides the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactProfile<'a> {
    /// `<registry>/<repository>@sha256:<digest>`, which [`ArtifactReference::parse`] has read.
    pub reference: Text<'a>,
    /// The profile of the node that bounds it as well.
    pub base: Option<BaselineProfile>,
}

impl<'a> ArtifactProfile<'a> {
    /// Reads `<reference>[,<base>]`: what follows `oci://` in an annotation.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (reference, base) = match text.split_once(',') {
            Some((reference, base)) => (reference, Some(BaselineProfile::parse(base)?)),
            None => (text, None),
        };
        // swallowed: None is the answer
        ArtifactReference::parse(reference).ok()?;
        Some(Self { reference: Text::borrowed(reference), base })
    }

    /// The artifact.
    pub fn artifact(&self) -> Result<ArtifactReference, ReferenceError> {
        ArtifactReference::parse(&self.reference)
    }

    /// The same, on its own.
    #[must_use]
    pub fn into_owned(self) -> ArtifactProfile<'static> {
        ArtifactProfile { reference: self.reference.into_owned(), base: self.base }
    }
}

impl fmt::Display for ArtifactProfile<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reference)?;
        self.base.as_ref().map_or(Ok(()), |base| write!(f, ",{base}"))
    }
}

/// Why an artifact is no profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArtifactError {
    /// The registry served something else.
    #[error("has a manifest with the digest sha256:{found}: the registry serves something else")]
    ManifestDigest {
        /// What it is.
        found: String,
    },
    /// Too large for a manifest with one layer.
    #[error("has a manifest of more than {MAX_MANIFEST_BYTES} bytes")]
    ManifestTooLarge,
    /// Not a document that has one meaning.
    #[error("has a manifest that {0}")]
    ManifestJson(#[from] JsonError),
    /// A list of manifests, or something else.
    #[error("is not an OCI image manifest: {0}")]
    NotAManifest(&'static str),
    /// Something other than a seccomp profile.
    #[error("is not a seccomp profile: its media type is {found:?} instead of {MEDIA_TYPE}")]
    MediaType {
        /// What it has.
        found: String,
    },
    /// None, or several.
    #[error("has {0} layers, where a seccomp profile has one")]
    Layers(usize),
    /// Larger than a profile may be.
    #[error("has a profile of {size} bytes, more than the {MAX_LAYER_BYTES} a profile may have")]
    LayerTooLarge {
        /// As the manifest states it.
        size: u64,
    },
    /// Not what the manifest names.
    #[error(
        "has a profile with the digest sha256:{found} instead of sha256:{wanted}: the registry serves something else"
    )]
    LayerDigest {
        /// What it is.
        found: String,
        /// What the manifest names.
        wanted: String,
    },
    /// Not as long as the manifest states.
    #[error("has a profile of {found} bytes where its manifest states {wanted}")]
    LayerSize {
        /// How long it is.
        found: usize,
        /// What the manifest states.
        wanted: u64,
    },
    /// Longer than the manifest states, and not read to its end.
    #[error("has a profile of more bytes than the {wanted} that its manifest states")]
    LayerLonger {
        /// What the manifest states.
        wanted: u64,
    },
    /// More entries than a runtime has to combine.
    #[error("has {0} entries in syscalls, more than the {MAX_ENTRIES} a profile from a registry may have")]
    Entries(usize),
    /// Not a profile that a tenant may bring.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

/// The layer of an artifact, as its manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// SHA-256 of the profile, in hexadecimal.
    pub digest: String,
    /// Its length.
    pub size: u64,
}

impl Layer {
    /// Reads the manifest of an artifact; `digest` is the one of the reference.
    pub fn of_manifest(manifest: &[u8], digest: &str) -> Result<Self, ArtifactError> {
        if manifest.len() > MAX_MANIFEST_BYTES {
            return Err(ArtifactError::ManifestTooLarge);
        }
        let found = sha256::hex(manifest);
        if found != digest {
            return Err(ArtifactError::ManifestDigest { found });
        }
        let text =
            std::str::from_utf8(manifest).map_err(|_| ArtifactError::NotAManifest("it is not text"))?;
        let manifest = strict_json::read(text)?;
        let text_of = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        if manifest.get("schemaVersion").and_then(Value::as_u64) != Some(2) {
            return Err(ArtifactError::NotAManifest("schemaVersion is not 2"));
        }
        if text_of(&manifest, "mediaType").is_some_and(|found| found != MANIFEST_MEDIA_TYPE) {
            return Err(ArtifactError::NotAManifest("it has another mediaType"));
        }
        let layers = manifest.get("layers").and_then(Value::as_array);
        let layers = layers.ok_or(ArtifactError::NotAManifest("it has no layers"))?;
        let [layer] = layers.as_slice() else { return Err(ArtifactError::Layers(layers.len())) };
        let config = manifest.get("config").and_then(|config| text_of(config, "mediaType"));
        let config = config.ok_or(ArtifactError::NotAManifest("it has no config with a mediaType"))?;
        let of_layer =
            text_of(layer, "mediaType").ok_or(ArtifactError::NotAManifest("the layer has no mediaType"))?;
        let of_artifact = text_of(&manifest, "artifactType");
        // What the configuration is decides. An empty one leaves it to the artifact's type, and that to the layer's.
        let of_artifact = of_artifact.filter(|found| found != UNKNOWN_ARTIFACT_TYPE);
        let decisive = if config == EMPTY_MEDIA_TYPE { of_artifact.unwrap_or(of_layer) } else { config };
        if decisive != MEDIA_TYPE {
            return Err(ArtifactError::MediaType { found: decisive });
        }
        let digest = text_of(layer, "digest")
            .and_then(|digest| digest.strip_prefix("sha256:").map(str::to_owned))
            .filter(|hex| sha256::is_hex(hex))
            .ok_or(ArtifactError::NotAManifest("the layer has no SHA-256 digest"))?;
        let size = layer.get("size").and_then(Value::as_u64);
        let size = size.ok_or(ArtifactError::NotAManifest("the layer has no size"))?;
        if size > MAX_LAYER_BYTES as u64 {
            return Err(ArtifactError::LayerTooLarge { size });
        }
        Ok(Self { digest, size })
    }

    /// Checks that these are the bytes of the layer, and that they are a profile that a tenant may bring.
    pub fn profile(&self, content: Vec<u8>) -> Result<String, ArtifactError> {
        if content.len() as u64 != self.size {
            return Err(ArtifactError::LayerSize { found: content.len(), wanted: self.size });
        }
        let found = sha256::hex(&content);
        if found != self.digest {
            return Err(ArtifactError::LayerDigest { found, wanted: self.digest.clone() });
        }
        let text = String::from_utf8(content)
            .map_err(|error| DocumentError::NotJson(error.utf8_error().to_string()))?;
        check_profile(&text)?;
        Ok(text)
    }
}

/// Checks that a text is a profile that an artifact may hold.
pub fn check_profile(text: &str) -> Result<(), ArtifactError> {
    if text.len() > MAX_LAYER_BYTES {
        return Err(ArtifactError::LayerTooLarge { size: text.len() as u64 });
    }
    check_document(text)?;
    // It was read a moment ago, so that it is JSON.
    let document = strict_json::read(text)?;
    let entries = document.get("syscalls").and_then(Value::as_array).map_or(0, Vec::len);
    if entries > MAX_ENTRIES { Err(ArtifactError::Entries(entries)) } else { Ok(()) }
}

/// The manifest of a profile that is to be pushed, in the form that every reader of the KEP accepts: the media type is the artifact's,
/// and the layer's as well.
#[must_use]
pub fn manifest_of(profile: &str) -> String {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA_TYPE,
        "artifactType": MEDIA_TYPE,
        "config": {
            "mediaType": MEDIA_TYPE,
            "digest": format!("sha256:{}", sha256::hex(EMPTY_CONFIG)),
            "size": EMPTY_CONFIG.len(),
        },
        "layers": [{
            "mediaType": MEDIA_TYPE,
            "digest": format!("sha256:{}", sha256::hex(profile.as_bytes())),
            "size": profile.len(),
        }],
    })
    .to_string()
}

#[cfg(test)]
#[path = "artifact_tests.rs"]
mod tests;
