//! Admission policies: CEL expressions by which the API server itself changes objects and judges them.
//!
//! Implements: Validating Admission Policy and Mutating Admission Policy, with upstream's error texts and order of things.
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>
//! <https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/>
//!
//! | module | job |
//! | --- | --- |
//! | `config` | stored policies and bindings, compiled once for each change of them |
//! | `evaluate` | which of them match a request, and what they decide |
//!
//! What the objects must look like is `palisade-apimachinery`'s. Types of expressions are not checked: a field that does not
//! exist is an error when the expression is evaluated.

mod config;
mod evaluate;

use std::sync::{Arc, RwLock};

use config::Policy;
pub(crate) use config::compile_errors;
pub(crate) use evaluate::Evaluation;

use crate::storage::{Bucket, Range, Store, read, write};

/// Upstream's name of the plugin that lets policies change objects.
pub const MUTATING: &str = "MutatingAdmissionPolicy";
/// Upstream's name of the plugin that lets policies judge objects.
pub const VALIDATING: &str = "ValidatingAdmissionPolicy";

/// The policies of one kind that have bindings, in the order they are evaluated.
pub(crate) type Policies = Arc<[Policy]>;

/// Every policy.
#[derive(Debug)]
pub struct AdmissionPolicies {
    mutating: Stored,
    validating: Stored,
}

impl AdmissionPolicies {
    /// The policies in a store, unless their plugins are disabled.
    #[must_use]
    pub fn new(store: &Store, disabled: &[String]) -> Self {
        let stored = |plugin: &str, kind: &str| Stored {
            enabled: !disabled.iter().any(|name| name == plugin),
            policies: store.bucket(&format!("{kind}admissionpolicies.admissionregistration.k8s.io")),
            bindings: store.bucket(&format!("{kind}admissionpolicybindings.admissionregistration.k8s.io")),
            current: RwLock::new((None, Vec::new().into())),
        };
        Self { mutating: stored(MUTATING, "mutating"), validating: stored(VALIDATING, "validating") }
    }

    pub(crate) fn mutating(&self) -> Policies {
        self.mutating.policies()
    }

    pub(crate) fn validating(&self) -> Policies {
        self.validating.policies()
    }
}

/// The policies and bindings of one kind, compiled once for each change of them.
#[derive(Debug)]
struct Stored {
    enabled: bool,
    policies: Arc<Bucket>,
    bindings: Arc<Bucket>,
    current: RwLock<(Option<(u64, u64)>, Policies)>,
}

impl Stored {
    fn policies(&self) -> Policies {
        if !self.enabled {
            return Vec::new().into();
        }
        let at = Some((self.policies.changed_at(), self.bindings.changed_at()));
        let (read_at, policies) = read(&self.current).clone();
        if read_at == at {
            return policies;
        }
        let bindings = self.bindings.list(&Range::All).objects;
        let policies = self.policies.list(&Range::All).objects;
        // Buckets are ordered by name, and so are upstream's policies.
        let compiled = policies.iter().map(|policy| config::policy(policy, &bindings));
        let policies: Policies = compiled.filter(|policy| !policy.bindings.is_empty()).collect();
        *write(&self.current) = (at, policies.clone());
        policies
    }
}
