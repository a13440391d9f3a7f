//! Runs pods on a container runtime, and verifies what the kernel enforces.
//!
//! The kubelet's part of Palisade's extensions, through CRI v1 to a real runtime (containerd, CRI-O) and with a look at what the
//! kernel makes of it. The crate does what was admitted and never judges: it depends on `palisade-model`, not on the policies.
//!
//! # Entry points
//!
//! | for | call |
//! | --- | --- |
//! | `palisade up --node`, an agent that replaces the kubelet | [`node::Node::new`] with a [`api::kube::KubeSource`], then [`kubelet::run`] |
//! | `palisade run -f POD` | [`run::RunningPod::start`], `settled`, `report`, `stop` |
//! | `palisade run --record` | [`recording::Recorder::start`], [`run::RunningPod::start_recorded`], then `finish` |
//! | `palisade verify` | [`verify::verify_pod`] for every pod of the node; [`verify::PodReport::lines`] or its JSON |
//! | `palisade node --mode=agent`, beside a kubelet | [`agent::run`] |
//! | `kubectl logs` | [`logs::container_logs`] |
//! | `kubectl exec`, `attach`, `port-forward` | [`streams::exec`], [`streams::attach`], [`streams::port_forward`] |
//! | loading an AppArmor profile from text | [`kernel::apparmor::load_profile`] |
//!
//! All of them need a tokio runtime with time and IO enabled, and root. [`node::NodeConfig`] carries the settings;
//! its `compat` decides between Palisade's extensions (the default) and a release of the kubelet (`--emulate-kubernetes`).
//!
//! # Where Palisade's extensions differ from kubelet v1.31
//!
//! | | designs (default) | `--emulate-kubernetes v1.31` |
//! | --- | --- | --- |
//! | AppArmor requested, host has none | pod Blocked, tried again | pod Failed |
//! | profile missing, invalid, not loaded | retried by restart policy with back-off; `Never` fails the pod | retried every 10 s, whatever the policy |
//! | Localhost seccomp profile | read below the folder only, checked, handed over as a sealed copy, hash in the status | path handed over unlooked at |
//! | AppArmor profile not loaded | found by the node | found by the runtime |
//! | ConfigMap profiles | behind the gate `SeccompConfigMaps` | `unknown seccomp profile option` |
//! | seccomp annotations | honoured below the fields | ignored |
//!
//! # How it works
//!
//! Each pod has a [worker](runner::worker) that looks at what the runtime has ([`runner::observed`]), decides
//! ([`runner::plan`], pure), acts, and reports ([`runner::status`], pure). Everything needed after a restart is in labels
//! and annotations of sandboxes and containers, so an agent that was killed adopts its pods by looking.
#![deny(unsafe_code)]

pub mod agent;
pub mod api;
pub mod app_armor;
pub mod cri;
pub mod events;
pub mod guards;
pub mod kernel;
pub mod kubelet;
pub mod lifecycle;
pub mod logs;
pub mod node;
pub mod node_object;
pub mod nri;
pub mod pod;
pub mod profiles;
pub mod reach;
pub mod recording;
pub mod run;
pub mod runner;
pub mod streams;
pub mod verify;
pub mod volumes;
