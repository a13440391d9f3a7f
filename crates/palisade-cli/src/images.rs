//! The users of images, from OCI image layouts on disk (`--image-layout`).
//!
//! Implements: the OCI image layout and image configuration, as far as `config.User` needs them.
//! <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>
//! Every document that is read must have the digest and the size by which it is named. An image for several platforms has the
//! user that decides for all of them: root if it is root on one.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use palisade_base::sha256;
use palisade_check::images::{Images, decisive};
use palisade_model::json;
use palisade_policy::standards::fixes::ImageUser;
use serde::{Deserialize, de::DeserializeOwned};
use thiserror::Error;

use crate::failure::Failure;

/// Indexes, manifests and configurations are small; what is larger is none.
const MAX_BYTES: u64 = 4 << 20;
/// Indexes in indexes; more than two levels are not made by any tool.
const MAX_DEPTH: usize = 4;

/// `[IMAGE=]DIR`: a layout, and the image that it holds where it does not say so itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageLayout {
    image: Option<String>,
    folder: PathBuf,
}

impl FromStr for ImageLayout {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('=') {
            Some((image, folder)) => Self { image: Some(image.to_owned()), folder: folder.into() },
            None => Self { image: None, folder: text.into() },
        })
    }
}

/// Why a layout cannot be used.
#[derive(Debug, Error)]
enum LayoutError {
    #[error("cannot read {path}", path = .path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is larger than {} MiB", MAX_BYTES >> 20, path = .path.display())]
    TooLarge { path: PathBuf },
    #[error("{path} is not what an OCI image layout has there", path = .path.display())]
    Invalid {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("{path} does not have the content that its name promises", path = .path.display())]
    WrongDigest { path: PathBuf },
    #[error("{digest:?} is not a sha256 digest")]
    UnknownDigest { digest: String },
    #[error("the indexes of {path} are nested too deeply", path = .path.display())]
    TooDeep { path: PathBuf },
    #[error("{path} holds {found} images, and --image-layout IMAGE={path} is for one", path = .path.display())]
    Ambiguous { path: PathBuf, found: usize },
    #[error("{path} lists an image of which it holds nothing", path = .path.display())]
    Empty { path: PathBuf },
    #[error("no image in {path} has a name: give it as --image-layout IMAGE={path}", path = .path.display())]
    Unnamed { path: PathBuf },
}

#[derive(Debug, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
}

#[derive(Debug, Deserialize)]
struct ImageConfig {
    #[serde(default)]
    config: Option<ContainerConfig>,
}

#[derive(Debug, Default, Deserialize)]
struct ContainerConfig {
    #[serde(default, rename = "User")]
    user: Option<String>,
}

/// The users of the images in layouts.
pub fn of_layouts(layouts: &[ImageLayout]) -> Result<Images, Failure> {
    let mut images = Images::default();
    for layout in layouts {
        add(&mut images, layout).map_err(Failure::input)?;
    }
    Ok(images)
}

fn add(images: &mut Images, layout: &ImageLayout) -> Result<(), LayoutError> {
    let folder = &layout.folder;
    let index: Index = parse(&folder.join("index.json"), &read(&folder.join("index.json"))?)?;
    if layout.image.is_some() && index.manifests.len() != 1 {
        return Err(LayoutError::Ambiguous { path: folder.clone(), found: index.manifests.len() });
    }
    let mut has_name = false;
    for descriptor in &index.manifests {
        let names: Vec<&str> = match &layout.image {
            Some(image) => vec![image],
            None => names(descriptor),
        };
        let mut found = BTreeMap::new();
        let user = user_of(folder, descriptor, 0, &mut found)?;
        for (digest, user) in found {
            images.add_digest(digest, user);
        }
        for name in names {
            has_name = true;
            images.add(name, user.clone());
        }
    }
    if !has_name {
        return Err(LayoutError::Unnamed { path: folder.clone() });
    }
    Ok(())
}

