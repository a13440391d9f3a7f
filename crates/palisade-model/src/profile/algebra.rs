//! An algebra of seccomp profiles: both, either, one without the other, and whether one is at least as strict.
//!
//! A profile is a function from architecture, system call and arguments to an action. The operations work on that function
//! ([`super::decision`]) and write it down again as rules that mean exactly the same. Where no list of rules does, they return
//! an error; they never return a profile that allows more than the function.
//!
//! - Actions are ordered as the kernel orders the answers of several filters: `KILL_PROCESS`, `KILL_THREAD`, `TRAP`, `ERRNO`,
//!   `USER_NOTIF`, `TRACE`, `LOG`, `ALLOW`. If both profiles have the same action with different numbers, the first one's
//!   number counts, as that of the filter installed last does in the kernel.
//! - A call of an architecture that a profile does not list ends the thread. The intersection lists what both list; the union
//!   what either lists, and is an error where that would give the calls of one profile to an architecture that only the other
//!   lists.
//! - Rules of a profile that contradict each other have no defined answer. The intersection takes the strictest of them, so that
//!   it allows nothing that either profile may deny; for the other operations such a profile is no operand.
//!
//! Leaves to others: what [`super::filter`] leaves out.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::{
    architecture::Architecture,
    decision::{Arguments, Diagram, Diagrams, TooComplex},
    filter::{Action, Answer, Call, Filter, Rule, Settings},
    syscalls::Syscall,
};

/// Why two profiles cannot be combined.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AlgebraError {
    /// The rules are more involved than any real profile's.
    #[error("the rules are too complex to evaluate")]
    TooComplex,
    /// Rules of one profile contradict each other.
    #[error("rules of one profile contradict each other: {call} gets {answer}")]
    Contradiction {
        /// A call to which they apply.
        call: Box<Call>,
        /// What they answer.
        answer: Answer,
    },
    /// No profile answers like this: rules are the same for all architectures.
    #[error(
        "no profile can express the result: {call} needs a rule of its own, and the rules of a profile apply to every architecture that it lists"
    )]
    Inexpressible {
        /// A call with which every profile is wrong.
        call: Box<Call>,
    },
    /// Two processes would have to decide.
    #[error(
        "both profiles leave calls to a listener, at {first:?} and at {second:?}: a profile has only one"
    )]
    Listeners {
        /// The first one's.
        first: String,
        /// The second one's.
        second: String,
    },
}

impl From<TooComplex> for AlgebraError {
    fn from(TooComplex: TooComplex) -> Self {
        Self::TooComplex
    }
}

/// A call that shows that one profile is not as strict as another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counterexample {
    /// The call.
    pub call: Call,
    /// What the profile does with it that was held to be stricter.
    pub answer: Answer,
    /// What the other one does with it.
    pub bound: Answer,
}

/// What counts as less strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Every step in the kernel's order of actions.
    Actions,
    /// Only whether a call is made: certainly not, if a listener or tracer lets it pass, or certainly.
    Access,
}

