//! Pod, container and defaults become one context per container, every value with where it came from.
//!
//! Implements: `DetermineEffectiveSecurityContext` of Kubernetes, and the projection of the pod-security-context
//! proposal: a container's own settings over `containerDefaults` over the pod's.

use palisade_base::field_path::FieldPath;
use serde_json::{Value, json};

use crate::{
    node::{AppArmorResolution, SeccompResolution, Source, resolve_app_armor, resolve_seccomp},
    pod_view::{ContainerKind, ContainerRef, PodView},
    prepare::Prepared,
    profile::kind,
    security_context::{Capabilities, SeLinuxOptions, SecurityContext, Sysctl},
    text::Text,
};

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value; what absence means is the field's own business.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

/// What one container really runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the API's own, where no comment states otherwise")]
pub struct EffectiveContext<'p> {
    /// The container's name.
    pub container: &'p str,
    /// Its list.
    pub kind: ContainerKind,
    pub run_as_user: Sourced<Option<i64>>,
    pub run_as_group: Sourced<Option<i64>>,
    pub run_as_non_root: Sourced<Option<bool>>,
    /// Groups of the process besides its own: fsGroup first, as they are sent to the runtime.
    pub groups: Sourced<Vec<i64>>,
    pub supplemental_groups_policy: Sourced<Option<&'p str>>,
    pub fs_group: Sourced<Option<i64>>,
    pub fs_group_change_policy: Sourced<Option<&'p str>>,
    pub capabilities: Sourced<Capabilities<'p>>,
    pub privileged: Sourced<bool>,
    pub allow_privilege_escalation: Sourced<bool>,
    /// Whether processes may never gain privileges; set only where escalation is explicitly forbidden.
    pub no_new_privs: Sourced<bool>,
    pub read_only_root_filesystem: Sourced<bool>,
    pub proc_mount: Sourced<&'p str>,
    pub se_linux_options: Sourced<Option<SeLinuxOptions<'p>>>,
    pub se_linux_change_policy: Sourced<Option<&'p str>>,
    pub windows_run_as_user_name: Sourced<Option<&'p str>>,
    pub windows_host_process: Sourced<bool>,
    /// Name and inline text of the GMSA credential spec; the two move together.
    pub windows_gmsa: Sourced<Option<(Option<&'p str>, Option<&'p str>)>>,
    pub seccomp: SeccompResolution<'p>,
    pub app_armor: AppArmorResolution<'p>,
    pub sysctls: Sourced<&'p [Sysctl<'p>]>,
    pub host_network: Sourced<bool>,
    pub host_pid: Sourced<bool>,
    pub host_ipc: Sourced<bool>,
    pub host_users: Sourced<bool>,
    pub share_process_namespace: Sourced<bool>,
}

/// One line of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The field, by its API name.
    pub field: &'static str,
    /// The value, as text.
    pub value: String,
    /// The value, as a machine reads it.
    pub json: Value,
    /// Where it came from.
    pub source: Source,
}

const NOT_SET: Source = Source::Default("not set");

/// The effective context of every container, in the order of [`PodView::containers`].
#[must_use]
pub fn effective_contexts<'p, 'a: 'p>(prepared: &'p Prepared<'a>) -> Vec<EffectiveContext<'p>> {
    prepared.view().containers().map(|container| effective_context(prepared, &container)).collect()
}

