//! What should not work does not, with upstream's status codes and a clear message.

use std::time::Duration;

use palisade_apiserver::Server;
use palisade_apiserver::http::tls::Authority;
use palisade_testkit::client::Client;
use palisade_testkit::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{admin, client, config_map, get, send, start, tls};

const PATH: &str = "/api/v1/namespaces/default/configmaps";

async fn raw(client: &Client, content_type: &str, body: &str) -> (u16, String) {
    let headers = [("content-type", content_type.to_owned())];
    let answer = client.request("POST", PATH, &headers, body.to_owned()).await.expect("an answer");
    (answer.code, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn bodies_that_cannot_be_read() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (case, content_type, body, code) in [
        ("half a document", "application/json", "{\"apiVersion\"", 400),
        ("not JSON", "application/json", "metadata: {}", 400),
        ("a list", "application/json", "[]", 400),
        ("a name that is a number", "application/json", r#"{"metadata":{"name":1}}"#, 400),
        ("nested too deeply", "application/json", deep.as_str(), 400),
        ("not YAML", "application/yaml", "a: [b", 400),
        ("a billion laughs", "application/yaml", "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b,*c]\n", 400),
        ("an unknown type", "text/csv", "a,b", 415),
        ("protobuf that is none", "application/vnd.kubernetes.protobuf", "{}", 400),
    ] {
        let (got, message) = raw(&client, content_type, body).await;
        assert_eq!(got, code, "{case}: {message}");
        assert!(!message.is_empty(), "{case}");
    }
    assert_eq!(get(&client, "/readyz").await.code, 200);
}

#[tokio::test]
async fn invalid_utf8_is_refused() {
    let server = start(Server::builder().controllers(false)).await;
    let mut stream = tls(&server, None).await;
    let body = b"{\"metadata\":{\"name\":\"\xff\xfe\"}}";
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        server.token,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(body).await.expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[tokio::test]
async fn oversized_bodies_are_refused() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    let answer = send(&client, "POST", PATH, &config_map("big", &"x".repeat(3 << 20))).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    assert_eq!(answer.body["message"], "Request entity too large: limit is 3145728");
}

#[tokio::test]
async fn names_do_not_climb() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    for (name, code, message) in [
        ("..", 400, "Name parameter invalid: \"..\": may not be '..'"),
        ("%2e%2e%2fsecrets%2fx", 400, "Name parameter invalid: \"../secrets/x\": may not contain '/'"),
        ("a%25b", 400, "Name parameter invalid: \"a%b\": may not contain '%'"),
    ] {
        let answer = get(&client, &format!("{PATH}/{name}")).await;
        assert_eq!((answer.code, answer.body["message"].as_str()), (code, Some(message)), "{name}");
    }
}

#[tokio::test]
async fn conflicting_writes_lose_nothing() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    send(&client, "POST", PATH, &config_map("a", "0")).await;
    let stale = get(&client, &format!("{PATH}/a")).await.body;
    let writers: Vec<_> = (0..20)
        .map(|n| {
            let client = admin(&server);
            tokio::spawn(async move {
                let key = format!("k{n}");
                send(&client, "PATCH", &format!("{PATH}/a"), &json!({"data": {key: "v"}})).await.code
            })
        })
        .collect();
    for writer in writers {
        assert_eq!(writer.await.expect("joined"), 200);
    }
    let data = get(&client, &format!("{PATH}/a")).await.body["data"].clone();
    assert_eq!(data.as_object().map(serde_json::Map::len), Some(21), "{data}");
    let answer = send(&client, "PUT", &format!("{PATH}/a"), &stale).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (409, Some("Conflict")));
}

