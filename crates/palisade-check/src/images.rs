//! The users of images, as far as somebody knows them.
//!
//! An image for several platforms, and one that is named twice, has the user that decides: root if it is root somewhere.

use std::collections::BTreeMap;

use palisade_policy::standards::fixes::ImageUser;

/// The users of images, by their full reference and by digest.
#[derive(Debug, Clone, Default)]
pub struct Images(BTreeMap<String, ImageUser>);

impl Images {
    /// Adds the user of an image, under the name that manifests may use.
    pub fn add(&mut self, image: &str, user: ImageUser) {
        self.merge(full_reference(image), user);
    }

    /// Adds the user of an image that is named by its digest.
    pub fn add_digest(&mut self, digest: String, user: ImageUser) {
        self.merge(digest, user);
    }

    /// The user that an image sets, if it is known.
    #[must_use]
    pub fn user(&self, image: &str) -> Option<ImageUser> {
        if self.0.is_empty() {
            return None;
        }
        let digest = image.rsplit_once('@').map(|(_, digest)| digest);
        match digest {
            // A digest names the bytes, whatever stands before it.
            Some(digest) => self.0.get(digest).cloned(),
            None => self.0.get(&full_reference(image)).cloned(),
        }
    }

    fn merge(&mut self, name: String, user: ImageUser) {
        let merged = match self.0.remove(&name) {
            Some(other) => decisive(other, user),
            None => user,
        };
        self.0.insert(name, merged);
    }
}

/// Of two users, the one that decides whether the image can run: root first, then a name.
#[must_use]
pub fn decisive(a: ImageUser, b: ImageUser) -> ImageUser {
    match (&a, &b) {
        (ImageUser::Id(0), _) => a,
        (_, ImageUser::Id(0)) => b,
        (ImageUser::Name(_), _) => a,
        _ => b,
    }
}

/// `nginx` as container runtimes complete it: `docker.io/library/nginx:latest`.
fn full_reference(image: &str) -> String {
    let (registry, rest) = match image.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest.to_owned()),
        _ => ("docker.io", image.to_owned()),
    };
    let registry = if registry == "index.docker.io" { "docker.io" } else { registry };
    let path = if registry == "docker.io" && !rest.contains('/') { format!("library/{rest}") } else { rest };
    let has_tag = path.rsplit('/').next().is_some_and(|name| name.contains(':'));
    let tag = if has_tag { "" } else { ":latest" };
    format!("{registry}/{path}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_completed_as_runtimes_do() {
        for (image, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.27", "docker.io/library/nginx:1.27"),
            ("grafana/loki", "docker.io/grafana/loki:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("registry:5000/a/b:1", "registry:5000/a/b:1"),
            ("index.docker.io/library/nginx", "docker.io/library/nginx:latest"),
        ] {
            assert_eq!(full_reference(image), full, "{image}");
        }
    }
}
