//! Keeps the Secret that all replicas share.
//!
//! Every replica does the same: reads the Secret, takes the step that is due, writes it back under the version it read. Of
//! several at once one wins, and the others go on from what it wrote. While the API server is away or takes no
//! writes, what was last read stays in use. A Secret that is deleted or damaged is restored from memory, so that nothing
//! that a replica serves loses its trust; and no certificate is served before its authority is seen to be trusted.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::Request;
use kube::Client;
use palisade_serve::{
    certificate::{self, IssueError, Pair},
    tls::Resolver,
};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::watch;

use super::{
    Trust,
    plan::{self, State},
    replace,
};
use crate::{calls::in_words, metrics::Metrics, options::Managed};

/// The key of the Secret that holds everything; the others repeat parts of it for people and tools.
const STATE: &str = "state.json";
/// The Secret is read at most this seldom.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// Keeps the Secret.
pub struct Keeper {
    /// The API server.
    pub client: Client,
    /// The namespace of the Secret.
    pub namespace: String,
    /// Times and names.
    pub options: Managed,
    /// Where the certificate goes.
    pub resolver: Arc<Resolver>,
    /// Where the authorities go.
    pub trust: watch::Sender<Trust>,
    /// The authorities that the API server is seen to trust; `None` if they are not observed.
    pub trusted: Option<watch::Receiver<BTreeSet<String>>>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Waits for a change; forever if there is nothing to observe, or the observer has ended.
async fn changed(trusted: &mut Option<watch::Receiver<BTreeSet<String>>>) {
    let ended = match trusted {
        Some(trusted) => trusted.changed().await.is_err(),
        None => true,
    };
    if ended {
        std::future::pending::<()>().await;
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Secret {
    metadata: Metadata,
    data: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
}

/// Why the certificates are not brought up to date.
#[derive(Debug, Error)]
enum KeeperError {
    /// The Secret cannot be read.
    #[error("cannot read Secret {secret}: {}", in_words(.source))]
    Read { secret: String, source: kube::Error },
    /// The Secret cannot be written.
    #[error("cannot write Secret {secret}: {}", in_words(.source))]
    Write { secret: String, source: kube::Error },
    /// A name that no path can have.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// A certificate cannot be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
}

impl Keeper {
    /// Keeps it until the end of the webhook.
    pub async fn run(mut self) {
        let pause = (self.options.overlap / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        let mut used = State::default();
        let mut logged: Option<String> = None;
        loop {
            let pause = match self.once(&mut used).await {
                Ok(()) => {
                    logged = None;
                    pause
                }
                Err(error) => {
                    let why = error.to_string();
                    // Once is enough while it stays the same.
                    if logged.as_ref() != Some(&why) {
                        tracing::warn!(
                            why,
                            "failed to update the certificates; the current ones stay in use"
                        );
                    }
                    logged = Some(why);
                    pause.min(Duration::from_secs(2))
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = changed(&mut self.trusted) => {}
            }
        }
    }

    /// Reads, takes the steps that are due, writes, and uses what came of it.
    async fn once(&self, used: &mut State) -> Result<(), KeeperError> {
        let now = certificate::now();
        let (mut state, mut version) = loop {
            let (held, version) = self.read().await?;
            let state = plan::reconcile(held.clone(), used, &self.options, now);
            if state == held {
                break (state, version);
            }
            if let Some(written) = self.write(&state, &version, used).await? {
                tracing::warn!("the Secret lacked certificates in use; restored");
                break (state, written);
            }
        };
        self.adopt(&state, used);
        while let Some(step) = plan::next(&state, &self.options, now, &|ca| self.is_trusted(ca)) {
            let next = plan::take(state, step, &self.options, now)?;
            (state, version) = if let Some(written) = self.write(&next, &version, used).await? {
                tracing::info!(?step, "certificates changed");
                (next, written)
            } else {
                // Another replica was first.
                self.read().await?
            };
            self.adopt(&state, used);
        }
        Ok(())
    }

    /// Whether the API server has been observed to trust an authority, if that is observed at all.
    fn is_trusted(&self, certificate: &str) -> bool {
        self.trusted.as_ref().is_none_or(|trusted| trusted.borrow().contains(certificate))
    }

    /// Uses a state that is complete. A certificate that is in use is replaced only by one that the API server is seen to
    /// trust, and its authority stays trusted until then.
    fn adopt(&self, state: &State, used: &mut State) {
        let Some(serving) = &state.serving else { return };
        if state == used {
            return;
        }
        let authority = state.authorities.last().and_then(|ca| certificate::about(&ca.pair.certificate).ok());
        let in_use = used.signer().cloned();
        let mut next = state.clone();
        let is_due = used.serving.as_ref() != Some(serving);
        let waits = is_due
            && in_use.is_some()
            && !state.signer().is_some_and(|signer| self.is_trusted(&signer.pair.certificate));
        if waits {
            next.serving.clone_from(&used.serving);
            if let Some(in_use) = in_use.filter(|in_use| !next.authorities.contains(in_use)) {
                next.authorities.insert(0, in_use);
            }
        }
        // Trust goes before use.
        let trust = next.trust();
        self.trust.send_if_modified(|current| {
            let changed = *current != trust;
            *current = trust;
            changed
        });
        if is_due && !waits {
            let ends = authority.map(|about| about.not_after);
            match replace(&self.resolver, serving, ends, &self.metrics) {
                Ok(()) => tracing::info!("certificate in use"),
                Err(error) => {
                    tracing::error!(%error, "certificate not replaced");
                    return;
                }
            }
        }
        *used = next;
    }

    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }

    fn secret_name(&self) -> String {
        format!("{}/{}", self.namespace, self.options.secret)
    }

    /// The state in the Secret and its version; nothing and no version if there is no Secret.
    async fn read(&self) -> Result<(State, String), KeeperError> {
        let request = Request::get(format!("{}/{}", self.path(), self.options.secret)).body(Vec::new())?;
        match self.client.request::<Secret>(request).await {
            Ok(secret) => {
                // A Secret that cannot be read is as good as none: replicas restore what they use.
                let state = secret
                    .data
                    .get(STATE)
                    .and_then(|text| BASE64_STANDARD.decode(text).ok())
                    .and_then(|json| serde_json::from_slice(&json).ok())
                    .unwrap_or_default();
                Ok((state, secret.metadata.resource_version))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok((State::default(), String::new())),
            Err(source) => Err(KeeperError::Read { secret: self.secret_name(), source }),
        }
    }

    /// Writes a state over a version; the new version, or `None` if another replica was first.
    async fn write(&self, state: &State, version: &str, used: &State) -> Result<Option<String>, KeeperError> {
        let body = self.secret(state, version).to_string().into_bytes();
        let request = if version.is_empty() {
            Request::post(self.path())
        } else {
            Request::put(format!("{}/{}", self.path(), self.options.secret))
        };
        let request = request.header("content-type", "application/json").body(body)?;
        match self.client.request::<Secret>(request).await {
            Ok(secret) => Ok(Some(secret.metadata.resource_version)),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            // A namespace that was there and is gone was removed for good.
            Err(kube::Error::Api(status))
                if status.code == 404 && used.serving.is_none() && self.make_namespace().await =>
            {
                Ok(None)
            }
            Err(source) => Err(KeeperError::Write { secret: self.secret_name(), source }),
        }
    }

    /// Makes the namespace of a webhook that was started by hand on a cluster without it; whether it is there now. An
    /// installed one finds its namespace and needs no right to make any.
    async fn make_namespace(&self) -> bool {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        let request = Request::post("/api/v1/namespaces")
            .header("content-type", "application/json")
            .body(namespace.to_string().into_bytes());
        let Ok(request) = request else { return false };
        match self.client.request_text(request).await {
            Ok(_) => {
                tracing::info!(namespace = self.namespace, "namespace created");
                true
            }
            Err(kube::Error::Api(status)) => status.code == 409,
            Err(_) => false,
        }
    }

    fn secret(&self, state: &State, version: &str) -> Value {
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let mut data = json!({"ca.crt": encode(&state.trust().bundle())});
        if let Ok(text) = serde_json::to_string(state) {
            data[STATE] = encode(&text).into();
        }
        if let Some(Pair { certificate, key }) = &state.serving {
            data["tls.crt"] = encode(certificate).into();
            data["tls.key"] = encode(key).into();
        }
        let mut metadata = json!({
            "name": self.options.secret,
            "namespace": self.namespace,
            "labels": {"app.kubernetes.io/part-of": "palisade", "app.kubernetes.io/component": "webhook"},
        });
        if !version.is_empty() {
            metadata["resourceVersion"] = version.into();
        }
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data})
    }
}
