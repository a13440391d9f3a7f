//! What a seccomp profile means: the answer of its filter to every system call with any arguments.
//!
//! Implements: how runc (and with it containerd) turns `linux.seccomp` of the OCI runtime specification into a filter with
//! libseccomp 2.5 and later. crun and CRI-O use the same library.
//!
//! - Only the fields of the specification are read. `includes`, `excludes`, `archMap` and the single `name` of Docker's own
//!   format are dropped, so that a rule with conditions of that kind applies unconditionally.
//! - A call of an architecture that is neither the machine's nor listed ends the thread.
//! - A rule with the default action is dropped, and so is a name that no architecture has.
//! - Conditions of a rule on different arguments must all hold; if two are on the same argument, any of all suffices.
//! - The first rule for a call without conditions decides; without one, the rules whose conditions hold. If those have
//!   different actions, the one that libseccomp picks depends on the order of its tree: [`Answer::Conflict`]. Two such
//!   filters are equal only if their rules are the same in the same order.
//! - `SCMP_CMP_MASKED_EQ` has its mask in `value`; other operators ignore `valueTwo`. On 32-bit architectures only the lower
//!   half of an argument is compared.
//! - `SCMP_ACT_ERRNO` without `errnoRet` is EPERM.
//!
//! Leaves to others: `socketcall` and `ipc`, through which 32-bit programs make other calls, the answer ENOSYS that runc gives to calls newer than every call of the profile, and what is wrong in a
//! document in the eyes of its author ([`super::document`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    architecture::Architecture,
    decision::{Arguments, Comparison, Diagram, Diagrams, TooComplex},
    json::{self, JsonError},
    syscalls::Syscall,
};

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The process ends.
    KillProcess,
    /// The thread ends.
    KillThread,
    /// The thread gets SIGSYS.
    Trap,
    /// The call fails with this number.
    Errno(u16),
    /// Another process decides.
    Notify,
    /// A tracer decides, and is given this number.
    Trace(u16),
    /// The call is made, and logged.
    Log,
    /// The call is made.
    Allow,
}

const EPERM: u16 = 1;
/// The largest number a call can fail with; the kernel lowers larger ones.
const MAX_ERRNO: u16 = 4095;

impl Action {
    /// The action of a profile, with its `errnoRet`.
    #[must_use]
    pub fn named(name: &str, errno: Option<u64>) -> Option<Self> {
        // runc keeps the lower half.
        let errno = errno.map_or(EPERM, |errno| u16::try_from(errno & 0xffff).unwrap_or_default());
        Some(match name {
            "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => Self::KillThread,
            "SCMP_ACT_KILL_PROCESS" => Self::KillProcess,
            "SCMP_ACT_TRAP" => Self::Trap,
            "SCMP_ACT_ERRNO" => Self::Errno(errno.min(MAX_ERRNO)),
            "SCMP_ACT_TRACE" => Self::Trace(errno),
            "SCMP_ACT_LOG" => Self::Log,
            "SCMP_ACT_NOTIFY" => Self::Notify,
            "SCMP_ACT_ALLOW" => Self::Allow,
            _ => return None,
        })
    }

    /// The order in which the kernel prefers actions if several filters answer: the lowest wins, whatever its number.
    #[must_use]
    pub const fn precedence(self) -> u8 {
        match self {
            Self::KillProcess => 0,
            Self::KillThread => 1,
            Self::Trap => 2,
            Self::Errno(_) => 3,
            Self::Notify => 4,
            Self::Trace(_) => 5,
            Self::Log => 6,
            Self::Allow => 7,
        }
    }

    /// Whether the call is certainly not made. A tracer or a listener may let it pass.
    #[must_use]
    pub const fn denies(self) -> bool {
        matches!(self, Self::KillProcess | Self::KillThread | Self::Trap | Self::Errno(_))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillProcess => f.write_str("SCMP_ACT_KILL_PROCESS"),
            Self::KillThread => f.write_str("SCMP_ACT_KILL_THREAD"),
            Self::Trap => f.write_str("SCMP_ACT_TRAP"),
            Self::Errno(errno) => write!(f, "SCMP_ACT_ERRNO {errno}"),
            Self::Notify => f.write_str("SCMP_ACT_NOTIFY"),
            Self::Trace(data) => write!(f, "SCMP_ACT_TRACE {data}"),
            Self::Log => f.write_str("SCMP_ACT_LOG"),
            Self::Allow => f.write_str("SCMP_ACT_ALLOW"),
        }
    }
}

/// What a filter does with a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// This.
    Action(Action),
    /// One of these: rules with different actions apply, and no document defines which one counts.
    Conflict(BTreeSet<Action>),
}

impl Answer {
    /// Whether rules with different actions apply.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }

