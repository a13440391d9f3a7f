//! Keeps all violating namespaces in ConfigMaps, beyond the number that fits into the status.
//!
//! Read once by a new leader; written before the status that follows from it, so that nothing is forgotten when
//! the controller is killed in between. Nothing is written that is there already.

use std::collections::BTreeMap;

use palisade_policy::enforcement::{
    instances::NAMESPACE,
    ledger::{LABEL, StoredVersion, config_map, entries, name, parts, read_part},
    violations::{Entry, MOST_SHOWN, merge},
};

use super::apply::MANAGER;
use crate::{
    api::{Api, ApiError, CONFIG_MAPS, Patch},
    leader::ensure_namespace,
};

/// The parts that are stored, as far as they are known.
#[derive(Debug, Default)]
pub struct Ledger {
    stored: BTreeMap<usize, Stored>,
}

#[derive(Debug)]
struct Stored {
    text: String,
    version: StoredVersion,
}

impl Ledger {
    /// Reads all parts.
    pub async fn read(api: &Api) -> Result<Self, ApiError> {
        let path = format!("{}?labelSelector={LABEL}", CONFIG_MAPS.collection(Some(NAMESPACE)));
        let list = api.get(&path).await?.unwrap_or_default();
        let stored = list["items"].as_array().into_iter().flatten().filter_map(read_part);
        let stored = stored.map(|(part, text, version)| (part, Stored { text, version }));
        Ok(Self { stored: stored.collect() })
    }

    /// Everything that is in it.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.stored.values().flat_map(|stored| entries(&stored.text))
    }

    /// Writes what differs; how many parts that were.
    pub(super) async fn write(
        &mut self,
        api: &Api,
        wanted: &BTreeMap<usize, String>,
    ) -> Result<usize, ApiError> {
        let mut changes: BTreeMap<usize, &str> =
            wanted.iter().map(|(part, text)| (*part, text.as_str())).collect();
        for part in self.stored.keys() {
            changes.entry(*part).or_default();
        }
        changes.retain(|part, text| self.stored.get(part).map_or("", |stored| &stored.text) != *text);
        for (&part, &text) in &changes {
            let version = self.stored.get(&part).map(|stored| &stored.version);
            let object = config_map(part, text, version);
            let path = CONFIG_MAPS.object(Some(NAMESPACE), &name(part));
            let how = Patch::Apply { force: true };
            let answer = match api.patch(&path, MANAGER, how, &object).await {
                Err(error) if error.is_not_found() => {
                    ensure_namespace(api).await?;
                    let object = config_map(part, text, None);
                    api.patch(&path, MANAGER, how, &object).await?
                }
                answer => answer?,
            };
            if let Some((part, text, version)) = read_part(&answer) {
                self.stored.insert(part, Stored { text, version });
            }
        }
        Ok(changes.len())
    }
}

/// The parts that should be there: none as long as all fit into the status.
pub(super) fn wanted(shown: Vec<Entry>, remembered: &[Entry]) -> BTreeMap<usize, String> {
    let all = merge(remembered.iter().cloned().chain(shown));
    if all.len() > MOST_SHOWN { parts(&all) } else { BTreeMap::new() }
}
