//! `palisade uninstall`: removes what `palisade install` made, in an order in which nothing waits for a webhook that is gone.
//!
//! The registration goes first: it is marked, so that a running webhook does not make it again; then the webhook loses its
//! permissions, so that one that restarts cannot; then it is deleted. Everything may be there, or part of it, or nothing.

use std::{collections::BTreeSet, fmt::Write as _};

use clap::Args;
use palisade_base::version::NEWEST_MINOR;
use palisade_controllers::reports::kind::ReportKind;
use palisade_webhook::registration::objects::{Kind, UNINSTALLING};
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, ClusterArgs},
    commands::install::Component,
    failure::{Exit, Failure},
    install::{
        Parts, default_values, manifests,
        template::{COORDINATION, Choices},
    },
    service,
    terminal::Terminal,
};

/// `palisade uninstall`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct UninstallArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Namespace that Palisade is installed in
    #[arg(long, short, value_name = "NAMESPACE", default_value = COORDINATION)]
    pub namespace: String,
    /// Components: webhook, controller, node, crds [default: the first three]
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',', hide_possible_values = true)]
    pub components: Vec<Component>,
    /// Name of both webhook configurations
    #[arg(long, value_name = "NAME", default_value = "palisade")]
    pub name: String,
    /// Remove the webhook configurations only, and the webhook's permission to create them
    #[arg(long, conflicts_with = "components")]
    pub registration_only: bool,
    /// Print what would be deleted
    #[arg(long)]
    pub dry_run: bool,
}

const AFTER_HELP: &str = "\
The CRDs and their objects (ProfilePolicy, PublishedProfile, NodeSecurityReport, SyscallGuard, ProfileRecording, AppArmorProfile) stay unless you add crds to --components.
Objects without Palisade's labels stay. A webhook outside of the cluster stops to register itself; stop it yourself.

Exit status: 0 removed, 2 wrong usage, 3 could not complete.";

/// An object to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    /// When: in ascending order.
    rank: u8,
    /// As kubectl prints it.
    shown: String,
    path: String,
    /// Whether it must have one of our labels.
    labelled: bool,
}

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Group and version, resource, and rank of the kinds that `install` prints.
fn resource(kind: &str) -> Option<(&'static str, u8)> {
    Some(match kind {
        "ValidatingAdmissionPolicyBinding" => ("validatingadmissionpolicybindings", 2),
        "ValidatingAdmissionPolicy" => ("validatingadmissionpolicies", 3),
        "Deployment" => ("deployments", 4),
        "DaemonSet" => ("daemonsets", 4),
        "PodDisruptionBudget" => ("poddisruptionbudgets", 5),
        "NetworkPolicy" => ("networkpolicies", 5),
        "Service" => ("services", 5),
        "ClusterRoleBinding" => ("clusterrolebindings", 6),
        "RoleBinding" => ("rolebindings", 6),
        "ClusterRole" => ("clusterroles", 7),
        "Role" => ("roles", 7),
        "ServiceAccount" => ("serviceaccounts", 8),
        "ResourceQuota" => ("resourcequotas", 8),
        "ConfigMap" => ("configmaps", 8),
        "PodMonitor" => ("podmonitors", 5),
        "PrometheusRule" => ("prometheusrules", 5),
        "CustomResourceDefinition" => ("customresourcedefinitions", 9),
        "Namespace" => ("namespaces", 10),
        _ => return None,
    })
}

fn target(object: &Value) -> Option<Target> {
    let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (api_version, kind, name) = (word("/apiVersion")?, word("/kind")?, word("/metadata/name")?);
    let (plural, rank) = resource(kind)?;
    let base = if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    };
    let place =
        word("/metadata/namespace").map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
    let group = api_version.split_once('/').map_or_else(String::new, |(group, _)| format!(".{group}"));
    let shown = format!("{}{group}/{name}", kind.to_lowercase());
    Some(Target { rank, shown, path: format!("{base}{place}/{plural}/{name}"), labelled: true })
}

fn registration(kind: Kind, name: &str) -> Target {
    let shown = format!("{}.admissionregistration.k8s.io/{name}", kind.name().to_lowercase());
    Target { rank: 1, shown, path: format!("{REGISTRATION}/{}/{name}", kind.plural()), labelled: false }
}

