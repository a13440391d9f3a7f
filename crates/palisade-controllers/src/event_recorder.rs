//! Events on objects, each recorded once.
//!
//! Implements: Kubernetes events of the core group. The name of an event follows from its content, so that a controller
//! that was killed and repeats itself finds its own event already there.

use palisade_policy::enforcement::render::fingerprint;
use serde_json::{Value, json};

use crate::api::{Api, ApiError, EVENTS, Patch};

/// What an event is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'o> {
    pub(crate) api_version: &'o str,
    pub(crate) kind: &'o str,
    pub(crate) namespace: Option<&'o str>,
    pub(crate) name: &'o str,
    pub(crate) uid: &'o str,
}

/// An event to record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News<'o> {
    /// The reporting component.
    pub(crate) component: &'o str,
    pub(crate) is_warning: bool,
    pub(crate) reason: &'o str,
    pub(crate) message: &'o str,
    /// Distinguishes this from an earlier event with the same message.
    pub(crate) occasion: &'o str,
}

/// Records an event. A failure is logged: nothing waits for events.
pub(crate) async fn record(api: &Api, about: About<'_>, news: News<'_>) {
    let event = event(about, news, &crate::time::seconds());
    match api.create(&EVENTS.collection(Some(home(about))), news.component, &event).await {
        Ok(_) => {}
        Err(error) if error.is_already_exists() => {}
        Err(error) => {
            tracing::warn!(object = about.name, reason = news.reason, %error, "cannot record an event");
        }
    }
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recording {
    /// It is there.
    Done,
    /// The namespace of the object is gone, or going.
    Gone,
    /// It could not be recorded, which is logged.
    Failed,
}

/// Records an event; one that is there already is counted, and lives on.
pub(crate) async fn record_again(api: &Api, about: About<'_>, news: News<'_>) -> Recording {
    match try_record_again(api, about, news).await {
        Ok(()) => Recording::Done,
        Err(error) if error.is_not_found() || error.is_terminating() => Recording::Gone,
        Err(error) => {
            tracing::warn!(object = about.name, reason = news.reason, %error, "cannot record an event");
            Recording::Failed
        }
    }
}

async fn try_record_again(api: &Api, about: About<'_>, news: News<'_>) -> Result<(), ApiError> {
    let now = crate::time::seconds();
    let event = event(about, news, &now);
    let home = Some(home(about));
    match api.create(&EVENTS.collection(home), news.component, &event).await {
        Err(error) if error.is_already_exists() => {}
        made => return made.map(|_| ()),
    }
    let path = EVENTS.object(home, event["metadata"]["name"].as_str().unwrap_or_default());
    // It expired between the two calls: the next renewal creates it.
    let Some(known) = api.get(&path).await? else { return Ok(()) };
    let count = known["count"].as_i64().unwrap_or_default().saturating_add(1);
    let change = json!({"count": count, "lastTimestamp": now});
    api.patch(&path, news.component, Patch::Merge, &change).await.map(|_| ())
}

/// The namespace of an event: that of the object, or `default` for objects that have none.
fn home(about: About<'_>) -> &str {
    about.namespace.unwrap_or("default")
}

fn event(about: About<'_>, news: News<'_>, now: &str) -> Value {
    let content = format!("{}|{}|{}|{}", about.uid, news.reason, news.message, news.occasion);
    let mut involved =
        json!({"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid});
    if let Some(namespace) = about.namespace {
        involved["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": format!("{}.{}", about.name, fingerprint(&content)), "namespace": home(about)},
        "involvedObject": involved,
        "type": if news.is_warning { "Warning" } else { "Normal" },
        "reason": news.reason,
        "message": news.message,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": news.component},
        "reportingComponent": news.component,
        "reportingInstance": news.component,
    })
}

#[cfg(test)]
mod tests {
    use super::{About, News, event};

    #[test]
    fn the_same_news_has_the_same_name() {
        let about = About { api_version: "v1", kind: "Namespace", namespace: None, name: "team", uid: "u" };
        let news = News { component: "c", is_warning: true, reason: "R", message: "m", occasion: "" };
        let name = |news: News<'_>, now: &str| event(about, news, now)["metadata"]["name"].clone();
        assert_eq!(name(news, "1"), name(news, "2"));
        assert_ne!(name(news, "1"), name(News { occasion: "t0", ..news }, "1"));
        assert_ne!(name(news, "1"), name(News { message: "n", ..news }, "1"));
    }

    #[test]
    fn events_are_in_the_namespace_of_their_object() {
        let about = About { api_version: "v1", kind: "Namespace", namespace: None, name: "team", uid: "u" };
        let news = News { component: "c", is_warning: true, reason: "R", message: "m", occasion: "" };
        let of_cluster = event(about, news, "1");
        assert_eq!(of_cluster["metadata"]["namespace"], "default");
        assert_eq!(of_cluster["involvedObject"].get("namespace"), None);
        let of_namespace = event(About { namespace: Some("team"), ..about }, news, "1");
        assert_eq!(of_namespace["metadata"]["namespace"], "team");
        assert_eq!(of_namespace["involvedObject"]["namespace"], "team");
    }
}
