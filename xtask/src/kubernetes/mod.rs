//! The tables of types that come from upstream: `cargo xtask gen --kubernetes DIR`.
//!
//! DIR holds checkouts of kubernetes/kubernetes in folders named after the release, `v1.37` and `v1.38`. The new one is
//! enough for the tables; with the one before, feature gates are compared as well. A kind that is new in `kinds.txt`
//! needs all releases since v1.19, so that its fields get the release they came in.

mod bootstrap_table;
mod go;
mod internal_table;
mod kinds;
mod protobuf_table;
mod report;
mod schema_table;
mod source;
mod table;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use crate::Failure;

const SCHEMA: &str = "crates/palisade-apimachinery/src/schema";
const BOOTSTRAP: &str = "crates/palisade-apiserver/src/auth/bootstrap.txt";
const INTERNAL: &str = "crates/palisade-apimachinery/src/kinds/internal.txt";
const PROTOBUF: &str = "crates/palisade-apiserver/src/http/protobuf/types.txt";

/// Makes every table under `root` from the releases in `folder`; what is to be reviewed afterwards.
pub(crate) fn run_generate(root: &Path, folder: &Path) -> Result<String, Failure> {
    let releases = source::releases(folder)?;
    let Some(newest) = releases.last() else { return Ok(String::new()) };
    let kinds = kinds::read(&read(root, &format!("{SCHEMA}/kinds.txt"))?)?;
    let types = format!("{SCHEMA}/types.txt");
    let before = read(root, &types)?;
    let after = schema_table::table(&before, &kinds, &releases)?;
    write(root, &types, &after)?;
    write(root, PROTOBUF, &protobuf_table::table(&kinds, newest)?)?;
    write(root, INTERNAL, &internal_table::table(&read(root, INTERNAL)?, &releases)?)?;
    write(root, BOOTSTRAP, &bootstrap_table::table(newest)?)?;
    report::report(root, &before, &after, &releases)
}

fn read(root: &Path, path: &str) -> Result<String, Failure> {
    fs::read_to_string(root.join(path)).map_err(|error| Failure(format!("{path}: {error}")))
}

fn write(root: &Path, path: &str, text: &str) -> Result<(), Failure> {
    fs::write(root.join(path), text).map_err(|error| Failure(format!("{path}: {error}")))
}

/// `core` of `k8s.io/api/core/v1`: what the tables call a package.
fn package_alias(import_path: &str) -> &str {
    import_path.rsplit('/').find(|part| !is_version(part)).unwrap_or(import_path)
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}
