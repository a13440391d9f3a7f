//! Charts written in the styles of public ones: what is found, where in the template, which value decides, and what fixes it.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use crate::support::{Project, Run};

/// A chart with one Deployment, in which all but the tested part is in order.
struct Case {
    name: &'static str,
    /// Below the spec of the pod.
    pod: &'static str,
    /// Below the container.
    container: &'static str,
    values: &'static str,
    helpers: &'static str,
    /// `code | line of the template or helper | key=value or -`
    expected: &'static [&'static str],
}

const POD_OK: &str = "      securityContext:
        runAsNonRoot: true
        seccompProfile:
          type: RuntimeDefault
";

const CONTAINER_OK: &str = "          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop: [ALL]
";

fn template(case: &Case) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{{{ include \"shop.fullname\" . }}}}\nspec:\n  \
         selector:\n    matchLabels: {{app: shop}}\n  template:\n    metadata:\n      labels: {{app: shop}}\n    spec:\n{}      \
         containers:\n        - name: web\n          image: \"{{{{ .Values.image }}}}:{{{{ .Chart.AppVersion }}}}\"\n{}",
        case.pod, case.container
    )
}

fn project_of(case: &Case) -> Project {
    let project = Project::new();
    let helpers = format!(
        "{{{{- define \"shop.fullname\" -}}}}\n{{{{- printf \"%s-%s\" .Release.Name .Chart.Name | trunc 63 | trimSuffix \"-\" }}}}\n{{{{- end }}}}\n{}",
        case.helpers
    );
    project
        .file("shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\nappVersion: \"2.1\"\n")
        .file("shop/values.yaml", format!("image: nginx\n{}", case.values))
        .file("shop/templates/_helpers.tpl", helpers)
        .file("shop/templates/NOTES.txt", "{{ fail \"notes are not rendered\" }}")
        .file("shop/templates/deployment.yaml", template(case));
    project
}

/// `code | line | settings` of each finding.
fn found(project: &Project, run: &Run) -> Vec<String> {
    let json = run.json();
    let findings = json["findings"].as_array().unwrap();
    // API servers also reject a container that is privileged without privilege escalation.
    let of_standards = findings
        .iter()
        .filter(|finding| finding["code"].as_str().is_some_and(|code| code.starts_with("pss/")));
    of_standards
        .map(|finding| {
            let file = finding["file"].as_str().unwrap();
            let line =
                usize::try_from(finding["line"].as_u64().expect("every finding has its line")).unwrap();
            let text = project.read(file);
            let text = text.lines().nth(line - 1).unwrap().trim();
            let set = finding["values"]["set"].as_object();
            let set = set.map_or_else(
                || "-".to_owned(),
                |set| set.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "),
            );
            format!("{} | {text} | {set}", finding["code"].as_str().unwrap())
        })
        .collect()
}

const CASES: &[Case] = &[
    Case {
        name: "literals of the template",
        pod: POD_OK,
        container: "          securityContext:\n            privileged: true\n            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n",
        values: "",
        helpers: "",
        expected: &["pss/privileged | privileged: true | -"],
    },
    Case {
        name: "a scalar of the values",
        pod: POD_OK,
        container: "          securityContext:\n            privileged: {{ .Values.privileged }}\n            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n",
        values: "privileged: true\n",
        helpers: "",
        expected: &["pss/privileged | privileged: {{ .Values.privileged }} | privileged=false"],
    },
    Case {
        name: "a nested scalar with a default",
        pod: POD_OK,
        container: "          securityContext:\n            allowPrivilegeEscalation: {{ .Values.web.escalate | default true }}\n            capabilities: {drop: [ALL]}\n",
        values: "web: {}\n",
        helpers: "",
        // `false` is empty to `default`: no value of this key helps.
        expected: &[
            "pss/allowPrivilegeEscalation | allowPrivilegeEscalation: {{ .Values.web.escalate | default true }} | -",
        ],
    },
    Case {
        name: "toYaml of a context that is empty",
        pod: POD_OK,
        container: "          securityContext:\n            {{- toYaml .Values.securityContext | nindent 12 }}\n",
        values: "securityContext: {}\n",
        helpers: "",
        expected: &[
            "pss/allowPrivilegeEscalation | securityContext: | securityContext.allowPrivilegeEscalation=false",
            "pss/capabilities_restricted | securityContext: | securityContext.capabilities.drop=[\"ALL\"]",
        ],
    },
    Case {
        name: "toYaml of a context with one mistake",
        pod: POD_OK,
        container: "          securityContext:\n            {{- toYaml .Values.securityContext | nindent 12 }}\n",
        values: "securityContext:\n  privileged: true\n  allowPrivilegeEscalation: false\n  capabilities:\n    drop: [ALL]\n",
        helpers: "",
        expected: &[
            "pss/privileged | {{- toYaml .Values.securityContext | nindent 12 }} | securityContext.privileged=false",
        ],
    },
    Case {
        name: "a setting that needs another one",
        pod: POD_OK,
        container: "          securityContext:\n            {{- toYaml .Values.securityContext | nindent 12 }}\n",
        values: "securityContext:\n  privileged: true\n  capabilities:\n    drop: [ALL]\n",
        helpers: "",
        // API servers reject a privileged container that may not gain privileges.
        expected: &[
            "pss/allowPrivilegeEscalation | securityContext: | securityContext.allowPrivilegeEscalation=false securityContext.privileged=false",
            "pss/privileged | {{- toYaml .Values.securityContext | nindent 12 }} | securityContext.privileged=false",
        ],
    },
    Case {
        name: "with around the context of the pod",
        pod: "      {{- with .Values.podSecurityContext }}\n      securityContext:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n",
        container: CONTAINER_OK,
        values: "podSecurityContext:\n  runAsNonRoot: true\n",
        helpers: "",
        expected: &[
            "pss/seccompProfile_restricted | securityContext: | podSecurityContext.seccompProfile={\"type\":\"RuntimeDefault\"}",
        ],
    },
    Case {
        name: "with around a context that is not there",
        pod: "      {{- with .Values.podSecurityContext }}\n      securityContext:\n        {{- toYaml . | nindent 8 }}\n      {{- end }}\n",
        container: CONTAINER_OK,
        values: "podSecurityContext: {}\n",
        helpers: "",
        expected: &[
            "pss/runAsNonRoot | spec: | podSecurityContext.runAsNonRoot=true",
            "pss/seccompProfile_restricted | spec: | podSecurityContext.seccompProfile={\"type\":\"RuntimeDefault\"}",
        ],
    },
    Case {
        name: "a context that is switched on",
        pod: "      {{- if .Values.podSecurityContext.enabled }}\n      securityContext: {{- omit .Values.podSecurityContext \"enabled\" | toYaml | nindent 8 }}\n      {{- end }}\n",
        container: CONTAINER_OK,
        values: "podSecurityContext:\n  enabled: false\n  runAsNonRoot: true\n  seccompProfile:\n    type: RuntimeDefault\n",
        helpers: "",
        expected: &[
            "pss/runAsNonRoot | spec: | podSecurityContext.enabled=true",
            "pss/seccompProfile_restricted | spec: | podSecurityContext.enabled=true",
        ],
    },
    Case {
        name: "omit of a context that is switched on",
        pod: "      {{- if .Values.podSecurityContext.enabled }}\n      securityContext: {{- omit .Values.podSecurityContext \"enabled\" | toYaml | nindent 8 }}\n      {{- end }}\n",
        container: CONTAINER_OK,
        values: "podSecurityContext:\n  enabled: true\n  runAsNonRoot: true\n  seccompProfile:\n    type: Unconfined\n",
        helpers: "",
        expected: &[
            "pss/seccompProfile_restricted | securityContext: {{- omit .Values.podSecurityContext \"enabled\" | toYaml | nindent 8 }} | podSecurityContext.seccompProfile.type=\"RuntimeDefault\"",
        ],
    },
    Case {
        name: "hostUsers by a literal condition",
        pod: "      {{- if .Values.hostIPC }}\n      hostIPC: true\n      {{- end }}\n      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}\n",
        container: CONTAINER_OK,
        values: "hostIPC: true\n",
        helpers: "",
        // Whether the workload needs it is not known: no fix, but the place.
        expected: &["pss/hostNamespaces | hostIPC: true | -"],
    },
    Case {
        name: "privileged by a condition",
        pod: POD_OK,
        container: "          securityContext:\n            {{- if .Values.debug }}\n            privileged: true\n            {{- end }}\n            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n",
        values: "debug: true\n",
        helpers: "",
        expected: &["pss/privileged | privileged: true | debug=false"],
    },
    Case {
        name: "a condition that also removes another field",
        pod: POD_OK,
        container: "          securityContext:\n            {{- if .Values.debug }}\n            privileged: true\n            {{- end }}\n            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n          {{- if .Values.debug }}\n          workingDir: /debug\n          {{- end }}\n",
        values: "debug: true\n",
        helpers: "",
        // Setting it would change more than security.
        expected: &["pss/privileged | privileged: true | -"],
    },
    Case {
        name: "a helper writes the context",
        pod: POD_OK,
        container: "          securityContext:\n            {{- include \"shop.context\" . | nindent 12 }}\n",
        values: "security:\n  privileged: true\n",
        helpers: "{{- define \"shop.context\" -}}\nprivileged: {{ .Values.security.privileged }}\nallowPrivilegeEscalation: false\ncapabilities:\n  drop:\n    - ALL\n{{- end }}\n",
        expected: &[
            "pss/privileged | privileged: {{ .Values.security.privileged }} | security.privileged=false",
        ],
    },
    Case {
        name: "a helper with a literal",
        pod: POD_OK,
        container: "          securityContext:\n            {{- include \"shop.context\" . | nindent 12 }}\n",
        values: "",
        helpers: "{{- define \"shop.context\" -}}\nprivileged: true\nallowPrivilegeEscalation: false\ncapabilities:\n  drop:\n    - ALL\n{{- end }}\n",
        expected: &["pss/privileged | privileged: true | -"],
    },
    Case {
        name: "tpl of a value",
        pod: POD_OK,
        container: "          securityContext:\n            {{- tpl (toYaml .Values.securityContext) . | nindent 12 }}\n",
        values: "securityContext:\n  allowPrivilegeEscalation: true\n  capabilities: {drop: [ALL]}\n",
        helpers: "",
        expected: &[
            "pss/allowPrivilegeEscalation | {{- tpl (toYaml .Values.securityContext) . | nindent 12 }} | securityContext.allowPrivilegeEscalation=false",
        ],
    },
    Case {
        name: "capabilities from a list",
        pod: POD_OK,
        container: "          securityContext:\n            {{- toYaml .Values.securityContext | nindent 12 }}\n",
        values: "securityContext:\n  allowPrivilegeEscalation: false\n  capabilities:\n    drop: [ALL]\n    add: [NET_BIND_SERVICE, CHOWN, SETUID]\n",
        helpers: "",
        expected: &[
            "pss/capabilities_restricted | {{- toYaml .Values.securityContext | nindent 12 }} | securityContext.capabilities.add=[\"NET_BIND_SERVICE\"]",
            "pss/capabilities_restricted | {{- toYaml .Values.securityContext | nindent 12 }} | securityContext.capabilities.add=[\"NET_BIND_SERVICE\"]",
        ],
    },
    Case {
        name: "a user of the values",
        pod: "      securityContext:\n        runAsNonRoot: true\n        runAsUser: {{ .Values.uid | int64 }}\n        seccompProfile: {type: RuntimeDefault}\n",
        container: CONTAINER_OK,
        values: "uid: 0\n",
        helpers: "",
        expected: &["pss/runAsUser | runAsUser: {{ .Values.uid | int64 }} | -"],
    },
    Case {
        name: "a port of the node",
        pod: POD_OK,
        container: "          ports:\n            - containerPort: 80\n              {{- if .Values.hostPort }}\n              hostPort: {{ .Values.hostPort }}\n              {{- end }}\n          securityContext:\n            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n",
        values: "hostPort: 80\n",
        helpers: "",
        expected: &["pss/hostPorts | hostPort: {{ .Values.hostPort }} | hostPort=null"],
    },
    Case {
        name: "merge of two contexts",
        pod: POD_OK,
        container: "          {{- $context := mergeOverwrite (deepCopy .Values.defaults) .Values.override }}\n          securityContext: {{- toYaml $context | nindent 12 }}\n",
        values: "defaults:\n  allowPrivilegeEscalation: false\n  capabilities: {drop: [ALL]}\noverride:\n  privileged: true\n",
        helpers: "",
        expected: &[
            "pss/privileged | securityContext: {{- toYaml $context | nindent 12 }} | override.privileged=false",
        ],
    },
    Case {
        name: "a dict that is passed on",
        pod: POD_OK,
        container: "          securityContext: {{- include \"shop.render\" (dict \"value\" .Values.securityContext \"context\" $) | nindent 12 }}\n",
        values: "securityContext:\n  procMount: Unmasked\n  allowPrivilegeEscalation: false\n  capabilities: {drop: [ALL]}\n",
        helpers: "{{- define \"shop.render\" -}}\n{{- if typeIs \"string\" .value }}\n{{- tpl .value .context }}\n{{- else }}\n{{- tpl (.value | toYaml) .context }}\n{{- end }}\n{{- end -}}\n",
        expected: &[
            "pss/procMount_restricted | {{- tpl (.value | toYaml) .context }} | securityContext.procMount=\"Default\"",
        ],
    },
    Case {
        name: "a string with YAML",
        pod: POD_OK,
        container: "          securityContext:\n{{ .Values.rawContext | indent 12 }}\n",
        values: "rawContext: |\n  privileged: true\n  allowPrivilegeEscalation: false\n  capabilities: {drop: [ALL]}\n",
        helpers: "",
        expected: &["pss/privileged | {{ .Values.rawContext | indent 12 }} | -"],
    },
    Case {
        name: "a global value",
        pod: POD_OK,
        container: "          securityContext:\n            privileged: {{ .Values.global.privileged }}\n            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n",
        values: "global:\n  privileged: true\n",
        helpers: "",
        expected: &["pss/privileged | privileged: {{ .Values.global.privileged }} | global.privileged=false"],
    },
    Case {
        name: "a variable that a condition sets",
        pod: POD_OK,
        container: "          {{- $privileged := false }}\n          {{- if .Values.docker }}\n          {{- $privileged = true }}\n          {{- end }}\n          securityContext:\n            privileged: {{ $privileged }}\n            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n",
        values: "docker: true\n",
        helpers: "",
        expected: &["pss/privileged | privileged: {{ $privileged }} | docker=false"],
    },
    Case {
        name: "quoted booleans and ternary",
        pod: POD_OK,
        container: "          securityContext:\n            privileged: {{ ternary true false (eq .Values.mode \"debug\") }}\n            allowPrivilegeEscalation: false\n            capabilities: {drop: [ALL]}\n",
        values: "mode: debug\n",
        helpers: "",
        // Which words `mode` may be is not known.
        expected: &["pss/privileged | privileged: {{ ternary true false (eq .Values.mode \"debug\") }} | -"],
    },
    Case {
        name: "nothing to find",
        pod: POD_OK,
        container: CONTAINER_OK,
        values: "",
        helpers: "",
        expected: &[],
    },
];

#[test]
fn findings_point_to_templates_and_to_the_values_that_decide() {
    let mut table = BTreeMap::from([
        ("found", 0),
        ("mapped to template", 0),
        ("mapped to value", 0),
        ("fixed by value", 0),
    ]);
    let mut wrong = String::new();
    for case in CASES {
        let project = project_of(case);
        let run = project.run(&["check", "-o", "json", "shop"]);
        let findings = found(&project, &run);
        if findings != case.expected {
            let _ = writeln!(
                wrong,
                "{}:\n  {}\n  expected\n  {}",
                case.name,
                findings.join("\n  "),
                case.expected.join("\n  ")
            );
            continue;
        }
        *table.get_mut("found").unwrap() += findings.len();
        *table.get_mut("mapped to template").unwrap() += findings.len();
        let by_value = findings.iter().filter(|finding| !finding.ends_with("| -")).count();
        *table.get_mut("mapped to value").unwrap() += by_value;
        // What is fixed is gone, and a second run changes nothing.
        project.run(&["check", "--unsafe-fixes", "--fix-partial", "shop"]);
        let after = project.run(&["check", "-o", "json", "shop"]);
        let left = found(&project, &after);
        assert_eq!(
            left.len(),
            findings.len() - by_value,
            "{}: {left:?}\n{}",
            case.name,
            project.read("shop/values.yaml")
        );
        *table.get_mut("fixed by value").unwrap() += findings.len() - left.len();
        let values = project.read("shop/values.yaml");
        project.run(&["check", "--unsafe-fixes", "--fix-partial", "shop"]);
        assert_eq!(project.read("shop/values.yaml"), values, "{}", case.name);
        assert_eq!(
            project.read("shop/templates/deployment.yaml"),
            template(case),
            "templates are not edited"
        );
    }
    assert!(wrong.is_empty(), "{wrong}");
    let table: Vec<String> = table.iter().map(|(what, count)| format!("{what}: {count}")).collect();
    insta::assert_snapshot!(table.join("\n"), @"
    fixed by value: 22
    found: 30
    mapped to template: 30
    mapped to value: 22
    ");
}

fn chart(project: &Project, folder: &str, about: &str, values: &str, template: &str) {
    project
        .file(&format!("{folder}/Chart.yaml"), format!("apiVersion: v2\nversion: 1.0.0\n{about}"))
        .file(&format!("{folder}/values.yaml"), values)
        .file(&format!("{folder}/templates/pod.yaml"), template);
}

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: {{ .Chart.Name }}
spec:
  containers:
    - name: web
      image: nginx
      securityContext:
        privileged: {{ .Values.privileged }}
";

fn verdicts(run: &Run) -> Vec<String> {
    let json = run.json();
    let objects = json["objects"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    objects
        .iter()
        .map(|object| format!("{} {} {}", text(&object["file"]), text(&object["name"]), object["allowed"]))
        .collect()
}

#[test]
fn subcharts_get_their_values_and_are_enabled_by_conditions_and_tags() {
    let project = Project::new();
    let dependencies = "name: shop\ndependencies:\n- {name: db, version: 1.x, condition: db.enabled}\n- {name: db, version: 1.x, alias: cache, condition: cache.enabled}\n- {name: extra, version: '*', tags: [extras]}\n";
    chart(
        &project,
        "shop",
        dependencies,
        "db: {enabled: true, privileged: true}\ncache: {enabled: false}\ntags: {extras: false}\nprivileged: false\n",
        POD,
    );
    chart(&project, "shop/charts/db", "name: db\n", "privileged: false\n", POD);
    chart(&project, "shop/charts/extra", "name: extra\n", "privileged: true\n", POD);
    let check = |arguments: &[&str]| {
        let run =
            project.run(&[&["check", "--level=baseline", "-o", "json"][..], arguments, &["shop"]].concat());
        verdicts(&run)
    };
    assert_eq!(
        check(&[]),
        ["shop/templates/pod.yaml shop true", "shop/charts/db/templates/pod.yaml db false"]
    );
    assert_eq!(
        check(&[
            "--helm-set",
            "cache.enabled=true",
            "--helm-set",
            "tags.extras=true",
            "--helm-set",
            "db.privileged=null"
        ]),
        [
            "shop/templates/pod.yaml shop true",
            "shop/charts/db/templates/pod.yaml db true",
            "shop/charts/db/templates/pod.yaml cache true",
            "shop/charts/extra/templates/pod.yaml extra false",
        ]
    );
    project.file("prod.yaml", "privileged: true\n");
    assert_eq!(check(&["--helm-values", "prod.yaml"]).first().unwrap(), "shop/templates/pod.yaml shop false");
    // The key is the one of the parent's values.
    let run = project.run(&["check", "--level=baseline", "-o", "json", "shop"]);
    assert_eq!(run.json()["findings"][0]["values"]["set"]["db.privileged"], false, "{run}");
    assert_eq!(run.json()["findings"][0]["values"]["file"], "shop/values.yaml");
    assert_eq!(run.json()["findings"][0]["values"]["line"], 1);
}

#[test]
fn what_an_upgrade_makes_is_checked_as_well() {
    let project = Project::new();
    let hidden = "kind: Pod\napiVersion: v1\nmetadata: {name: hidden}\nspec:\n  hostPID: true\n  containers: [{name: c, image: nginx}]\n";
    for condition in [
        "if .Release.IsUpgrade",
        "if not .Release.IsInstall",
        "if gt (int .Release.Revision) 1",
        "with .Release }}{{ if .IsUpgrade",
        "if index .Release (print \"Is\" \"Upgrade\")",
    ] {
        let ends = "{{ end }}".repeat(condition.matches("}}").count() + 1);
        chart(
            &project,
            "shop",
            "name: shop\n",
            "privileged: false\n",
            &format!("{POD}---\n{{{{ {condition} }}}}\n{hidden}{ends}\n"),
        );
        let run = project.run(&["check", "--level=baseline", "-o", "json", "shop"]);
        assert_eq!(run.status, 1, "{condition}: {run}");
        let findings = run.json()["findings"].as_array().unwrap().clone();
        assert_eq!(findings.len(), 1, "{condition}: {run}");
        assert_eq!(findings[0]["code"], "pss/hostNamespaces");
        assert_eq!(findings[0]["line"], 17, "{condition}: {run}");
        assert!(verdicts(&run).contains(&"shop/templates/pod.yaml hidden false".to_owned()), "{run}");
    }
    // A check of the release that changes nothing is not reported twice.
    let plain =
        POD.replace("{{ .Values.privileged }}", "{{ if .Release.IsUpgrade }}true{{ else }}true{{ end }}");
    chart(&project, "shop", "name: shop\n", "privileged: false\n", &plain);
    let run = project.run(&["check", "--level=baseline", "-o", "json", "shop"]);
    assert_eq!((run.status, run.json()["findings"].as_array().unwrap().len()), (1, 1), "{run}");
}

#[test]
fn an_object_that_an_upgrade_makes_in_the_place_of_another_is_checked() {
    let project = Project::new();
    let plain = POD.replace(
        "name: {{ .Chart.Name }}",
        "name: {{ if .Release.IsUpgrade }}second{{ else }}first{{ end }}",
    );
    assert_ne!(plain, POD);
    chart(&project, "shop", "name: shop\n", "privileged: true\n", &plain);
    let run = project.run(&["check", "--level=baseline", "-o", "json", "shop"]);
    assert_eq!(run.json()["findings"].as_array().unwrap().len(), 2, "{run}");
    let baseline = ["check", "--level=baseline", "--baseline", "known.json", "shop"];
    let plain = POD.replace("name: {{ .Chart.Name }}", "name: first");
    chart(&project, "shop", "name: shop\n", "privileged: true\n", &plain);
    assert_eq!(project.run(&[&baseline[..], &["--write-baseline"]].concat()).status, 0);
    let plain = POD.replace(
        "name: {{ .Chart.Name }}",
        "name: {{ if .Release.IsUpgrade }}second{{ else }}first{{ end }}",
    );
    chart(&project, "shop", "name: shop\n", "privileged: true\n", &plain);
    assert_eq!(project.run(&baseline).status, 1, "the second pod is not the one that is known");
}

#[test]
fn an_upgrade_that_the_chart_refuses_is_checked_as_far_as_it_is_known() {
    let project = Project::new();
    let upgrade = |refusal: &str, pod: &str| {
        format!("{POD}---\n{{{{ if .Release.IsUpgrade }}}}\n{{{{ {refusal} }}}}\n{pod}\n{{{{ end }}}}\n")
    };
    let hidden = "kind: Pod\napiVersion: v1\nmetadata: {name: hidden}\nspec:\n  hostPID: true\n  containers: [{name: c, image: nginx}]\n";
    let good = hidden.replace("hostPID: true", "hostPID: false");
    for (case, refusal, pod, status, codes) in [
        ("a password", "fail \"set password\"", good.as_str(), 0, &["chart/upgrade"][..]),
        ("a required value", "required \"set password\" .Values.password", &good, 0, &["chart/upgrade"]),
        ("a pod behind it", "fail \"set password\"", hidden, 1, &["chart/upgrade", "pss/hostNamespaces"]),
        ("a mistake", "frobnicate", &good, 1, &["chart/render"]),
        ("a mistake behind it", "fail \"x\" }}{{ .Values.a.b.c", &good, 1, &["chart/render"]),
    ] {
        chart(&project, "shop", "name: shop\n", "privileged: false\n", &upgrade(refusal, pod));
        let run = project.run(&["check", "--level=baseline", "-o", "json", "shop"]);
        let json = run.json();
        let found: Vec<&str> =
            json["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
        assert_eq!((run.status, &found[..]), (status, codes), "{case}: {run}");
    }
}

#[test]
fn what_cannot_be_rendered_is_one_error_and_never_a_clean_chart() {
    for (case, template, expected) in [
        ("an unknown function", "{{ frobnicate 1 }}", "the function \"frobnicate\" is not supported"),
        ("a value that is required", "{{ required \"set it\" .Values.x }}", "the chart fails: set it"),
        ("a failure", "{{ fail \"no\" }}", "the chart fails: no"),
        ("a syntax error", "{{ if }}", "unexpected"),
        ("a key of nothing", "{{ .Values.a.b.c }}", "nil pointer evaluating .b"),
        (
            "recursion",
            "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
            "rendering takes more than",
        ),
        ("a long loop", "{{ range until 9000000 }}x{{ end }}", "rendering takes more than"),
        ("a large text", "{{ repeat 900000000 \"xxxxx\" }}", "rendering takes more than"),
        (
            "a text that doubles",
            "{{ $x := \"xxxxxxxx\" }}{{ range until 60 }}{{ $x = print $x $x }}{{ end }}",
            "rendering takes more than",
        ),
        (
            "a map in itself",
            "{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ toYaml $d }}",
            "rendering takes more than",
        ),
        ("an undefined template", "{{ include \"no\" . }}", "template \"no\" is not defined"),
        (
            "deep conditions and recursion",
            &format!(
                "{{{{ define \"a\" }}}}{}{{{{ $x := {}include \"a\" .{} }}}}{}{{{{ end }}}}{{{{ include \"a\" . }}}}",
                "{{ if true }}".repeat(45),
                "(".repeat(45),
                ")".repeat(45),
                "{{ end }}".repeat(45)
            ),
            "rendering takes more than 1,500 blocks inside each other",
        ),
        (
            "deep parentheses",
            &format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000)),
            "nested too deeply",
        ),
        ("deep conditions", &"{{ if true }}".repeat(5000), "nested too deeply"),
    ] {
        let project = Project::new();
        chart(&project, "shop", "name: shop\n", "privileged: false\n", template);
        project.file("shop/templates/other.yaml", crate::support::GOOD);
        let run = project.run(&["check", "."]);
        assert_eq!(run.status, 1, "{case}: {run}");
        assert!(
            run.stdout.matches("error[chart/render]").count() == 1 && run.stdout.contains(expected),
            "{case}: {run}"
        );
    }
}

/// A packed chart, with its files below a folder of its name.
fn packed(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive =
        tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

#[test]
fn packed_charts_are_read_in_bounded_size() {
    let project = Project::new();
    let values = "privileged: true\n";
    let db = packed(&[
        ("db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.0.0\n"),
        ("db/values.yaml", values),
        ("db/templates/pod.yaml", POD),
    ]);
    chart(&project, "shop", "name: shop\n", "privileged: false\n", POD);
    project.file("shop/charts/db-1.0.0.tgz", &db).file("db-1.0.0.tgz", &db);
    let run = project.run(&["check", "--level=baseline", "-o", "json", "shop", "db-1.0.0.tgz"]);
    assert_eq!(
        verdicts(&run),
        [
            "db-1.0.0.tgz/templates/pod.yaml db false",
            "shop/templates/pod.yaml shop true",
            "shop/charts/db-1.0.0.tgz/templates/pod.yaml db false",
        ],
        "{run}"
    );
    // Much in little: the archive is left alone.
    project.file("bomb.tgz", packed(&[("x/Chart.yaml", &" ".repeat(70 << 20))]));
    let run = project.run(&["check", "bomb.tgz"]);
    assert!(run.status == 2 && run.stdout.contains("error[chart/unreadable]"), "{run}");
    project.file("broken.tgz", "no archive");
    let run = project.run(&["check", "broken.tgz"]);
    assert!(run.status == 2 && run.stdout.contains("error[chart/unreadable]"), "{run}");
}

/// An archive of one member with these files, whatever their names and types.
fn archived(files: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
    let mut blocks = Vec::new();
    for (name, kind, content) in files {
        let mut header = tar::Header::new_ustar();
        header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::new(*kind));
        header.set_cksum();
        blocks.extend_from_slice(header.as_bytes());
        blocks.extend_from_slice(content);
        blocks.resize(blocks.len().next_multiple_of(512), 0);
    }
    blocks
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut file, bytes).unwrap();
    file.finish().unwrap()
}

#[test]
fn a_packed_chart_hides_no_file_that_helm_reads() {
    const EVIL: &[u8] = b"apiVersion: v1\nkind: Pod\nmetadata: {name: evil}\nspec: {hostPID: true, containers: [{name: c, image: i}]}\n";
    const OTHER: &[u8] =
        b"apiVersion: v1\nkind: Pod\nmetadata: {name: other}\nspec: {containers: [{name: c, image: i}]}\n";
    const ABOUT: &[u8] = b"apiVersion: v2\nname: shop\nversion: 1.0.0\n";
    let not_text = [b"{{/* \xff */}}\n", EVIL].concat();
    let below = compressed(&archived(&[
        (b"db/Chart.yaml", b'0', b"apiVersion: v2\nname: db\nversion: 1.0.0\n"),
        (b"db/templates/evil.yaml", b'0', EVIL),
    ]));
    let start: [(&[u8], u8, &[u8]); 2] =
        [(b"shop/Chart.yaml", b'0', ABOUT), (b"shop/templates/good.yaml", b'0', OTHER)];
    let with = |name: &'static [u8], kind: u8, content: &[u8]| {
        compressed(&archived(&[start.as_slice(), &[(name, kind, content)]].concat()))
    };
    let members =
        [compressed(&archived(&start)), compressed(&archived(&[(b"shop/templates/evil.yaml", b'0', EVIL)]))];
    for (case, archive, expected) in [
        ("a file of another member", members.concat(), "hostNamespaces"),
        ("a contiguous file", with(b"shop/templates/evil.yaml", b'7', EVIL), "hostNamespaces"),
        ("a name with backslashes", with(br"shop\templates\evil.yaml", b'0', EVIL), "hostNamespaces"),
        ("a file in crds", with(b"shop/crds/evil.yaml", b'0', EVIL), "hostNamespaces"),
        ("a chart in a packed chart", with(b"shop/charts/db-1.0.0.tgz", b'0', &below), "hostNamespaces"),
        ("crds of a chart below", with(b"shop/crds/more/evil.yml", b'0', EVIL), "hostNamespaces"),
        (
            "a template that is not UTF-8",
            with(b"shop/templates/evil.yaml", b'0', &not_text),
            "the template is not UTF-8",
        ),
        (
            "a name with ..",
            with(b"shop/x/../templates/evil.yaml", b'0', EVIL),
            "not below the folder of its chart",
        ),
        ("a name outside", with(b"evil.yaml", b'0', EVIL), "not below the folder of its chart"),
        ("a link", with(b"shop/templates/evil.yaml", b'2', b""), "neither a file nor a folder"),
        ("a file twice", with(b"shop/templates/good.yaml", b'0', EVIL), "twice"),
        ("the harmless twin", with(b"shop/templates/other.yaml", b'0', OTHER), ""),
        ("a folder", with(b"shop/templates/", b'5', b""), ""),
    ] {
        let project = Project::new();
        project.file("shop.tgz", archive);
        let run = project.run(&["check", "--level=baseline", "shop.tgz"]);
        assert_eq!(run.status == 0, expected.is_empty(), "{case}: {run}");
        assert!(run.stdout.contains(expected), "{case}: {run}");
    }
}

