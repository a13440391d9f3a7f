//! From the state of a cluster to the page.

use serde_json::Value;
use thiserror::Error;

use crate::html::Html;

/// The style sheet.
pub const STYLE: &str = include_str!("page.css");

/// As many rows as a table shows; the rest is counted.
const ROWS: usize = 500;

/// Why a part of the page cannot be shown: the sentence that its command would print.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UnknownPart(pub String);

/// What the page shows. Each part is what a command prints as JSON, or why it cannot be had.
#[derive(Debug)]
pub struct DashboardState {
    /// The address of the API server.
    pub server: String,
    /// When it was read.
    pub read_at: String,
    /// `palisade rollout status -o json`.
    pub rollout: Result<Value, UnknownPart>,
    /// `palisade exceptions --cluster -o json`.
    pub exceptions: Result<Value, UnknownPart>,
    /// `NodeSecurityReport` objects.
    pub nodes: Result<Vec<Value>, UnknownPart>,
}

/// The page.
#[must_use]
pub fn page(state: &DashboardState) -> String {
    let mut html = Html::default();
    html.markup("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Palisade</title>");
    html.markup("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    html.markup("<link rel=\"stylesheet\" href=\"page.css\"></head><body><header><h1>Palisade</h1>");
    html.element("<span>", &state.server, "</span>");
    html.element(
        "<span class=\"note\">read at ",
        &state.read_at,
        "</span><a href=\".\">Refresh</a></header>",
    );
    tiles(&mut html, state);
    rollout(&mut html, &state.rollout);
    namespaces(&mut html, &state.rollout);
    exceptions(&mut html, &state.exceptions);
    nodes(&mut html, &state.nodes);
    html.markup("</body></html>\n");
    html.finish()
}

fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_ready(namespace: &Value) -> bool {
    namespace["blocks"] == false
        && namespace["undecided"].is_null()
        && items(namespace, "unjudged").is_empty()
}

fn unknown(html: &mut Html, why: &UnknownPart) {
    html.element("<p class=\"warn\">Not known: ", &why.0, "</p>");
}

fn left_out(html: &mut Html, count: usize) {
    if count > ROWS {
        html.element("<p class=\"note\">", &format!("{} more are not shown", count - ROWS), "</p>");
    }
}

const PLAIN: &str = "<li><b>";
const BAD: &str = "<li class=\"bad\"><b>";

fn tile(html: &mut Html, is_bad: bool, figure: Option<u64>, what: &'static str) {
    let figure = figure.map_or_else(|| "?".to_owned(), |figure| figure.to_string());
    html.element(if is_bad { BAD } else { PLAIN }, &figure, "</b>").markup(what).markup("</li>");
}

fn tiles(html: &mut Html, state: &DashboardState) {
    let count = |wanted: fn(&Value) -> bool| {
        let rollout = state.rollout.as_ref().ok()?; // swallowed: shown as unknown
        Some(items(rollout, "namespaces").iter().filter(|namespace| wanted(namespace)).count() as u64)
    };
    let is_blocked = |namespace: &Value| namespace["blocks"] == true;
    let blocked = count(is_blocked);
    // swallowed: both are shown as unknown
    let (exceptions, nodes) = (state.exceptions.as_ref().ok(), state.nodes.as_ref().ok());
    let exceptions = exceptions.map(|exceptions| items(exceptions, "exceptions").len() as u64);
    let drift = nodes.and_then(|nodes| {
        let found = nodes.iter().filter_map(|node| node.pointer("/status/driftCount")?.as_u64()).sum::<u64>();
        let is_known = !nodes.is_empty() && nodes.iter().all(|node| not_compared(node).is_none());
        (found > 0 || is_known).then_some(found)
    });
    html.markup("<ul class=\"tiles\">");
    tile(html, false, count(is_ready), "namespaces ready");
    tile(html, blocked.is_some_and(|blocked| blocked > 0), blocked, "namespaces blocked");
    tile(
        html,
        false,
        count(|namespace| namespace["blocks"] != true && !is_ready(namespace)),
        "namespaces undecided",
    );
    tile(html, false, exceptions, "exceptions");
    tile(html, drift.is_some_and(|drift| drift > 0), drift, "differences on nodes");
    let unverified = nodes.map(|nodes| nodes.iter().filter(|node| !is_enforced(node)).count() as u64);
    tile(html, unverified.is_some_and(|count| count > 0), unverified, "nodes that differ or are unknown");
    html.markup("</ul>");
}

