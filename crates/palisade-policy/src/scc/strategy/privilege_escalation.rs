//! Whether a process may gain more privileges than its parent.
//!
//! Implements: `allowPrivilegeEscalation` and `defaultAllowPrivilegeEscalation`. The default is not given to
//! containers for which Kubernetes would refuse `false`: privileged ones, and those that add `CAP_SYS_ADMIN`.

use palisade_base::field_error::FieldError;
use palisade_model::security_context::SecurityContext;

use super::{NULL, Place};
use crate::scc::constraint::Constraint;

/// The value for a container that leaves it open.
#[must_use]
pub fn assign(constraint: &Constraint, context: Option<&SecurityContext<'_>>) -> Option<bool> {
    let needs_it = context.is_some_and(|context| {
        let adds_sys_admin = |name: &str| name == "CAP_SYS_ADMIN";
        context.privileged == Some(true)
            || context.capabilities.as_ref().is_some_and(|c| c.add.iter().any(|name| adds_sys_admin(name)))
    });
    let default = constraint.default_allow_privilege_escalation.filter(|_| !needs_it);
    default.or_else(|| constraint.allow_privilege_escalation.filter(|&allowed| !allowed))
}

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    place: Place<'_>,
    allowed: Option<bool>,
) -> Option<FieldError> {
    if constraint.allow_privilege_escalation != Some(false) {
        return None;
    }
    let value = match allowed {
        Some(false) => return None,
        Some(true) => "true",
        None => NULL,
    };
    let detail = "Allowing privilege escalation for containers is not allowed";
    Some(place.invalid(&["allowPrivilegeEscalation"], value, detail))
}

#[cfg(test)]
mod tests {
    use palisade_model::security_context::SecurityContext;
    use serde_json::json;

    use super::{Constraint, assign};

    #[test]
    fn the_default_spares_who_could_not_run_with_it() {
        for (constraint, context, expected) in [
            (json!({}), "{}", None),
            (json!({"allowPrivilegeEscalation": true}), "{}", None),
            (json!({"allowPrivilegeEscalation": false}), "{}", Some(false)),
            (json!({"defaultAllowPrivilegeEscalation": true}), "{}", Some(true)),
            (json!({"defaultAllowPrivilegeEscalation": false}), r#"{"privileged":true}"#, None),
            (
                json!({"defaultAllowPrivilegeEscalation": true, "allowPrivilegeEscalation": false}),
                r#"{"capabilities":{"add":["CAP_SYS_ADMIN"]}}"#,
                Some(false),
            ),
            (
                json!({"defaultAllowPrivilegeEscalation": true}),
                r#"{"capabilities":{"add":["SYS_ADMIN"]}}"#,
                Some(true),
            ),
        ] {
            let read = Constraint::read(&constraint).unwrap();
            let context: SecurityContext<'_> = serde_json::from_str(context).unwrap();
            assert_eq!(assign(&read, Some(&context)), expected, "{constraint}");
        }
    }
}
