//! How the global configuration reaches the instances that enforce it, and how they report which one they run.
//!
//! Implements: the config observer of `PSAEnforcementConfig`, where OpenShift rolls out static pods. The observer writes
//! one ConfigMap; every instance that enforces (an API server, a replica of the webhook) applies it and reports in a
//! Lease of its own. So "all instances enforce" is read from what they run, never from what was configured.
//!
//! Leaves to others: clocks. A Lease states when it was renewed and for how long that counts; whether that is over is
//! for the callers, which have a clock.

use serde_json::{Value, json};
use thiserror::Error;

use super::render::{enforced_by_default, pod_security_configuration, revision};
use crate::standards::level::Level;

/// The namespace of the ConfigMap and of the Leases.
pub const NAMESPACE: &str = "palisade-system";
/// The ConfigMap that holds the global configuration.
pub const CONFIG_MAP: &str = "pod-security-configuration";
/// The key of the ConfigMap whose value is a `PodSecurityConfiguration`, as JSON.
pub const CONFIG_MAP_KEY: &str = "podsecurityconfiguration.json";
/// The field manager that writes the ConfigMap.
pub const CONFIG_MAP_MANAGER: &str = "palisade-config-observer";

/// Annotation of the ConfigMap and of every Lease: the revision that is requested, or that runs.
pub const REVISION: &str = "palisade.dev/pod-security-revision";
/// Annotation of the ConfigMap and of every Lease: the level that is enforced by default.
pub const ENFORCE: &str = "palisade.dev/pod-security-enforce";
/// Annotation of every Lease: the `resourceVersion` of the ConfigMap that was applied, empty if there was none. Two
/// configurations may be the same with another one in between; this identifies which of them the instance has come to. One that
/// follows something else than that ConfigMap does not have it, and counts by its level alone.
pub const OBSERVED: &str = "palisade.dev/pod-security-observed";
/// Label of every Lease, with the component as its value: how the observer finds them.
pub const INSTANCE: &str = "palisade.dev/pod-security-instance";
/// Selects the Leases of all instances.
pub const INSTANCE_SELECTOR: &str = INSTANCE;

/// How long a report counts.
pub const LEASE_SECONDS: u32 = 60;
/// How often an instance renews its report even if nothing changed.
pub const RENEW_SECONDS: u32 = 15;

/// The component that an embedded or real API server reports as.
pub const APISERVER: &str = "apiserver";
/// The component that a replica of the webhook reports as.
pub const WEBHOOK: &str = "webhook";

/// A configuration together with the name of exactly this one.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The `PodSecurityConfiguration`.
    pub value: Value,
    /// Its revision.
    pub revision: String,
    /// The version of the ConfigMap that was followed here, empty while there is none; `None` if it came from elsewhere,
    /// such as a file.
    pub version: Option<String>,
}

impl Configuration {
    /// A configuration and its revision.
    #[must_use]
    pub fn new(value: Value) -> Self {
        let revision = revision(&value);
        Self { value, revision, version: None }
    }

    /// The configuration that enforces a level by default.
    #[must_use]
    pub fn of(enforce: Level) -> Self {
        Self::new(pod_security_configuration(enforce))
    }

    /// The level it enforces by default.
    #[must_use]
    pub fn enforce(&self) -> Option<Level> {
        enforced_by_default(&self.value)
    }

    /// The state after this was seen. An older version than the one that is known changes nothing: answers to writes
    /// overtake watches. The same content in a newer ConfigMap goes on counting from the version in which it first came,
    /// so that a new label on the ConfigMap does not set every instance back.
    #[must_use]
    pub fn after(self, known: Option<Self>) -> Self {
        let is_older = |known: &Self| {
            let versions = self.version.as_deref().zip(known.version.as_deref());
            versions.is_some_and(|(own, known)| is_newer(known, own))
        };
        match known {
            Some(known) if known.revision == self.revision || is_older(&known) => known,
            _ => self,
        }
    }
}

/// Whether a version comes after another. Servers are free to write anything, but all that are known write numbers.
fn is_newer(version: &str, than: &str) -> bool {
    // swallowed: versions that are not numbers cannot be compared, and then nothing counts as newer
    let numbers = version.parse::<u64>().ok().zip(than.parse::<u64>().ok());
    numbers.is_some_and(|(version, than)| version > than)
}

/// Why a ConfigMap holds no configuration.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// The key is not there.
    #[error("{CONFIG_MAP} has no {CONFIG_MAP_KEY}")]
    Missing,
    /// Its value is not JSON.
    #[error("{CONFIG_MAP_KEY} of {CONFIG_MAP} is not JSON")]
    Json(#[from] serde_json::Error),
}

