//! `auth/bootstrap.txt`: the roles and bindings that every cluster starts with.
//!
//! Made from the YAML that upstream's own tests compare its default policy with.

use std::fmt::Write as _;

use palisade_yaml::{Limits, parse};
use serde_json::Value;

use super::source::Release;
use crate::Failure;

const FOLDER: &str = "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata";
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

const HEADER: &str = "\
# Upstream's default roles and bindings, one rule a line: verbs, API groups (\"core\" is the core group) or \"url\",
# resources or paths, and after a colon the names of objects.
# aggregate=X is part of every role with union=X. A controller is a cluster role system:controller:<name>, bound to the
# service account of that name. Service accounts are those of kube-system.
#
";

/// The table of one release.
pub(crate) fn table(release: &Release) -> Result<String, Failure> {
    let mut text = format!(
        "{HEADER}# Made by `cargo xtask gen --kubernetes DIR` from {FOLDER}\n# of Kubernetes v1.{} (Apache-2.0); do not edit.\n",
        release.minor
    );
    for role in items(release, "cluster-roles")? {
        let mut labels = role["metadata"]["labels"].as_object().into_iter().flatten();
        let aggregate = labels.find_map(|(key, _)| key.strip_prefix(AGGREGATE));
        let union = role["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"].as_object();
        let union = union.into_iter().flatten().find_map(|(key, _)| key.strip_prefix(AGGREGATE));
        let _ = write!(text, "clusterrole {}", name(&role));
        let options = [("aggregate", aggregate), ("union", union)];
        for (key, value) in options.iter().filter_map(|(key, value)| Some((key, (*value)?))) {
            let _ = write!(text, " {key}={value}");
        }
        text.push('\n');
        rules(&mut text, &role)?;
    }
    let bindings = items(release, "controller-role-bindings")?;
    for role in items(release, "controller-roles")? {
        let controller = name(&role).strip_prefix("system:controller:").unwrap_or_default();
        let bound = bindings.iter().any(|binding| {
            name(binding) == name(&role)
                && subjects(binding).is_ok_and(|text| text == format!(" ServiceAccount/{controller}"))
        });
        if !bound {
            return Err(Failure(format!("{} is not bound to its service account alone", name(&role))));
        }
        let _ = writeln!(text, "controller {controller}");
        rules(&mut text, &role)?;
    }
    for role in items(release, "namespace-roles")? {
        let _ = writeln!(text, "role {} {}", namespace(&role), name(&role));
        rules(&mut text, &role)?;
    }
    for binding in items(release, "cluster-role-bindings")? {
        let _ = writeln!(
            text,
            "clusterrolebinding {} {}{}",
            name(&binding),
            word(&binding["roleRef"]["name"]),
            subjects(&binding)?
        );
    }
    for binding in items(release, "namespace-role-bindings")? {
        let _ = writeln!(
            text,
            "rolebinding {} {} {}{}",
            namespace(&binding),
            name(&binding),
            word(&binding["roleRef"]["name"]),
            subjects(&binding)?
        );
    }
    Ok(text)
}

fn items(release: &Release, file: &str) -> Result<Vec<Value>, Failure> {
    let path = format!("{FOLDER}/{file}.yaml");
    let text = release.text(&path)?;
    let parsed = parse(&text, &Limits::default());
    if let Some(error) = parsed.errors.first() {
        return Err(Failure(format!("{path}: {error}")));
    }
    let mut all = Vec::new();
    for document in &parsed.documents {
        let mut list = document.root().to_json().map_err(|error| Failure(format!("{path}: {error}")))?;
        if let Value::Array(items) = list["items"].take() {
            all.extend(items);
        }
    }
    if all.is_empty() {
        return Err(Failure(format!("{path} has no items")));
    }
    Ok(all)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn name(object: &Value) -> &str {
    word(&object["metadata"]["name"])
}

fn namespace(object: &Value) -> &str {
    word(&object["metadata"]["namespace"])
}

/// Each subject after a space or comma; empty if there is none.
fn subjects(binding: &Value) -> Result<String, Failure> {
    let mut text = String::new();
    for subject in binding["subjects"].as_array().into_iter().flatten() {
        let (kind, namespace) = (word(&subject["kind"]), word(&subject["namespace"]));
        if kind == "ServiceAccount" && namespace != "kube-system" {
            return Err(Failure(format!("{}: a service account of namespace {namespace:?}", name(binding))));
        }
        let separator = if text.is_empty() { ' ' } else { ',' };
        let _ = write!(text, "{separator}{kind}/{}", word(&subject["name"]));
    }
    Ok(text)
}

fn rules(text: &mut String, role: &Value) -> Result<(), Failure> {
    for rule in role["rules"].as_array().into_iter().flatten() {
        let words =
            |key: &str| -> Vec<&str> { rule[key].as_array().into_iter().flatten().map(word).collect() };
        let groups: Vec<&str> = words("apiGroups")
            .into_iter()
            .map(|group| if group.is_empty() { "core" } else { group })
            .collect();
        let (paths, resources, names) =
            (words("nonResourceURLs"), words("resources"), words("resourceNames"));
        let _ = match (paths.as_slice(), names.as_slice()) {
            ([], []) => writeln!(
                text,
                "  {} | {} | {}",
                words("verbs").join(" "),
                groups.join(","),
                resources.join(" ")
            ),
            ([], names) => writeln!(
                text,
                "  {} | {} | {} : {}",
                words("verbs").join(" "),
                groups.join(","),
                resources.join(" "),
                names.join(" ")
            ),
            (paths, []) if resources.is_empty() => {
                writeln!(text, "  {} | url | {}", words("verbs").join(" "), paths.join(" "))
            }
            _ => return Err(Failure(format!("{} has a rule of resources and paths", name(role)))),
        };
    }
    Ok(())
}
