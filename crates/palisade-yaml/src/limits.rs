//! Limits on what a text may cost.

/// Bounds on what is read. The defaults suit files of the user's own; a server should lower `max_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the text.
    pub max_bytes: usize,
    /// Nodes of one document: scalars, lists, mappings and aliases, keys included.
    pub max_nodes: usize,
    /// Nodes of one document with all aliases written out.
    pub max_expanded_nodes: u64,
    /// Collections inside each other, aliases written out. Reading uses no stack for depth, but the types that are
    /// deserialized do; the default is serde_json's.
    pub max_depth: usize,
    /// Errors (each in a document of its own) after which reading stops.
    pub max_errors: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            max_nodes: 4_000_000,
            max_expanded_nodes: 4_000_000,
            max_depth: 128,
            max_errors: 100,
        }
    }
}
