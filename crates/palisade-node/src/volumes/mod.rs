//! The volumes of a pod: folders and files below the pod's own folder on the node.
//!
//! Implements: `emptyDir`, `configMap`, `secret`, `downwardAPI`, `projected` and `hostPath` of the Kubernetes API, with
//! `fsGroup` ownership (pod-security-context proposal, and `pkg/volume/volume_linux.go`). Secrets and tokens live on a
//! tmpfs. Volumes that need a driver are refused in words.

pub mod files;
pub mod host;
mod pod_certificates;
mod trust_bundles;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Gid, chownat},
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use serde_json::Value;

use crate::{
    api::PodSource,
    pod::{RunPod, VolumeMount},
    runner::environment::{ReferenceError, Surroundings},
};

pub use pod_certificates::PodCertificates;

/// Where a volume is on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostVolume {
    /// The folder, file or device.
    pub path: PathBuf,
    /// Whether it can only be read, whatever the mount has.
    pub read_only: bool,
}

/// Why a pod has to wait for a volume; the text is the message of the event.
#[derive(Debug, thiserror::Error)]
#[error("MountVolume.SetUp failed for volume {volume:?} : {reason}")]
pub struct VolumeError {
    /// The volume's name.
    pub volume: String,
    /// What is missing.
    pub reason: VolumeProblem,
}

