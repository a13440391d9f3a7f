//! The agent beside a kubelet, on a real cluster.
//!
//! The kubelet runs the pods; this one publishes ConfigMap profiles where the kubelet finds them, reports what the node
//! supports, and compares running containers with what their pods declare. Profiles are files named by their content,
//! `<root-dir>/seccomp/palisade/<sha256>.json`, on a tmpfs: written whole, read-only, never changed, and gone when no pod of
//! the node refers to them. The webhook has rewritten `ConfigMap` references to these names.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::Future,
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::StreamExt as _;
use palisade_model::{effective::effective_contexts, pod_view::PodView, profile::ProfileRef};
use rustix::mount::{MountFlags, mount};
use tracing::warn;

use crate::{
    api::{PodChange, PodSource},
    events::EventType,
    node::Node,
    node_object,
    pod::RunPod,
    profiles::{check_document, sha256_hex},
    verify::verify_pod,
};

/// The folder below `<root-dir>/seccomp` that belongs to us.
pub const FOLDER: &str = "palisade";

/// How often running containers are compared with their pods.
const VERIFY_EVERY: Duration = Duration::from_mins(1);

/// The path, below the seccomp folder, of a profile with this hash.
#[must_use]
pub fn published_name(hash: &str) -> String {
    format!("{FOLDER}/{hash}.json")
}

/// The hash in a published path; `None` for any other path.
#[must_use]
pub fn published_hash(path: &str) -> Option<&str> {
    let hash = path.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".json")?;
    let is_hash = hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hash.then_some(hash)
}

/// Profiles on a tmpfs, by content.
#[derive(Debug)]
pub struct PublishedProfiles {
    folder: PathBuf,
}

impl PublishedProfiles {
    /// The folder, mounted as a tmpfs unless it is one already.
    pub fn mount(seccomp_root: &Path) -> io::Result<Self> {
        let folder = seccomp_root.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let on_tmpfs = rustix::fs::statfs(&folder)?.f_type == 0x0102_1994;
        if !on_tmpfs {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("palisade", &folder, "tmpfs", flags, c"mode=0755,size=64m")?;
        }
        Ok(Self { folder })
    }

