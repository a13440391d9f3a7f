//! Profiles in ConfigMaps: read, checked, hashed.
//!
//! Implements: the ConfigMap profile design's checks. Nothing is written here: a review may be a dry run, forged, or about a pod
//! that another plugin rejects. The controller publishes what pods that exist refer to.

use std::collections::BTreeMap;

use palisade_admission::config_map_profiles::{Fault, Profiles};
use palisade_base::sha256;
use palisade_model::profile::config_map::{ConfigMapProblem, Source, check_document, text_in};
use tokio::time::Instant;

use super::reading::{ConfigMap, LookupError, Reader};

#[derive(Debug)]
pub(crate) struct ProfileReader {
    reader: Reader,
}

impl ProfileReader {
    pub(super) const fn new(reader: Reader) -> Self {
        Self { reader }
    }

    /// Profiles in ConfigMaps of a namespace.
    pub(crate) async fn read(&self, namespace: &str, sources: &[Source], deadline: Instant) -> Profiles {
        let mut profiles = Profiles::new();
        let mut config_maps: BTreeMap<&str, Result<ConfigMap, LookupError>> = BTreeMap::new();
        for Source { name, key, .. } in sources {
            if !config_maps.contains_key(name.as_str()) {
                config_maps.insert(name, self.reader.config_map(namespace, name, deadline).await);
            }
            let Some(read) = config_maps.get(name.as_str()) else { continue };
            let profile = match read {
                Ok(config_map) => profile_in(config_map, namespace, name, key).map_err(Fault::Unusable),
                Err(LookupError::NotFound(_)) => Err(Fault::Unusable(ConfigMapProblem::ConfigMapMissing {
                    namespace: namespace.to_owned(),
                    name: name.clone(),
                    key: key.clone(),
                })),
                Err(why) => Err(Fault::Unavailable(format!(
                    "cannot read ConfigMap {namespace}/{name} for seccomp profile {key}: {why}"
                ))),
            };
            let hashed = profile.map(|text| sha256::hex(text.as_bytes()));
            profiles.insert((name.clone(), key.clone()), hashed);
        }
        profiles
    }
}

fn profile_in<'c>(
    config_map: &'c ConfigMap,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<&'c str, ConfigMapProblem> {
    let found = config_map.data.get(key).map(String::as_str);
    let text = text_in((namespace, name, key), found, config_map.binary_data.contains_key(key))?;
    let profile = || format!("configmap/{name}/{key}");
    check_document(text).map_err(|source| ConfigMapProblem::Document { profile: profile(), source })?;
    Ok(text)
}