fn rollout(html: &mut Html, rollout: &Result<Value, UnknownPart>) {
    // swallowed: reported with the namespaces
    let Ok(rollout) = rollout else { return };
    let waves = items(rollout, "waves");
    let has_config = rollout.get("status").is_some() || rollout.get("spec").is_some();
    if !has_config && waves.is_empty() {
        return;
    }
    html.markup("<section><h2>Rollout</h2>");
    if has_config {
        html.markup("<dl>");
        for (name, pointer) in [("Target", "/spec/enforcementMode"), ("Mode", "/status/enforcementMode")] {
            let mode = text(rollout, pointer);
            html.element("<dt>", name, "</dt>").element(
                "<dd>",
                if mode.is_empty() { "not set" } else { mode },
                "</dd>",
            );
        }
        html.markup("</dl>");
    }
    if !waves.is_empty() {
        html.markup("<ol class=\"waves\">");
        for wave in waves.iter().take(ROWS) {
            self::wave(html, wave);
        }
        html.markup("</ol>");
    }
    let conditions = items(&rollout["status"], "conditions");
    if !conditions.is_empty() {
        html.markup(
            "<table><thead><tr><th>Condition</th><th>Status</th><th>Message</th></tr></thead><tbody>",
        );
        for condition in conditions.iter().take(ROWS) {
            html.element("<tr><td>", text(condition, "/type"), "</td><td>");
            html.text(text(condition, "/status")).markup("</td><td>");
            html.text(text(condition, "/message")).markup("</td></tr>");
        }
        html.markup("</tbody></table>");
    }
    html.markup("</section>");
}

/// One wave: its state, how far it is, and what stopped it.
fn wave(html: &mut Html, wave: &Value) {
    let state = text(wave, "/state");
    let kind = match state {
        "Done" => Badge::Good,
        "Stopped" => Badge::Bad,
        "Labelling" | "Soaking" => Badge::Warn,
        _ => Badge::Plain,
    };
    let number = |field: &str| wave[field].as_u64().unwrap_or_default().to_string();
    html.element("<li><b>", text(wave, "/name"), "</b> ");
    badge(html, kind, state);
    html.element(
        "<p>",
        &format!("{} of {} namespaces labelled", number("labelled"), number("namespaces")),
        "</p>",
    );
    html.element("<progress value=\"", &number("labelled"), "\" max=\"");
    html.element("", &wave["namespaces"].as_u64().unwrap_or_default().max(1).to_string(), "\"></progress>");
    for rejection in items(wave, "rejected").iter().take(ROWS) {
        html.markup("<p class=\"bad\">").text(text(rejection, "/workload")).markup(" in ");
        html.text(text(rejection, "/namespace"));
        html.element(": ", text(rejection, "/message"), "</p>");
    }
    html.markup("</li>");
}

/// How urgent something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Badge {
    Good,
    Warn,
    Bad,
    Plain,
}

fn badge(html: &mut Html, kind: Badge, text: &str) {
    let open = match kind {
        Badge::Good => "<span class=\"badge good\">",
        Badge::Warn => "<span class=\"badge warn\">",
        Badge::Bad => "<span class=\"badge bad\">",
        Badge::Plain => "<span class=\"badge\">",
    };
    html.element(open, text, "</span>");
}

fn namespaces(html: &mut Html, rollout: &Result<Value, UnknownPart>) {
    html.markup("<h2>Namespaces</h2>");
    let rollout = match rollout {
        Ok(rollout) => rollout,
        Err(why) => return unknown(html, why),
    };
    let all = items(rollout, "namespaces");
    if all.is_empty() {
        html.markup("<p class=\"note\">None.</p>");
        return;
    }
    html.markup("<table><thead><tr><th>Namespace</th><th>Level</th><th>Complies with</th><th>Readiness</th></tr></thead><tbody>");
    // What needs a person comes first.
    let mut sorted: Vec<&Value> = all.iter().collect();
    sorted.sort_by_key(|namespace| {
        (namespace["blocks"] != true, is_ready(namespace), text(namespace, "/name"))
    });
    for namespace in sorted.iter().take(ROWS) {
        html.element("<tr><td>", text(namespace, "/name"), "</td>");
        let level = text(namespace, "/level");
        html.element("<td>", if level.is_empty() { "set by its owner" } else { level }, "</td>");
        let complies = text(namespace, "/complies");
        html.element("<td>", if complies.is_empty() { "undecided" } else { complies }, "</td><td>");
        if namespace["blocks"] == true {
            blocked(html, namespace);
        } else if is_ready(namespace) {
            badge(html, Badge::Good, "ready");
        } else {
            undecided(html, namespace);
        }
        html.markup("</td></tr>");
    }
    html.markup("</tbody></table>");
    left_out(html, all.len());
}