/// The effective context of one container. Values are those of the prepared pod, which policy judges as well; where a value was
/// projected from `containerDefaults`, its source is there.
#[must_use]
pub fn effective_context<'p, 'a: 'p>(
    prepared: &'p Prepared<'a>,
    container: &ContainerRef<'p, 'a>,
) -> EffectiveContext<'p> {
    let view = &prepared.view();
    let layers = Layers { prepared, view, container };
    let pod = view.security_context();
    let spec = view.spec();

    let allow_privilege_escalation = layers.own("allowPrivilegeEscalation", |c| c.allow_privilege_escalation);
    let no_new_privs = Sourced {
        value: allow_privilege_escalation.value == Some(false),
        source: match allow_privilege_escalation.value {
            Some(false) => allow_privilege_escalation.source.clone(),
            _ => Source::Default("set only where allowPrivilegeEscalation is false"),
        },
    };
    let host_flag = |field: &'static str, value: Option<bool>| match value {
        Some(value) => {
            let path = view.path(&["spec", field]);
            Sourced { value, source: Source::Pod(prepared.projected_from(&path).unwrap_or(path)) }
        }
        None => Sourced { value: false, source: NOT_SET },
    };
    let sysctls = pod.map_or(&[][..], |context| context.sysctls.as_slice());

    EffectiveContext {
        container: container.name(),
        kind: container.kind,
        run_as_user: layers.any("runAsUser", |c| c.run_as_user, pod.and_then(|p| p.run_as_user)),
        run_as_group: layers.any("runAsGroup", |c| c.run_as_group, pod.and_then(|p| p.run_as_group)),
        run_as_non_root: layers.any(
            "runAsNonRoot",
            |c| c.run_as_non_root,
            pod.and_then(|p| p.run_as_non_root),
        ),
        groups: layers.groups(),
        supplemental_groups_policy: layers
            .pod("supplementalGroupsPolicy", pod.and_then(|p| p.supplemental_groups_policy.as_deref())),
        fs_group: layers.pod("fsGroup", pod.and_then(|p| p.fs_group)),
        fs_group_change_policy: layers
            .pod("fsGroupChangePolicy", pod.and_then(|p| p.fs_group_change_policy.as_deref())),
        capabilities: unwrap_or(
            layers.own("capabilities", |c| c.capabilities.as_ref().map(reborrow_capabilities)),
            Capabilities::default(),
            "not set: the runtime's default capabilities",
        ),
        privileged: unwrap_or(layers.own("privileged", |c| c.privileged), false, "not set"),
        allow_privilege_escalation: unwrap_or(
            allow_privilege_escalation,
            true,
            "not set: programs may gain privileges",
        ),
        no_new_privs,
        read_only_root_filesystem: unwrap_or(
            layers.own("readOnlyRootFilesystem", |c| c.read_only_root_filesystem),
            false,
            "not set",
        ),
        proc_mount: unwrap_or(layers.own("procMount", |c| c.proc_mount.as_deref()), "Default", "not set"),
        se_linux_options: layers.any(
            "seLinuxOptions",
            |c| c.se_linux_options.as_ref().map(reborrow_se_linux),
            pod.and_then(|p| p.se_linux_options.as_ref()).map(reborrow_se_linux),
        ),
        se_linux_change_policy: layers
            .pod("seLinuxChangePolicy", pod.and_then(|p| p.se_linux_change_policy.as_deref())),
        windows_run_as_user_name: layers
            .windows("runAsUserName", |options| options.run_as_user_name.as_deref()),
        windows_host_process: unwrap_or(
            layers.windows("hostProcess", |options| options.host_process),
            false,
            "not set",
        ),
        windows_gmsa: layers.windows("gmsaCredentialSpecName", |options| {
            let name = options.gmsa_credential_spec_name.as_deref();
            let text = options.gmsa_credential_spec.as_deref();
            (name.is_some() || text.is_some()).then_some((name, text))
        }),
        seccomp: resolve_seccomp(prepared, container, prepared.compat()),
        app_armor: resolve_app_armor(prepared, container, prepared.compat()),
        sysctls: Sourced {
            value: sysctls,
            source: if sysctls.is_empty() { NOT_SET } else { Source::Pod(layers.pod_path("sysctls")) },
        },
        host_network: host_flag("hostNetwork", spec.host_network),
        host_pid: host_flag("hostPID", spec.host_pid),
        host_ipc: host_flag("hostIPC", spec.host_ipc),
        host_users: match spec.host_users {
            Some(value) => Sourced { value, source: Source::Pod(view.path(&["spec", "hostUsers"])) },
            None => Sourced { value: true, source: Source::Default("not set: users are those of the node") },
        },
        share_process_namespace: host_flag("shareProcessNamespace", spec.share_process_namespace),
    }
}

/// The places a setting may stand in, nearest first.
struct Layers<'v, 'p, 'a> {
    prepared: &'p Prepared<'a>,
    view: &'v PodView<'p, 'a>,
    container: &'v ContainerRef<'p, 'a>,
}

impl<'p, 'a: 'p> Layers<'_, 'p, 'a> {
    fn container_path(&self, field: &'static str) -> FieldPath {
        self.container.path(self.view).fields(&["securityContext", field])
    }

