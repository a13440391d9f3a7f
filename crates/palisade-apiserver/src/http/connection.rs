//! Connections: accept, TLS, HTTP/1.1 and HTTP/2, limits against slow or greedy clients, and a graceful end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::api::{Api, Peer};

/// Open connections at most; more wait in the listen queue.
pub const MAX_CONNECTIONS: usize = 16_384;
/// A client must finish the handshake in this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A client must send the next request's headers in this time.
const HEADERS: Duration = Duration::from_secs(90);
/// An HTTP/2 connection is asked whether it is still there this often.
const PING: Duration = Duration::from_secs(30);
/// Requests at a time on one HTTP/2 connection.
const STREAMS: u32 = 1000;
/// Running requests may take this long when the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until `stop` turns true, then lets running requests end.
pub async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    api: Arc<Api>,
    mut stop: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let server = Arc::new(builder());
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, or the peer has gone already: let connections end before trying again.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let (server, acceptor, api, stop) = (server.clone(), acceptor.clone(), api.clone(), stop.clone());
        tokio::spawn(async move {
            connection(&server, stream, acceptor, api, stop).await;
            drop(permit);
        });
    }
    drop(listener);
    let all = u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX);
    // Whoever is not done by then is cut off with the process.
    let _ = tokio::time::timeout(DRAIN, permits.acquire_many(all)).await;
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(64 << 10)
        .keep_alive(true);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(64 << 10)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20);
    server
}

async fn connection(
    server: &auto::Builder<TokioExecutor>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    api: Arc<Api>,
    mut stop: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let address = stream.peer_addr().ok();
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = api.verify_peer(chain);
    let peer = Arc::new(Peer { certificate, address, trusted: None });
    let service = service_fn(move |request: Request<Incoming>| {
        let (api, peer) = (api.clone(), peer.clone());
        async move { Ok::<_, Infallible>(api.handle(request, &peer).await) }
    });
    let connection = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
