//! Which SELinux label a container gets.
//!
//! Implements: `seLinuxContext` with the types `MustRunAs` and `RunAsAny`. Levels are equal when their categories
//! are the same in any order.

use palisade_base::{field_error::FieldError, go::Quoted};
use palisade_model::{security_context::SeLinuxOptions, text::Text};

use super::{Place, StrategyError};
use crate::scc::{
    constraint::SeLinuxContext, namespace_ranges::NamespaceRanges, provider::ProviderErrorKind,
};

/// The strategy, with what the namespace had to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy<'s> {
    /// One label.
    MustRunAs(SeLinuxOptions<'s>),
    /// Any label.
    RunAsAny,
}

impl<'s> Strategy<'s> {
    /// The strategy of a constraint in a namespace.
    pub fn new(
        options: &'s SeLinuxContext,
        namespace: &NamespaceRanges<'s>,
    ) -> Result<Self, ProviderErrorKind> {
        match options.kind.as_str() {
            "MustRunAs" => {
                let mut label = SeLinuxOptions::default();
                if let Some(given) = &options.se_linux_options {
                    label.user = Text::borrowed(&given.user);
                    label.role = Text::borrowed(&given.role);
                    label.kind = Text::borrowed(&given.kind);
                    label.level = Text::borrowed(&given.level);
                }
                if label.level.is_empty() {
                    label.level = Text::borrowed(namespace.mcs().map_err(ProviderErrorKind::Mcs)?);
                }
                Ok(Self::MustRunAs(label))
            }
            "RunAsAny" => Ok(Self::RunAsAny),
            kind => Err(StrategyError::Unrecognized { area: "SELinuxContext", kind: kind.to_owned() }.into()),
        }
    }

    /// The label for a pod or container that leaves it open.
    #[must_use]
    pub fn assign(&self) -> Option<SeLinuxOptions<'s>> {
        match self {
            Self::MustRunAs(label) => Some(label.clone()),
            Self::RunAsAny => None,
        }
    }

    /// What is wrong with an effective label.
    pub(in crate::scc) fn validate(
        &self,
        place: Place<'_>,
        label: Option<&SeLinuxOptions<'_>>,
        problems: &mut Vec<FieldError>,
    ) {
        let Self::MustRunAs(demanded) = self else { return };
        let Some(label) = label else {
            problems.push(place.required(&["seLinuxOptions"], ""));
            return;
        };
        for (field, demanded, value, equal) in [
            ("level", &demanded.level, &label.level, same_level(&demanded.level, &label.level)),
            ("role", &demanded.role, &label.role, demanded.role == label.role),
            ("type", &demanded.kind, &label.kind, demanded.kind == label.kind),
            ("user", &demanded.user, &label.user, demanded.user == label.user),
        ] {
            if !equal {
                let detail = format!("must be {demanded}");
                problems.push(place.invalid(&["seLinuxOptions", field], Quoted(value), detail));
            }
        }
    }
}

fn same_level(one: &str, other: &str) -> bool {
    let sorted = |categories: &str| {
        let mut categories: Vec<_> = categories.split(',').map(str::to_owned).collect();
        categories.sort_unstable();
        categories
    };
    one == other
        || match (one.split_once(':'), other.split_once(':')) {
            (Some((one, one_categories)), Some((other, other_categories))) => {
                one == other && sorted(one_categories) == sorted(other_categories)
            }
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::same_level;

    #[test]
    fn categories_come_in_any_order() {
        for (one, other, expected) in [
            ("s0:c1,c2", "s0:c2,c1", true),
            ("s0", "s0", true),
            ("s0", "s0:c1", false),
            ("s0:c1,c2", "s1:c1,c2", false),
            ("s0:c1,c1", "s0:c1", false),
            ("s0:c1:c2", "s0:c1:c2", true),
            ("", "s0", false),
        ] {
            assert_eq!(same_level(one, other), expected, "{one} {other}");
        }
    }
}