    /// A container's field, or the default it was projected from.
    fn container_source(&self, field: &'static str) -> Source {
        container_source(self.prepared, self.container_path(field))
    }

    fn pod_path(&self, field: &'static str) -> FieldPath {
        self.view.path(&["spec", "securityContext", field])
    }

    /// A setting of the container, or of the proposal's defaults.
    fn own<T>(
        &self,
        field: &'static str,
        get: impl Fn(&'p SecurityContext<'a>) -> Option<T>,
    ) -> Sourced<Option<T>> {
        match self.container.security_context().and_then(get) {
            Some(value) => Sourced { value: Some(value), source: self.container_source(field) },
            None => Sourced { value: None, source: NOT_SET },
        }
    }

    /// A setting of the container, the proposal's defaults, or the pod.
    fn any<T>(
        &self,
        field: &'static str,
        get: impl Fn(&'p SecurityContext<'a>) -> Option<T>,
        of_pod: Option<T>,
    ) -> Sourced<Option<T>> {
        let own = self.own(field, get);
        if own.value.is_some() { own } else { self.pod(field, of_pod) }
    }

    fn pod<T>(&self, field: &'static str, value: Option<T>) -> Sourced<Option<T>> {
        let source = if value.is_some() { Source::Pod(self.pod_path(field)) } else { NOT_SET };
        Sourced { value, source }
    }

    fn windows<T>(
        &self,
        field: &'static str,
        get: impl Fn(&'p crate::security_context::WindowsOptions<'a>) -> Option<T>,
    ) -> Sourced<Option<T>> {
        let own = self.container.security_context().and_then(|context| context.windows_options.as_ref());
        if let Some(value) = own.and_then(&get) {
            let path = self.container_path("windowsOptions").field(field);
            return Sourced { value: Some(value), source: container_source(self.prepared, path) };
        }
        let of_pod = self.view.security_context().and_then(|context| context.windows_options.as_ref());
        match of_pod.and_then(get) {
            Some(value) => Sourced {
                value: Some(value),
                source: Source::Pod(self.pod_path("windowsOptions").field(field)),
            },
            None => Sourced { value: None, source: NOT_SET },
        }
    }

    /// The pod's groups, or the proposal's groups of the container; the volume group comes first in either case.
    fn groups(&self) -> Sourced<Vec<i64>> {
        let pod = self.view.security_context();
        let fs_group = pod.and_then(|context| context.fs_group);
        let own =
            self.own("runWithSupplementalGroups", |context| context.run_with_supplemental_groups.as_deref());
        let (groups, source) = match own.value {
            Some(groups) => (groups, own.source),
            None => match pod.and_then(|context| context.supplemental_groups.as_deref()) {
                Some(groups) => (groups, Source::Pod(self.pod_path("supplementalGroups"))),
                None if fs_group.is_some() => (&[][..], Source::Pod(self.pod_path("fsGroup"))),
                None => (&[][..], NOT_SET),
            },
        };
        Sourced { value: fs_group.into_iter().chain(groups.iter().copied()).collect(), source }
    }
}

/// Where a container's setting stands: with the container, or in the `containerDefaults` it was projected from.
pub(crate) fn container_source(prepared: &Prepared<'_>, path: FieldPath) -> Source {
    match prepared.projected_from(&path) {
        Some(origin) => Source::Pod(origin),
        None => Source::Container(path),
    }
}

fn unwrap_or<T>(sourced: Sourced<Option<T>>, default: T, why: &'static str) -> Sourced<T> {
    match sourced.value {
        Some(value) => Sourced { value, source: sourced.source },
        None => Sourced { value: default, source: Source::Default(why) },
    }
}

fn reborrow<'p>(text: &'p Text<'_>) -> Text<'p> {
    Text::borrowed(text.as_str())
}

fn reborrow_capabilities<'p>(capabilities: &'p Capabilities<'_>) -> Capabilities<'p> {
    Capabilities {
        add: capabilities.add.iter().map(reborrow).collect(),
        drop: capabilities.drop.iter().map(reborrow).collect(),
    }
}

fn reborrow_se_linux<'p>(options: &'p SeLinuxOptions<'_>) -> SeLinuxOptions<'p> {
    SeLinuxOptions {
        user: reborrow(&options.user),
        role: reborrow(&options.role),
        kind: reborrow(&options.kind),
        level: reborrow(&options.level),
    }
}

