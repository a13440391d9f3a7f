//! AppArmor profiles of namespaces: loaded where the kernel has AppArmor, kept as they should be, and removed when unused.
//!
//! `AppArmorProfile` objects ask for profiles; [`palisade_model::profile::apparmor_profile`] reads them and makes the text, with a name
//! that no profile of the node has. The parser of the node compiles it, with limits, and the kernel gets the result.
//!
//! A process whose profile is removed is unconfined from then on. So a profile whose object is gone stays until no pod of the node names
//! it and no process has had it, or was about to get it, for a while: the latter is read from the kernel.
//!
//! | module | job |
//! | --- | --- |
//! | [`plan`] | which profiles, and what there is to do (pure) |
//! | `watch` | objects and namespaces from the API server |

pub mod plan;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::ListParams};
use palisade_base::causes::root_cause;
use serde_json::Value;
use thiserror::Error;
use tokio::{task::JoinSet, time::Instant};
use tracing::{info, warn};

use self::{
    plan::{
        ProfileRow, ProfileState, Wanted, is_of, is_to_load, named_in, object_of, status, unwanted, wanted,
    },
    watch::{Watched, follow_namespaces, follow_profiles},
};
use crate::{
    agent::cluster::write_report,
    kernel::apparmor::{AppArmor, LoadError, Parser, profiles_of_processes},
};

/// Who writes this part of the report.
const FIELD_MANAGER: &str = "palisade-apparmor";
/// Changes that come together are answered together.
const GATHER: Duration = Duration::from_millis(100);
/// How often the kernel is compared with the objects, even if nothing happens.
const EVERY: Duration = Duration::from_secs(20);
/// How long a profile stays after the last process that had it.
const SETTLE: Duration = Duration::from_mins(1);
/// A report without changes is written again after this time: the object may be another one by now.
const HEARTBEAT: Duration = Duration::from_mins(5);
/// How long the other profiles of a namespace wait after one that the parser rejected.
const PENALTY: Duration = Duration::from_mins(1);
/// When a profile that did not load is tried again.
const RETRY: Duration = Duration::from_mins(5);

/// The machine whose kernel gets the profiles.
#[derive(Debug, Clone)]
pub struct Host {
    /// AppArmor of the kernel.
    pub app_armor: AppArmor,
    /// What compiles profiles.
    pub parser: Parser,
    /// The processes.
    pub proc: PathBuf,
}