fn blocked(html: &mut Html, namespace: &Value) {
    let blockers = items(namespace, "blockers");
    html.markup("<details open><summary><span class=\"badge bad\">blocked by ");
    html.text(&blockers.len().to_string()).markup("</span></summary><ul class=\"causes\">");
    for blocker in blockers.iter().take(ROWS) {
        html.markup("<li><b>")
            .text(text(blocker, "/kind"))
            .markup(" ")
            .text(text(blocker, "/name"))
            .markup("</b>");
        let rejection = text(blocker, "/rejection");
        if !rejection.is_empty() {
            html.element(": ", rejection, "");
        }
        html.markup("<ul>");
        for cause in items(blocker, "causes").iter().take(ROWS) {
            html.element("<li>", text(cause, "/summary"), " ").element(
                "<code>",
                text(cause, "/path"),
                "</code></li>",
            );
        }
        html.markup("</ul></li>");
    }
    html.markup("</ul>");
    for command in items(namespace, "commands").iter().filter_map(Value::as_str) {
        html.element("<pre><code>", command, "</code></pre>");
    }
    html.markup("</details>");
}

fn undecided(html: &mut Html, namespace: &Value) {
    badge(html, Badge::Warn, "undecided");
    html.element(" ", text(namespace, "/undecided"), "<ul class=\"causes\">");
    for doubt in items(namespace, "unjudged").iter().take(ROWS) {
        html.markup("<li>").text(text(doubt, "/kind")).markup(" ").text(text(doubt, "/name"));
        html.element(": ", text(doubt, "/reason"), "</li>");
    }
    html.markup("</ul>");
}

fn exceptions(html: &mut Html, exceptions: &Result<Value, UnknownPart>) {
    html.markup("<h2>Exceptions</h2>");
    let exceptions = match exceptions {
        Ok(exceptions) => items(exceptions, "exceptions"),
        Err(why) => return unknown(html, why),
    };
    if exceptions.is_empty() {
        html.markup("<p class=\"note\">None.</p>");
        return;
    }
    html.markup("<table><thead><tr><th>Exception</th><th>State</th><th>Owner</th><th>Ticket</th><th>Until</th><th>Notes</th></tr></thead><tbody>");
    for exception in exceptions.iter().take(ROWS) {
        html.element("<tr><td>", text(exception, "/name"), "</td>");
        let state = text(exception, "/state");
        let kind = match state {
            "used" => Badge::Good,
            "unreadable" | "expired" => Badge::Bad,
            _ => Badge::Warn,
        };
        html.markup("<td>");
        badge(html, kind, state);
        html.markup("</td>");
        for field in ["/owner", "/ticket", "/until"] {
            html.element("<td>", text(exception, field), "</td>");
        }
        html.markup("<td>").text(text(exception, "/error"));
        html.markup("<ul>");
        for note in items(exception, "broad").iter().filter_map(Value::as_str) {
            html.element("<li>", note, "</li>");
        }
        html.markup("</ul></td></tr>");
    }
    html.markup("</tbody></table>");
    left_out(html, exceptions.len());
}

/// Why it is not known whether the kernel of a node enforces what its containers declare; none if it is.
fn not_compared(node: &Value) -> Option<&str> {
    let mut conditions = items(&node["status"], "conditions").iter();
    match conditions.find(|condition| text(condition, "/type") == "DeclarationsEnforced") {
        Some(condition) if matches!(text(condition, "/status"), "True" | "False") => None,
        Some(condition) => Some(text(condition, "/message")),
        None => Some("the node agent has not reported yet"),
    }
}

