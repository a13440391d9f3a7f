//! The rules that apply to a document: options of the command line, and the `palisade.toml` closest to the document.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::civil::Date;

use crate::{
    config::{Chosen, Config, ConfigError, closest_to},
    failure::Failure,
    judge::Settings,
};

/// Which configuration is read.
#[derive(Debug, Clone, Default)]
pub enum ConfigChoice {
    /// The one closest to each document.
    #[default]
    Closest,
    /// One for all.
    File(PathBuf),
    /// None.
    None,
}

/// What the command line chooses.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Level, versions, gates.
    pub chosen: Chosen,
    /// The configuration.
    pub config: ConfigChoice,
}

/// Rules to judge by.
#[derive(Debug)]
pub(super) struct Rules {
    /// Level, versions, severities.
    pub(super) settings: Settings,
    /// What is excluded and accepted.
    pub(super) config: Config,
}

/// Rules by the configuration that they come from. They are kept until one is forgotten, or the day ends: suppressions expire.
#[derive(Debug)]
pub(super) struct RuleBook {
    options: Options,
    known: BTreeMap<Option<PathBuf>, Arc<Rules>>,
    day: Date,
}

/// Why no rules are known: the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RulesError(Failure);

impl RuleBook {
    pub(super) fn new(options: Options) -> Self {
        Self { options, known: BTreeMap::new(), day: today() }
    }

    /// The rules for a document.
    pub(super) fn rules(&mut self, path: Option<&Path>) -> Result<Arc<Rules>, RulesError> {
        let day = today();
        if day != self.day {
            self.forget();
            self.day = day;
        }
        let file = match (&self.options.config, path.and_then(Path::parent)) {
            (ConfigChoice::File(file), _) => Some(file.clone()),
            (ConfigChoice::Closest, Some(folder)) => closest_to(folder),
            (ConfigChoice::None, _) | (ConfigChoice::Closest, None) => None,
        };
        if let Some(known) = self.known.get(&file) {
            return Ok(Arc::clone(known));
        }
        let config = match &file {
            Some(file) => {
                Config::find(Some(file)).map_err(|error: ConfigError| RulesError(Failure::from(error)))?
            }
            None => Config::default(),
        };
        let settings = config.settings(&self.options.chosen, None, day);
        let rules = Arc::new(Rules { settings, config });
        self.known.insert(file, Arc::clone(&rules));
        Ok(rules)
    }

    /// Reads every configuration again.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

fn today() -> Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}