/// Everything to delete, in order.
fn plan(args: &UninstallArgs) -> Result<Vec<Target>, Failure> {
    let chosen: BTreeSet<Component> = if args.components.is_empty() {
        [Component::Webhook, Component::Controller, Component::Node].into()
    } else {
        args.components.iter().copied().collect()
    };
    if chosen.contains(&Component::Constraints) {
        return Err(Failure::input(
            "security context constraints are not removed: workloads may depend on them",
        ));
    }
    let with_webhook = args.registration_only || chosen.contains(&Component::Webhook);
    let mut values = default_values();
    // Whatever was chosen when it was installed.
    values["rollout"]["enabled"] = true.into();
    values["monitoring"]["enabled"] = true.into();
    values["webhook"]["failFast"] = "warn".into();
    values["webhook"]["networkPolicy"]["from"] = json!([{}]);
    values["featureGates"]["SeccompConfigMaps"] = true.into();
    for (name, component) in
        [("webhook", Component::Webhook), ("controller", Component::Controller), ("node", Component::Node)]
    {
        values[name]["enabled"] = (chosen.contains(&component) || args.registration_only).into();
    }
    let all = [Component::Webhook, Component::Controller, Component::Node];
    let whole = all.iter().all(|component| chosen.contains(component));
    values["namespace"]["create"] = whole.into();
    let choices =
        Choices { values, namespace: args.namespace.clone(), image: String::new(), minor: NEWEST_MINOR };
    let parts = Parts {
        crds: chosen.contains(&Component::Crds),
        components: all.iter().any(|component| chosen.contains(component)),
        constraints: false,
    };
    let text = manifests(&choices, parts);
    let mut targets = Vec::new();
    for document in &parse(&text, &Limits::default()).documents {
        let object = document.root().to_json().map_err(|error| Failure::incomplete(error.to_string()))?;
        let Some(mut found) = target(&object) else { continue };
        let is_grant = found.path.ends_with("/clusterrolebindings/palisade-webhook");
        if is_grant {
            found.rank = 0;
        }
        // A part of an installation leaves what the other parts use.
        let shared = matches!(object["kind"].as_str(), Some("Namespace" | "ResourceQuota"));
        if if args.registration_only { is_grant } else { whole || !shared } {
            targets.push(found);
        }
    }
    if with_webhook {
        targets.extend(Kind::ALL.map(|kind| registration(kind, &args.name)));
    }
    if with_webhook && !args.registration_only {
        let secret = "palisade-webhook-certificates";
        targets.push(Target {
            rank: 8,
            shown: format!("secret/{secret}"),
            path: format!("/api/v1/namespaces/{}/secrets/{secret}", args.namespace),
            labelled: true,
        });
    }
    targets.sort_by_key(|target| target.rank);
    targets.dedup();
    Ok(targets)
}

/// Whether Palisade made it, by its labels.
fn is_ours(object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    labels["app.kubernetes.io/name"] == "palisade" || labels["app.kubernetes.io/part-of"] == "palisade"
}

/// Removes it all.
pub fn run(args: &UninstallArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let targets = plan(args)?;
    let (lines, kept) = service::block_on(remove(args, &targets))?;
    terminal.print(lines)?;
    for shown in &kept {
        terminal.report(format!("{shown} kept: it does not have Palisade's labels"));
    }
    Ok(Exit::Clean)
}

async fn remove(args: &UninstallArgs, targets: &[Target]) -> Result<(String, Vec<String>), Failure> {
    let cluster = args.cluster.connect().await?;
    let (mut lines, mut kept) = (String::new(), Vec::new());
    if !args.dry_run && targets.iter().any(|target| target.rank == 1) {
        mark(&cluster, &args.name).await?;
    }
    for target in targets {
        let Some(found) = cluster.send("GET", &target.path, None).await? else { continue };
        if target.labelled && !is_ours(&found) {
            kept.push(target.shown.clone());
            continue;
        }
        if args.dry_run {
            let _ = writeln!(lines, "{} would be deleted", target.shown);
        } else if cluster.send("DELETE", &target.path, None).await?.is_some() {
            let _ = writeln!(lines, "{} deleted", target.shown);
        }
    }
    let with_controller = args.components.is_empty() || args.components.contains(&Component::Controller);
    if with_controller && !args.registration_only {
        for kind in [ReportKind::OpenReports, ReportKind::PolicyReport] {
            remove_reports(&cluster, kind, args.dry_run, &mut lines).await?;
        }
    }
    // A replica may have written the registration after it was marked and before it lost the permission.
    for target in targets.iter().filter(|target| target.rank == 1 && !args.dry_run) {
        if cluster.send("GET", &target.path, None).await?.is_some() {
            mark(&cluster, &args.name).await?;
            cluster.send("DELETE", &target.path, None).await?;
        }
    }
    Ok((lines, kept))
}