    /// Whether the call is certainly not made.
    #[must_use]
    pub fn denies(&self) -> bool {
        match self {
            Self::Action(action) => action.denies(),
            Self::Conflict(actions) => actions.iter().all(|action| action.denies()),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action(action) => write!(f, "{action}"),
            Self::Conflict(actions) => {
                let names: Vec<String> = actions.iter().map(ToString::to_string).collect();
                write!(f, "either {}", names.join(" or "))
            }
        }
    }
}

/// A system call as a filter sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The convention it is made by.
    pub architecture: Architecture,
    /// The call; none for a number that no table has.
    pub syscall: Option<Syscall>,
    /// Its arguments.
    pub arguments: Arguments,
}

impl fmt::Display for Call {
    /// `clone(0x10000000) on SCMP_ARCH_X86_64`; trailing zeros are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.arguments.iter().rposition(|&argument| argument != 0).map_or(0, |last| last + 1);
        let arguments: Vec<String> =
            self.arguments.iter().take(used).map(|argument| format!("{argument:#x}")).collect();
        let name = self.syscall.map_or("a call that no rule names", Syscall::name);
        write!(f, "{name}({}) on {}", arguments.join(", "), self.architecture.token())
    }
}

/// A rule for one call: the action if all conditions hold, at most one for each argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) conditions: Vec<(u8, Comparison)>,
    pub(super) action: Action,
}

impl Rule {
    /// The conditions that are left on an architecture: libseccomp drops a mask without bits.
    pub(super) fn conditions(&self, bits: u32) -> Vec<(u8, Comparison)> {
        let tests_something = |comparison: &Comparison| match comparison {
            Comparison::MaskedEqual { mask, .. } => mask & super::decision::width(bits) != 0,
            _ => true,
        };
        self.conditions.iter().filter(|(_, comparison)| tests_something(comparison)).copied().collect()
    }

    /// The conditions in the order of the arguments, and the action; none without conditions.
    fn normalized(&self) -> Option<(Vec<(u8, Comparison)>, Action)> {
        let mut conditions = self.conditions(64);
        conditions.sort_unstable();
        (!conditions.is_empty()).then_some((conditions, self.action))
    }

    fn holds(&self, arguments: &Arguments, bits: u32) -> bool {
        self.conditions(bits).iter().all(|&(index, comparison)| {
            arguments.get(usize::from(index)).is_some_and(|&argument| comparison.holds(argument, bits))
        })
    }
}

/// Why a document is no profile: a runtime would not start a container with it, or not confine it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FilterError {
    /// Not JSON, or JSON with two meanings.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// No object; `null` is read as an empty one.
    #[error("is not a JSON object")]
    NotAnObject,
    /// An action that no runtime supports.
    #[error("{at}: {name:?} is not an action")]
    UnknownAction {
        /// The field.
        at: String,
        /// The message.
        name: String,
    },
    /// Another value of the wrong type, or one that no runtime supports.
    #[error("{at}: {message}")]
    Value {
        /// The field.
        at: String,
        /// What is wrong with it.
        message: String,
    },
    /// Neither a default action nor rules: a runtime takes this for "no profile".
    #[error("has neither defaultAction nor syscalls: a runtime applies no profile at all")]
    Empty,
}

fn invalid(at: impl Into<String>, message: impl Into<String>) -> FilterError {
    FilterError::Value { at: at.into(), message: message.into() }
}

/// The filter that a runtime makes of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub(super) default: Action,
    pub(super) architectures: BTreeSet<Architecture>,
    pub(super) rules: BTreeMap<Syscall, Vec<Rule>>,
    pub(super) settings: Settings,
}

/// What a profile sets beside the answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// None if the key is absent: then runtimes choose.
    pub(super) flags: Option<BTreeSet<String>>,
    /// Where the process listens that decides about calls with `SCMP_ACT_NOTIFY`, and what it is given.
    pub(super) listener: Option<(String, Option<String>)>,
}

/// The flags of the specification, and the one that runc ignores.
pub(super) const FLAGS: &[&str] = &[
    "SECCOMP_FILTER_FLAG_LOG",
    "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
    "SECCOMP_FILTER_FLAG_TSYNC",
    "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
];

pub(super) const TOP_KEYS: &[&str] = &[
    "architectures",
    "defaultAction",
    "defaultErrnoRet",
    "flags",
    "listenerMetadata",
    "listenerPath",
    "syscalls",
];
pub(super) const RULE_KEYS: &[&str] = &["action", "args", "errnoRet", "names"];
pub(super) const ARGUMENT_KEYS: &[&str] = &["index", "op", "value", "valueTwo"];

/// The fields that a runtime reads; one whose letter case is wrong is read all the same, maybe over another.
struct Fields<'v> {
    fields: &'v Map<String, Value>,
    at: String,
}

