//! `run`, `verify` and the options of a node, as far as they go without a runtime. With one: `tests/system`.

use super::support::Project;

#[test]
fn reports_wrong_usage_before_anything_starts() {
    let project = Project::with(super::support::GOOD);
    project.file("two.yaml", format!("{0}---\n{0}", super::support::GOOD));
    project.file("none.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n");
    project.file("broken.yaml", "a: [\n");
    let changed = |from: &str, to: &str| super::support::GOOD.replacen(from, to, 1);
    project.file("misspelt.yaml", changed("securityContext:", "securityContxt:"));
    project.file("type.yaml", changed("RuntimeDefault", "runtimeDefault"));
    project.file("version.yaml", changed("apiVersion: v1", "apiVersion: v2"));
    for (arguments, status, why) in [
        (&["up", "--root-dir", "x"][..], 2, "the options of the node require --node"),
        (&["up", "--node", "--runtime-endpoint", "tcp://x"], 2, "is not a Unix socket"),
        (
            &["up", "--node", "--emulate-kubernetes", "v1.31", "--seccomp-profile-root", "x"],
            2,
            "the kubelet of v1.31 has no --seccomp-profile-root: use <root-dir>/seccomp",
        ),
        (&["run"], 2, "--filename <FILE>"),
        (&["run", "-f", "absent.yaml"], 2, "absent.yaml"),
        (&["run", "-f", "broken.yaml"], 2, "broken.yaml: "),
        (
            &["run", "-f", "misspelt.yaml"],
            2,
            "unknown field \"securityContxt\"; did you mean securityContext?",
        ),
        (&["run", "-f", "type.yaml"], 2, "Unsupported value: \"runtimeDefault\""),
        (
            &["run", "-f", "type.yaml", "--emulate-kubernetes", "v1.37"],
            2,
            "Unsupported value: \"runtimeDefault\"",
        ),
        (&["run", "-f", "version.yaml"], 2, "unknown apiVersion \"v2\"; did you mean v1?"),
        (&["run", "-f", "two.yaml"], 2, "the manifests have 2 pods: run one at a time"),
        (&["run", "-f", "none.yaml"], 2, "the manifests have no pod"),
        (&["run", "-f", "pod.yaml", "--runtime-endpoint", "x.sock"], 2, "is not a Unix socket"),
        (
            &["verify", "--runtime-endpoint", "/nonexistent/c.sock"],
            3,
            "the container runtime does not respond: rpc error: code = Unavailable",
        ),
        (&["node", "--mode", "nothing"], 2, "invalid value 'nothing' for '--mode <MODE>'"),
    ] {
        let text = project.run(arguments).to_string();
        assert!(text.contains(why), "{arguments:?}: {text}");
        assert!(text.contains(&format!("exit status: {status}")), "{arguments:?}: {text}");
    }
}
