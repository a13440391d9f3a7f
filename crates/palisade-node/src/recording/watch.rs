//! Recordings from any Kubernetes API server.

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Client,
    api::DynamicObject,
    runtime::{
        WatchStreamExt as _,
        watcher::{Config, watcher},
    },
};
use palisade_model::{
    profile::published::{GROUP, VERSION},
    profile_recording::{KIND, RESOURCE},
};

use super::objects::{KnownRecording, RecordingChange, UnreadableRecording};
use crate::guards::watch::{changes, resource};

fn known(object: &DynamicObject) -> (String, KnownRecording) {
    let metadata = &object.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let key = format!("{}/{}", part(&metadata.namespace), part(&metadata.name));
    let known = match serde_json::to_value(object) {
        Ok(object) => KnownRecording::of(&object),
        Err(error) => KnownRecording {
            generation: metadata.generation.unwrap_or_default(),
            read: Err(UnreadableRecording(error.to_string())),
        },
    };
    (key, known)
}

/// Every recording, then each change.
pub fn recording_changes(client: Client) -> impl Stream<Item = RecordingChange> + Send + Unpin + 'static {
    let api: Api<DynamicObject> = Api::all_with(client, &resource(GROUP, VERSION, KIND, RESOURCE));
    let events = watcher(api, Config::default()).default_backoff();
    let changes = changes(
        events,
        "recordings",
        known,
        RecordingChange::All,
        |key, known| RecordingChange::Set(key, Box::new(known)),
        RecordingChange::Gone,
        RecordingChange::Unavailable,
    );
    changes.boxed()
}