impl<'v> Fields<'v> {
    fn of(value: &'v Value, at: String, known: &[&str]) -> Result<Self, FilterError> {
        let Some(fields) = value.as_object() else { return Err(invalid(at, "must be an object")) };
        for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
            let folded = json::folded(key);
            if let Some(meant) = known.iter().find(|name| name.to_lowercase() == folded) {
                let message = format!("must be written {meant}: runtimes read it as that key");
                return Err(invalid(join(&at, key), message));
            }
        }
        Ok(Self { fields, at })
    }

    /// A field that is there; null is as good as none.
    fn get(&self, name: &str) -> Option<&'v Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn path(&self, name: &str) -> String {
        join(&self.at, name)
    }

    fn text(&self, name: &str) -> Result<Option<&'v str>, FilterError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| invalid(self.path(name), "must be a string"))
    }

    fn number(&self, name: &str, most: u64) -> Result<Option<u64>, FilterError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_u64().filter(|number| *number <= most);
        number
            .map(Some)
            .ok_or_else(|| invalid(self.path(name), format!("must be a whole number from 0 to {most}")))
    }

    fn list(&self, name: &str) -> Result<Vec<(String, &'v Value)>, FilterError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| invalid(self.path(name), "must be a list"))?;
        let path = self.path(name);
        Ok(list.iter().enumerate().map(|(index, item)| (format!("{path}[{index}]"), item)).collect())
    }

    fn names(&self, name: &str) -> Result<Vec<(String, &'v str)>, FilterError> {
        let items = self.list(name)?.into_iter();
        items
            .map(|(at, item)| match item.as_str() {
                Some(text) => Ok((at, text)),
                None => Err(invalid(at, "must be a string")),
            })
            .collect()
    }
}

fn join(at: &str, name: &str) -> String {
    if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") }
}

