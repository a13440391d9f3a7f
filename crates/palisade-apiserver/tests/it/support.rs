//! Servers and clients for the tests.

use std::sync::Arc;

use palisade_apiserver::{Builder, Server};
use palisade_testkit::client::{Answer, Client};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A server with options.
pub(crate) async fn start(builder: Builder) -> Server {
    builder.start().await.expect("server starts")
}

/// The administrator's client.
pub(crate) fn admin(server: &Server) -> Client {
    client(server, &server.token)
}

/// A client with a token.
pub(crate) fn client(server: &Server, token: &str) -> Client {
    Client::new(&server.address.to_string(), &server.ca, token).expect("client")
}

/// Sends JSON.
pub(crate) async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Answer {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let headers = [("content-type", content_type.to_owned())];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.request(method, path, &headers, body).await.expect("an answer")
}

/// Reads.
pub(crate) async fn get(client: &Client, path: &str) -> Answer {
    client.request("GET", path, &[], String::new()).await.expect("an answer")
}

/// A config map that can be stored.
pub(crate) fn typed(object: Value) -> palisade_apimachinery::Typed {
    let kind = palisade_apimachinery::scheme::LATEST.by_kind("", "v1", "ConfigMap").expect("a kind");
    kind.read(object).expect("readable")
}

/// A config map.
pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

/// A TLS connection, with a client certificate if one is given as PEM.
pub(crate) async fn tls(server: &Server, identity: Option<(&str, &str)>) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.ca.as_bytes()).expect("CA")).expect("root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("certificate")];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("key");
            config.with_client_auth_cert(chain, key).expect("identity")
        }
    };
    let stream = TcpStream::connect(server.address).await.expect("connected");
    let name = ServerName::try_from("localhost").expect("name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("handshake")
}
