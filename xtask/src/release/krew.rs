//! The manifest of the kubectl plugin for krew.
//!
//! Implements: krew's plugin manifest, `krew.googlecontainertools.github.com/v1alpha2`.
//! <https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/>

use serde_json::json;

/// The manifest for archives by architecture, name and digest. JSON is YAML, and quotes whatever needs it.
pub(super) fn manifest(version: &str, base_url: &str, archives: &[(&str, String, String)]) -> String {
    let base_url = base_url.trim_end_matches('/');
    let platforms: Vec<_> = archives
        .iter()
        .map(|(architecture, name, digest)| {
            json!({
                "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
                "uri": format!("{base_url}/{name}"),
                "sha256": digest,
                "bin": "palisade",
                "files": [{"from": "palisade", "to": "."}, {"from": "LICENSE", "to": "."}],
            })
        })
        .collect();
    let manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "palisade"},
        "spec": {
            "version": format!("v{version}"),
            "shortDescription": "Check and enforce pod security",
            "description": "Checks manifests and a running cluster by the Pod Security Standards, shows the effective security context \
                of every container, and rolls out enforced Pod Security.\n",
            "platforms": platforms,
        },
    });
    format!("{manifest:#}\n")
}

#[cfg(test)]
mod tests {
    use super::manifest;

    #[test]
    fn each_archive_is_a_platform() {
        let archives = [
            ("amd64", "a.tar.gz".to_owned(), "00".to_owned()),
            ("arm64", "b.tar.gz".to_owned(), "11".to_owned()),
        ];
        let text = manifest("1.2.3", "https://example.com/v1/", &archives);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["spec"]["version"], "v1.2.3");
        assert_eq!(read["spec"]["platforms"][1]["uri"], "https://example.com/v1/b.tar.gz");
        assert_eq!(read["spec"]["platforms"][0]["selector"]["matchLabels"]["arch"], "amd64");
    }
}
