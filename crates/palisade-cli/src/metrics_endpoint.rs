//! `/metrics`, `/healthz` and `/readyz` of a long-running command, over plain HTTP.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use http_body_util::Full;
use hyper::{Request, Response, StatusCode, body::Bytes, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::{failure::Failure, terminal::Terminal};

/// What is told.
pub trait Told: Send + Sync + 'static {
    /// Counters, in the format of Prometheus.
    fn metrics(&self) -> String;
    /// Whether the command does its work.
    fn is_ready(&self) -> bool;
}

/// Serves for as long as the process lives, and prints the address.
pub async fn serve(address: SocketAddr, told: Arc<impl Told>, terminal: &Terminal) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::incomplete(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(fail)?;
    terminal.report(format!("metrics on http://{}/metrics", listener.local_addr().map_err(fail)?));
    tokio::spawn(async move {
        loop {
            // A connection that could not be taken is the other side's loss.
            let Ok((stream, _)) = listener.accept().await else { continue };
            let told = Arc::clone(&told);
            let answer = service_fn(move |request: Request<Incoming>| {
                let response = answer(request.uri().path(), &*told);
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), answer);
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the metrics ended badly");
                }
            });
        }
    });
    Ok(())
}

fn answer(path: &str, told: &impl Told) -> Response<Full<Bytes>> {
    let (status, text) = match path {
        "/metrics" => (StatusCode::OK, told.metrics()),
        "/healthz" | "/livez" => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" if told.is_ready() => (StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "not yet\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "/metrics, /healthz, /readyz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::{Told, answer};

    struct Fixed(bool);

    impl Told for Fixed {
        fn metrics(&self) -> String {
            "a 1\n".to_owned()
        }
        fn is_ready(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn each_path_has_its_answer() {
        for (path, ready, status) in [
            ("/metrics", false, 200),
            ("/healthz", false, 200),
            ("/readyz", false, 503),
            ("/readyz", true, 200),
            ("/", true, 404),
        ] {
            assert_eq!(answer(path, &Fixed(ready)).status().as_u16(), status, "{path}");
        }
    }
}
