//! Events on objects, each recorded once.
//!
//! Implements: Kubernetes events of the core group. The name of an event follows from its content, so that a controller
//! that was killed and repeats itself finds its own event already there.

use palisade_policy::enforcement::render::fingerprint;
use serde_json::{Value, json};

use crate::api::{Api, EVENTS};

/// What an event is about: an object without a namespace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'o> {
    pub(crate) api_version: &'o str,
    pub(crate) kind: &'o str,
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
    match api.create(&EVENTS.collection(Some("default")), news.component, &event).await {
        Ok(_) => {}
        Err(error) if error.is_already_exists() => {}
        Err(error) => {
            tracing::warn!(object = about.name, reason = news.reason, %error, "cannot record an event");
        }
    }
}

fn event(about: About<'_>, news: News<'_>, now: &str) -> Value {
    let content = format!("{}|{}|{}|{}", about.uid, news.reason, news.message, news.occasion);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        // Events about objects that are in no namespace live in this one.
        "metadata": {"name": format!("{}.{}", about.name, fingerprint(&content)), "namespace": "default"},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "uid": about.uid,
        },
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
        let about = About { api_version: "v1", kind: "Namespace", name: "team", uid: "u" };
        let news = News { component: "c", is_warning: true, reason: "R", message: "m", occasion: "" };
        let name = |news: News<'_>, now: &str| event(about, news, now)["metadata"]["name"].clone();
        assert_eq!(name(news, "1"), name(news, "2"));
        assert_ne!(name(news, "1"), name(News { occasion: "t0", ..news }, "1"));
        assert_ne!(name(news, "1"), name(News { message: "n", ..news }, "1"));
    }
}
