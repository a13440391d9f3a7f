//! Makes the plan true: one call for each step, every one of which can be repeated, and none of which undoes another's work.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    },
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use palisade_base::sha256;
use palisade_base::time::rfc3339;
use palisade_model::profile::{
    config_map::check_document,
    published::{CHANGED_SOURCES_ANNOTATION, GROUP, UNREFERENCED_ANNOTATION, VERSION, published_name},
};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{
    bounds::{Fresh, ProfileLimits, PublishedFor},
    observe::{Index, NamedSource, SourceKey, SourceState},
    plan::PublishStep,
};

/// Who writes.
pub const FIELD_MANAGER: &str = "palisade-profile-publisher";

/// Published profiles, for a client that reads and writes JSON.
#[must_use]
pub fn published_profiles() -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "PublishedProfile".to_owned(),
        plural: "publishedprofiles".to_owned(),
    }
}

/// Pods, for a client that reads JSON.
pub(super) fn pods() -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        plural: "pods".to_owned(),
    }
}

/// The object that holds a profile.
#[must_use]
pub fn published_profile(sha256: &str, profile: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "PublishedProfile", "metadata": {"name": sha256},
        "spec": {"profile": profile}})
}

/// Writes to the cluster.
pub(super) struct Writer {
    client: Client,
    recorder: Recorder,
    /// The last event on each pod, by identity and profile.
    recorded: BTreeMap<(String, String), String>,
    /// What was published and may not be observed yet.
    fresh: Fresh,
}

impl Writer {
    pub(super) fn new(client: Client) -> Self {
        let reporter = Reporter { controller: "palisade-controller".to_owned(), instance: None };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { recorder, client, recorded: BTreeMap::new(), fresh: Fresh::new() }
    }

    /// A round begins: what earlier ones published counts until it is observed, or until no pod refers to it.
    pub(super) fn begin(&mut self, index: &Index) {
        let referenced = index.referenced();
        self.fresh.retain(|sha256, _| {
            referenced.contains_key(sha256.as_str()) && !index.profiles.contains_key(sha256)
        });
    }

