//! When authorities and certificates are made and forgotten. Pure: the clock is a parameter.
//!
//! A new authority is announced before anything is signed by it: it must have been trusted for the overlap, and the API
//! server's webhook configurations must be seen to hold it. The one before is trusted for the overlap after the last
//! certificate signed by it has been replaced. So at no moment a certificate is served that the API server does not trust.

use palisade_serve::certificate::{self, About, IssueError, Pair};
use serde::{Deserialize, Serialize};

use super::{Trust, authority, serving};
use crate::options::Managed;

/// An authority and what has become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Certificate and key.
    #[serde(flatten)]
    pub pair: Pair,
    /// Since when it is announced, in seconds since 1970.
    pub announced: i64,
    /// Since when nothing that is served is signed by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<i64>,
}

/// Everything that replicas share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The authorities, oldest first.
    pub authorities: Vec<Authority>,
    /// The serving certificate.
    pub serving: Option<Pair>,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationStep {
    /// Make and announce another authority.
    Announce,
    /// Make a serving certificate, signed by this authority.
    Serve(usize),
    /// Stop trusting this authority.
    Forget(usize),
}

fn seconds(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// The next step, if there is one. `trusted` returns whether the API server has been observed to trust an authority.
#[must_use]
pub fn next(
    state: &State,
    options: &Managed,
    now: i64,
    trusted: &dyn Fn(&str) -> bool,
) -> Option<RotationStep> {
    let overlap = seconds(options.overlap);
    let ends = |authority: &Authority| {
        certificate::about(&authority.pair.certificate).map_or(i64::MIN, |about| about.not_after)
    };
    let forgettable = |authority: &Authority| {
        ends(authority) <= now || authority.retired.is_some_and(|since| since.saturating_add(overlap) <= now)
    };
    if let Some(position) = state.authorities.iter().position(forgettable) {
        return Some(RotationStep::Forget(position));
    }
    let Some((last, newest)) = state.authorities.iter().enumerate().next_back() else {
        return Some(RotationStep::Announce);
    };
    if ends(newest).saturating_sub(now) < seconds(options.authority_validity) / 3 {
        return Some(RotationStep::Announce);
    }
    let settled = |authority: &Authority| {
        authority.announced.saturating_add(overlap) <= now && trusted(&authority.pair.certificate)
    };
    let signer = state
        .authorities
        .iter()
        .enumerate()
        .rev()
        .find(|(position, authority)| *position == 0 || settled(authority))
        .map_or(last, |(position, _)| position);
    let fresh = state.serving.as_ref().is_some_and(|serving| {
        certificate::about(&serving.certificate).is_ok_and(|about| {
            is_signed_by(&about, state, signer)
                && about.not_after.saturating_sub(now) > remaining(&about, options)
                && options.names.iter().all(|name| about.names.contains(name))
        })
    });
    (!fresh).then_some(RotationStep::Serve(signer))
}

/// A third of the validity is left to replace a certificate.
fn remaining(about: &About, options: &Managed) -> i64 {
    seconds(options.certificate_validity).min(about.not_after.saturating_sub(about.not_before)) / 3
}

fn is_signed_by(about: &About, state: &State, signer: usize) -> bool {
    let signer = state.authorities.get(signer);
    signer
        .and_then(|signer| certificate::about(&signer.pair.certificate).ok())
        .is_some_and(|ca| ca.subject == about.issuer)
}

/// What replicas shall share: what the Secret holds, and what this replica still serves and trusts although the Secret no
/// longer holds it, because it was deleted, damaged, or made anew by a replica that found none.
///
/// An older authority that comes back stays the signer until a newer one has been announced for the overlap, as in every
/// rotation. One whose time is over does not come back.
#[must_use]
pub fn reconcile(mut held: State, memory: &State, options: &Managed, now: i64) -> State {
    held.authorities.retain(|authority| authority.pair.check().is_ok());
    if held.signer().is_none() {
        held.serving = None;
    }
    let overlap = seconds(options.overlap);
    let lost = memory.authorities.iter().filter(|authority| {
        let ends = certificate::about(&authority.pair.certificate).map_or(i64::MIN, |about| about.not_after);
        ends > now && authority.retired.is_none_or(|since| since.saturating_add(overlap) > now)
    });
    let lost: Vec<_> = lost
        .filter(|authority| {
            held.authorities.iter().all(|known| known.pair.certificate != authority.pair.certificate)
        })
        .cloned()
        .collect();
    let returned = !lost.is_empty();
    if returned {
        // Of two that were announced in the same second, the one that has been served is the older one.
        held.authorities.splice(0..0, lost);
        held.authorities.sort_by_key(|authority| authority.announced);
    }
    if returned || held.serving.is_none() {
        let serving = memory.serving.clone();
        let next = State { serving, ..held.clone() };
        if next.signer().is_some() {
            held = next;
        }
    }
    held
}

/// Makes a step.
pub fn take(mut state: State, step: RotationStep, options: &Managed, now: i64) -> Result<State, IssueError> {
    match step {
        RotationStep::Announce => {
            let pair = authority(now, options.authority_validity)?;
            state.authorities.push(Authority { pair, announced: now, retired: None });
        }
        RotationStep::Forget(position) => {
            if position < state.authorities.len() {
                state.authorities.remove(position);
            }
        }
        RotationStep::Serve(signer) => {
            if let Some(authority) = state.authorities.get(signer) {
                // Replicas may be called by different names while options change.
                let mut names = options.names.clone();
                let before =
                    state.serving.as_ref().and_then(|serving| certificate::about(&serving.certificate).ok());
                for name in before.map(|about| about.names).unwrap_or_default() {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                let pair = serving(&authority.pair, &names, now, options.certificate_validity)?;
                state.serving = Some(pair);
            }
            for older in state.authorities.iter_mut().take(signer) {
                older.retired.get_or_insert(now);
            }
        }
    }
    Ok(state)
}

impl State {
    /// The authority that signed the serving certificate; `None` if there is no such certificate, if it cannot be used, or
    /// if its authority is not here.
    #[must_use]
    pub fn signer(&self) -> Option<&Authority> {
        let serving = self.serving.as_ref().filter(|serving| serving.check().is_ok())?;
        // swallowed: what cannot be read is not used
        let about = certificate::about(&serving.certificate).ok()?;
        let position = (0..self.authorities.len()).find(|position| is_signed_by(&about, self, *position))?;
        self.authorities.get(position)
    }

    /// What the API server shall trust.
    #[must_use]
    pub fn trust(&self) -> Trust {
        Trust {
            authorities: self
                .authorities
                .iter()
                .map(|authority| authority.pair.certificate.clone())
                .collect(),
            signer: self.signer().map(|authority| authority.pair.certificate.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{RotationStep, State, certificate, next, reconcile, take};
    use crate::options::Managed;

    fn options() -> Managed {
        Managed {
            authority_validity: Duration::from_mins(150),
            certificate_validity: Duration::from_mins(15),
            overlap: Duration::from_secs(100),
            ..Managed::new(vec!["webhook.svc".to_owned(), "127.0.0.1".to_owned()])
        }
    }

    /// Takes every step that is due at a moment.
    fn settle(mut state: State, now: i64, trusted: bool) -> (State, Vec<RotationStep>) {
        let (options, mut steps) = (options(), Vec::new());
        while let Some(step) = next(&state, &options, now, &|_| trusted) {
            steps.push(step);
            state = take(state, step, &options, now).unwrap();
            assert!(steps.len() < 9, "it must come to rest");
        }
        (state, steps)
    }

    #[test]
    fn a_life_of_certificates() {
        let start = 1_700_000_000;
        let (state, steps) = settle(State::default(), start, true);
        assert_eq!(steps, [RotationStep::Announce, RotationStep::Serve(0)]);
        let about = certificate::about(&state.serving.as_ref().unwrap().certificate).unwrap();
        assert_eq!(about.names, ["webhook.svc", "127.0.0.1"]);
        assert_eq!(about.not_after, start + 900);

        let (state, steps) = settle(state, start + 500, true);
        assert_eq!(steps, [], "more than a third is left");
        let (state, steps) = settle(state, start + 700, true);
        assert_eq!(steps, [RotationStep::Serve(0)], "the same authority signs the next certificate");

        // The authority comes into its last third: the next one is announced, and not yet used.
        let late = start + 6_100;
        let (state, steps) = settle(state, late, true);
        assert_eq!(steps, [RotationStep::Announce, RotationStep::Serve(0)]);
        assert_eq!(state.trust().authorities.len(), 2);
        let (state, steps) = settle(state, late + 99, true);
        assert_eq!(steps, []);
        let (state, steps) = settle(state, late + 100, false);
        assert_eq!(steps, [], "the API server has not been observed to trust it");
        let (state, steps) = settle(state, late + 100, true);
        assert_eq!(steps, [RotationStep::Serve(1)]);
        assert_eq!(state.trust().authorities.len(), 2, "the old one is still trusted");
        let (state, steps) = settle(state, late + 199, true);
        assert_eq!(steps, []);
        let (state, steps) = settle(state, late + 200, true);
        assert_eq!(steps, [RotationStep::Forget(0)]);
        let (_, steps) = settle(state, late + 201, true);
        assert_eq!(steps, []);
    }

    #[test]
    fn other_names_are_another_certificate() {
        let (state, _) = settle(State::default(), 1_700_000_000, true);
        let more = Managed { names: vec!["other.svc".to_owned()], ..options() };
        let step = next(&state, &more, 1_700_000_001, &|_| true).unwrap();
        assert_eq!(step, RotationStep::Serve(0));
        let state = take(state, step, &more, 1_700_000_001).unwrap();
        let about = certificate::about(&state.serving.as_ref().unwrap().certificate).unwrap();
        assert_eq!(about.names, ["other.svc", "webhook.svc", "127.0.0.1"], "and the names before stay");
    }

    #[test]
    fn what_was_kept_too_long_is_made_anew() {
        let (state, _) = settle(State::default(), 1_700_000_000, true);
        let (state, steps) = settle(state, 1_800_000_000, true);
        assert_eq!(steps, [RotationStep::Forget(0), RotationStep::Announce, RotationStep::Serve(0)]);
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    }

    #[test]
    fn what_a_replica_serves_comes_back_into_the_secret() {
        let start = 1_700_000_000;
        let (memory, _) = settle(State::default(), start, true);
        let (other, _) = settle(State::default(), start + 5, true);
        let damaged = |change: &dyn Fn(&mut State)| {
            let mut state = memory.clone();
            change(&mut state);
            state
        };
        let reconciled = |held: State, now| reconcile(held, &memory, &options(), now);
        for (case, held) in [
            ("unchanged", memory.clone()),
            ("deleted", State::default()),
            ("no serving certificate", damaged(&|state| state.serving = None)),
            ("no authority", damaged(&|state| state.authorities.clear())),
            (
                "a serving certificate that is none",
                damaged(&|state| state.serving.as_mut().unwrap().certificate = "x".to_owned()),
            ),
            ("a key that is none", damaged(&|state| state.authorities[0].pair.key = "x".to_owned())),
            (
                "a serving certificate of an authority that is not there",
                damaged(&|state| state.serving = other.serving.clone()),
            ),
        ] {
            assert_eq!(reconciled(held, start + 10), memory, "{case}");
        }
        // A replica without memory found no Secret and made an authority: both are trusted, and the older one signs until
        // the newer one has been announced for the overlap.
        let both = reconciled(other.clone(), start + 10);
        assert_eq!(
            both.trust().authorities,
            [memory.trust().authorities, other.trust().authorities].concat()
        );
        assert_eq!(both.serving, memory.serving);
        let (both, steps) = settle(both, start + 10, true);
        assert_eq!(steps, []);
        let (_, steps) = settle(both, start + 105, true);
        assert_eq!(steps, [RotationStep::Serve(1)]);
        // Even if both were announced in the same second.
        let (twin, _) = settle(State::default(), start, true);
        assert_eq!(
            reconciled(twin.clone(), start + 10).trust().authorities,
            [memory.trust().authorities, twin.trust().authorities].concat()
        );
        // What has ended stays away, and a replica without memory takes what it finds.
        assert_eq!(reconciled(other.clone(), start + 100_000), other);
        assert_eq!(reconcile(memory.clone(), &State::default(), &options(), start), memory);
    }
}
