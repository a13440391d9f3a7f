//! The constraints of a cluster, in the order they are tried.
//!
//! One object that cannot be read is left out and reported; the rest stays in force.

use serde_json::Value;

use super::{
    constraint::{Constraint, ReadError},
    order::Rank,
};

/// All constraints, sorted once when they change and not for every pod.
#[derive(Debug, Clone, Default)]
pub struct ConstraintSet {
    constraints: Vec<Constraint>,
}

impl ConstraintSet {
    /// Sorts constraints.
    #[must_use]
    pub fn new(mut constraints: Vec<Constraint>) -> Self {
        constraints.sort_by(|one, other| Rank::of(one).cmp(&Rank::of(other)));
        Self { constraints }
    }

    /// Reads objects of the API; those that are no constraints come back as errors.
    #[must_use]
    pub fn read<'v>(objects: impl IntoIterator<Item = &'v Value>) -> (Self, Vec<ReadError>) {
        let (mut constraints, mut errors) = (Vec::new(), Vec::new());
        for object in objects {
            match Constraint::read(object) {
                Ok(constraint) => constraints.push(constraint),
                Err(error) => errors.push(error),
            }
        }
        (Self::new(constraints), errors)
    }

    /// The constraint of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Constraint> {
        self.constraints.iter().find(|constraint| constraint.name() == name)
    }

    /// All constraints, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Constraint> {
        self.constraints.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.constraints.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ConstraintSet;

    #[test]
    fn a_malformed_object_does_not_take_the_others_with_it() {
        let objects = [
            json!({"metadata": {"name": "b"}}),
            json!({"metadata": {"name": "broken"}, "priority": "high"}),
            json!({"metadata": {"name": "a"}, "priority": 1}),
        ];
        let (set, errors) = ConstraintSet::read(&objects);
        assert_eq!(set.iter().map(super::Constraint::name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(errors.iter().map(|error| error.name.as_str()).collect::<Vec<_>>(), ["broken"]);
    }
}
