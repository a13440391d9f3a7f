//! Clusters that cannot be used: one sentence with the address and what to do, exit status 3, never a dumped struct.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    thread,
};

use palisade_apiserver::Server;

use crate::support::Project;

/// Serves one response for every request, until the process ends; returns the address.
fn responder(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = BufReader::new(stream.try_clone().unwrap());
            let headers = request.lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            if headers.count() > 0 {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all((head + body).as_bytes());
            }
        }
    });
    format!("http://{address}")
}

fn kubeconfig(server: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}],
        clusters: [{{name: c, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
    )
}

/// What the command prints for a cluster at `address`, with the port left out.
fn shown(project: &Project, address: &str, arguments: &[&str]) -> String {
    let run = project.run(&[arguments, &["--kubeconfig", "kubeconfig"]].concat());
    let port = address.rsplit(':').next().unwrap();
    run.to_string().replace(&format!(":{port}"), ":PORT")
}

const COMMANDS: [&[&str]; 3] =
    [&["check", "--cluster"], &["explain", "--live", "shop/web"], &["rollout", "status"]];

#[test]
fn a_failed_request_is_one_sentence_with_the_address() {
    const FORBIDDEN: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":
        "pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace \"shop\"",
        "reason":"Forbidden","details":{"kind":"pods"},"code":403}"#;
    const UNAUTHORIZED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
        "message":"Unauthorized","reason":"Unauthorized","code":401}"#;
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("https://{}", listener.local_addr().unwrap())
    };
    for (case, address, expected) in [
        (
            "a closed port",
            closed,
            "cannot connect to https://127.0.0.1:PORT: connection refused; \
             check that the API server runs and that the kubeconfig has its address",
        ),
        (
            "403",
            responder("403 Forbidden", FORBIDDEN),
            "access denied by http://127.0.0.1:PORT: pods is forbidden: User \"eve\" cannot list resource \"pods\" in API \
             group \"\" in the namespace \"shop\"; grant the permission with RBAC, or use another context with --context",
        ),
        (
            "401",
            responder("401 Unauthorized", UNAUTHORIZED),
            "cannot log in to http://127.0.0.1:PORT: Unauthorized; \
             check the credentials, or use another context with --context",
        ),
        (
            "an error of a proxy",
            responder("502 Bad Gateway", "no healthy upstream"),
            "error response from http://127.0.0.1:PORT: status 502: no healthy upstream; \
             check the API server and the proxies in front of it",
        ),
        (
            "a web site",
            responder("200 OK", "<html>"),
            "no Kubernetes API server at http://127.0.0.1:PORT: expected value at line 1 column 1; \
             check the address in the kubeconfig",
        ),
        (
            "another program",
            responder("200 OK", "{}"),
            "unsupported API server at http://127.0.0.1:PORT: gitVersion null in /version is not a Kubernetes version; \
             check the address in the kubeconfig",
        ),
    ] {
        let project = Project::new();
        project.file("kubeconfig", kubeconfig(&address));
        for command in COMMANDS {
            let shown = shown(&project, &address, command);
            // The server of this case has every object, of no kind.
            if case == "another program" && command[0] == "explain" {
                assert!(shown.ends_with("exit status: 3"), "{case}: {shown}");
                continue;
            }
            assert_eq!(shown, format!("error: {expected}\nexit status: 3"), "{case}: {command:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_trusted_is_one_sentence_with_the_address() {
    let project = Project::new();
    let server = Server::builder().kubeconfig(project.path("trusted")).start().await.unwrap();
    let address = server.url();
    project.file("kubeconfig", kubeconfig(&address));
    let shown = tokio::task::spawn_blocking(move || {
        COMMANDS.map(|command| shown(&project, &address, command)).to_vec()
    });
    for shown in shown.await.unwrap() {
        assert_eq!(
            shown,
            "error: cannot establish TLS with https://127.0.0.1:PORT: invalid peer certificate: UnknownIssuer; \
             check certificate-authority-data and the address in the kubeconfig\nexit status: 3"
        );
    }
    server.shutdown().await;
}

#[test]
fn an_unusable_kubeconfig_is_one_sentence_with_its_path() {
    const ADVICE: &str = "name another file with --kubeconfig or another context with --context";
    let project = Project::new();
    for (case, text, arguments, expected) in [
        ("no file", None, &[][..], "no such file"),
        ("no context", Some("{}".to_owned()), &[], "it has no current context"),
        (
            "an unknown context",
            Some(kubeconfig("http://127.0.0.1:1")),
            &["--context", "prod"],
            "it has no context \"prod\"",
        ),
    ] {
        match text {
            Some(text) => drop(project.file("kubeconfig", text)),
            None => assert!(fs::metadata(project.path("kubeconfig")).is_err()),
        }
        for command in COMMANDS {
            let run =
                project.run(&[command, &["--kubeconfig", "kubeconfig"], arguments].concat()).to_string();
            let expected =
                format!("error: cannot use kubeconfig kubeconfig: {expected}; {ADVICE}\nexit status: 3");
            assert_eq!(run, expected, "{case}");
        }
    }
    project.file("kubeconfig", "clusters: [");
    let run = project.run(&["check", "--cluster", "--kubeconfig", "kubeconfig"]);
    assert_eq!((run.status, run.stderr.lines().count()), (3, 1), "{run}");
}
