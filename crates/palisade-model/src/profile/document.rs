//! Seccomp profile documents: what is wrong in one, and what differs between two.
//!
//! Implements: the JSON that container runtimes read (OCI `linux.seccomp`, with the extensions of Docker's and
//! containerd's own profiles). A runtime checks little: unknown names are dropped in silence, unknown actions stop
//! the container. Hashing is left to those who have the bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::{Map, Value};

use super::syscalls;
use crate::field_path::FieldPath;

/// The largest profile that is accepted, in bytes: what a ConfigMap may hold.
pub const MAX_SIZE: usize = 1 << 20;

/// A kernel release, as far as it matters here.
pub type KernelVersion = (u32, u32);

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A container with this profile will not start.
    Error,
    /// It will start, and not do what the author meant.
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

const ARCHITECTURES: &[&str] = &[
    "SCMP_ARCH_AARCH64",
    "SCMP_ARCH_ARM",
    "SCMP_ARCH_LOONGARCH64",
    "SCMP_ARCH_M68K",
    "SCMP_ARCH_MIPS",
    "SCMP_ARCH_MIPS64",
    "SCMP_ARCH_MIPS64N32",
    "SCMP_ARCH_MIPSEL",
    "SCMP_ARCH_MIPSEL64",
    "SCMP_ARCH_MIPSEL64N32",
    "SCMP_ARCH_PARISC",
    "SCMP_ARCH_PARISC64",
    "SCMP_ARCH_PPC",
    "SCMP_ARCH_PPC64",
    "SCMP_ARCH_PPC64LE",
    "SCMP_ARCH_RISCV64",
    "SCMP_ARCH_S390",
    "SCMP_ARCH_S390X",
    "SCMP_ARCH_SH",
    "SCMP_ARCH_SHEB",
    "SCMP_ARCH_X32",
    "SCMP_ARCH_X86",
    "SCMP_ARCH_X86_64",
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

const TOP_KEYS: &[&str] = &[
    "archMap",
    "architectures",
    "defaultAction",
    "defaultErrno",
    "defaultErrnoRet",
    "flags",
    "listenerMetadata",
    "listenerPath",
    "syscalls",
];

const RULE_KEYS: &[&str] =
    &["action", "args", "comment", "errno", "errnoRet", "excludes", "includes", "name", "names"];

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

    fn document(&mut self, profile: &Value) {
        let root = FieldPath::root;
        let Some(profile) = profile.as_object() else {
            let message = "a seccomp profile is a JSON object".to_owned();
            self.report(Severity::Error, "not-an-object", root(), message, None);
            return;
        };
        self.unknown_keys(profile, TOP_KEYS, &root());
        match profile.get("defaultAction") {
            None => {
                let help = Some("add \"defaultAction\": \"SCMP_ACT_ERRNO\"".to_owned());
                self.report(
                    Severity::Error,
                    "missing-default-action",
                    root(),
                    "defaultAction is missing".to_owned(),
                    help,
                );
            }
            Some(action) => self.action(action, &root().field("defaultAction")),
        }
        self.architectures(profile.get("architectures"), &root().field("architectures"));
        for (index, entry) in array(profile.get("archMap")).enumerate() {
            let at = root().field("archMap").index(index);
            if let Some(main) = entry.get("architecture") {
                self.architecture(main, at.clone().field("architecture"));
            }
            self.architectures(entry.get("subArchitectures"), &at.field("subArchitectures"));
        }
        match profile.get("syscalls") {
            None | Some(Value::Null | Value::Array(_)) => {}
            Some(_) => {
                let message = "syscalls is not a list".to_owned();
                self.report(Severity::Error, "not-a-list", root().field("syscalls"), message, None);
            }
        }
        for (index, rule) in array(profile.get("syscalls")).enumerate() {
            self.rule(rule, &root().field("syscalls").index(index));
        }
        self.whole(&Reading::of(profile));
    }

    fn rule(&mut self, rule: &Value, at: &FieldPath) {
        let Some(fields) = rule.as_object() else {
            self.report(
                Severity::Error,
                "not-an-object",
                at.clone(),
                "a rule is a JSON object".to_owned(),
                None,
            );
            return;
        };
        self.unknown_keys(fields, RULE_KEYS, at);
        match fields.get("action") {
            None => self.report(
                Severity::Error,
                "missing-action",
                at.clone(),
                "the rule has no action".to_owned(),
                None,
            ),
            Some(action) => self.action(action, &at.clone().field("action")),
        }
        let mut seen = BTreeSet::new();
        for (name, path) in names(fields, at) {
            if !seen.insert(name) {
                let message = format!("{name} is named twice in one rule");
                self.report(Severity::Warning, "repeated-syscall", path, message, None);
            } else if !syscalls::is_known(name) {
                let message = format!("there is no system call {name}: runtimes ignore it");
                let help = syscalls::nearest(name).map(|near| format!("did you mean {near}?"));
                self.report(Severity::Warning, "unknown-syscall", path, message, help);
            }
        }
        if seen.is_empty() {
            let message = "the rule names no system call".to_owned();
            self.report(Severity::Warning, "empty-rule", at.clone(), message, None);
        }
        let errno = fields.get("errnoRet").filter(|value| !value.is_null());
        let action = fields.get("action").and_then(Value::as_str).unwrap_or_default();
        if errno.is_some() && !matches!(action, "SCMP_ACT_ERRNO" | "SCMP_ACT_TRACE") {
            let message = format!("errnoRet has no meaning with {action}");
            self.report(Severity::Warning, "useless-errno", at.clone().field("errnoRet"), message, None);
        }
        for (index, argument) in array(fields.get("args")).enumerate() {
            self.argument(argument, &at.clone().field("args").index(index));
        }
    }

    fn argument(&mut self, argument: &Value, at: &FieldPath) {
        let index = argument.get("index").and_then(Value::as_u64);
        if index.is_none_or(|index| index > 5) {
            let message = "a system call has the arguments 0 to 5".to_owned();
            self.report(Severity::Error, "argument-index", at.clone().field("index"), message, None);
        }
        if argument.get("value").is_some_and(|value| value.as_u64().is_none()) {
            let message = "the value is not a whole number".to_owned();
            self.report(Severity::Error, "argument-value", at.clone().field("value"), message, None);
        }
        let operator = argument.get("op").and_then(Value::as_str).unwrap_or_default();
        if !OPERATORS.contains(&operator) {
            let message = format!("{operator:?} is not an operator");
            let help = Some(format!("one of {}", OPERATORS.join(", ")));
            self.report(Severity::Error, "unknown-operator", at.clone().field("op"), message, help);
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

    fn architectures(&mut self, list: Option<&Value>, at: &FieldPath) {
        for (index, name) in array(list).enumerate() {
            self.architecture(name, at.clone().index(index));
        }
    }

    fn architecture(&mut self, name: &Value, at: FieldPath) {
        if !name.as_str().is_some_and(|name| ARCHITECTURES.contains(&name)) {
            let message = format!("{name} is not an architecture");
            self.report(Severity::Error, "unknown-architecture", at, message, None);
        }
    }

    fn unknown_keys(&mut self, fields: &Map<String, Value>, known: &[&str], at: &FieldPath) {
        for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
            let message = format!("{key} is not part of a seccomp profile: runtimes ignore it");
            self.report(Severity::Warning, "unknown-key", at.clone().key(key.clone()), message, None);
        }
    }

    /// What only the whole document shows.
    fn whole(&mut self, reading: &Reading<'_>) {
        let allows = |action: &str| {
            matches!(action, "SCMP_ACT_ALLOW" | "SCMP_ACT_LOG" | "SCMP_ACT_NOTIFY" | "SCMP_ACT_TRACE")
        };
        if allows(reading.default) && reading.rules.values().flatten().all(|rule| allows(rule.action)) {
            let message = "nothing is denied: the profile does not confine anything".to_owned();
            self.report(
                Severity::Warning,
                "confines-nothing",
                FieldPath::root().field("defaultAction"),
                message,
                None,
            );
        }
        for name in NEEDED_TO_START {
            let denied = [
                "SCMP_ACT_ERRNO",
                "SCMP_ACT_KILL",
                "SCMP_ACT_KILL_PROCESS",
                "SCMP_ACT_KILL_THREAD",
                "SCMP_ACT_TRAP",
            ]
            .contains(&reading.unconditional(name));
            if denied && !reading.allows_somehow(name) {
                let message = format!("{name} is denied: no program can start under this profile");
                self.report(
                    Severity::Warning,
                    "cannot-start",
                    FieldPath::root(),
                    message,
                    Some(format!("allow {name}")),
                );
            }
        }
        for (name, rules) in &reading.rules {
            let mut unconditional: Vec<_> =
                rules.iter().filter(|rule| !rule.conditional).map(|rule| rule.action).collect();
            unconditional.sort_unstable();
            unconditional.dedup();
            if unconditional.len() > 1 {
                let message = format!("{name} has several actions: {}", unconditional.join(", "));
                self.report(
                    Severity::Warning,
                    "conflicting-actions",
                    FieldPath::root().field("syscalls"),
                    message,
                    None,
                );
            }
        }
    }
}

fn array(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// The system calls a rule names: the list, or the single name of old profiles.
fn names<'v>(rule: &'v Map<String, Value>, at: &FieldPath) -> Vec<(&'v str, FieldPath)> {
    let listed = array(rule.get("names"))
        .enumerate()
        .filter_map(|(index, name)| Some((name.as_str()?, at.clone().field("names").index(index))));
    let single = rule.get("name").and_then(Value::as_str).map(|name| (name, at.clone().field("name")));
    listed.chain(single.filter(|(name, _)| !name.is_empty())).collect()
}

/// A profile as what it does to each call.
struct Reading<'v> {
    default: &'v str,
    rules: BTreeMap<&'v str, Vec<RuleFor<'v>>>,
}