    /// Writes a profile, if it is not there yet; its hash.
    pub fn publish(&self, content: &[u8]) -> io::Result<String> {
        let hash = sha256_hex(content);
        let path = self.folder.join(format!("{hash}.json"));
        if fs::read(&path).is_ok_and(|found| found == content) {
            return Ok(hash);
        }
        let fresh = self.folder.join(format!(".{}", uuid::Uuid::new_v4().simple()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(&fresh)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(0o444))?;
        // A reader sees all of it or nothing.
        fs::rename(&fresh, &path)?;
        Ok(hash)
    }

    /// Removes what nobody refers to.
    pub fn keep(&self, wanted: &BTreeSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !wanted.contains(name.strip_suffix(".json").unwrap_or(&name)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// The hashes that a pod's containers refer to.
#[must_use]
pub fn wanted_hashes(pod: &RunPod, node: &Node) -> BTreeSet<String> {
    let Ok(model) = pod.model() else { return BTreeSet::new() };
    effective_contexts(&PodView::of_pod(&model), &node.config.compat)
        .iter()
        .filter_map(|context| match &context.seccomp.profile {
            Ok(ProfileRef::Localhost(path)) => published_hash(path).map(str::to_owned),
            _ => None,
        })
        .collect()
}

/// Publishes, reports and verifies until `shutdown`.
pub async fn run(node: Node, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let published = PublishedProfiles::mount(node.config.profile_folder().root())?;
    let mut pods: BTreeMap<String, RunPod> = BTreeMap::new();
    let mut changes = node.source.pods();
    let mut verify = tokio::time::interval(VERIFY_EVERY);
    verify.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            change = changes.next() => {
                let Some(change) = change else { return Ok(()) };
                take(&mut pods, change);
                publish(&node, &published, &pods).await;
            }
            _ = verify.tick() => {
                report_features(&node).await;
                publish(&node, &published, &pods).await;
                for pod in pods.values() {
                    alarm_on_drift(&node, pod).await;
                }
            }
        }
    }
}

fn take(pods: &mut BTreeMap<String, RunPod>, change: PodChange) {
    let mut put = |object| match RunPod::from_object(object) {
        Ok(pod) => drop(pods.insert(pod.key.uid.clone(), pod)),
        Err(error) => warn!(%error, "pod not understood"),
    };
    match change {
        PodChange::All(objects) => {
            let present: BTreeSet<_> = objects
                .iter()
                .filter_map(|object| object.pointer("/metadata/uid")?.as_str().map(str::to_owned))
                .collect();
            objects.into_iter().for_each(&mut put);
            pods.retain(|uid, _| present.contains(uid));
        }
        PodChange::Applied(object) => put(object),
        PodChange::Gone { uid } => drop(pods.remove(&uid)),
    }
}

/// Finds every profile that a pod of this node waits for, in a ConfigMap of the pod's own namespace.
async fn publish(node: &Node, published: &PublishedProfiles, pods: &BTreeMap<String, RunPod>) {
    let mut wanted = BTreeSet::new();
    for pod in pods.values() {
        for hash in wanted_hashes(pod, node) {
            let there = published.folder.join(format!("{hash}.json")).exists();
            if !there && let Err(why) = find_and_publish(node.source.as_ref(), published, pod, &hash).await {
                let text = format!("seccomp profile {}: {why}", published_name(&hash));
                node.recorder.say(&pod.key, "", EventType::Warning, "SeccompProfileMissing", &text);
            }
            wanted.insert(hash);
        }
    }
    if let Err(error) = published.keep(&wanted) {
        warn!(%error, "old profiles not removed");
    }
}

async fn find_and_publish(
    source: &dyn PodSource,
    published: &PublishedProfiles,
    pod: &RunPod,
    hash: &str,
) -> Result<(), String> {
    let maps = source.config_maps(&pod.key.namespace).await.map_err(|error| error.to_string())?;
    let text = maps
        .iter()
        .flat_map(|map| map.data.values())
        .find(|text| sha256_hex(text.as_bytes()) == hash)
        .ok_or_else(|| format!("no ConfigMap in namespace {:?} holds it", pod.key.namespace))?;
    check_document(text).map_err(|error| error.to_string())?;
    published.publish(text.as_bytes()).map_err(|error| error.to_string())?;
    Ok(())
}

async fn report_features(node: &Node) {
    node.refresh_features().await;
    let labels = node_object::labels(&node.features(), true);
    if let Err(error) = node.source.label_node(&node.config.node_name, labels).await {
        warn!(%error, "node not labelled");
    }
}

async fn alarm_on_drift(node: &Node, pod: &RunPod) {
    let source = node.source.as_ref();
    match verify_pod(&node.config, &node.runtime, Some(source), pod).await {
        Ok(report) => {
            for container in &report.containers {
                for row in container.rows.iter().filter(|row| !row.ok) {
                    let because = row.note.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
                    let text = format!(
                        "container {}: {} is {} where the pod declares {}{because}",
                        container.container, row.check, row.kernel, row.declared
                    );
                    node.recorder.say(&pod.key, "", EventType::Warning, "SecurityDrift", &text);
                }
            }
        }
        Err(error) => warn!(%error, pod = %pod.key, "not verified"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_ours() {
        let hash = "a".repeat(64);
        assert_eq!(published_hash(&published_name(&hash)), Some(hash.as_str()));
        for path in [
            "palisade/x.json",
            "other/a.json",
            &format!("palisade/../{hash}.json"),
            &format!("palisade/{hash}"),
        ] {
            assert_eq!(published_hash(path), None, "{path}");
        }
    }

    #[test]
    fn files_are_named_by_content_and_cannot_be_written() {
        let temp = tempfile::tempdir().unwrap();
        let published = PublishedProfiles { folder: temp.path().to_owned() };
        let hash = published.publish(b"{}").unwrap();
        assert_eq!(published.publish(b"{}").unwrap(), hash, "publishing again changes nothing");
        let path = temp.path().join(format!("{hash}.json"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
        assert_eq!(fs::read(&path).unwrap(), b"{}");
        let other = published.publish(b"[]").unwrap();
        published.keep(&BTreeSet::from([other.clone()])).unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