    fn profiles(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &published_profiles())
    }

    /// Does one step.
    pub(super) async fn apply(
        &mut self,
        step: &PublishStep,
        index: &Index,
        limits: &ProfileLimits,
    ) -> Result<(), kube::Error> {
        match step {
            PublishStep::Publish { sha256, sources, replace } => {
                self.publish(sha256, sources, *replace, index, limits).await
            }
            PublishStep::Mark { sha256, since } => {
                self.annotate(sha256, UNREFERENCED_ANNOTATION, Some(&rfc3339(since.as_second()))).await
            }
            PublishStep::Unmark { sha256 } => self.annotate(sha256, UNREFERENCED_ANNOTATION, None).await,
            PublishStep::Annotate { sha256, changed_sources } => {
                self.annotate(sha256, CHANGED_SOURCES_ANNOTATION, changed_sources.as_deref()).await
            }
            PublishStep::Status { sha256, status } => {
                let patch = Patch::Merge(json!({"status": status}));
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                gone_is_fine(self.profiles().patch_status(sha256, &params, &patch).await.map(drop))
            }
            PublishStep::Delete { sha256, uid, resource_version } => {
                let preconditions = Preconditions {
                    uid: Some(uid.clone()),
                    resource_version: Some(resource_version.clone()),
                };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                gone_is_fine(self.profiles().delete(sha256, &params).await.map(drop))?;
                info!(sha256, "profile removed: no pod refers to it");
                Ok(())
            }
        }
    }

    async fn annotate(&self, sha256: &str, key: &str, value: Option<&str>) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        gone_is_fine(self.profiles().patch(sha256, &params, &patch).await.map(drop))
    }

    async fn publish(
        &mut self,
        sha256: &str,
        sources: &[NamedSource],
        replace: bool,
        index: &Index,
        limits: &ProfileLimits,
    ) -> Result<(), kube::Error> {
        let mut why = Vec::new();
        for NamedSource { source, sha256: held, baseline } in sources {
            let SourceKey { namespace, config_map, key } = source;
            let published = PublishedFor::namespace(index, &self.fresh, namespace, sha256);
            if let Some(problem) = published.problem(limits, namespace, 0) {
                why.push(problem);
                continue;
            }
            let text = match self.read(source).await? {
                Found::Text(text) if sha256::hex(text.as_bytes()) == *held => text,
                found => {
                    why.push(found.why_not(source));
                    continue;
                }
            };
            // A pod can name a hash that no webhook has looked at.
            if let Err(error) = check_document(&text) {
                why.push(format!("key {key} of ConfigMap {namespace}/{config_map} {error}"));
                continue;
            }
            if let Some(problem) = published.problem(limits, namespace, text.len()) {
                why.push(problem);
                continue;
            }
            self.fresh.insert(sha256.to_owned(), (namespace.clone(), text.len()));
            let params =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            let mut object = published_profile(sha256, &text);
            if let Some(baseline) = baseline {
                object["spec"]["baseline"] = baseline.clone().into();
            }
            let result = if replace {
                // Only an administrator can have written other bytes under this name.
                warn!(sha256, "published profile does not match the hash in its name; replaced");
                let patch = Patch::Merge(json!({"spec": {"profile": text, "baseline": baseline}}));
                self.profiles().patch(sha256, &PatchParams::default(), &patch).await.map(drop)
            } else {
                let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
                self.profiles().create(&params, &object).await.map(drop)
            };
            return match result {
                // Another client was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                result => result,
            };
        }
        if sources.is_empty() {
            why.push("no annotation of the pod names its ConfigMap".to_owned());
        }
        self.record_on_pods(sha256, &why.join("; "), index).await
    }

    /// Records on every pod that waits for a profile why there is none, once.
    async fn record_on_pods(&mut self, sha256: &str, why: &str, index: &Index) -> Result<(), kube::Error> {
        let waiting = index.pods.iter().filter(|(_, pod)| pod.references.contains_key(sha256));
        for ((namespace, name), pod) in waiting {
            let identity = (pod.uid.clone(), sha256.to_owned());
            if self.recorded.get(&identity).is_some_and(|last| last == why) {
                continue;
            }
            let regarding = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectReference::default()
            };
            let event = Event {
                type_: EventType::Warning,
                reason: "SeccompProfileUnavailable".to_owned(),
                note: Some(format!("seccomp profile {} cannot be published: {why}", published_name(sha256))),
                action: "Publishing".to_owned(),
                secondary: None,
            };
            self.recorder.publish(&event, &regarding).await?;
            self.recorded.insert(identity, why.to_owned());
        }
        Ok(())
    }

    /// Forgets the events of pods that are gone.
    pub(super) fn forget_others(&mut self, index: &Index) {
        let present: BTreeSet<&str> = index.pods.values().map(|pod| pod.uid.as_str()).collect();
        self.recorded.retain(|(uid, _), _| present.contains(uid.as_str()));
    }

    async fn read(&self, source: &SourceKey) -> Result<Found, kube::Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &source.namespace);
        let Some(map) = maps.get_opt(&source.config_map).await? else { return Ok(Found::NoConfigMap) };
        let text = map.data.and_then(|mut data| data.remove(&source.key));
        Ok(text.map_or(Found::NoKey, Found::Text))
    }

    /// Reads the sources that pods name: those that are not known, and those that may have changed. Returns how
    /// many were read.
    pub(super) async fn read_sources(
        &self,
        index: &mut Index,
        is_stale: impl Fn(&SourceKey) -> bool,
    ) -> Result<usize, kube::Error> {
        let wanted: BTreeSet<SourceKey> = index.named_sources().cloned().collect();
        index.sources.retain(|source, _| wanted.contains(source));
        let mut read = Ok(0);
        for source in wanted {
            if index.sources.contains_key(&source) && !is_stale(&source) {
                continue;
            }
            let state = match self.read(&source).await {
                Ok(Found::Text(text)) => SourceState::Holds(sha256::hex(text.as_bytes())),
                Ok(Found::NoConfigMap | Found::NoKey) => SourceState::Gone,
                // What is known of this one stays; the others are read all the same.
                Err(error) => {
                    read = Err(error);
                    continue;
                }
            };
            index.sources.insert(source, state);
            read = read.map(|count| count + 1);
        }
        read
    }

    /// What pods refer to now, read from the API server: a watch that has silently fallen behind must not cost a pod its profile.
    pub(super) async fn references_now(&self) -> Result<BTreeSet<String>, kube::Error> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &pods());
        let mut fresh = Index::default();
        let mut params = ListParams::default().limit(500);
        loop {
            let page = api.list(&params).await?;
            for pod in &page.items {
                fresh.set_pod(&serde_json::to_value(pod).map_err(kube::Error::SerdeError)?);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        Ok(fresh.referenced().keys().map(|&hash| hash.to_owned()).collect())
    }
}

enum Found {
    Text(String),
    NoConfigMap,
    NoKey,
}

impl Found {
    fn why_not(&self, source: &SourceKey) -> String {
        let SourceKey { namespace, config_map, key } = source;
        match self {
            Self::Text(_) => {
                format!("key {key} of ConfigMap {namespace}/{config_map} holds another profile by now")
            }
            Self::NoConfigMap => format!("configmap {config_map:?} not found in namespace {namespace:?}"),
            Self::NoKey => format!("couldn't find key {key} in ConfigMap {namespace}/{config_map}"),
        }
    }
}

/// Whether the object is gone or has changed: the watch reports it.
fn gone_is_fine(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        result => result,
    }
}