struct RuleFor<'v> {
    action: &'v str,
    /// Applies only to some arguments, architectures, capabilities or kernels.
    conditional: bool,
    text: String,
}

impl<'v> Reading<'v> {
    fn of(profile: &'v Map<String, Value>) -> Self {
        let default = profile.get("defaultAction").and_then(Value::as_str).unwrap_or_default();
        let mut rules: BTreeMap<&'v str, Vec<RuleFor<'v>>> = BTreeMap::new();
        for rule in array(profile.get("syscalls")).filter_map(Value::as_object) {
            let action = rule.get("action").and_then(Value::as_str).unwrap_or_default();
            let conditions: Vec<String> = ["args", "includes", "excludes"]
                .into_iter()
                .filter_map(|key| {
                    rule.get(key).filter(|value| !is_empty(value)).map(|value| format!("{key} {value}"))
                })
                .collect();
            let errno = rule.get("errnoRet").filter(|value| !value.is_null());
            let mut text = action.to_owned();
            if let Some(errno) = errno {
                let _ = write!(text, " {errno}");
            }
            if !conditions.is_empty() {
                let _ = write!(text, " if {}", conditions.join(", "));
            }
            for (name, _) in names(rule, &FieldPath::root()) {
                let entry = RuleFor { action, conditional: !conditions.is_empty(), text: text.clone() };
                rules.entry(name).or_default().push(entry);
            }
        }
        Self { default, rules }
    }

