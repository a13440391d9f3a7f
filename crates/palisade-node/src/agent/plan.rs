//! Which profiles a node should hold, and in which order it gets them. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// What is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Profiles that pods of this node refer to, and how many do.
    pub needed: BTreeMap<String, usize>,
    /// Profiles that are published: a pod that needs one may come at any time.
    pub published: BTreeSet<String>,
}

impl Wanted {
    /// All of them, what pods wait for first.
    pub fn in_order(&self) -> impl Iterator<Item = &str> {
        let others = self.published.iter().filter(|hash| !self.needed.contains_key(*hash));
        self.needed.keys().chain(others).map(String::as_str)
    }

    /// Whether a profile is wanted at all. One that is no longer published stays as long as a pod of the node has it:
    /// its containers may be started again.
    #[must_use]
    pub fn contains(&self, sha256: &str) -> bool {
        self.needed.contains_key(sha256) || self.published.contains(sha256)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.in_order().count()
    }
}

/// Why a profile is not in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// It is not published.
    Unpublished,
    /// What is published under its name are other bytes, or no JSON.
    Unusable(String),
    /// The file system is full.
    Full,
    /// The API server did not answer, or the file could not be written.
    Failed(String),
}

impl Missing {
    /// Whether it is for this node to make good: only then the node is not ready.
    #[must_use]
    pub const fn is_ours(&self) -> bool {
        matches!(self, Self::Full | Self::Failed(_))
    }

    /// In words.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Unpublished => "there is no PublishedProfile of this name".to_owned(),
            Self::Unusable(why) => format!("what is published under this name cannot be used: {why}"),
            Self::Full => "no space left on the tmpfs".to_owned(),
            Self::Failed(why) => why.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pods_wait_for_comes_first_and_stays_longest() {
        let wanted = Wanted {
            needed: BTreeMap::from([("m".to_owned(), 2), ("z".to_owned(), 1)]),
            published: ["a", "m", "n"].map(str::to_owned).into(),
        };
        assert_eq!(wanted.in_order().collect::<Vec<_>>(), ["m", "z", "a", "n"]);
        assert!(wanted.contains("z") && wanted.contains("a") && !wanted.contains("b"));
    }
}
