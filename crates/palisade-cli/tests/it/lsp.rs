//! `palisade lsp` as a client sees it: messages in, messages out.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{GOOD, PRIVILEGED, Project};

/// A session with the server.
struct Session {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    requests: u64,
    /// Notifications that came while something else was waited for.
    waiting: Vec<Value>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Session {
    fn start(project: &Project, arguments: &[&str]) -> Self {
        let mut command = project.command();
        command.arg("lsp").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, requests: 0, waiting: Vec::new() }
    }

    /// A session that is initialized by a client with these capabilities.
    fn with(project: &Project, arguments: &[&str], capabilities: &Value) -> Self {
        let mut session = Self::start(project, arguments);
        let reply = session.request(
            "initialize",
            &json!({"processId": null, "rootUri": null, "capabilities": capabilities}),
        );
        assert_eq!(reply["result"]["serverInfo"]["name"], "palisade", "{reply}");
        session.notify("initialized", &json!({}));
        session
    }

    fn new(project: &Project) -> Self {
        Self::with(project, &[], &json!({}))
    }

    fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    fn send(&mut self, message: &Value) {
        let body = message.to_string();
        self.write(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }

    fn notify(&mut self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    fn read(&mut self) -> Option<Value> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).unwrap();
        Some(serde_json::from_slice(&body).unwrap())
    }

    /// The reply to a request.
    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = json!(self.requests);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.read().expect("a reply");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.waiting.push(message);
        }
    }

    fn open(&mut self, uri: &str, text: &str) {
        self.notify(
            "textDocument/didOpen",
            &json!({"textDocument": {"uri": uri, "languageId": "yaml", "version": 1, "text": text}}),
        );
    }

    fn change(&mut self, uri: &str, version: i32, changes: &Value) {
        self.notify(
            "textDocument/didChange",
            &json!({"textDocument": {"uri": uri, "version": version}, "contentChanges": changes}),
        );
    }

    /// The findings of a version of a document.
    fn findings(&mut self, uri: &str, version: i32) -> Vec<Value> {
        loop {
            let of_version = |message: &Value| {
                message["method"] == "textDocument/publishDiagnostics"
                    && message["params"]["uri"] == uri
                    && message["params"]["version"] == version
            };
            if let Some(at) = self.waiting.iter().position(of_version) {
                let message = self.waiting.remove(at);
                return message["params"]["diagnostics"].as_array().unwrap().clone();
            }
            let message = self.read().expect("findings");
            self.waiting.push(message);
        }
    }

    /// The codes of the findings of a version.
    fn codes(&mut self, uri: &str, version: i32) -> Vec<String> {
        let found = self.findings(uri, version);
        found.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
    }

    /// Ends in order, and returns the exit status.
    fn end(mut self) -> i32 {
        assert_eq!(self.request("shutdown", &Value::Null)["result"], Value::Null);
        assert_eq!(self.request("textDocument/hover", &json!({}))["error"]["code"], -32600);
        self.notify("exit", &Value::Null);
        self.child.wait().unwrap().code().unwrap()
    }
}

fn uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.to_str().unwrap().bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            write!(uri, "%{byte:02X}").unwrap();
        }
    }
    uri
}

fn position(line: u32, character: u32) -> Value {
    json!({"line": line, "character": character})
}

fn range(start: (u32, u32), end: (u32, u32)) -> Value {
    json!({"start": position(start.0, start.1), "end": position(end.0, end.1)})
}

/// Makes edits in a text whose lines end with LF, and whose characters are one unit each.
fn edited(text: &str, edits: &Value) -> String {
    let mut text = text.to_owned();
    let offset = |text: &str, position: &Value| {
        let lines: usize = text
            .split_inclusive('\n')
            .take(usize::try_from(position["line"].as_u64().unwrap()).unwrap())
            .map(str::len)
            .sum();
        lines + usize::try_from(position["character"].as_u64().unwrap()).unwrap()
    };
    for edit in edits.as_array().unwrap().iter().rev() {
        let (start, end) = (offset(&text, &edit["range"]["start"]), offset(&text, &edit["range"]["end"]));
        text.replace_range(start..end, edit["newText"].as_str().unwrap());
    }
    text
}

