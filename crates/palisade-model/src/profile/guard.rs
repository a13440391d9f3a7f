//! A profile in which some calls are denied, and everything else is as it was.
//!
//! A guard forbids calls with certain arguments in every container, whatever profile it has. Only the rules of the calls in question
//! are written anew; the rest of the document stays as the runtime would have read it, names that no table has included. The result is read
//! back, and every forbidden call must be denied in it, on every convention that the machine has.
//!
//! Exactly the forbidden values are denied if rules can express that. A runtime's rule that compares 64 bits (`socket` with anything
//! but family 40) and a guard that compares 32 (family 38, whatever the upper half holds) have no short list of rules in common. Then values
//! that no program passes are denied as well: those of a forbidden argument whose upper half is neither empty nor the sign of the lower one.

//!
//! `socketcall` and `ipc` are denied as a whole where one of their calls is forbidden: libseccomp allows `socketcall` with the number of
//! `socket` wherever a rule allows `socket` with some arguments, and only a rule without conditions counts more.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{
    algebra::AlgebraError,
    architecture::Architecture,
    call_pattern::{CallPattern, ValuePattern, Way},
    decision::{Comparison, Diagram, Diagrams, TooComplex},
    filter::{Action, Answer, Call, Filter, FilterError, Rule, Settings},
    reach::matching,
    syscalls::Syscall,
};

/// Why a guard cannot be applied to a profile.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GuardError {
    /// What the container would have is no profile.
    #[error("the profile of the container cannot be read: {0}")]
    Filter(#[from] FilterError),
    /// Rules cannot express the result.
    #[error("the guard cannot be combined with the profile of the container: {0}")]
    Algebra(#[from] AlgebraError),
    /// The result would not deny what it must.
    #[error("the guard cannot be combined with the profile of the container: the result would allow {0}")]
    Open(Box<Call>),
}

impl From<TooComplex> for GuardError {
    fn from(error: TooComplex) -> Self {
        Self::Algebra(error.into())
    }
}

/// The upper half of the arguments of `int` calls, if the lower one is negative.
const SIGN: u64 = 0xffff_ffff_8000_0000;
const LOW: u64 = 0xffff_ffff;

/// How many rules for one call are too many to be written, if there is another way.
const MANY_RULES: usize = 96;

const EPERM: Action = Action::Errno(1);
/// Programs go on without a call that does not exist; without one that is not permitted they fail.
const ENOSYS: Action = Action::Errno(38);

/// Whether exactly the forbidden values are denied, or others that no program passes as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breadth {
    Exact,
    OddValues,
}

/// The calls through which others are made.
fn is_multiplexer(syscall: Syscall) -> bool {
    matches!(syscall.name(), "socketcall" | "ipc")
}

