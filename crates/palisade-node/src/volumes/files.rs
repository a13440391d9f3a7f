//! Volumes that are files made from objects of the API, written so that a reader never sees half of an update.
//!
//! Implements: the payload rules of `configMap`, `secret`, `downwardAPI` and `projected` volumes, and the kubelet's atomic
//! writer (`pkg/volume/util/atomic_writer.go`): files are links into `..data`, which is swapped as a whole.

use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use serde_json::Value;

use super::{PodCertificates, VolumeProblem, trust_bundles};
use crate::{
    api::PodSource,
    pod::RunPod,
    runner::environment::{ReferenceError, Surroundings, field, resource_field},
};

/// Path inside the volume to content and mode.
pub(super) type Files = BTreeMap<String, (Vec<u8>, u32)>;

const DEFAULT_MODE: u32 = 0o644;

fn mode_of(source: &Value, field: &str) -> Option<u32> {
    source.get(field).and_then(Value::as_u64).and_then(|mode| u32::try_from(mode).ok())
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn is_optional(value: &Value) -> bool {
    value.get("optional").and_then(Value::as_bool) == Some(true)
}

fn items(value: &Value) -> &[Value] {
    value.get("items").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Chooses the keys a volume requests; all of them if it requests none.
fn project(
    data: &BTreeMap<String, Vec<u8>>,
    source: &Value,
    default_mode: u32,
    owner: &'static str,
) -> Result<Files, VolumeProblem> {
    if items(source).is_empty() {
        return Ok(data.iter().map(|(key, value)| (key.clone(), (value.clone(), default_mode))).collect());
    }
    let mut files = Files::new();
    for item in items(source) {
        let key = text(item, "key");
        match data.get(key) {
            Some(value) => {
                let mode = mode_of(item, "mode").unwrap_or(default_mode);
                files.insert(text(item, "path").to_owned(), (value.clone(), mode));
            }
            None if is_optional(source) => {}
            None => return Err(VolumeProblem::NoKey { owner, key: key.to_owned() }),
        }
    }
    Ok(files)
}

/// The files of a `configMap`.
pub(super) async fn config_map(
    pod: &RunPod,
    volume: &Value,
    source: &dyn PodSource,
) -> Result<Files, VolumeProblem> {
    let mode = mode_of(volume, "defaultMode").unwrap_or(DEFAULT_MODE);
    of_config_map(pod, volume, mode, source).await
}

async fn of_config_map(
    pod: &RunPod,
    volume: &Value,
    mode: u32,
    source: &dyn PodSource,
) -> Result<Files, VolumeProblem> {
    let name = text(volume, "name");
    match source.config_map(&pod.key.namespace, name).await.map_err(ReferenceError::Api)? {
        Some(map) => {
            let data = map.data.into_iter().map(|(key, value)| (key, value.into_bytes()));
            project(&data.chain(map.binary_data).collect(), volume, mode, "config")
        }
        None if is_optional(volume) => Ok(Files::new()),
        None => Err(ReferenceError::NoConfigMap(name.to_owned()).into()),
    }
}

/// The files of a `secret`.
pub(super) async fn secret(
    pod: &RunPod,
    volume: &Value,
    source: &dyn PodSource,
) -> Result<Files, VolumeProblem> {
    let mode = mode_of(volume, "defaultMode").unwrap_or(DEFAULT_MODE);
    of_secret(pod, text(volume, "secretName"), volume, mode, source).await
}

async fn of_secret(
    pod: &RunPod,
    name: &str,
    volume: &Value,
    mode: u32,
    source: &dyn PodSource,
) -> Result<Files, VolumeProblem> {
    match source.secret(&pod.key.namespace, name).await.map_err(ReferenceError::Api)? {
        Some(secret) => project(&secret.data, volume, mode, "secret"),
        None if is_optional(volume) => Ok(Files::new()),
        None => Err(ReferenceError::NoSecret(name.to_owned()).into()),
    }
}

/// The files of a `downwardAPI`.
pub(super) fn downward_api(
    pod: &RunPod,
    volume: &Value,
    around: &Surroundings<'_>,
) -> Result<Files, VolumeProblem> {
    let mode = mode_of(volume, "defaultMode").unwrap_or(DEFAULT_MODE);
    of_downward_api(pod, volume, mode, around)
}

fn of_downward_api(
    pod: &RunPod,
    volume: &Value,
    mode: u32,
    around: &Surroundings<'_>,
) -> Result<Files, VolumeProblem> {
    let mut files = Files::new();
    for item in items(volume) {
        let value = if let Some(reference) = item.get("fieldRef").filter(|value| !value.is_null()) {
            let path = text(reference, "fieldPath");
            field(pod, path, around).ok_or_else(|| ReferenceError::FieldPath(path.to_owned()))?
        } else if let Some(reference) = item.get("resourceFieldRef").filter(|value| !value.is_null()) {
            let resource = text(reference, "resource");
            pod.container(text(reference, "containerName"))
                .and_then(|(_, container)| {
                    resource_field(container, resource, text(reference, "divisor"), around.allocatable)
                })
                .ok_or_else(|| ReferenceError::Resource(resource.to_owned()))?
        } else {
            continue;
        };
        files.insert(
            text(item, "path").to_owned(),
            (value.into_bytes(), mode_of(item, "mode").unwrap_or(mode)),
        );
    }
    Ok(files)
}

/// What a `projected` volume is made of.
const SOURCES: [&str; 6] =
    ["configMap", "secret", "downwardAPI", "clusterTrustBundle", "serviceAccountToken", "podCertificate"];

/// The files of a `projected` volume: several sources in one folder.
pub(super) async fn projected(
    pod: &RunPod,
    name: &str,
    volume: &Value,
    source: &dyn PodSource,
    around: &Surroundings<'_>,
    certificates: &mut PodCertificates,
) -> Result<Files, VolumeProblem> {
    let mode = mode_of(volume, "defaultMode").unwrap_or(DEFAULT_MODE);
    let mut files = Files::new();
    let parts = volume.get("sources").and_then(Value::as_array).into_iter().flatten();
    for (index, part) in parts.enumerate() {
        let given = part.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        if let Some((unknown, _)) = given.clone().find(|(kind, _)| !SOURCES.contains(&kind.as_str())) {
            return Err(VolumeProblem::UnsupportedSource(unknown.clone()));
        }
        if let Some(map) = part.get("configMap").filter(|value| !value.is_null()) {
            files.extend(of_config_map(pod, map, mode, source).await?);
        }
        if let Some(secret) = part.get("secret").filter(|value| !value.is_null()) {
            files.extend(of_secret(pod, text(secret, "name"), secret, mode, source).await?);
        }
        if let Some(downward) = part.get("downwardAPI").filter(|value| !value.is_null()) {
            files.extend(of_downward_api(pod, downward, mode, around)?);
        }
        if let Some(bundle) = part.get("clusterTrustBundle").filter(|value| !value.is_null()) {
            let content = trust_bundles::file(bundle, source).await?;
            files.insert(text(bundle, "path").to_owned(), (content, mode));
        }
        if let Some(token) = part.get("serviceAccountToken").filter(|value| !value.is_null()) {
            let account = pod.service_account();
            let audience = token.get("audience").and_then(Value::as_str);
            let seconds = token.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
            let text_of_token = source
                .service_account_token(&pod.key, account, audience, seconds)
                .await
                .map_err(ReferenceError::Api)?;
            files.insert(text(token, "path").to_owned(), (text_of_token.into_bytes(), mode));
        }
        if let Some(wanted) = part.get("podCertificate").filter(|value| !value.is_null()) {
            let credentials = certificates.files(pod, name, index, wanted, source).await?;
            files.extend(credentials.into_iter().map(|(path, content)| (path, (content, mode))));
        }
    }
    Ok(files)
}

/// Writes the files of a volume all at once.
pub(super) fn write(volume: &Path, files: &Files) -> io::Result<()> {
    for path in files.keys() {
        let bad = path.is_empty()
            || path.starts_with('/')
            || path.split('/').any(|part| part == ".." || part == ".");
        if bad || path.starts_with("..") || path.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("invalid path {path:?} in volume"),
            ));
        }
    }
    fs::create_dir_all(volume)?;
    let current = volume.join("..data");
    if fs::exists(&current)? && is_current(&current, files) {
        return Ok(());
    }
    let name = format!("..{}", uuid::Uuid::new_v4().simple());
    let fresh = volume.join(&name);
    fs::create_dir(&fresh)?;
    for (path, (content, mode)) in files {
        let target = fresh.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        // New and closed to others before the content is there; the mode by descriptor.
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&target)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(*mode))?;
    }
    let link = volume.join("..data_tmp");
    fs::remove_file(&link).or_else(ignore_missing)?;
    symlink(&name, &link)?;
    let old = fs::read_link(&current).ok();
    fs::rename(&link, &current)?;
    let tops: std::collections::BTreeSet<&str> =
        files.keys().filter_map(|path| path.split('/').next()).collect();
    for top in &tops {
        let visible = volume.join(top);
        if fs::symlink_metadata(&visible).is_err() {
            symlink(Path::new("..data").join(top), visible)?;
        }
    }
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("..") && !tops.contains(name.as_ref()) {
            fs::remove_file(entry.path())?;
        }
    }
    if let Some(old) = old {
        fs::remove_dir_all(volume.join(old)).or_else(ignore_missing)?;
    }
    Ok(())
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn is_current(folder: &Path, files: &Files) -> bool {
    let same = files
        .iter()
        .all(|(path, (content, _))| fs::read(folder.join(path)).is_ok_and(|found| found == *content));
    same && count_files(folder).is_ok_and(|count| count == files.len())
}

fn count_files(folder: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Files, write};

    fn files(pairs: &[(&str, &str)]) -> Files {
        pairs
            .iter()
            .map(|(path, content)| ((*path).to_owned(), (content.as_bytes().to_vec(), 0o600)))
            .collect()
    }

    #[test]
    fn updates_replace_everything_and_leave_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let volume = temp.path().join("v");
        write(&volume, &files(&[("a", "1"), ("d/b", "2")])).unwrap();
        assert_eq!(fs::read_to_string(volume.join("d/b")).unwrap(), "2");
        write(&volume, &files(&[("a", "3")])).unwrap();
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "3");
        assert!(!volume.join("d").exists());
        let left = fs::read_dir(&volume).unwrap().count();
        assert_eq!(left, 3, "the link, its folder and one file");
        for bad in ["../x", "/x", "a/../b", "", "..x"] {
            assert!(write(&volume, &files(&[(bad, "")])).is_err(), "{bad}");
        }
    }
}