#[test]
fn dependencies_that_are_not_there_are_an_error() {
    let project = Project::new();
    chart(
        &project,
        "shop",
        "name: shop\ndependencies:\n- {name: db, version: 1.x, repository: 'https://example.com'}\n",
        "privileged: false\n",
        POD,
    );
    let run = project.run(&["check", "--level=baseline", "shop"]);
    assert!(run.status == 1 && run.stdout.contains("error[chart/dependency]"), "{run}");
    // One beside it is read where it is.
    project.file("shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:\n- {name: db, version: 1.x, repository: 'file://../db'}\n");
    chart(&project, "db", "name: db\n", "privileged: true\n", POD);
    let run = project.run(&["check", "--level=baseline", "-o", "json", "shop"]);
    assert_eq!(
        verdicts(&run),
        ["shop/templates/pod.yaml shop true", "shop/charts/db/templates/pod.yaml db false"],
        "{run}"
    );
}

#[test]
fn a_dependency_of_another_version_is_rendered_as_helm_does() {
    let project = Project::new();
    let required = "name: shop\ndependencies:\n- {name: db, version: 1.x, condition: db.enabled}\n";
    chart(&project, "shop", required, "privileged: false\n", POD);
    let below = |folder: &str, version: &str, template: &str| {
        let folder = format!("shop/charts/{folder}");
        chart(&project, &folder, "name: db\n", "privileged: true\n", template);
        project
            .file(&format!("{folder}/Chart.yaml"), format!("apiVersion: v2\nname: db\nversion: {version}\n"));
    };
    let check = |options: &[&str]| {
        let run = project.run(&[&["check", "--level=baseline", "-o", "json", "shop"], options].concat());
        assert_eq!(run.json()["summary"]["errors"], 0, "{run}");
        verdicts(&run)
    };
    below("db", "2.0.0", POD);
    let own = "shop/templates/pod.yaml shop true";
    assert_eq!(check(&[]), [own, "shop/charts/db/templates/pod.yaml db false"]);
    assert_eq!(check(&["--helm-set=db.enabled=false"]), [own]);
    // One that fits does not hide it.
    below("fits", "1.4.0", &POD.replace("{{ .Chart.Name }}", "second"));
    let found = check(&[]);
    assert!(
        found.iter().any(|one| one.ends_with("db false"))
            && found.iter().any(|one| one.ends_with("second false")),
        "{found:?}"
    );
    assert_eq!(check(&["--helm-set=db.enabled=false"]), [own]);
}

