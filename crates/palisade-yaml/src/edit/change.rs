//! Queued edits as a tree of paths, and what they make of a value.
//!
//! This is the meaning of an edit, without any text: the planner has to write exactly this, and the editor checks it.

use super::{EditError, Value};
use crate::path::{DisplayPath, Step};

/// What to do at one place and below.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    pub(super) action: Option<Action>,
    /// Changes below; only without `action`.
    pub(super) children: Vec<(OwnedStep, Change)>,
    /// Items to add to the list here; only without `action`.
    pub(super) appends: Vec<Value>,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Set(Value),
    Remove { prune: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnedStep {
    Key(String),
    Index(usize),
}

impl OwnedStep {
    fn new(step: Step<'_>) -> Self {
        match step {
            Step::Key(key) => Self::Key(key.to_owned()),
            Step::Index(index) => Self::Index(index),
        }
    }

    fn is(&self, step: Step<'_>) -> bool {
        match (self, step) {
            (Self::Key(left), Step::Key(right)) => left == right,
            (Self::Index(left), Step::Index(right)) => *left == right,
            _ => false,
        }
    }
}

/// What becomes of a value.
pub(super) enum Planned {
    Is(Value),
    /// It is gone; `prune` is whether a parent that is empty now should go as well.
    Gone {
        prune: bool,
    },
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        self.action.is_none() && self.children.is_empty() && self.appends.is_empty()
    }

    pub(super) fn child(&self, key: &str) -> Option<&Self> {
        self.children.iter().find(|(step, _)| step.is(Step::Key(key))).map(|(_, change)| change)
    }

    pub(super) fn item(&self, index: usize) -> Option<&Self> {
        self.children.iter().find(|(step, _)| step.is(Step::Index(index))).map(|(_, change)| change)
    }

    pub(super) fn set(&mut self, path: &[Step<'_>], value: Value) -> Result<(), EditError> {
        self.edit(path, 0, Edit::Set(value))
    }

    pub(super) fn append(&mut self, path: &[Step<'_>], value: Value) -> Result<(), EditError> {
        self.edit(path, 0, Edit::Append(value))
    }

    pub(super) fn remove(&mut self, path: &[Step<'_>], prune: bool) -> Result<(), EditError> {
        self.edit(path, 0, Edit::Remove { prune })
    }

    fn edit(&mut self, path: &[Step<'_>], depth: usize, edit: Edit) -> Result<(), EditError> {
        let rest = path.get(depth..).unwrap_or_default();
        let replaced = match &mut self.action {
            None => None,
            Some(Action::Set(value)) => Some(std::mem::replace(value, Value::Null)),
            Some(Action::Remove { .. }) if matches!(edit, Edit::Remove { .. }) => {
                return if rest.is_empty() { Ok(()) } else { Err(not_found(path)) };
            }
            Some(Action::Remove { .. }) => Some(Value::Null),
        };
        if let Some(value) = replaced
            && !(rest.is_empty() && matches!(edit, Edit::Set(_) | Edit::Remove { .. }))
        {
            self.action = Some(Action::Set(edit_value(value, path, depth, edit)?));
            return Ok(());
        }
        if let Some(&step) = rest.first() {
            self.check_kind(matches!(step, Step::Key(_)), path.get(..depth).unwrap_or_default())?;
            let found = self.children.iter().position(|(own, _)| own.is(step));
            let at = found.unwrap_or_else(|| {
                self.children.push((OwnedStep::new(step), Self::default()));
                self.children.len() - 1
            });
            return match self.children.get_mut(at) {
                Some((_, child)) => child.edit(path, depth + 1, edit),
                None => Ok(()),
            };
        }
        match edit {
            Edit::Set(value) => *self = Self { action: Some(Action::Set(value)), ..Self::default() },
            Edit::Remove { prune } => {
                *self = Self { action: Some(Action::Remove { prune }), ..Self::default() }
            }
            Edit::Append(value) => {
                self.check_kind(false, path)?;
                self.appends.push(value);
            }
        }
        Ok(())
    }

    /// Edits below one place must agree on whether it is a mapping or a list.
    fn check_kind(&self, mapping: bool, path: &[Step<'_>]) -> Result<(), EditError> {
        let is_mapping = match self.children.first() {
            Some((step, _)) => matches!(step, OwnedStep::Key(_)),
            None if self.appends.is_empty() => return Ok(()),
            None => false,
        };
        if is_mapping == mapping {
            return Ok(());
        }
        let found = if is_mapping { "a mapping" } else { "a list" };
        Err(wrong_kind(path, found, mapping))
    }

    /// What a value becomes; `None` stands for a value that does not exist yet.
    pub(super) fn apply(&self, old: Option<Value>) -> Planned {
        match &self.action {
            Some(Action::Set(value)) => return Planned::Is(value.clone()),
            Some(Action::Remove { prune }) => return Planned::Gone { prune: *prune },
            None => {}
        }
        if self.children.is_empty() && self.appends.is_empty() {
            return Planned::Is(old.unwrap_or(Value::Null));
        }
        let by_key = self.children.iter().any(|(step, _)| matches!(step, OwnedStep::Key(_)));
        match old {
            Some(Value::Map(entries)) => self.apply_to_map(entries),
            Some(Value::List(items)) => self.apply_to_list(items),
            _ if by_key => self.apply_to_map(Vec::new()),
            _ => self.apply_to_list(Vec::new()),
        }
    }

    fn apply_to_map(&self, mut entries: Vec<(String, Value)>) -> Planned {
        let mut pruned = false;
        for (step, change) in &self.children {
            let OwnedStep::Key(key) = step else { continue };
            let at = entries.iter().position(|(own, _)| own == key);
            let old =
                at.and_then(|at| entries.get_mut(at)).map(|(_, value)| std::mem::replace(value, Value::Null));
            match (change.apply(old), at) {
                (Planned::Is(value), Some(at)) => {
                    if let Some((_, slot)) = entries.get_mut(at) {
                        *slot = value;
                    }
                }
                (Planned::Is(value), None) => entries.push((key.clone(), value)),
                (Planned::Gone { prune }, Some(at)) => {
                    entries.remove(at);
                    pruned |= prune;
                }
                (Planned::Gone { .. }, None) => {}
            }
        }
        if pruned && entries.is_empty() {
            Planned::Gone { prune: true }
        } else {
            Planned::Is(Value::Map(entries))
        }
    }

    fn apply_to_list(&self, items: Vec<Value>) -> Planned {
        let mut pruned = false;
        let len = items.len();
        let mut result = Vec::with_capacity(len);
        for (index, item) in items.into_iter().enumerate() {
            match self
                .item(index)
                .map_or_else(|| Planned::Is(item.clone()), |change| change.apply(Some(item.clone())))
            {
                Planned::Is(value) => result.push(value),
                Planned::Gone { prune } => pruned |= prune,
            }
        }
        result.extend(self.new_items(len));
        if pruned && result.is_empty() {
            Planned::Gone { prune: true }
        } else {
            Planned::Is(Value::List(result))
        }
    }

    /// What a list of `len` items gets at its end: first what was set one past the end, then what was appended.
    pub(super) fn new_items(&self, len: usize) -> Vec<Value> {
        let set = self.item(len).and_then(|change| match change.apply(None) {
            Planned::Is(value) => Some(value),
            Planned::Gone { .. } => None,
        });
        set.into_iter().chain(self.appends.iter().cloned()).collect()
    }
}

enum Edit {
    Set(Value),
    Append(Value),
    Remove { prune: bool },
}

fn not_found(path: &[Step<'_>]) -> EditError {
    EditError::NotFound { path: DisplayPath(path).to_string() }
}

/// Applies an edit to a value that is not in the document yet, because an earlier edit set it.
fn edit_value(mut value: Value, path: &[Step<'_>], depth: usize, edit: Edit) -> Result<Value, EditError> {
    let Some(&step) = path.get(depth) else {
        return match edit {
            Edit::Set(new) => Ok(new),
            Edit::Remove { .. } => Ok(Value::Null),
            Edit::Append(item) => match value {
                Value::List(mut items) => {
                    items.push(item);
                    Ok(Value::List(items))
                }
                Value::Null => Ok(Value::List(vec![item])),
                other => Err(wrong_kind(path, other.name(), false)),
            },
        };
    };
    let last = depth + 1 == path.len();
    let prune = matches!(edit, Edit::Remove { prune: true });
    let removes_here = last && matches!(edit, Edit::Remove { .. });
    if matches!(value, Value::Null) {
        value = if matches!(step, Step::Key(_)) { Value::Map(Vec::new()) } else { Value::List(Vec::new()) };
    }
    match (&mut value, step) {
        (Value::Map(entries), Step::Key(key)) => match entries.iter().position(|(own, _)| own == key) {
            Some(at) if removes_here => {
                entries.remove(at);
            }
            Some(at) => {
                let (key, old) = entries.remove(at);
                let new = edit_value(old, path, depth + 1, edit)?;
                if !(prune && new.is_empty_collection()) {
                    entries.insert(at, (key, new));
                }
            }
            None if matches!(edit, Edit::Remove { .. }) => return Err(not_found(path)),
            None => entries.push((key.to_owned(), edit_value(Value::Null, path, depth + 1, edit)?)),
        },
        (Value::List(items), Step::Index(index)) => {
            if removes_here && index < items.len() {
                items.remove(index);
            } else if let Some(slot) = items.get_mut(index) {
                let new = edit_value(std::mem::replace(slot, Value::Null), path, depth + 1, edit)?;
                if prune && new.is_empty_collection() {
                    items.remove(index);
                } else {
                    *slot = new;
                }
            } else if index == items.len() && !matches!(edit, Edit::Remove { .. }) {
                items.push(edit_value(Value::Null, path, depth + 1, edit)?);
            } else {
                return Err(not_found(path));
            }
        }
        (other, step) => {
            let path = path.get(..depth).unwrap_or_default();
            return Err(wrong_kind(path, other.name(), matches!(step, Step::Key(_))));
        }
    }
    Ok(value)
}

pub(super) fn wrong_kind(path: &[Step<'_>], found: &'static str, mapping: bool) -> EditError {
    EditError::WrongKind {
        path: DisplayPath(path).to_string(),
        found,
        wanted: if mapping { "a mapping" } else { "a list" },
    }
}