impl Strictness {
    const fn rank(self, action: Action) -> u8 {
        match (self, action) {
            (Self::Actions, _) => action.precedence(),
            (Self::Access, Action::Notify | Action::Trace(_)) => 1,
            (Self::Access, _) => {
                if action.denies() {
                    0
                } else {
                    2
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// The profile itself, twice.
    Identity,
    Intersection,
    Union,
    Without,
}

const EPERM: Action = Action::Errno(1);

/// The one that the kernel prefers; the first if both are alike.
const fn stricter(first: Action, second: Action) -> Action {
    if second.precedence() < first.precedence() { second } else { first }
}

const fn looser(first: Action, second: Action) -> Action {
    if second.precedence() > first.precedence() { second } else { first }
}

/// What the architectures of one width have in common, that are listed by the same operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    /// Descending, so that the widest is first.
    narrow: bool,
    in_first: bool,
    in_second: bool,
}

impl Class {
    const fn bits(self) -> u32 {
        if self.narrow { 32 } else { 64 }
    }
}

impl Filter {
    /// The profile that allows a call only if both do: its answer is the stricter one of both.
    pub fn intersection(&self, other: &Self) -> Result<Self, AlgebraError> {
        self.combine(other, Operation::Intersection)
    }

    /// The profile that denies a call only if both do: its answer is the less strict one of both.
    pub fn union(&self, other: &Self) -> Result<Self, AlgebraError> {
        self.combine(other, Operation::Union)
    }

    /// This profile, and what the other one does not certainly deny is denied: with the default action if that denies,
    /// else with EPERM.
    pub fn without(&self, other: &Self) -> Result<Self, AlgebraError> {
        self.combine(other, Operation::Without)
    }

    /// The profile with the same answers and the fewest rules; equal functions have equal rules.
    pub fn normalized(&self) -> Result<Self, AlgebraError> {
        self.combine(self, Operation::Identity)
    }

    /// Whether programs of this convention are answered by the rules: it is listed, or the machine's own.
    fn covers(&self, architecture: Architecture) -> bool {
        !architecture.is_secondary() || self.architectures.contains(&architecture)
    }

    fn combine(&self, other: &Self, operation: Operation) -> Result<Self, AlgebraError> {
        let denial = if self.default.denies() { self.default } else { EPERM };
        let join = |first: Action, second: Action| match operation {
            Operation::Identity => first,
            Operation::Intersection => stricter(first, second),
            Operation::Union => looser(first, second),
            Operation::Without if second.denies() => first,
            Operation::Without => stricter(first, denial),
        };
        let mut result = Self {
            default: join(self.default, other.default),
            architectures: self.common_architectures(other, operation),
            rules: BTreeMap::new(),
            settings: Settings::default(),
        };
        let machines = Architecture::all().filter(|machine| machine.bits() == 64 && !machine.is_secondary());
        let architectures: BTreeSet<Architecture> =
            machines.chain(result.architectures.iter().copied()).collect();
        let class_of = |architecture: Architecture| Class {
            narrow: architecture.bits() == 32,
            in_first: self.covers(architecture),
            in_second: other.covers(architecture),
        };
        for &architecture in &architectures {
            let class = class_of(architecture);
            let unlisted =
                |covered: bool, filter: &Self| if covered { filter.default } else { Action::KillThread };
            if join(unlisted(class.in_first, self), unlisted(class.in_second, other)) != result.default {
                let call = Call { architecture, syscall: None, arguments: [0; 6] };
                return Err(AlgebraError::Inexpressible { call: Box::new(call) });
            }
        }
        let named: BTreeSet<Syscall> = self.named_calls().chain(other.named_calls()).collect();
        for syscall in named {
            let mut classes: BTreeMap<Class, Architecture> = BTreeMap::new();
            for &architecture in architectures.iter().filter(|known| syscall.number(**known).is_some()) {
                classes.entry(class_of(architecture)).or_insert(architecture);
            }
            // A narrow architecture is also a machine of its own, which a profile need not list.
            let narrow = |known: Architecture| known.bits() == 32 && syscall.number(known).is_some();
            if let Some(machine) = Architecture::all().find(|known| narrow(*known)) {
                let class = Class { narrow: true, in_first: true, in_second: true };
                classes.entry(class).or_insert(machine);
            }
            let rules = self.combine_call(other, syscall, &classes, operation, (&join, result.default))?;
            if !rules.is_empty() {
                result.rules.insert(syscall, rules);
            }
        }
        result.settings = self.common_settings(other, operation, result.notifies())?;
        Ok(result)
    }

    /// The rules for one call that give each class of architectures what `join` makes of both answers.
    fn combine_call(
        &self,
        other: &Self,
        syscall: Syscall,
        classes: &BTreeMap<Class, Architecture>,
        operation: Operation,
        (join, default): (&impl Fn(Action, Action) -> Action, Action),
    ) -> Result<Vec<Rule>, AlgebraError> {
        let mut diagrams = Diagrams::new();
        let mut wanted = Vec::new();
        for (class, &architecture) in classes {
            let bits = class.bits();
            let mut meaning = |filter: &Self, is_covered: bool| {
                if !is_covered {
                    return Ok(diagrams.always(BTreeSet::from([Action::KillThread]))?);
                }
                let sets = filter.diagram(syscall, bits, &mut diagrams)?;
                if operation != Operation::Intersection {
                    filter.reject_contradictions(syscall, architecture, sets, &diagrams)?;
                }
                filter.strictest(sets, &mut diagrams)
            };
            let first = meaning(self, class.in_first)?;
            let second = meaning(other, class.in_second)?;
            let joined = diagrams.combine(first, second, &|first, second| {
                first.iter().zip(second).map(|(first, second)| join(*first, *second)).collect()
            })?;
            wanted.push((*class, architecture, joined));
        }
        let Some((widest, _, meaning)) = wanted.first().copied() else { return Ok(Vec::new()) };
        let regions = diagrams.cover(meaning, widest.bits(), &|set| !set.contains(&default))?;
        let mut rules = Vec::new();
        for (conditions, set) in regions {
            rules.extend(set.into_iter().map(|action| Rule { conditions: conditions.clone(), action }));
        }
        let written = Self {
            default,
            architectures: BTreeSet::new(),
            rules: BTreeMap::from([(syscall, rules)]),
            settings: Settings::default(),
        };
        for (class, architecture, meaning) in wanted {
            // A mask of high bits is empty on a narrow architecture; of two rules without conditions the order would decide.
            let rules = written.rules.get(&syscall).map_or(&[][..], Vec::as_slice);
            let bare = rules.iter().filter(|rule| rule.conditions(class.bits()).is_empty());
            if bare.map(|rule| rule.action).collect::<BTreeSet<_>>().len() > 1 {
                let call = Call { architecture, syscall: Some(syscall), arguments: [0; 6] };
                return Err(AlgebraError::Inexpressible { call: Box::new(call) });
            }
            let sets = written.diagram(syscall, class.bits(), &mut diagrams)?;
            let exact = |set: &BTreeSet<Action>, wanted: &BTreeSet<Action>| match written.settle(set) {
                Answer::Action(action) => wanted.len() == 1 && wanted.contains(&action),
                Answer::Conflict(_) => false,
            };
            if let Some(arguments) = diagrams.find(sets, meaning, &|set, wanted| !exact(set, wanted))? {
                let call = Call { architecture, syscall: Some(syscall), arguments };
                return Err(AlgebraError::Inexpressible { call: Box::new(call) });
            }
        }
        Ok(written.rules.into_values().next().unwrap_or_default())
    }

    fn reject_contradictions(
        &self,
        syscall: Syscall,
        architecture: Architecture,
        sets: Diagram,
        diagrams: &Diagrams<Action>,
    ) -> Result<(), AlgebraError> {
        let Some(arguments) = diagrams.find(sets, sets, &|set, _| set.len() > 1)? else { return Ok(()) };
        let call = Call { architecture, syscall: Some(syscall), arguments };
        let own = Self { architectures: BTreeSet::from([architecture]), ..self.clone() };
        let answer = own.answer(&call, architecture);
        Err(AlgebraError::Contradiction { call: Box::new(call), answer })
    }

    /// The one action for all values of the arguments; the strictest where rules contradict each other.
    fn strictest(&self, sets: Diagram, diagrams: &mut Diagrams<Action>) -> Result<Diagram, AlgebraError> {
        Ok(diagrams.combine(sets, sets, &|set, _| {
            // Within one action, the order of their numbers is as good as any.
            BTreeSet::from([set.first().copied().unwrap_or(self.default)])
        })?)
    }

    fn common_architectures(&self, other: &Self, operation: Operation) -> BTreeSet<Architecture> {
        let (first, second) = (&self.architectures, &other.architectures);
        match operation {
            Operation::Identity | Operation::Without => first.clone(),
            Operation::Union => first | second,
            Operation::Intersection => {
                let mut both = first & second;
                // A machine's own is always covered; it is listed where what it also runs is.
                let hosts: Vec<Architecture> = (first | second)
                    .into_iter()
                    .filter(|machine| both.iter().any(|guest| guest.runs_on(*machine)))
                    .collect();
                both.extend(hosts);
                both
            }
        }
    }

    fn common_settings(
        &self,
        other: &Self,
        operation: Operation,
        notifies: bool,
    ) -> Result<Settings, AlgebraError> {
        const SPECULATION: &str = "SECCOMP_FILTER_FLAG_SPEC_ALLOW";
        let (first, second) = (&self.settings, &other.settings);
        let flags = match (&first.flags, &second.flags, operation) {
            (flags, _, Operation::Identity | Operation::Without) => flags.clone(),
            (None, None, _) => None,
            (first, second, operation) => {
                // Without the key, runtimes set the flag that lifts the mitigation of speculative stores.
                let default = || BTreeSet::from([SPECULATION.to_owned()]);
                let first = first.clone().unwrap_or_else(default);
                let second = second.clone().unwrap_or_else(default);
                let mut flags = &first | &second;
                if operation == Operation::Intersection
                    && !(first.contains(SPECULATION) && second.contains(SPECULATION))
                {
                    flags.remove(SPECULATION);
                }
                Some(flags)
            }
        };
        let listener =
            |filter: &Self| filter.settings.listener.clone().filter(|_| notifies && filter.notifies());
        let listener = match (listener(self), listener(other)) {
            (Some(first), Some(second)) if operation != Operation::Without && first != second => {
                return Err(AlgebraError::Listeners { first: first.0, second: second.0 });
            }
            (Some(first), _) => Some(first),
            (None, second) => second,
        };
        Ok(Settings { flags, listener })
    }

    /// A call that this profile answers less strictly than the other one; none if it is at least as strict.
    ///
    /// Where rules of a profile contradict each other, the worst is assumed of both.
    pub fn at_least_as_strict_as(
        &self,
        other: &Self,
        strictness: Strictness,
    ) -> Result<Option<Counterexample>, TooComplex> {
        let loosest = |set: &BTreeSet<Action>| {
            set.iter()
                .map(|action| strictness.rank(*action))
                .max()
                .unwrap_or_else(|| strictness.rank(self.default))
        };
        let strictest = |set: &BTreeSet<Action>| {
            set.iter()
                .map(|action| strictness.rank(*action))
                .min()
                .unwrap_or_else(|| strictness.rank(other.default))
        };
        let named: BTreeSet<Syscall> = self.named_calls().chain(other.named_calls()).collect();
        let exceeds = |architecture: Architecture,
                       syscall: Option<Syscall>|
         -> Result<Option<Arguments>, TooComplex> {
            let mut diagrams = Diagrams::new();
            let mut of = |filter: &Self| match syscall {
                _ if !filter.covers(architecture) => diagrams.always(BTreeSet::from([Action::KillThread])),
                Some(syscall) => filter.diagram(syscall, architecture.bits(), &mut diagrams),
                None => diagrams.always(BTreeSet::new()),
            };
            let (first, second) = (of(self)?, of(other)?);
            diagrams.find(first, second, &|first, second| loosest(first) > strictest(second))
        };
        // The common machine first, so that a counterexample is a call of it if there is one.
        let common = Architecture::COMMON;
        let others = Architecture::all().filter(|known| *known != common);
        let considered = others.filter(|known| {
            self.architectures.contains(known) || (known.bits() == 64 && !known.is_secondary())
        });
        for architecture in std::iter::once(common).chain(considered) {
            let exist = |syscall: &Syscall| syscall.number(architecture).is_some();
            let unnamed = Syscall::all().filter(exist).find(|syscall| !named.contains(syscall));
            let calls = named.iter().copied().filter(exist).map(Some).chain([unnamed, None]);
            for syscall in calls {
                if let Some(arguments) = exceeds(architecture, syscall)? {
                    let call = Call { architecture, syscall, arguments };
                    let machine = architecture.host().unwrap_or(architecture);
                    let (answer, bound) = (self.answer(&call, machine), other.answer(&call, machine));
                    return Ok(Some(Counterexample { call, answer, bound }));
                }
            }
        }
        Ok(None)
    }

    /// Whether every call has the same answer in both.
    pub fn equal(&self, other: &Self) -> Result<bool, TooComplex> {
        Ok(self.differences(other)?.is_empty())
    }

    /// What a call gets for which arguments: conditions and the action, the default action with none of them last.
    pub fn regions(
        &self,
        syscall: Syscall,
        architecture: Architecture,
    ) -> Result<Vec<CallRegion>, TooComplex> {
        let mut diagrams = Diagrams::new();
        let sets = self.diagram(syscall, architecture.bits(), &mut diagrams)?;
        let cover = diagrams.cover(sets, architecture.bits(), &|set| !set.is_empty())?;
        let mut regions: Vec<CallRegion> =
            cover.into_iter().map(|(conditions, set)| (conditions, self.settle(&set))).collect();
        if diagrams.find(sets, sets, &|set, _| set.is_empty())?.is_some() {
            regions.push((Vec::new(), Answer::Action(self.default)));
        }
        Ok(regions)
    }
}

/// Conditions on arguments, and the answer where all of them hold.
pub type CallRegion = (Vec<(u8, super::decision::Comparison)>, Answer);

#[cfg(test)]
#[path = "algebra_tests.rs"]
mod tests;
