//! `palisade export`: the standards as policies that an API server evaluates itself.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use palisade_model::compat::Compat;
use palisade_policy::standards::{
    level::{Level, LevelVersion, Version},
    policies::PolicyExport,
};
use palisade_yaml::to_yaml;
use serde_json::{Map, Value, json};

use crate::{
    args::{ApiVersion, ValueError, policy_version},
    exceptions,
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// Subcommands of `palisade export`.
#[derive(Debug, Subcommand)]
pub enum ExportCommand {
    /// Print the standards as ValidatingAdmissionPolicies: admission without a webhook
    Policies(PoliciesArgs),
}

/// `palisade export policies`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct PoliciesArgs {
    /// Level of the Pod Security Standards: baseline or restricted; with --follow-labels, of namespaces without labels
    #[arg(
        long,
        value_name = "LEVEL",
        required_unless_present = "follow_labels",
        default_value_if("follow_labels", "true", "privileged")
    )]
    pub level: Option<Level>,
    /// Version of the standards: latest, or v1.0 to v1.37
    #[arg(long, value_name = "VERSION", default_value = "latest", value_parser = policy_version)]
    pub policy_version: Version,
    /// Release of the API server: v1.30 to v1.37 [default: v1.37]
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<ApiVersion>,
    /// Let the pod-security.kubernetes.io labels of a namespace decide about its levels and versions
    #[arg(long)]
    pub follow_labels: bool,
    /// Namespaces to judge, by their labels: key=value, key!=value, key, !key
    #[arg(long, value_name = "LABELS", value_parser = selector)]
    pub namespace_selector: Option<Value>,
    /// Namespaces that are never judged
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "kube-system")]
    pub exempt_namespaces: Vec<String>,
    /// Users whose requests are never judged
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub exempt_users: Vec<String>,
    /// Runtime classes whose pods are never judged
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub exempt_runtime_classes: Vec<String>,
    /// Add a MutatingAdmissionPolicy that sets what level restricted requires where a new pod has no value
    #[arg(long)]
    pub defaults: bool,
    /// File or folder with SecurityExceptions that apply to new pods and workloads, until they end; may be repeated
    #[arg(long, value_name = "PATH")]
    pub exceptions: Vec<PathBuf>,
    /// Write the policies as files that the API server loads when it starts, and print its configuration
    #[arg(long, value_name = "DIR")]
    pub static_manifests: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
    palisade export policies --level baseline --policy-version v1.35 | kubectl apply -f -

The API server rejects pods by itself, and warns about workloads whose pods it would reject.";

/// Runs the command.
pub fn run(command: &ExportCommand, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let ExportCommand::Policies(args) = command;
    let objects = args.export()?.objects().map_err(Failure::input)?;
    match &args.static_manifests {
        Some(folder) => terminal.print(write_files(folder, &objects)?)?,
        None => terminal.print(documents(&objects))?,
    }
    Ok(Exit::Clean)
}

impl PoliciesArgs {
    fn export(&self) -> Result<PolicyExport, Failure> {
        let ApiVersion(compat) = self.kubernetes_version.unwrap_or_default();
        if compat != Compat::kubernetes(compat.api_minor()) {
            return Err(Failure::input("--kubernetes-version: policies are for releases of Kubernetes"));
        }
        let policy = LevelVersion::new(self.level.unwrap_or(Level::Privileged), self.policy_version);
        Ok(PolicyExport {
            follows_labels: self.follow_labels,
            namespace_selector: self.namespace_selector.clone(),
            exempt_namespaces: names(&self.exempt_namespaces),
            exempt_users: names(&self.exempt_users),
            exempt_runtime_classes: names(&self.exempt_runtime_classes),
            defaults: self.defaults,
            is_static: self.static_manifests.is_some(),
            exceptions: exceptions::of_paths(&self.exceptions)?.set().readable().to_vec(),
            ..PolicyExport::new(policy, compat.api_minor())
        })
    }
}

/// An empty name is how a list with a default is made empty.
fn names(given: &[String]) -> Vec<String> {
    given.iter().filter(|name| !name.is_empty()).cloned().collect()
}