/// Removes the reports of all namespaces: nothing would keep them up to date.
async fn remove_reports(
    cluster: &Cluster,
    kind: ReportKind,
    dry_run: bool,
    lines: &mut String,
) -> Result<(), Failure> {
    let selector = "labelSelector=app.kubernetes.io/name%3Dpalisade,app.kubernetes.io/managed-by%3Dpalisade";
    let all = kind.resource().collection(None);
    let (mut token, mut count) = (String::new(), 0);
    loop {
        let page = format!("{all}?{selector}&limit=50&continue={token}");
        let Some(list) = cluster.send("GET", &page, None).await? else { break };
        for report in list["items"].as_array().into_iter().flatten() {
            let word = |field: &str| report["metadata"][field].as_str().unwrap_or_default();
            let path = kind.resource().object(Some(word("namespace")), word("name"));
            if dry_run || cluster.send("DELETE", &path, None).await?.is_some() {
                count += 1;
            }
        }
        list["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
        if token.is_empty() {
            break;
        }
    }
    if count > 0 {
        let done = if dry_run { "would be deleted" } else { "deleted" };
        let _ = writeln!(lines, "{count} {}.{} {done}", kind.resource().plural, kind.resource().group);
    }
    Ok(())
}

/// Marks the registration, so that running replicas leave it alone from now on.
async fn mark(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let patch = json!({"metadata": {"annotations": {UNINSTALLING: "true"}}});
    for kind in Kind::ALL {
        cluster.send("PATCH", &registration(kind, name).path, Some(&patch)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{UninstallArgs, plan};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: UninstallArgs,
    }

    fn shown(line: &str) -> Vec<String> {
        let words = std::iter::once("uninstall").chain(line.split_whitespace());
        let targets = plan(&Line::try_parse_from(words).unwrap().args).unwrap();
        targets.into_iter().map(|target| target.shown).collect()
    }

    #[test]
    fn the_registration_goes_before_the_webhook_and_the_namespace_last() {
        let all = shown("");
        let at = |name: &str| {
            all.iter().position(|shown| shown == name).unwrap_or_else(|| panic!("{name}: {all:#?}"))
        };
        let order = [
            "clusterrolebinding.rbac.authorization.k8s.io/palisade-webhook",
            "mutatingwebhookconfiguration.admissionregistration.k8s.io/palisade",
            "validatingwebhookconfiguration.admissionregistration.k8s.io/palisade",
            "deployment.apps/palisade-webhook",
            "service/palisade-webhook",
            "clusterrole.rbac.authorization.k8s.io/palisade-webhook",
            "namespace/palisade-system",
        ];
        assert!(order.map(at).is_sorted(), "{all:#?}");
        assert!(all.iter().all(|shown| !shown.starts_with("customresourcedefinition")), "{all:#?}");
        assert!(
            shown("--components webhook,controller,node,crds")
                .iter()
                .any(|shown| shown.starts_with("custom"))
        );
    }

    #[test]
    fn a_part_leaves_what_other_parts_use() {
        let node = shown("--components node");
        assert!(node.iter().any(|shown| shown == "daemonset.apps/palisade-node"), "{node:?}");
        for kept in [
            "namespace/palisade-system",
            "deployment.apps/palisade-webhook",
            "resourcequota/palisade-critical-pods",
        ] {
            assert!(!node.iter().any(|shown| shown == kept), "{kept}");
        }
        assert_eq!(
            shown("--registration-only"),
            [
                "clusterrolebinding.rbac.authorization.k8s.io/palisade-webhook",
                "mutatingwebhookconfiguration.admissionregistration.k8s.io/palisade",
                "validatingwebhookconfiguration.admissionregistration.k8s.io/palisade"
            ]
        );
        assert!(shown("-n guard").iter().any(|shown| shown == "namespace/guard"));
    }
}