/// What is wrong with a volume, in the kubelet's words where it has any.
#[derive(Debug, thiserror::Error)]
pub enum VolumeProblem {
    /// The name would lead out of the folder of volumes.
    #[error("its name is not one path element")]
    Name,
    /// The object behind it cannot be had.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The object is there, a key that the volume names is not.
    #[error("references non-existent {owner} key: {key}")]
    NoKey {
        /// `config` or `secret`.
        owner: &'static str,
        /// What it does not have.
        key: String,
    },
    /// There is no such ClusterTrustBundle.
    #[error("clustertrustbundle {0:?} not found")]
    NoTrustBundle(String),
    /// A signer has no ClusterTrustBundle with such labels.
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoTrustBundleSelected,
    /// The signer has not issued the certificate of the pod.
    #[error("credential bundle is not issued yet")]
    CertificatePending,
    /// The signer does not issue it.
    #[error("{0}")]
    CertificateRefused(String),
    /// A type of keys that this node does not make.
    #[error("this node does not make keys of type {0:?}")]
    KeyType(String),
    /// A key or a request could not be made.
    #[error("cannot make a key: {0}")]
    Key(#[from] rcgen::Error),
    /// A source of a projected volume that this node does not make.
    #[error("projected volumes with the source {0} are not supported by this node")]
    UnsupportedSource(String),
    /// A path of the node that is relative or climbs.
    #[error("hostPath {0:?} is not an absolute path without '..'")]
    HostPath(String),
    /// What is on the node is of another type.
    #[error("hostPath type check failed: {path} is not {what}")]
    HostPathType {
        /// On the node.
        path: String,
        /// The type that was expected.
        what: &'static str,
    },
    /// The API has no such type.
    #[error("unknown hostPath type {0:?}")]
    UnknownHostPathType(String),
    /// A part of a volume that is not in it.
    #[error("subPath {0:?} leaves the volume")]
    SubPathOutside(String),
    /// A type of volume that this node does not make.
    #[error("volumes of type {0} are not supported by this node")]
    Unsupported(String),
    /// An `emptyDir` on something that does not exist.
    #[error("unknown storage medium {0:?}")]
    Medium(String),
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for VolumeProblem {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Makes the volumes of a pod, or brings them up to date. May be repeated; only while the pod is `fresh` does a volume
/// that containers write to change hands.
pub async fn set_up(
    pod: &RunPod,
    folder: &Path,
    source: &dyn PodSource,
    around: &Surroundings<'_>,
    certificates: &mut PodCertificates,
    fresh: bool,
) -> Result<BTreeMap<String, HostVolume>, VolumeError> {
    let fs_group = pod.object.pointer("/spec/securityContext/fsGroup").and_then(Value::as_u64);
    let fs_group = fs_group.and_then(|group| u32::try_from(group).ok());
    let mut volumes = BTreeMap::new();
    for volume in &pod.spec.volumes {
        let Some(name) = volume.get("name").and_then(Value::as_str) else { continue };
        let error = |reason: VolumeProblem| VolumeError { volume: name.to_owned(), reason };
        if !is_plain_name(name) {
            return Err(error(VolumeProblem::Name));
        }
        let made =
            set_up_one(pod, name, volume, folder, source, around, certificates).await.map_err(error)?;
        // The group owns what the node made; the node's own files keep their owners.
        if let Some(group) = fs_group
            && made.path.starts_with(folder)
            && (fresh || made.read_only)
        {
            own_by_group(&made.path, group, made.read_only).map_err(|why| error(why.into()))?;
        }
        volumes.insert(name.to_owned(), made);
    }
    Ok(volumes)
}

async fn set_up_one(
    pod: &RunPod,
    name: &str,
    volume: &Value,
    folder: &Path,
    source: &dyn PodSource,
    around: &Surroundings<'_>,
    certificates: &mut PodCertificates,
) -> Result<HostVolume, VolumeProblem> {
    let below = |kind: &str| folder.join("volumes").join(format!("kubernetes.io~{kind}")).join(name);
    let given = |field: &str| volume.get(field).filter(|value| !value.is_null());
    if let Some(host_path) = given("hostPath") {
        return host::host_path(host_path).map(|path| HostVolume { path, read_only: false });
    }
    if let Some(config_map) = given("configMap") {
        let content = files::config_map(pod, config_map, source).await?;
        let path = below("configmap");
        files::write(&path, &content)?;
        return Ok(HostVolume { path, read_only: true });
    }
    if let Some(secret) = given("secret") {
        let content = files::secret(pod, secret, source).await?;
        let path = below("secret");
        in_memory(&path, None)?;
        files::write(&path, &content)?;
        return Ok(HostVolume { path, read_only: true });
    }
    if let Some(downward) = given("downwardAPI") {
        let content = files::downward_api(pod, downward, around)?;
        let path = below("downward-api");
        files::write(&path, &content)?;
        return Ok(HostVolume { path, read_only: true });
    }
    if let Some(projected) = given("projected") {
        let content = files::projected(pod, name, projected, source, around, certificates).await?;
        let path = below("projected");
        in_memory(&path, None)?;
        files::write(&path, &content)?;
        return Ok(HostVolume { path, read_only: true });
    }
    let others: Vec<&str> = volume
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, value)| *field != "name" && *field != "emptyDir" && !value.is_null())
        .map(|(field, _)| field.as_str())
        .collect();
    if let Some(kind) = others.first() {
        return Err(VolumeProblem::Unsupported((*kind).to_owned()));
    }
    // A volume that names nothing is an emptyDir, as the API server has it.
    let path = below("empty-dir");
    let empty_dir = volume.get("emptyDir");
    let medium = empty_dir.and_then(|empty| empty.get("medium")).and_then(Value::as_str).unwrap_or_default();
    let made = match medium {
        "" => {
            let missing = !path.exists();
            fs::create_dir_all(&path).map(|()| missing)
        }
        "Memory" => {
            let limit =
                empty_dir.and_then(|empty| empty.get("sizeLimit")).and_then(crate::runner::resources::milli);
            in_memory(&path, limit.map(|milli| milli / 1000))
        }
        other => return Err(VolumeProblem::Medium(other.to_owned())),
    };
    // Once: what fsGroup made of it later stays.
    if made? {
        set_mode(&path, 0o777)?;
    }
    Ok(HostVolume { path, read_only: false })
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// A tmpfs at `path`, if there is none yet; whether it was made.
fn in_memory(path: &Path, size: Option<i64>) -> io::Result<bool> {
    fs::create_dir_all(path)?;
    if is_mount_point(path)? {
        return Ok(false);
    }
    let options = size.filter(|&size| size > 0).map(|size| format!("size={size}")).unwrap_or_default();
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    mount("tmpfs", path, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?;
    Ok(true)
}

fn is_mount_point(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let Some(parent) = path.parent() else { return Ok(true) };
    Ok(fs::symlink_metadata(path)?.dev() != fs::symlink_metadata(parent)?.dev())
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Gives a tree to a group: readable, writable unless read-only, and what is made in folders stays the group's.
fn own_by_group(path: &Path, group: u32, read_only: bool) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = fs::symlink_metadata(path)?;
    chownat(CWD, path, None, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mut mode = metadata.permissions().mode() | if read_only { 0o440 } else { 0o660 };
    if metadata.is_dir() {
        mode |= 0o2110;
    }
    set_mode(path, mode)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            own_by_group(&entry?.path(), group, read_only)?;
        }
    }
    Ok(())
}

/// The path on the node that a container's mount shows; `place` is where a part of a volume can be made visible.
pub fn mount_source(
    volume: &HostVolume,
    mount: &VolumeMount,
    place: &Path,
) -> Result<PathBuf, VolumeProblem> {
    if mount.sub_path.is_empty() {
        return Ok(volume.path.clone());
    }
    host::sub_path(&volume.path, &mount.sub_path, place)?;
    Ok(place.to_owned())
}

/// Removes everything the node made for a pod. Folders of the node itself are never entered: what is mounted below is
/// unmounted first, and removing stops at file system borders.
pub fn tear_down(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for point in mount_points_below(&mounts, folder).into_iter().rev() {
        unmount(&point, UnmountFlags::DETACH)?;
    }
    fs::remove_dir_all(folder)
}

fn mount_points_below(mountinfo: &str, folder: &Path) -> Vec<PathBuf> {
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(folder) && point != folder)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::MetadataExt as _, path::Path};