impl Filter {
    /// Reads the text of a profile.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Self::read(&json::read(text)?)
    }

    /// Reads a profile document. What a runtime drops has no meaning; what it refuses is an error.
    pub fn read(profile: &Value) -> Result<Self, FilterError> {
        if profile.is_null() {
            return Err(FilterError::Empty);
        }
        if !profile.is_object() {
            return Err(FilterError::NotAnObject);
        }
        let fields = Fields::of(profile, String::new(), TOP_KEYS)?;
        let rules = fields.list("syscalls")?;
        let action = match fields.text("defaultAction")? {
            None | Some("") if rules.is_empty() => return Err(FilterError::Empty),
            None | Some("") => return Err(invalid("defaultAction", "is required")),
            Some(action) => action,
        };
        let errno = fields.number("defaultErrnoRet", u64::MAX)?;
        let default = Action::named(action, errno)
            .ok_or_else(|| FilterError::UnknownAction { at: "defaultAction".into(), name: action.into() })?;
        if default == Action::Notify {
            return Err(invalid("defaultAction", "SCMP_ACT_NOTIFY cannot be the default action"));
        }
        let mut filter = Self {
            default,
            architectures: BTreeSet::new(),
            rules: BTreeMap::new(),
            settings: Settings::default(),
        };
        for (at, name) in fields.names("architectures")? {
            let architecture = Architecture::named(name)
                .ok_or_else(|| invalid(at, format!("{name:?} is not an architecture")))?;
            filter.architectures.insert(architecture);
        }
        let orders: BTreeSet<bool> = filter.architectures.iter().map(|a| a.is_little_endian()).collect();
        if orders.len() > 1 {
            return Err(invalid("architectures", "must all have the same byte order"));
        }
        for (at, flag) in fields.names("flags")? {
            if !FLAGS.contains(&flag) {
                return Err(invalid(at, format!("{flag:?} is not a flag")));
            }
        }
        if fields.get("flags").is_some() {
            let names = fields.names("flags")?;
            filter.settings.flags = Some(names.into_iter().map(|(_, flag)| flag.to_owned()).collect());
        }
        let metadata = fields.text("listenerMetadata")?.map(str::to_owned);
        let path = fields.text("listenerPath")?.filter(|path| !path.is_empty());
        filter.settings.listener = path.map(|path| (path.to_owned(), metadata));
        for (at, rule) in rules {
            filter.add(rule, at)?;
        }
        Ok(filter)
    }

    fn add(&mut self, rule: &Value, at: String) -> Result<(), FilterError> {
        let fields = Fields::of(rule, at, RULE_KEYS)?;
        let name = fields.text("action")?.unwrap_or_default();
        let errno = fields.number("errnoRet", u64::MAX)?;
        let action = Action::named(name, errno)
            .ok_or_else(|| FilterError::UnknownAction { at: fields.path("action"), name: name.into() })?;
        let mut conditions = Vec::new();
        for (at, argument) in fields.list("args")? {
            conditions.push(condition(argument, at)?);
        }
        let distinct = conditions.iter().map(|(index, _)| index).collect::<BTreeSet<_>>().len();
        let alternatives: Vec<Vec<(u8, Comparison)>> = if distinct < conditions.len() {
            conditions.into_iter().map(|condition| vec![condition]).collect()
        } else {
            vec![conditions]
        };
        for (at, name) in fields.names("names")? {
            if name.is_empty() {
                return Err(invalid(at, "must not be empty"));
            }
            if action == Action::Notify && name == "write" {
                return Err(invalid(at, "SCMP_ACT_NOTIFY cannot be used for write"));
            }
            if let Some(syscall) = Syscall::named(name).filter(|_| action != self.default) {
                let rules =
                    alternatives.iter().map(|conditions| Rule { conditions: conditions.clone(), action });
                self.rules.entry(syscall).or_default().extend(rules);
            }
        }
        Ok(())
    }

    /// Whether a rule leaves the decision to a listener.
    #[must_use]
    pub fn notifies(&self) -> bool {
        self.rules.values().flatten().any(|rule| rule.action == Action::Notify)
    }

    /// The conventions that the rules cover on a machine, its own first.
    pub fn architectures_on(&self, machine: Architecture) -> impl Iterator<Item = Architecture> {
        let others = self.architectures.iter().copied();
        std::iter::once(machine)
            .chain(others.filter(move |known| *known != machine && known.runs_on(machine)))
    }

    /// The architectures that are listed, as profiles write them.
    pub(super) fn tokens(&self) -> Vec<&'static str> {
        self.architectures.iter().map(|known| known.token()).collect()
    }

    /// The calls that rules name.
    pub fn named_calls(&self) -> impl Iterator<Item = Syscall> {
        self.rules.keys().copied()
    }

    /// The answer to a call made on a machine of the architecture `machine`.
    #[must_use]
    pub fn answer(&self, call: &Call, machine: Architecture) -> Answer {
        let Call { architecture, syscall, arguments } = *call;
        if architecture != machine && !self.architectures.contains(&architecture) {
            return Answer::Action(Action::KillThread);
        }
        let exists = syscall.filter(|syscall| syscall.number(architecture).is_some());
        let bits = architecture.bits();
        let rules = exists.and_then(|syscall| self.rules.get(&syscall)).map_or(&[][..], Vec::as_slice);
        if let Some(rule) = rules.iter().find(|rule| rule.conditions(bits).is_empty()) {
            return Answer::Action(rule.action);
        }
        self.settle(
            &rules.iter().filter(|rule| rule.holds(&arguments, bits)).map(|rule| rule.action).collect(),
        )
    }

    pub(super) fn settle(&self, actions: &BTreeSet<Action>) -> Answer {
        match (actions.first(), actions.len()) {
            (None, _) => Answer::Action(self.default),
            (Some(action), 1) => Answer::Action(*action),
            (Some(_), _) => Answer::Conflict(actions.clone()),
        }
    }

    /// The actions of the rules that apply, for every value of the arguments.
    pub(super) fn diagram(
        &self,
        syscall: Syscall,
        bits: u32,
        diagrams: &mut Diagrams<Action>,
    ) -> Result<Diagram, TooComplex> {
        let none = diagrams.always(BTreeSet::new())?;
        let rules = self.rules.get(&syscall).map_or(&[][..], Vec::as_slice);
        if let Some(rule) = rules.iter().find(|rule| rule.conditions(bits).is_empty()) {
            return diagrams.always(BTreeSet::from([rule.action]));
        }
        let mut parts = Vec::new();
        for rule in rules {
            let yes = diagrams.always(BTreeSet::from([rule.action]))?;
            parts.push(diagrams.when(&rule.conditions(bits), bits, yes, none)?);
        }
        // Halves of the same size are joined, so that many rules take no more than a few passes.
        while parts.len() > 1 {
            let mut joined = Vec::with_capacity(parts.len().div_ceil(2));
            for pair in parts.chunks(2) {
                joined.push(match *pair {
                    [a, b] => diagrams.union(a, b)?,
                    [a] => a,
                    _ => none,
                });
            }
            parts = joined;
        }
        Ok(parts.first().copied().unwrap_or(none))
    }

    /// Arguments of a call to which the answer is as `wanted`; `bits` of each count.
    fn find(
        &self,
        syscall: Syscall,
        bits: u32,
        wanted: &impl Fn(&Answer) -> bool,
        diagrams: &mut Diagrams<Action>,
    ) -> Result<Option<Arguments>, TooComplex> {
        if !self.rules.contains_key(&syscall) {
            return Ok(wanted(&Answer::Action(self.default)).then_some([0; 6]));
        }
        let diagram = self.diagram(syscall, bits, diagrams)?;
        diagrams.find(diagram, diagram, &|actions, _| wanted(&self.settle(actions)))
    }

    /// The action that counts for a call whatever its arguments, and another one that a rule has and that never applies.
    #[must_use]
    pub fn overruled(&self, syscall: Syscall) -> Option<(Action, Action)> {
        let rules = self.rules.get(&syscall)?;
        let counts = rules.iter().find(|rule| rule.conditions.is_empty())?.action;
        let other = rules.iter().find(|rule| rule.action != counts)?.action;
        Some((counts, other))
    }

    /// A call that is certainly not made; none if the profile confines nothing.
    ///
    /// Only calls that exist count, and only on machines with 64 bits: that calls of other architectures end the thread is
    /// the runtime's doing.
    pub fn denied_call(&self) -> Result<Option<Call>, TooComplex> {
        let mut diagrams = Diagrams::new();
        for syscall in Syscall::all() {
            if let Some((call, _)) = self.search(syscall, &Answer::denies, &mut diagrams)? {
                return Ok(Some(call));
            }
        }
        Ok(None)
    }

    /// A call for each name whose rules contradict each other.
    pub fn conflicts(&self) -> Result<Vec<(Call, Answer)>, TooComplex> {
        let mut diagrams = Diagrams::new();
        let mut found = Vec::new();
        for syscall in self.named_calls() {
            found.extend(self.search(syscall, &Answer::is_conflict, &mut diagrams)?);
        }
        Ok(found)
    }

    /// A call on a machine with 64 bits whose answer is as `wanted`, and that answer.
    pub fn find_call(
        &self,
        syscall: Syscall,
        wanted: impl Fn(&Answer) -> bool,
    ) -> Result<Option<(Call, Answer)>, TooComplex> {
        self.search(syscall, &wanted, &mut Diagrams::new())
    }

    fn search(
        &self,
        syscall: Syscall,
        wanted: &impl Fn(&Answer) -> bool,
        diagrams: &mut Diagrams<Action>,
    ) -> Result<Option<(Call, Answer)>, TooComplex> {
        let machine = Architecture::with(|machine| machine.bits() == 64 && syscall.number(machine).is_some());
        let Some(architecture) = machine else { return Ok(None) };
        let found = self.find(syscall, architecture.bits(), wanted, diagrams)?;
        Ok(found.map(|arguments| {
            let call = Call { architecture, syscall: Some(syscall), arguments };
            (call, self.answer(&call, architecture))
        }))
    }

    /// A call for every way in which the two filters differ: for each call that rules name, for calls that no rule names, and
    /// for architectures. Empty if no call with any arguments gets another answer.
    pub fn differences(&self, other: &Self) -> Result<Vec<Difference>, TooComplex> {
        let named: BTreeSet<Syscall> = self.named_calls().chain(other.named_calls()).collect();
        let mut diagrams = Diagrams::new();
        let mut found = Vec::new();
        if self.default != other.default {
            let unnamed = Syscall::all().filter(|syscall| !named.contains(syscall));
            let common = Architecture::COMMON;
            let syscall = { unnamed }.find(|syscall| syscall.number(common).is_some());
            let call = Call { architecture: common, syscall, arguments: [0; 6] };
            let (before, after) = (Answer::Action(self.default), Answer::Action(other.default));
            found.push(Difference::new(call, before, after, Reach::Default));
        }
        for syscall in named {
            found.extend(self.difference(other, syscall, &mut diagrams)?);
        }
        for architecture in Architecture::all().filter(|architecture| architecture.is_secondary()) {
            if self.architectures.contains(&architecture) != other.architectures.contains(&architecture) {
                found.extend(self.coverage(other, architecture, &mut diagrams)?);
            }
        }
        Ok(found)
    }

    fn difference(
        &self,
        other: &Self,
        syscall: Syscall,
        diagrams: &mut Diagrams<Action>,
    ) -> Result<Option<Difference>, TooComplex> {
        // The architectures of one width differ only in whether they have the call.
        for bits in [64, 32] {
            let Some(architecture) = Architecture::with(|architecture| {
                architecture.bits() == bits && syscall.number(architecture).is_some()
            }) else {
                continue;
            };
            let before = self.diagram(syscall, bits, diagrams)?;
            let after = other.diagram(syscall, bits, diagrams)?;
            let find = |test: &dyn Fn(Answer, Answer) -> bool| {
                diagrams.find(before, after, &|a, b| test(self.settle(a), other.settle(b)))
            };
            let differ =
                |a: Answer, b: Answer| a != b || (a.is_conflict() && !self.has_rules_of(other, syscall));
            let Some(different) = find(&differ)? else { continue };
            let gained = find(&|a, b| a.denies() && !b.denies())?;
            let lost = find(&|a, b| !a.denies() && b.denies())?;
            let kind = match (gained.is_some(), lost.is_some()) {
                (true, false) => DifferenceKind::Gained,
                (false, true) => DifferenceKind::Lost,
                _ => DifferenceKind::Changed,
            };
            let arguments = gained.or(lost).unwrap_or(different);
            let call = Call { architecture, syscall: Some(syscall), arguments };
            let (before, after) = (self.answer(&call, architecture), other.answer(&call, architecture));
            return Ok(Some(Difference { call, before, after, kind, reach: Reach::Call }));
        }
        Ok(None)
    }

    /// Whether both filters have the same rules for a call, in the same order: only then does a conflict end the same way.
    fn has_rules_of(&self, other: &Self, syscall: Syscall) -> bool {
        self.rules.get(&syscall) == other.rules.get(&syscall)
    }

    /// Two actions of rules for a call with the same conditions: libseccomp takes the first rule and rejects the second.
    #[must_use]
    pub fn contradiction(&self, syscall: Syscall) -> Option<(Action, Action)> {
        let rules = self.rules.get(&syscall)?;
        // Without conditions, the first rule makes libseccomp ignore those after it.
        let conditional: Vec<_> = rules.iter().map_while(Rule::normalized).collect();
        conditional.iter().enumerate().find_map(|(at, (conditions, second))| {
            let earlier = conditional.iter().take(at);
            let (_, first) = { earlier }.find(|(known, first)| known == conditions && first != second)?;
            Some((*first, *second))
        })
    }

    /// A call of an architecture that one filter names and the other ends the thread for.
    fn coverage(
        &self,
        other: &Self,
        architecture: Architecture,
        diagrams: &mut Diagrams<Action>,
    ) -> Result<Option<Difference>, TooComplex> {
        let listed = if self.architectures.contains(&architecture) { self } else { other };
        let kill = Answer::Action(Action::KillThread);
        for syscall in Syscall::all().filter(|syscall| syscall.number(architecture).is_some()) {
            let bits = architecture.bits();
            if let Some(arguments) = listed.find(syscall, bits, &|answer| *answer != kill, diagrams)? {
                let call = Call { architecture, syscall: Some(syscall), arguments };
                let machine = architecture.host().unwrap_or(Architecture::COMMON);
                let (before, after) = (self.answer(&call, machine), other.answer(&call, machine));
                return Ok(Some(Difference::new(call, before, after, Reach::Architecture)));
            }
        }
        Ok(None)
    }
}