    fn unconditional(&self, name: &str) -> &str {
        let rules = self.rules.get(name).map_or(&[][..], Vec::as_slice);
        rules.iter().find(|rule| !rule.conditional).map_or(self.default, |rule| rule.action)
    }

    fn allows_somehow(&self, name: &str) -> bool {
        self.rules.get(name).is_some_and(|rules| rules.iter().any(|rule| rule.action == "SCMP_ACT_ALLOW"))
    }

    /// All that the profile says about a call, in one text that two profiles can be compared by.
    fn told(&self, name: &str) -> String {
        match self.rules.get(name) {
            None => self.default.to_owned(),
            Some(rules) => {
                let mut texts: Vec<&str> = rules.iter().map(|rule| rule.text.as_str()).collect();
                texts.sort_unstable();
                texts.dedup();
                texts.join("; ")
            }
        }
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

/// What a container gains and loses when one profile takes the place of another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileDiff {
    /// Actions for calls that no rule names, if they differ: before, after.
    pub default_action: Option<(String, String)>,
    /// Calls that are allowed now and were not.
    pub gained: Vec<String>,
    /// Calls that were allowed and are not now.
    pub lost: Vec<String>,
    /// Calls that are told differently, neither gained nor lost: name, before, after.
    pub changed: Vec<(String, String, String)>,
}

impl ProfileDiff {
    /// Whether both profiles do the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Compares two profile documents by what they do.
#[must_use]
pub fn diff(before: &Value, after: &Value) -> ProfileDiff {
    let empty = Map::new();
    let before = Reading::of(before.as_object().unwrap_or(&empty));
    let after = Reading::of(after.as_object().unwrap_or(&empty));
    let mut diff = ProfileDiff::default();
    if before.default != after.default {
        diff.default_action = Some((before.default.to_owned(), after.default.to_owned()));
    }
    let named: BTreeSet<&str> = before.rules.keys().chain(after.rules.keys()).copied().collect();
    for name in named {
        let (told_before, told_after) = (before.told(name), after.told(name));
        if told_before == told_after {
            continue;
        }
        let allowed = |reading: &Reading<'_>| reading.unconditional(name) == "SCMP_ACT_ALLOW";
        match (allowed(&before), allowed(&after)) {
            (false, true) => diff.gained.push(name.to_owned()),
            (true, false) => diff.lost.push(name.to_owned()),
            _ => diff.changed.push((name.to_owned(), told_before, told_after)),
        }
    }
    diff
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{KernelVersion, diff, lint};

    fn found(profile: &Value, kernel: Option<KernelVersion>) -> Vec<String> {
        lint(profile, kernel).into_iter().map(|lint| format!("{} {}", lint.rule, lint.at)).collect()
    }

    #[test]
    fn finds_what_a_runtime_would_drop_or_refuse() {
        let good = json!({"defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [{"names": ["execve", "exit_group", "read"], "action": "SCMP_ACT_ALLOW"}]});
        assert_eq!(found(&good, Some((6, 1))), Vec::<String>::new());
        for (profile, kernel, expected) in [
            (json!([]), None, &["not-an-object "][..]),
            (json!({}), None, &["missing-default-action "]),
            (json!({"defaultAction": "SCPM_ACT_LOG"}), None, &["unknown-action defaultAction"]),
            (
                json!({"defaultAction": "SCMP_ACT_LOG", "syscalls": [{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO"}]}),
                Some((4, 13)),
                &["action-too-new defaultAction"],
            ),
            (json!({"defaultAction": "SCMP_ACT_ALLOW"}), None, &["confines-nothing defaultAction"]),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "syscals": [], "syscalls": [
                    {"names": ["mkdri", "chmod", "chmod"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": -1, "op": "EQ"}]}]}),
                None,
                &[
                    "unknown-key [syscals]",
                    "unknown-syscall syscalls[0].names[0]",
                    "repeated-syscall syscalls[0].names[2]",
                    "argument-index syscalls[0].args[0].index",
                    "argument-value syscalls[0].args[0].value",
                    "unknown-operator syscalls[0].args[0].op",
                ],
            ),
            (json!({"defaultAction": "SCMP_ACT_ERRNO"}), None, &["cannot-start ", "cannot-start "]),
            (
                json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["x86"], "syscalls": [
                    {"name": "chmod", "action": "SCMP_ACT_KILL", "errnoRet": 1}, {"names": ["chmod"], "action": "SCMP_ACT_ERRNO"}]}),
                None,
                &[
                    "unknown-architecture architectures[0]",
                    "useless-errno syscalls[0].errnoRet",
                    "conflicting-actions syscalls",
                ],
            ),
        ] {
            assert_eq!(found(&profile, kernel), expected, "{profile}");
        }
    }

    #[test]
    fn tells_what_is_gained_and_lost() {
        let before = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["read", "write"], "action": "SCMP_ACT_ALLOW"}, {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0}]}]});
        let after = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
            {"names": ["read", "mount"], "action": "SCMP_ACT_ALLOW"}, {"names": ["clone"], "action": "SCMP_ACT_KILL"}]});
        let diff = diff(&before, &after);
        assert_eq!((diff.gained, diff.lost), (vec!["mount".to_owned()], vec!["write".to_owned()]));
        assert_eq!(diff.changed.len(), 1);
        assert_eq!(diff.default_action, None);
        assert!(super::diff(&before, &before).is_empty());
    }
}
