//! Which webhooks are registered: stored configurations, read once into what a call needs.

use std::sync::Arc;
use std::time::Duration;

use palisade_apimachinery::rest::path::Get as _;
use palisade_base::label_selector::LabelSelector;
use serde_json::Value;

use super::client::{Clients, Endpoint};
use super::conditions::Conditions;
use super::matching::Rule;
use crate::storage::Object;

/// One webhook.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The configuration it is part of.
    pub(crate) configuration: String,
    /// Its name.
    pub(crate) name: String,
    /// The requests it is called for.
    pub(crate) rules: Vec<Rule>,
    /// Only in namespaces with these labels.
    pub(crate) namespaces: LabelSelector,
    /// Only objects with these labels.
    pub(crate) objects: LabelSelector,
    /// Only if these expressions are true.
    pub(crate) conditions: Conditions,
    /// Other versions of a resource count as well.
    pub(crate) equivalent: bool,
    /// A call that fails is as good as a yes.
    pub(crate) ignores_failure: bool,
    /// It may be called for a dry run.
    pub(crate) dry_runs: bool,
    /// Whether it is called again when others changed the object after it.
    pub(crate) reinvoked: bool,
    /// How long it may take.
    pub(crate) timeout: Duration,
    /// The version of `AdmissionReview` it accepts.
    pub(crate) review_version: &'static str,
    /// Where it is.
    pub(crate) endpoint: Arc<Endpoint>,
}

/// The webhooks of a stored configuration.
pub(super) fn hooks(object: &Object, mutating: bool, clients: &Clients) -> Vec<Hook> {
    let configuration = Value::Object(object.parse());
    configuration
        .list("webhooks")
        .iter()
        .map(|webhook| hook(object.name(), webhook, mutating, clients))
        .collect()
}

fn hook(configuration: &str, webhook: &Value, mutating: bool, clients: &Clients) -> Hook {
    let selector = |key: &str| webhook.child(key).map(LabelSelector::from_object).unwrap_or_default();
    let seconds = webhook.int("timeoutSeconds").and_then(|s| u64::try_from(s).ok()).unwrap_or(10);
    // Upstream takes the first version of the list that it supports.
    let versions = webhook.list("admissionReviewVersions").iter().filter_map(Value::as_str);
    let known = versions.into_iter().find(|v| matches!(*v, "v1" | "v1beta1"));
    Hook {
        configuration: configuration.to_owned(),
        name: webhook.text("name").to_owned(),
        rules: webhook.list("rules").iter().map(Rule::read).collect(),
        namespaces: selector("namespaceSelector"),
        objects: selector("objectSelector"),
        conditions: Conditions::read(webhook.list("matchConditions")),
        equivalent: webhook.text("matchPolicy") != "Exact",
        ignores_failure: webhook.text("failurePolicy") == "Ignore",
        dry_runs: matches!(webhook.text("sideEffects"), "None" | "NoneOnDryRun"),
        reinvoked: mutating && webhook.text("reinvocationPolicy") == "IfNeeded",
        timeout: Duration::from_secs(seconds),
        review_version: if known == Some("v1beta1") { "v1beta1" } else { "v1" },
        endpoint: clients.endpoint(webhook.get("clientConfig").unwrap_or(&Value::Null)),
    }
}