fn condition(argument: &Value, at: String) -> Result<(u8, Comparison), FilterError> {
    let fields = Fields::of(argument, at, ARGUMENT_KEYS)?;
    let index = fields.number("index", 5)?.unwrap_or_default();
    let value = fields.number("value", u64::MAX)?.unwrap_or_default();
    let second = fields.number("valueTwo", u64::MAX)?.unwrap_or_default();
    let operator = fields.text("op")?.unwrap_or_default();
    let comparison = match operator {
        "SCMP_CMP_NE" => Comparison::NotEqual(value),
        "SCMP_CMP_LT" => Comparison::Less(value),
        "SCMP_CMP_LE" => Comparison::LessOrEqual(value),
        "SCMP_CMP_EQ" => Comparison::Equal(value),
        "SCMP_CMP_GE" => Comparison::GreaterOrEqual(value),
        "SCMP_CMP_GT" => Comparison::Greater(value),
        "SCMP_CMP_MASKED_EQ" => Comparison::MaskedEqual { mask: value, value: second },
        _ => return Err(invalid(fields.path("op"), format!("{operator:?} is not an operator"))),
    };
    Ok((u8::try_from(index).unwrap_or_default(), comparison))
}

/// In which direction two filters differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// More calls may be made.
    Gained,
    /// Fewer calls may be made.
    Lost,
    /// Neither, or some of both.
    Changed,
}

