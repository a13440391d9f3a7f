//! Overlays in the shapes of public ones: what is found, in which file, and what fixes it there.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::support::{GOOD, Project, Run};

/// Files of a kustomization whose overlay is `o`, in which all but the tested part is in order.
struct Case {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// `code | file: line | fix or -`
    expected: &'static [&'static str],
}

const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      securityContext:
        runAsNonRoot: true
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: web
          image: nginx
          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop: [ALL]
";

const BARE: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      securityContext:
        runAsNonRoot: true
      containers:
        - name: web
          image: nginx
          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop: [ALL]
";

const BASE: (&str, &str) = ("base/kustomization.yaml", "resources:\n- web.yaml\n");

const CASES: &[Case] = &[
    Case {
        name: "nothing to find",
        files: &[BASE, ("base/web.yaml", WEB), ("o/kustomization.yaml", "resources: [../base]\n")],
        expected: &[],
    },
    Case {
        name: "a base that lacks a field",
        files: &[
            BASE,
            ("base/web.yaml", BARE),
            ("o/kustomization.yaml", "resources: [../base]\nnamespace: shop\nnamePrefix: x-\n"),
        ],
        expected: &[
            "pss/seccompProfile_restricted | base/web.yaml: securityContext: | set spec.template.spec.securityContext.seccompProfile",
        ],
    },
    Case {
        name: "a patch that adds a field",
        files: &[
            BASE,
            ("base/web.yaml", BARE),
            ("o/kustomization.yaml", "resources: [../base]\npatches:\n- path: patch.yaml\n"),
            (
                "o/patch.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      securityContext:\n        seccompProfile:\n          type: RuntimeDefault\n",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "a patch in a file",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            ("o/kustomization.yaml", "resources: [../base]\npatches:\n- path: patch.yaml\n"),
            (
                "o/patch.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      containers:\n        - name: web\n          securityContext:\n            privileged: true\n",
            ),
        ],
        expected: &[
            "pss/privileged | o/patch.yaml: privileged: true | set spec.template.spec.containers[0].securityContext.privileged",
        ],
    },
    Case {
        name: "an inline patch",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            (
                "o/kustomization.yaml",
                "resources:\n- ../base\npatches:\n- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata:\n      name: web\n    spec:\n      template:\n        spec:\n          containers:\n          - name: web\n            securityContext:\n              allowPrivilegeEscalation: true # for now\n",
            ),
        ],
        expected: &[
            "pss/allowPrivilegeEscalation | o/kustomization.yaml: allowPrivilegeEscalation: true # for now | set spec.template.spec.containers[0].securityContext.allowPrivilegeEscalation",
        ],
    },
    Case {
        name: "a value of a JSON patch",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- target: {kind: Deployment}\n  path: patch.yaml\n",
            ),
            (
                "o/patch.yaml",
                "- op: add\n  path: /spec/template/spec/containers/0/securityContext/procMount\n  value: Unmasked\n",
            ),
        ],
        expected: &["pss/procMount_restricted | o/patch.yaml: value: Unmasked | set [0].value"],
    },
    Case {
        name: "a container of a JSON patch",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- target: {kind: Deployment}\n  path: patch.yaml\n",
            ),
            (
                "o/patch.yaml",
                "- op: add\n  path: /spec/template/spec/containers/-\n  value:\n    name: extra\n    image: extra\n    securityContext:\n      allowPrivilegeEscalation: false\n",
            ),
        ],
        expected: &[
            "pss/capabilities_restricted | o/patch.yaml: securityContext: | set [0].value.securityContext.capabilities.drop",
        ],
    },
    Case {
        name: "a patch that removes the context",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata:\n      name: web\n    spec:\n      template:\n        spec:\n          securityContext:\n            seccompProfile: null\n",
            ),
        ],
        // A field of the base has no effect while the patch removes it.
        expected: &["pss/seccompProfile_restricted | base/web.yaml: securityContext: | -"],
    },
    Case {
        name: "a component",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            (
                "comp/kustomization.yaml",
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- path: patch.yaml\n",
            ),
            (
                "comp/patch.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      securityContext:\n        seccompProfile:\n          type: Unconfined\n",
            ),
            ("o/kustomization.yaml", "resources: [../base]\ncomponents: [../comp]\n"),
        ],
        expected: &[
            "pss/seccompProfile_restricted | comp/patch.yaml: type: Unconfined | set spec.template.spec.securityContext.seccompProfile.type",
        ],
    },
    Case {
        name: "an overlay of an overlay",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            (
                "mid/kustomization.yaml",
                "resources: [../base]\nnameSuffix: -mid\npatchesStrategicMerge: [patch.yaml]\n",
            ),
            (
                "mid/patch.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      containers:\n        - name: web\n          securityContext:\n            capabilities:\n              add: [CHOWN]\n",
            ),
            ("o/kustomization.yaml", "resources: [../mid]\nnamespace: prod\n"),
        ],
        expected: &[
            "pss/capabilities_restricted | mid/patch.yaml: add: [CHOWN] | remove spec.template.spec.containers[0].securityContext.capabilities.add[0]",
        ],
    },
    Case {
        name: "a value that base and patch set",
        files: &[
            BASE,
            (
                "base/web.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  selector:\n    matchLabels: {app: web}\n  template:\n    metadata:\n      labels: {app: web}\n    spec:\n      securityContext:\n        runAsNonRoot: true\n        seccompProfile:\n          type: Unconfined\n      containers:\n        - name: web\n          image: nginx\n          securityContext:\n            allowPrivilegeEscalation: false\n            capabilities:\n              drop: [ALL]\n",
            ),
            ("o/kustomization.yaml", "resources: [../base]\npatches:\n- path: patch.yaml\n"),
            (
                "o/patch.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      securityContext:\n        seccompProfile:\n          type: Localhost\n          localhostProfile: a.json\n",
            ),
        ],
        expected: &[],
    },
    Case {
        name: "an annotation of the overlay",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            (
                "o/kustomization.yaml",
                "resources: [../base]\ncommonAnnotations:\n  container.apparmor.security.beta.kubernetes.io/web: unconfined\n",
            ),
        ],
        expected: &[
            "pss/appArmorProfile | o/kustomization.yaml: container.apparmor.security.beta.kubernetes.io/web: unconfined | -",
            "pss/appArmorProfile | o/kustomization.yaml: container.apparmor.security.beta.kubernetes.io/web: unconfined | -",
        ],
    },
    Case {
        name: "two overlays of one base",
        files: &[
            BASE,
            ("base/web.yaml", BARE),
            ("a/kustomization.yaml", "resources: [../base]\nnamePrefix: a-\n"),
            ("b/kustomization.yaml", "resources: [../base]\nnamePrefix: b-\n"),
            ("o/kustomization.yaml", "resources: [../a, ../b]\n"),
        ],
        expected: &[
            "pss/seccompProfile_restricted | base/web.yaml: securityContext: | set spec.template.spec.securityContext.seccompProfile",
            "pss/seccompProfile_restricted | base/web.yaml: securityContext: | set spec.template.spec.securityContext.seccompProfile",
        ],
    },
    Case {
        name: "a pod in a list of a file with several documents",
        files: &[
            ("o/kustomization.yaml", "resources: [all.yaml]\n"),
            (
                "o/all.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: p}\n  spec:\n    securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}\n    containers:\n    - name: c\n      image: c\n      securityContext:\n        allowPrivilegeEscalation: false\n        capabilities: {drop: [ALL]}\n        procMount: Unmasked\n",
            ),
        ],
        expected: &[
            "pss/procMount_restricted | o/all.yaml: procMount: Unmasked | set items[0].spec.containers[0].securityContext.procMount",
        ],
    },
    Case {
        name: "a replacement",
        files: &[
            BASE,
            ("base/web.yaml", WEB),
            (
                "o/cm.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  type: Unconfined\n",
            ),
            (
                "o/kustomization.yaml",
                "resources: [../base, cm.yaml]\nreplacements:\n- source: {kind: ConfigMap, fieldPath: data.type}\n  targets:\n  - select: {kind: Deployment}\n    fieldPaths: [spec.template.spec.securityContext.seccompProfile.type]\n",
            ),
        ],
        // The edit would change the ConfigMap as well, which is more than the finding is about.
        expected: &["pss/seccompProfile_restricted | o/cm.yaml: type: Unconfined | -"],
    },
];

