//! Seccomp profile documents: what is wrong in one, in the eyes of its author.
//!
//! Implements: the JSON that container runtimes read (OCI `linux.seccomp`), and what they do with the extensions of Docker's
//! own profiles: they drop them. A runtime checks little: unknown names are dropped in silence, unknown actions stop the
//! container. What a document means is in [`super::filter`]; hashing is left to those who have the bytes.

use std::collections::BTreeSet;

use palisade_base::field_path::FieldPath;
use serde_json::{Map, Value};

use super::{
    architecture::Architecture,
    decision::TooComplex,
    filter::{ARGUMENT_KEYS, FLAGS, Filter, FilterError, RULE_KEYS, TOP_KEYS},
    json,
    syscalls::{self, Syscall},
};

/// The largest profile that is accepted, in bytes: what a ConfigMap may hold.
pub const MAX_SIZE: usize = 1 << 20;

/// A kernel release, as far as it matters here.
pub type KernelVersion = (u32, u32);

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A container with this profile does not start, or is less confined than the document reads.
    Error,
    /// It starts, and not everything in the document has an effect.
    Warning,
}

/// Something wrong in a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    /// Where; the root for the document as a whole.
    pub at: FieldPath,
    /// How bad it is.
    pub severity: Severity,
    /// Stable name of the rule: `unknown-action`, `unknown-syscall`, …
    pub rule: &'static str,
    /// What is wrong, in one lower-case phrase.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

impl Lint {
    /// What a container that gets the profile has to expect.
    #[must_use]
    pub fn because(&self) -> &'static str {
        match (self.severity, self.rule) {
            (Severity::Error, "confines-nothing" | "empty-profile") => {
                "a container with this profile is not confined"
            }
            (Severity::Error, "docker-only") => {
                "a container with this profile may do more than the rule allows"
            }
            (Severity::Error, "not-judged") => "what the profile allows is not known",
            (Severity::Error, _) | (Severity::Warning, "cannot-start") => {
                "a container with this profile does not start"
            }
            (Severity::Warning, "conflicting-actions") => {
                "which rule applies depends on the order of the rules and on libseccomp"
            }
            (Severity::Warning, "alternative-conditions") => {
                "runtimes make a rule of its own out of every condition"
            }
            (Severity::Warning, _) => "the runtime accepts this and ignores it",
        }
    }
}

/// Actions and the kernel that brought them.
const ACTIONS: &[(&str, KernelVersion)] = &[
    ("SCMP_ACT_ALLOW", (3, 5)),
    ("SCMP_ACT_ERRNO", (3, 5)),
    ("SCMP_ACT_KILL", (3, 5)),
    ("SCMP_ACT_KILL_PROCESS", (4, 14)),
    ("SCMP_ACT_KILL_THREAD", (3, 5)),
    ("SCMP_ACT_LOG", (4, 14)),
    ("SCMP_ACT_NOTIFY", (5, 0)),
    ("SCMP_ACT_TRACE", (3, 5)),
    ("SCMP_ACT_TRAP", (3, 5)),
];

const OPERATORS: &[&str] = &[
    "SCMP_CMP_EQ",
    "SCMP_CMP_GE",
    "SCMP_CMP_GT",
    "SCMP_CMP_LE",
    "SCMP_CMP_LT",
    "SCMP_CMP_MASKED_EQ",
    "SCMP_CMP_NE",
];

/// Kernels that brought the flags.
const FLAG_KERNELS: &[(&str, KernelVersion)] = &[
    ("SECCOMP_FILTER_FLAG_LOG", (4, 14)),
    ("SECCOMP_FILTER_FLAG_SPEC_ALLOW", (4, 17)),
    ("SECCOMP_FILTER_FLAG_TSYNC", (3, 17)),
    ("SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV", (5, 19)),
];

/// The first kernel that has seccomp filters at all.
const FIRST_KERNEL: KernelVersion = (3, 5);

/// Keys for readers of the file; no runtime reads them.
pub(super) const COMMENT_KEYS: &[&str] = &["comment", "$schema"];

/// Calls without which the runtime cannot start any program.
const NEEDED_TO_START: &[&str] = &["execve", "exit_group"];