/// Why a profile is not loaded.
#[derive(Debug, Error)]
enum NotLoaded {
    #[error(transparent)]
    Compile(#[from] LoadError),
    #[error("the kernel refused the profile")]
    Kernel(#[source] io::Error),
    #[error("the kernel does not list the profile in mode {0}")]
    NotListed(&'static str),
}

/// Why a profile without an object is not removed.
#[derive(Debug, Error)]
enum NotRemoved {
    #[error("{0}")]
    Pods(String),
    #[error("a pod of the node names it")]
    Named,
    #[error("the profiles of processes cannot be read: {0}")]
    Processes(#[source] io::Error),
    #[error("processes run with it")]
    Used,
    #[error("no process has run with it for a short time")]
    Settling,
    #[error("the kernel does not remove it: {0}")]
    Kernel(#[source] io::Error),
}

/// Loads, keeps, removes and reports the profiles of a cluster on a node. Never returns.
pub async fn keep(client: Client, node: String, host: Host) {
    let watched = Arc::new(Watched::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_profiles(client.clone(), Arc::clone(&watched)));
    tasks.spawn(follow_namespaces(client.clone(), Arc::clone(&watched)));
    let mut keeper = Keeper::new(host, SETTLE);
    let mut reported: Option<(Value, Instant)> = None;
    loop {
        // A change, or the time: both are a reason to look.
        let _ = tokio::time::timeout(EVERY, watched.changed()).await;
        tokio::time::sleep(GATHER).await;
        // As long as the objects are not known, none of them is gone.
        let Some((objects, may_complain)) = watched.known() else { continue };
        let mut rows = keeper.turn(&objects, &may_complain).await;
        if keeper.has_unwanted() {
            let named = named_profiles(&client, &node).await;
            rows.extend(keeper.remove_unused(named.as_ref()));
        }
        let status = status(&rows);
        let is_reported = match &reported {
            Some((known, at)) => *known == status && at.elapsed() < HEARTBEAT,
            // Without a profile there is nothing to report.
            None => rows.is_empty(),
        };
        if is_reported {
            continue;
        }
        match write_report(&client, &node, FIELD_MANAGER, &status).await {
            Ok(()) => reported = Some((status, Instant::now())),
            Err(error) => warn!(error = %root_cause(&error), "AppArmor profiles are not reported"),
        }
    }
}

/// Why the profiles that pods name are not known.
#[derive(Debug, Error)]
pub enum NamedProfilesError {
    /// The API server did not list the pods of the node.
    #[error("the pods of the node cannot be listed")]
    List(#[from] kube::Error),
    /// A pod could not be read.
    #[error("a pod of the node cannot be read")]
    Pod(#[from] serde_json::Error),
}

/// The profiles that pods of a node name.
async fn named_profiles(client: &Client, node: &str) -> Result<BTreeSet<String>, NamedProfilesError> {
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let mut named = BTreeSet::new();
    for pod in Api::<Pod>::all(client.clone()).list(&params).await? {
        named.extend(named_in(&serde_json::to_value(&pod)?));
    }
    Ok(named)
}

/// The profiles of one kernel.
#[derive(Debug)]
pub struct Keeper {
    host: Host,
    /// How long a profile stays after the last process that had it.
    settle: Duration,
    /// What was loaded, by the kernel's name.
    loaded: BTreeMap<String, String>,
    /// What did not load, with its text and the time.
    failed: BTreeMap<String, (String, String, Instant)>,
    /// Namespaces one of whose profiles the parser rejected, and when. Compiling takes time that others wait for.
    rejected: BTreeMap<String, Instant>,
    /// Since when a profile is neither asked for nor used.
    unused_since: BTreeMap<String, Instant>,
    /// Profiles of ours that the kernel has and no object asks for.
    unwanted: BTreeSet<String>,
}

impl Keeper {
    /// Of a kernel about which nothing is known yet.
    #[must_use]
    pub const fn new(host: Host, settle: Duration) -> Self {
        Self {
            host,
            settle,
            loaded: BTreeMap::new(),
            failed: BTreeMap::new(),
            rejected: BTreeMap::new(),
            unused_since: BTreeMap::new(),
            unwanted: BTreeSet::new(),
        }
    }

    /// Whether the kernel has profiles of ours that no object asks for, as of the last turn.
    #[must_use]
    pub fn has_unwanted(&self) -> bool {
        !self.unwanted.is_empty()
    }

    /// Makes the kernel have the profiles that objects ask for. `may_complain` are the namespaces whose profiles may be in that mode. Then
    /// [`Self::remove_unused`] removes others of ours.
    pub async fn turn(&mut self, objects: &[Value], may_complain: &BTreeSet<String>) -> Vec<ProfileRow> {
        let (wanted, mut rows) = wanted(objects, may_complain);
        self.unwanted.clear();
        if !self.host.app_armor.is_enabled() {
            let why = "the kernel of this node has no AppArmor";
            let not_supported = |own: &Wanted| {
                ProfileRow::new(ProfileState::NotSupported, &own.namespace, &own.name, why.to_owned())
            };
            rows.extend(wanted.values().map(not_supported));
            return rows;
        }
        let kernel = match self.host.app_armor.modes() {
            Ok(kernel) => kernel,
            Err(error) => {
                let why = format!("the profiles of the kernel cannot be read: {error}");
                let failed = |own: &Wanted| {
                    ProfileRow::new(ProfileState::Failed, &own.namespace, &own.name, why.clone())
                };
                rows.extend(wanted.values().map(failed));
                return rows;
            }
        };
        self.loaded.retain(|name, _| wanted.contains_key(name));
        self.rejected.retain(|_, at| at.elapsed() < PENALTY);
        self.failed.retain(|name, (text, _, at)| {
            wanted.get(name).is_some_and(|own| own.text == *text) && at.elapsed() < RETRY
        });
        for (name, own) in &wanted {
            let mut has_to_wait = false;
            if is_to_load(name, own, &self.loaded, &kernel) && !self.failed.contains_key(name) {
                has_to_wait = self.rejected.contains_key(&own.namespace);
                if !has_to_wait {
                    self.load(name, own).await;
                }
            }
            let mut row = ProfileRow::new(ProfileState::Loaded, &own.namespace, &own.name, String::new());
            if let Some((_, why, _)) = self.failed.get(name) {
                (row.state, row.message) = (ProfileState::Failed, Some(why.clone()));
            } else if has_to_wait {
                let why = "waits: another profile of the namespace was rejected within the last minute";
                (row.state, row.message) = (ProfileState::Failed, Some(why.to_owned()));
            } else {
                (row.mode, row.message) = (Some(own.mode.as_str()), None);
            }
            rows.push(row);
        }
        self.unwanted = unwanted(&wanted, &kernel).map(str::to_owned).collect();
        rows
    }

    async fn load(&mut self, name: &str, own: &Wanted) {
        self.loaded.remove(name);
        match self.try_load(name, own).await {
            Ok(()) => {
                info!(profile = name, mode = own.mode.as_str(), "AppArmor profile loaded");
                self.loaded.insert(name.to_owned(), own.text.clone());
            }
            Err(error) => {
                if !matches!(error, NotLoaded::Compile(LoadError::Run(_))) {
                    self.rejected.insert(own.namespace.clone(), Instant::now());
                }
                let why = format!("{error}{}", source(&error));
                warn!(profile = name, error = why, "AppArmor profile not loaded");
                self.failed.insert(name.to_owned(), (own.text.clone(), why, Instant::now()));
            }
        }
    }

    async fn try_load(&self, name: &str, own: &Wanted) -> Result<(), NotLoaded> {
        let policy = self.host.parser.compile(&own.text).await?;
        self.host.app_armor.replace(&policy).map_err(NotLoaded::Kernel)?;
        let word = own.mode.kernel_word();
        let modes = self.host.app_armor.modes().map_err(NotLoaded::Kernel)?;
        match modes.get(name) {
            Some(mode) if mode == word => Ok(()),
            _ => Err(NotLoaded::NotListed(word)),
        }
    }

    /// Removes what no object asks for, if no pod of the node names it and no process has had it for a while. `named` are the profiles that
    /// pods name, or why they are not known.
    pub fn remove_unused(
        &mut self,
        named: Result<&BTreeSet<String>, &NamedProfilesError>,
    ) -> Vec<ProfileRow> {
        let unwanted = std::mem::take(&mut self.unwanted);
        self.unused_since.retain(|name, _| unwanted.contains(name));
        let mut rows = Vec::new();
        for name in unwanted {
            let (namespace, object) = object_of(&name);
            if let Err(why) = self.try_remove(&name, named) {
                rows.push(ProfileRow::new(ProfileState::Removing, namespace, object, why.to_string()));
            }
        }
        rows
    }

    fn try_remove(
        &mut self,
        name: &str,
        named: Result<&BTreeSet<String>, &NamedProfilesError>,
    ) -> Result<(), NotRemoved> {
        // Unless it turns out to be unused, it was used a moment ago.
        let since = self.unused_since.remove(name);
        let named = named.map_err(|error| NotRemoved::Pods(format!("{error}{}", source(error))))?;
        if named.contains(name) {
            return Err(NotRemoved::Named);
        }
        // As late as possible: a container that starts from here on does not find the profile, or loses it.
        let used = profiles_of_processes(&self.host.proc).map_err(NotRemoved::Processes)?;
        if used.iter().any(|used| is_of(used, name)) {
            return Err(NotRemoved::Used);
        }
        let since = since.unwrap_or_else(Instant::now);
        let is_due = since.elapsed() >= self.settle;
        if is_due {
            let removed = self.host.app_armor.remove(name).map_err(NotRemoved::Kernel);
            removed.inspect(|()| info!(profile = name, "AppArmor profile removed"))
        } else {
            self.unused_since.insert(name.to_owned(), since);
            Err(NotRemoved::Settling)
        }
    }
}

/// The cause of an error, after a colon.
fn source(error: &dyn std::error::Error) -> String {
    error.source().map(|source| format!(": {source}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    /// Files in the places of the kernel's. What is written to them stays, and nothing acts on it.
    fn kernel(profiles: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/kernel/security/apparmor");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(root.path().join("sys/module/apparmor/parameters")).unwrap();
        fs::create_dir_all(root.path().join("proc/7/attr")).unwrap();
        fs::write(root.path().join("sys/module/apparmor/parameters/enabled"), "Y\n").unwrap();
        fs::write(folder.join("profiles"), profiles).unwrap();
        fs::write(folder.join(".remove"), "").unwrap();
        root
    }

    fn keeper(root: &tempfile::TempDir) -> Keeper {
        let host = Host {
            app_armor: AppArmor::below(root.path().join("sys")),
            // There is no parser in it.
            parser: Parser::below(Some(root.path().to_owned())),
            proc: root.path().join("proc"),
        };
        Keeper::new(host, Duration::from_mins(1))
    }

    fn states(rows: &[ProfileRow]) -> Vec<(String, ProfileState)> {
        rows.iter().map(|row| (row.name.clone(), row.state)).collect()
    }

    /// A turn without objects, with what pods name.
    async fn turn(keeper: &mut Keeper, named: &[&str]) -> Vec<ProfileRow> {
        let named = named.iter().map(|name| (*name).to_owned()).collect();
        let mut rows = keeper.turn(&[], &BTreeSet::new()).await;
        rows.extend(keeper.remove_unused(Ok(&named)));
        rows
    }

    #[tokio::test(start_paused = true)]
    async fn a_profile_is_removed_when_no_pod_names_it_and_no_process_has_had_it_for_a_while() {
        let root = kernel("palisade/shop/old (enforce)\n/usr/sbin/ntpd (enforce)\n");
        let label = root.path().join("proc/7/attr/current");
        let removed =
            || fs::read_to_string(root.path().join("sys/kernel/security/apparmor/.remove")).unwrap();
        let mut keeper = keeper(&root);
        fs::write(&label, "palisade/shop/old (enforce)\n").unwrap();
        for _ in 0..3 {
            let rows = turn(&mut keeper, &[]).await;
            assert_eq!(states(&rows), [("old".to_owned(), ProfileState::Removing)]);
            tokio::time::advance(Duration::from_mins(5)).await;
            assert_eq!(removed(), "", "a process has it");
        }
        fs::write(&label, "unconfined\n").unwrap();
        turn(&mut keeper, &[]).await;
        tokio::time::advance(Duration::from_secs(59)).await;
        turn(&mut keeper, &[]).await;
        assert_eq!(removed(), "", "not for long enough");
        // A container that is being started: its first process is about to get the profile.
        fs::write(root.path().join("proc/7/attr/exec"), "palisade/shop/old (enforce)\n").unwrap();
        tokio::time::advance(Duration::from_secs(5)).await;
        turn(&mut keeper, &[]).await;
        assert_eq!(removed(), "", "a process is about to get it");
        fs::write(root.path().join("proc/7/attr/exec"), "").unwrap();
        turn(&mut keeper, &[]).await;
        for _ in 0..3 {
            tokio::time::advance(Duration::from_mins(5)).await;
            turn(&mut keeper, &["palisade/shop/old"]).await;
            assert_eq!(removed(), "", "a pod names it, whose container may start at any time");
        }
        keeper.turn(&[], &BTreeSet::new()).await;
        let unknown = NamedProfilesError::Pod(serde_json::from_str::<Value>("").unwrap_err());
        keeper.remove_unused(Err(&unknown));
        assert_eq!(removed(), "", "what pods name is not known");
        turn(&mut keeper, &[]).await;
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(states(&turn(&mut keeper, &[]).await), []);
        assert_eq!(removed(), "palisade/shop/old", "and nothing of the node's");
    }

    #[tokio::test]
    async fn what_cannot_be_loaded_is_reported_with_the_reason() {
        let root = kernel("");
        let object = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "AppArmorProfile",
            "metadata": {"namespace": "shop", "name": "web"}, "spec": {"rules": "file,"}});
        let rows = keeper(&root).turn(std::slice::from_ref(&object), &BTreeSet::new()).await;
        assert_eq!(states(&rows), [("web".to_owned(), ProfileState::Failed)]);
        let why = rows[0].message.clone().unwrap();
        assert!(why.starts_with("apparmor_parser could not be run: "), "{why}");
        fs::write(root.path().join("sys/module/apparmor/parameters/enabled"), "N\n").unwrap();
        let rows = keeper(&root).turn(&[object], &BTreeSet::new()).await;
        assert_eq!(states(&rows), [("web".to_owned(), ProfileState::NotSupported)]);
    }
}
