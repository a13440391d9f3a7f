//! Which profiles a node is to have, and what there is to do for that. Pure.

use std::collections::{BTreeMap, BTreeSet};

use palisade_model::profile::{
    apparmor_profile::{AppArmorProfile, PREFIX},
    apparmor_rules::AppArmorMode,
};
use serde_json::{Value, json};

/// How many profiles of one namespace a node loads, and how many of all. Each is memory of the kernel.
const MOST: (usize, usize) = (32, 512);
/// As many rows as one report should hold.
const MOST_ROWS: usize = 200;

/// A profile that the kernel is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) mode: AppArmorMode,
    pub(super) text: String,
}

/// What a node has of a profile, in the order in which a report lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProfileState {
    /// The object cannot be applied.
    Rejected,
    /// It could be applied, and the node did not succeed.
    Failed,
    /// The object is gone, and processes still run with the profile, or have until a moment ago.
    Removing,
    /// The kernel has it.
    Loaded,
    /// The kernel has no AppArmor.
    NotSupported,
}

impl ProfileState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "Rejected",
            Self::Failed => "Failed",
            Self::Removing => "Removing",
            Self::Loaded => "Loaded",
            Self::NotSupported => "NotSupported",
        }
    }
}

/// One profile in the report of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileRow {
    /// What the node has of it.
    pub state: ProfileState,
    /// The namespace of the object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The mode, where the kernel has it.
    pub mode: Option<&'static str>,
    /// Why, where it is not loaded.
    pub message: Option<String>,
}

impl ProfileRow {
    pub(super) fn new(state: ProfileState, namespace: &str, name: &str, message: String) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { state, namespace, name, mode: None, message: Some(message) }
    }

    fn to_value(&self) -> Value {
        let mut row = json!({"namespace": self.namespace, "name": self.name, "state": self.state.as_str()});
        if let Some(mode) = self.mode {
            row["mode"] = mode.into();
        }
        if let Some(message) = &self.message {
            row["message"] = message.as_str().into();
        }
        row
    }
}

/// The part of a report that is about these profiles; what needs attention comes first.
#[must_use]
pub fn status(rows: &[ProfileRow]) -> Value {
    let mut sorted: Vec<&ProfileRow> = rows.iter().collect();
    sorted.sort();
    let shown: Vec<Value> = sorted.into_iter().take(MOST_ROWS).map(ProfileRow::to_value).collect();
    let loaded = rows.iter().filter(|row| row.state == ProfileState::Loaded).count();
    json!({"appArmorProfiles": shown, "appArmorProfileCount": rows.len(), "appArmorProfilesLoaded": loaded})
}

/// What the objects of a cluster ask for, by the kernel's name; and rows for those that are not applied. `may_complain` are the
/// namespaces whose profiles may have that mode.
pub(super) fn wanted(
    objects: &[Value],
    may_complain: &BTreeSet<String>,
) -> (BTreeMap<String, Wanted>, Vec<ProfileRow>) {
    let (mut wanted, mut rows) = (BTreeMap::new(), Vec::new());
    let mut of_namespace: BTreeMap<String, usize> = BTreeMap::new();
    let mut objects: Vec<(&str, &str, &Value)> = objects
        .iter()
        .map(|object| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            (text("namespace"), text("name"), object)
        })
        .collect();
    objects.sort_by_key(|(namespace, name, _)| (*namespace, *name));
    for (namespace, name, object) in objects {
        let rejected = |message: String| ProfileRow::new(ProfileState::Rejected, namespace, name, message);
        let profile = match AppArmorProfile::read(object) {
            Ok(profile) => profile,
            Err(error) => {
                rows.push(rejected(error.to_string()));
                continue;
            }
        };
        if profile.mode == AppArmorMode::Complain && !may_complain.contains(namespace) {
            rows.push(rejected("the namespace does not allow the mode Complain".to_owned()));
            continue;
        }
        let own = of_namespace.entry(namespace.to_owned()).or_default();
        *own += 1;
        if *own > MOST.0 || wanted.len() >= MOST.1 {
            let message =
                format!("a node loads at most {} profiles of a namespace and {} of all", MOST.0, MOST.1);
            rows.push(rejected(message));
            continue;
        }
        let text = profile.text();
        let (namespace, name) = (profile.namespace.clone(), profile.name.clone());
        wanted.insert(profile.kernel_name(), Wanted { namespace, name, mode: profile.mode, text });
    }
    (wanted, rows)
}