/// The ConfigMap to apply for a configuration.
#[must_use]
pub fn config_map(configuration: &Configuration) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": CONFIG_MAP,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "palisade"},
            "annotations": annotations(&configuration.revision, configuration.enforce()),
        },
        "data": {CONFIG_MAP_KEY: format!("{:#}\n", configuration.value)},
    })
}

/// The configuration in a ConfigMap. The revision is that of what is in it, whatever its annotation states.
pub fn read_config_map(object: &Value) -> Result<Configuration, ConfigurationError> {
    let text = object["data"][CONFIG_MAP_KEY].as_str().ok_or(ConfigurationError::Missing)?;
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    Ok(Configuration { version: Some(version), ..Configuration::new(serde_json::from_str(text)?) })
}

/// The Lease in which an instance reports; `identity` distinguishes it from others of its component, `now` is RFC 3339 with
/// microseconds.
#[must_use]
pub fn instance_lease(component: &str, identity: &str, running: &Configuration, now: &str) -> Value {
    let mut annotations = annotations(&running.revision, running.enforce());
    if let Some(version) = &running.version {
        annotations[OBSERVED] = json!(version);
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": lease_name(component, identity),
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "palisade", INSTANCE: component},
            "annotations": annotations,
        },
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        },
    })
}

/// The name of the Lease of an instance.
#[must_use]
pub fn lease_name(component: &str, identity: &str) -> String {
    format!("pod-security-{component}-{identity}")
}

fn annotations(revision: &str, enforce: Option<Level>) -> Value {
    let mut annotations = json!({REVISION: revision});
    if let Some(level) = enforce {
        annotations[ENFORCE] = json!(level.as_str());
    }
    annotations
}

/// What an instance reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The name of its Lease.
    pub name: String,
    /// What it is.
    pub component: String,
    /// The revision it runs.
    pub revision: String,
    /// The level it enforces by default, if it reports one.
    pub enforce: Option<Level>,
    /// The version of the ConfigMap it has come to, if it follows it.
    pub observed: Option<String>,
    /// When it last reported, RFC 3339.
    pub renewed: String,
    /// For how many seconds that counts.
    pub lasts: u32,
}

impl Report {
    /// Whether it follows the ConfigMap and has not come to what is in it.
    #[must_use]
    pub fn is_behind(&self, current: Option<&Configuration>) -> bool {
        let wanted = current.and_then(|current| current.version.as_deref()).unwrap_or_default();
        let has_come = |observed: &str| observed == wanted || is_newer(observed, wanted);
        self.observed.as_deref().is_some_and(|observed| !has_come(observed))
    }

    /// The level it is known to enforce by default, and to go on enforcing until the ConfigMap changes.
    #[must_use]
    pub fn settled(&self, current: Option<&Configuration>) -> Option<Level> {
        self.enforce.filter(|_| !self.is_behind(current))
    }

    /// What it does, for people: `webhook web-0 enforces privileged`.
    #[must_use]
    pub fn describe(&self, current: Option<&Configuration>) -> String {
        let prefix = lease_name(&self.component, "");
        let identity = self.name.strip_prefix(&prefix).unwrap_or(&self.name);
        let does = match (self.settled(current), self.observed.is_some(), self.enforce) {
            (Some(level), true, _) => format!("enforces {level}"),
            (Some(level), false, _) => format!("enforces {level}, by a configuration of its own"),
            (None, _, Some(_)) => "has not applied the current configuration".to_owned(),
            (None, _, None) => "does not report what it enforces".to_owned(),
        };
        format!("{} {identity} {does}", self.component)
    }
}

