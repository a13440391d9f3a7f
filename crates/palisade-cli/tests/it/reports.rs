//! Reports that programs and browsers read: each against its schema or its consumer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::{
    dashboard::browse,
    schema::violations,
    support::{GOOD, PRIVILEGED, Project},
};

/// Objects with every kind of finding: of both levels, warnings, invalid values, files that cannot be read.
fn mixed() -> Project {
    let project = Project::new();
    project
        .file("good.yaml", GOOD)
        .file("shop/bad.yaml", format!("{PRIVILEGED}---\n{}", PRIVILEGED.replace("name: bad", "name: worse")))
        .file("shop/dead.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: dead\n  annotations:\n    seccomp.security.alpha.kubernetes.io/pod: runtime/default\nspec:\n  containers:\n  - name: c\n    image: i\n    ports: [{containerPort: 1, hostPort: 1}]")
        .file("shop/invalid.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: i}\nspec:\n  hostNetwrok: true\n  securityContext: {seccompProfile: {type: Localhost}}\n  containers: [{name: c, image: i}]\n")
        .file("broken.yaml", "apiVersion: v1\nkind: Pod\nspec: [\n");
    project
}

fn schema(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn sarif_is_valid_and_names_severities() {
    let sarif = mixed().run(&["check", ".", "-o", "sarif"]).json();
    let found = violations(&schema(include_str!("schemas/sarif.json")), &sarif);
    assert!(found.is_empty(), "{found:#?}");
    let run = &sarif["runs"][0];
    assert_eq!(run["invocations"][0]["executionSuccessful"], false, "a file could not be read");
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let severity = |id: &str| {
        let rule = rules.iter().find(|rule| rule["id"] == id).unwrap_or_else(|| panic!("{id}"));
        rule["properties"]["security-severity"].as_str().map(|score| score.parse::<f64>().unwrap())
    };
    assert!(severity("pss/privileged") >= Some(9.0));
    assert!(severity("pss/hostPorts") >= Some(7.0) && severity("pss/hostPorts") < Some(9.0));
    assert!(severity("pss/runAsNonRoot") >= Some(4.0) && severity("pss/runAsNonRoot") < Some(7.0));
    assert_eq!(severity("yaml/syntax"), None);
    for rule in rules.iter().filter(|rule| rule["properties"].get("security-severity").is_some()) {
        assert!(rule["properties"]["tags"].as_array().unwrap().contains(&"security".into()), "{rule}");
    }
    let fingerprints: Vec<&Value> =
        run["results"].as_array().unwrap().iter().map(|r| &r["partialFingerprints"]["palisade/v2"]).collect();
    let different: BTreeSet<String> = fingerprints.iter().map(ToString::to_string).collect();
    assert_eq!(different.len(), fingerprints.len(), "each result has its own");
}

#[test]
fn fingerprints_stay_the_same_when_lines_and_documents_move() {
    let project = Project::with(PRIVILEGED);
    let fingerprints =
        |text: &str| -> BTreeMap<String, String> {
            project.file("pod.yaml", text);
            let sarif = project.run(&["check", "pod.yaml", "-o", "sarif"]).json();
            let gitlab = project.run(&["check", "pod.yaml", "-o", "gitlab"]).json();
            let results = sarif["runs"][0]["results"].as_array().unwrap().iter();
            let of_sarif = results
                .filter(|result| result["message"]["text"].as_str().unwrap().contains("web"))
                .map(|result| {
                    (
                        format!("sarif {}", result["ruleId"]),
                        result["partialFingerprints"]["palisade/v2"].to_string(),
                    )
                });
            let issues = gitlab
                .as_array()
                .unwrap()
                .iter()
                .filter(|issue| issue["description"].as_str().unwrap().contains("web"));
            of_sarif
                .chain(issues.map(|issue| {
                    (format!("gitlab {}", issue["check_name"]), issue["fingerprint"].to_string())
                }))
                .collect()
        };
    let before = fingerprints(PRIVILEGED);
    assert!(before.len() > 4, "{before:?}");
    assert_eq!(
        fingerprints(&format!("# moved\n\n{}---\n{PRIVILEGED}", GOOD.replace("web", "other"))),
        before
    );
    assert_ne!(fingerprints(&PRIVILEGED.replace("name: bad", "name: other")), before);
}

/// Replaces regions as SARIF describes them: from the last to the first, columns in characters.
fn apply(text: &str, replacements: &[Value]) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let offset = |line: u64, column: u64| {
        let before: usize =
            lines.iter().take(usize::try_from(line - 1).unwrap()).map(|line| line.len()).sum();
        let line = lines.get(usize::try_from(line - 1).unwrap()).copied().unwrap_or_default();
        before + line.chars().take(usize::try_from(column - 1).unwrap()).map(char::len_utf8).sum::<usize>()
    };
    let mut text = text.to_owned();
    for replacement in replacements.iter().rev() {
        let number = |name: &str| replacement["deletedRegion"][name].as_u64().unwrap();
        let (start, end) = (
            offset(number("startLine"), number("startColumn")),
            offset(number("endLine"), number("endColumn")),
        );
        text.replace_range(start..end, replacement["insertedContent"]["text"].as_str().unwrap());
    }
    text
}

