//! Every call that the webhook makes to the API server: what its role must grant, and no more.
//!
//! The tests compare this list with the calls they see.

use palisade_base::causes::root_cause;

/// The field manager of the webhook.
pub const MANAGER: &str = "palisade-webhook";

/// An error of the API server, or of the way to it, in one line without what libraries put around it.
#[must_use]
pub fn in_words(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        _ => root_cause(error).to_string(),
    };
    // In one line, wherever it is written.
    text.replace('\n', " ")
}

/// Where a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Cluster-scoped, or in every namespace.
    Cluster,
    /// In the namespace of the webhook, or of the global configuration.
    Own,
}

/// When a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Always.
    Always,
    /// With `--register`.
    Registering,
    /// Unless the certificate comes from files.
    ManagingCertificates,
    /// With `--admission-config-map`, or without any configuration.
    ConfigurationInConfigMap,
    /// With `--security-context-constraints`.
    Constraints,
    /// With `--fail-fast`.
    FailFast,
    /// With `--feature-gates=SeccompConfigMaps=true`.
    ConfigMapProfiles,
}

/// Verbs on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// API group; empty for core.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// Where.
    pub scope: Scope,
    /// When.
    pub when: When,
    /// What for.
    pub why: &'static str,
}

const fn call(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    scope: Scope,
    when: When,
    why: &'static str,
) -> Call {
    Call { group, resource, verbs, scope, when, why }
}

const fn registration(resource: &'static str) -> Call {
    call(
        "admissionregistration.k8s.io",
        resource,
        &["create", "list", "patch", "watch"],
        Scope::Cluster,
        When::Registering,
        "keeps its own registration",
    )
}

const fn rbac(resource: &'static str) -> Call {
    call(
        "rbac.authorization.k8s.io",
        resource,
        &["list", "watch"],
        Scope::Cluster,
        When::Constraints,
        "who may use which constraint",
    )
}

/// All of them. `/version` is read as well, which needs no grant.
pub const CALLS: &[Call] = &[
    call(
        "",
        "namespaces",
        &["get", "list", "watch"],
        Scope::Cluster,
        When::Always,
        "labels decide the level; read directly while the watch is cold",
    ),
    call(
        "",
        "pods",
        &["list"],
        Scope::Cluster,
        When::Always,
        "existing pods, when the level of a namespace rises",
    ),
    call("", "pods", &["create"], Scope::Cluster, When::FailFast, "dry runs of the pods of workloads"),
    call(
        "",
        "configmaps",
        &["get"],
        Scope::Cluster,
        When::ConfigMapProfiles,
        "seccomp profiles that pods refer to",
    ),
    call(
        "palisade.dev",
        "profilepolicies",
        &["list", "watch"],
        Scope::Cluster,
        When::Always,
        "allowed and default profiles",
    ),
    call(
        "palisade.dev",
        "securityexceptions",
        &["list", "watch"],
        Scope::Cluster,
        When::Always,
        "findings that are accepted for a while",
    ),
    call(
        "coordination.k8s.io",
        "leases",
        &["create", "delete", "patch"],
        Scope::Own,
        When::Always,
        "reports the configuration this replica enforces",
    ),
    call(
        "",
        "configmaps",
        &["list", "watch"],
        Scope::Own,
        When::ConfigurationInConfigMap,
        "the PodSecurityConfiguration",
    ),
    call(
        "",
        "secrets",
        &["create", "get", "update"],
        Scope::Own,
        When::ManagingCertificates,
        "authority and serving certificate, shared by all replicas",
    ),
    registration("mutatingwebhookconfigurations"),
    registration("validatingwebhookconfigurations"),
    call(
        "security.openshift.io",
        "securitycontextconstraints",
        &["list", "watch"],
        Scope::Cluster,
        When::Constraints,
        "the constraints",
    ),
    rbac("clusterroles"),
    rbac("clusterrolebindings"),
    rbac("roles"),
    rbac("rolebindings"),
];

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::{CALLS, Call, Scope, When};

    fn table() -> String {
        let mut out =
            String::from("| resource | verbs | where | when | what for |\n| --- | --- | --- | --- | --- |\n");
        for Call { group, resource, verbs, scope, when, why } in CALLS {
            let name = if group.is_empty() { (*resource).to_owned() } else { format!("{resource}.{group}") };
            let scope = match scope {
                Scope::Cluster => "cluster",
                Scope::Own => "own namespace",
            };
            let when = match when {
                When::Always => "always",
                When::Registering => "`--register`",
                When::ManagingCertificates => "without `--tls-cert`",
                When::ConfigurationInConfigMap => "without `--admission-config`",
                When::Constraints => "`--security-context-constraints`",
                When::FailFast => "`--fail-fast`",
                When::ConfigMapProfiles => "gate `SeccompConfigMaps`",
            };
            let _ = writeln!(out, "| `{name}` | {} | {scope} | {when} | {why} |", verbs.join(", "));
        }
        out
    }

    #[test]
    fn the_documentation_has_the_list() {
        let page = include_str!("../../../docs/webhook.md");
        let table = table();
        assert!(page.contains(&table), "docs/webhook.md shall have:\n{table}");
    }
}