fn nodes(html: &mut Html, nodes: &Result<Vec<Value>, UnknownPart>) {
    html.markup("<h2>Nodes</h2>");
    let nodes = match nodes {
        Ok(nodes) => nodes,
        Err(why) => return unknown(html, why),
    };
    if nodes.is_empty() {
        html.markup("<p class=\"note\">No node reports: the agent is not installed.</p>");
        return;
    }
    html.markup("<table><thead><tr><th>Node</th><th>Runtime</th><th>Profiles</th><th>Verified</th><th>Differences</th></tr></thead><tbody>");
    for node in nodes.iter().take(ROWS) {
        let number = |pointer: &str| node.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
        html.element("<tr><td>", text(node, "/metadata/name"), "</td>");
        html.element("<td>", text(node, "/status/runtime/name"), " ").element(
            "",
            text(node, "/status/runtime/version"),
            "</td>",
        );
        html.markup("<td>");
        profiles(html, &node["status"]);
        html.element(
            "</td><td>",
            &format!("{} containers", number("/status/verified/containers")),
            "</td><td>",
        );
        differences(html, &node["status"]);
        html.markup("</td></tr>");
    }
    html.markup("</tbody></table>");
    left_out(html, nodes.len());
}

/// The condition of a node that says whether containers are as their pods declare.
const ENFORCED: &str = "DeclarationsEnforced";

fn condition<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    items(status, "conditions").iter().find(|condition| condition["type"] == kind)
}

/// Whether everything on a node was compared and nothing differs.
fn is_enforced(node: &Value) -> bool {
    let enforced = condition(&node["status"], ENFORCED);
    items(&node["status"], "drift").is_empty()
        && enforced.is_some_and(|condition| condition["status"] == "True")
}

fn profiles(html: &mut Html, status: &Value) {
    let number = |pointer: &str| status.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    html.text(&format!("{} of {}", number("/profiles/count"), number("/profiles/wanted")));
    html.markup("<ul class=\"causes\">");
    for missing in items(&status["profiles"], "missing").iter().take(ROWS) {
        let hash: String = text(missing, "/sha256").chars().take(12).collect();
        html.element("<li class=\"warn\">missing <code>", &hash, "</code> ")
            .text(text(missing, "/reason"))
            .markup("</li>");
    }
    let touched = items(status, "tampering").len();
    if touched > 0 {
        html.element("<li class=\"bad\">", &format!("{touched} tampered with"), "</li>");
    }
    let older = number("/olderProfileCount");
    if older > 0 {
        html.element("<li>", &format!("{older} containers with an older profile"), "</li>");
    }
    html.markup("</ul>");
}

