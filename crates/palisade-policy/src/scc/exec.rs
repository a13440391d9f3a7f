//! Whether someone may look into a running pod: only if they could have made it themselves.
//!
//! Implements: OpenShift's admission plugin `security.openshift.io/SCCExecRestrictions` for `pods/exec` and
//! `pods/attach`. The pod's service account lends nobody its rights here.

use palisade_base::go::Quoted;
use palisade_model::{prepare::Prepared, text::Text};

use super::{
    choose::{Admission, Operation, Request},
    decision::Decision,
};

/// Why `exec` or `attach` is refused, as the API server's `Forbidden` status says it; `None` if it is not.
#[must_use]
pub fn refusal(admission: &Admission<'_>, request: &Request<'_>, subresource: &str) -> Option<String> {
    let mut pod = request.pod.pod().clone();
    pod.spec.service_account_name = Text::default();
    pod.spec.deprecated_service_account = Text::default();
    let pod = Prepared::stored(pod, request.pod.compat());
    let request = Request { operation: Operation::Create, subresource: "", pod: &pod, ..*request };
    match admission.mutate(&request).decision {
        Decision::Ignored | Decision::Admitted(_) => None,
        Decision::Refused(refusal) => {
            let why = refusal.message(pod.pod());
            let name = Quoted(pod.pod().metadata.display_name());
            Some(format!(
                "pods {name} is forbidden: {subresource} operation is not allowed because the pod's security context \
                 exceeds your permissions: {why}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::{compat::Compat, metadata::StringMap, prepare::Prepared};

    use super::{Admission, Operation, Request, refusal};
    use crate::scc::{
        built_in,
        choose::{Identity, Malformed},
        evaluate::Options,
    };

    #[test]
    fn the_service_account_lends_nobody_its_rights() {
        let constraints = built_in::constraints();
        let pod = serde_json::from_str(
            r#"{"metadata":{"name":"p"},"spec":{"serviceAccountName":"strong","hostPID":true,
                "containers":[{"name":"a","image":"i"}]}}"#,
        )
        .unwrap();
        let pod = Prepared::stored(pod, &Compat::designs());
        let namespace: StringMap<'_> =
            serde_json::from_str(r#"{"openshift.io/sa.scc.uid-range":"1/9","openshift.io/sa.scc.mcs":"s0"}"#)
                .unwrap();
        let may_use = |identity: &Identity<'_>, constraint: &str| {
            identity.name.ends_with(":strong") || identity.name == "admin" || constraint == "restricted-v2"
        };
        let admission = Admission {
            constraints: &constraints,
            options: Options::default(),
            malformed: Malformed::Skip,
            require_standard: true,
        };
        let request = |user| Request {
            operation: Operation::Create,
            subresource: "exec",
            pod: &pod,
            namespace: "ns",
            namespace_annotations: Some(&namespace),
            user,
            groups: &[],
            authorizer: &may_use,
        };
        assert_eq!(refusal(&admission, &request("admin"), "exec"), None);
        let refused = refusal(&admission, &request("alice"), "attach").unwrap();
        assert!(
            refused.starts_with(
                "pods \"p\" is forbidden: attach operation is not allowed because the pod's security context exceeds \
                 your permissions: pods \"p\" is forbidden: unable to validate against any security context \
                 constraint: [provider \"anyuid\": Forbidden: not usable by user or serviceaccount, provider \
                 restricted-v2: .spec.securityContext.hostPID: Invalid value: true: Host PID is not allowed"
            ),
            "{refused}"
        );
    }
}