#[test]
fn findings_follow_what_is_typed() {
    let project = Project::new();
    let mut session = Session::with(&project, &["--stdio", "--level", "baseline"], &json!({}));
    let uri = uri(&project.path("pod.yaml"));
    session.open(&uri, PRIVILEGED);
    let found = session.findings(&uri, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = &found[0];
    assert_eq!(
        (&finding["code"], &finding["source"], &finding["severity"]),
        (&json!("pss/privileged"), &json!("palisade"), &json!(1))
    );
    assert_eq!(finding["range"], range((9, 20), (9, 24)));
    let message = finding["message"].as_str().unwrap();
    for text in [
        "container \"web\" is privileged",
        "baseline allows false",
        "Pod Security Standards v1.37",
        "help: set",
    ] {
        assert!(message.contains(text), "{text} in {message}");
    }
    // `true` becomes `false`, by two changes in one message.
    let changes = json!([{"range": range((9, 20), (9, 24)), "text": "fa"}, {"range": range((9, 22), (9, 22)), "text": "lse"}]);
    session.change(&uri, 2, &changes);
    assert_eq!(session.codes(&uri, 2), [""; 0]);
    // What is not YAML while it is typed is one syntax error.
    session.change(&uri, 3, &json!([{"range": range((9, 20), (9, 25)), "text": "[tr"}]));
    assert_eq!(session.codes(&uri, 3), ["yaml/syntax"]);
    session.change(&uri, 4, &json!([{"text": PRIVILEGED}]));
    assert_eq!(session.codes(&uri, 4), ["pss/privileged"]);
    // A version that comes too late is not of this text.
    session.change(&uri, 3, &json!([{"text": GOOD}]));
    session.change(&uri, 5, &json!([{"range": range((0, 0), (0, 0)), "text": "# a\n"}]));
    assert_eq!(session.findings(&uri, 5)[0]["range"], range((10, 20), (10, 24)));
    session.notify("textDocument/didClose", &json!({"textDocument": {"uri": uri}}));
    assert_eq!(
        session.request(
            "textDocument/hover",
            &json!({"textDocument": {"uri": uri}, "position": position(0, 0)})
        )["error"]["code"],
        -32602
    );
    let last = session.waiting.pop().unwrap();
    assert_eq!(last["params"], json!({"uri": uri, "diagnostics": []}), "a closed document has no findings");
    assert_eq!(session.end(), 0);
}

#[test]
fn columns_are_utf_16_code_units() {
    let project = Project::new();
    let mut session = Session::with(&project, &["--level=baseline"], &json!({}));
    let uri = uri(&project.path("é 漢.yaml"));
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {a: \"😀漢é\"}}, spec: {containers: [{name: c, image: x, securityContext: {privileged: true}}]}}\n";
    let before = text.split_once("true").unwrap().0;
    let column = u32::try_from(before.encode_utf16().count()).unwrap();
    session.open(&uri, text);
    assert_eq!(session.findings(&uri, 1)[0]["range"], range((0, column), (0, column + 4)));
    session.change(&uri, 2, &json!([{"range": range((0, column), (0, column + 4)), "text": "false"}]));
    assert_eq!(session.codes(&uri, 2), [""; 0]);
    // After the emoji, a surrogate pair, begins the ideograph.
    let emoji = u32::try_from(text.split_once('漢').unwrap().0.encode_utf16().count()).unwrap();
    session.change(
        &uri,
        3,
        &json!([{"range": range((0, emoji - 2), (0, emoji + 1)), "text": "x"},
        {"range": range((0, column - 2), (0, column + 3)), "text": "true"}]),
    );
    assert_eq!(session.findings(&uri, 3)[0]["range"], range((0, column - 2), (0, column + 2)));
    assert_eq!(session.end(), 0);
}

#[test]
fn what_is_not_kubernetes_has_no_findings() {
    let project = Project::new();
    let mut session = Session::new(&project);
    for (name, text) in [
        ("compose.yaml", "services:\n  web:\n    privileged: true\n"),
        ("broken.yaml", "a: [\n"),
        ("empty.yaml", ""),
        ("workflow.yml", "on: push\njobs: {a: {steps: [{run: x}]}}\n"),
        ("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n"),
    ] {
        let uri = uri(&project.path(name));
        session.open(&uri, text);
        assert_eq!(session.codes(&uri, 1), [""; 0], "{name}");
    }
    // A template without a chart is no mistake of its author.
    let uri = uri(&project.path("template.yaml"));
    session.open(&uri, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Values.name }}\n{{- end }}\n");
    let found = session.findings(&uri, 1);
    assert_eq!((&found[0]["code"], &found[0]["severity"]), (&json!("input/template"), &json!(3)));
}

#[test]
fn the_configuration_and_suppressions_apply() {
    let project = Project::new();
    project
        .file("palisade.toml", "level = \"baseline\"\nexclude = [\"vendor/**\"]\n")
        .file("app/pod.yaml", "")
        .file("vendor/pod.yaml", "");
    let mut session = Session::new(&project);
    let [pod, vendored] = ["app/pod.yaml", "vendor/pod.yaml"].map(|name| uri(&project.path(name)));
    session.open(&pod, PRIVILEGED);
    assert_eq!(session.codes(&pod, 1), ["pss/privileged"]);
    session.open(&vendored, PRIVILEGED);
    assert_eq!(session.codes(&vendored, 1), [""; 0]);
    let accepted = PRIVILEGED
        .replace("privileged: true", "privileged: true # palisade:ignore pss/privileged reason=\"x\"");
    session.change(&pod, 2, &json!([{"text": accepted}]));
    assert_eq!(session.codes(&pod, 2), [""; 0]);
    session.change(&pod, 3, &json!([{"text": PRIVILEGED}]));
    assert_eq!(session.codes(&pod, 3), ["pss/privileged"]);
    // A saved configuration applies to what is open.
    project.file("palisade.toml", "level = \"privileged\"\n");
    session.notify("workspace/didChangeWatchedFiles", &json!({"changes": []}));
    assert_eq!(session.codes(&pod, 3), [""; 0]);
    project.file("palisade.toml", "level = \"hihg\"\n");
    session.notify("textDocument/didSave", &json!({"textDocument": {"uri": pod}}));
    let found = session.findings(&pod, 3);
    assert_eq!(found[0]["code"], "config/invalid", "{found:?}");
    assert!(found[0]["message"].as_str().unwrap().starts_with("not checked: "), "{found:?}");
    assert_eq!(session.end(), 0);
}

/// What `check --fix` or `--unsafe-fixes` makes of a manifest.
fn fixed_by_check(text: &str, option: &str) -> String {
    let project = Project::with(text);
    project.run(&["check", "pod.yaml", option]);
    project.read("pod.yaml")
}

/// A pod whose fix is safe, and one whose fix may change what it does.
const MIXED: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
    - name: web
      image: nginx # 1.27
      securityContext:
        allowPrivilegeEscalation: false
        runAsUser: 1000
        runAsNonRoot: true
        capabilities:
          drop: [ALL]
---
apiVersion: v1
kind: Pod
metadata: {name: port}
spec:
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: port
      image: nginx
      ports: [{containerPort: 80, hostPort: 80}]
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
";

#[test]
fn quick_fixes_are_those_of_check_and_name_their_class() {
    let project = Project::new();
    let uri = uri(&project.path("pod.yaml"));
    let context = json!({"diagnostics": [], "only": ["quickfix", "source"]});
    let all = json!({"textDocument": {"uri": uri}, "range": range((0, 0), (99, 0)), "context": context});
    let resolving = json!({
        "textDocument": {"codeAction": {"dataSupport": true, "resolveSupport": {"properties": ["edit"]}}},
        "workspace": {"workspaceEdit": {"documentChanges": true}},
    });
    let mut both = Vec::new();
    for capabilities in [json!({}), resolving] {
        let mut session = Session::with(&project, &[], &capabilities);
        session.open(&uri, MIXED);
        let actions = session.request("textDocument/codeAction", &all)["result"].clone();
        let mut results = Vec::new();
        for action in actions.as_array().unwrap() {
            let action = if action.get("edit").is_some() {
                action.clone()
            } else {
                session.request("codeAction/resolve", action)["result"].clone()
            };
            let edit = &action["edit"];
            let edits = if let Some(edits) = edit["changes"].get(&uri) {
                edits.clone()
            } else {
                let document = &edit["documentChanges"][0];
                assert_eq!(document["textDocument"], json!({"uri": uri, "version": 1}));
                document["edits"].clone()
            };
            results.push((
                action["title"].as_str().unwrap().to_owned(),
                action["kind"].as_str().unwrap().to_owned(),
                edited(MIXED, &edits),
            ));
        }
        both.push(results);
        // A text that has changed since gets no edits of another one.
        session.change(&uri, 2, &json!([{"range": range((0, 0), (0, 0)), "text": "# a\n"}]));
        if let Some(action) = actions.as_array().unwrap().iter().find(|action| action.get("data").is_some()) {
            assert_eq!(session.request("codeAction/resolve", action)["error"]["code"], -32801);
        }
        let mut only = all.clone();
        only["context"]["only"] = json!(["source.fixAll"]);
        assert_eq!(session.request("textDocument/codeAction", &only)["result"].as_array().unwrap().len(), 1);
        assert_eq!(session.end(), 0);
    }
    assert_eq!(both[0], both[1], "with edits at once, and resolved later");
    let titles: Vec<&str> = both[0].iter().map(|(title, ..)| title.as_str()).collect();
    insta::assert_snapshot!(titles.join("\n"), @r#"
    Add `spec.securityContext.seccompProfile: {type: RuntimeDefault}` (safe)
    Remove `ports[0].hostPort` in container "port" (may change behaviour)
    Make all safe fixes in this file
    Make all fixes in this file, also those that may change behaviour
    "#);
    let result = |kind: &str| both[0].iter().find(|(_, found, _)| found == kind).unwrap().2.clone();
    assert_eq!(result("source.palisade.unsafeFixAll"), fixed_by_check(MIXED, "--unsafe-fixes"));
    assert_eq!(result("source.fixAll.palisade"), fixed_by_check(MIXED, "--fix"));
    for (title, kind, text) in &both[0] {
        if kind == "quickfix" {
            assert!(text.contains("image: nginx # 1.27") && text != MIXED, "{title}: {text}");
        }
    }
}

#[test]
fn hover_shows_what_a_container_gets_and_completion_what_it_may() {
    let project = Project::new();
    let mut session = Session::new(&project);
    let uri = uri(&project.path("pod.yaml"));
    session.open(&uri, MIXED);
    let at = |line, character| json!({"textDocument": {"uri": uri}, "position": position(line, character)});
    let hover = session.request("textDocument/hover", &at(9, 12))["result"].clone();
    assert_eq!(hover["range"], range((9, 8), (9, 23)));
    insta::assert_snapshot!(hover["contents"]["value"].as_str().unwrap(), @"
    **container `web`**

    | field | effective value | decided by |
    | --- | --- | --- |
    | runAsUser | `1000` | container's securityContext.runAsUser, line 10 |
    ");
    assert_eq!(session.request("textDocument/hover", &at(6, 12))["result"], Value::Null);
    session.change(&uri, 2, &json!([{"range": range((8, 34), (8, 39)), "text": ""}]));
    let items = session.request("textDocument/completion", &at(8, 34))["result"].clone();
    let labels: Vec<&str> =
        items.as_array().unwrap().iter().map(|item| item["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["false", "true"]);
    assert_eq!(session.end(), 0);
}

#[test]
fn charts_have_findings_in_values_and_templates() {
    let project = Project::new();
    let values = "# the shop\nsecurityContext:\n  privileged: true\n";
    let template = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n    - name: web\n      image: nginx\n      securityContext:\n        {{- toYaml .Values.securityContext | nindent 8 }}\n";
    project
        .file("chart/Chart.yaml", "apiVersion: v2\nname: chart\nversion: 0.1.0\n")
        .file("chart/values.yaml", "securityContext: {}\n")
        .file("chart/templates/pod.yaml", template);
    let mut session = Session::with(&project, &["--level=baseline"], &json!({}));
    let [values_uri, template_uri] =
        ["chart/values.yaml", "chart/templates/pod.yaml"].map(|name| uri(&project.path(name)));
    // What is open counts, not what is on disk.
    session.open(&values_uri, values);
    let found = session.findings(&values_uri, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["code"], &found[0]["range"]), (&json!("pss/privileged"), &range((2, 2), (2, 18))));
    session.open(&template_uri, template);
    let found = session.findings(&template_uri, 1);
    assert_eq!((found.len(), &found[0]["range"]["start"]["line"]), (1, &json!(9)), "{found:?}");
    let actions = json!({"textDocument": {"uri": values_uri}, "range": range((2, 4), (2, 4)), "context": {"diagnostics": []}});
    let reply = session.request("textDocument/codeAction", &actions);
    let action = &reply["result"][0];
    assert!(action["title"].as_str().unwrap().ends_with("(may change behaviour)"), "{reply}");
    let text = edited(values, &action["edit"]["changes"][&values_uri]);
    assert_eq!(text, values.replace("true", "false"));
    session.change(&values_uri, 2, &json!([{"text": text}]));
    assert_eq!(session.codes(&values_uri, 2), [""; 0]);
    session.change(&values_uri, 3, &json!([{"text": "securityContext: {privileged: tru"}]));
    assert_eq!(session.codes(&values_uri, 3).len(), 1, "values that cannot be read are an error");
    assert_eq!(session.end(), 0);
}

#[test]
fn messages_that_cannot_be_read_stop_nothing_and_are_never_a_yes() {
    let project = Project::new();
    let mut session = Session::with(&project, &["--level=baseline"], &json!({}));
    let uri = uri(&project.path("pod.yaml"));
    session.open(&uri, GOOD);
    assert_eq!(session.codes(&uri, 1), [""; 0]);
    for broken in [
        "Content-Length: 5\r\n\r\n{{{{{",
        "Content-Length: 2\r\n\r\n[]",
        "no header at all\r\n\r\n",
        "Content-Length: x\r\n\r\n",
    ] {
        session.write(broken.as_bytes());
        assert_eq!(session.codes(&uri, 1), ["lsp/lost"], "{broken}");
    }
    // A range in a text that is not known any more changes nothing; a whole text does.
    session.change(&uri, 2, &json!([{"range": range((0, 0), (0, 0)), "text": "# a\n"}]));
    assert_eq!(session.codes(&uri, 2), ["lsp/lost"]);
    session.change(&uri, 3, &json!([{"text": PRIVILEGED}]));
    assert_eq!(session.codes(&uri, 3), ["pss/privileged"]);
    session.change(&uri, 4, &json!([{"range": range((3, 0), (1, 0)), "text": "x"}]));
    assert_eq!(session.codes(&uri, 4), ["lsp/lost"]);
    session.change(&uri, 5, &json!("nothing"));
    assert_eq!(session.codes(&uri, 4), ["lsp/lost"]);
    assert_eq!(session.request("palisade/none", &json!({}))["error"]["code"], -32601);
    assert_eq!(session.request("textDocument/hover", &json!({"position": 1}))["error"]["code"], -32602);
    session.notify("$/setTrace", &json!({"value": "off"}));
    session.notify("textDocument/didClose", &json!({}));
    session.open(&uri, PRIVILEGED);
    assert_eq!(session.codes(&uri, 1), ["pss/privileged"]);
    assert_eq!(session.end(), 0);
}

#[test]
fn a_session_begins_and_ends_in_order() {
    let project = Project::new();
    let mut early = Session::start(&project, &[]);
    assert_eq!(early.request("textDocument/hover", &json!({}))["error"]["code"], -32002);
    assert_eq!(
        early.request("initialize", &json!({"capabilities": {}}))["result"]["capabilities"]["positionEncoding"],
        "utf-16"
    );
    assert_eq!(early.request("initialize", &json!({"capabilities": {}}))["error"]["code"], -32600);
    early.notify("exit", &Value::Null);
    assert_eq!(early.child.wait().unwrap().code(), Some(1), "exit without shutdown");
    let mut closed = Session::new(&project);
    closed.input = None;
    assert_eq!(closed.child.wait().unwrap().code(), Some(1), "the client is gone");
}

#[test]
fn a_burst_of_keystrokes_is_judged_once_and_cancelled_requests_are_not_worked_on() {
    let project = Project::new();
    let mut session = Session::with(&project, &["--level=baseline"], &json!({}));
    let uri = uri(&project.path("pod.yaml"));
    // All in one write: what waits is known before the first is worked on, or soon after.
    let mut burst = Vec::new();
    let mut add = |message: Value| {
        let body = message.to_string();
        burst.extend(format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes());
    };
    let large = format!("{PRIVILEGED}---\n").repeat(400);
    add(
        json!({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": {"uri": uri, "languageId": "yaml", "version": 0, "text": large}}}),
    );
    for version in 1..=200 {
        add(
            json!({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {"textDocument": {"uri": uri, "version": version},
            "contentChanges": [{"range": range((0, 0), (0, 0)), "text": "# a\n"}]}}),
        );
    }
    let action =
        json!({"textDocument": {"uri": uri}, "range": range((0, 0), (0, 1)), "context": {"diagnostics": []}});
    for id in ["first", "second"] {
        add(json!({"jsonrpc": "2.0", "id": id, "method": "textDocument/codeAction", "params": action}));
    }
    add(json!({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": "second"}}));
    session.write(&burst);
    let mut published = 0;
    let mut replies = Vec::new();
    while replies.len() < 2 {
        let message = session.read().unwrap();
        if message["method"] == "textDocument/publishDiagnostics" {
            published += 1;
        } else {
            replies.push((message["id"].as_str().unwrap().to_owned(), message["error"]["code"].clone()));
        }
    }
    assert!(published < 100, "{published} of 201 states were judged");
    assert_eq!(replies[1], ("second".to_owned(), json!(-32800)));
    assert_eq!(session.end(), 0);
}

/// A session of a client from PyPI, which reads every message by the types of the specification.
const CLIENT: &str = include_str!("lsp/client.py");

#[test]
fn a_client_from_pypi_works_with_it() {
    let project = Project::new();
    project.file("test_palisade.py", CLIENT);
    let run = |command: &mut Command| {
        let output = command.output().expect("python3 and python3-venv are installed: cargo xtask setup");
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{command:?}\n{printed}");
        printed
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
        "pytest-lsp",
    ]));
    let printed = run(python()
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_palisade.py"])
        .current_dir(project.path(""))
        .env("PALISADE", env!("CARGO_BIN_EXE_palisade")));
    assert!(printed.contains("4 passed"), "{printed}");
}