    use serde_json::json;

    use super::*;
    use crate::{
        api::{ConfigMap, local::LocalSource},
        runner::environment::Allocatable,
    };

    fn pod(volumes: &Value, group: Option<u32>) -> RunPod {
        RunPod::from_object(
            json!({"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"volumes": volumes,
            "securityContext": {"fsGroup": group}, "containers": [{"name": "c", "image": "i"}]}}),
        )
        .unwrap()
    }

    fn around() -> Surroundings<'static> {
        Surroundings { node_name: "n", host_ip: "", pod_ips: &[], allocatable: Allocatable::default() }
    }

    #[tokio::test]
    async fn makes_folders_and_files_and_removes_them() {
        let temp = tempfile::tempdir().unwrap();
        let source = LocalSource::default();
        let map = ConfigMap { data: BTreeMap::from([("k".into(), "v".into())]), ..ConfigMap::default() };
        source.put_config_map("default", "m", map);
        let pod = pod(
            &json!([{"name": "e", "emptyDir": {}}, {"name": "m", "configMap": {"name": "m"}},
                {"name": "d", "downwardAPI": {"items": [{"path": "l/a", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]),
            None,
        );
        let folder = temp.path().join("pod");
        for _ in 0..2 {
            let made = set_up(&pod, &folder, &source, &around(), &mut PodCertificates::default(), true)
                .await
                .unwrap();
            assert_eq!(fs::metadata(&made["e"].path).unwrap().mode() & 0o777, 0o777);
            assert_eq!(fs::read_to_string(made["m"].path.join("k")).unwrap(), "v");
            assert_eq!(fs::read_to_string(made["d"].path.join("l/a")).unwrap(), "app=\"x\"");
            assert!(made["m"].read_only && !made["e"].read_only);
        }
        tear_down(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn reports_what_is_missing() {
        let temp = tempfile::tempdir().unwrap();
        let source = LocalSource::default();
        for (volume, reason) in [
            (json!({"name": "v", "configMap": {"name": "no"}}), "configmap \"no\" not found"),
            (
                json!({"name": "v", "nfs": {"server": "x"}}),
                "volumes of type nfs are not supported by this node",
            ),
            (json!({"name": "..", "emptyDir": {}}), "its name is not one path element"),
            (json!({"name": "v", "emptyDir": {"medium": "Gold"}}), "unknown storage medium \"Gold\""),
            (
                json!({"name": "v", "hostPath": {"path": "/no/such", "type": "Directory"}}),
                "hostPath type check failed: /no/such is not a directory",
            ),
        ] {
            let mut certificates = PodCertificates::default();
            let pod = pod(&json!([volume]), None);
            let error =
                set_up(&pod, temp.path(), &source, &around(), &mut certificates, true).await.unwrap_err();
            assert_eq!(error.reason.to_string(), reason, "{volume}");
        }
    }

    #[test]
    fn finds_mounts_below_a_folder_only() {
        let text = "1 0 0:1 / /a rw - t t rw\n2 0 0:1 / /a/b\\040c rw - t t rw\n3 0 0:1 / /ab rw - t t rw\n";
        assert_eq!(mount_points_below(text, Path::new("/a")), [PathBuf::from("/a/b c")]);
    }
}