/// Everything wrong in a profile document; `kernel` is the one it is meant for, if known.
#[must_use]
pub fn lint(profile: &Value, kernel: Option<KernelVersion>) -> Vec<Lint> {
    let mut linter = Linter { kernel, lints: Vec::new() };
    linter.document(profile);
    linter.lints
}

struct Linter {
    kernel: Option<KernelVersion>,
    lints: Vec<Lint>,
}

impl Linter {
    fn report(
        &mut self,
        severity: Severity,
        rule: &'static str,
        at: FieldPath,
        message: String,
        help: Option<String>,
    ) {
        self.lints.push(Lint { at, severity, rule, message, help });
    }

    fn error(&mut self, rule: &'static str, at: FieldPath, message: impl Into<String>) {
        self.report(Severity::Error, rule, at, message.into(), None);
    }

    fn warn(&mut self, rule: &'static str, at: FieldPath, message: impl Into<String>) {
        self.report(Severity::Warning, rule, at, message.into(), None);
    }

    fn document(&mut self, profile: &Value) {
        let root = FieldPath::root;
        let Some(fields) = profile.as_object() else {
            self.error("not-an-object", root(), "a seccomp profile is a JSON object");
            return;
        };
        if let Some((major, minor)) = self.kernel.filter(|kernel| *kernel < FIRST_KERNEL) {
            let message = format!("Linux {major}.{minor} has no seccomp filters: they came with 3.5");
            self.error("kernel-too-old", root(), message);
        }
        self.keys(fields, TOP_KEYS, &root());
        match fields.get("defaultAction").filter(|action| !action.is_null()) {
            None => {
                let empty = Filter::read(profile) == Err(FilterError::Empty);
                let (rule, message) = if empty {
                    (
                        "empty-profile",
                        "without defaultAction and syscalls, a runtime applies no profile at all",
                    )
                } else {
                    ("missing-default-action", "defaultAction is missing")
                };
                let help = Some("add \"defaultAction\": \"SCMP_ACT_ERRNO\"".to_owned());
                self.report(Severity::Error, rule, root(), message.to_owned(), help);
            }
            Some(action) => self.action(action, &root().field("defaultAction")),
        }
        self.errno(fields, "defaultAction", "defaultErrnoRet", &root());
        for (index, name) in self.list(fields, "architectures", &root()).iter().enumerate() {
            let at = root().field("architectures").index(index);
            if name.as_str().and_then(Architecture::named).is_none() {
                self.error("unknown-architecture", at, format!("{name} is not an architecture"));
            }
        }
        for (index, flag) in self.list(fields, "flags", &root()).iter().enumerate() {
            self.flag(flag, root().field("flags").index(index));
        }
        for (index, rule) in self.list(fields, "syscalls", &root()).iter().enumerate() {
            self.rule(rule, &root().field("syscalls").index(index));
        }
        match Filter::read(profile) {
            Ok(filter) => {
                let listener = fields.get("listenerPath").and_then(Value::as_str).unwrap_or_default();
                if filter.notifies() && listener.is_empty() {
                    let message = "SCMP_ACT_NOTIFY needs a listener, and listenerPath is missing";
                    self.error("missing-listener", root().field("syscalls"), message);
                }
                let judged = self.whole(&filter);
                if judged == Err(TooComplex) {
                    let message = "the rules are too involved to be judged";
                    self.error("not-judged", root().field("syscalls"), message);
                }
            }
            // Every reason has a finding of its own; this one is the net below them.
            Err(error) if !self.lints.iter().any(|lint| lint.severity == Severity::Error) => {
                self.error("not-a-profile", root(), error.to_string());
            }
            // swallowed: an error with its own finding was reported before
            Err(_) => {}
        }
    }

