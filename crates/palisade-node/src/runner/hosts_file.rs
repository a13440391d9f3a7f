//! The `/etc/hosts` of a pod's containers.
//!
//! Implements: `managedHostsFileContent`, `nodeHostsFileContent` and `shouldMountHostsFile` of the kubelet
//! (`pkg/kubelet/kubelet_pods.go`): a pod with an address gets a file, unless a container mounts one of its own there.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use super::config::is_host_network;
use crate::pod::{Container, RunPod};

/// Where containers find it.
pub(super) const PATH: &str = "/etc/hosts";
/// The domain of names inside a cluster.
const CLUSTER_DOMAIN: &str = "cluster.local";

/// Writes the file of a pod, if the container gets one.
pub(super) fn write(
    pod: &RunPod,
    container: &Container,
    ips: &[String],
    folder: &Path,
) -> io::Result<Option<PathBuf>> {
    if ips.is_empty() || container.volume_mounts.iter().any(|mount| mount.mount_path == PATH) {
        return Ok(None);
    }
    let text =
        if is_host_network(pod) { of_node(&fs::read_to_string(PATH)?, pod) } else { managed(pod, ips) };
    let file = folder.join("etc-hosts");
    fs::write(&file, text)?;
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    Ok(Some(file))
}

fn managed(pod: &RunPod, ips: &[String]) -> String {
    let mut text = "# Kubernetes-managed hosts file.\n\
                    127.0.0.1\tlocalhost\n\
                    ::1\tlocalhost ip6-localhost ip6-loopback\n\
                    fe00::\tip6-localnet\n\
                    fe00::0\tip6-mcastprefix\n\
                    fe00::1\tip6-allnodes\n\
                    fe00::2\tip6-allrouters\n"
        .to_owned();
    let subdomain =
        pod.object.pointer("/spec/subdomain").and_then(serde_json::Value::as_str).unwrap_or_default();
    let host = if pod.spec.hostname.is_empty() { &pod.key.name } else { &pod.spec.hostname };
    for ip in ips {
        let _ = if subdomain.is_empty() {
            writeln!(text, "{ip}\t{host}")
        } else {
            writeln!(text, "{ip}\t{host}.{subdomain}.{}.svc.{CLUSTER_DOMAIN}\t{host}", pod.key.namespace)
        };
    }
    text + &aliases(pod)
}

fn of_node(hosts: &str, pod: &RunPod) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{hosts}{}", aliases(pod))
}

fn aliases(pod: &RunPod) -> String {
    if pod.spec.host_aliases.is_empty() {
        return String::new();
    }
    let lines =
        pod.spec.host_aliases.iter().map(|alias| format!("{}\t{}\n", alias.ip, alias.hostnames.join("\t")));
    format!("\n# Entries added by HostAliases.\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> RunPod {
        let mut object = json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        RunPod::from_object(object).unwrap()
    }

    #[test]
    fn names_the_pod_and_its_aliases() {
        let ips = ["10.0.0.1".to_owned(), "fd00::1".to_owned()];
        let alias = json!({"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["foo", "bar"]}]});
        for (case, spec, end) in [
            ("plain", json!({}), "fe00::2\tip6-allrouters\n10.0.0.1\tweb\nfd00::1\tweb\n"),
            ("a host name", json!({"hostname": "h"}), "10.0.0.1\th\nfd00::1\th\n"),
            (
                "a subdomain",
                json!({"subdomain": "s"}),
                "10.0.0.1\tweb.s.shop.svc.cluster.local\tweb\nfd00::1\tweb.s.shop.svc.cluster.local\tweb\n",
            ),
            (
                "aliases",
                alias.clone(),
                "fd00::1\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\tfoo\tbar\n",
            ),
        ] {
            let text = managed(&pod(&spec), &ips);
            assert!(
                text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"),
                "{case}: {text}"
            );
            assert!(text.ends_with(end), "{case}: {text}");
        }
        assert_eq!(
            of_node("127.0.0.1 localhost\n", &pod(&alias)),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n# Entries added by HostAliases.\n1.2.3.4\tfoo\tbar\n"
        );
    }

    #[test]
    fn leaves_a_file_of_the_containers_own_alone() {
        let temp = tempfile::tempdir().unwrap();
        let ips = ["10.0.0.1".to_owned()];
        let own = pod(
            &json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/etc/hosts"}]}]}),
        );
        assert_eq!(write(&own, &own.spec.containers[0], &ips, temp.path()).unwrap(), None);
        let plain = pod(&json!({}));
        assert_eq!(
            write(&plain, &plain.spec.containers[0], &[], temp.path()).unwrap(),
            None,
            "no address yet"
        );
        let file = write(&plain, &plain.spec.containers[0], &ips, temp.path()).unwrap().unwrap();
        assert!(fs::read_to_string(file).unwrap().contains("10.0.0.1\tweb\n"));
    }
}
