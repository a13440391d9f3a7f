//! What a build reports, and where its values come from.

use palisade_kustomize::{ProblemKind, Rendered};
use palisade_yaml::Span;

use crate::support::Folder;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  hostPID: false\n  containers:\n  - name: web\n    image: nginx\n";

#[test]
fn what_cannot_be_built_is_a_problem() {
    let pod = ("pod.yaml", POD);
    for (case, kustomization, expected) in [
        (
            "a remote file",
            "resources: [pod.yaml, 'https://example.com/a.yaml']",
            "the remote resource https://example.com/a.yaml is not fetched",
        ),
        (
            "a remote folder",
            "resources: [pod.yaml, 'github.com/a/b//c?ref=v1']",
            "the remote resource github.com/a/b//c?ref=v1 is not fetched",
        ),
        ("a missing file", "resources: [a.yaml]", "a.yaml is not there"),
        (
            "a file outside",
            "resources: [../outside.yaml]",
            "../outside.yaml is not in or below the folder of the kustomization",
        ),
        ("itself", "resources: [../k]", "the kustomization k includes itself"),
        (
            "a variable that may decide",
            "resources: [pod.yaml]\nvars: [{name: A}]\ncommonAnnotations: {seccomp.security.alpha.kubernetes.io/pod: $(A)}",
            "a variable of `vars` in this field is not supported",
        ),
        (
            "a configuration that may decide",
            "resources: [pod.yaml]\nconfigurations: [annotations.yaml]",
            "this field of a file of `configurations` is not supported",
        ),
        ("charts", "helmCharts: [{name: a}]", "the field `helmCharts` is not supported"),
        ("transformers", "transformers: [a.yaml]", "the field `transformers` is not supported"),
        ("an unknown field", "resource: [pod.yaml]", "kustomizations have no field `resource`"),
        ("a wrong type", "resources: pod.yaml", "`resources` has a value of the wrong type"),
        ("twice", "resources: [pod.yaml, pod.yaml]", "Pod web is there twice"),
        (
            "a patch for nothing",
            "resources: [pod.yaml]\npatches:\n- patch: '{apiVersion: v1, kind: Pod, metadata: {name: other}}'",
            "no object matches the patch of Pod other",
        ),
        (
            "a patch that is none",
            "resources: [pod.yaml]\npatches:\n- patch: text",
            "this is neither a strategic merge patch nor a JSON patch",
        ),
        (
            "a JSON patch for all",
            "resources: [pod.yaml]\npatches:\n- patch: '[{op: remove, path: /spec}]'",
            "a JSON patch needs a target",
        ),
        (
            "a JSON patch for what is not there",
            "resources: [pod.yaml]\npatches:\n- target: {kind: Pod}\n  patch: '[{op: remove, path: /spec/a/b}]'",
            "the patch cannot be applied: the patch names `/spec/a/b`, which is not there",
        ),
        (
            "a directive",
            "resources: [pod.yaml]\npatches:\n- patch: '{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {$retainKeys: [a]}}'",
            "the patch cannot be applied: the directive `$retainKeys` is not supported",
        ),
        (
            "a bad selector",
            "resources: [pod.yaml]\npatches:\n- target: {name: '('}\n  patch: '{spec: {}}'",
            "the selector `(` cannot be read",
        ),
        (
            "a key twice",
            "resources: [pod.yaml]\nresources: []",
            "the key \"resources\" is set twice in the same mapping",
        ),
        (
            "no kustomization of kustomize",
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization",
            "the folder k has no kustomization, or more than one",
        ),
    ] {
        let folder = Folder::new(&[
            ("k/kustomization.yaml", kustomization),
            (&format!("k/{}", pod.0), pod.1),
            ("outside.yaml", POD),
            ("k/annotations.yaml", "commonAnnotations: [{path: spec/a, create: true}]"),
        ]);
        let built = folder.build("k");
        let found: Vec<String> = built.problems.iter().map(|problem| problem.kind.to_string()).collect();
        assert_eq!(found, [expected], "{case}");
        let is_remote = matches!(built.problems[0].kind, ProblemKind::Remote(_));
        assert_eq!(built.objects.len(), usize::from(is_remote), "{case}");
    }
}

#[test]
fn links_do_not_lead_out_of_the_folder() {
    let folder = Folder::new(&[("k/kustomization.yaml", "resources: [pod.yaml]"), ("secret/pod.yaml", POD)]);
    std::os::unix::fs::symlink("../secret/pod.yaml", folder.0.path().join("k/pod.yaml")).unwrap();
    let built = folder.build("k");
    assert_eq!(
        built.problems[0].kind.to_string(),
        "pod.yaml is not in or below the folder of the kustomization"
    );
}

/// The file and the line that a text of the result comes from.
fn origin(folder: &Folder, root: &str, wanted: &str) -> String {
    let built = folder.build(root);
    assert!(built.problems.is_empty(), "{:?}", built.problems);
    let rendered = Rendered::of(built.objects.iter().map(|object| &object.node));
    let at = rendered.text.find(wanted).unwrap_or_else(|| panic!("no {wanted} in {}", rendered.text));
    let (origin, span) = rendered.origin(Span::new(at, at + wanted.len())).unwrap();
    let source = &built.sources[origin.source];
    let (outer, span) = match &source.inside {
        Some(inside) => (&built.sources[inside.outer], inside.place(&source.text, span)),
        None => (source, span),
    };
    let line = outer.text[..span.start].matches('\n').count() + 1;
    format!("{}:{line} {}", outer.file, span.text(&outer.text))
}

#[test]
fn values_come_from_the_file_that_decided_them() {
    let folder = Folder::new(&[
        ("base/kustomization.yaml", "resources: [pod.yaml]\n"),
        ("base/pod.yaml", POD),
        (
            "o/kustomization.yaml",
            "resources: [../base]\nnamespace: shop\npatches:\n- path: patch.yaml\n- patch: |-\n    apiVersion: v1\n    kind: Pod\n    metadata: {name: web}\n    spec:\n      hostIPC: true\n- target: {kind: Pod}\n  patch: |-\n    - op: add\n      path: /spec/hostNetwork\n      value: true\n",
        ),
        (
            "o/patch.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  hostPID: true\n  containers:\n  - name: web\n    securityContext: {privileged: true}\n",
        ),
    ]);
    for (wanted, expected) in [
        ("\"image\"", "base/pod.yaml:8 image"),
        ("\"nginx\"", "base/pod.yaml:8 nginx"),
        ("\"name\": \"web\",\n\"image\"", "base/pod.yaml:7 name: web"),
        ("\"hostPID\": true", "o/patch.yaml:5 hostPID: true"),
        ("\"privileged\"", "o/patch.yaml:8 privileged"),
        ("\"securityContext\"", "o/patch.yaml:8 securityContext"),
        ("\"hostIPC\": true", "o/kustomization.yaml:10 hostIPC: true"),
        ("\"shop\"", "o/kustomization.yaml:2 shop"),
        ("\"hostNetwork\"", "o/kustomization.yaml:15 value"),
    ] {
        assert_eq!(origin(&folder, "o", wanted), expected, "{wanted}");
    }
}

#[test]
fn a_chain_of_kustomizations_has_an_end() {
    let chain: Vec<(String, String)> = (0..1000)
        .map(|at| (format!("d{at}/kustomization.yaml"), format!("resources: [../d{}]\n", at + 1)))
        .collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let built = Folder::new(&chain).build("d0");
    let is_too_large =
        matches!(&built.problems[..], [problem] if matches!(problem.kind, ProblemKind::TooLarge));
    assert!(is_too_large, "{:?}", built.problems);
}
