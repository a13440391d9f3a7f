//! Which profiles a node should hold, and in which order it gets them. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// What is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Profiles that pods of this node refer to, and how many do.
    pub needed: BTreeMap<String, usize>,
    /// The namespaces of those pods, for each profile.
    pub namespaces: BTreeMap<String, BTreeSet<String>>,
    /// Profiles that are published: a pod that needs one may come at any time.
    pub published: BTreeSet<String>,
}

/// The space that a file takes.
const PAGE: u64 = 4096;

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

    /// Which file is removed when there is no space left for one that a pod waits for: one that no pod of the node refers to, or one of
    /// the namespace that takes most, as long as that is more than what the waiting one will take. A namespace that takes no more than
    /// its share always gets its profiles, whatever others need.
    #[must_use]
    pub fn makes_room<'h>(
        &self,
        held: &'h BTreeMap<String, u64>,
        waiting: &str,
        size: u64,
    ) -> Option<&'h str> {
        if let Some(unneeded) = held.keys().find(|hash| !self.needed.contains_key(*hash)) {
            return Some(unneeded);
        }
        let pages = |size: u64| size.div_ceil(PAGE);
        let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
        for (hash, size) in held {
            for namespace in self.namespaces.get(hash).into_iter().flatten() {
                *taken.entry(namespace).or_default() += pages(*size);
            }
        }
        let of = |namespace: &String| taken.get(namespace.as_str()).copied().unwrap_or_default();
        let least = |hash: &str| self.namespaces.get(hash)?.iter().map(of).min();
        let own = least(waiting)? + pages(size);
        let most = held.keys().filter_map(|hash| Some((least(hash)?, hash))).max()?;
        (most.0 > own).then_some(most.1.as_str())
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
            ..Wanted::default()
        };
        assert_eq!(wanted.in_order().collect::<Vec<_>>(), ["m", "z", "a", "n"]);
        assert!(wanted.contains("z") && wanted.contains("a") && !wanted.contains("b"));
    }

    #[test]
    fn a_namespace_that_takes_most_makes_room_for_one_that_takes_less() {
        let wanted = |owners: &[(&str, &[&str])]| Wanted {
            needed: owners.iter().map(|(hash, _)| ((*hash).to_owned(), 1)).collect(),
            namespaces: owners
                .iter()
                .map(|(hash, names)| ((*hash).to_owned(), names.iter().map(ToString::to_string).collect()))
                .collect(),
            published: BTreeSet::new(),
        };
        let greedy = [("a", &["greedy"][..]), ("b", &["greedy"]), ("c", &["greedy"]), ("d", &["other"])];
        let shared =
            [("a", &["greedy", "other"][..]), ("b", &["greedy"]), ("c", &["greedy"]), ("d", &["other"])];
        for (case, owners, held, waiting, size, expected) in [
            ("an unneeded one first", &greedy[..], &[("a", 1), ("x", 1)][..], "d", 1, Some("x")),
            (
                "one of the namespace that has most",
                &greedy,
                &[("a", 1), ("b", 1), ("c", 1)],
                "d",
                1,
                Some("c"),
            ),
            ("not for itself", &greedy, &[("a", 1), ("b", 1)], "c", 1, None),
            ("not if the other would have as much", &greedy, &[("a", 1), ("b", 1)], "d", 5000, None),
            ("sizes count in pages", &greedy, &[("a", 9000)], "d", 5000, Some("a")),
            (
                "what a small namespace shares stays",
                &shared,
                &[("a", 1), ("b", 1), ("c", 9000)],
                "d",
                1,
                Some("c"),
            ),
            ("nothing to remove", &greedy, &[], "d", 1, None),
        ] {
            let held = held.iter().map(|(hash, size)| ((*hash).to_owned(), *size)).collect();
            assert_eq!(wanted(owners).makes_room(&held, waiting, size), expected, "{case}");
        }
    }
}
