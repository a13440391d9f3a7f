//! The two webhook configurations.
//!
//! Implements: Dynamic Admission Control, `admissionregistration.k8s.io/v1`.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>
//!
//! Nothing that a cluster needs to come up, or that this webhook itself needs, depends on it: its own namespace and
//! kube-system are not sent here at all, neither are pods that kubelets run on their own account, nor updates that change
//! nothing that is judged ([`super::conditions`]). What is only advice (workloads) never stops anything.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::conditions::match_conditions;
use crate::{
    certificates::Trust,
    options::{Endpoint, FailurePolicy, Registration},
};

/// The label that every namespace carries with its own name, since v1.21.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The release whose API servers evaluate match conditions by default.
const MATCH_CONDITIONS: u16 = 28;

/// The annotation of a configuration that is being uninstalled: it is neither corrected nor made again.
pub const UNINSTALLING: &str = "palisade.dev/uninstalling";

/// What decides about the objects besides the options.
#[derive(Debug, Clone)]
pub struct Surroundings<'s> {
    /// The webhook's own namespace.
    pub namespace: &'s str,
    /// The minor version of the API server.
    pub minor: u16,
    /// Whether constraints are in force, which write into debugging containers too.
    pub constraints: bool,
    /// What the API server shall trust.
    pub trust: &'s Trust,
}

/// One of the two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `MutatingWebhookConfiguration`.
    Mutating,
    /// `ValidatingWebhookConfiguration`.
    Validating,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Mutating, Self::Validating];

    /// The kind's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }

    /// The resource's name.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Mutating => "/mutate",
            Self::Validating => "/validate",
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Mutating => "mutate",
            Self::Validating => "validate",
        }
    }
}

/// The configuration of a kind, as it shall be.
#[must_use]
pub fn configuration(kind: Kind, options: &Registration, around: &Surroundings<'_>) -> Value {
    let pods = match kind {
        Kind::Mutating => {
            let mut rules = vec![rule(&["CREATE"], "", "v1", &["pods"])];
            if around.constraints {
                rules.push(rule(&["UPDATE"], "", "v1", &["pods/ephemeralcontainers"]));
            }
            rules
        }
        Kind::Validating => {
            vec![rule(&["CREATE", "UPDATE"], "", "v1", &["pods", "pods/ephemeralcontainers"])]
        }
    };
    let workloads = vec![
        rule(&["CREATE", "UPDATE"], "", "v1", &["podtemplates", "replicationcontrollers"]),
        rule(
            &["CREATE", "UPDATE"],
            "apps",
            "v1",
            &["daemonsets", "deployments", "replicasets", "statefulsets"],
        ),
        rule(&["CREATE", "UPDATE"], "batch", "v1", &["cronjobs", "jobs"]),
    ];
    let policy = match kind {
        Kind::Mutating => options.mutate,
        Kind::Validating => options.validate,
    };
    let make = |part, policy, rules: &[Value]| webhook(kind, part, policy, rules, options, around);
    let mut webhooks = vec![make("pods", policy, &pods)];
    if kind == Kind::Mutating {
        // Without us a pod is not applied again from a manifest that names a ConfigMap; other changes must not wait for that.
        let applied_again = rule(&["UPDATE"], "", "v1", &["pods"]);
        webhooks.push(make("applied-pods", FailurePolicy::Ignore, &[applied_again]));
    } else {
        webhooks.push(make("namespaces", policy, &[rule(&["CREATE", "UPDATE"], "", "v1", &["namespaces"])]));
        let policies = rule(
            &["CREATE", "UPDATE"],
            "palisade.dev",
            "v1alpha1",
            &["profilepolicies", "securityexceptions"],
        );
        let profiles = rule(&["CREATE", "UPDATE"], "palisade.dev", "v1alpha1", &["apparmorprofiles"]);
        webhooks.push(make("policies", policy, &[policies, profiles]));
    }
    webhooks.push(make("workloads", FailurePolicy::Ignore, &workloads));
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind.name(),
        "metadata": {
            "name": options.name,
            "labels": {"app.kubernetes.io/part-of": "palisade", "app.kubernetes.io/component": "webhook"},
        },
        "webhooks": webhooks,
    })
}

fn rule(operations: &[&str], group: &str, version: &str, resources: &[&str]) -> Value {
    let scope =
        if matches!(resources, ["namespaces" | "profilepolicies", ..]) { "Cluster" } else { "Namespaced" };
    json!({
        "operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": resources, "scope": scope,
    })
}

fn webhook(
    kind: Kind,
    part: &str,
    policy: FailurePolicy,
    rules: &[Value],
    options: &Registration,
    around: &Surroundings<'_>,
) -> Value {
    let mut excluded: Vec<&str> = vec![around.namespace];
    excluded.extend(options.excluded_namespaces.iter().map(String::as_str));
    excluded.sort_unstable();
    excluded.dedup();
    let mut webhook = json!({
        "name": format!("{}.{part}.palisade.dev", kind.prefix()),
        "admissionReviewVersions": ["v1"],
        "clientConfig": client_config(kind, options, around.trust),
        "failurePolicy": policy.as_str(),
        "matchPolicy": "Equivalent",
        "namespaceSelector": {
            "matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": excluded}],
        },
        "rules": rules,
        "sideEffects": "None",
        "timeoutSeconds": options.timeout_seconds,
    });
    if kind == Kind::Mutating {
        webhook["reinvocationPolicy"] = "IfNeeded".into();
    }
    if around.minor >= MATCH_CONDITIONS {
        webhook["matchConditions"] = match_conditions(kind, part, options).into();
    }
    webhook
}

fn client_config(kind: Kind, options: &Registration, trust: &Trust) -> Value {
    let mut config = match &options.endpoint {
        Endpoint::Url(url) => json!({"url": format!("{}{}", url.trim_end_matches('/'), kind.path())}),
        Endpoint::Service { namespace, name, port } => {
            json!({"service": {"namespace": namespace, "name": name, "port": port, "path": kind.path()}})
        }
    };
    let bundle = trust.bundle();
    if !bundle.is_empty() {
        config["caBundle"] = BASE64_STANDARD.encode(bundle).into();
    }
    config
}

/// Whether an object has every wanted field; it may have more, such as defaults.
#[must_use]
pub fn has_fields(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| has_fields(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            let named = |value: &Value| value.get("name").is_some();
            if !wanted.is_empty() && wanted.iter().all(named) {
                return wanted.iter().all(|value| {
                    live.iter().any(|live| live.get("name") == value.get("name") && has_fields(live, value))
                });
            }
            live.len() == wanted.len()
                && live.iter().zip(wanted).all(|(live, wanted)| has_fields(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}
