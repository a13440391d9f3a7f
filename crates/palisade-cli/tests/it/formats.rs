//! The machine-readable outputs.

use serde_json::Value;

use crate::support::{GOOD, PRIVILEGED, Project};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn project() -> Project {
    let project = Project::new();
    project.file("b/bad.yaml", PRIVILEGED).file("a/good.yaml", GOOD).file(
        "c/list.yaml",
        format!("kind: ConfigMap\napiVersion: v1\n---\napiVersion: v1\nkind: PodList\nitems:\n- metadata: {{name: x}}\n  spec: {{containers: [{{name: c}}]}}\n- metadata: {{generateName: y-}}\n  spec: {{hostPID: true, containers: [{{name: c}}]}}\n---\n{PRIVILEGED}"),
    );
    project
}

#[test]
fn json_has_exactly_the_stable_keys() {
    let run = project().run(&["check", ".", "--level=baseline", "-o", "json"]);
    let json = run.json();
    // serde_json sorts keys when it reads.
    assert_eq!(keys(&json), ["findings", "objects", "summary"]);
    for object in json["objects"].as_array().unwrap() {
        assert_eq!(
            keys(object),
            ["allowed", "document", "file", "kind", "level", "message", "name", "namespace", "version"]
        );
    }
    for finding in json["findings"].as_array().unwrap() {
        assert_eq!(
            keys(finding),
            ["code", "column", "container", "file", "fix", "help", "line", "message", "path", "severity"]
        );
    }
    assert_eq!(keys(&json["summary"]), ["allowed", "denied", "errors", "objects", "skipped"]);
    assert_eq!(run.status, 1);
}

#[test]
fn json_has_the_messages_of_upstream() {
    let run = project().run(&["check", ".", "--level=baseline", "--policy-version=v1.30", "-o", "json"]);
    insta::assert_snapshot!(run, @r#"
    {"objects":[
    {"file":"a/good.yaml","document":0,"kind":"Pod","namespace":null,"name":"good","allowed":true,"level":"baseline","version":"v1.30","message":""},
    {"file":"b/bad.yaml","document":0,"kind":"Pod","namespace":"shop","name":"bad","allowed":false,"level":"baseline","version":"v1.30","message":"privileged (container \"web\" must not set securityContext.privileged=true)"},
    {"file":"c/list.yaml","document":1,"kind":"Pod","namespace":null,"name":"x","allowed":true,"level":"baseline","version":"v1.30","message":""},
    {"file":"c/list.yaml","document":1,"kind":"Pod","namespace":null,"name":"y-","allowed":false,"level":"baseline","version":"v1.30","message":"host namespaces (hostPID=true)"},
    {"file":"c/list.yaml","document":2,"kind":"Pod","namespace":"shop","name":"bad","allowed":false,"level":"baseline","version":"v1.30","message":"privileged (container \"web\" must not set securityContext.privileged=true)"}],
    "findings":[
    {"code":"pss/privileged","severity":"error","file":"b/bad.yaml","line":10,"column":21,"path":"spec.containers[0].securityContext.privileged","container":"web","message":"container \"web\" is privileged","help":"set `securityContext.privileged: false` in container \"web\"","fix":[{"op":"set","path":"spec.containers[0].securityContext.privileged","value":false,"safe":false,"reason":"the container loses every right on the node"}]},
    {"code":"pss/hostNamespaces","severity":"error","file":"c/list.yaml","line":10,"column":19,"path":"spec.hostPID","container":null,"message":"pod sets hostPID","help":"no automatic fix: remove `hostPID` only if the workload does not need the node's processes","fix":null},
    {"code":"pss/privileged","severity":"error","file":"c/list.yaml","line":21,"column":21,"path":"spec.containers[0].securityContext.privileged","container":"web","message":"container \"web\" is privileged","help":"set `securityContext.privileged: false` in container \"web\"","fix":[{"op":"set","path":"spec.containers[0].securityContext.privileged","value":false,"safe":false,"reason":"the container loses every right on the node"}]}],
    "summary":{"objects":5,"allowed":2,"denied":3,"skipped":1,"errors":0}}
    5 objects in 3 files checked at baseline:v1.30: 2 allowed, 3 denied; 3 errors, 1 object of kinds that are not checked
    2 findings can be fixed with --unsafe-fixes; --diff shows what would change
    exit status: 1
    "#);
}

#[test]
fn json_without_any_file_to_read_is_still_json() {
    let run = Project::new().run(&["check", "nothing.yaml", "-o", "json"]);
    assert_eq!(run.json()["summary"]["errors"], 1);
    assert_eq!(run.json()["findings"][0]["line"], Value::Null);
    assert_eq!(run.status, 2);
}

#[test]
fn uses_the_namespace_of_the_option() {
    let run = Project::with(GOOD).run(&["check", ".", "-o", "json", "--namespace", "team-a"]);
    assert_eq!(run.json()["objects"][0]["namespace"], "team-a");
    let run = Project::with(PRIVILEGED).run(&["check", ".", "-o", "json", "--namespace", "team-a"]);
    assert_eq!(run.json()["objects"][0]["namespace"], "shop");
}

#[test]
fn sarif_has_what_the_standard_requires() {
    let run = project().run(&["check", ".", "-o", "sarif"]);
    let sarif = run.json();
    assert_eq!(sarif["version"], "2.1.0");
    assert!(sarif["$schema"].as_str().unwrap().ends_with("sarif-2.1.0.json"));
    let run = &sarif["runs"][0];
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "palisade");
    let rules: Vec<&str> =
        driver["rules"].as_array().unwrap().iter().map(|rule| rule["id"].as_str().unwrap()).collect();
    let results = run["results"].as_array().unwrap();
    assert!(results.len() > 10, "{}", results.len());
    for result in results {
        assert!(rules.contains(&result["ruleId"].as_str().unwrap()), "{result}");
        assert!(["error", "warning", "note", "none"].contains(&result["level"].as_str().unwrap()));
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let place = &result["locations"][0]["physicalLocation"];
        assert!(!place["artifactLocation"]["uri"].as_str().unwrap().is_empty());
        let region = &place["region"];
        let number = |name: &str| region[name].as_u64().unwrap();
        assert!(number("startLine") >= 1 && number("startColumn") >= 1);
        assert!(number("endLine") >= number("startLine"));
        assert!(number("endLine") > number("startLine") || number("endColumn") >= number("startColumn"));
    }
}