/// Sends a request on a connection of its own and returns the status line.
async fn status_line(server: &Server, identity: Option<(&str, &str)>, token: Option<&str>) -> String {
    let mut stream = tls(server, identity).await;
    let token = token.map(|t| format!("authorization: Bearer {t}\r\n")).unwrap_or_default();
    let request = format!("GET /api/v1/nodes HTTP/1.1\r\nhost: x\r\n{token}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn certificates_that_are_not_ours() {
    let directory = tempfile::tempdir().expect("directory");
    let server = start(Server::builder().controllers(false).data_dir(directory.path())).await;
    let ours = Authority::open(Some(directory.path())).expect("the same authority");
    let foreign = Authority::open(None).expect("another authority");
    let day = Duration::from_hours(24);
    let valid = ours.client("someone", &["system:masters"], day).expect("certificate");
    let other = foreign.client("someone", &["system:masters"], day).expect("certificate");
    let expired = ours.client("someone", &["system:masters"], Duration::ZERO).expect("certificate");
    let is_expired = async || {
        let identity = (expired.certificate.as_str(), expired.key.as_str());
        (status_line(&server, Some(identity), None).await == "HTTP/1.1 401 Unauthorized").then_some(())
    };
    eventually("the certificate expires", is_expired).await;
    for (case, identity, expected) in [
        ("ours", Some(&valid), "HTTP/1.1 200 OK"),
        ("foreign", Some(&other), "HTTP/1.1 401 Unauthorized"),
        ("none", None, "HTTP/1.1 403 Forbidden"),
    ] {
        let identity = identity.map(|i| (i.certificate.as_str(), i.key.as_str()));
        assert_eq!(status_line(&server, identity, None).await, expected, "{case}");
    }
    assert_eq!(status_line(&server, None, Some("wrong")).await, "HTTP/1.1 401 Unauthorized");
    for file in ["ca.key", "ca.crt", "sa.key"] {
        let mode = std::fs::metadata(directory.path().join(file)).expect("kept").permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn tokens_die_with_their_service_account() {
    let server = start(Server::builder().controllers(false)).await;
    let root = admin(&server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}});
    send(&root, "POST", accounts, &account).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = send(&root, "POST", &format!("{accounts}/sa/token"), &request).await;
    let token = answer.body["status"]["token"].as_str().expect("token").to_owned();
    let forbidden = get(&client(&server, &token), "/api/v1/nodes").await;
    assert_eq!(forbidden.code, 403);
    let message = forbidden.body["message"].as_str().expect("message").to_owned();
    assert!(message.contains("User \"system:serviceaccount:default:sa\""), "{message}");
    let foreign = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}});
    let other = send(&root, "POST", &format!("{accounts}/sa/token"), &foreign).await;
    let other = other.body["status"]["token"].as_str().expect("token").to_owned();
    assert_eq!(get(&client(&server, &other), "/api/v1/nodes").await.code, 401, "another audience");
    send(&root, "DELETE", &format!("{accounts}/sa"), &Value::Null).await;
    assert_eq!(get(&client(&server, &token), "/api/v1/nodes").await.code, 401, "deleted");
    send(&root, "POST", accounts, &account).await;
    assert_eq!(get(&client(&server, &token), "/api/v1/nodes").await.code, 401, "another one of that name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_broken_connections_do_not_affect_others() {
    let server = start(Server::builder().controllers(false)).await;
    // Connections that never send anything, and some that stop in the middle of a request.
    let mut silent = Vec::new();
    for _ in 0..500 {
        silent.push(tokio::net::TcpStream::connect(server.address).await.expect("connected"));
    }
    for _ in 0..20 {
        let mut stream = tls(&server, None).await;
        let half = format!(
            "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-le",
            server.token
        );
        stream.write_all(half.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("half closed");
    }
    let client = admin(&server);
    let answer = tokio::time::timeout(Duration::from_secs(2), get(&client, "/readyz")).await;
    assert_eq!(answer.expect("in time").code, 200);
    drop(silent);
    tokio::time::timeout(Duration::from_secs(11), server.shutdown()).await.expect("ends in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_do_not_delay_others() {
    let server = start(Server::builder().controllers(false)).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut stream = tls(&server, None).await;
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: 1000\r\n\r\n{{",
            server.token
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        slow.push(stream);
    }
    let client = admin(&server);
    for n in 0..20 {
        for stream in &mut slow {
            stream.write_all(b" ").await.expect("a byte at a time");
        }
        let map = config_map(&format!("quick-{n}"), "1");
        let made = tokio::time::timeout(Duration::from_secs(10), send(&client, "POST", PATH, &map)).await;
        let made = made.expect("in time");
        assert_eq!(made.code, 201);
    }
}

#[tokio::test]
async fn conflicting_patches_get_distinct_errors() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    send(&client, "POST", PATH, &config_map("a", "1")).await;
    let path = format!("{PATH}/a");
    let version = get(&client, &path).await.body["metadata"]["resourceVersion"].clone();
    let named = json!({"metadata": {"resourceVersion": version}, "data": {"k": "2"}});
    assert_eq!(send(&client, "PATCH", &path, &named).await.code, 200);
    let answer = send(&client, "PATCH", &path, &named).await;
    assert_eq!((answer.code, answer.body["reason"].as_str()), (409, Some("Conflict")), "an old version");
    for (case, content_type, query, body, code) in [
        (
            "a failed test",
            "application/json-patch+json",
            "",
            r#"[{"op":"test","path":"/data/k","value":"1"}]"#,
            422,
        ),
        (
            "a field of another manager",
            "application/apply-patch+yaml",
            "?fieldManager=other",
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"3"}}"#,
            409,
        ),
        ("another object", "application/merge-patch+json", "", r#"{"metadata":{"uid":"other"}}"#, 422),
        (
            "a version that is none",
            "application/merge-patch+json",
            "",
            r#"{"metadata":{"resourceVersion":"x"}}"#,
            422,
        ),
    ] {
        let headers = [("content-type", content_type.to_owned())];
        let answer = client.request("PATCH", &format!("{path}{query}"), &headers, body.to_owned()).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.code, code, "{case}: {}", answer.body);
    }
    assert_eq!(get(&client, &path).await.body["data"]["k"], "2", "nothing was lost");
}

