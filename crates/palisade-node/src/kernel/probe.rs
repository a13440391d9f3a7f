//! What this node can do: kernel, seccomp, AppArmor, SELinux, and what the runtime reports.
//!
//! The answers become node labels and status ([`crate::node_object`]) and decide what is refused before it is tried.

use std::{fs, path::Path};

use serde::Serialize;

use super::apparmor::AppArmor;
use crate::cri::{
    client::{Runtime, RuntimeError},
    proto::RuntimeHandler,
};

/// What a node supports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFeatures {
    /// The kernel's release.
    pub kernel: String,
    /// Actions a seccomp filter may take, in the kernel's words; empty where the kernel has no filters.
    pub seccomp_actions: Vec<String>,
    /// Whether the host enforces AppArmor.
    pub app_armor: bool,
    /// Whether the host enforces or audits SELinux.
    pub selinux: bool,
    /// The runtime's name.
    pub runtime_name: String,
    /// The runtime's version.
    pub runtime_version: String,
    /// Whether the runtime supports a strict policy for supplemental groups.
    pub supplemental_groups_policy: bool,
    /// Whether the runtime was configured to leave AppArmor alone; `None` if it does not report it.
    pub runtime_disables_app_armor: Option<bool>,
    /// What each of the runtime's handlers supports; the first has no name.
    #[serde(skip)]
    pub handlers: Vec<RuntimeHandler>,
    /// Paths that kubelets since v1.34 hide: they show one container another's load.
    #[serde(skip)]
    pub thermal_throttle: Vec<String>,
}

impl NodeFeatures {
    /// What the kernel offers, read below `/proc` and `/sys`.
    #[must_use]
    pub fn of_kernel(proc: &Path, sys: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(proc.join(path)).unwrap_or_default();
        let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
        Self {
            kernel: read("sys/kernel/osrelease").trim().to_owned(),
            seccomp_actions: words(read("sys/kernel/seccomp/actions_avail")),
            app_armor: AppArmor::below(sys).is_enabled(),
            selinux: sys.join("fs/selinux/enforce").exists(),
            thermal_throttle: thermal_throttle(sys),
            ..Self::default()
        }
    }

    /// Adds what the runtime reports.
    pub async fn query_runtime(&mut self, runtime: &Runtime) -> Result<(), RuntimeError> {
        let version = runtime.version().await?;
        self.runtime_name = version.runtime_name;
        self.runtime_version = version.runtime_version;
        let status = runtime.status(true).await?;
        self.supplemental_groups_policy =
            status.features.is_some_and(|features| features.supplemental_groups_policy);
        self.handlers = status.runtime_handlers;
        // containerd reports its configuration; others need not.
        let config: Option<serde_json::Value> =
            status.info.get("config").and_then(|text| serde_json::from_str(text).ok());
        self.runtime_disables_app_armor =
            config.and_then(|config| config.get("disableApparmor").and_then(serde_json::Value::as_bool));
        Ok(())
    }

    /// Whether a handler of the runtime gives pods user namespaces. What is not reported is not supported.
    #[must_use]
    pub fn has_user_namespaces(&self, handler: &str) -> bool {
        let of_handler = self.handlers.iter().find(|known| known.name == handler);
        of_handler.and_then(|known| known.features.as_ref()).is_some_and(|features| features.user_namespaces)
    }

    /// Whether the kernel has seccomp filters.
    #[must_use]
    pub const fn seccomp(&self) -> bool {
        !self.seccomp_actions.is_empty()
    }
}

fn thermal_throttle(sys: &Path) -> Vec<String> {
    let possible = fs::read_to_string(sys.join("devices/system/cpu/possible")).unwrap_or_default();
    cpu_numbers(possible.trim())
        .into_iter()
        .map(|cpu| format!("devices/system/cpu/cpu{cpu}/thermal_throttle"))
        .filter(|path| sys.join(path).exists())
        .map(|path| format!("/sys/{path}"))
        .collect()
}

/// `0-3,7` in numbers. The kernel's own limit keeps a broken list from growing without end.
fn cpu_numbers(text: &str) -> Vec<u32> {
    const MAX: u32 = 8192;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend(first..=last.min(MAX));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{NodeFeatures, cpu_numbers};
    use crate::cri::proto::{RuntimeHandler, RuntimeHandlerFeatures};

    #[test]
    fn reads_lists_of_cpus() {
        for (list, expected) in
            [("0-1", &[0, 1][..]), ("0,2-3", &[0, 2, 3]), ("", &[]), ("x-y", &[]), ("3-1", &[])]
        {
            assert_eq!(cpu_numbers(list), expected, "{list}");
        }
        assert!(cpu_numbers("0-4294967295").len() < 10_000);
    }

    #[test]
    fn only_a_handler_that_reports_user_namespaces_has_them() {
        let handler = |name: &str, user_namespaces: Option<bool>| RuntimeHandler {
            name: name.to_owned(),
            features: user_namespaces
                .map(|user_namespaces| RuntimeHandlerFeatures { user_namespaces, ..Default::default() }),
        };
        let handlers = vec![handler("", Some(true)), handler("runc", Some(false)), handler("old", None)];
        let features = NodeFeatures { handlers, ..NodeFeatures::default() };
        for (name, expected) in [("", true), ("runc", false), ("old", false), ("unknown", false)] {
            assert_eq!(features.has_user_namespaces(name), expected, "{name}");
        }
        assert!(!NodeFeatures::default().has_user_namespaces(""), "a runtime that reports no handlers");
    }

    #[test]
    fn reads_what_the_kernel_has() {
        let root = tempfile::tempdir().unwrap();
        let nothing = NodeFeatures::of_kernel(root.path(), root.path());
        assert!(!nothing.seccomp() && !nothing.app_armor && !nothing.selinux);
        fs::create_dir_all(root.path().join("sys/kernel/seccomp")).unwrap();
        fs::write(root.path().join("sys/kernel/seccomp/actions_avail"), "kill_process errno allow\n")
            .unwrap();
        fs::write(root.path().join("sys/kernel/osrelease"), "6.1.0\n").unwrap();
        fs::create_dir_all(root.path().join("devices/system/cpu/cpu1/thermal_throttle")).unwrap();
        fs::write(root.path().join("devices/system/cpu/possible"), "0-1\n").unwrap();
        let found = NodeFeatures::of_kernel(root.path(), root.path());
        assert_eq!(found.kernel, "6.1.0");
        assert_eq!(found.seccomp_actions, ["kill_process", "errno", "allow"]);
        assert_eq!(found.thermal_throttle, ["/sys/devices/system/cpu/cpu1/thermal_throttle"]);
    }
}
