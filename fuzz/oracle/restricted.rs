//! The Restricted level of the Pod Security Standards, latest version, as a plain reading of a pod's JSON.
//!
//! Written from the standard's text and shared with nothing: it is what the fuzz target `requests` holds the server's own
//! reading against. It covers Palisade's extensions of the pod's security context: what a container does not set comes
//! from `containerDefaults`, then from the pod; `hostNetwork` and `hostIPC` may stand there as well.

use serde_json::Value;

const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];
const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const SELINUX_TYPES: &[&str] =
    &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
const HANDLERS: &[&str] =
    &["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];

/// A field; null is nothing.
fn get<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    value.pointer(pointer).filter(|found| !found.is_null())
}

fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    get(value, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is(value: &Value, pointer: &str, expected: bool) -> bool {
    get(value, pointer) == Some(&Value::Bool(expected))
}

/// A number of any form that is zero.
fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

/// Why a pod is not allowed; nothing if it is.
pub fn problems(pod: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut bad = |wrong: bool, what: &str| {
        if wrong {
            found.push(what.to_owned());
        }
    };
    let nothing = Value::Null;
    let spec = get(pod, "/spec").unwrap_or(&nothing);
    let context = get(spec, "/securityContext").unwrap_or(&nothing);
    let windows = get(spec, "/os/name").and_then(Value::as_str) == Some("windows");
    let user_namespace = is(spec, "/hostUsers", false);

    for field in
        ["/hostNetwork", "/hostPID", "/hostIPC", "/securityContext/hostNetwork", "/securityContext/hostIPC"]
    {
        bad(is(spec, field, true), field);
    }
    for volume in items(spec, "/volumes") {
        let allowed = VOLUMES.iter().any(|kind| get(volume, &format!("/{kind}")).is_some());
        bad(!allowed, "volume type");
        bad(get(volume, "/hostPath").is_some(), "hostPath");
    }
    for sysctl in items(context, "/sysctls") {
        let name = get(sysctl, "/name").and_then(Value::as_str).unwrap_or_default();
        bad(!SYSCTLS.contains(&name), "sysctl");
    }
    bad(is(context, "/windowsOptions/hostProcess", true), "pod hostProcess");
    bad(selinux(get(context, "/seLinuxOptions")), "pod seLinuxOptions");
    let pod_seccomp = get(context, "/seccompProfile");
    bad(pod_seccomp.is_some_and(|profile| !confines(profile)) && !windows, "pod seccompProfile");
    bad(get(context, "/appArmorProfile").is_some_and(|profile| !confines(profile)), "pod appArmorProfile");
    bad(is(context, "/runAsNonRoot", false) && !user_namespace, "pod runAsNonRoot");
    bad(get(context, "/runAsUser").is_some_and(is_zero) && !user_namespace, "pod runAsUser");
    if let Some(annotations) = get(pod, "/metadata/annotations").and_then(Value::as_object) {
        for (key, value) in annotations {
            let value = value.as_str().unwrap_or_default();
            if key.starts_with("container.apparmor.security.beta.kubernetes.io/") {
                let allowed =
                    value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
                bad(!allowed, "AppArmor annotation");
            }
        }
    }
    let lists = ["/initContainers", "/containers", "/ephemeralContainers"];
    for container in lists.iter().flat_map(|list| items(spec, list)) {
        // The container's value, or else the defaults.
        let own = |field: &str| {
            get(container, &format!("/securityContext/{field}"))
                .or_else(|| get(context, &format!("/containerDefaults/{field}")))
        };
        bad(own("privileged") == Some(&Value::Bool(true)), "privileged");
        bad(
            own("allowPrivilegeEscalation") != Some(&Value::Bool(false)) && !windows,
            "allowPrivilegeEscalation",
        );
        let capabilities = own("capabilities").unwrap_or(&nothing);
        let dropped = items(capabilities, "/drop").iter().any(|name| name == "ALL");
        bad(!dropped && !windows, "capabilities.drop");
        let added = items(capabilities, "/add").iter().any(|name| name != "NET_BIND_SERVICE");
        bad(added && !windows, "capabilities.add");
        bad(own("procMount").is_some_and(|mount| mount != "Default"), "procMount");
        bad(selinux(own("seLinuxOptions")), "seLinuxOptions");
        let host_process = own("windowsOptions").is_some_and(|options| is(options, "/hostProcess", true));
        bad(host_process, "hostProcess");
        bad(own("appArmorProfile").is_some_and(|profile| !confines(profile)), "appArmorProfile");
        let seccomp = own("seccompProfile").or(pod_seccomp);
        bad(!seccomp.is_some_and(confines) && !windows, "seccompProfile");
        let non_root = own("runAsNonRoot").or_else(|| get(context, "/runAsNonRoot"));
        bad(non_root != Some(&Value::Bool(true)) && !user_namespace, "runAsNonRoot");
        bad(own("runAsUser").is_some_and(is_zero) && !user_namespace, "runAsUser");
        for port in items(container, "/ports") {
            bad(get(port, "/hostPort").is_some_and(|port| !is_zero(port)), "hostPort");
        }
        for handler in HANDLERS {
            for action in ["httpGet", "tcpSocket"] {
                let host = get(container, &format!("{handler}/{action}/host"));
                bad(host.is_some_and(|host| host != ""), "probe host");
            }
        }
    }
    found
}

/// Whether a profile is one that confines: the runtime's, or a file the node's administrator has put there.
fn confines(profile: &Value) -> bool {
    matches!(get(profile, "/type").and_then(Value::as_str), Some("RuntimeDefault" | "Localhost"))
}

fn selinux(options: Option<&Value>) -> bool {
    let Some(options) = options else { return false };
    let text = |field: &str| get(options, field).and_then(Value::as_str).unwrap_or_default();
    !SELINUX_TYPES.contains(&text("/type")) || !text("/user").is_empty() || !text("/role").is_empty()
}