#[tokio::test]
async fn queries_that_make_no_sense() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    for (query, code) in [
        ("limit=x", 400),
        ("continue=%%%", 400),
        ("labelSelector=%3D%3D", 400),
        ("fieldSelector=spec.nope%3D1", 400),
        ("resourceVersion=-1", 400),
        ("resourceVersion=99999999999", 504),
        ("resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=true", 422),
    ] {
        let answer = get(&client, &format!("{PATH}?{query}")).await;
        assert_eq!(answer.code, code, "{query}: {}", answer.body);
    }
    let answer = send(&client, "POST", &format!("{PATH}?dryRun=Some"), &config_map("a", "1")).await;
    assert_eq!(answer.code, 422);
}

/// A token of our own making, as any client can make one.
fn token(rv: i64, start: &str) -> String {
    use base64::Engine as _;
    let token = json!({"v": "meta.k8s.io/v1", "rv": rv, "start": start}).to_string();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token)
}

#[tokio::test]
async fn made_up_continue_tokens_stay_inside_their_list() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    for namespace in ["a", "b", "c"] {
        let body = json!({"metadata": {"name": namespace}});
        assert_eq!(send(&client, "POST", "/api/v1/namespaces", &body).await.code, 201);
        for name in ["x", "y"] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            assert_eq!(send(&client, "POST", &path, &config_map(name, "1")).await.code, 201);
        }
    }
    let b = "/api/v1/namespaces/b/configmaps";
    let all = "/api/v1/configmaps";
    for (case, path, rv, start, code, expected) in [
        ("behind the end of the range", b, -1, "zzz", 200, Some(&[][..])),
        ("behind every key", all, -1, "\u{10ffff}", 200, Some(&[][..])),
        ("the key of another namespace", b, -1, "a/x", 200, Some(&["b/x", "b/y"][..])),
        ("after a key", b, -1, "x\0", 200, Some(&["b/y"][..])),
        ("with a slash in front", b, -1, "/y", 200, Some(&["b/y"][..])),
        ("cluster-wide", all, -1, "b/y", 200, Some(&["b/y", "c/x", "c/y"][..])),
        ("any negative version is now", b, i64::MIN, "y", 200, Some(&["b/y"][..])),
        ("up", b, 1, "../c/x", 400, None),
        ("up from inside", b, 1, "x/../../c", 400, None),
        ("here", b, 1, "./x", 400, None),
        ("an empty segment", b, 1, "x//y", 400, None),
        ("a slash at the end", b, 1, "x/", 400, None),
        ("no start", b, 1, "", 400, None),
        ("no version", b, 0, "x", 400, None),
        ("the future", b, i64::MAX, "x", 504, None),
    ] {
        for limit in ["", "&limit=-1", "&limit=9223372036854775807"] {
            let answer = get(&client, &format!("{path}?continue={}{limit}", token(rv, start))).await;
            assert_eq!(answer.code, code, "{case}: {}", answer.body);
            let Some(expected) = expected else { continue };
            let items = answer.body["items"].as_array().expect("items");
            let text = |item: &Value, key: &str| item["metadata"][key].as_str().expect("text").to_owned();
            let found: Vec<String> =
                items.iter().map(|i| format!("{}/{}", text(i, "namespace"), text(i, "name"))).collect();
            // Every namespace has `kube-root-ca.crt` besides.
            assert_eq!(found.iter().filter(|f| !f.contains("kube-")).collect::<Vec<_>>(), expected, "{case}");
        }
    }
    let named = format!("{b}?fieldSelector=metadata.name%3Dx&continue={}", token(-1, "zz"));
    assert_eq!(get(&client, &named).await.body["items"], json!([]));
    let pages = get(&client, &format!("{b}?limit=2")).await;
    let next = pages.body["metadata"]["continue"].as_str().expect("a token").to_owned();
    let rest = get(&client, &format!("{b}?limit=1&continue={next}")).await;
    assert_eq!(rest.body["items"][0]["metadata"]["name"], "y");
}

#[tokio::test]
async fn an_expired_list_can_go_on_inconsistently() {
    let directory = tempfile::tempdir().expect("directory");
    let server = start(Server::builder().controllers(false).data_dir(directory.path())).await;
    let client = admin(&server);
    for name in ["x", "y"] {
        assert_eq!(send(&client, "POST", PATH, &config_map(name, "1")).await.code, 201);
    }
    let page = get(&client, &format!("{PATH}?limit=2")).await;
    let token = page.body["metadata"]["continue"].as_str().expect("a token").to_owned();
    assert_eq!(send(&client, "POST", PATH, &config_map("z", "1")).await.code, 201);
    server.shutdown().await;
    drop(client);
    // A new process has no history.
    let server = start(Server::builder().controllers(false).data_dir(directory.path())).await;
    let client = admin(&server);
    let expired = get(&client, &format!("{PATH}?limit=1&continue={token}")).await;
    assert_eq!((expired.code, expired.body["reason"].as_str()), (410, Some("Expired")));
    let token = expired.body["metadata"]["continue"].as_str().expect("another token").to_owned();
    let rest = get(&client, &format!("{PATH}?continue={token}")).await;
    let names: Vec<&str> = rest.body["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|i| i["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["y", "z"]);
}