#[test]
fn a_chart_in_a_repository_is_checked_once() {
    let project = Project::new();
    project.file("good.yaml", crate::support::GOOD);
    chart(&project, "deploy/shop", "name: shop\n", "privileged: true\n", POD);
    insta::assert_snapshot!(project.run(&["check", "--level=baseline", "."]), @r#"
    error[pss/privileged]: container "web" is privileged
      --> deploy/shop/templates/pod.yaml:10:21
       |
    10 |         privileged: {{ .Values.privileged }}
       |                     ^^^^^^^^^^^^^^^^^^^^^^^^ baseline allows false, or no value
       = because: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node
       = because: the template renders `privileged: true` here
       = because: the value `privileged`, deploy/shop/values.yaml:1 is written here
       = help: set `privileged: false` in deploy/shop/values.yaml; rendered with it, the finding is gone

    2 objects in 4 files checked at baseline:latest: 1 allowed, 1 denied; 1 error
    1 finding can be fixed with --unsafe-fixes; --diff shows what would change
    exit status: 1
    "#);
}

#[test]
fn safe_settings_are_written_and_others_only_when_asked() {
    let project = Project::new();
    let template = POD.replace("privileged: {{ .Values.privileged }}", "allowPrivilegeEscalation: {{ .Values.escalate }}\n        runAsNonRoot: true\n        runAsUser: 1000\n        capabilities: {drop: [ALL]}\n  securityContext: {{- toYaml .Values.pod | nindent 4 }}");
    chart(&project, "shop", "name: shop\n", "escalate: true # sudo\npod: {}\n", &template);
    let safe = project.run(&["check", "--fix", "shop"]);
    assert!(
        safe.stderr.contains("not fixed") && project.read("shop/values.yaml").contains("pod: {}"),
        "{safe}"
    );
    let all = project.run(&["check", "--unsafe-fixes", "shop"]);
    assert_eq!(all.status, 0, "{all}");
    assert_eq!(
        project.read("shop/values.yaml"),
        "escalate: false # sudo\npod:\n  seccompProfile:\n    type: RuntimeDefault\n",
        "{all}"
    );
}
