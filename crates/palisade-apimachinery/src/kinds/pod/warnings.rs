//! Warnings about pods that are not about security.
//!
//! Implements: the general part of `pkg/api/pod/warnings.go`.

use serde_json::Value;

use crate::quantity::Quantity;
use crate::rest::path::Get;
use crate::version::KubeVersion;

/// Warnings on writing a pod; on update only if the spec changed.
pub(crate) fn of_pod(pod: &Value, old: Option<&Value>, version: KubeVersion) -> Vec<String> {
    if old.is_some_and(|old| old.get("spec") == pod.get("spec")) {
        return Vec::new();
    }
    let mut out = Vec::new();
    if let Some(spec) = pod.get("spec") {
        of_spec(spec, "spec", version, &mut out);
    }
    if pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0)
        && version.at_least(30)
    {
        out.push("spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1".into());
    }
    out
}

/// Warnings on writing something with a pod template.
pub(crate) fn of_template(template: Option<&Value>, path: &str, version: KubeVersion) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(spec) = template.and_then(|t| t.get("spec")) {
        of_spec(spec, &format!("{path}.spec"), version, &mut out);
    }
    out
}

fn of_spec(spec: &Value, path: &str, version: KubeVersion, out: &mut Vec<String>) {
    if !version.at_least(21) {
        return;
    }
    for key in spec.entries("nodeSelector").map(|(k, _)| k.as_str()) {
        if let Some(instead) = deprecated_label(key) {
            out.push(format!("{path}.nodeSelector[{key}]: {instead}"));
        }
    }
    for field in ["containers", "initContainers"] {
        for (i, container) in spec.list(field).iter().enumerate() {
            let mut seen: Vec<&str> = Vec::new();
            for (j, variable) in container.list("env").iter().enumerate() {
                let name = variable.text("name");
                if seen.contains(&name) {
                    out.push(format!(
                        "{path}.{field}[{i}].env[{j}]: hides previous definition of {}, which may be dropped when \
                         using apply",
                        crate::go::quote(name)
                    ));
                }
                seen.push(name);
            }
            for kind in ["limits", "requests"] {
                let fractional = ["memory", "ephemeral-storage"].into_iter().filter_map(|name| {
                    let text = container.get("resources")?.get(kind)?.get(name)?.as_str()?;
                    let quantity = Quantity::parse(text).ok()?;
                    (!quantity.is_multiple_of(0)).then_some((name, quantity))
                });
                for (name, quantity) in fractional {
                    out.push(format!(
                        "{path}.{field}[{i}].resources.{kind}[{name}]: fractional byte value {} is invalid, must be an \
                         integer",
                        crate::go::quote(&quantity.to_string())
                    ));
                }
            }
        }
    }
}

fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}
