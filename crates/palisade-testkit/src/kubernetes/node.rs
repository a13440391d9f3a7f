//! The node of a cluster: a kubelet on a containerd of its own.
//!
//! The kubelet runs with cgroup v1, without the right to change OOM scores and without cgroups of its own, because a test may
//! run in a container itself.

use std::{fs, net::Ipv4Addr, path::Path, process::Command};

use serde_json::json;

use crate::{command::output, containerd::Containerd};

pub(super) struct Node {
    pub(super) containerd: Containerd,
}

impl Node {
    /// Starts containerd, and gives this machine the address of the cluster's Service `kubernetes`.
    pub(super) fn new(folder: &Path) -> Self {
        let folder = folder.join("containerd");
        fs::create_dir_all(&folder).unwrap();
        let node = Self { containerd: Containerd::start(&folder, None) };
        let _ = output(&mut node.address("replace")).expect_success();
        node
    }

    /// An address of the cluster's Services. The network of the containerd makes it this cluster's own.
    pub(super) fn service_address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, self.containerd.network(), number)
    }

    pub(super) fn services(&self) -> String {
        format!("{}/24", self.service_address(0))
    }

    fn address(&self, verb: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["address", verb, &format!("{}/32", self.service_address(1)), "dev", "lo"]);
        command
    }

    pub(super) fn ctr(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("ctr");
        command.arg("-a").arg(&self.containerd.socket).args(["-n", "k8s.io"]).args(arguments);
        command
    }

    pub(super) fn kubelet(&self, program: &Path, folder: &Path) -> Command {
        let address = self.service_address(1).to_string();
        let pki = folder.join("pki");
        let config = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": address, "healthzPort": 0, "readOnlyPort": 0,
            "containerRuntimeEndpoint": format!("unix://{}", self.containerd.socket.display()),
            "tlsCertFile": pki.join("kubelet-server.crt"), "tlsPrivateKeyFile": pki.join("kubelet-server.key"),
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": pki.join("ca.crt")}},
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [self.service_address(10).to_string()], "clusterDomain": "cluster.local",
            "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": [],
            "failSwapOn": false, "failCgroupV1": false, "oomScoreAdj": 0, "localStorageCapacityIsolation": false,
            "registryPullQPS": 0, "eventRecordQPS": 0, "syncFrequency": "10s",
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"}});
        let path = folder.join("kubelet.json");
        fs::write(&path, config.to_string()).unwrap();
        let mut command = Command::new(program);
        command.arg("--config").arg(path).arg("--kubeconfig").arg(pki.join("kubelet.kubeconfig"));
        command.arg("--root-dir").arg(folder.join("kubelet")).arg("--cert-dir").arg(pki);
        command.args(["--hostname-override", "node1", "--node-ip", &address]);
        command
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        output(&mut self.address("delete"));
    }
}
