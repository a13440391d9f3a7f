//! What an installation consists of: the same templates make plain manifests and the Helm chart.
//!
//! Leaves to others: what each component does with its rights. The tests compare every rule with the calls that are made.

pub mod template;

use std::fmt::Write as _;

use palisade_policy::{
    resources::{DEFINITIONS, Definition},
    scc::built_in,
};
use palisade_yaml::{Limits, parse, to_yaml};
use serde_json::{Value, json};

use self::template::{Choices, Target, render};

/// The chart's defaults. A link leads to them, so that they are in the package as well.
pub const VALUES: &str = include_str!("../../manifests/values.yaml");

/// The templates, in the order in which their objects are applied.
pub const TEMPLATES: &[(&str, &str)] = &[
    ("namespace.yaml", include_str!("../../manifests/namespace.yaml")),
    ("webhook.yaml", include_str!("../../manifests/webhook.yaml")),
    ("controller.yaml", include_str!("../../manifests/controller.yaml")),
    ("node.yaml", include_str!("../../manifests/node.yaml")),
    ("monitoring.yaml", include_str!("../../manifests/monitoring.yaml")),
];

/// Templates of the chart alone: what `palisade uninstall` does for plain manifests, Helm does in a hook.
const CHART_ONLY: &[(&str, &str)] = &[("uninstall.yaml", include_str!("../../manifests/uninstall.yaml"))];

/// The chart's defaults, as a value.
#[must_use]
pub fn default_values() -> Value {
    let parsed = parse(VALUES, &Limits::default());
    parsed.documents.first().and_then(|document| document.root().to_json().ok()).unwrap_or_default()
}

/// Kinds that the rollout alone uses.
const OF_ROLLOUT: &[&str] =
    &["podsecurityrollouts.palisade.dev", "psaenforcementconfigs.config.openshift.io"];

/// The group of values whose `enabled` a kind depends on; `None`: it is always installed.
fn needed_by(definition: &Definition) -> Option<&'static str> {
    if definition.of_openshift {
        Some("constraints")
    } else {
        OF_ROLLOUT.contains(&definition.name).then_some("rollout")
    }
}

/// The kinds that are installed.
fn definitions(values: &Value) -> impl Iterator<Item = &'static Definition> {
    let is_needed =
        |definition: &&Definition| needed_by(definition).is_none_or(|group| values[group]["enabled"] == true);
    DEFINITIONS.iter().filter(is_needed)
}

fn definition_text(definition: &Definition, extra: &Value) -> String {
    let mut object: Value = serde_json::from_str(definition.text).unwrap_or_default();
    object["metadata"]["labels"] =
        json!({"app.kubernetes.io/name": "palisade", "app.kubernetes.io/managed-by": "palisade"});
    if !extra.is_null() {
        object["metadata"]["annotations"] = extra.clone();
    }
    to_yaml(&object, 0)
}

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// The kinds.
    pub crds: bool,
    /// Namespace, roles and workloads.
    pub components: bool,
    /// The built-in constraints and who may use them.
    pub constraints: bool,
}

/// Manifests for `kubectl apply`.
#[must_use]
pub fn manifests(choices: &Choices, parts: Parts) -> String {
    let mut documents: Vec<String> = Vec::new();
    let mut components = TEMPLATES.iter();
    if parts.components
        && let Some((_, text)) = components.next()
    {
        documents.push(render(text, Target::Manifests(choices)));
    }
    if parts.crds {
        documents
            .extend(definitions(&choices.values).map(|definition| definition_text(definition, &Value::Null)));
    }
    if parts.constraints {
        for mut object in built_in::objects().chain(built_in::grants()) {
            without_nulls(&mut object);
            documents.push(to_yaml(&object, 0));
        }
    }
    if parts.components {
        documents.extend(components.map(|(_, text)| render(text, Target::Manifests(choices))));
    }
    documents.retain(|text| !text.trim().is_empty());
    documents.iter().map(|text| text.trim_end_matches("---\n")).collect::<Vec<_>>().join("---\n")
}

/// kubectl leaves nulls out of what it sends, and a constraint must have these fields: they are written as what they mean.
fn without_nulls(object: &mut Value) {
    let Value::Object(fields) = object else { return };
    fields.retain(|name, value| {
        match name.as_str() {
            _ if !value.is_null() => return true,
            "priority" => *value = json!(0),
            "allowedCapabilities" | "defaultAddCapabilities" | "requiredDropCapabilities" | "volumes" => {
                *value = json!([]);
            }
            _ => return false,
        }
        true
    });
}

/// The files of the chart's `templates` folder, by name.
#[must_use]
pub fn chart_templates() -> Vec<(String, String)> {
    const MADE: &str = "{{- /* Made by `cargo xtask gen` from crates/palisade-cli/manifests. */ -}}\n";
    let mut files: Vec<(String, String)> = TEMPLATES
        .iter()
        .chain(CHART_ONLY)
        .map(|(name, text)| ((*name).to_owned(), format!("{MADE}{}", render(text, Target::Chart))))
        .collect();
    // A release that is uninstalled must not take every PublishedProfile with it.
    let keep = json!({"helm.sh/resource-policy": "keep"});
    let mut crds = format!("{MADE}{{{{- if .Values.crds.install }}}}\n");
    for definition in DEFINITIONS {
        let text = definition_text(definition, &keep);
        if let Some(group) = needed_by(definition) {
            let _ = writeln!(
                crds,
                "{{{{- if .Values.{group}.enabled }}}}
---"
            );
            crds.push_str(&text);
            crds.push_str("{{- end }}\n");
        } else {
            crds.push_str("---\n");
            crds.push_str(&text);
        }
    }
    crds.push_str("{{- end }}\n");
    files.push(("crds.yaml".to_owned(), crds));
    files
}
