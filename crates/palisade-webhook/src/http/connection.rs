//! Connections: accept, TLS, HTTP/1.1 and HTTP/2, limits against slow or greedy clients, and a graceful end.

use std::{convert::Infallible, future::Future, pin::pin, sync::Arc, time::Duration};

use http::Request;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::routes::Routes;

/// An HTTP/2 connection is asked whether it is still there this often.
const PING: Duration = Duration::from_secs(30);
/// Requests at a time on one HTTP/2 connection.
const STREAMS: u32 = 250;
/// Headers of a request at most, in bytes.
const HEADERS: usize = 16 << 10;
/// What a client gets that speaks plain HTTP.
const NO_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
/// The first byte of a TLS handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Tells connections to end.
pub type Drain = watch::Receiver<bool>;

/// Waits for the wish to end.
async fn told(drain: &mut Drain) {
    // Nobody left who could wish it means that it is over as well.
    let _ = drain.wait_for(|stop| *stop).await.map(|_| ());
}

/// Takes connections until told to stop, then lets running requests end.
async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    routes: &Routes,
    mut drain: Drain,
    serve: impl Fn(TcpStream) -> F,
) {
    let most = routes.limits().connections;
    let permits = Arc::new(Semaphore::new(most));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told(&mut drain) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let served = serve(stream);
                tokio::spawn(async move {
                    served.await;
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of file descriptors, or the peer has gone already: let connections end before trying again.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    drop(listener);
    // Whoever is not done by then is cut off with the process.
    let all = u32::try_from(most).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(routes.limits().drain, permits.acquire_many(all)).await;
}

/// Serves reviews over TLS.
pub async fn serve_tls(listener: TcpListener, acceptor: TlsAcceptor, routes: Arc<Routes>, drain: Drain) {
    accept(listener, &routes.clone(), drain.clone(), |stream| {
        let (acceptor, routes, drain) = (acceptor.clone(), routes.clone(), drain.clone());
        async move {
            let time = routes.limits().handshake;
            match tokio::time::timeout(time, handshake(stream, acceptor)).await {
                Ok(Some(stream)) => connection(stream, routes, drain).await,
                Ok(None) | Err(_) => routes.metrics().refused_connections.increment(),
            }
        }
    })
    .await;
}

async fn handshake(mut stream: TcpStream, acceptor: TlsAcceptor) -> Option<TlsStream<TcpStream>> {
    let _ = stream.set_nodelay(true);
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

async fn connection(stream: TlsStream<TcpStream>, routes: Arc<Routes>, mut drain: Drain) {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let headers = routes.limits().headers;
    let service = service_fn(move |request: Request<Incoming>| {
        let routes = routes.clone();
        async move { Ok::<_, Infallible>(routes.serve(request).await) }
    });
    let io = TokioIo::new(stream);
    // One loop for each protocol: their connections share no trait.
    macro_rules! run {
        ($connection:expr) => {{
            let mut connection = pin!($connection);
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = told(&mut drain) => {
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
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(u32::try_from(HEADERS).unwrap_or(u32::MAX))
            .initial_stream_window_size(256 << 10)
            .initial_connection_window_size(1 << 20);
        run!(server.serve_connection(io, service))
    } else {
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(headers).max_buf_size(64 << 10).keep_alive(true);
        run!(server.serve_connection(io, service))
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Serves health and metrics without TLS.
pub async fn serve_plain(listener: TcpListener, routes: Arc<Routes>, drain: Drain) {
    accept(listener, &routes.clone(), drain.clone(), |stream| {
        let (routes, mut drain) = (routes.clone(), drain.clone());
        async move {
            let headers = routes.limits().headers;
            let service = service_fn(move |request: Request<Incoming>| {
                let reply = routes.serve_plain(&request);
                async move { Ok::<_, Infallible>(reply) }
            });
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(headers).max_buf_size(HEADERS);
            let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                _ = connection.as_mut() => {}
                () = told(&mut drain) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        }
    })
    .await;
}
