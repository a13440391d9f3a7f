//! A profile as the OCI runtime specification writes it.
//!
//! Implements: `linux.seccomp` of the OCI runtime specification, "Seccomp", with no key that only some runtimes read.
//! <https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp>

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    decision::Comparison,
    filter::{Action, Filter},
};

/// The name of an action, and its number if it is not the one that runtimes add.
fn action(action: Action) -> (&'static str, Option<u16>) {
    let number = |number: u16| (number != 1).then_some(number);
    match action {
        Action::KillProcess => ("SCMP_ACT_KILL_PROCESS", None),
        Action::KillThread => ("SCMP_ACT_KILL_THREAD", None),
        Action::Trap => ("SCMP_ACT_TRAP", None),
        Action::Errno(errno) => ("SCMP_ACT_ERRNO", number(errno)),
        Action::Notify => ("SCMP_ACT_NOTIFY", None),
        Action::Trace(data) => ("SCMP_ACT_TRACE", number(data)),
        Action::Log => ("SCMP_ACT_LOG", None),
        Action::Allow => ("SCMP_ACT_ALLOW", None),
    }
}

fn condition(&(index, comparison): &(u8, Comparison)) -> Value {
    let (op, value, second) = match comparison {
        Comparison::NotEqual(value) => ("SCMP_CMP_NE", value, None),
        Comparison::Less(value) => ("SCMP_CMP_LT", value, None),
        Comparison::LessOrEqual(value) => ("SCMP_CMP_LE", value, None),
        Comparison::Equal(value) => ("SCMP_CMP_EQ", value, None),
        Comparison::GreaterOrEqual(value) => ("SCMP_CMP_GE", value, None),
        Comparison::Greater(value) => ("SCMP_CMP_GT", value, None),
        Comparison::MaskedEqual { mask, value } => ("SCMP_CMP_MASKED_EQ", mask, Some(value)),
    };
    let mut fields = json!({"index": index, "value": value, "op": op});
    if let (Some(second), Some(fields)) = (second, fields.as_object_mut()) {
        fields.insert("valueTwo".to_owned(), second.into());
    }
    fields
}

/// What names have in common that are written as one rule.
type Shape<'f> = (&'f [(u8, Comparison)], Action);

impl Filter {
    /// The profile as a document: one rule for each action and list of conditions, names sorted.
    #[must_use]
    pub fn to_oci(&self) -> Value {
        let mut document = Map::new();
        let (name, errno) = action(self.default);
        document.insert("defaultAction".to_owned(), name.into());
        if let Some(errno) = errno {
            document.insert("defaultErrnoRet".to_owned(), errno.into());
        }
        if !self.architectures.is_empty() {
            document.insert("architectures".to_owned(), self.tokens().into());
        }
        if let Some(flags) = &self.settings.flags {
            document.insert("flags".to_owned(), flags.iter().cloned().collect());
        }
        if let Some((path, metadata)) = &self.settings.listener {
            document.insert("listenerPath".to_owned(), path.as_str().into());
            if let Some(metadata) = metadata {
                document.insert("listenerMetadata".to_owned(), metadata.as_str().into());
            }
        }
        let mut rules: BTreeMap<Shape<'_>, Vec<&str>> = BTreeMap::new();
        for (syscall, own) in &self.rules {
            for rule in own {
                rules.entry((&rule.conditions, rule.action)).or_default().push(syscall.name());
            }
        }
        let rules: Vec<Value> = rules
            .into_iter()
            .map(|((conditions, act), mut names)| {
                names.dedup();
                let (name, errno) = action(act);
                let mut fields = json!({"names": names, "action": name});
                if let Some(fields) = fields.as_object_mut() {
                    if let Some(errno) = errno {
                        fields.insert("errnoRet".to_owned(), errno.into());
                    }
                    if !conditions.is_empty() {
                        let args: Vec<Value> = conditions.iter().map(condition).collect();
                        fields.insert("args".to_owned(), args.into());
                    }
                }
                fields
            })
            .collect();
        if !rules.is_empty() {
            document.insert("syscalls".to_owned(), rules.into());
        }
        Value::Object(document)
    }
}
