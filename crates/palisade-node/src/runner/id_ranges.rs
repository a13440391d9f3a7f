//! The ids on the node that the users of a pod's user namespace have: a range for each pod, kept while the pod exists.
//!
//! Implements: User Namespaces, "Set up a node to support user namespaces", with the default of kubelets: 65536 ids for each of 110
//! pods, above the ids of the node's own users. <https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/>
//!
//! A range is recorded in the folder of its pod, as kubelets do, and is free when the folder is gone, which is after the last
//! process of the pod. So an agent that is restarted, or killed, never gives a range twice.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::cri::proto::{IdMapping, NamespaceMode, UserNamespace};

/// How many ids a pod has.
pub const LENGTH: u32 = 1 << 16;
/// How many pods have some at a time.
const PODS: u32 = 110;
const FILE: &str = "userns";

/// Why a pod has no ids.
#[derive(Debug, thiserror::Error)]
pub enum IdRangeError {
    /// A record cannot be read or written. Without it, the range of another pod could be given away.
    #[error("cannot read or write {path}: {source}")]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record is not one of ours.
    #[error("{path} is not a record of ids for one pod")]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
    /// Every range is in use.
    #[error("could not find an empty slot to allocate a user namespace")]
    Full,
}

/// The ids of one pod: its user 0 is this one on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdRange {
    first: u32,
}

impl IdRange {
    /// A range that begins at a multiple of its length, above the ids of the node's own users.
    #[must_use]
    pub const fn starting_at(first: u32) -> Option<Self> {
        if first >= LENGTH && first.is_multiple_of(LENGTH) { Some(Self { first }) } else { None }
    }

    /// The mapping, as runtimes take it.
    #[must_use]
    pub const fn mapping(&self) -> IdMapping {
        IdMapping { host_id: self.first, container_id: 0, length: LENGTH }
    }

    /// The user namespace of the pod.
    #[must_use]
    pub fn user_namespace(&self) -> UserNamespace {
        let ids = vec![self.mapping()];
        UserNamespace { mode: NamespaceMode::Pod.into(), uids: ids.clone(), gids: ids }
    }
}

/// The kubelet's record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    uid_mappings: Vec<Line>,
    gid_mappings: Vec<Line>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    host_id: u32,
    container_id: u32,
    length: u32,
}

impl Record {
    fn of(range: IdRange) -> Self {
        let lines = vec![Line { host_id: range.first, container_id: 0, length: LENGTH }];
        Self { uid_mappings: lines.clone(), gid_mappings: lines }
    }

    fn range(&self) -> Option<IdRange> {
        let [uids] = self.uid_mappings.as_slice() else { return None };
        let [gids] = self.gid_mappings.as_slice() else { return None };
        let is_whole = |line: &Line| line.container_id == 0 && line.length == LENGTH;
        let same = uids.host_id == gids.host_id && is_whole(uids) && is_whole(gids);
        IdRange::starting_at(uids.host_id).filter(|_| same)
    }
}

/// The ranges of the pods of one agent.
#[derive(Debug, Clone)]
pub struct IdRanges {
    /// The folder with a folder for each pod.
    pods: PathBuf,
    choosing: Arc<Mutex<()>>,
}

impl IdRanges {
    /// The ranges recorded below the agent's folder.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self { pods: root.join("pods"), choosing: Arc::default() }
    }

    /// The range of a pod, which is recorded if it had none.
    pub fn of_pod(&self, folder: &Path) -> Result<IdRange, IdRangeError> {
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        let own = folder.join(FILE);
        if let Some(range) = read(&own)? {
            return Ok(range);
        }
        let range = lowest_free(&self.taken()?).ok_or(IdRangeError::Full)?;
        write(folder, &own, range).map_err(|source| IdRangeError::Record { path: own, source })?;
        Ok(range)
    }

    fn taken(&self) -> Result<BTreeSet<IdRange>, IdRangeError> {
        let failed = |source| IdRangeError::Record { path: self.pods.clone(), source };
        let mut taken = BTreeSet::new();
        let folders = match fs::read_dir(&self.pods) {
            Ok(folders) => folders,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(taken),
            Err(error) => return Err(failed(error)),
        };
        for folder in folders {
            taken.extend(read(&folder.map_err(failed)?.path().join(FILE))?);
        }
        Ok(taken)
    }
}