/// The label selector of a list of requirements, as `kubectl get -l` takes them.
fn selector(text: &str) -> Result<Value, ValueError> {
    const FORM: ValueError =
        ValueError::Form("write it as key=value, key!=value, key or !key, separated by commas");
    let mut labels = Map::new();
    let mut expressions = Vec::new();
    for requirement in text.split(',').map(str::trim) {
        let (key, operator, value) = if let Some((key, value)) = requirement.split_once("!=") {
            (key, "NotIn", Some(value))
        } else if let Some((key, value)) = requirement.split_once('=') {
            (key, "In", Some(value.strip_prefix('=').unwrap_or(value)))
        } else if let Some(key) = requirement.strip_prefix('!') {
            (key, "DoesNotExist", None)
        } else {
            (requirement, "Exists", None)
        };
        let (key, value) = (key.trim(), value.map(str::trim));
        let is_part = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        let is_key = !key.is_empty()
            && key.split('/').count() <= 2
            && key.split('/').all(|part| !part.is_empty() && is_part(part));
        if !is_key || value.is_some_and(|value| !is_part(value) || value.len() > 63) {
            return Err(FORM);
        }
        match (operator, value) {
            // A key can be required once in this form.
            ("In", Some(value)) if !labels.contains_key(key) => {
                labels.insert(key.to_owned(), json!(value));
            }
            (operator, Some(value)) => {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
            (operator, None) => expressions.push(json!({"key": key, "operator": operator})),
        }
    }
    let mut selector = Map::new();
    if !labels.is_empty() {
        selector.insert("matchLabels".to_owned(), Value::Object(labels));
    }
    if !expressions.is_empty() {
        selector.insert("matchExpressions".to_owned(), Value::Array(expressions));
    }
    Ok(Value::Object(selector))
}

fn documents(objects: &[Value]) -> String {
    objects.iter().map(|object| to_yaml(object, 0)).collect::<Vec<_>>().join("---\n")
}

/// Writes one file for each admission plugin, which accepts only its own kinds, and returns the configuration that names the
/// folders.
fn write_files(folder: &Path, objects: &[Value]) -> Result<String, Failure> {
    let folder = std::path::absolute(folder).map_err(|error| Failure::file(folder, error))?;
    let mut plugins = Vec::new();
    for plugin in ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"] {
        let own = |object: &&Value| object["kind"].as_str().is_some_and(|kind| kind.starts_with(plugin));
        let own: Vec<Value> = objects.iter().filter(own).cloned().collect();
        if own.is_empty() {
            continue;
        }
        let own_folder = folder.join(if plugin.starts_with('V') { "validating" } else { "mutating" });
        let file = own_folder.join("pod-security.yaml");
        fs::create_dir_all(&own_folder).map_err(|error| Failure::file(&own_folder, error))?;
        write_atomically(&own_folder, &file, &documents(&own))
            .map_err(|error| Failure::file(&file, error))?;
        plugins.push(json!({
            "name": plugin,
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": format!("{plugin}Configuration"),
                "staticManifestsDir": own_folder.to_string_lossy(),
            },
        }));
    }
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": plugins,
    });
    Ok(to_yaml(&configuration, 0))
}

/// An API server that reads the folder at the same time sees the old file or the new one.
pub(super) fn write_atomically(folder: &Path, file: &Path, text: &str) -> std::io::Result<()> {
    use std::{io::Write as _, os::unix::fs::PermissionsExt as _};
    let mut temporary = tempfile::Builder::new().prefix(".palisade-").tempfile_in(folder)?;
    temporary.write_all(text.as_bytes())?;
    temporary.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    temporary.as_file().sync_all()?;
    temporary.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_label_selectors() {
        for (text, expected) in [
            ("team=a", Some(json!({"matchLabels": {"team": "a"}}))),
            (
                "team==a, !x, k8s.io/y",
                Some(json!({"matchLabels": {"team": "a"}, "matchExpressions": [
                    {"key": "x", "operator": "DoesNotExist"}, {"key": "k8s.io/y", "operator": "Exists"}]})),
            ),
            ("a!=b", Some(json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}))),
            (
                "a=b,a=c",
                Some(json!({"matchLabels": {"a": "b"}, "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["c"]}]})),
            ),
            ("", None),
            ("a in (b)", None),
            ("a/b/c=d", None),
        ] {
            assert_eq!(selector(text).ok(), expected, "{text:?}");
        }
    }
}