/// The report in a Lease; `None` if the Lease is not that of an instance.
#[must_use]
pub fn read_report(lease: &Value) -> Option<Report> {
    let metadata = &lease["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let component = metadata["labels"][INSTANCE].as_str()?.to_owned();
    // swallowed: a duration that is out of range is replaced by the usual one
    let lasts =
        lease["spec"]["leaseDurationSeconds"].as_u64().and_then(|seconds| u32::try_from(seconds).ok());
    Some(Report {
        name: text(&metadata["name"]),
        component,
        revision: text(&metadata["annotations"][REVISION]),
        // swallowed: an instance whose level is not known does not count as enforcing
        enforce: metadata["annotations"][ENFORCE].as_str().and_then(|level| level.parse().ok()),
        observed: metadata["annotations"][OBSERVED].as_str().map(str::to_owned),
        renewed: text(&lease["spec"]["renewTime"]),
        lasts: lasts.unwrap_or(LEASE_SECONDS),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        APISERVER, CONFIG_MAP_KEY, Configuration, ConfigurationError, INSTANCE, Level, REVISION, Report,
        WEBHOOK, config_map, instance_lease, read_config_map, read_report,
    };

    fn at(level: Level, version: &str) -> Configuration {
        Configuration { version: Some(version.to_owned()), ..Configuration::of(level) }
    }

    fn report(enforce: Level, observed: Option<&str>) -> Report {
        let running = Configuration { version: observed.map(str::to_owned), ..Configuration::of(enforce) };
        read_report(&instance_lease(WEBHOOK, "web-0", &running, "")).unwrap()
    }

    #[test]
    fn the_version_that_counts_is_the_first_with_this_content() {
        use Level::{Privileged, Restricted};
        for (case, known, seen, expected) in [
            ("the first", None, at(Restricted, "3"), at(Restricted, "3")),
            ("a change", Some(at(Privileged, "3")), at(Restricted, "4"), at(Restricted, "4")),
            ("a label is added", Some(at(Restricted, "4")), at(Restricted, "9"), at(Restricted, "4")),
            ("a watch behind a write", Some(at(Restricted, "4")), at(Privileged, "3"), at(Restricted, "4")),
            ("there was none", Some(at(Privileged, "")), at(Restricted, "4"), at(Restricted, "4")),
        ] {
            assert_eq!(seen.after(known), expected, "{case}");
        }
    }

    #[test]
    fn an_instance_is_behind_until_it_has_come_to_the_current_configuration() {
        let current = at(Level::Restricted, "10");
        for (observed, expected) in [
            (Some("9"), true),
            (Some("10"), false),
            (Some("11"), false),
            (Some(""), true),
            (Some("x"), true),
            (None, false),
        ] {
            assert_eq!(
                report(Level::Restricted, observed).is_behind(Some(&current)),
                expected,
                "{observed:?}"
            );
        }
        assert!(!report(Level::Privileged, Some("")).is_behind(None), "there is nothing to come to");
        for (level, observed, expected) in [
            (Level::Privileged, Some("10"), "webhook web-0 enforces privileged"),
            (Level::Privileged, None, "webhook web-0 enforces privileged, by a configuration of its own"),
            (Level::Restricted, Some("9"), "webhook web-0 has not applied the current configuration"),
        ] {
            assert_eq!(report(level, observed).describe(Some(&current)), expected);
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for level in [Level::Privileged, Level::Baseline, Level::Restricted] {
            let configuration = Configuration::of(level);
            let object = config_map(&configuration);
            assert_eq!(object["metadata"]["annotations"][REVISION], configuration.revision.as_str());
            let read = read_config_map(&object).unwrap();
            assert_eq!(
                (read.value, read.revision),
                (configuration.value.clone(), configuration.revision.clone())
            );
            assert_eq!(configuration.enforce(), Some(level));
        }
    }

    #[test]
    fn the_revision_is_that_of_the_content() {
        let mut object = config_map(&Configuration::of(Level::Restricted));
        object["data"][CONFIG_MAP_KEY] = json!(Configuration::of(Level::Privileged).value.to_string());
        let read = read_config_map(&object).unwrap();
        assert_eq!(read, at(Level::Privileged, ""));
        object["data"][CONFIG_MAP_KEY] = json!("{");
        assert!(matches!(read_config_map(&object), Err(ConfigurationError::Json(_))));
        assert!(matches!(read_config_map(&json!({})), Err(ConfigurationError::Missing)));
    }

    #[test]
    fn an_instance_reports_what_it_runs() {
        let running = Configuration { version: Some("7".to_owned()), ..Configuration::of(Level::Restricted) };
        let lease = instance_lease(APISERVER, "node-1", &running, "2026-01-01T00:00:00.000000Z");
        let report = read_report(&lease).unwrap();
        assert_eq!(
            (report.name.as_str(), report.component.as_str()),
            ("pod-security-apiserver-node-1", APISERVER)
        );
        assert_eq!((report.revision, report.enforce), (running.revision, Some(Level::Restricted)));
        assert_eq!(report.observed.as_deref(), Some("7"));
        assert_eq!((report.renewed.as_str(), report.lasts), ("2026-01-01T00:00:00.000000Z", 60));
        let mut other = lease.clone();
        other["metadata"]["labels"].as_object_mut().unwrap().remove(INSTANCE);
        assert_eq!(read_report(&other), None);
    }
}