impl EffectiveContext<'_> {
    /// Every field with its value and source, for people and machines.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::with_capacity(26);
        let mut row = |field: &'static str, json: Value, source: &Source| {
            rows.push(Row { field, value: shown(&json), json, source: source.clone() });
        };
        row("runAsUser", json!(self.run_as_user.value), &self.run_as_user.source);
        row("runAsGroup", json!(self.run_as_group.value), &self.run_as_group.source);
        row("runAsNonRoot", json!(self.run_as_non_root.value), &self.run_as_non_root.source);
        row("supplementalGroups", json!(self.groups.value), &self.groups.source);
        let policy = &self.supplemental_groups_policy;
        row("supplementalGroupsPolicy", json!(policy.value), &policy.source);
        row("fsGroup", json!(self.fs_group.value), &self.fs_group.source);
        let policy = &self.fs_group_change_policy;
        row("fsGroupChangePolicy", json!(policy.value), &policy.source);
        row("privileged", json!(self.privileged.value), &self.privileged.source);
        row("capabilities", json!(self.capabilities.value), &self.capabilities.source);
        let escalation = &self.allow_privilege_escalation;
        row("allowPrivilegeEscalation", json!(escalation.value), &escalation.source);
        row("noNewPrivs", json!(self.no_new_privs.value), &self.no_new_privs.source);
        let root = &self.read_only_root_filesystem;
        row("readOnlyRootFilesystem", json!(root.value), &root.source);
        row("procMount", json!(self.proc_mount.value), &self.proc_mount.source);
        let seccomp = match &self.seccomp.profile {
            Ok(reference) => json!(reference.to_field()),
            Err(error) => json!({"error": error.to_string()}),
        };
        row("seccompProfile", seccomp, &self.seccomp.source);
        let app_armor = match &self.app_armor.profile {
            None => Value::Null,
            Some(Ok(reference)) => json!(reference.to_field()),
            Some(Err(error)) => json!({"error": error.to_string()}),
        };
        row("appArmorProfile", app_armor, &self.app_armor.source);
        row("seLinuxOptions", json!(self.se_linux_options.value), &self.se_linux_options.source);
        let policy = &self.se_linux_change_policy;
        row("seLinuxChangePolicy", json!(policy.value), &policy.source);
        let name = &self.windows_run_as_user_name;
        row("windowsOptions.runAsUserName", json!(name.value), &name.source);
        row(
            "windowsOptions.hostProcess",
            json!(self.windows_host_process.value),
            &self.windows_host_process.source,
        );
        let gmsa = self
            .windows_gmsa
            .value
            .map(|(name, text)| json!({"gmsaCredentialSpecName": name, "gmsaCredentialSpec": text}));
        row("windowsOptions.gmsa", json!(gmsa), &self.windows_gmsa.source);
        row("sysctls", json!(self.sysctls.value), &self.sysctls.source);
        row("hostNetwork", json!(self.host_network.value), &self.host_network.source);
        row("hostPID", json!(self.host_pid.value), &self.host_pid.source);
        row("hostIPC", json!(self.host_ipc.value), &self.host_ipc.source);
        row("hostUsers", json!(self.host_users.value), &self.host_users.source);
        let shared = &self.share_process_namespace;
        row("shareProcessNamespace", json!(shared.value), &shared.source);
        rows
    }
}

/// A value as text: profiles and lists on one line, nothing in quotes.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(" "),
        Value::Object(fields) if fields.is_empty() => "-".to_owned(),
        Value::Object(fields) => {
            let profile_type = fields.get("type").and_then(Value::as_str).filter(|name| {
                [kind::UNCONFINED, kind::RUNTIME_DEFAULT, kind::LOCALHOST, kind::CONFIG_MAP, kind::OCI]
                    .contains(name)
            });
            if let Some(kind) = profile_type {
                let rest = fields
                    .iter()
                    .filter(|(key, _)| *key != "type")
                    .map(|(_, value)| format!(" {}", shown(value)));
                return format!("{kind}{}", rest.collect::<String>());
            }
            fields.iter().map(|(key, value)| format!("{key}={}", shown(value))).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}
