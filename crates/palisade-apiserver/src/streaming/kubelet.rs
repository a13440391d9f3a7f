//! Kubelets of other processes: streams and logs come from their port, with a certificate of this API server.
//!
//! Implements: `GetConnectionInfo` of upstream's kubelet client, and the kubelet's paths `/exec`, `/attach`, `/portForward` and
//! `/containerLogs`. As upstream without `--kubelet-certificate-authority`, the kubelet's serving certificate is not
//! verified: kubelets sign their own. <https://kubernetes.io/docs/concepts/architecture/control-plane-node-communication/>

use std::sync::Arc;

use palisade_apimachinery::rest::path::Get as _;
use palisade_serve::certificate::Pair;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, SignatureScheme};
use serde_json::Value;
use thiserror::Error;

use super::transport::Backend;
use crate::log_source::LogRequest;
use crate::stream_source::{StreamTarget, Streams};

/// The name that this API server has for kubelets.
pub(crate) const CLIENT: &str = "kube-apiserver-kubelet-client";
/// Upstream's order of a node's addresses.
const PREFERENCE: &[&str] = &["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

/// Why there is no certificate for kubelets.
#[derive(Debug, Error)]
pub enum KubeletClientError {
    /// The pair cannot be read.
    #[error("the client certificate for kubelets cannot be read")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// TLS rejects it.
    #[error("the client certificate for kubelets cannot be used")]
    Tls(#[from] rustls::Error),
}

/// The configuration of connections to backends that are not given a certificate.
pub(super) fn anonymous_config() -> Result<Arc<ClientConfig>, KubeletClientError> {
    let mut config = unverified()?.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn unverified() -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(SelfSigned(provider))))
}

/// The configuration of connections to kubelets.
pub(crate) fn client_config(pair: &Pair) -> Result<Arc<ClientConfig>, KubeletClientError> {
    let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let mut config = unverified()?.with_client_auth_cert(chain, key)?;
    // Upgrades are HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts any certificate; signatures are verified, so that the other end has its key.
#[derive(Debug)]
struct SelfSigned(Arc<CryptoProvider>);

impl ServerCertVerifier for SelfSigned {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Where the kubelet of a node listens; nothing for a node without a kubelet's port.
pub(super) fn addresses(node: &Value) -> Option<Vec<(String, u16)>> {
    let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64)?;
    let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
    let found: Vec<_> = hosts(node).into_iter().map(|host| (host, port)).collect();
    (!found.is_empty()).then_some(found)
}

/// The names and addresses of a node, in upstream's order.
pub(super) fn hosts(node: &Value) -> Vec<String> {
    let known = node.pointer("/status/addresses").and_then(Value::as_array);
    let of_type =
        |kind: &'static str| known.into_iter().flatten().filter(move |address| address.text("type") == kind);
    let found = PREFERENCE.iter().flat_map(|kind| of_type(kind)).map(|address| address.text("address"));
    found.filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

/// The kubelet's end of a stream, if the node has a kubelet.
pub(super) fn stream(
    node: &Value,
    tls: &Arc<ClientConfig>,
    namespace: &str,
    pod: &str,
    target: &StreamTarget,
) -> Option<Backend> {
    let addresses = addresses(node)?;
    Some(Backend { addresses, tls: Some(tls.clone()), target: stream_target(namespace, pod, target) })
}

/// The kubelet's end of a log, if the node has a kubelet.
pub(super) fn log(
    node: &Value,
    tls: &Arc<ClientConfig>,
    namespace: &str,
    pod: &str,
    request: &LogRequest,
) -> Option<Backend> {
    let addresses = addresses(node)?;
    Some(Backend { addresses, tls: Some(tls.clone()), target: log_target(namespace, pod, request) })
}

fn stream_target(namespace: &str, pod: &str, target: &StreamTarget) -> String {
    let mut query = Vec::new();
    let mut with_streams = |streams: &Streams| {
        for (name, wanted) in [
            ("input", streams.stdin),
            ("output", streams.stdout),
            ("error", streams.stderr),
            ("tty", streams.tty),
        ] {
            if wanted {
                query.push(format!("{name}=1"));
            }
        }
    };
    let path = match target {
        StreamTarget::Exec { container, command, streams } => {
            with_streams(streams);
            query.extend(command.iter().map(|word| format!("command={}", escaped(word))));
            format!("/exec/{}/{}/{}", escaped(namespace), escaped(pod), escaped(container))
        }
        StreamTarget::Attach { container, streams } => {
            with_streams(streams);
            format!("/attach/{}/{}/{}", escaped(namespace), escaped(pod), escaped(container))
        }
        StreamTarget::PortForward { ports } => {
            query.extend(ports.iter().map(|port| format!("port={port}")));
            format!("/portForward/{}/{}", escaped(namespace), escaped(pod))
        }
    };
    with_query(path, &query)
}

fn log_target(namespace: &str, pod: &str, request: &LogRequest) -> String {
    let mut query = Vec::new();
    for (name, wanted) in
        [("follow", request.follow), ("previous", request.previous), ("timestamps", request.timestamps)]
    {
        if wanted {
            query.push(format!("{name}=true"));
        }
    }
    if let Some(since) = request.since {
        query.push(format!("sinceTime={}", escaped(&since.to_string())));
    }
    if let Some(lines) = request.tail_lines {
        query.push(format!("tailLines={lines}"));
    }
    if let Some(bytes) = request.limit_bytes {
        query.push(format!("limitBytes={bytes}"));
    }
    let path =
        format!("/containerLogs/{}/{}/{}", escaped(namespace), escaped(pod), escaped(&request.container));
    with_query(path, &query)
}

fn with_query(path: String, query: &[String]) -> String {
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

/// A part of a path or query that ends neither.
fn escaped(text: &str) -> String {
    const KEPT: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');
    utf8_percent_encode(text, KEPT).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_has_a_kubelet_where_it_names_its_port() {
        let node = |port: u64| {
            json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}, "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n"}]}})
        };
        let found = addresses(&node(10250)).expect("a kubelet");
        assert_eq!(found, [("n".to_owned(), 10250), ("10.0.0.1".to_owned(), 10250)]);
        for (case, node) in [
            ("no port", json!({"status": {"addresses": [{"type": "Hostname", "address": "n"}]}})),
            ("port 0", node(0)),
            ("no address", json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}})),
        ] {
            assert_eq!(addresses(&node), None, "{case}");
        }
    }

    #[test]
    fn a_command_stays_inside_its_parameter() {
        let streams = Streams { stdin: true, tty: true, ..Streams::default() };
        let command = vec!["sh".to_owned(), "-c".to_owned(), "a&command=b #%?".to_owned()];
        let exec = StreamTarget::Exec { container: "c/../d".to_owned(), command, streams };
        assert_eq!(
            stream_target("ns", "p", &exec),
            "/exec/ns/p/c%2F..%2Fd?input=1&tty=1&command=sh&command=-c&command=a%26command%3Db%20%23%25%3F"
        );
        assert_eq!(
            stream_target("ns", "p", &StreamTarget::PortForward { ports: vec![80, 81] }),
            "/portForward/ns/p?port=80&port=81"
        );
        let request = LogRequest {
            container: "c".to_owned(),
            follow: true,
            tail_lines: Some(3),
            ..LogRequest::default()
        };
        assert_eq!(log_target("ns", "p", &request), "/containerLogs/ns/p/c?follow=true&tailLines=3");
    }
}