#[test]
fn the_fixes_of_sarif_fix_their_findings() {
    let project = mixed();
    project.file("é.yaml", PRIVILEGED.replace("image: nginx", "image: 'é' # ü").trim_end());
    let sarif = project.run(&["check", ".", "-o", "sarif"]).json();
    let mut fixed = 0;
    for result in sarif["runs"][0]["results"].as_array().unwrap() {
        let Some(fix) = result["fixes"].get(0) else { continue };
        let change = &fix["artifactChanges"][0];
        let uri = change["artifactLocation"]["uri"].as_str().unwrap().replace("%C3%A9", "é");
        let text = apply(&project.read(&uri), change["replacements"].as_array().unwrap());
        let copy = Project::with(&text);
        let left = copy.run(&["check", "pod.yaml", "-o", "sarif"]).json();
        let count = |sarif: &Value, file: &str| {
            let results = sarif["runs"][0]["results"].as_array().unwrap().iter();
            results
                .filter(|other| {
                    other["ruleId"] == result["ruleId"]
                        && other["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
                            .as_str()
                            .unwrap()
                            .replace("%C3%A9", "é")
                            == file
                })
                .count()
        };
        assert!(count(&left, "pod.yaml") < count(&sarif, &uri), "{result:#}\n{text}");
        fixed += 1;
    }
    assert!(fixed > 10, "{fixed}");
}

#[test]
fn gitlab_reports_are_valid() {
    let project = mixed();
    let gitlab = project.run(&["check", ".", "-o", "gitlab"]).json();
    let found = violations(&schema(include_str!("schemas/gitlab.json")), &gitlab);
    assert!(found.is_empty(), "{found:#?}");
    let issues = gitlab.as_array().unwrap();
    let fingerprints: BTreeSet<&str> =
        issues.iter().map(|issue| issue["fingerprint"].as_str().unwrap()).collect();
    assert_eq!(fingerprints.len(), issues.len(), "each issue has its own");
    let severity = |code: &str| {
        issues.iter().find(|issue| issue["check_name"] == code).unwrap()["severity"].as_str().unwrap()
    };
    assert_eq!(
        ["pss/privileged", "pss/hostPorts", "annotation/dead", "yaml/syntax"].map(severity),
        ["critical", "major", "minor", "blocker"]
    );
    let absolute = project.run(&[
        "check",
        &project.path("good.yaml").display().to_string(),
        &project.path("broken.yaml").display().to_string(),
        "-o",
        "gitlab",
    ]);
    assert_eq!(absolute.json()[0]["location"]["path"], "broken.yaml", "relative to the folder of the job");
    let clean = Project::with(GOOD).run(&["check", ".", "-o", "gitlab"]);
    assert_eq!(clean.json(), Value::Array(Vec::new()));
}

#[test]
fn junit_of_hostile_names_is_well_formed() {
    let project = Project::with(&PRIVILEGED.replace("name: bad", "name: \"<\\u0001&]]>\\\"\\e[31m\\uFFFE\""));
    let run = project.run(&["check", ".", "-o", "junit"]);
    let report = quick_junit::Report::deserialize_from_str(&run.stdout).unwrap();
    assert_eq!((report.tests, report.failures, report.errors), (1, 1, 0), "{run}");
    assert!(!run.stdout.contains(['\u{1}', '\u{1b}', '\u{fffe}']), "{run}");
}

/// What a reader of JUnit's format makes of a report: cases, failures and errors by suite, counted and as the report has them.
const READER: &str = r"
import json, sys
from junitparser import Error, Failure, JUnitXml
report = JUnitXml.fromfile(sys.argv[1])
suites = {}
for suite in report:
    results = [result for case in suite for result in case.result]
    counted = [len(list(suite)), sum(isinstance(r, Failure) for r in results), sum(isinstance(r, Error) for r in results)]
    assert counted == [suite.tests, suite.failures, suite.errors], (suite.name, counted)
    assert all(result.message and result.text for result in results), suite.name
    suites[suite.name] = counted
totals = [sum(column) for column in zip(*suites.values())]
assert totals == [report.tests, report.failures, report.errors], totals
print(json.dumps(suites))
";

#[test]
fn a_reader_of_junit_from_pypi_reads_the_report() {
    let project = mixed();
    let objects = project.run(&["check", ".", "-o", "junit=report.xml", "-o", "json"]).json();
    let run = |command: &mut Command| {
        let output = command.output().expect("python3 and python3-venv are installed: cargo xtask setup");
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(project.path("venv")));
    let python = || Command::new(project.path("venv/bin/python"));
    run(python().args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
        "junitparser",
    ]));
    let printed = run(python().args(["-c", READER]).arg(project.path("report.xml")));
    let suites: BTreeMap<String, [u64; 3]> = serde_json::from_str(&printed).unwrap();
    let of_file = |file: &str, denied: bool| {
        let all = objects["objects"].as_array().unwrap().iter();
        let counted = all.filter(|object| object["file"] == file && (!denied || object["allowed"] == false));
        u64::try_from(counted.count()).unwrap()
    };
    // What could not be checked is a case of its own, with an error.
    assert_eq!(suites["broken.yaml"], [1, 0, 1]);
    for file in ["good.yaml", "shop/bad.yaml", "shop/dead.yaml", "shop/invalid.yaml"] {
        assert_eq!(suites[file], [of_file(file, false), of_file(file, true), 0], "{file}");
    }
    assert_eq!(suites.len(), 5, "{suites:?}");
}

