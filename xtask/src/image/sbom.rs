//! What is in the binary: a CycloneDX 1.6 document of the crates that are linked into it.
//!
//! Dependencies of build scripts and procedural macros run on the build machine only and are left out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The document for a package, from `cargo metadata --filter-platform` and Cargo.lock.
pub(super) fn cyclonedx(metadata: &Value, lock: &str, package: &str, created: &str) -> Value {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let is_linked = |id: &str| {
        let targets = packages.get(id).map(|package| list(&package["targets"])).unwrap_or_default();
        !targets.iter().any(|target| list(&target["kind"]).contains(&json!("proc-macro")))
    };
    let edges = |id: &str| -> BTreeSet<String> {
        let dependencies = nodes.get(id).map(|node| list(&node["deps"])).unwrap_or_default();
        let normal =
            |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        dependencies
            .iter()
            .filter(|dependency| normal(dependency))
            .map(|dependency| text(&dependency["pkg"]))
            .collect()
    };
    let roots = packages.iter().filter(|(_, found)| found["name"] == package).map(|(id, _)| id.clone());
    let mut pending: Vec<String> = roots.collect();
    let mut linked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(id) = pending.pop() {
        if linked.contains_key(&id) {
            continue;
        }
        let next: BTreeSet<String> = edges(&id).into_iter().filter(|id| is_linked(id)).collect();
        pending.extend(next.iter().cloned());
        linked.insert(id, next);
    }
    let checksums = checksums(lock);
    // By their package URLs: the ids of cargo have the path of the checkout in them.
    let url = |id: &str| packages.get(id).map(package_url).unwrap_or_default();
    let components: BTreeMap<String, Value> = linked
        .keys()
        .filter_map(|id| packages.get(id))
        .map(|package| (package_url(package), component(package, &checksums)))
        .collect();
    let dependencies: BTreeMap<String, Vec<String>> = linked
        .iter()
        .map(|(id, next)| {
            let mut next: Vec<_> = next.iter().map(|id| url(id)).collect();
            next.sort();
            (url(id), next)
        })
        .collect();
    let is_root = |component: &&Value| component["name"] == package;
    let root = components.values().find(is_root).cloned().unwrap_or_default();
    let others: Vec<_> = components.values().filter(|component| !is_root(component)).collect();
    let dependencies: Vec<_> =
        dependencies.iter().map(|(url, next)| json!({"ref": url, "dependsOn": next})).collect();
    json!({"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": created, "component": root}, "components": others, "dependencies": dependencies})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn package_url(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version, url) = (text(&package["name"]), text(&package["version"]), package_url(package));
    let kind = if package["source"].is_null() { "application" } else { "library" };
    let mut component = json!({"type": kind, "bom-ref": url, "name": name, "version": version, "purl": url});
    if let Some(license) = package["license"].as_str() {
        // Some crates still separate licences by a slash, which is no SPDX expression.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(checksum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// The checksums of Cargo.lock by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let value = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
        Some(value.trim_end_matches('"').to_owned())
    };
    let entry = |block| Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?));
    lock.split("[[package]]").filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::cyclonedx;

    fn package(name: &str, kind: &str, source: &Value) -> Value {
        json!({"id": format!("id-{name}"), "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0",
            "source": source, "targets": [{"kind": [kind]}]})
    }

    fn edge(name: &str, kind: &Value) -> Value {
        json!({"pkg": format!("id-{name}"), "dep_kinds": [{"kind": kind}]})
    }

    #[test]
    fn lists_what_is_linked_with_checksums_and_edges() {
        let (registry, none) = (json!("registry"), Value::Null);
        let metadata = json!({
            "packages": [package("app", "bin", &none), package("used", "lib", &registry),
                package("deep", "lib", &registry), package("derive", "proc-macro", &registry),
                package("cc", "lib", &registry), package("tests", "lib", &registry)],
            "resolve": {"nodes": [
                {"id": "id-app", "deps": [edge("used", &none), edge("derive", &none),
                    edge("cc", &json!("build")), edge("tests", &json!("dev"))]},
                {"id": "id-used", "deps": [edge("deep", &none)]}]}});
        let lock = "[[package]]\nname = \"deep\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n\n[[package]]\nname = \"app\"\nversion = \"1.0.0\"\n";
        let document = cyclonedx(&metadata, lock, "app", "1970-01-01T00:00:00Z");
        assert_eq!(document["metadata"]["component"]["name"], "app");
        assert_eq!(
            document["components"],
            json!([
                {"type": "library", "bom-ref": "pkg:cargo/deep@1.0.0", "name": "deep", "version": "1.0.0",
                    "purl": "pkg:cargo/deep@1.0.0", "licenses": [{"expression": "MIT OR Apache-2.0"}],
                    "hashes": [{"alg": "SHA-256", "content": "abc"}]},
                {"type": "library", "bom-ref": "pkg:cargo/used@1.0.0", "name": "used", "version": "1.0.0",
                    "purl": "pkg:cargo/used@1.0.0", "licenses": [{"expression": "MIT OR Apache-2.0"}]}])
        );
        assert_eq!(
            document["dependencies"],
            json!([{"ref": "pkg:cargo/app@1.0.0", "dependsOn": ["pkg:cargo/used@1.0.0"]},
                {"ref": "pkg:cargo/deep@1.0.0", "dependsOn": []},
                {"ref": "pkg:cargo/used@1.0.0", "dependsOn": ["pkg:cargo/deep@1.0.0"]}])
        );
    }
}