/// Whether a profile is to be loaded: the kernel does not have it, not as it should, or not from us.
pub(super) fn is_to_load(
    name: &str,
    wanted: &Wanted,
    loaded: &BTreeMap<String, String>,
    kernel: &BTreeMap<String, String>,
) -> bool {
    loaded.get(name) != Some(&wanted.text)
        || kernel.get(name).map(String::as_str) != Some(wanted.mode.kernel_word())
}

/// Profiles of ours that the kernel has and no object asks for. Others' names are never among them, and neither are children of
/// profiles: the kernel makes them for programs that a profile in the mode `Complain` does not name, and they go with it.
pub(super) fn unwanted<'k>(
    wanted: &BTreeMap<String, Wanted>,
    kernel: &'k BTreeMap<String, String>,
) -> impl Iterator<Item = &'k str> {
    kernel
        .keys()
        .map(String::as_str)
        .filter(|name| name.starts_with(PREFIX) && !name.contains("//"))
        .filter(|name| !wanted.contains_key(*name))
        .collect::<Vec<_>>()
        .into_iter()
}

/// The profiles of ours that a pod names, wherever it does; none if it has ended and starts no container any more.
#[must_use]
pub fn named_in(pod: &Value) -> BTreeSet<String> {
    fn search(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => {
                found.extend(text.find(PREFIX).and_then(|at| text.get(at..)).map(str::to_owned));
            }
            Value::Array(items) => items.iter().for_each(|item| search(item, found)),
            Value::Object(fields) => fields.values().for_each(|value| search(value, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    if !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        search(&pod["spec"], &mut found);
        search(&pod["metadata"]["annotations"], &mut found);
    }
    found
}

/// Whether a process with the label `used` has a profile or a child of it. Both are unconfined once the profile is removed.
pub(super) fn is_of(used: &str, name: &str) -> bool {
    used.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("//"))
}

/// The namespace and name in the kernel's name of a profile.
pub(super) fn object_of(name: &str) -> (&str, &str) {
    let own = name.strip_prefix(PREFIX).unwrap_or(name);
    own.split_once('/').unwrap_or(("", own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(namespace: &str, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "AppArmorProfile",
            "metadata": {"namespace": namespace, "name": name}, "spec": spec})
    }

    #[test]
    fn an_object_asks_for_a_profile_of_its_namespace_or_for_none() {
        let objects = [
            object("shop", "web", &json!({"rules": "file,"})),
            object("shop", "odd", &json!({"rules": "change_profile,"})),
            object("shop", "log", &json!({"rules": "file,", "mode": "Complain"})),
            object("lab", "log", &json!({"rules": "file,", "mode": "Complain"})),
            object("lab", "web", &json!({"rules": "network,"})),
        ];
        let (wanted, rows) = wanted(&objects, &BTreeSet::from(["lab".to_owned()]));
        let names: Vec<_> = wanted.keys().map(String::as_str).collect();
        assert_eq!(names, ["palisade/lab/log", "palisade/lab/web", "palisade/shop/web"]);
        assert_eq!(wanted["palisade/lab/log"].mode, AppArmorMode::Complain);
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.state, row.message.clone().unwrap_or_default()))
            .collect();
        assert_eq!(rows[0].0, "log");
        assert_eq!(rows[0].2, "the namespace does not allow the mode Complain");
        assert!(rows[1].2.contains("line 1: change_profile is not allowed"), "{rows:?}");
    }

    #[test]
    fn a_namespace_cannot_take_the_places_of_others() {
        let mut objects: Vec<Value> =
            (0..40).map(|number| object("greedy", &format!("p{number:02}"), &json!({"rules": ""}))).collect();
        objects.push(object("shop", "web", &json!({"rules": ""})));
        let (wanted, rows) = wanted(&objects, &BTreeSet::new());
        assert_eq!((wanted.len(), rows.len()), (33, 8));
        assert!(wanted.contains_key("palisade/shop/web"));
    }

    #[test]
    fn what_the_kernel_lacks_is_loaded_and_only_ours_is_removed() {
        let objects = [object("shop", "web", &json!({"rules": "file,"}))];
        let (wanted, _) = wanted(&objects, &BTreeSet::new());
        let own = &wanted["palisade/shop/web"];
        let map = |rows: &[(&str, &str)]| -> BTreeMap<String, String> {
            rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let loaded = map(&[("palisade/shop/web", &own.text)]);
        for (case, loaded, kernel, expected) in [
            ("nothing is there", map(&[]), map(&[]), true),
            ("left by an agent before this one", map(&[]), map(&[("palisade/shop/web", "enforce")]), true),
            ("as it should be", loaded.clone(), map(&[("palisade/shop/web", "enforce")]), false),
            ("removed by others", loaded.clone(), map(&[]), true),
            ("set to another mode by others", loaded, map(&[("palisade/shop/web", "complain")]), true),
            (
                "another text",
                map(&[("palisade/shop/web", "x")]),
                map(&[("palisade/shop/web", "enforce")]),
                true,
            ),
        ] {
            assert_eq!(is_to_load("palisade/shop/web", own, &loaded, &kernel), expected, "{case}");
        }
        let kernel = map(&[
            ("palisade/shop/web", "enforce"),
            ("palisade/shop/old", "enforce"),
            ("/usr/sbin/ntpd", "enforce"),
            ("palisade-lab", "enforce"),
            ("palisade/shop/old//null-/bin/sh", "complain"),
        ]);
        assert_eq!(unwanted(&wanted, &kernel).collect::<Vec<_>>(), ["palisade/shop/old"]);
        assert_eq!(object_of("palisade/shop/old"), ("shop", "old"));
    }

    #[test]
    fn a_process_with_a_child_of_a_profile_has_the_profile() {
        for (used, expected) in [
            ("palisade/lab/log", true),
            ("palisade/lab/log//null-/bin/busybox", true),
            ("palisade/lab/log2", false),
            ("palisade/lab/lo", false),
            ("unconfined", false),
        ] {
            assert_eq!(is_of(used, "palisade/lab/log"), expected, "{used}");
        }
    }

    #[test]
    fn a_pod_names_profiles_until_it_has_ended() {
        let pod = |phase: &str| {
            json!({"metadata": {"annotations": {
                "container.apparmor.security.beta.kubernetes.io/c": "localhost/palisade/shop/old"}},
                "spec": {"containers": [{"name": "c", "securityContext": {"appArmorProfile": {
                    "type": "Localhost", "localhostProfile": "palisade/shop/web"}}}]},
                "status": {"phase": phase}})
        };
        let both = BTreeSet::from(["palisade/shop/old".to_owned(), "palisade/shop/web".to_owned()]);
        for (phase, expected) in [
            ("Pending", &both),
            ("Running", &both),
            ("Unknown", &both),
            ("Succeeded", &BTreeSet::new()),
            ("Failed", &BTreeSet::new()),
        ] {
            assert_eq!(named_in(&pod(phase)), *expected, "{phase}");
        }
    }

    #[test]
    fn what_needs_attention_comes_first_in_a_report() {
        let row = |state, name: &str| ProfileRow::new(state, "shop", name, String::new());
        let rows = [
            row(ProfileState::Loaded, "a"),
            row(ProfileState::Failed, "b"),
            row(ProfileState::Rejected, "c"),
        ];
        let status = status(&rows);
        let names: Vec<_> =
            status["appArmorProfiles"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
        assert_eq!(names, ["c", "b", "a"]);
        assert_eq!(
            (&status["appArmorProfileCount"], &status["appArmorProfilesLoaded"]),
            (&json!(3), &json!(1))
        );
    }
}