#[test]
fn a_summary_has_a_line_for_each_object_and_totals() {
    insta::assert_snapshot!(mixed().run(&["check", ".", "--summary"]), @r"
    RESULT     OBJECT          FILE               FINDINGS
    unchecked  -               broken.yaml        yaml/syntax
    allowed    Pod good        good.yaml
    denied     Pod shop/bad    shop/bad.yaml      pss/allowPrivilegeEscalation, pss/capabilities_restricted, pss/privileged, pss/runAsNonRoot, pss/seccompProfile_restricted
    denied     Pod shop/worse  shop/bad.yaml      pss/allowPrivilegeEscalation, pss/capabilities_restricted, pss/privileged, pss/runAsNonRoot, pss/seccompProfile_restricted
    denied     Pod dead        shop/dead.yaml     annotation/dead, pss/allowPrivilegeEscalation, pss/capabilities_restricted, pss/hostPorts, pss/runAsNonRoot, pss/seccompProfile_restricted
    denied     Pod i           shop/invalid.yaml  api/unknown-field, profile/seccomp-file, pss/allowPrivilegeEscalation, pss/capabilities_restricted, pss/runAsNonRoot

    RULE                           ERRORS  WARNINGS  OBJECTS
    annotation/dead                     0         1        1
    api/unknown-field                   1         0        1
    profile/seccomp-file                1         0        1
    pss/allowPrivilegeEscalation        4         0        4
    pss/capabilities_restricted         4         0        4
    pss/hostPorts                       1         0        1
    pss/privileged                      2         0        2
    pss/runAsNonRoot                    4         0        4
    pss/seccompProfile_restricted       3         0        3
    yaml/syntax                         1         0        0

    FOLDER  OBJECTS  ALLOWED  DENIED  ERRORS  WARNINGS
    .             1        1       0       1         0
    shop          4        0       4      20         1
    5 objects in 5 files checked at restricted:latest: 1 allowed, 4 denied; 21 errors, 1 warning
    18 findings can be fixed, 1 with --fix and 17 with --unsafe-fixes; --diff shows what would change
    exit status: 1
    ");
    let run = mixed().run(&["check", ".", "--summary", "-o", "json"]);
    assert_eq!(run.status, 2, "{run}");
}

#[test]
fn a_table_has_a_line_for_each_finding() {
    let project = Project::with(PRIVILEGED);
    insta::assert_snapshot!(project.run(&["check", ".", "--level=baseline", "-o", "table"]), @r#"
    SEVERITY  CODE            OBJECT        CONTAINER  PLACE           MESSAGE
    error     pss/privileged  Pod shop/bad  web        pod.yaml:10:21  container "web" is privileged
    1 object in 1 file checked at baseline:latest: 0 allowed, 1 denied; 1 error
    1 finding can be fixed with --unsafe-fixes; --diff shows what would change
    exit status: 1
    "#);
    project.file("pod.yaml", GOOD);
    assert_eq!(project.run(&["check", ".", "-o", "table"]).stdout, "");
}

/// How often each element is in a document.
fn elements(dom: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for part in dom.split('<').skip(1).filter(|part| part.starts_with(|c: char| c.is_ascii_alphabetic())) {
        let name: String = part.chars().take_while(char::is_ascii_alphanumeric).collect();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

fn dom(project: &Project, fragment: &str) -> String {
    let url = format!("file://{}#{fragment}", project.path("report.html").display());
    browse(&project.path("profile"), "1180,1400", "--dump-dom", &url)
}

/// A pod, with a text wherever a manifest can have one.
fn pod_with(text: &str) -> Project {
    let project = Project::new();
    let quoted = serde_json::to_string(text).unwrap();
    let pod = format!(
        "# {comment}\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {quoted}\n  namespace: {quoted}\n  annotations: {{\"container.apparmor.security.beta.kubernetes.io/x\": {quoted}}}\nspec:\n  # {comment}\n  hostNetwrok: {quoted}\n  volumes: [{{name: {quoted}, hostPath: {{path: {quoted}}}}}]\n  containers:\n  - name: {quoted} # {comment}\n    image: {quoted}\n    securityContext: {{privileged: true, capabilities: {{add: [{quoted}]}}}} # {comment}\n    ports: [{{containerPort: 1, hostPort: 1, name: {quoted}}}]\n",
        comment = text.replace('\n', " ")
    );
    let name: String = text.chars().filter(|c| !matches!(c, '/' | '\n' | '\0')).take(60).collect();
    project.file(&format!("{name}.yaml"), pod);
    project
}

#[test]
fn a_page_shows_hostile_text_as_text() {
    let attacks = [
        "<script>document.title='hostile'</script>",
        "\"><img src=x onerror=\"document.title='hostile'\">",
        "'><svg onload=document.title='hostile'>",
        "</pre></article></section><script>document.title='hostile'</script><!--",
        "</style></title><base href=https://example.com><meta http-equiv=refresh content=0;url=x>",
        "{{constructor.constructor('document.title=1')()}}",
        "javascript:document.title='hostile'",
        "&lt;script&gt; &#60;script&#62; \u{202e}<\u{2028}script>",
    ];
    let twin = pod_with(&"harmless".repeat(8));
    let mut shapes = Vec::new();
    for (project, text) in
        std::iter::once((twin, "harmlessharmless")).chain(attacks.iter().map(|text| (pod_with(text), *text)))
    {
        let run = project.run(&["check", ".", "-o", "html=report.html"]);
        assert_eq!(run.status, 1, "{text}: {run}");
        let page = project.read("report.html");
        assert!(
            !page.contains("http://") && !page.contains("https://") || text.contains("https://"),
            "{text}: nothing is loaded"
        );
        let dom = dom(&project, "");
        assert!(dom.contains("<title>Palisade: findings</title>"), "{text}: {dom}");
        let shown: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(dom.contains(&shown), "{text}: it is shown: {dom}");
        let mut counts = elements(&dom);
        // A capability or an annotation that is valid has one finding less; scripts and styles are the page's own.
        for name in [
            "article", "section", "h4", "p", "b", "code", "pre", "span", "i", "mark", "div", "option",
            "details", "summary", "tr", "td",
        ] {
            counts.remove(name);
        }
        assert_eq!(
            (counts.get("script"), counts.get("style"), counts.get("img"), counts.get("svg")),
            (Some(&1), Some(&1), None, None),
            "{text}"
        );
        shapes.push((text, counts));
    }
    let harmless = shapes[0].1.clone();
    for (text, counts) in shapes {
        assert_eq!(counts, harmless, "{text}");
    }
}

#[test]
fn a_page_filters_its_findings_in_a_real_browser() {
    let project = mixed();
    let run = project.run(&["check", ".", "-o", "html=report.html", "-o", "json"]);
    let findings = run.json()["findings"].as_array().unwrap().clone();
    let shown = |fragment: &str| {
        let dom = dom(&project, fragment);
        let (_, rest) = dom.split_once("aria-live=\"polite\">").unwrap_or_else(|| panic!("{dom}"));
        let text = rest.split('<').next().unwrap().to_owned();
        let visible = dom.matches("<article class=\"finding").count()
            - dom
                .split("<article")
                .filter(|part| part.split('>').next().unwrap().contains("hidden=\"\""))
                .count();
        assert!(text.starts_with(&format!("{visible} of ")), "{fragment}: {text}");
        visible
    };
    let count = |wanted: &dyn Fn(&Value) -> bool| findings.iter().filter(|finding| wanted(finding)).count();
    assert_eq!(shown(""), findings.len());
    assert_eq!(shown("severity=warning"), count(&|finding| finding["severity"] == "warning"));
    assert_eq!(shown("rule=pss/privileged"), count(&|finding| finding["code"] == "pss/privileged"));
    assert_eq!(
        shown("folder=shop"),
        count(&|finding| finding["file"].as_str().unwrap().starts_with("shop/"))
    );
    assert_eq!(shown("fixable"), count(&|finding| !finding["fix"].is_null()));
    assert_eq!(shown("words=nothing+like+this"), 0);
    assert_eq!(
        shown("folder=shop&severity=warning"),
        count(&|f| f["severity"] == "warning" && f["file"].as_str().unwrap().starts_with("shop/"))
    );

    let shot = project.path("page.png");
    let url = format!("file://{}", project.path("report.html").display());
    let mut pictures = BTreeSet::new();
    for (mode, setting) in [("light", "preferredColorScheme=1"), ("dark", "preferredColorScheme=0")] {
        let arguments = format!("--blink-settings={setting}");
        crate::dashboard::screenshot(&project.path("profile"), &arguments, &shot, &url);
        let image = fs::read(&shot).unwrap();
        assert!(image.starts_with(b"\x89PNG") && image.len() > 20_000, "{mode}: {} bytes", image.len());
        if let Some(folder) = std::env::var_os("SCREENSHOTS") {
            fs::write(Path::new(&folder).join(format!("report-{mode}.png")), &image).unwrap();
        }
        assert!(pictures.insert(image), "{mode} looks like the other");
    }
}

#[test]
fn a_page_without_findings_says_so() {
    let project = Project::with(GOOD);
    assert_eq!(project.run(&["check", ".", "-o", "html=report.html"]).status, 0);
    let dom = dom(&project, "");
    assert!(dom.contains("<p>No findings.</p>") && dom.contains("Pod good"), "{dom}");
}
