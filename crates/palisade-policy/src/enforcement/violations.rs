//! The list of violating namespaces in the status, and how its entries live.
//!
//! Implements: `status.violatingNamespaces` of `PSAEnforcementConfig`. `lastTransitionTime` moves only when `state`
//! does. The list is bounded: a status must stay readable, and storable, with ten thousand violating namespaces.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::classify::Reason;

/// How many namespaces the status names.
pub const MOST_SHOWN: usize = 100;

/// Whether a namespace violates now or did before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// It violates now.
    Current,
    /// It violated before.
    Previous,
}

/// An entry of `status.violatingNamespaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The namespace.
    pub name: String,
    /// Why, in the design's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Now or before; missing in what others wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// When the state last changed, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

/// What evaluating a namespace came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does not violate, or its owner decided for it.
    Clean,
    /// It violates.
    Violating(Option<Reason>),
    /// Unknown.
    Inconclusive,
}

/// The entries after an evaluation, by name. `not_clean` holds every namespace that is not [`Verdict::Clean`]; of the
/// others `exists` returns whether they are still there.
#[must_use]
pub fn update(
    entries: &[Entry],
    not_clean: &BTreeMap<String, Verdict>,
    exists: impl Fn(&str) -> bool,
    now: &str,
) -> Vec<Entry> {
    let before: BTreeMap<&str, &Entry> = entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    let mut after = BTreeMap::new();
    for (name, verdict) in not_clean {
        let entry = before.get(name.as_str()).copied();
        match verdict {
            Verdict::Violating(reason) => {
                let since = entry.filter(|entry| entry.state == Some(State::Current));
                let since = since.and_then(|entry| entry.last_transition_time.clone());
                let violating = Entry {
                    name: name.clone(),
                    reason: reason.map(|reason| reason.as_str().to_owned()),
                    state: Some(State::Current),
                    last_transition_time: Some(since.unwrap_or_else(|| now.to_owned())),
                };
                after.insert(name.as_str(), violating);
            }
            Verdict::Inconclusive | Verdict::Clean => {
                if let Some(entry) = entry {
                    after.insert(name.as_str(), entry.clone());
                }
            }
        }
    }
    for (name, entry) in before {
        if not_clean.contains_key(name) || !exists(name) {
            continue;
        }
        let since = entry.last_transition_time.clone().filter(|_| entry.state == Some(State::Previous));
        let fixed = Entry {
            state: Some(State::Previous),
            last_transition_time: Some(since.unwrap_or_else(|| now.to_owned())),
            ..entry.clone()
        };
        after.insert(name, fixed);
    }
    after.into_values().collect()
}

/// Entries from several places together, one for each namespace. Of two the one that changed later counts, and the latter
/// of two that changed at the same time.
#[must_use]
pub fn merge(entries: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    let mut merged: BTreeMap<String, Entry> = BTreeMap::new();
    for entry in entries {
        // Times of the same format: their order is that of their text.
        let known = merged.get(&entry.name);
        if known.is_none_or(|known| known.last_transition_time <= entry.last_transition_time) {
            merged.insert(entry.name.clone(), entry);
        }
    }
    merged.into_values().collect()
}

/// Puts those that violate now first, each kind by name, and counts those that violate now.
pub fn order(entries: &mut [Entry]) -> usize {
    entries.sort_by(|one, other| (one.state, &one.name).cmp(&(other.state, &other.name)));
    entries.iter().filter(|entry| entry.state != Some(State::Previous)).count()
}

#[cfg(test)]
mod tests {
    use super::{Entry, MOST_SHOWN, Reason, State, Verdict, merge, order, update};

    fn entry(state: State, at: &str) -> Entry {
        let reason = Some(Reason::SyncerDisabled.as_str().to_owned());
        Entry { name: "a".to_owned(), reason, state: Some(state), last_transition_time: Some(at.to_owned()) }
    }

    #[test]
    fn entries_follow_the_table() {
        use State::{Current, Previous};
        let violating = Verdict::Violating(Some(Reason::SyncerDisabled));
        for (case, before, verdict, after) in [
            ("new", None, Some(violating), Some((Current, "now"))),
            ("still", Some((Current, "t0")), Some(violating), Some((Current, "t0"))),
            ("fixed", Some((Current, "t0")), Some(Verdict::Clean), Some((Previous, "now"))),
            ("unclear", Some((Current, "t0")), Some(Verdict::Inconclusive), Some((Current, "t0"))),
            ("again", Some((Previous, "t0")), Some(violating), Some((Current, "now"))),
            ("still fixed", Some((Previous, "t0")), Some(Verdict::Clean), Some((Previous, "t0"))),
            ("never", None, Some(Verdict::Clean), None),
            ("never clear", None, Some(Verdict::Inconclusive), None),
            ("deleted", Some((Current, "t0")), None, None),
        ] {
            let before: Vec<_> = before.map(|(state, at)| entry(state, at)).into_iter().collect();
            let not_clean = verdict.filter(|verdict| *verdict != Verdict::Clean);
            let not_clean = not_clean.map(|verdict| ("a".to_owned(), verdict)).into_iter().collect();
            let exists = |_: &str| verdict.is_some();
            let after: Vec<_> = after.map(|(state, at)| entry(state, at)).into_iter().collect();
            assert_eq!(update(&before, &not_clean, exists, "now"), after, "{case}");
            // Nothing moves without a change.
            assert_eq!(
                update(&after, &not_clean, exists, "later"),
                if verdict.is_some() { after } else { vec![] },
                "{case}"
            );
        }
    }

    #[test]
    fn the_reason_may_change_without_the_time() {
        let reason = Some(Reason::InsufficientConstraints);
        let verdicts = [("a".to_owned(), Verdict::Violating(reason))].into();
        let after = update(&[entry(State::Current, "t0")], &verdicts, |_| true, "now");
        assert_eq!(after[0].reason.as_deref(), Some("PSALabel: ServiceAccount with insufficient SCCs"));
        assert_eq!(after[0].last_transition_time.as_deref(), Some("t0"));
    }

    #[test]
    fn of_two_entries_the_later_counts() {
        use State::{Current, Previous};
        for (one, other, expected) in [
            (entry(Current, "t0"), entry(Previous, "t1"), entry(Previous, "t1")),
            (entry(Previous, "t1"), entry(Current, "t0"), entry(Previous, "t1")),
            (entry(Current, "t0"), entry(Previous, "t0"), entry(Previous, "t0")),
        ] {
            assert_eq!(merge([one, other]), [expected]);
        }
    }

    #[test]
    fn those_that_violate_now_come_first_and_are_counted() {
        let many = (0..1000).map(|index| Entry {
            name: format!("ns-{index:04}"),
            ..entry(if index % 2 == 0 { State::Previous } else { State::Current }, "t0")
        });
        let mut many: Vec<_> = many.collect();
        assert_eq!(order(&mut many), 500);
        assert!(many[..MOST_SHOWN].iter().all(|entry| entry.state == Some(State::Current)));
        assert_eq!((many[0].name.as_str(), many[500].name.as_str()), ("ns-0001", "ns-0000"));
    }
}
