//! An OCI image layout in one archive: an index of images, one for each architecture, and their SBOMs.
//!
//! Implements: OCI Image Format Specification v1.1, "Image Layout", "Guidelines for Artifact Usage". An SBOM refers to its image by
//! `subject`, as a registry's referrers API lists it.

use std::{collections::BTreeMap, io::Write as _};

use flate2::{Compression, write::GzEncoder};
use palisade_base::sha256;
use serde_json::{Value, json};

use super::layer::{Entry, layer};

/// The image of one architecture.
pub(super) struct Platform {
    pub(super) architecture: &'static str,
    /// Uncompressed.
    pub(super) layer: Vec<u8>,
    /// A CycloneDX document.
    pub(super) sbom: Vec<u8>,
}

const SBOM: &str = "application/vnd.cyclonedx+json";

/// Contents by their digests.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Keeps a content and returns its descriptor.
    fn put(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let digest = sha256::hex(&content);
        let descriptor =
            json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": content.len()});
        self.0.insert(digest, content);
        descriptor
    }

    fn put_json(&mut self, media_type: &str, content: &Value) -> Value {
        self.put(media_type, content.to_string().into_bytes())
    }
}

/// The archive, and the digest of the image.
pub(super) fn archive(
    name: &str,
    platforms: &[Platform],
    details: &Value,
    compress: bool,
) -> (Vec<u8>, String) {
    let mut blobs = Blobs::default();
    let annotations = &details["config"]["Labels"];
    let (mut images, mut referrers) = (Vec::new(), Vec::new());
    for platform in platforms {
        let image = image(&mut blobs, platform, details, compress);
        referrers.push(attach_sbom(&mut blobs, platform, &image, annotations));
        images.push(image);
    }
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": images, "annotations": annotations});
    let mut index = blobs.put_json("application/vnd.oci.image.index.v1+json", &index);
    let digest = index["digest"].as_str().unwrap_or_default().to_owned();
    index["annotations"] =
        json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
    let manifests: Vec<_> = std::iter::once(index).chain(referrers).collect();
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests});
    let mut entries = vec![
        Entry::file("index.json", 0o644, index.to_string().into_bytes()),
        Entry::file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
    ];
    let blobs = blobs.0.into_iter();
    entries.extend(
        blobs.map(|(digest, content)| Entry::file(&format!("blobs/sha256/{digest}"), 0o644, content)),
    );
    (layer(&entries, 0), digest)
}

/// The descriptor of one architecture's image.
fn image(blobs: &mut Blobs, platform: &Platform, details: &Value, compress: bool) -> Value {
    let unpacked = format!("sha256:{}", sha256::hex(&platform.layer));
    let (kind, content) = match compress.then(|| gzip(&platform.layer)).flatten() {
        Some(packed) => ("application/vnd.oci.image.layer.v1.tar+gzip", packed),
        None => ("application/vnd.oci.image.layer.v1.tar", platform.layer.clone()),
    };
    let layer = blobs.put(kind, content);
    let mut config = details.clone();
    config["architecture"] = platform.architecture.into();
    config["os"] = "linux".into();
    config["rootfs"] = json!({"type": "layers", "diff_ids": [unpacked]});
    config["history"] = json!([{"created": details["created"], "created_by": "cargo xtask image"}]);
    let config = blobs.put_json("application/vnd.oci.image.config.v1+json", &config);
    let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config, "layers": [layer], "annotations": details["config"]["Labels"]});
    let mut descriptor = blobs.put_json("application/vnd.oci.image.manifest.v1+json", &manifest);
    descriptor["platform"] = json!({"architecture": platform.architecture, "os": "linux"});
    descriptor
}

/// The descriptor of a manifest with the SBOM, whose subject is the image.
fn attach_sbom(blobs: &mut Blobs, platform: &Platform, image: &Value, annotations: &Value) -> Value {
    let mut subject = image.clone();
    if let Some(subject) = subject.as_object_mut() {
        subject.remove("platform");
    }
    let empty = blobs.put("application/vnd.oci.empty.v1+json", b"{}".to_vec());
    let sbom = blobs.put(SBOM, platform.sbom.clone());
    let created = &annotations["org.opencontainers.image.created"];
    let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": SBOM, "config": empty, "layers": [sbom], "subject": subject,
        "annotations": {"org.opencontainers.image.created": created}});
    let mut descriptor = blobs.put_json("application/vnd.oci.image.manifest.v1+json", &manifest);
    descriptor["artifactType"] = SBOM.into();
    descriptor
}

/// Without a time or a name in its header. Nothing if a vector cannot be written, which does not happen.
fn gzip(content: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).ok()?;
    encoder.finish().ok()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs, path::Path, process::Command};

    use palisade_base::sha256;
    use serde_json::{Value, json};

    use super::{Platform, archive};

    fn platform(architecture: &'static str) -> Platform {
        let content = architecture.as_bytes();
        Platform { architecture, layer: content.repeat(1000), sbom: [b"sbom ", content].concat() }
    }

    fn made(compress: bool) -> (Vec<u8>, String) {
        let details = json!({"created": "1970-01-02T00:00:00Z", "config": {"User": "65532:65532",
            "Labels": {"org.opencontainers.image.title": "palisade"}}});
        archive("palisade:1", &[platform("amd64"), platform("arm64")], &details, compress)
    }

    fn follow(blobs: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> Vec<u8> {
        let content = &blobs[descriptor["digest"].as_str().unwrap().trim_start_matches("sha256:")];
        assert_eq!(descriptor["size"], content.len());
        content.clone()
    }

    #[test]
    fn every_descriptor_leads_to_its_content_and_an_sbom_to_its_image() {
        for compress in [false, true] {
            let (bytes, digest) = made(compress);
            assert!(made(compress).0 == bytes, "made twice, different");
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("image.tar");
            fs::write(&path, bytes).unwrap();
            let unpacked = Command::new("tar").arg("-C").arg(folder.path()).arg("-xf").arg(&path).status();
            assert!(unpacked.unwrap().success());
            let mut blobs = BTreeMap::new();
            for entry in fs::read_dir(folder.path().join("blobs/sha256")).unwrap() {
                let entry = entry.unwrap();
                let content = fs::read(entry.path()).unwrap();
                assert_eq!(entry.file_name().to_str().unwrap(), sha256::hex(&content));
                blobs.insert(sha256::hex(&content), content);
            }
            let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
            let read = |path: &Path| json(&fs::read(path).unwrap());
            let index = read(&folder.path().join("index.json"));
            assert_eq!(index["manifests"][0]["digest"], digest);
            let images = json(&follow(&blobs, &index["manifests"][0]));
            for (number, architecture) in ["amd64", "arm64"].iter().enumerate() {
                let image = &images["manifests"][number];
                assert_eq!(image["platform"], json!({"architecture": architecture, "os": "linux"}));
                let manifest = json(&follow(&blobs, image));
                let config = json(&follow(&blobs, &manifest["config"]));
                assert_eq!(config["config"]["User"], "65532:65532");
                let layer = platform(architecture).layer;
                assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256::hex(&layer)));
                assert_eq!(follow(&blobs, &manifest["layers"][0]) == layer, !compress);
                let referrer = json(&follow(&blobs, &index["manifests"][number + 1]));
                assert_eq!(referrer["subject"]["digest"], image["digest"]);
                let sbom = follow(&blobs, &referrer["layers"][0]);
                assert_eq!(sbom, format!("sbom {architecture}").as_bytes());
            }
        }
    }
}
