//! Validation of volumes.

use palisade_base::field_path::Path;
use serde_json::Value;

use super::validate::Context;
use crate::kinds::certificates::{longest_certificate, validate_signer_name};
use crate::rest::names;
use crate::rest::path::{Errors, Get};

/// Volume sources in upstream's order; the first one set is checked, every further one is refused.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// A volume that may be mounted.
pub(super) struct Known<'v> {
    pub(super) name: &'v str,
    /// Block devices need a claim.
    pub(super) is_claim: bool,
}

/// Checks volumes and returns those that may be mounted.
pub(super) fn validate<'v>(
    volumes: &'v [Value],
    at: &Path<'_>,
    context: Context<'_>,
    errors: &mut Errors,
) -> Vec<Known<'v>> {
    let mut known: Vec<Known<'v>> = Vec::with_capacity(volumes.len());
    for (i, volume) in volumes.iter().enumerate() {
        let at = at.index(i);
        let before = errors.list.len();
        validate_source(volume, &at, errors);
        let name = volume.text("name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else {
            errors.format(&at.field("name"), name, names::dns1123_label(name));
        }
        if known.iter().any(|k| k.name == name) {
            errors.duplicate(&at.field("name"), name);
        }
        if errors.list.len() == before {
            let is_claim =
                volume.child("persistentVolumeClaim").is_some() || volume.child("ephemeral").is_some();
            known.push(Known { name, is_claim });
        }
        let claim = volume.child("persistentVolumeClaim").map_or("", |c| c.text("claimName"));
        let created = volumes.iter().any(|v| {
            v.child("ephemeral").is_some()
                && !context.pod_name.is_empty()
                && claim.strip_prefix(context.pod_name).and_then(|r| r.strip_prefix('-'))
                    == Some(v.text("name"))
        });
        if created {
            errors.invalid(
                &at.field("persistentVolumeClaim").field("claimName"),
                claim,
                "must not reference a PVC that gets created for an ephemeral volume",
            );
        }
    }
    known
}

