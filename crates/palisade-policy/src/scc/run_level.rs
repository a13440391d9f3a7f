//! Namespaces that OpenShift's own admission plugins keep away from.
//!
//! Implements: the namespace conditions of OpenShift's API server: what has to run before admission itself does not go
//! through it, and the user gets a warning.

use palisade_base::go::Quoted;
use palisade_model::metadata::StringMap;

/// The plugin that chooses constraints.
pub const PLUGIN: &str = "security.openshift.io/SecurityContextConstraint";

/// Label of a namespace: how early in the start of a cluster its pods are needed.
pub const RUN_LEVEL: &str = "openshift.io/run-level";

const NAMES: [&str; 6] =
    ["default", "kube-system", "kube-public", "openshift-node", "openshift-infra", "openshift"];
const SELECTOR: &str = "openshift.io/run-level in (0,1)";

/// The warning with which a plugin is skipped in a namespace; `None` if it is not.
#[must_use]
pub fn skip_warning(plugin: &str, namespace: &str, labels: &StringMap<'_>) -> Option<String> {
    let plugin = Quoted(plugin);
    if NAMES.contains(&namespace) {
        let namespace = Quoted(namespace);
        return Some(format!("Admission plugin {plugin} skipped due to request namespace {namespace}."));
    }
    matches!(labels.get(RUN_LEVEL), Some("0" | "1")).then(|| {
        let selector = Quoted(SELECTOR);
        format!("Admission plugin {plugin} skipped because namespace labels match the selector {selector}.")
    })
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;

    use super::{PLUGIN, skip_warning};

    #[test]
    fn early_namespaces_are_skipped_with_a_word() {
        let labels = |text: &'static str| serde_json::from_str::<StringMap<'_>>(text).unwrap();
        assert_eq!(
            skip_warning(PLUGIN, "kube-system", &labels("{}")).as_deref(),
            Some(
                "Admission plugin \"security.openshift.io/SecurityContextConstraint\" skipped due to request \
                 namespace \"kube-system\"."
            )
        );
        assert!(skip_warning(PLUGIN, "x", &labels(r#"{"openshift.io/run-level":"1"}"#)).is_some());
        assert_eq!(skip_warning(PLUGIN, "x", &labels(r#"{"openshift.io/run-level":"9"}"#)), None);
        assert_eq!(skip_warning(PLUGIN, "kube-node-lease", &labels("{}")), None);
    }
}