fn lowest_free(taken: &BTreeSet<IdRange>) -> Option<IdRange> {
    let all = (1..=PODS).filter_map(|number| IdRange::starting_at(number.checked_mul(LENGTH)?));
    all.into_iter().find(|range| !taken.contains(range))
}

fn read(path: &Path) -> Result<Option<IdRange>, IdRangeError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => return Err(IdRangeError::Record { path: path.to_owned(), source }),
    };
    let unreadable = || IdRangeError::Unreadable { path: path.to_owned() };
    let record: Record = serde_json::from_slice(&text).map_err(|_| unreadable())?;
    record.range().map(Some).ok_or_else(unreadable)
}

/// Half a record would be worse than none.
fn write(folder: &Path, path: &Path, range: IdRange) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let text = serde_json::to_vec(&Record::of(range))?;
    let new = path.with_extension("new");
    let mut file = fs::File::create(&new)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_outlive_the_agent() {
        let root = tempfile::tempdir().unwrap();
        let folder = |uid: &str| root.path().join("pods").join(uid);
        let ranges = IdRanges::below(root.path());
        let first = |uid: &str| ranges.of_pod(&folder(uid)).unwrap().mapping().host_id;
        assert_eq!((first("a"), first("b"), first("a")), (65_536, 131_072, 65_536));
        let restarted = IdRanges::below(root.path());
        assert_eq!(restarted.of_pod(&folder("b")).unwrap().mapping().host_id, 131_072);
        assert_eq!(restarted.of_pod(&folder("c")).unwrap().mapping().host_id, 196_608);
        fs::remove_dir_all(folder("a")).unwrap();
        assert_eq!(first("d"), 65_536, "a range is free with the folder of its pod");
        for number in 0..PODS - 3 {
            first(&number.to_string());
        }
        assert!(matches!(ranges.of_pod(&folder("last")), Err(IdRangeError::Full)));
        let written = fs::read_to_string(folder("b").join(FILE)).unwrap();
        let mapping = r#"[{"hostId":131072,"containerId":0,"length":65536}]"#;
        assert_eq!(written, format!(r#"{{"uidMappings":{mapping},"gidMappings":{mapping}}}"#));
    }

    #[test]
    fn a_record_that_cannot_be_read_stops_every_choice() {
        let record = |uid: u32, gid: u32, container: u32, length: u32| {
            let line =
                |host: u32| format!(r#"[{{"hostId":{host},"containerId":{container},"length":{length}}}]"#);
            format!(r#"{{"uidMappings":{},"gidMappings":{}}}"#, line(uid), line(gid))
        };
        for (case, text, readable) in [
            ("ours", record(65_536, 65_536, 0, 65_536), true),
            ("empty", String::new(), false),
            ("no list", "{}".to_owned(), false),
            ("the node's own users", record(0, 0, 0, 65_536), false),
            ("between two ranges", record(65_537, 65_537, 0, 65_536), false),
            ("users and groups differ", record(65_536, 131_072, 0, 65_536), false),
            ("another length", record(65_536, 65_536, 0, 131_072), false),
            ("another begin", record(65_536, 65_536, 1, 65_536), false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let folder = |uid: &str| root.path().join("pods").join(uid);
            fs::create_dir_all(folder("a")).unwrap();
            fs::write(folder("a").join(FILE), text).unwrap();
            let ranges = IdRanges::below(root.path());
            assert_eq!(ranges.of_pod(&folder("a")).is_ok(), readable, "{case}");
            assert_eq!(ranges.of_pod(&folder("b")).is_ok(), readable, "{case}");
        }
    }
}
