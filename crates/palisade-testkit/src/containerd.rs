//! A containerd of the test's own: root, state, socket, network and images.
//!
//! Needs root and the packages containerd, runc, busybox-static and containernetworking-plugins.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    missing_docs,
    reason = "tests fail by panicking, and this is a part of them"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use palisade_node::cri::client::Runtime;

use crate::images;

/// The image of every test that does not specify otherwise.
pub const IMAGE: &str = "localhost/busybox:1";
/// An image whose user is a number.
pub const IMAGE_UID: &str = "localhost/busybox-uid:1";
/// An image whose user is a name.
pub const IMAGE_NAMED: &str = "localhost/busybox-named:1";
const PAUSE: &str = "localhost/pause:1";

/// Makes a runc that ignores seccomp: its key in the bundle is renamed before it reads it.
pub fn runc_without_seccomp(folder: &Path) -> PathBuf {
    let wrapper = folder.join("runc-without-seccomp");
    let script = "#!/bin/sh\nbundle=\nlast=\nfor word in \"$@\"; do [ \"$last\" = --bundle ] && bundle=$word; last=$word; done\n\
                  [ -n \"$bundle\" ] && sed -i 's/\"seccomp\":{/\"unheard\":{/' \"$bundle/config.json\"\nexec runc \"$@\"\n";
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    wrapper
}

/// A containerd process.
pub struct Containerd {
    pub folder: PathBuf,
    pub socket: PathBuf,
    /// The socket for plugins, of a containerd that has it.
    pub nri_socket: Option<PathBuf>,
    network: Network,
    /// The folder of the program and its shim, if they are not the system's.
    programs: Option<PathBuf>,
    child: Option<Child>,
}

/// The number of a network that no other test of this machine uses while this exists.
struct Network {
    number: u8,
    _lock: fs::File,
}

impl Network {
    fn claim() -> Self {
        let folder = std::env::temp_dir().join("palisade-networks");
        fs::create_dir_all(&folder).unwrap();
        // The kernel releases the lock of a test that is killed.
        let claim = |number: u8| {
            let lock = fs::File::create(folder.join(number.to_string())).unwrap();
            lock.try_lock().ok().map(|()| Self { number, _lock: lock })
        };
        (1..250).find_map(claim).expect("fewer than 249 containerds on this machine")
    }
}

impl Containerd {
    /// Starts one below `folder`; `runc` may be a wrapper.
    pub fn start(folder: &Path, runc: Option<&Path>) -> Self {
        Self::start_release(folder, runc, None)
    }

    /// Starts a containerd 2.3, which has plugins; its programs are packed in a folder.
    pub fn start_with_plugins(folder: &Path, packed: &Path) -> Self {
        let programs = folder.join("programs");
        fs::create_dir_all(&programs).unwrap();
        for name in ["containerd", "containerd-shim-runc-v2"] {
            let file = fs::File::create(programs.join(name)).unwrap();
            let archive = packed.join(format!("{name}.xz"));
            let unpacked = Command::new("xz").arg("-dc").arg(&archive).stdout(file).status().unwrap();
            assert!(unpacked.success(), "{}", archive.display());
            fs::set_permissions(programs.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self::start_release(folder, None, Some(programs))
    }

    fn start_release(folder: &Path, runc: Option<&Path>, programs: Option<PathBuf>) -> Self {
        assert!(rustix::process::geteuid().is_root(), "the system tests need root");
        for program in ["containerd", "runc", "ctr", "tar"] {
            let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
            assert!(
                found.status.success(),
                "{program} is missing: apt-get install --no-install-recommends containerd runc busybox-static containernetworking-plugins"
            );
        }
        let cni = folder.join("cni");
        fs::create_dir_all(&cni).unwrap();
        // A pod without hostNetwork gets a network of its own that leads to this machine and nowhere else. Tests beside this
        // one have other addresses: the machine could not distinguish the two.
        let network = Network::claim();
        let subnet = format!("10.231.{}.0/24", network.number);
        let list = serde_json::json!({"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "ptp",
            "ipam": {"type": "host-local", "subnet": subnet, "dataDir": folder.join("addresses"),
                // The Services of a cluster on this containerd, whose API server is this machine's.
                "routes": [{"dst": format!("10.99.{}.0/24", network.number)}]}}]});
        fs::write(cni.join("10-lab.conflist"), list.to_string()).unwrap();
        let socket = folder.join("c.sock");
        let runc = runc.map_or_else(|| "runc".to_owned(), |path| path.display().to_string());
        let nri_socket = programs.as_ref().map(|_| folder.join("nri.sock"));
        let config = match &nri_socket {
            Some(nri) => plugin_config(folder, &cni, &socket, nri),
            None => format!(
                r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{runc_root}"
"#,
                root = folder.join("root").display(),
                state = folder.join("state").display(),
                socket = socket.display(),
                cni = cni.display(),
                runc_root = folder.join("runc").display(),
            ),
        };
        fs::write(folder.join("config.toml"), config).unwrap();
        let mut containerd =
            Self { folder: folder.to_owned(), socket, nri_socket, network, programs, child: None };
        containerd.spawn();
        for (name, user, command) in [
            (IMAGE, "", &["sh"][..]),
            (IMAGE_UID, "1234:5678", &["sh"]),
            (IMAGE_NAMED, "web", &["sh"]),
            (PAUSE, "", &["sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"]),
        ] {
            containerd.import(&images::archive(folder, name, user, command));
        }
        containerd
    }

