//! Connections: accept, TLS, HTTP/1.1 and HTTP/2, limits against slow or greedy clients, and a graceful end.

use std::{
    convert::Infallible, error::Error, future::Future, net::SocketAddr, pin::pin, sync::Arc, time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// An HTTP/2 connection is pinged this often.
const PING: Duration = Duration::from_secs(30);
/// The pause after a connection that could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// The response to a client that sends plain HTTP to a TLS port, as Go's server sends it.
const NO_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// The first byte of a TLS handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Limits against slow or greedy clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time; more wait in the listen queue.
    pub connections: usize,
    /// A client must finish the handshake in this time.
    pub handshake: Duration,
    /// A client must send the headers of its next request in this time. Go's clients close an idle connection after 90
    /// seconds; a server that closes it first loses the request that is on its way.
    pub headers: Duration,
    /// The headers of a request may have this many bytes.
    pub header_bytes: u32,
    /// Requests at a time on one HTTP/2 connection.
    pub streams: u32,
    /// Running requests may take this long when the server stops.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            handshake: Duration::from_secs(5),
            headers: Duration::from_secs(100),
            header_bytes: 16 << 10,
            streams: 250,
            drain: Duration::from_secs(20),
        }
    }
}

/// Responds to requests.
pub trait Service: Send + Sync + 'static {
    /// What the service keeps about a connection.
    type Peer: Send + Sync + 'static;
    /// The body of a response.
    type Body: http_body::Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Reads who is at the other end, once for each connection.
    fn peer(&self, address: Option<SocketAddr>, certificates: &[CertificateDer<'_>]) -> Self::Peer;

    /// Responds to one request.
    fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        peer: &Self::Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// A client did not use TLS, or did not finish the handshake in time.
    fn refused_connection(&self) {}
}

/// Waits for the signal to stop; a sender that is gone counts as one.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await.map(|_| ());
}

/// Serves until `stop` turns true, then lets running requests end. Without an acceptor, in plain HTTP/1.1.
pub async fn serve<S: Service>(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    limits: Limits,
    service: Arc<S>,
    mut stop: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, or the peer has gone already: let connections end before trying again.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let (acceptor, service, stop) = (acceptor.clone(), service.clone(), stop.clone());
        tokio::spawn(async move {
            accepted_connection(stream, acceptor, limits, service, stop).await;
            drop(permit);
        });
    }
    drop(listener);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    // What is not done by then is cut off with the process.
    let _ = tokio::time::timeout(limits.drain, permits.acquire_many(all)).await;
}

async fn accepted_connection<S: Service>(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    limits: Limits,
    service: Arc<S>,
    stop: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let address = stream.peer_addr().ok();
    let Some(acceptor) = acceptor else {
        let peer = service.peer(address, &[]);
        return connection(stream, false, limits, service, peer, stop).await;
    };
    match tokio::time::timeout(limits.handshake, handshake(stream, acceptor)).await {
        Ok(Some(stream)) => {
            let (_, tls) = stream.get_ref();
            let peer = service.peer(address, tls.peer_certificates().unwrap_or_default());
            let is_http2 = tls.alpn_protocol() == Some(b"h2");
            connection(stream, is_http2, limits, service, peer, stop).await;
        }
        Ok(None) | Err(_) => service.refused_connection(),
    }
}

async fn handshake(mut stream: TcpStream, acceptor: TlsAcceptor) -> Option<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first[0] != HANDSHAKE_RECORD {
        let _ = stream.write_all(NO_TLS).await;
        let _ = stream.shutdown().await;
        return None;
    }
    match acceptor.accept(stream).await {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(%error, "handshake failed");
            None
        }
    }
}

/// The protocol is what ALPN agreed on: to guess it from the first bytes means to wait for them without a limit.
async fn connection<S: Service>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    limits: Limits,
    service: Arc<S>,
    peer: S::Peer,
    mut stop: watch::Receiver<bool>,
) {
    let peer = Arc::new(peer);
    let service = service_fn(move |request: Request<Incoming>| {
        let (service, peer) = (service.clone(), peer.clone());
        async move { Ok::<_, Infallible>(service.respond(request, &peer).await) }
    });
    let io = TokioIo::new(stream);
    // One loop for each protocol: their connections share no trait.
    macro_rules! run {
        ($connection:expr) => {{
            let mut connection = pin!($connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = stopped(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }};
    }
    let ended = if is_http2 {
        let mut server = http2::Builder::new(TokioExecutor::new());
        server
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(limits.header_bytes)
            .initial_stream_window_size(256 << 10)
            .initial_connection_window_size(1 << 20);
        run!(server.serve_connection(io, service))
    } else {
        let mut server = http1::Builder::new();
        let buffer = usize::try_from(limits.header_bytes).unwrap_or(usize::MAX);
        server.timer(TokioTimer::new()).header_read_timeout(limits.headers).max_buf_size(buffer);
        run!(server.serve_connection(io, service).with_upgrades())
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}