/// What must be denied, by the call that a filter sees.
fn forbidden(patterns: &[CallPattern]) -> BTreeMap<Syscall, Vec<Way>> {
    let mut calls: BTreeMap<Syscall, Vec<Way>> = BTreeMap::new();
    for pattern in patterns {
        let own = Way { syscall: pattern.syscall(), arguments: *pattern.arguments(), because: None };
        for mut way in std::iter::once(own).chain(pattern.other_ways()) {
            if is_multiplexer(way.syscall) {
                way.arguments = [None; 6];
            }
            let ways = calls.entry(way.syscall).or_default();
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
    }
    calls
}

/// What happens to a forbidden call.
fn denial(way: &Way, default: Action) -> Action {
    if is_multiplexer(way.syscall) {
        // A runtime drops rules with the default action.
        return if default == ENOSYS { EPERM } else { ENOSYS };
    }
    if default.denies() {
        return default;
    }
    match way.syscall.name() {
        "clone3" | "io_uring_setup" => ENOSYS,
        _ => EPERM,
    }
}

/// The profile of a container, or none, with the calls of these patterns denied. Nothing else changes.
pub fn guarded(
    profile: Option<&Value>,
    patterns: &[CallPattern],
    machine: Architecture,
) -> Result<Value, GuardError> {
    let mut document = match profile.map(|profile| (profile, Filter::read(profile))) {
        // A runtime applies no profile at all.
        None | Some((_, Err(FilterError::Empty))) => unconfined(machine),
        Some((_, Err(error))) => return Err(error.into()),
        Some((profile, Ok(_))) => profile.as_object().cloned().unwrap_or_default(),
    };
    let filter = Filter::read(&Value::Object(document.clone()))?;
    let calls = forbidden(patterns);
    let mut rules = BTreeMap::new();
    for (&syscall, ways) in &calls {
        rules.insert(syscall, filter.forbid(syscall, ways, machine)?);
    }
    let mut entries: Vec<Value> = Vec::new();
    for entry in document.get("syscalls").and_then(Value::as_array).into_iter().flatten() {
        let mut entry = entry.clone();
        if let Some(names) = entry.get_mut("names").and_then(Value::as_array_mut) {
            let is_forbidden = |name: &Value| {
                name.as_str().and_then(Syscall::named).is_some_and(|call| calls.contains_key(&call))
            };
            names.retain(|name| !is_forbidden(name));
            if !names.is_empty() {
                entries.push(entry);
            }
        }
    }
    rules.retain(|_, rules| !rules.is_empty());
    let multiplexers = rules.extract_if(.., |call, _| is_multiplexer(*call)).collect();
    // A rule without conditions replaces those that libseccomp has derived from the others.
    for rules in [rules, multiplexers] {
        let settings = Settings::default();
        let own =
            Filter { default: filter.default, architectures: BTreeSet::new(), rules, settings }.to_oci();
        entries.extend(own.get("syscalls").and_then(Value::as_array).into_iter().flatten().cloned());
    }
    document.insert("syscalls".to_owned(), Value::Array(entries));
    let document = Value::Object(document);
    Filter::read(&document)?.check_denied(&calls, machine)?;
    Ok(document)
}

/// A profile that allows everything, to programs of every convention.
fn unconfined(machine: Architecture) -> Map<String, Value> {
    let tokens = Architecture::all().filter(|known| known.runs_on(machine)).map(Architecture::token);
    let mut document = Map::new();
    document.insert("defaultAction".to_owned(), json!("SCMP_ACT_ALLOW"));
    document.insert("architectures".to_owned(), tokens.collect());
    document
}

impl Filter {
    /// The conventions of the machine that have the call, one for each width: those of one width have the same rules.
    fn widths(
        &self,
        syscall: Syscall,
        machine: Architecture,
    ) -> BTreeMap<std::cmp::Reverse<u32>, Architecture> {
        let mut widths = BTreeMap::new();
        for architecture in self.architectures_on(machine).filter(|known| syscall.number(*known).is_some()) {
            widths.entry(std::cmp::Reverse(architecture.bits())).or_insert(architecture);
        }
        widths
    }

    /// The rules of a call with these ways denied.
    fn forbid(
        &self,
        syscall: Syscall,
        ways: &[Way],
        machine: Architecture,
    ) -> Result<Vec<Rule>, AlgebraError> {
        match self.forbid_values(syscall, ways, machine, Breadth::Exact) {
            Ok(rules) if rules.len() <= MANY_RULES => Ok(rules),
            exact => {
                let other = self.forbid_values(syscall, ways, machine, Breadth::OddValues);
                match (exact, other) {
                    (Ok(exact), Ok(other)) if exact.len() <= other.len() => Ok(exact),
                    (_, Ok(other)) => Ok(other),
                    // swallowed: the error of the exact form is returned
                    (exact, Err(_)) => exact,
                }
            }
        }
    }

    fn forbid_values(
        &self,
        syscall: Syscall,
        ways: &[Way],
        machine: Architecture,
        breadth: Breadth,
    ) -> Result<Vec<Rule>, AlgebraError> {
        let widths = self.widths(syscall, machine);
        let mut diagrams = Diagrams::new();
        let mut wanted = Vec::new();
        for (&std::cmp::Reverse(bits), &architecture) in &widths {
            let sets = self.diagram(syscall, bits, &mut diagrams)?;
            // Where rules contradict each other the strictest counts, so that nothing is allowed that one of them denies.
            let mut meaning = diagrams.combine(sets, sets, &|set, _| {
                BTreeSet::from([set.first().copied().unwrap_or(self.default)])
            })?;
            for way in ways {
                let denial = denial(way, self.default);
                let meant = matching(&way.arguments, bits, &mut diagrams)?;
                let meant = match breadth {
                    Breadth::OddValues if bits == 64 => {
                        with_odd_values(meant, &way.arguments, &mut diagrams)?
                    }
                    _ => meant,
                };
                meaning = diagrams.combine(meaning, meant, &|known, meant| match known.first() {
                    Some(action) if !meant.is_empty() && (!action.denies() || is_multiplexer(syscall)) => {
                        BTreeSet::from([denial])
                    }
                    _ => known.clone(),
                })?;
            }
            wanted.push((bits, architecture, meaning));
        }
        let Some(&(widest, _, meaning)) = wanted.first() else { return Ok(Vec::new()) };
        let default = self.default;
        let mut rules = Vec::new();
        for (conditions, set) in diagrams.cover(meaning, widest, &|set| !set.contains(&default))? {
            rules.extend(set.into_iter().map(|action| Rule { conditions: conditions.clone(), action }));
        }
        let written = Self {
            default,
            architectures: BTreeSet::new(),
            rules: BTreeMap::from([(syscall, rules)]),
            settings: Settings::default(),
        };
        for (bits, architecture, meaning) in wanted {
            let inexpressible = |arguments| AlgebraError::Inexpressible {
                call: Box::new(Call { architecture, syscall: Some(syscall), arguments }),
            };
            // A mask of high bits is empty on a narrow architecture; of two rules without conditions the order would decide.
            let bare = written.rules.values().flatten().filter(|rule| rule.conditions(bits).is_empty());
            if bare.map(|rule| rule.action).collect::<BTreeSet<_>>().len() > 1 {
                return Err(inexpressible([0; 6]));
            }
            let sets = written.diagram(syscall, bits, &mut diagrams)?;
            let is_exact = |set: &BTreeSet<Action>, wanted: &BTreeSet<Action>| match written.settle(set) {
                Answer::Action(action) => wanted.contains(&action),
                Answer::Conflict(_) => false,
            };
            if let Some(arguments) = diagrams.find(sets, meaning, &|set, wanted| !is_exact(set, wanted))? {
                return Err(inexpressible(arguments));
            }
        }
        Ok(written.rules.into_values().next().unwrap_or_default())
    }

    /// Whether every forbidden call is denied.
    fn check_denied(
        &self,
        calls: &BTreeMap<Syscall, Vec<Way>>,
        machine: Architecture,
    ) -> Result<(), GuardError> {
        for (&syscall, ways) in calls {
            let mut diagrams = Diagrams::new();
            for architecture in
                self.architectures_on(machine).filter(|known| syscall.number(*known).is_some())
            {
                let sets = self.diagram(syscall, architecture.bits(), &mut diagrams)?;
                for way in ways {
                    let meant = matching(&way.arguments, architecture.bits(), &mut diagrams)?;
                    let open = diagrams
                        .find(sets, meant, &|set, meant| !meant.is_empty() && !self.settle(set).denies())?;
                    if let Some(arguments) = open {
                        return Err(GuardError::Open(Box::new(Call {
                            architecture,
                            syscall: Some(syscall),
                            arguments,
                        })));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Where a pattern holds, or where one of its arguments is compared by its lower half and has an upper half that no program passes.
fn with_odd_values(
    meant: Diagram,
    arguments: &[Option<ValuePattern>; 6],
    diagrams: &mut Diagrams<Action>,
) -> Result<Diagram, TooComplex> {
    let yes = diagrams.always(BTreeSet::from([Action::Allow]))?;
    let no = diagrams.always(BTreeSet::new())?;
    let mut all = meant;
    for (index, pattern) in (0_u8..).zip(arguments) {
        if pattern.is_some_and(|pattern| pattern.mask == LOW) {
            let above = diagrams.when(&[(index, Comparison::Greater(LOW))], 64, yes, no)?;
            let below = diagrams.when(&[(index, Comparison::Less(SIGN))], 64, yes, no)?;
            let odd = diagrams.combine(above, below, &|above, below| above & below)?;
            all = diagrams.union(all, odd)?;
        }
    }
    Ok(all)
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