fn validate_source(volume: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut found = false;
    for source_name in SOURCES {
        let Some(source) = volume.child(source_name) else { continue };
        if found {
            errors.forbidden(&at.field(source_name), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        let at = at.field(source_name);
        match *source_name {
            "emptyDir" => {
                let negative = source
                    .get("sizeLimit")
                    .and_then(Value::as_str)
                    .and_then(|t| palisade_base::quantity::Quantity::parse(t).ok())
                    .is_some_and(palisade_base::quantity::Quantity::is_negative);
                if negative {
                    errors.forbidden(
                        &at.field("sizeLimit"),
                        "SizeLimit field must be a valid resource quantity",
                    );
                }
            }
            "hostPath" => validate_host_path(source, &at, errors),
            "secret" => {
                if source.text("secretName").is_empty() {
                    errors.required(&at.field("secretName"), "");
                }
                validate_files(source, &at, errors);
            }
            "configMap" => {
                if source.text("name").is_empty() {
                    errors.required(&at.field("name"), "");
                }
                validate_files(source, &at, errors);
            }
            "persistentVolumeClaim" if source.text("claimName").is_empty() => {
                errors.required(&at.field("claimName"), "");
            }
            "nfs" => {
                if source.text("server").is_empty() {
                    errors.required(&at.field("server"), "");
                }
                let path = source.text("path");
                if path.is_empty() {
                    errors.required(&at.field("path"), "");
                }
                if !path.starts_with('/') {
                    errors.invalid(&at.field("path"), path, "must be an absolute path");
                }
            }
            "downwardAPI" => {
                validate_mode(source, "defaultMode", &at, errors);
                for item in source.list("items") {
                    validate_downward_file(item, &at, errors);
                }
            }
            "projected" => validate_projected(source, &at, errors),
            "csi" => {
                let driver = source.text("driver");
                if driver.is_empty() {
                    errors.required(&at.field("driver"), "");
                } else {
                    if driver.len() > 63 {
                        errors.too_long(&at.field("driver"), 63);
                    }
                    errors.format(
                        &at.field("driver"),
                        driver,
                        names::dns1123_subdomain(&driver.to_lowercase()),
                    );
                }
            }
            "ephemeral" if source.child("volumeClaimTemplate").is_none() => {
                errors.required(&at.field("volumeClaimTemplate"), "");
            }
            "image" if source.text("reference").is_empty() => {
                errors.required(&at.field("reference"), "");
            }
            "gitRepo" => {
                if source.text("repository").is_empty() {
                    errors.required(&at.field("repository"), "");
                }
                super::containers::validate_descending_path(
                    source.text("directory"),
                    &at.field("directory"),
                    errors,
                );
            }
            _ => {}
        }
    }
    if !found {
        errors.required(at, "must specify a volume type");
    }
}

fn validate_host_path(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] = &[
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    let path = source.text("path");
    if path.is_empty() {
        errors.required(&at.field("path"), "");
        return;
    }
    if path.split('/').any(|part| part == "..") {
        errors.invalid(&at.field("path"), path, "must not contain '..'");
    }
    let kind = source.text("type");
    if !TYPES.contains(&kind) {
        errors.not_supported(&at.field("type"), kind, TYPES);
    }
}

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

fn validate_mode(owner: &Value, field: &str, at: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = owner.int(field).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(&at.field(field), mode, MODE);
    }
}

fn validate_files(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_mode(source, "defaultMode", at, errors);
    for (i, item) in source.list("items").iter().enumerate() {
        validate_key_to_path(item, &at.field("items").index(i), errors);
    }
}

fn validate_key_to_path(item: &Value, at: &Path<'_>, errors: &mut Errors) {
    if item.text("key").is_empty() {
        errors.required(&at.field("key"), "");
    }
    let path = item.text("path");
    if path.is_empty() {
        errors.required(&at.field("path"), "");
    }
    validate_local_path(path, &at.field("path"), errors);
    validate_mode(item, "mode", at, errors);
}

fn validate_local_path(path: &str, at: &Path<'_>, errors: &mut Errors) {
    super::containers::validate_descending_path(path, at, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.invalid(at, path, "must not start with '..'");
    }
}

fn validate_downward_file(item: &Value, at: &Path<'_>, errors: &mut Errors) {
    let path = item.text("path");
    if path.is_empty() {
        errors.required(&at.field("path"), "");
    }
    validate_local_path(path, &at.field("path"), errors);
    match (item.child("fieldRef"), item.child("resourceFieldRef")) {
        (Some(_), Some(_)) => {
            errors.invalid(
                at,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
        (None, None) => errors.required(at, "one of fieldRef and resourceFieldRef is required"),
        (Some(field), None) => {
            if field.text("fieldPath").is_empty() {
                errors.required(&at.field("fieldRef").field("fieldPath"), "");
            }
        }
        (None, Some(resource)) => {
            let at = at.field("resourceFieldRef");
            if resource.text("containerName").is_empty() {
                errors.required(&at.field("containerName"), "");
            } else if resource.text("resource").is_empty() {
                errors.required(&at.field("resource"), "");
            }
        }
    }
    validate_mode(item, "mode", at, errors);
}

fn validate_projected(source: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_mode(source, "defaultMode", at, errors);
    let mut paths: Vec<&str> = Vec::new();
    for (i, projection) in source.list("sources").iter().enumerate() {
        let sources = at.field("sources");
        let here = sources.index(i);
        let mut count = 0;
        for kind in ["secret", "configMap"] {
            let Some(files) = projection.child(kind) else { continue };
            count += 1;
            let files_at = here.field(kind);
            if files.text("name").is_empty() {
                errors.required(&files_at.field("name"), "");
            }
            for (j, item) in files.list("items").iter().enumerate() {
                validate_key_to_path(item, &files_at.field("items").index(j), errors);
                let path = item.text("path");
                if !path.is_empty() {
                    if paths.contains(&path) {
                        errors.invalid(at, files.text("name"), "conflicting duplicate paths");
                    }
                    paths.push(path);
                }
            }
        }
        if let Some(api) = projection.child("downwardAPI") {
            count += 1;
            for item in api.list("items") {
                validate_downward_file(item, &here.field("downwardAPI"), errors);
                claim_path(item.text("path"), at, &mut paths, errors);
            }
        }
        if let Some(token) = projection.child("serviceAccountToken") {
            count += 1;
            let token_at = here.field("serviceAccountToken");
            let seconds = token.int("expirationSeconds").unwrap_or(0);
            if seconds < 600 {
                errors.invalid(
                    &token_at.field("expirationSeconds"),
                    seconds,
                    "may not specify a duration less than 10 minutes",
                );
            }
            if seconds > 1 << 32 {
                errors.invalid(
                    &token_at.field("expirationSeconds"),
                    seconds,
                    "may not specify a duration larger than 2^32 seconds",
                );
            }
            let path = token.text("path");
            if path.is_empty() {
                errors.required(&at.field("path"), "");
            } else if errors.version.at_least(LOCAL_TOKEN_PATHS_SINCE) {
                validate_local_path(path, &at.field("path"), errors);
            }
        }
        if let Some(bundle) = projection.child("clusterTrustBundle") {
            count += 1;
            validate_trust_bundle(bundle, &here.field("clusterTrustBundlePEM"), errors);
            claim_path(bundle.text("path"), at, &mut paths, errors);
        }
        if let Some(certificate) = projection.child("podCertificate") {
            count += 1;
            validate_pod_certificate(certificate, &here.field("podCertificate"), errors);
            for field in CERTIFICATE_PATHS {
                claim_path(certificate.text(field), at, &mut paths, errors);
            }
        }
        if count == 0 && errors.version.at_least(23) {
            errors.required(&here, "must specify a volume type");
        }
        if count > 1 {
            errors.forbidden(&here, "may not specify more than 1 volume type");
        }
    }
}

/// A file of a projected volume belongs to one source.
fn claim_path<'v>(path: &'v str, at: &Path<'_>, paths: &mut Vec<&'v str>, errors: &mut Errors) {
    if path.is_empty() {
        return;
    }
    if paths.contains(&path) {
        errors.invalid(at, path, "conflicting duplicate paths");
    }
    paths.push(path);
}

/// The first release that rejects a token outside its volume; earlier ones leave it to the kubelet.
const LOCAL_TOKEN_PATHS_SINCE: u16 = 32;

fn validate_trust_bundle(bundle: &Value, at: &Path<'_>, errors: &mut Errors) {
    let is_given = |field: &str| bundle.child(field).is_some();
    match (is_given("name"), is_given("signerName")) {
        (true, true) => {
            errors.invalid(at, bundle.to_string(), "only one of name and signerName may be used");
        }
        (true, false) => {
            let name = bundle.text("name");
            if name.is_empty() {
                errors.required(&at.field("name"), "must be a valid object name");
            }
            // The name of a signer's bundle begins with the signer, `:` for `/`.
            for part in name.split(':') {
                for message in names::dns1123_subdomain(part) {
                    let why = format!("not a valid clustertrustbundlename: {message}");
                    errors.invalid(&at.field("name"), name, why);
                }
            }
            if is_given("labelSelector") {
                let why = "labelSelector must be unset if name is specified";
                errors.invalid(&at.field("labelSelector"), bundle["labelSelector"].to_string(), why);
            }
        }
        (false, true) => {
            validate_signer_name(&at.field("signerName"), bundle.text("signerName"), errors);
        }
        (false, false) => errors.required(at, "either name or signerName must be specified"),
    }
    let path = bundle.text("path");
    if path.is_empty() {
        errors.required(&at.field("path"), "");
    }
    validate_local_path(path, &at.field("path"), errors);
}

/// The files that a certificate of a pod is written to.
const CERTIFICATE_PATHS: [&str; 3] = ["credentialBundlePath", "keyPath", "certificateChainPath"];
const KEY_TYPES: &[&str] = &["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096"];

fn validate_pod_certificate(certificate: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_signer_name(&at.field("signerName"), certificate.text("signerName"), errors);
    let key = certificate.text("keyType");
    if !KEY_TYPES.contains(&key) {
        errors.not_supported(&at.field("keyType"), key, KEY_TYPES);
    }
    if let Some(seconds) = certificate.int("maxExpirationSeconds").filter(|seconds| *seconds < 3600) {
        let why = "if provided, maxExpirationSeconds must be >= 3600";
        errors.invalid(&at.field("maxExpirationSeconds"), seconds, why);
    }
    let most = longest_certificate(certificate.text("signerName"));
    if let Some(seconds) = certificate.int("maxExpirationSeconds").filter(|seconds| *seconds > most) {
        let why = format!("if provided, maxExpirationSeconds must be <= {most}");
        errors.invalid(&at.field("maxExpirationSeconds"), seconds, why);
    }
    let given = CERTIFICATE_PATHS.map(|field| (field, certificate.text(field)));
    for (field, path) in given.iter().filter(|(_, path)| !path.is_empty()) {
        validate_local_path(path, &at.field(field), errors);
    }
    if given.iter().all(|(_, path)| path.is_empty()) {
        errors
            .required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}

#[cfg(test)]
mod tests {
    use palisade_base::version::{KubeVersion, NEWEST_MINOR};
    use serde_json::json;

    use super::*;

    fn problems(minor: u16, source: &Value) -> Vec<String> {
        let mut errors = Errors::new(KubeVersion::v1(minor));
        let projected = json!({"sources": [source, {"configMap": {"name": "m", "items": [{"key": "k", "path": "taken"}]}}]});
        validate_projected(&projected, &Path::Root("projected"), &mut errors);
        errors.list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_file_of_a_projected_volume_stays_in_it() {
        let bundle = |path: &str| json!({"clusterTrustBundle": {"name": "a", "path": path}});
        let lived = |signer: &str, seconds: i64| {
            json!({"podCertificate": {"signerName": signer, "keyType": "ED25519", "keyPath": "a",
                "maxExpirationSeconds": seconds}})
        };
        let certificate = |field: &str, path: &str| json!({"podCertificate": {"signerName": "a.example/b", "keyType": "ED25519", field: path}});
        let token = |path: &str| json!({"serviceAccountToken": {"path": path, "expirationSeconds": 600}});
        for source in [
            bundle("a/b"),
            token("a/b"),
            certificate("credentialBundlePath", "a"),
            certificate("keyPath", "b"),
            lived("a.example/b", 91 * 86_400),
            lived("kubernetes.io/b", 86_400),
        ] {
            assert_eq!(problems(NEWEST_MINOR, &source), [""; 0], "{source}");
        }
        for path in ["../x", "/x", "a/../../x", "..x", "a//../.."] {
            let mut sources = vec![bundle(path), token(path)];
            sources.extend(CERTIFICATE_PATHS.map(|field| certificate(field, path)));
            for source in sources {
                assert!(!problems(NEWEST_MINOR, &source).is_empty(), "{source}");
            }
        }
        assert_eq!(problems(24, &token("../x")), [""; 0], "the kubelet of that release rejects it");
        let projections = [
            ("a file of another source", bundle("taken")),
            ("a file of another source", certificate("keyPath", "taken")),
            ("no path", json!({"clusterTrustBundle": {"name": "a"}})),
            ("no bundle", json!({"clusterTrustBundle": {"path": "a"}})),
            (
                "two bundles",
                json!({"clusterTrustBundle": {"name": "a", "signerName": "a.example/b", "path": "a"}}),
            ),
            ("another resource", json!({"clusterTrustBundle": {"name": "../../secrets/x", "path": "a"}})),
            ("no signer", json!({"clusterTrustBundle": {"signerName": "x", "path": "a"}})),
            ("no file", json!({"podCertificate": {"signerName": "a.example/b", "keyType": "ED25519"}})),
            (
                "no key",
                json!({"podCertificate": {"signerName": "a.example/b", "keyType": "DSA", "keyPath": "a"}}),
            ),
            ("too short", lived("a.example/b", 3599)),
            ("too long", lived("a.example/b", 91 * 86_400 + 1)),
            ("too long for a signer of Kubernetes", lived("kubernetes.io/b", 86_401)),
            (
                "two sources",
                json!({"clusterTrustBundle": {"name": "a", "path": "a"}, "secret": {"name": "s"}}),
            ),
        ];
        for (case, source) in projections {
            assert!(!problems(NEWEST_MINOR, &source).is_empty(), "{case}: {source}");
        }
    }
}
