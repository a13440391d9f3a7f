//! The seccomp and AppArmor strategies of PodSecurityPolicy, for those who may `use` a policy.
//!
//! Implements: the PodSecurityPolicy admission of v1.19 to v1.24 as far as profiles go, and the same over fields with
//! Palisade's extensions. Works only where there are policies: a cluster without any is not locked. As soon as there is one,
//! every pod needs a policy that its author or its service account may `use`.

use palisade_apimachinery::{Kind, Status};
use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::field_path::FieldPath;
use palisade_model::compat::Compat;
use palisade_policy::profiles::pod_security_policy::ProfileStrategies;
use serde_json::Value;

use super::rules::read_pod;
use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};
use crate::auth::UserInfo;
use crate::auth::rbac::Attributes;

const RESOURCE: &str = "podsecuritypolicies.policy";
/// Names the policy that admitted a pod.
const ANNOTATION: &str = "kubernetes.io/psp";

/// Whether objects of a kind are policies.
pub(super) fn is_policy(kind: &Kind) -> bool {
    kind.group == "policy" && kind.plural == "podsecuritypolicies"
}

/// What is wrong with the profiles of a policy.
pub(super) fn problems(object: &Value, compat: &Compat) -> Vec<FieldError> {
    match ProfileStrategies::read(object) {
        Ok(strategies) => strategies.problems(compat),
        Err(error) => {
            let at = FieldPath::of(&["spec", "seccomp"]);
            let shown = object.pointer("/spec/seccomp");
            let shown = shown.map_or(BadValue::Omitted, |value| BadValue::Plain(value.to_string()));
            vec![FieldError::invalid(at, shown, error.to_string())]
        }
    }
}

/// That the rest of a policy is not enforced here.
pub(super) fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    if old.is_some_and(|old| old.get("spec") == object.get("spec")) {
        return Vec::new();
    }
    let text = "only the seccomp and AppArmor strategies of a PodSecurityPolicy are enforced; \
                use Pod Security admission for everything else";
    vec![text.to_owned()]
}

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct PodSecurityPolicyPlugin {
    /// Whose rules.
    pub compat: Compat,
}

impl PodSecurityPolicyPlugin {
    fn concerns(&self, request: &Request<'_>) -> bool {
        // No release looked at debugging containers, whose profiles the design holds to the same rules.
        let debugging = self.compat.is_designs()
            && request.kind.group.is_empty()
            && request.kind.plural == "pods"
            && request.subresource == "ephemeralcontainers";
        (request.is("", "pods") || debugging)
            && matches!(request.operation, Operation::Create | Operation::Update)
    }

    /// The policies the user or the pod's service account may use, by name; none at all if there are no policies.
    fn usable(&self, request: &Request<'_>, object: &Value) -> Option<Vec<(String, ProfileStrategies)>> {
        let stored = request.cluster.list(RESOURCE, "");
        if stored.is_empty() {
            return None;
        }
        let account = object
            .pointer("/spec/serviceAccountName")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let account = format!("system:serviceaccount:{}:{}", request.namespace, account.unwrap_or("default"));
        let groups =
            ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{}", request.namespace)];
        let service_account = UserInfo { name: account, groups: groups.to_vec(), ..UserInfo::default() };
        let may_use = |user: &UserInfo, name: &str| {
            let attributes = Attributes {
                verb: "use",
                group: "policy",
                version: "v1beta1",
                resource: "podsecuritypolicies",
                subresource: "",
                namespace: request.namespace,
                name,
                path: "",
                node: "",
            };
            request.cluster.authorized(user, &attributes)
        };
        let mut usable: Vec<_> = stored
            .iter()
            .filter(|policy| may_use(request.user, policy.name()) || may_use(&service_account, policy.name()))
            .filter_map(|policy| {
                let strategies = ProfileStrategies::read(&Value::Object(policy.parse()));
                // swallowed: without a policy that cannot be applied fewer pods are admitted, never more
                let usable = strategies.ok().filter(|read| read.problems(&self.compat).is_empty())?;
                Some((policy.name().to_owned(), usable))
            })
            .collect();
        usable.sort_by(|a, b| a.0.cmp(&b.0));
        Some(usable)
    }

    /// The object after the defaults of a policy, and what the policy refuses in it.
    fn try_policy(
        &self,
        request: &Request<'_>,
        object: &Value,
        strategies: &ProfileStrategies,
    ) -> Result<(Value, bool, Vec<String>), Box<Status>> {
        let mut candidate = object.clone();
        let changes = strategies.defaults(&read_pod(request, object, &self.compat)?.0);
        for change in &changes {
            change.apply(&mut candidate);
        }
        let mutated = candidate != *object;
        let refused = {
            let (pod, _) = read_pod(request, &candidate, &self.compat)?;
            strategies.violations(&pod).iter().map(ToString::to_string).collect()
        };
        Ok((candidate, mutated, refused))
    }
}

impl Plugin for PodSecurityPolicyPlugin {
    fn name(&self) -> &'static str {
        "PodSecurityPolicy"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        if !self.concerns(request) || request.operation != Operation::Create {
            return Ok(());
        }
        let Some(policies) = self.usable(request, object) else { return Ok(()) };
        if policies.is_empty() {
            return Err(
                request.forbidden("PodSecurityPolicy: no providers available to validate pod request")
            );
        }
        // The first policy that passes as the pod is wins; else the first that passes with its defaults.
        let mut with_defaults = None;
        let mut refused = Vec::new();
        for (name, strategies) in &policies {
            let (candidate, mutated, problems) = self.try_policy(request, object, strategies)?;
            if !problems.is_empty() {
                refused.extend(problems);
                continue;
            }
            if !mutated {
                with_defaults = Some((name, candidate));
                break;
            }
            with_defaults.get_or_insert((name, candidate));
        }
        let Some((name, candidate)) = with_defaults else {
            let list = refused.join(" ");
            return Err(request.forbidden(&format!("PodSecurityPolicy: unable to admit pod: [{list}]")));
        };
        **object = candidate;
        crate::meta::edit_metadata(object, |metadata| {
            let annotations =
                metadata.entry("annotations").or_insert_with(|| Value::Object(serde_json::Map::new()));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(ANNOTATION.to_owned(), name.clone().into());
            }
        });
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object.filter(|_| self.concerns(request)) else { return Ok(()) };
        let Some(policies) = self.usable(request, object) else { return Ok(()) };
        if policies.is_empty() {
            return Err(
                request.forbidden("PodSecurityPolicy: no providers available to validate pod request")
            );
        }
        let mut refused = Vec::new();
        for (_, strategies) in &policies {
            match self.try_policy(request, object, strategies)? {
                (_, false, problems) if problems.is_empty() => return Ok(()),
                (_, false, problems) => refused.extend(problems),
                // A policy that would still change the pod cannot have admitted it.
                (_, true, _) => {}
            }
        }
        let list = refused.join(" ");
        Err(request.forbidden(&format!("PodSecurityPolicy: unable to validate pod: [{list}]")))
    }
}