    /// Adds the image of an OCI archive.
    pub fn import(&self, archive: &Path) {
        let mut command = Command::new("ctr");
        command.arg("-a").arg(&self.socket).args(["-n", "k8s.io", "images", "import"]).arg(archive);
        images::run(&mut command);
    }

    /// Gives an image a second name.
    pub fn tag(&self, image: &str, name: &str) {
        let mut command = Command::new("ctr");
        command.arg("-a").arg(&self.socket).args(["-n", "k8s.io", "images", "tag", image, name]);
        images::run(&mut command);
    }

    fn spawn(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("containerd.log"))
            .unwrap();
        let mut command = Command::new("containerd");
        if let Some(programs) = &self.programs {
            let path = std::env::var("PATH").unwrap();
            command = Command::new(programs.join("containerd"));
            command.env("PATH", format!("{}:{path}", programs.display()));
        }
        let child = command
            .arg("--config")
            .arg(self.folder.join("config.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let up = Command::new("ctr").arg("-a").arg(&self.socket).arg("version").output().unwrap();
            if up.status.success() {
                return;
            }
            assert!(Instant::now() < deadline, "containerd does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The number of its network among those of the machine: pods have addresses in `10.231.<number>.0/24`.
    pub fn network(&self) -> u8 {
        self.network.number
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("containerd.log")).unwrap_or_default()
    }

    /// Stops the daemon; containers go on.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the daemon again.
    pub fn start_again(&mut self) {
        self.spawn();
    }
}

/// The configuration of containerd 2.3.
fn plugin_config(folder: &Path, cni: &Path, socket: &Path, nri: &Path) -> String {
    format!(
        r#"version = 3
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{cni}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "runc"
      Root = "{runc_root}"
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = "{nri}"
  plugin_path = "{folder}/nri-plugins"
  plugin_config_path = "{folder}/nri-config"
"#,
        root = folder.join("root").display(),
        state = folder.join("state").display(),
        socket = socket.display(),
        cni = cni.display(),
        runc_root = folder.join("runc").display(),
        nri = nri.display(),
        folder = folder.display(),
    )
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if self.child.is_none() {
            return;
        }
        // Nothing may be left on the machine, whatever the test did.
        let runtime_socket = self.socket.display().to_string();
        let cleaned = std::thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let runtime = Runtime::new(&runtime_socket, Duration::from_secs(20)).unwrap();
                for sandbox in runtime.list_pod_sandboxes(&[]).await.unwrap_or_default() {
                    runtime.stop_pod_sandbox(&sandbox.id).await.ok();
                    runtime.remove_pod_sandbox(&sandbox.id).await.ok();
                }
            });
        });
        cleaned.join().ok();
        self.stop();
        unmount_below(&self.folder);
    }
}

/// Unmounts everything below a folder, so that it can be removed.
pub(crate) fn unmount_below(folder: &Path) {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    for point in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)) {
        if Path::new(point).starts_with(folder) {
            rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).ok();
        }
    }
}
