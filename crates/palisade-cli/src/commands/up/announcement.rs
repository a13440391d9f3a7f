//! What `palisade up` prints on start: the release, its extensions, the node, the controllers, and where the objects are.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use palisade_model::compat::FeatureGates;

/// What the server is. Each line is a fact that an option changes.
#[derive(Debug)]
pub(super) struct Announcement {
    /// The address of the API server.
    pub(super) url: String,
    /// The release, as `Kubernetes v1.37`.
    pub(super) release: String,
    /// The feature gates of Palisade's extensions; nothing where they are off because a release is emulated.
    pub(super) extensions: Option<FeatureGates>,
    /// Whether the server behaves as an OpenShift cluster.
    pub(super) openshift: bool,
    /// Name and runtime endpoint of the node, if pods run.
    pub(super) node: Option<(String, String)>,
    /// The names of the controllers that run.
    pub(super) controllers: Vec<&'static str>,
    /// The folder of the objects, or nothing for memory.
    pub(super) data: Option<PathBuf>,
    /// The administrator's kubeconfig.
    pub(super) kubeconfig: PathBuf,
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let openshift = if self.openshift { ", as an OpenShift cluster" } else { "" };
        writeln!(f, "palisade is up on {}, {}{openshift}", self.url, self.release)?;
        match self.extensions {
            Some(gates) => writeln!(
                f,
                "  extensions   on (SeccompConfigMaps={}, SecurityProfileOCIArtifact={}, AppArmor={})",
                gates.seccomp_config_maps, gates.security_profile_oci_artifact, gates.app_armor
            )?,
            None => writeln!(f, "  extensions   off: the server behaves exactly as the release")?,
        }
        match &self.node {
            Some((name, endpoint)) => writeln!(f, "  node         {name} on {endpoint}")?,
            None => writeln!(f, "  node         none: pods stay Pending (--node runs them)")?,
        }
        match &self.controllers[..] {
            [] => writeln!(f, "  controllers  none")?,
            names => writeln!(f, "  controllers  {}", names.join(", "))?,
        }
        match &self.data {
            Some(folder) => writeln!(f, "  data         {}", absolute(folder).display())?,
            None => writeln!(f, "  data         in memory, lost at exit (--data-dir keeps it)")?,
        }
        writeln!(f, "  kubeconfig   {}", absolute(&self.kubeconfig).display())
    }
}

impl Announcement {
    /// Commands for the first minute, for a person at a terminal.
    #[must_use]
    pub(super) fn first_steps(&self) -> String {
        format!(
            "\n  export KUBECONFIG={}\n  kubectl label --overwrite namespace default \
             pod-security.kubernetes.io/enforce=restricted\n  kubectl run web --image=nginx --privileged --dry-run=server  # rejected\n\n\
             Stop it with Ctrl-C.\n",
            absolute(&self.kubeconfig).display()
        )
    }
}

pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_each_option_changes() {
        let plain = Announcement {
            url: "https://127.0.0.1:6443".to_owned(),
            release: "Kubernetes v1.37 with Palisade's extensions".to_owned(),
            extensions: Some(FeatureGates::default()),
            openshift: false,
            node: None,
            controllers: vec!["replicaset-controller"],
            data: None,
            kubeconfig: PathBuf::from("/srv/palisade.kubeconfig"),
        };
        insta::assert_snapshot!(plain, @r"
        palisade is up on https://127.0.0.1:6443, Kubernetes v1.37 with Palisade's extensions
          extensions   on (SeccompConfigMaps=false, SecurityProfileOCIArtifact=false, AppArmor=true)
          node         none: pods stay Pending (--node runs them)
          controllers  replicaset-controller
          data         in memory, lost at exit (--data-dir keeps it)
          kubeconfig   /srv/palisade.kubeconfig
        ");
        let emulated = Announcement {
            release: "Kubernetes v1.24".to_owned(),
            extensions: None,
            openshift: true,
            node: Some(("node1".to_owned(), "unix:///run/containerd/containerd.sock".to_owned())),
            controllers: Vec::new(),
            data: Some(PathBuf::from("/var/lib/palisade")),
            ..plain
        };
        insta::assert_snapshot!(emulated, @r"
        palisade is up on https://127.0.0.1:6443, Kubernetes v1.24, as an OpenShift cluster
          extensions   off: the server behaves exactly as the release
          node         node1 on unix:///run/containerd/containerd.sock
          controllers  none
          data         /var/lib/palisade
          kubeconfig   /srv/palisade.kubeconfig
        ");
    }
}