    /// The items of a list; anything else is an error.
    fn list<'v>(
        &mut self,
        fields: &'v Map<String, Value>,
        name: &'static str,
        at: &FieldPath,
    ) -> &'v [Value] {
        match fields.get(name) {
            None | Some(Value::Null) => &[],
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.error("not-a-list", at.clone().field(name), format!("{name} is not a list"));
                &[]
            }
        }
    }

    fn rule(&mut self, rule: &Value, at: &FieldPath) {
        let Some(fields) = rule.as_object() else {
            self.error("not-an-object", at.clone(), "a rule is a JSON object");
            return;
        };
        self.keys(fields, RULE_KEYS, at);
        match fields.get("action").filter(|action| !action.is_null()) {
            None => self.error("missing-action", at.clone(), "the rule has no action"),
            Some(action) => self.action(action, &at.clone().field("action")),
        }
        let mut seen = BTreeSet::new();
        for (index, name) in self.list(fields, "names", at).iter().enumerate() {
            let path = at.clone().field("names").index(index);
            match name.as_str() {
                None | Some("") => {
                    self.error("not-a-name", path, format!("{name} is not the name of a system call"));
                }
                Some(name) if !seen.insert(name) => {
                    self.warn("repeated-syscall", path, format!("{name} is named twice in one rule"));
                }
                Some(name) => self.name(name, path),
            }
        }
        if seen.is_empty() && !fields.contains_key("name") {
            self.warn("empty-rule", at.clone(), "the rule names no system call");
        }
        self.errno(fields, "action", "errnoRet", at);
        let arguments = self.list(fields, "args", at);
        let mut tested = BTreeSet::new();
        for (index, argument) in arguments.iter().enumerate() {
            let path = at.clone().field("args").index(index);
            self.argument(argument, &path);
            if !tested.insert(argument.get("index").and_then(Value::as_u64)) {
                let message = "two conditions are on the same argument: the rule applies if any of its conditions holds";
                self.warn("alternative-conditions", path, message);
            }
        }
    }

    fn name(&mut self, name: &str, at: FieldPath) {
        let Some(syscall) = Syscall::named(name) else {
            let message = format!("there is no system call {name}: runtimes ignore it");
            let help = syscalls::nearest(name).map(|near| format!("did you mean {near}?"));
            self.report(Severity::Warning, "unknown-syscall", at, message, help);
            return;
        };
        let since = syscall.since();
        if let Some((major, minor)) = self.kernel.filter(|kernel| *kernel < since) {
            let message =
                format!("{name} came with Linux {}.{}: {major}.{minor} does not have it", since.0, since.1);
            self.warn("syscall-too-new", at, message);
        }
    }

    fn errno(&mut self, fields: &Map<String, Value>, action: &str, errno: &'static str, at: &FieldPath) {
        let Some(value) = fields.get(errno).filter(|value| !value.is_null()) else { return };
        let at = at.clone().field(errno);
        let action = fields.get(action).and_then(Value::as_str).unwrap_or_default();
        match value.as_u64() {
            Some(number) if number <= 4095 => {}
            Some(number) => {
                self.warn("errno-too-large", at.clone(), format!("{number} is larger than any error number"));
            }
            None => self.error("not-a-number", at.clone(), format!("{value} is not an error number")),
        }
        if !matches!(action, "SCMP_ACT_ERRNO" | "SCMP_ACT_TRACE") {
            self.warn("useless-errno", at, format!("{errno} has no meaning with {action}"));
        }
    }

    fn argument(&mut self, argument: &Value, at: &FieldPath) {
        let Some(fields) = argument.as_object() else {
            self.error("not-an-object", at.clone(), "a condition is a JSON object");
            return;
        };
        self.keys(fields, ARGUMENT_KEYS, at);
        let number = |name: &str| fields.get(name).filter(|value| !value.is_null()).map(Value::as_u64);
        if number("index").is_some_and(|index| index.is_none_or(|index| index > 5)) {
            self.error("argument-index", at.clone().field("index"), "a system call has the arguments 0 to 5");
        }
        for name in ["value", "valueTwo"] {
            if number(name) == Some(None) {
                self.error(
                    "argument-value",
                    at.clone().field(name),
                    format!("the {name} is not a whole number"),
                );
            }
        }
        let operator = fields.get("op").and_then(Value::as_str).unwrap_or_default();
        if !OPERATORS.contains(&operator) {
            let message = format!("{operator:?} is not an operator");
            let help = Some(format!("one of {}", OPERATORS.join(", ")));
            self.report(Severity::Error, "unknown-operator", at.clone().field("op"), message, help);
        }
        let (mask, wanted) = (number("value").flatten(), number("valueTwo").flatten());
        if operator == "SCMP_CMP_MASKED_EQ" && wanted.unwrap_or_default() & !mask.unwrap_or_default() != 0 {
            let message = "valueTwo has bits outside the mask in value: they do not count";
            self.warn("outside-mask", at.clone().field("valueTwo"), message);
        }
    }

    fn flag(&mut self, flag: &Value, at: FieldPath) {
        let name = flag.as_str().unwrap_or_default();
        if !FLAGS.contains(&name) {
            self.error("unknown-flag", at, format!("{flag} is not a flag"));
            return;
        }
        let since =
            FLAG_KERNELS.iter().find(|(known, _)| *known == name).map_or(FIRST_KERNEL, |(_, since)| *since);
        if let Some(kernel) = self.kernel.filter(|kernel| *kernel < since) {
            let message = format!(
                "{name} needs Linux {}.{}, and this is for {}.{}",
                since.0, since.1, kernel.0, kernel.1
            );
            self.error("flag-too-new", at, message);
        }
    }

    fn action(&mut self, action: &Value, at: &FieldPath) {
        let name = action.as_str().unwrap_or_default();
        match ACTIONS.iter().find(|(known, _)| *known == name) {
            None => {
                let names: Vec<_> = ACTIONS.iter().map(|(name, _)| *name).collect();
                let message = format!("{action} is not an action: no container can start with it");
                let help = Some(format!("one of {}", names.join(", ")));
                self.report(Severity::Error, "unknown-action", at.clone(), message, help);
            }
            Some((_, since)) => {
                if let Some(kernel) = self.kernel.filter(|kernel| kernel < since) {
                    let message = format!(
                        "{name} needs Linux {}.{}, and this is for {}.{}",
                        since.0, since.1, kernel.0, kernel.1
                    );
                    self.report(Severity::Error, "action-too-new", at.clone(), message, None);
                }
            }
        }
    }

    fn keys(&mut self, fields: &Map<String, Value>, known: &[&str], at: &FieldPath) {
        for (key, value) in fields.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
            let path = at.clone().key(key.clone());
            let folded = json::folded(key);
            if let Some(meant) = known.iter().find(|name| name.to_lowercase() == folded) {
                let message =
                    format!("{key} is read as {meant} by runtimes, whatever else the document contains");
                self.report(Severity::Error, "key-case", path, message, Some(format!("write {meant}")));
            } else if !is_empty(value) && !COMMENT_KEYS.contains(&key.as_str()) {
                self.foreign_key(key, path);
            }
        }
    }

    /// A key that no runtime reads.
    fn foreign_key(&mut self, key: &str, at: FieldPath) {
        let (severity, rule, message, help) = match key {
            "includes" | "excludes" => (
                Severity::Error,
                "docker-only",
                format!("{key} is Docker's: other runtimes drop it, and the rule applies to every container"),
                "write a profile of its own for each case",
            ),
            "name" => (
                Severity::Error,
                "docker-only",
                "name is Docker's: other runtimes drop it, and the rule names no system call".to_owned(),
                "write it as a list: names",
            ),
            "archMap" => (
                Severity::Warning,
                "docker-only",
                "archMap is Docker's: other runtimes drop it, and calls of other architectures end the thread".to_owned(),
                "list the architectures in architectures",
            ),
            "errno" | "defaultErrno" => (
                Severity::Warning,
                "docker-only",
                format!("{key} is Docker's: other runtimes drop it"),
                "write the number: errnoRet or defaultErrnoRet",
            ),
            _ => {
                let message = format!("{key} is not part of a seccomp profile: runtimes ignore it");
                let known = TOP_KEYS.iter().chain(RULE_KEYS).chain(ARGUMENT_KEYS).copied();
                let help = crate::spelling::nearest(key, known).map(|near| format!("did you mean {near}?"));
                self.report(Severity::Warning, "unknown-key", at, message, help);
                return;
            }
        };
        self.report(severity, rule, at, message, Some(help.to_owned()));
    }

    /// What only the meaning of the whole document shows.
    fn whole(&mut self, filter: &Filter) -> Result<(), TooComplex> {
        if filter.denied_call()?.is_none() {
            let at = FieldPath::root().field("defaultAction");
            self.error("confines-nothing", at, "no system call is denied: the profile confines nothing");
        }
        for syscall in NEEDED_TO_START.iter().filter_map(|name| Syscall::named(name)) {
            if filter.find_call(syscall, |answer| !answer.denies())?.is_none() {
                let name = syscall.name();
                let message = format!("{name} is denied: no program can start under this profile");
                let help = Some(format!("allow {name}"));
                self.report(Severity::Warning, "cannot-start", FieldPath::root(), message, help);
            }
        }
        for syscall in filter.named_calls() {
            if let Some((first, second)) = filter.contradiction(syscall) {
                let name = syscall.name();
                let message = format!(
                    "{name} has two rules with the same conditions, {first} and {second}: runtimes reject the second"
                );
                let help = Some("remove one of them".to_owned());
                let at = FieldPath::root().field("syscalls");
                self.report(Severity::Error, "contradicting-rules", at, message, help);
            }
        }
        let conflicts = filter.conflicts()?;
        for (call, answer) in &conflicts {
            let name = call.syscall.map_or("", Syscall::name);
            let message = format!("{name} has several actions: {call} gets {answer}");
            self.warn("conflicting-actions", FieldPath::root().field("syscalls"), message);
        }
        for syscall in filter.named_calls() {
            if let Some((counts, other)) = filter.overruled(syscall) {
                let name = syscall.name();
                let message = format!(
                    "{name} has several actions: {counts} without conditions counts, {other} never applies"
                );
                self.warn("conflicting-actions", FieldPath::root().field("syscalls"), message);
            }
        }
        Ok(())
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn found(profile: &Value, kernel: Option<KernelVersion>) -> Vec<String> {
        lint(profile, kernel).into_iter().map(|lint| format!("{} {}", lint.rule, lint.at)).collect()
    }

    #[test]
    fn finds_what_a_runtime_would_drop_or_refuse() {
        let good = json!({"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [{"names": ["execve", "exit_group", "read", "riscv_hwprobe"], "action": "SCMP_ACT_ALLOW"}]});
        assert_eq!(found(&good, Some((6, 5))), Vec::<String>::new());
        for (profile, kernel, expected) in [
            (json!([]), None, &["not-an-object "][..]),
            (json!({}), None, &["empty-profile "]),
            (json!({"defaultAction": null, "syscalls": []}), None, &["empty-profile "]),
            (
                json!({"syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}]}),
                None,
                &["missing-default-action "],
            ),
            (json!({"defaultAction": "SCPM_ACT_LOG"}), None, &["unknown-action defaultAction"]),
            (json!({"defaultAction": "SCMP_ACT_NOTIFY"}), None, &["not-a-profile "]),
            (
                json!({"defaultAction": "SCMP_ACT_LOG", "flags": ["SECCOMP_FILTER_FLAG_LOG", "LOG"],
                    "syscalls": [{"names": ["mkdir", "openat2"], "action": "SCMP_ACT_ERRNO"}]}),
                Some((3, 10)),
                &[
                    "action-too-new defaultAction",
                    "flag-too-new flags[0]",
                    "unknown-flag flags[1]",
                    "syscall-too-new syscalls[0].names[1]",
                ],
            ),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscals": [], "Syscalls": [], "syscalls": [
                    {"names": ["mkdri", "chmod", "chmod", 7, ""], "action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": -1, "op": "EQ"}]}]}),
                None,
                &[
                    "key-case [Syscalls]",
                    "unknown-syscall syscalls[0].names[0]",
                    "repeated-syscall syscalls[0].names[2]",
                    "not-a-name syscalls[0].names[3]",
                    "not-a-name syscalls[0].names[4]",
                    "argument-index syscalls[0].args[0].index",
                    "argument-value syscalls[0].args[0].value",
                    "unknown-operator syscalls[0].args[0].op",
                ],
            ),
            (json!({"defaultAction": "SCMP_ACT_ERRNO"}), None, &["cannot-start ", "cannot-start "]),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["x86"], "syscalls": [
                    {"names": ["chmod"], "action": "SCMP_ACT_KILL", "errnoRet": 1}]}),
                None,
                &["unknown-architecture architectures[0]", "useless-errno syscalls[0].errnoRet"],
            ),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                    {"names": ["chmod"], "action": "SCMP_ACT_KILL"}, {"names": ["chmod"], "action": "SCMP_ACT_ERRNO"}]}),
                None,
                &["conflicting-actions syscalls"],
            ),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                    {"names": ["chmod"], "action": "SCMP_ACT_KILL", "args": [{"index": 1, "op": "SCMP_CMP_EQ", "value": 5}]},
                    {"names": ["chmod"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 1, "op": "SCMP_CMP_EQ", "value": 5}]}]}),
                None,
                &["contradicting-rules syscalls", "conflicting-actions syscalls"],
            ),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                    {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}, {"names": ["chmod"], "action": "SCMP_ACT_NOTIFY"}]}),
                None,
                &["missing-listener syscalls"],
            ),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/run/listener.sock", "syscalls": [
                    {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}, {"names": ["chmod"], "action": "SCMP_ACT_NOTIFY"}]}),
                None,
                &[],
            ),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "archMap": [{"architecture": "SCMP_ARCH_X86_64"}], "syscalls": [
                    {"names": ["chmod"], "action": "SCMP_ACT_ERRNO", "includes": {"caps": ["CAP_FOWNER"]}, "excludes": {}},
                    {"name": "mkdir", "action": "SCMP_ACT_ERRNO"}]}),
                None,
                &[
                    "docker-only [archMap]",
                    "docker-only syscalls[0][includes]",
                    "docker-only syscalls[1][name]",
                ],
            ),
        ] {
            assert_eq!(found(&profile, kernel), expected, "{profile}");
        }
    }

    #[test]
    fn a_profile_that_denies_nothing_is_an_error() {
        let every: Vec<&str> = Syscall::all().map(Syscall::name).collect();
        let rule = |action: &str, args: Value| json!([{"names": ["mkdir"], "action": action, "args": args}]);
        for (case, profile) in [
            ("allowed by default", json!({"defaultAction": "SCMP_ACT_ALLOW"})),
            ("logged by default", json!({"defaultAction": "SCMP_ACT_LOG"})),
            ("traced by default", json!({"defaultAction": "SCMP_ACT_TRACE"})),
            (
                "only rules that allow",
                json!({"defaultAction": "SCMP_ACT_LOG", "syscalls": rule("SCMP_ACT_ALLOW", json!([]))}),
            ),
            (
                "a call that does not exist",
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdirr"], "action": "SCMP_ACT_ERRNO"}]}),
            ),
            (
                "a rule for no call",
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"name": "mkdir", "action": "SCMP_ACT_ERRNO"}]}),
            ),
            (
                "a condition that never holds",
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rule("SCMP_ACT_ERRNO", json!([{"index": 0, "op": "SCMP_CMP_LT", "value": 0}]))}),
            ),
            (
                "every call allowed by rules",
                json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": every, "action": "SCMP_ACT_ALLOW"}]}),
            ),
            (
                "a conflict that may allow",
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
                {"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "op": "SCMP_CMP_GT", "value": 1}]},
                {"names": ["mkdir"], "action": "SCMP_ACT_LOG", "args": [{"index": 1, "op": "SCMP_CMP_GE", "value": 0}]}]}),
            ),
        ] {
            let lints = lint(&profile, None);
            let found = lints.iter().find(|lint| lint.rule == "confines-nothing");
            assert_eq!(found.map(|lint| lint.severity), Some(Severity::Error), "{case}: {lints:?}");
        }
        let twin = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rule("SCMP_ACT_ERRNO", json!([{"index": 0, "op": "SCMP_CMP_LT", "value": 1}]))});
        assert_eq!(found(&twin, None), Vec::<String>::new());
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            prop::sample::select(vec![
                "SCMP_ACT_ALLOW",
                "SCMP_ACT_ERRNO",
                "mkdir",
                "SCMP_ARCH_X86",
                "SCMP_CMP_EQ",
                ""
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 4, |inner| {
            let keys: Vec<String> =
                TOP_KEYS.iter().chain(RULE_KEYS).chain(ARGUMENT_KEYS).map(ToString::to_string).collect();
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(prop::sample::select(keys), inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// What a runtime refuses is an error of lint, and nothing makes it panic.
        #[test]
        fn lint_never_calls_an_unusable_profile_good(profile in json_value(), major in 2_u32..8, minor in 0_u32..20) {
            let lints = lint(&profile, Some((major, minor)));
            let good = !lints.iter().any(|lint| lint.severity == Severity::Error);
            match Filter::read(&profile) {
                Err(error) => prop_assert!(!good, "{error}"),
                Ok(filter) => prop_assert!(!good || filter.denied_call() != Ok(None)),
            }
        }
    }
}
