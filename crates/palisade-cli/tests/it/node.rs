//! `run`, `verify` and the options of a node, as far as they go without a runtime. With one: `tests/system`.

use super::support::Project;

#[test]
fn says_what_is_wrong_before_anything_is_started() {
    let project = Project::with(super::support::GOOD);
    project.file("two.yaml", format!("{0}---\n{0}", super::support::GOOD));
    project.file("none.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n");
    project.file("broken.yaml", "a: [\n");
    for (arguments, status, why) in [
        (&["up", "--root-dir", "x"][..], 2, "the options of a node need --node"),
        (&["up", "--node", "--runtime-endpoint", "tcp://x"], 2, "is no Unix socket"),
        (
            &["up", "--node", "--emulate-kubernetes", "v1.31", "--seccomp-profile-root", "x"],
            2,
            "the kubelet of v1.31 has no --seccomp-profile-root: use <root-dir>/seccomp",
        ),
        (&["run"], 2, "--filename <FILE>"),
        (&["run", "-f", "absent.yaml"], 2, "absent.yaml"),
        (&["run", "-f", "broken.yaml"], 2, "broken.yaml: "),
        (&["run", "-f", "two.yaml"], 2, "there are 2 pods in the manifests: run one at a time"),
        (&["run", "-f", "none.yaml"], 2, "there is no pod in the manifests"),
        (&["run", "-f", "pod.yaml", "--runtime-endpoint", "x.sock"], 2, "is no Unix socket"),
        (
            &["verify", "--runtime-endpoint", "/nonexistent/c.sock"],
            3,
            "the container runtime does not answer: rpc error: code = Unavailable",
        ),
        (&["node", "--mode", "nothing"], 2, "invalid value 'nothing' for '--mode <MODE>'"),
    ] {
        let text = project.run(arguments).to_string();
        assert!(text.contains(why), "{arguments:?}: {text}");
        assert!(text.contains(&format!("exit status: {status}")), "{arguments:?}: {text}");
    }
}
