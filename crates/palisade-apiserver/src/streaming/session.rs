//! What becomes of a connection after a 101: bytes go back and forth until one end, the pod or the server is gone.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use palisade_apimachinery::Status;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::api::Call;
use crate::registry::Entry;
use crate::storage::Bucket;

/// Sessions at a time: their connections no longer count as connections of the server.
pub(crate) const MOST_SESSIONS: usize = 1024;
/// The client gets the answer in this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The rest of a connection. It does nothing until it is run.
pub struct Session(Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Runs to the end.
    pub(crate) async fn run(self) {
        self.0.await;
    }
}

/// What a session needs of its request, taken before anything is requested of a node.
pub(super) struct Scope {
    client: OnUpgrade,
    permit: OwnedSemaphorePermit,
    stop: watch::Receiver<bool>,
    owner: Owner,
}

/// What a session ends with.
struct Owner {
    bucket: Arc<Bucket>,
    key: String,
    uid: String,
}

impl Scope {
    /// The scope of a request about a pod.
    pub(super) fn of(call: &Call<'_>, entry: &Entry, uid: &str) -> Result<Self, Box<Status>> {
        let key = entry.key(&call.info.namespace, &call.info.name);
        Self::of_object(call, entry.bucket.clone(), key, uid.to_owned())
    }

    /// The scope of a request that ends with an object.
    pub(super) fn of_object(
        call: &Call<'_>,
        bucket: Arc<Bucket>,
        key: String,
        uid: String,
    ) -> Result<Self, Box<Status>> {
        let client = call.parts.extensions.get::<OnUpgrade>().cloned();
        let client = client.ok_or_else(|| Status::bad_request("Upgrade request required"))?;
        let permit = call.api.sessions.clone().try_acquire_owned().map_err(|_| {
            Status::too_many_requests("too many connections into containers, please try again later", 1)
        })?;
        let owner = Owner { bucket, key, uid };
        Ok(Self { client, permit, stop: call.api.stop.clone(), owner })
    }

    /// The session that does some work with the client's connection.
    pub(super) fn session<F, W>(self, work: F) -> Session
    where
        F: FnOnce(TokioIo<Upgraded>) -> W + Send + 'static,
        W: Future<Output = ()> + Send,
    {
        let Self { client, permit, mut stop, owner } = self;
        Session(Box::pin(async move {
            let _permit = permit;
            let client = match tokio::time::timeout(PATIENCE, client).await {
                Ok(Ok(client)) => TokioIo::new(client),
                Ok(Err(error)) => {
                    return tracing::debug!(%error, "the client has gone before its connection began");
                }
                Err(_) => return tracing::debug!("the client did not take the answer"),
            };
            tokio::select! {
                () = work(client) => {}
                () = owner.is_gone() => {}
                // A sender that is gone counts as a stop.
                _ = stop.wait_for(|stop| *stop) => {}
            }
        }))
    }
}

impl Owner {
    /// Returns when there is no such object any more.
    async fn is_gone(&self) {
        let mut changes = self.bucket.subscribe();
        loop {
            changes.borrow_and_update();
            if self.bucket.get(&self.key).is_none_or(|object| object.uid() != self.uid)
                || changes.changed().await.is_err()
            {
                return;
            }
        }
    }
}
