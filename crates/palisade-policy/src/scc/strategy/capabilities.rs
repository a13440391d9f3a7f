//! Which capabilities a container may add and has to drop.
//!
//! Implements: `defaultAddCapabilities`, `requiredDropCapabilities`, `allowedCapabilities`. Names are compared as
//! written: `net_raw` is not `NET_RAW`.

use palisade_base::{field_error::FieldError, go::Quoted};
use palisade_model::{security_context::Capabilities, text::Text};

use super::{NULL, Place};
use crate::scc::constraint::{ANY, Constraint};

/// The capabilities of a container after the constraint's defaults; `None` where nothing has to change.
#[must_use]
pub fn assign<'s>(
    constraint: &'s Constraint,
    requested: Option<&Capabilities<'s>>,
) -> Option<Capabilities<'s>> {
    let (add, drop) =
        requested.map_or((&[][..], &[][..]), |requested| (&requested.add[..], &requested.drop[..]));
    let has = |list: &[Text<'_>], name: &str| list.iter().any(|own| own == name);
    let missing = |list: &'s [String], present: &[Text<'_>]| -> Vec<&'s str> {
        list.iter().map(String::as_str).filter(|name| !has(present, name)).collect()
    };
    let mut to_add = missing(&constraint.default_add_capabilities, add);
    to_add.retain(|name| !has(drop, name));
    let to_drop = missing(&constraint.required_drop_capabilities, drop);
    if to_add.is_empty() && to_drop.is_empty() {
        return None;
    }
    let merged = |present: &[Text<'s>], more: Vec<&'s str>| {
        let mut merged: Vec<_> =
            present.iter().cloned().chain(more.into_iter().map(Text::borrowed)).collect();
        merged.sort_unstable();
        merged.dedup();
        merged
    };
    Some(Capabilities { add: merged(add, to_add), drop: merged(drop, to_drop) })
}

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    place: Place<'_>,
    capabilities: Option<&Capabilities<'_>>,
    problems: &mut Vec<FieldError>,
) {
    let Constraint { default_add_capabilities: added, required_drop_capabilities: dropped, .. } = constraint;
    let Some(capabilities) = capabilities else {
        if !added.is_empty() || !dropped.is_empty() {
            let detail = "required capabilities are not set on the securityContext";
            problems.push(place.invalid(&["capabilities"], NULL, detail));
        }
        return;
    };
    let allowed = &constraint.allowed_capabilities;
    if allowed.iter().any(|name| name == ANY) {
        return;
    }
    for name in &capabilities.add {
        if !added.iter().chain(allowed).any(|own| own == name.as_str()) {
            problems.push(place.invalid(
                &["capabilities", "add"],
                Quoted(name),
                "capability may not be added",
            ));
        }
    }
    for name in dropped {
        if !capabilities.drop.iter().any(|own| own == name.as_str()) {
            let detail = format!("{name} is required to be dropped but was not found");
            problems.push(place.invalid(&["capabilities", "drop"], go_slice(&capabilities.drop), detail));
        }
    }
}

/// Go's `%#v` of a slice of capabilities.
fn go_slice(capabilities: &[Text<'_>]) -> String {
    if capabilities.is_empty() {
        return "[]core.Capability(nil)".to_owned();
    }
    let list = capabilities.iter().map(|name| Quoted(name).to_string()).collect::<Vec<_>>().join(", ");
    format!("[]core.Capability{{{list}}}")
}

#[cfg(test)]
mod tests {
    use palisade_model::security_context::Capabilities;
    use serde_json::json;

    use super::{Constraint, Place, assign, validate};

    fn constraint() -> Constraint {
        Constraint::read(&json!({
            "defaultAddCapabilities": ["CHOWN", "FOWNER"],
            "requiredDropCapabilities": ["MKNOD", "KILL"],
            "allowedCapabilities": ["NET_RAW"],
        }))
        .unwrap()
    }

    #[test]
    fn assigns_defaults_and_sorts_only_what_it_touches() {
        let constraint = constraint();
        for (case, requested, expected) in [
            ("nothing requested", None, Some(r#"{"add":["CHOWN","FOWNER"],"drop":["KILL","MKNOD"]}"#)),
            (
                "a default that is dropped stays dropped",
                Some(r#"{"drop":["FOWNER"]}"#),
                Some(r#"{"add":["CHOWN"],"drop":["FOWNER","KILL","MKNOD"]}"#),
            ),
            (
                "all there, in the user's order",
                Some(r#"{"add":["FOWNER","CHOWN"],"drop":["MKNOD","KILL","KILL"]}"#),
                None,
            ),
        ] {
            let requested: Option<Capabilities<'_>> =
                requested.map(|requested| serde_json::from_str(requested).unwrap());
            let assigned = assign(&constraint, requested.as_ref());
            let assigned = assigned.map(|capabilities| serde_json::to_string(&capabilities).unwrap());
            assert_eq!(assigned.as_deref(), expected, "{case}");
        }
        assert_eq!(assign(&Constraint::default(), None), None);
    }

    #[test]
    fn refuses_what_is_not_allowed_and_misses_what_is_required() {
        let problems_of = |constraint: &Constraint, capabilities: &str| -> Vec<String> {
            let capabilities: Option<Capabilities<'_>> = serde_json::from_str(capabilities).unwrap();
            let mut problems = Vec::new();
            validate(constraint, Place::pod("x"), capabilities.as_ref(), &mut problems);
            problems.iter().map(|problem| problem.body(palisade_base::version::KubeVersion::LATEST)).collect()
        };
        assert_eq!(
            problems_of(&constraint(), r#"{"add":["NET_RAW","CHOWN","net_raw"],"drop":["KILL"]}"#),
            [
                r#"Invalid value: "net_raw": capability may not be added"#,
                r#"Invalid value: []core.Capability{"KILL"}: MKNOD is required to be dropped but was not found"#,
            ]
        );
        assert_eq!(
            problems_of(&constraint(), "null"),
            [r#"Invalid value: "null": required capabilities are not set on the securityContext"#]
        );
        assert_eq!(problems_of(&Constraint::default(), "null"), [""; 0]);
        let any = Constraint { allowed_capabilities: vec!["*".to_owned()], ..constraint() };
        assert_eq!(problems_of(&any, r#"{"add":["SYS_ADMIN"]}"#), [""; 0]);
    }
}