#[test]
fn sarif_names_files_as_uris() {
    let project = Project::new();
    project.file("a b/é.yaml", PRIVILEGED);
    let sarif = project.run(&["check", "./a b", "-o", "sarif"]).json();
    let place = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "a%20b/%C3%A9.yaml");
}

#[test]
fn junit_has_a_case_for_every_object() {
    let project = Project::new();
    project.file("a.yaml", format!("{GOOD}---\n{PRIVILEGED}---\nx: [\n"));
    let run = project.run(&["check", "a.yaml", "--level=baseline", "-o", "junit", "-q"]);
    insta::assert_snapshot!(run, @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuites name="palisade" tests="3" skipped="0" failures="1" errors="1">
        <testsuite name="a.yaml" tests="3" skipped="0" errors="1" failures="1">
            <testcase name="Pod good" classname="a.yaml"/>
            <testcase name="Pod shop/bad" classname="a.yaml">
                <failure message="violates PodSecurity &quot;baseline:latest&quot;: privileged (container &quot;web&quot; must not set securityContext.privileged=true)" type="pss/privileged">error[pss/privileged]: container &quot;web&quot; is privileged
      --&gt; a.yaml:27:21
       |
    27 |         privileged: true
       |                     ^^^^ baseline allows false, or no value
       = in: Pod shop/bad
       = because: Pod Security Standards v1.37, Baseline, &quot;Privileged Containers&quot;: a privileged container is root on the node
       = help: set `securityContext.privileged: false` in container &quot;web&quot;

    </failure>
            </testcase>
            <testcase name="a.yaml" classname="a.yaml">
                <error message="expected a value here" type="yaml/syntax">error[yaml/syntax]: expected a value here
      --&gt; a.yaml:31:1
       |
    30 | x: [
       |    - the bracket that is open here
    31 |
       | ^

    </error>
            </testcase>
        </testsuite>
    </testsuites>
    exit status: 1
    "#);
}

#[test]
fn github_shows_findings_beside_the_code() {
    let run = Project::with(PRIVILEGED).run(&["check", "pod.yaml", "--level=baseline", "-o", "github", "-q"]);
    insta::assert_snapshot!(run, @r#"
    ::error file=pod.yaml,line=10,col=21,endColumn=25,title=pss/privileged::container "web" is privileged%0Abecause: Pod Security Standards v1.37, Baseline, "Privileged Containers": a privileged container is root on the node%0Ahelp: set `securityContext.privileged: false` in container "web"
    exit status: 1
    "#);
}

#[test]
fn names_are_those_of_kubectl() {
    let project = project();
    project.file("d.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {hostIPC: true, containers: [{name: c}]}}}\n");
    insta::assert_snapshot!(project.run(&["check", ".", "--level=baseline", "-o", "name", "-q"]), @r#"
    pod/bad
    pod/y-
    pod/bad
    deployment.apps/web
    exit status: 1
    "#);
}

#[test]
fn writes_several_outputs_at_once() {
    let project = Project::with(PRIVILEGED);
    let outputs = ["-o", "human", "-o", "json=out.json,sarif=out.sarif", "-o", "junit=out.xml"];
    let run =
        project.run(&[&["check", "pod.yaml", "--level=baseline", "--color=always"][..], &outputs].concat());
    assert!(run.stdout.contains("\u{1b}["), "{run}");
    let json: Value = serde_json::from_str(&project.read("out.json")).unwrap();
    assert_eq!(json["summary"]["denied"], 1);
    let sarif: Value = serde_json::from_str(&project.read("out.sarif")).unwrap();
    assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), 1);
    let junit = project.read("out.xml");
    assert!(junit.contains("failures=\"1\"") && !junit.contains('\u{1b}'), "{junit}");

    let run = project.run(&["check", "pod.yaml", "-o", "json", "-o", "sarif"]);
    assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{run}");
    let run = project.run(&["check", "pod.yaml", "-o", "json=no/such/folder/x"]);
    assert_eq!(run.status, 3, "{run}");
}

#[test]
fn output_does_not_depend_on_the_order_of_workers() {
    let project = Project::new();
    for number in 0..200 {
        project.file(&format!("{number:03}.yaml"), if number % 3 == 0 { PRIVILEGED } else { GOOD });
    }
    let alone = project.run(&["check", ".", "--jobs=1"]);
    assert_eq!(alone.status, 1);
    for jobs in ["--jobs=2", "--jobs=7"] {
        assert_eq!(project.run(&["check", ".", jobs]).to_string(), alone.to_string(), "{jobs}");
    }
}