/// The full references of an image: only those are used that name a repository, because a tag alone fits any image.
fn names(descriptor: &Descriptor) -> Vec<&str> {
    let of = |key: &str| descriptor.annotations.get(key).map(String::as_str);
    let full = of("io.containerd.image.name");
    let reference = of("org.opencontainers.image.ref.name").filter(|name| name.contains(['/', ':']));
    full.into_iter().chain(reference).collect()
}

fn user_of(
    folder: &Path,
    descriptor: &Descriptor,
    depth: usize,
    found: &mut BTreeMap<String, ImageUser>,
) -> Result<ImageUser, LayoutError> {
    let (path, bytes) = blob(folder, descriptor)?;
    if depth > MAX_DEPTH {
        return Err(LayoutError::TooDeep { path: folder.to_owned() });
    }
    let is_index = descriptor.media_type.contains("index") || descriptor.media_type.contains("manifest.list");
    let user = if is_index {
        let index: Index = parse(&path, &bytes)?;
        // What attests to an image is listed beside it, and is none.
        let is_image = |entry: &&Descriptor| !entry.annotations.contains_key("vnd.docker.reference.type");
        let mut user = None;
        for entry in index.manifests.iter().filter(is_image) {
            // A layout may hold one platform of an image for several.
            if !blob_path(folder, entry)?.exists() {
                continue;
            }
            let own = user_of(folder, entry, depth + 1, found)?;
            user = Some(user.map_or_else(|| own.clone(), |other| decisive(other, own.clone())));
        }
        user.ok_or_else(|| LayoutError::Empty { path: folder.to_owned() })?
    } else {
        let manifest: Manifest = parse(&path, &bytes)?;
        let (path, bytes) = blob(folder, &manifest.config)?;
        let config: ImageConfig = parse(&path, &bytes)?;
        user_named(config.config.unwrap_or_default().user.as_deref().unwrap_or_default())
    };
    found.insert(descriptor.digest.clone(), user.clone());
    Ok(user)
}

/// `USER` of an image: an ID or a name, and perhaps a group after a colon. None is root.
fn user_named(user: &str) -> ImageUser {
    let user = user.split(':').next().unwrap_or_default().trim();
    if user.is_empty() || user == "root" {
        return ImageUser::Id(0);
    }
    user.parse().map_or_else(|_| ImageUser::Name(user.to_owned()), ImageUser::Id)
}

fn blob_path(folder: &Path, descriptor: &Descriptor) -> Result<PathBuf, LayoutError> {
    let hex = descriptor
        .digest
        .strip_prefix("sha256:")
        .filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
        .ok_or_else(|| LayoutError::UnknownDigest { digest: descriptor.digest.clone() })?;
    Ok(folder.join("blobs/sha256").join(hex))
}

fn blob(folder: &Path, descriptor: &Descriptor) -> Result<(PathBuf, Vec<u8>), LayoutError> {
    let path = blob_path(folder, descriptor)?;
    let bytes = read(&path)?;
    let is_named = bytes.len() as u64 == descriptor.size
        && descriptor.digest.strip_prefix("sha256:") == Some(sha256::hex(&bytes).as_str());
    if is_named { Ok((path, bytes)) } else { Err(LayoutError::WrongDigest { path }) }
}

fn read(path: &Path) -> Result<Vec<u8>, LayoutError> {
    let failed = |source| LayoutError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(LayoutError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, LayoutError> {
    json::from_slice(bytes).map_err(|source| LayoutError::Invalid { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers_or_names_and_nobody_is_root() {
        for (user, expected) in [
            ("", ImageUser::Id(0)),
            ("root", ImageUser::Id(0)),
            ("0:0", ImageUser::Id(0)),
            ("1000:1000", ImageUser::Id(1000)),
            ("nginx", ImageUser::Name("nginx".to_owned())),
        ] {
            assert_eq!(user_named(user), expected, "{user:?}");
        }
    }
}
