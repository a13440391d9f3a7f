//! A release of Kubernetes in a folder: where its files are, and the types they declare.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use walkdir::WalkDir;

use super::go::{Declaration, Field, Package, Type};
use crate::Failure;

/// Where Go packages are, and what their import paths begin with.
const TREES: &[(&str, &str)] = &[
    ("staging/src/k8s.io/api", "k8s.io/api"),
    ("staging/src/k8s.io/apimachinery/pkg", "k8s.io/apimachinery/pkg"),
    ("staging/src/k8s.io/apiextensions-apiserver/pkg/apis", "k8s.io/apiextensions-apiserver/pkg/apis"),
    ("staging/src/k8s.io/kube-aggregator/pkg/apis", "k8s.io/kube-aggregator/pkg/apis"),
    ("pkg/apis/core", "k8s.io/kubernetes/pkg/apis/core"),
];

/// A checkout of kubernetes/kubernetes at one release.
#[derive(Debug)]
pub(crate) struct Release {
    /// 37 of v1.37.
    pub(crate) minor: u8,
    folder: PathBuf,
    packages: BTreeMap<String, Package>,
}

/// Definitions of OpenAPI by name.
pub(crate) type Definitions = BTreeMap<String, Value>;

/// The releases in `folder`, which holds one folder `v1.N` for each, oldest first.
pub(crate) fn releases(folder: &Path) -> Result<Vec<Release>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| failure(folder, &error))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let minor = name.to_str().and_then(|name| name.strip_prefix("v1.")?.parse().ok());
        if let Some(minor) = minor {
            found.push(Release::read(minor, entry.path())?);
        }
    }
    found.sort_by_key(|release| release.minor);
    if found.is_empty() {
        return Err(Failure(format!("{} has no folder named v1.N", folder.display())));
    }
    Ok(found)
}

fn failure(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure(format!("{}: {error}", file.display()))
}

impl Release {
    fn read(minor: u8, folder: PathBuf) -> Result<Self, Failure> {
        let mut packages: BTreeMap<String, Package> = BTreeMap::new();
        for (tree, import_path) in TREES {
            let tree = folder.join(tree);
            for entry in WalkDir::new(&tree).sort_by_file_name() {
                let entry = entry.map_err(|error| failure(&tree, &error))?;
                let (file, name) = (entry.path(), entry.file_name().to_string_lossy());
                let generated = name.starts_with("zz_generated")
                    || name.starts_with("generated")
                    || name.ends_with("_generated.go");
                if !name.ends_with(".go") || name.ends_with("_test.go") || generated {
                    continue;
                }
                let inside = file.parent().and_then(|parent| parent.strip_prefix(&tree).ok());
                let inside = inside.map(Path::to_string_lossy).unwrap_or_default();
                let import_path = format!("{import_path}/{inside}").trim_end_matches('/').to_owned();
                let text = fs::read_to_string(file).map_err(|error| failure(file, &error))?;
                packages.entry(import_path.clone()).or_default().add(&text, &import_path);
            }
        }
        Ok(Self { minor, folder, packages })
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &str) -> Result<String, Failure> {
        let file = self.folder.join(path);
        fs::read_to_string(&file).map_err(|error| failure(&file, &error))
    }

    /// The definitions of the OpenAPI documents, `api/openapi-spec/v3`.
    pub(crate) fn openapi(&self) -> Result<Definitions, Failure> {
        let folder = self.folder.join("api/openapi-spec/v3");
        let mut definitions = Definitions::new();
        for entry in fs::read_dir(&folder).map_err(|error| failure(&folder, &error))?.flatten() {
            let file = entry.path();
            let text = fs::read_to_string(&file).map_err(|error| failure(&file, &error))?;
            let mut document: Value = serde_json::from_str(&text).map_err(|error| failure(&file, &error))?;
            if let Value::Object(schemas) = document["components"]["schemas"].take() {
                definitions.extend(schemas);
            }
        }
        Ok(definitions)
    }

    /// What a name stands for; `None` if the release does not have it.
    pub(crate) fn declaration(&self, import_path: &str, name: &str) -> Option<&Declaration> {
        self.packages.get(import_path)?.get(name)
    }

    /// Every field of a struct in the order of declaration, with the fields of those structs in their place that
    /// `promoted` chooses; `None` if the release does not have the struct.
    pub(crate) fn fields(
        &self,
        import_path: &str,
        name: &str,
        promoted: fn(&Field) -> bool,
    ) -> Option<Vec<&Field>> {
        let Declaration::Struct(fields) = self.declaration(import_path, name)? else { return None };
        let mut all = Vec::new();
        for field in fields {
            match &field.ty {
                Type::Name(path, name) if promoted(field) => {
                    all.extend(self.fields(path, name, promoted).unwrap_or_default());
                }
                _ => all.push(field),
            }
        }
        Some(all)
    }
}
