//! What profiles from ConfigMaps and registries are combined with on this node.
//!
//! The default profile of a runtime depends on its release, the machine, the kernel and the capabilities of the container. Where one
//! file is for every container (the agent beside a kubelet), it is the default of a container without capabilities, which allows no
//! more than that of any other.

use std::collections::BTreeSet;

use palisade_model::{
    effective::EffectiveContext,
    profile::{
        architecture::Architecture,
        baseline::{Baseline, BaselineProfile, RestrictError, Restricted, restrict},
        config_map::{DocumentError, check_node_file},
        document::KernelVersion,
        filter::{Filter, FilterError},
        runtime_default::{RuntimeDefault, RuntimeDefaultError},
    },
    text::Text,
};
use serde_json::Value;
use thiserror::Error;

use super::{ProfileError, localhost::ProfileFolder};
use crate::{
    kernel::{
        probe::NodeFeatures,
        process::{CAPABILITIES, capability_names},
    },
    node::Node,
    node_object::machine,
};

/// Why a baseline is not known.
#[derive(Debug, Error)]
pub enum BaselineError {
    /// What the pod states is no baseline.
    #[error("the baseline {0:?} cannot be read")]
    Stated(String),
    /// The runtime has not reported what it is.
    #[error("the container runtime has not reported its version: its default profile is not known")]
    NoRuntime,
    /// The machine is none of those that profiles have names for.
    #[error("the machine {0:?} is not known: its default profile cannot be resolved")]
    Machine(&'static str),
    /// There are no facts about the runtime.
    #[error(transparent)]
    RuntimeDefault(#[from] RuntimeDefaultError),
    /// A file of the baseline cannot be read.
    #[error("baseline localhost/{path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: Box<ProfileError>,
    },
    /// A file of the baseline is no profile.
    #[error("baseline localhost/{path} {source}")]
    Document {
        /// The file.
        path: String,
        /// Why.
        source: DocumentError,
    },
    /// A file of the baseline is no profile.
    #[error("baseline localhost/{path}: {source}")]
    Filter {
        /// The file.
        path: String,
        /// Why.
        source: FilterError,
    },
}

/// Why a profile cannot be combined with its baseline.
#[derive(Debug, Error)]
pub enum CombineError {
    /// The baseline is not known, so nothing can be combined with it.
    #[error("cannot be combined with its baseline: {0}")]
    Baseline(#[from] BaselineError),
    /// The profile is not one, or the combination has no exact result.
    #[error(transparent)]
    Restrict(#[from] RestrictError),
}

/// What bounds a profile from a ConfigMap or a registry.
#[derive(Debug, Clone)]
pub struct Bounds {
    baseline: StatedBaseline,
    runtime_name: String,
    runtime_version: String,
    kernel: Option<KernelVersion>,
    capabilities: BoundCapabilities,
}

/// The baseline that a pod states.
#[derive(Debug, Clone)]
enum StatedBaseline {
    Readable(Baseline),
    /// It bounds nothing, and is an error when it is used.
    Unreadable(String),
}

/// The capabilities of the container.
#[derive(Debug, Clone)]
enum BoundCapabilities {
    None,
    All,
    /// Those of a container that sets none, with these changes.
    Declared {
        add: Vec<String>,
        drop: Vec<String>,
    },
}

impl BoundCapabilities {
    /// As container runtimes apply them: `ALL` before the others, and what is dropped is not there.
    fn with_default(&self, default: BTreeSet<String>) -> BTreeSet<String> {
        let every = || capability_names(ALL_CAPABILITIES).iter().map(|name| prefixed(name)).collect();
        let is_all = |name: &String| name.eq_ignore_ascii_case("ALL");
        let (add, drop) = match self {
            Self::None => return BTreeSet::new(),
            Self::All => return every(),
            Self::Declared { add, drop } => (add, drop),
        };
        let mut set = if drop.iter().any(is_all) {
            BTreeSet::new()
        } else if add.iter().any(is_all) {
            every()
        } else {
            default
        };
        set.extend(add.iter().filter(|name| !is_all(name)).map(|name| prefixed(name)));
        for name in drop.iter().map(|name| prefixed(name)) {
            set.remove(&name);
        }
        set
    }
}

const ALL_CAPABILITIES: u64 = (1 << CAPABILITIES.len()) - 1;

fn prefixed(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    if name.starts_with("CAP_") { name } else { format!("CAP_{name}") }
}

impl Bounds {
    /// For a container without capabilities, with the default of the runtime.
    #[must_use]
    pub fn of_node(features: &NodeFeatures) -> Self {
        Self {
            baseline: StatedBaseline::Readable(Baseline::default()),
            runtime_name: features.runtime_name.clone(),
            runtime_version: features.runtime_version.clone(),
            kernel: Some(kernel_version(&features.kernel)),
            capabilities: BoundCapabilities::None,
        }
    }

    /// For a container that sets no capabilities, with the default of the runtime.
    #[must_use]
    pub fn of_usual_container(features: &NodeFeatures) -> Self {
        let capabilities = BoundCapabilities::Declared { add: Vec::new(), drop: Vec::new() };
        Self { capabilities, ..Self::of_node(features) }
    }

    /// The same, with another baseline.
    #[must_use]
    pub fn with_baseline(self, baseline: Baseline) -> Self {
        Self { baseline: StatedBaseline::Readable(baseline), ..self }
    }

    /// The same, and another profile. A baseline that cannot be read stays one.
    #[must_use]
    pub fn and(self, profile: BaselineProfile) -> Self {
        let baseline = match self.baseline {
            StatedBaseline::Readable(baseline) => StatedBaseline::Readable(baseline.and(profile)),
            unreadable @ StatedBaseline::Unreadable(_) => unreadable,
        };
        Self { baseline, ..self }
    }

    /// For a container with what it declares; `stated` is the baseline that admission wrote on its pod.
    #[must_use]
    pub fn of_container(node: &Node, context: &EffectiveContext<'_>, stated: Option<&str>) -> Self {
        let declared = &context.capabilities.value;
        let names = |list: &[Text<'_>]| list.iter().map(ToString::to_string).collect();
        let capabilities = if context.privileged.value {
            BoundCapabilities::All
        } else {
            BoundCapabilities::Declared { add: names(&declared.add), drop: names(&declared.drop) }
        };
        let baseline = stated.map_or_else(
            || StatedBaseline::Readable(Baseline::default()),
            |text| match Baseline::parse(text) {
                Some(baseline) => StatedBaseline::Readable(baseline),
                None => StatedBaseline::Unreadable(text.to_owned()),
            },
        );
        Self { baseline, capabilities, ..Self::of_node(&node.features()) }
    }

    /// The profile that allows what a source and its baseline allow.
    pub fn combine(&self, source: &str, folder: &ProfileFolder) -> Result<Restricted, CombineError> {
        Ok(restrict(source, &self.filters(folder)?)?)
    }

    /// The default profile of the node's runtime for the container.
    pub fn runtime_default(&self) -> Result<Filter, BaselineError> {
        self.filter(&BaselineProfile::RuntimeDefault, &ProfileFolder::new(""))
    }

    /// The profiles that bound it.
    fn filters(&self, folder: &ProfileFolder) -> Result<Vec<Filter>, BaselineError> {
        let baseline = match &self.baseline {
            StatedBaseline::Readable(baseline) => baseline,
            StatedBaseline::Unreadable(text) => return Err(BaselineError::Stated(text.clone())),
        };
        baseline.profiles().map(|profile| self.filter(profile, folder)).collect()
    }

    /// The default profile of the runtime for the container, as a document.
    pub fn runtime_default_document(&self) -> Result<Value, BaselineError> {
        if self.runtime_name.is_empty() {
            return Err(BaselineError::NoRuntime);
        }
        let machine = Architecture::of_go(machine()).ok_or(BaselineError::Machine(machine()))?;
        let (name, version) = (&self.runtime_name, &self.runtime_version);
        let unknown = || RuntimeDefaultError::Node { runtime: name.clone(), version: version.clone() };
        let known = RuntimeDefault::of_node(name, version).ok_or_else(unknown)?;
        let capabilities = self.capabilities.with_default(known.default_capabilities());
        Ok(known.profile(&capabilities, machine, self.kernel)?)
    }

    fn filter(&self, profile: &BaselineProfile, folder: &ProfileFolder) -> Result<Filter, BaselineError> {
        match profile {
            BaselineProfile::RuntimeDefault => {
                Ok(Filter::read(&self.runtime_default_document()?).map_err(RuntimeDefaultError::from)?)
            }
            BaselineProfile::Localhost(path) => {
                let unreadable =
                    |source| BaselineError::Unreadable { path: path.clone(), source: Box::new(source) };
                let content = folder.read(path).map_err(unreadable)?;
                let failed = |source| BaselineError::Document { path: path.clone(), source };
                let text = std::str::from_utf8(&content)
                    .map_err(|error| failed(DocumentError::NotJson(error.to_string())))?;
                check_node_file(text).map_err(failed)?;
                Filter::parse(text).map_err(|source| BaselineError::Filter { path: path.clone(), source })
            }
        }
    }
}

/// `6.1.0-18-amd64` as major and minor; a release that cannot be read is the oldest one, which has least.
fn kernel_version(release: &str) -> KernelVersion {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let mut number = || match numbers.next() {
        Some(Ok(number)) => number,
        Some(Err(_)) | None => 0,
    };
    (number(), number())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const DENY_MKDIR: &str =
        r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir"],"action":"SCMP_ACT_ERRNO"}]}"#;

    #[test]
    fn a_baseline_that_is_not_known_bounds_nothing_and_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        let folder = ProfileFolder::new(temp.path());
        fs::write(temp.path().join("team.json"), DENY_MKDIR).unwrap();
        fs::write(temp.path().join("empty.json"), "{}").unwrap();
        let features = |name: &str, version: &str| NodeFeatures {
            runtime_name: name.to_owned(),
            runtime_version: version.to_owned(),
            kernel: "6.1.0-18-amd64".to_owned(),
            ..NodeFeatures::default()
        };
        let bounds = |name, version, baseline: &str| {
            let bounds = Bounds::of_node(&features(name, version));
            bounds.with_baseline(Baseline::parse(baseline).unwrap())
        };
        for (name, version, baseline, expected) in [
            ("containerd", "1.7.20~ds1", "runtime/default", ""),
            ("other", "9", "localhost/team.json", ""),
            ("", "", "runtime/default", "has not reported its version"),
            ("other", "9", "runtime/default", "is not known: name a baseline in a ProfilePolicy"),
            ("containerd", "1.5.9", "runtime/default", "is not known: name a baseline in a ProfilePolicy"),
            ("containerd", "2.0.0", "runtime/default,localhost/none.json", "no such file or directory"),
            ("containerd", "2.0.0", "localhost/empty.json", "a runtime applies no profile at all"),
        ] {
            let found = bounds(name, version, baseline).filters(&folder);
            match found {
                Ok(filters) => {
                    assert_eq!(expected, "", "{name} {version} {baseline}");
                    restrict(DENY_MKDIR, &filters).unwrap();
                }
                Err(error) => assert!(
                    !expected.is_empty() && error.to_string().contains(expected),
                    "{name} {version} {baseline}: {error}"
                ),
            }
        }
    }

    #[test]
    fn capabilities_are_those_that_the_runtime_gives() {
        let default = || BTreeSet::from(["CAP_CHOWN".to_owned(), "CAP_SYS_CHROOT".to_owned()]);
        let declared = |add: &[&str], drop: &[&str]| {
            let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
            let set = BoundCapabilities::Declared { add: own(add), drop: own(drop) }.with_default(default());
            if set.len() > 30 { "all".to_owned() } else { set.into_iter().collect::<Vec<_>>().join(" ") }
        };
        for (add, drop, expected) in [
            (&[][..], &[][..], "CAP_CHOWN CAP_SYS_CHROOT"),
            (&["sys_admin"], &["CHOWN"], "CAP_SYS_ADMIN CAP_SYS_CHROOT"),
            (&["SYS_ADMIN"], &["ALL"], "CAP_SYS_ADMIN"),
            (&["ALL"], &[], "all"),
            (&["ALL"], &["ALL"], ""),
            (&["CAP_BPF"], &["all", "BPF"], ""),
        ] {
            assert_eq!(declared(add, drop), expected, "{add:?} {drop:?}");
        }
        assert!(BoundCapabilities::All.with_default(default()).contains("CAP_SYS_ADMIN"));
        assert_eq!(BoundCapabilities::None.with_default(default()), BTreeSet::new());
    }

    #[test]
    fn kernels_have_two_numbers() {
        for (release, expected) in
            [("6.1.0-18-amd64", (6, 1)), ("5.10", (5, 10)), ("", (0, 0)), ("x", (0, 0))]
        {
            assert_eq!(kernel_version(release), expected, "{release}");
        }
    }
}
