//! What the tests need besides Rust: Debian packages and cargo tools.

use std::process::Command;

use crate::{
    Failure,
    process::{exists, run},
    vm,
};

/// A program the tests call, and the Debian package it comes in.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("cc", "build-essential", "the C and C++ parts of some crates and of the fuzzer"),
    ("kubectl", "kubernetes-client", "sessions with the embedded API server"),
    ("go", "golang-go", "the template engine of Helm, which renders the chart"),
    ("python3", "python3", "a session with the Python client"),
    ("docker-registry", "docker-registry", "seccomp profiles from registries"),
    ("chromium", "chromium", "the dashboard in a browser"),
];

/// What the node's tests on a real runtime need besides.
const NODE_PACKAGES: &[(&str, &str, &str)] = &[
    ("containerd", "containerd", "real pods in the node's system tests"),
    ("runc", "runc", "likewise"),
    ("busybox", "busybox-static", "the images they run"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins", "pods with a network of their own"),
    ("apparmor_parser", "apparmor", "AppArmor in a virtual machine"),
    ("qemu-system-x86_64", "qemu-system-x86", "that machine"),
];

/// What the tests on a real Kubernetes need besides a node's.
const CLUSTER_PACKAGES: &[(&str, &str, &str)] = &[
    ("etcd", "etcd-server", "the storage of a real Kubernetes"),
    ("ip", "iproute2", "the address of its API server"),
    ("xz", "xz-utils", "its binaries, which are packed"),
    ("openssl", "openssl", "its certificates"),
    ("curl", "curl", "the image of its end-to-end tests"),
    ("iptables", "iptables", "ports of the node in its end-to-end tests"),
];

/// A cargo tool, and the crate it comes in.
const TOOLS: &[(&str, &str)] = &[("cargo-nextest", "cargo-nextest"), ("cargo-deny", "cargo-deny")];

/// Installs what is missing; without the right to, lists what is missing.
pub(crate) fn run_setup() -> Result<(), Failure> {
    install(PACKAGES)?;
    if !has_venv() {
        // It has no program by which it can be found.
        install(&[("", "python3-venv", "an environment for the Python client")])?;
    }
    for (program, package) in TOOLS {
        if !exists(program) {
            run(Command::new("cargo").args(["install", "--locked", package]))?;
        }
    }
    Ok(())
}

/// Whether Python can make environments, which Debian packs separately.
fn has_venv() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, venv"]).stderr(std::process::Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

/// Installs what the tests on a real runtime need, and fetches the kernel of their machine.
pub(crate) fn need_runtime() -> Result<(), Failure> {
    run_setup()?;
    if !is_root() {
        return Err(Failure("tests on a real container runtime need root".to_owned()));
    }
    install(NODE_PACKAGES)?;
    vm::fetch_kernel()
}

/// Installs what the tests on a real Kubernetes need.
pub(crate) fn need_cluster() -> Result<(), Failure> {
    run_setup()?;
    if !is_root() {
        return Err(Failure("tests on a real Kubernetes need root".to_owned()));
    }
    install(NODE_PACKAGES)?;
    install(CLUSTER_PACKAGES)
}

/// Installs what a kube-apiserver without a node needs.
pub(crate) fn need_api_server() -> Result<(), Failure> {
    install(CLUSTER_PACKAGES)
}

/// Installs the C compiler that some crates need to build.
pub(crate) fn need_compiler() -> Result<(), Failure> {
    install(PACKAGES.get(..1).unwrap_or_default())
}

fn install(packages: &[(&str, &str, &str)]) -> Result<(), Failure> {
    let missing: Vec<_> = packages.iter().filter(|(program, _, _)| !exists(program)).collect();
    if !missing.is_empty() {
        if !is_root() || !exists("apt-get") {
            let list: Vec<_> =
                missing.iter().map(|(_, package, why)| format!("  {package}: {why}")).collect();
            return Err(Failure(format!("these Debian packages are missing:\n{}", list.join("\n"))));
        }
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        let packages = missing.iter().map(|(_, package, _)| *package);
        run(Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    Ok(())
}

/// Whether we may do anything on this machine.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().nth(1));
    effective == Some("0")
}
