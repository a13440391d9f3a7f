//! The server as a service in this process: a `kube::Client` needs no socket.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http::{Request, Response};
use tokio::sync::OnceCell;

use crate::api::{Api, Peer};
use crate::auth::UserInfo;
use crate::http::Body;
use crate::server::bootstrap;

/// Answers requests without a network. Clones share everything.
#[derive(Debug, Clone)]
pub struct Router {
    api: Arc<Api>,
    peer: Arc<Peer>,
    ready: Arc<OnceCell<()>>,
}

impl Router {
    pub(crate) fn new(api: Arc<Api>) -> Self {
        let peer = Peer { trusted: Some(UserInfo::admin()), ..Peer::default() };
        Self { api, peer: Arc::new(peer), ready: Arc::default() }
    }

    /// Of a server that has everything already.
    pub(crate) fn of_running(api: Arc<Api>) -> Self {
        Self { ready: Arc::new(OnceCell::new_with(Some(()))), ..Self::new(api) }
    }

    /// The same server, for another user.
    #[must_use]
    pub fn as_user(&self, user: UserInfo) -> Self {
        let peer = Peer { trusted: Some(user), ..Peer::default() };
        Self { peer: Arc::new(peer), ..self.clone() }
    }

    /// What answers.
    #[must_use]
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }
}

impl<B> tower::Service<Request<B>> for Router
where
    B: http_body::Body + Send + 'static,
    B::Data: Buf + Send,
    B::Error: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { api, peer, ready } = self.clone();
        Box::pin(async move {
            ready.get_or_init(|| bootstrap::run(&api)).await;
            Ok(api.handle(request, &peer).await)
        })
    }
}