fn project_of(case: &Case) -> Project {
    let project = Project::new();
    for (name, text) in case.files {
        project.file(name, text);
    }
    project
}

/// `code | file: line | fix` of each finding.
fn found(project: &Project, run: &Run) -> Vec<String> {
    let json = run.json();
    let findings = json["findings"].as_array().unwrap().clone();
    let of_standards = findings
        .iter()
        .filter(|finding| finding["code"].as_str().is_some_and(|code| code.starts_with("pss/")));
    of_standards
        .map(|finding| {
            let file = finding["file"].as_str().unwrap();
            let line =
                usize::try_from(finding["line"].as_u64().expect("every finding has its line")).unwrap();
            let text = project.read(file);
            let text = text.lines().nth(line - 1).unwrap().trim().to_owned();
            let fix = finding["fix"].as_array().map_or_else(
                || "-".to_owned(),
                |fix| format!("{} {}", fix[0]["op"].as_str().unwrap(), fix[0]["path"].as_str().unwrap()),
            );
            format!("{} | {file}: {text} | {fix}", finding["code"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn findings_point_to_the_base_or_patch_that_decides() {
    let mut table = BTreeMap::from([("found", 0), ("mapped to file", 0), ("fixed in file", 0)]);
    let mut wrong = String::new();
    for case in CASES {
        let project = project_of(case);
        let run = project.run(&["check", "-o", "json", "."]);
        let findings = found(&project, &run);
        if findings != case.expected {
            let (found, expected) = (findings.join("\n  "), case.expected.join("\n  "));
            let _ = writeln!(wrong, "{}:\n  {found}\n  expected\n  {expected}\n{run}", case.name);
            continue;
        }
        *table.get_mut("found").unwrap() += findings.len();
        *table.get_mut("mapped to file").unwrap() += findings.len();
        let fixable = findings.iter().filter(|finding| !finding.ends_with("| -")).count();
        let fix = project.run(&["check", "--unsafe-fixes", "--fix-partial", "."]);
        let after = project.run(&["check", "-o", "json", "."]);
        let left = found(&project, &after);
        if left.len() != findings.len() - fixable {
            let _ = writeln!(wrong, "{}: left {left:?}\n{fix}\n{after}", case.name);
            continue;
        }
        *table.get_mut("fixed in file").unwrap() += fixable;
        // A second run changes nothing, and what has no fix was not touched.
        let texts: Vec<String> = case.files.iter().map(|(name, _)| project.read(name)).collect();
        project.run(&["check", "--unsafe-fixes", "--fix-partial", "."]);
        for ((name, original), text) in case.files.iter().zip(&texts) {
            assert_eq!(&project.read(name), text, "{}: {name}", case.name);
            if fixable == 0 {
                assert_eq!(original, text, "{}: {name}", case.name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let table: Vec<String> = table.iter().map(|(what, count)| format!("{what}: {count}")).collect();
    insta::assert_snapshot!(table.join("\n"), @"
    fixed in file: 10
    found: 14
    mapped to file: 14
    ");
}

#[test]
fn patches_are_not_pods_and_bases_are_checked_as_built() {
    let project = project_of(&CASES[3]);
    project.file("good.yaml", GOOD);
    insta::assert_snapshot!(project.run(&["check", "--level=baseline", "."]), @r#"
    error[api/invalid]: spec.template.spec.containers[0].securityContext: Invalid value: {"Capabilities":{"Add":null,"Drop":["ALL"]},"Privileged":true,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":null,"AppArmorProfile":null}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true
      --> base/web.yaml:19:11
       |
    19 |           securityContext:
       |           ^^^^^^^^^^^^^^^ cannot set `allowPrivilegeEscalation` to false and `privileged` to true
       = because: an API server of v1.37 rejects this Deployment
       = because: the kustomization o builds this object

    error[pss/privileged]: container "web" is privileged
      --> o/patch.yaml:11:25
       |
    11 |             privileged: true
       |                         ^^^^ baseline allows false, or no value
       = because: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node
       = because: the kustomization o builds this object
       = help: set `securityContext.privileged: false` in container "web"

    2 objects in 5 files checked at baseline:latest: 1 allowed, 1 denied; 2 errors
    1 finding can be fixed with --unsafe-fixes; --diff shows what would change
    exit status: 1
    "#);
    // Named alone, a patch is no pod either; a base that is named is checked by itself.
    let patch = project.run(&["check", "o/patch.yaml"]);
    assert_eq!(patch.status, 2, "{patch}");
    let base = project.run(&["check", "base", "o"]);
    assert!(base.stderr.contains("2 objects in 4 files"), "{base}");
    let diff = project.run(&["check", "--diff", "--unsafe-fixes", "o"]);
    assert!(
        diff.stdout.contains("+            privileged: false") && diff.stdout.contains("a/o/patch.yaml"),
        "{diff}"
    );
}

#[test]
fn what_cannot_be_built_is_one_error() {
    let project = Project::new();
    project
        .file("o/kustomization.yaml", "resources:\n- web.yaml\n- https://example.com/crds.yaml\n")
        .file("o/web.yaml", WEB)
        .file("v/kustomization.yaml", "resources: [web.yaml]\ntransformers:\n- a.yaml\n")
        .file("v/web.yaml", WEB)
        .file("p/kustomization.yaml", "resources: [../missing]\n")
        .file("flux/kustomization.yaml", "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: x}\nspec: {}\n");
    insta::assert_snapshot!(project.run(&["check", "."]), @"
    error[kustomize/remote]: the remote resource https://example.com/crds.yaml is not fetched
     --> o/kustomization.yaml:3:3
      |
    3 | - https://example.com/crds.yaml
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = because: its objects were not checked
      = help: check what it makes: kubectl kustomize o | palisade check -

    error[kustomize/build]: the kustomization p cannot be built: ../missing is not there
     --> p/kustomization.yaml:1:13
      |
    1 | resources: [../missing]
      |             ^^^^^^^^^^
      = because: what it would make was not checked

    error[kustomize/not-supported]: the kustomization v cannot be built: the field `transformers` is not supported
     --> v/kustomization.yaml:2:1
      |
    2 | transformers:
      | ^^^^^^^^^^^^
      = because: what it would make was not checked
      = help: check what it makes: kubectl kustomize v | palisade check -

    1 object in 6 files checked at restricted:latest: 1 allowed, 0 denied; 3 errors, 1 object of kinds that are not checked
    exit status: 1
    ");
}

#[test]
fn variables_and_configurations_are_taken_where_they_decide_nothing() {
    let variables = "vars:\n- name: HOST\n  objref: {kind: Service, name: web, apiVersion: v1}\n";
    let pod = WEB.replace(
        "image: nginx",
        "image: nginx\n          args: [\"$(HOST)\"]\n          env: [{name: A, value: $(HOST)}]",
    );
    assert_ne!(pod, WEB);
    for (case, files, status) in [
        ("in arguments", vec![("o/web.yaml", pod.clone())], 0),
        ("in a field that decides", vec![("o/web.yaml", pod.replace("RuntimeDefault", "$(HOST)"))], 2),
        ("in a label", vec![("o/web.yaml", pod.replace("app: web", "app: $(HOST)"))], 2),
        ("in an object without pods", vec![("o/web.yaml", format!("{pod}---\napiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{externalName: $(HOST)}}\n"))], 0),
        ("names", vec![("o/web.yaml", pod.clone()), ("o/c.yaml", "nameReference:\n- {kind: ConfigMap, fieldSpecs: [{path: spec/x, kind: A}]}\nvarReference: []\n".to_owned())], 0),
        ("annotations", vec![("o/web.yaml", pod.clone()), ("o/c.yaml", "commonAnnotations:\n- {path: spec/a, create: true}\n".to_owned())], 2),
    ] {
        let project = Project::new();
        let configurations = if files.len() > 1 { "configurations: [c.yaml]\n" } else { "" };
        project.file("o/kustomization.yaml", format!("resources: [web.yaml]\n{variables}{configurations}"));
        for (name, text) in &files {
            project.file(name, text);
        }
        let run = project.run(&["check", "o"]);
        assert_eq!(run.status, status, "{case}: {run}");
        assert_eq!(run.stdout.contains("kustomize/not-supported"), status == 2, "{case}: {run}");
    }
}

#[test]
fn suppressions_of_bases_count_for_overlays() {
    let project = project_of(&CASES[1]);
    let text = BARE.replace("      securityContext:\n        runAsNonRoot", "      # palisade:ignore pss/seccompProfile_restricted reason=\"the node sets it\"\n      securityContext:\n        runAsNonRoot");
    project.file("base/web.yaml", text);
    let run = project.run(&["check", "."]);
    assert!(run.status == 0 && run.stderr.contains("1 accepted"), "{run}");
}

#[test]
fn an_edit_of_a_base_must_be_good_for_every_overlay() {
    let project = project_of(&CASES[1]);
    // In the other overlay the object stays refused, whatever is done about the base.
    project
        .file("other/kustomization.yaml", "resources: [../base]\npatches:\n- path: patch.yaml\n")
        .file("other/patch.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      hostIPC: true\n");
    let run = project.run(&["check", "--unsafe-fixes", "."]);
    assert_eq!(project.read("base/web.yaml"), BARE, "{run}");
    assert!(run.stderr.contains("it would still be refused"), "{run}");
    project.run(&["check", "--fix", "--fix-partial", "."]);
    assert!(project.read("base/web.yaml").contains("seccompProfile:"));
}

#[test]
fn circles_and_unused_components_are_not_passed_over() {
    let project = Project::new();
    project
        .file("a/kustomization.yaml", "resources: [../b]\n")
        .file("b/kustomization.yaml", "resources: [../a]\n")
        .file(
            "comp/kustomization.yaml",
            "kind: Component\nresources: [web.yaml]\npatches: [{path: patch.yaml}]\n",
        )
        .file("comp/web.yaml", BARE)
        .file(
            "comp/patch.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1}\n",
        );
    let run = project.run(&["check", "."]);
    assert!(run.stdout.contains("includes itself"), "{run}");
    assert!(run.stdout.contains("comp/web.yaml") && !run.stdout.contains("comp/patch.yaml"), "{run}");
}
