//! The page that checks a manifest in a browser: a real Chromium types, clicks and reads.
//!
//! `cargo xtask playground` builds it; the gate does so before the tests where the compiler has the target for WebAssembly.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use palisade_testkit::built;
use serde_json::{Value, json};

use crate::support::{GOOD, PRIVILEGED, Project};

/// A tab of a browser, driven through its debugging protocol over two pipes: no port, and no time to guess.
struct Tab {
    browser: Child,
    requests: File,
    responses: BufReader<File>,
    session: Option<String>,
    number: u64,
}

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

impl Tab {
    fn open(folder: &Path, url: &str) -> Self {
        let pipes = ["requests", "responses"].map(|name| folder.join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        // The protocol is spoken over the descriptors 3 and 4, which a shell can open.
        let browser = Command::new("sh")
            .args(["-c", "exec chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
                   --remote-debugging-pipe --user-data-dir=\"$2\" about:blank 3<\"$0\" 4>\"$1\""])
            .args(&pipes)
            .arg(folder.join("profile"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromium is installed by `cargo xtask setup`");
        let requests = OpenOptions::new().write(true).open(&pipes[0]).unwrap();
        let responses = BufReader::new(File::open(&pipes[1]).unwrap());
        let mut tab = Self { browser, requests, responses, session: None, number: 0 };
        let target = tab.send("Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let session = tab.send("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        tab.session = session["sessionId"].as_str().map(str::to_owned);
        tab.send("Page.enable", &json!({}));
        tab.send("Log.enable", &json!({}));
        tab.send("Page.navigate", &json!({"url": url}));
        tab.until("Page.loadEventFired");
        tab
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.responses.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&message).unwrap()
    }

    fn until(&mut self, event: &str) {
        while self.read()["method"] != event {}
    }

    fn send(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).unwrap();
        loop {
            let message = self.read();
            if message["id"] == self.number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// The value of an expression, which may be a promise.
    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.send("Runtime.evaluate", &parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// What the page shows, once it has checked.
    fn shown(&mut self) -> Value {
        self.value(
            "new Promise((done) => { const look = () => /^(The engine|Checking)/.test(outcome.textContent) ? setTimeout(look, 20) : done({ \
             outcome: outcome.textContent, kind: outcome.className.replace('outcome ', ''), text: manifest.value, \
             objects: [...document.querySelectorAll('#objects li')].map((item) => item.textContent), \
             notes: [...document.querySelectorAll('#notes li')].map((item) => item.textContent), \
             findings: [...document.querySelectorAll('#findings li')].map((item) => item.querySelector('code').textContent + ' ' + (item.querySelector('button') || {textContent: '-'}).textContent), \
             safe: !element('safe').disabled, all: !element('all').disabled }); look(); })",
        )
    }

    /// Types a text over what is there, as a person does: the page is not told otherwise.
    fn write(&mut self, text: &str) -> Value {
        let text = Value::from(text);
        self.value(&format!(
            "manifest.value = {text}; manifest.dispatchEvent(new InputEvent('input', {{bubbles: true}})); outcome.textContent"
        ));
        self.shown()
    }

    fn click(&mut self, selector: &str) -> Value {
        let selector = Value::from(selector);
        self.value(&format!("document.querySelector({selector}).click()"));
        self.shown()
    }
}

#[test]
fn a_manifest_is_checked_and_fixed_in_a_browser() {
    let Some(page) = built("playground/index.html", "cargo xtask playground") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tab = Tab::open(folder.path(), &format!("file://{}", page.display()));

    let example = tab.shown();
    assert_eq!(
        (&example["kind"], &example["objects"]),
        (&json!("bad"), &json!(["denied Deployment web"])),
        "{example:#}"
    );

    // The same findings at the same lines as on the command line.
    for text in [
        PRIVILEGED.to_owned(),
        GOOD.to_owned(),
        format!("{GOOD}---\n{PRIVILEGED}---\na: [\n"),
        "kind: Pud\napiVersion: v1\n".to_owned(),
    ] {
        let here = tab.write(&text);
        let run = Project::with(&text).run(&["check", "pod.yaml", "-o", "json"]);
        let there = run.json();
        let place = |finding: &Value| {
            let line = finding["line"].as_u64().map_or_else(|| "-".to_owned(), |line| format!("line {line}"));
            format!("{} {line}", finding["code"].as_str().unwrap())
        };
        let expected: Vec<String> = there["findings"].as_array().unwrap().iter().map(place).collect();
        assert_eq!(here["findings"], json!(expected), "{text}\n{here:#}");
        assert_eq!(here["kind"] == "good", run.status == 0, "{text}\n{here:#}");
    }

    // A text that changes has no verdict until it is checked again.
    let pending = tab.value(
        "manifest.value = 'a: 1'; manifest.dispatchEvent(new InputEvent('input', {bubbles: true})); outcome.className + outcome.textContent",
    );
    assert_eq!(pending, "outcome Checking.");
    assert_eq!(tab.shown()["kind"], "bad");

    let denied = tab.write(PRIVILEGED);
    assert_eq!((&denied["safe"], &denied["all"]), (&json!(false), &json!(true)), "{denied:#}");
    let fixed = tab.click("#all");
    let project = Project::with(PRIVILEGED);
    project.run(&["check", "pod.yaml", "--unsafe-fixes"]);
    assert_eq!(fixed["text"], project.read("pod.yaml"), "{fixed:#}");
    assert_eq!(
        (&fixed["kind"], &fixed["objects"]),
        (&json!("good"), &json!(["allowed Pod shop/bad"])),
        "{fixed:#}"
    );
    assert!(!fixed["notes"].as_array().unwrap().is_empty());

    // Markup in a manifest is text, and the settings count.
    let odd = PRIVILEGED.replace("name: bad", "name: \"<img src=x onerror=document.title=1>\"");
    assert_eq!(tab.write(&odd)["objects"], json!(["denied Pod shop/<img src=x onerror=document.title=1>"]));
    assert_eq!(
        tab.value("document.querySelectorAll('img').length + document.title"),
        "0Palisade: check a manifest"
    );
    let lower = tab.value(
        "element('level').value = 'privileged'; element('level').dispatchEvent(new Event('change')); 1",
    );
    assert_eq!((&lower, &tab.shown()["kind"]), (&json!(1), &json!("good")));

    // Nothing can leave the page.
    let left = tab.value("fetch('https://example.com/').then(() => 'sent', () => 'refused')");
    assert_eq!(left, "refused");
}

#[test]
fn a_page_without_its_engine_has_no_verdict() {
    let Some(page) = built("playground/index.html", "cargo xtask playground") else { return };
    let text = fs::read_to_string(page).unwrap();
    let (before, rest) = text.split_once("const PALISADE_ENGINE = \"").unwrap();
    let (engine, after) = rest.split_once('"').unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (case, engine) in
        [("none", ""), ("half of it", engine.get(..engine.len() / 8 * 4).unwrap()), ("another text", "AAAA")]
    {
        let own = folder.path().join(case.replace(' ', "-"));
        fs::create_dir(&own).unwrap();
        fs::write(own.join("page.html"), format!("{before}const PALISADE_ENGINE = \"{engine}\"{after}"))
            .unwrap();
        let shown = Tab::open(&own, &format!("file://{}", own.join("page.html").display())).shown();
        assert_eq!(shown["kind"], "bad", "{case}: {shown:#}");
        assert!(shown["outcome"].as_str().unwrap().starts_with("Not checked: "), "{case}: {shown:#}");
    }
}