fn differences(html: &mut Html, status: &Value) {
    let drift = items(status, "drift");
    let enforced = condition(status, ENFORCED);
    match enforced {
        Some(enforced) if enforced["status"] == "True" && drift.is_empty() => {
            badge(html, Badge::Good, "none");
        }
        _ if !drift.is_empty() => badge(html, Badge::Bad, &drift.len().to_string()),
        // Containers that cannot be compared are not containers without a difference.
        enforced => {
            badge(html, Badge::Warn, "not known");
            html.element(
                " ",
                enforced.map_or("the node agent has not reported yet", |enforced| text(enforced, "/message")),
                "",
            );
        }
    }
    html.markup("<ul class=\"causes\">");
    for found in drift.iter().take(ROWS) {
        html.markup("<li>").text(text(found, "/namespace")).markup("/").text(text(found, "/pod"));
        html.markup(" ").text(text(found, "/container")).markup(": ").text(text(found, "/check"));
        html.element(" declared <code>", text(found, "/declared"), "</code>").element(
            ", kernel <code>",
            text(found, "/kernel"),
            "</code></li>",
        );
    }
    html.markup("</ul>");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DashboardState, UnknownPart, page};

    const HOSTILE: &str = "<script>alert(1)</script>\"'";

    #[test]
    fn no_text_of_the_cluster_becomes_markup() {
        let state = DashboardState {
            server: HOSTILE.to_owned(),
            read_at: HOSTILE.to_owned(),
            rollout: Ok(json!({
                "spec": {"enforcementMode": HOSTILE},
                "waves": [{"name": HOSTILE, "state": HOSTILE, "rejected": [{"workload": HOSTILE, "namespace": HOSTILE, "message": HOSTILE}]}], "status": {"conditions": [{"type": HOSTILE, "message": HOSTILE}]},
                "namespaces": [
                    {"name": HOSTILE, "level": HOSTILE, "complies": HOSTILE, "blocks": true, "commands": [HOSTILE],
                     "blockers": [{"kind": HOSTILE, "name": HOSTILE, "rejection": HOSTILE, "causes": [{"summary": HOSTILE, "path": HOSTILE}]}]},
                    {"name": HOSTILE, "blocks": false, "undecided": HOSTILE, "unjudged": [{"kind": HOSTILE, "name": HOSTILE, "reason": HOSTILE}]},
                ],
            })),
            exceptions: Ok(json!({"exceptions": [
                {"name": HOSTILE, "state": HOSTILE, "owner": HOSTILE, "ticket": HOSTILE, "until": HOSTILE, "error": HOSTILE, "broad": [HOSTILE]}
            ]})),
            nodes: Ok(vec![json!({"metadata": {"name": HOSTILE}, "status": {
                "runtime": {"name": HOSTILE, "version": HOSTILE}, "driftCount": 1,
                "drift": [{"namespace": HOSTILE, "pod": HOSTILE, "container": HOSTILE, "check": HOSTILE, "declared": HOSTILE, "kernel": HOSTILE}],
            }})]),
        };
        let text = page(&state);
        assert!(!text.contains("<script"), "{text}");
        assert!(text.matches("&lt;script&gt;").count() >= 30, "{text}");
    }

    #[test]
    fn a_node_whose_containers_were_not_compared_is_undecided() {
        let node = |conditions: &serde_json::Value| json!({"metadata": {"name": "n"}, "status": {"driftCount": 0, "conditions": conditions}});
        let condition =
            |status: &str| json!([{"type": "DeclarationsEnforced", "status": status, "message": HOSTILE}]);
        for (case, nodes, expected) in [
            ("no report", vec![], (true, false)),
            ("empty report", vec![json!({"metadata": {"name": "n"}})], (true, false)),
            ("not compared", vec![node(&condition("Unknown"))], (true, false)),
            ("compared", vec![node(&condition("True"))], (false, true)),
            ("one of two", vec![node(&condition("True")), node(&condition("Unknown"))], (true, true)),
        ] {
            let state = DashboardState {
                server: String::new(),
                read_at: String::new(),
                rollout: Ok(json!({"namespaces": []})),
                exceptions: Ok(json!({"exceptions": []})),
                nodes: Ok(nodes),
            };
            let text = page(&state);
            assert_eq!((text.contains("<b>?</b>"), text.contains(">none<")), expected, "{case}: {text}");
            assert!(!text.contains("<script"), "{case}: {text}");
        }
    }

    #[test]
    fn a_node_that_cannot_be_compared_is_not_shown_as_one_without_differences() {
        let node = |status: &str| {
            json!({"metadata": {"name": "n"}, "status": {"driftCount": 0, "drift": [],
            "conditions": [{"type": "DeclarationsEnforced", "status": status, "message": "the container runtime does not respond"}]}})
        };
        let shown = |node: serde_json::Value| {
            page(&DashboardState {
                server: String::new(),
                read_at: String::new(),
                rollout: Err(UnknownPart(String::new())),
                exceptions: Err(UnknownPart(String::new())),
                nodes: Ok(vec![node]),
            })
        };
        let without = "<span class=\"badge good\">none</span>";
        assert!(shown(node("True")).contains(without));
        for (case, node) in [
            ("unknown", node("Unknown")),
            ("false", node("False")),
            ("no conditions yet", json!({"metadata": {"name": "n"}})),
        ] {
            let text = shown(node);
            assert!(!text.contains(without) && text.contains("not known"), "{case}: {text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_reported_as_unknown_and_not_as_fine() {
        let state = DashboardState {
            server: String::new(),
            read_at: String::new(),
            rollout: Err(UnknownPart("forbidden".to_owned())),
            exceptions: Err(UnknownPart("forbidden".to_owned())),
            nodes: Err(UnknownPart("forbidden".to_owned())),
        };
        let text = page(&state);
        assert_eq!(text.matches("Not known: forbidden").count(), 3, "{text}");
        assert_eq!(text.matches("<b>?</b>").count(), 6, "{text}");
        assert!(!text.contains("good"), "{text}");
    }
}