/// What a difference is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// This call.
    Call,
    /// Every call that no rule names.
    Default,
    /// Every call of this architecture on a machine of another.
    Architecture,
}

/// A call that two filters answer differently, or in which the order of rules that contradict each other decides and is not
/// the same: then `before` and `after` are the same conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The call.
    pub call: Call,
    /// What the first filter does with it.
    pub before: Answer,
    /// What the second filter does with it.
    pub after: Answer,
    /// What becomes of the access to this call, with any arguments.
    pub kind: DifferenceKind,
    /// What else the call stands for.
    pub reach: Reach,
}

impl Difference {
    fn new(call: Call, before: Answer, after: Answer, reach: Reach) -> Self {
        let kind = match (before.denies(), after.denies()) {
            (true, false) => DifferenceKind::Gained,
            (false, true) => DifferenceKind::Lost,
            _ => DifferenceKind::Changed,
        };
        Self { call, before, after, kind, reach }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn differences(before: &Value, after: &Value) -> Vec<String> {
        let (before, after) = (Filter::read(before).unwrap(), Filter::read(after).unwrap());
        let found = before.differences(&after).unwrap();
        let show = |difference: &Difference| {
            let Difference { call, before, after, kind, .. } = difference;
            format!("{kind:?} {call}: {before} -> {after}")
        };
        found.iter().map(show).collect()
    }

    #[expect(clippy::needless_pass_by_value, reason = "tables read better")]
    fn rule(action: &str, args: Value) -> Value {
        json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["clone"], "action": action, "args": args}]})
    }

    #[test]
    fn equal_is_what_answers_alike() {
        let arg = |op: &str, value: u64| json!({"index": 0, "op": op, "value": value});
        let list = |items: &[Value]| Value::Array(items.to_vec());
        for (case, before, after) in [
            (
                "EPERM is the default",
                json!({"defaultAction": "SCMP_ACT_ERRNO"}),
                json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1}),
            ),
            (
                "the errno of what is allowed",
                json!({"defaultAction": "SCMP_ACT_ALLOW"}),
                json!({"defaultAction": "SCMP_ACT_ALLOW", "defaultErrnoRet": 5}),
            ),
            (
                "KILL is KILL_THREAD",
                rule("SCMP_ACT_KILL", json!([])),
                rule("SCMP_ACT_KILL_THREAD", json!(null)),
            ),
            (
                "an unused second value",
                rule("SCMP_ACT_ERRNO", list(&[arg("SCMP_CMP_EQ", 7)])),
                rule("SCMP_ACT_ERRNO", json!([{"index": 0, "op": "SCMP_CMP_EQ", "value": 7, "valueTwo": 0}])),
            ),
            (
                "one value as a range",
                rule("SCMP_ACT_ERRNO", list(&[arg("SCMP_CMP_EQ", 0)])),
                rule("SCMP_ACT_ERRNO", list(&[arg("SCMP_CMP_LT", 1)])),
            ),
            (
                "a full mask",
                rule("SCMP_ACT_ERRNO", list(&[arg("SCMP_CMP_EQ", 3)])),
                rule(
                    "SCMP_ACT_ERRNO",
                    json!([{"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": u64::MAX, "valueTwo": 3}]),
                ),
            ),
            (
                "alternatives on one argument that cover everything",
                rule("SCMP_ACT_ERRNO", json!([])),
                rule("SCMP_ACT_ERRNO", list(&[arg("SCMP_CMP_GE", 5), arg("SCMP_CMP_LT", 5)])),
            ),
            (
                "the default action in a rule",
                json!({"defaultAction": "SCMP_ACT_ALLOW"}),
                rule("SCMP_ACT_ALLOW", json!([])),
            ),
            (
                "a name that does not exist",
                json!({"defaultAction": "SCMP_ACT_ALLOW"}),
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["clonee"], "action": "SCMP_ACT_KILL"}]}),
            ),
            (
                "rules apart or together",
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read", "write"], "action": "SCMP_ACT_TRAP"}]}),
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["write"], "action": "SCMP_ACT_TRAP"}, {"names": ["read", "read"], "action": "SCMP_ACT_TRAP"}]}),
            ),
            (
                "a primary architecture",
                json!({"defaultAction": "SCMP_ACT_LOG"}),
                json!({"defaultAction": "SCMP_ACT_LOG", "architectures": ["SCMP_ARCH_X86_64"]}),
            ),
            (
                "unknown keys and conditions of Docker",
                rule("SCMP_ACT_ERRNO", json!([])),
                json!({"defaultAction": "SCMP_ACT_ALLOW", "x": 1, "syscalls": [{"names": ["clone"], "action": "SCMP_ACT_ERRNO", "includes": {"caps": ["X"]}}]}),
            ),
        ] {
            assert_eq!(differences(&before, &after), Vec::<String>::new(), "{case}");
        }
    }

    #[test]
    fn a_difference_is_shown_by_a_call() {
        let masked = |value: u64| json!([{"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": 0x7e02_0000, "valueTwo": value}]);
        for (before, after, expected) in [
            (
                json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38}),
                json!({"defaultAction": "SCMP_ACT_ERRNO"}),
                "Changed _sysctl() on SCMP_ARCH_X86_64: SCMP_ACT_ERRNO 38 -> SCMP_ACT_ERRNO 1",
            ),
            (
                rule("SCMP_ACT_ERRNO", masked(0)),
                rule("SCMP_ACT_ERRNO", json!([])),
                "Lost clone(0x20000) on SCMP_ARCH_X86_64: SCMP_ACT_ALLOW -> SCMP_ACT_ERRNO 1",
            ),
            (
                rule("SCMP_ACT_KILL", json!([])),
                rule("SCMP_ACT_KILL_PROCESS", json!([])),
                "Changed clone() on SCMP_ARCH_X86_64: SCMP_ACT_KILL_THREAD -> SCMP_ACT_KILL_PROCESS",
            ),
            (
                json!({"defaultAction": "SCMP_ACT_LOG"}),
                json!({"defaultAction": "SCMP_ACT_LOG", "architectures": ["SCMP_ARCH_X32"]}),
                "Gained accept() on SCMP_ARCH_X32: SCMP_ACT_KILL_THREAD -> SCMP_ACT_LOG",
            ),
            // The upper half of an argument only counts where registers are wide.
            (
                rule("SCMP_ACT_TRAP", json!([{"index": 1, "op": "SCMP_CMP_EQ", "value": 1}])),
                rule("SCMP_ACT_TRAP", json!([{"index": 1, "op": "SCMP_CMP_EQ", "value": 0x1_0000_0001_u64}])),
                "Changed clone(0x0, 0x1) on SCMP_ARCH_X86_64: SCMP_ACT_TRAP -> SCMP_ACT_ALLOW",
            ),
        ] {
            assert_eq!(differences(&before, &after), [expected]);
        }
    }

    /// Answers of libseccomp 2.5.4: the first of the two rules counts, so that the order of the rules decides.
    #[test]
    fn conflicts_are_equal_only_with_the_same_rules_in_the_same_order() {
        let kill = json!({"names": ["clone"], "action": "SCMP_ACT_KILL", "args": [
            {"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": u64::MAX, "valueTwo": 5}]});
        let errno = json!({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [
            {"index": 0, "op": "SCMP_CMP_EQ", "value": 5}]});
        let profile = |rules: &[&Value]| json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules});
        let one = profile(&[&kill, &errno]);
        assert_eq!(differences(&one, &one), Vec::<String>::new());
        let conflict = "either SCMP_ACT_KILL_THREAD or SCMP_ACT_ERRNO 1";
        assert_eq!(
            differences(&one, &profile(&[&errno, &kill])),
            [format!("Changed clone(0x5) on SCMP_ARCH_X86_64: {conflict} -> {conflict}")]
        );
    }

    #[test]
    fn what_a_runtime_refuses_has_no_meaning() {
        for (text, expected) in [
            ("{}", "has neither defaultAction nor syscalls: a runtime applies no profile at all"),
            (
                r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultAction":"SCMP_ACT_ALLOW"}"#,
                "sets the key \"defaultAction\" twice, and readers disagree about which one counts",
            ),
            (
                r#"{"defaultAction":"SCMP_ACT_ERRNO","DefaultAction":"SCMP_ACT_ALLOW"}"#,
                "DefaultAction: must be written defaultAction: runtimes read it as that key",
            ),
            (
                r#"{"defaultAction":"SCMP_ACT_ERRNO","\u017fyscalls":[]}"#,
                "ſyscalls: must be written syscalls: runtimes read it as that key",
            ),
            (
                r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":"mkdir","action":"SCMP_ACT_ALLOW"}]}"#,
                "syscalls[0].names: must be a list",
            ),
            (
                r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":-1}"#,
                "defaultErrnoRet: must be a whole number from 0 to 18446744073709551615",
            ),
            (
                r#"{"defaultAction":"SCMP_ACT_ERRNO","architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_S390X"]}"#,
                "architectures: must all have the same byte order",
            ),
        ] {
            assert_eq!(Filter::parse(text).unwrap_err().to_string(), expected);
        }
    }

    /// Rules about the first two arguments with values below 8: sixteen values of each show everything they can distinguish.
    fn small_profile() -> impl Strategy<Value = Value> {
        let operators = vec![
            "SCMP_CMP_NE",
            "SCMP_CMP_LT",
            "SCMP_CMP_LE",
            "SCMP_CMP_EQ",
            "SCMP_CMP_GE",
            "SCMP_CMP_GT",
            "SCMP_CMP_MASKED_EQ",
        ];
        let argument = (0..2_u64, prop::sample::select(operators), 0..8_u64, 0..8_u64).prop_map(
            |(index, op, value, second)| json!({"index": index, "op": op, "value": value, "valueTwo": second}),
        );
        let action = prop::sample::select(vec!["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL"]);
        let rule = (action.clone(), prop::collection::vec(argument, 0..3))
            .prop_map(|(action, args)| json!({"names": ["clone"], "action": action, "args": args}));
        (action, prop::collection::vec(rule, 0..4))
            .prop_map(|(default, rules)| json!({"defaultAction": default, "syscalls": rules}))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn differences_are_those_that_trying_every_value_finds(before in small_profile(), after in small_profile()) {
            let (before, after) = (Filter::read(&before).unwrap(), Filter::read(&after).unwrap());
            let machine = Architecture::COMMON;
            let clone = Syscall::named("clone").unwrap();
            let has_same_rules = before.has_rules_of(&after, clone);
            let differ = |a: &Answer, b: &Answer| a != b || (a.is_conflict() && !has_same_rules);
            let call = |a: u64, b: u64| Call { architecture: machine, syscall: Some(clone), arguments: [a, b, 0, 0, 0, 0] };
            let all = || (0..16).flat_map(|a| (0..16).map(move |b| call(a, b)));
            let differs = all().any(|call| differ(&before.answer(&call, machine), &after.answer(&call, machine)));
            let found = before.differences(&after).unwrap();
            let named = found.iter().find(|difference| difference.reach == Reach::Call);
            let is_named = before.named_calls().chain(after.named_calls()).next().is_some();
            prop_assert_eq!(named.is_some(), differs && is_named);
            for Difference { call, before: old, after: new, .. } in &found {
                prop_assert!(differ(old, new), "{old} {new}");
                prop_assert_eq!((&before.answer(call, machine), &after.answer(call, machine)), (old, new));
            }
            prop_assert_eq!(found.is_empty(), !differs && before.default == after.default);
            let denied = before.find_call(clone, Answer::denies).unwrap();
            prop_assert_eq!(denied.is_some(), all().any(|call| before.answer(&call, machine).denies()));
        }
    }
}
