//! The options of a connection, from the query: what admission judges, and what is then done.
//!
//! Implements: `PodExecOptions`, `PodAttachOptions` and `PodPortForwardOptions` of core/v1, and the kubelet's check of streams.

use palisade_apimachinery::Status;
use palisade_apimachinery::rest::path::Get as _;
use palisade_base::go;
use serde_json::{Map, Value};

use crate::http::Query;
use crate::stream_source::Streams;

/// The object of a kind of options.
pub(super) fn of_query(kind: &str, query: &Query) -> Result<Value, Box<Status>> {
    let mut options = Map::new();
    options.insert("apiVersion".to_owned(), "v1".into());
    options.insert("kind".to_owned(), kind.into());
    if kind == "PodPortForwardOptions" {
        let ports: Vec<i32> = query.all("ports").map(port).collect::<Result<_, _>>()?;
        if !ports.is_empty() {
            options.insert("ports".to_owned(), ports.into());
        }
        return Ok(Value::Object(options));
    }
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(name) {
            options.insert(name.to_owned(), true.into());
        }
    }
    if let Some(container) = query.get("container") {
        options.insert("container".to_owned(), container.into());
    }
    if kind == "PodExecOptions" {
        options.insert("command".to_owned(), query.all("command").collect::<Vec<_>>().into());
    }
    Ok(Value::Object(options))
}

fn port(text: &str) -> Result<i32, Box<Status>> {
    let invalid =
        || Status::bad_request(format!("strconv.ParseUint: parsing {}: invalid syntax", go::quote(text)));
    // `ports` is a list in both of its forms.
    text.trim().parse().map_err(|_| invalid())
}

/// The streams of admitted options.
pub(super) fn streams(options: &Value) -> Result<Streams, Box<Status>> {
    let is_set = |name: &str| options.get(name).and_then(Value::as_bool) == Some(true);
    let (stdin, stdout, tty) = (is_set("stdin"), is_set("stdout"), is_set("tty"));
    // A terminal has one output.
    let stderr = is_set("stderr") && !tty;
    if !(stdin || stdout || stderr) {
        return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    Ok(Streams { stdin, stdout, stderr, tty })
}

/// The ports of admitted options.
pub(super) fn ports(options: &Value) -> Result<Vec<u16>, Box<Status>> {
    let valid =
        |port: &Value| port.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let ports = options.list("ports").iter().map(|port| valid(port).ok_or(port));
    ports
        .collect::<Result<_, _>>()
        .map_err(|port| Status::bad_request(format!("port {port} is out of range")))
}

/// The command of admitted options.
pub(super) fn command(options: &Value) -> Vec<String> {
    options.list("command").iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_options_as_upstream_does() {
        for (kind, query, expected) in [
            (
                "PodExecOptions",
                "command=sh&command=-c&command=a+b&container=c&stdin=true&stdout=1&stderr=false&tty=0",
                json!({"stdin": true, "stdout": true, "container": "c", "command": ["sh", "-c", "a b"]}),
            ),
            ("PodExecOptions", "stdout=true", json!({"stdout": true, "command": []})),
            ("PodAttachOptions", "stdin&command=x", json!({"stdin": true})),
            ("PodPortForwardOptions", "ports=80&ports=81&container=c", json!({"ports": [80, 81]})),
            ("PodPortForwardOptions", "", json!({})),
        ] {
            let mut expected = expected;
            expected["apiVersion"] = "v1".into();
            expected["kind"] = kind.into();
            assert_eq!(of_query(kind, &Query::parse(query)).expect("options"), expected, "{kind} {query}");
        }
        assert!(of_query("PodPortForwardOptions", &Query::parse("ports=x")).is_err());
    }

    #[test]
    fn requires_a_stream_and_ports_that_exist() {
        for (options, expected) in [
            (json!({}), None),
            (json!({"tty": true, "stderr": true}), None),
            (json!({"stdout": true, "stderr": true}), Some((false, true, true, false))),
            (
                json!({"stdin": true, "stdout": true, "stderr": true, "tty": true}),
                Some((true, true, false, true)),
            ),
        ] {
            let found = streams(&options).ok().map(|s| (s.stdin, s.stdout, s.stderr, s.tty));
            assert_eq!(found, expected, "{options}");
        }
        assert_eq!(ports(&json!({"ports": [1, 65535]})).expect("ports"), [1, 65535]);
        for wrong in [json!([0]), json!([65536]), json!([-1])] {
            assert!(ports(&json!({"ports": wrong})).is_err(), "{wrong}");
        }
    }
}
