//! Records of a data directory that cannot be read: kept as they are, out of the way of everything else, until an
//! administrator removes them or a later version can read them.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Made from its place and its bytes: the same record has the same id at every start.
    pub id: String,
    /// The group resource it was stored under, such as `pods`; empty where even that cannot be read.
    pub resource: String,
    /// `namespace/name`, or `name`.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
    /// The record as it was found.
    pub record: Vec<u8>,
}

/// What is kept beside the bytes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Header {
    resource: String,
    key: String,
    reason: String,
}

/// The id of a record: enough of a hash to distinguish records, short enough to type.
pub(crate) fn id(resource: &str, key: &str, record: &[u8]) -> String {
    let mut hash = Sha256::new();
    for part in [resource.as_bytes(), key.as_bytes(), record] {
        hash.update(part);
        hash.update([0]);
    }
    let first = hash.finalize().iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    format!("{first:016x}")
}

impl SetAside {
    pub(super) fn new(resource: &str, key: &str, reason: String, record: Vec<u8>) -> Self {
        let id = id(resource, key, &record);
        Self { id, resource: resource.to_owned(), key: key.to_owned(), reason, record }
    }

    /// A line of JSON, then the record.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { resource, key, reason, .. } = self.clone();
        let mut bytes = serde_json::to_vec(&Header { resource, key, reason }).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.record);
        bytes
    }

    /// Never fails: what has no header is a record all the same.
    pub(super) fn decode(id: &str, bytes: &[u8]) -> Self {
        let (header, record) = match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => bytes.split_at(end),
            None => (&b""[..], bytes),
        };
        let record = record.strip_prefix(b"\n").unwrap_or(record).to_vec();
        // swallowed: a record without a header is still listed and can be removed
        let header: Header = serde_json::from_slice(header).unwrap_or_default();
        Self { id: id.to_owned(), resource: header.resource, key: header.key, reason: header.reason, record }
    }
}
