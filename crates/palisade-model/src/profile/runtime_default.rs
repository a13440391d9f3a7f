//! The default profiles of container runtimes, release by release: what `RuntimeDefault` means on a node.
//!
//! The facts are in `runtime_defaults.txt`, read on first use. A default profile depends on the capabilities of the container,
//! the machine and the kernel; [`docker::resolve`] decides which of its rules apply.

use std::{collections::BTreeSet, fmt, sync::LazyLock};

use serde_json::{Value, json};
use thiserror::Error;

use super::{
    architecture::Architecture,
    docker::{self, Container, DockerError},
    document::KernelVersion,
    filter::{Filter, FilterError},
};

const TABLE: &str = include_str!("runtime_defaults.txt");

static RUNTIMES: LazyLock<Vec<Runtime>> = LazyLock::new(|| Runtime::read(TABLE));

/// A release: major, minor, patch.
type Release = [u32; 3];

struct Runtime {
    name: &'static str,
    releases: Vec<Release>,
    capabilities: Vec<&'static str>,
    defaults: Vec<(Ranges, &'static str)>,
    architectures: Vec<(Ranges, Vec<&'static str>)>,
    rules: Vec<Rule>,
}

struct Rule {
    releases: Ranges,
    container: &'static str,
    action: &'static str,
    arguments: &'static str,
    names: &'static str,
}

/// Releases from one up to, but not including, another; all of them if empty.
struct Ranges(Vec<(Release, Option<Release>)>);

impl Ranges {
    fn read(text: &str) -> Self {
        let range = |text: &str| {
            let (from, before) = text.split_once("..")?;
            Some((release(from)?, release(before)))
        };
        // swallowed: `*`, and our own table otherwise, which its test reads whole
        Self(text.split(',').filter_map(range).collect())
    }

    fn contain(&self, wanted: Release) -> bool {
        let within = |(from, before): &(Release, Option<Release>)| {
            *from <= wanted && before.is_none_or(|before| wanted < before)
        };
        self.0.is_empty() || self.0.iter().any(within)
    }
}

/// Reads `2.3.4`; none for anything else, shorter versions included.
fn release(text: &str) -> Option<Release> {
    let mut numbers = text.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Some([major, minor, patch]),
        // swallowed: the caller reports what is not a version
        _ => None,
    }
}

impl Runtime {
    fn read(text: &'static str) -> Vec<Self> {
        let mut runtimes: Vec<Self> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&'static str> = line.split(' ').collect();
            match (words.as_slice(), runtimes.last_mut()) {
                (["@", name], _) => runtimes.push(Self {
                    name,
                    releases: Vec::new(),
                    capabilities: Vec::new(),
                    defaults: Vec::new(),
                    architectures: Vec::new(),
                    rules: Vec::new(),
                }),
                (["releases", releases @ ..], Some(runtime)) => {
                    runtime.releases = releases.iter().filter_map(|text| release(text)).collect();
                }
                (["capabilities", names @ ..], Some(runtime)) => runtime.capabilities = names.to_vec(),
                (["default", releases, errno], Some(runtime)) => {
                    runtime.defaults.push((Ranges::read(releases), errno));
                }
                (["architectures", releases, tokens @ ..], Some(runtime)) => {
                    runtime.architectures.push((Ranges::read(releases), tokens.to_vec()));
                }
                (["rule", releases, container, action, arguments, names], Some(runtime)) => {
                    let releases = Ranges::read(releases);
                    runtime.rules.push(Rule { releases, container, action, arguments, names });
                }
                _ => {}
            }
        }
        runtimes
    }
}

/// Why a default profile is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuntimeDefaultError {
    /// No such runtime.
    #[error("the default profile of {name:?} is not known: {known}")]
    Runtime {
        /// As it was written.
        name: String,
        /// Those that are.
        known: String,
    },
    /// No such release.
    #[error("the default profile of {runtime} {version:?} is not known: releases {known}")]
    Version {
        /// The runtime.
        runtime: &'static str,
        /// As it was written.
        version: String,
        /// Those that are.
        known: String,
    },
    /// A node reports a runtime, or a release of it, of which no profile is known.
    #[error(
        "the default profile of the node's runtime {runtime:?} {version:?} is not known: name a baseline in a ProfilePolicy"
    )]
    Node {
        /// The runtime.
        runtime: String,
        /// Its version.
        version: String,
    },
    /// The table has a rule that cannot be read.
    #[error(transparent)]
    Rule(#[from] DockerError),
    /// The table has a profile that cannot be read.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// The default profile of one release of a runtime.
#[derive(Clone, Copy)]
pub struct RuntimeDefault {
    runtime: &'static Runtime,
    release: Release,
}

/// What precedes a runtime where a default profile stands for a file.
pub const PREFIX: &str = "runtime-default:";

impl fmt::Debug for RuntimeDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for RuntimeDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.release;
        write!(f, "{}@{major}.{minor}.{patch}", self.runtime.name)
    }
}

impl RuntimeDefault {
    /// The profile of `<runtime>[@<version>]`: `containerd`, `cri-o@1.34`, `docker@29.4.2`. Without a patch release, or
    /// without a version, the last one that is known.
    pub fn named(text: &str) -> Result<Self, RuntimeDefaultError> {
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (text, None),
        };
        let runtime = RUNTIMES.iter().find(|runtime| runtime.name == name).ok_or_else(|| {
            let known: Vec<&str> = RUNTIMES.iter().map(|runtime| runtime.name).collect();
            RuntimeDefaultError::Runtime { name: name.to_owned(), known: known.join(", ") }
        })?;
        let known = |release: &&Release| match version {
            None => true,
            Some(version) => {
                let version = version.strip_prefix('v').unwrap_or(version);
                let [major, minor, patch] = **release;
                version == major.to_string()
                    || version == format!("{major}.{minor}")
                    || self::release(version)
                        .is_some_and(|wanted| [wanted[0], wanted[1]] == [major, minor] && wanted[2] <= patch)
            }
        };
        let last = runtime.releases.iter().rev().find(known);
        let exact = version.and_then(|version| release(version.strip_prefix('v').unwrap_or(version)));
        if let Some(&last) = last {
            return Ok(Self { runtime, release: exact.unwrap_or(last) });
        }
        let show = |release: Option<&Release>| {
            release.map(|[major, minor, patch]| format!("{major}.{minor}.{patch}")).unwrap_or_default()
        };
        Err(RuntimeDefaultError::Version {
            runtime: runtime.name,
            version: version.unwrap_or_default().to_owned(),
            known: format!("{} to {}", show(runtime.releases.first()), show(runtime.releases.last())),
        })
    }

    /// The profile on a node that reports this runtime and version; a release newer than those known counts as the last known
    /// one.
    #[must_use]
    pub fn of_node(runtime: &str, version: &str) -> Option<Self> {
        let runtime = RUNTIMES.iter().find(|known| known.name == runtime)?;
        // Packages append to the version: 1.6.20~ds1, 2.3.4-1.
        let version = version.strip_prefix('v').unwrap_or(version);
        let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
        let release = release(version.get(..end)?.trim_end_matches('.'))?;
        let first = runtime.releases.first()?;
        (release >= *first).then_some(Self { runtime, release })
    }

    /// The capabilities of a container that sets none.
    #[must_use]
    pub fn default_capabilities(&self) -> BTreeSet<String> {
        self.runtime.capabilities.iter().map(|name| format!("CAP_{name}")).collect()
    }

    /// The profile, as the runtime hands it on for a container.
    pub fn profile(
        &self,
        capabilities: &BTreeSet<String>,
        machine: Architecture,
        kernel: Option<KernelVersion>,
    ) -> Result<Value, RuntimeDefaultError> {
        let container = Container { capabilities: capabilities.clone(), machine, kernel };
        Ok(docker::resolve(&self.document(), &container)?)
    }

    /// The profile in Docker's form, with its conditions on the container.
    #[must_use]
    pub fn document(&self) -> Value {
        let errno = self.runtime.defaults.iter().find(|(releases, _)| releases.contain(self.release));
        let architectures: Vec<Value> = self
            .runtime
            .architectures
            .iter()
            .filter(|(releases, _)| releases.contain(self.release))
            .filter_map(|(_, tokens)| {
                let tokens: Vec<String> = tokens.iter().map(|token| format!("SCMP_ARCH_{token}")).collect();
                let (machine, others) = tokens.split_first()?;
                Some(json!({"architecture": machine, "subArchitectures": others}))
            })
            .collect();
        let rules = self.runtime.rules.iter().filter(|rule| rule.releases.contain(self.release));
        let rules: Vec<Value> = rules.map(Rule::document).collect();
        json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            // swallowed: our own table, which its test reads whole
            "defaultErrnoRet": errno.and_then(|(_, errno)| errno.parse::<u64>().ok()),
            "archMap": architectures,
            "syscalls": rules,
        })
    }
}

impl Rule {
    fn document(&self) -> Value {
        let (action, errno) = self.action.split_once(':').unwrap_or((self.action, ""));
        let mut rule = json!({
            "names": self.names.split(',').collect::<Vec<_>>(),
            "action": format!("SCMP_ACT_{action}"),
        });
        let Some(fields) = rule.as_object_mut() else { return rule };
        // swallowed: an action without a number
        if let Ok(errno) = errno.parse::<u64>() {
            fields.insert("errnoRet".to_owned(), errno.into());
        }
        if self.arguments != "-" {
            let arguments: Vec<Value> = self.arguments.split(';').map(argument).collect();
            fields.insert("args".to_owned(), arguments.into());
        }
        for condition in self.container.split(';').filter(|condition| *condition != "-") {
            let (object, condition) = match condition.strip_prefix('!') {
                Some(condition) => ("excludes", condition),
                None => ("includes", condition),
            };
            let Some((kind, values)) = condition.split_once('=') else { continue };
            let (key, value) = match kind {
                "cap" => ("caps", values.split('+').map(|name| format!("CAP_{name}")).collect()),
                "arch" => ("arches", values.split('+').map(str::to_owned).collect()),
                _ => ("minKernel", Value::from(values)),
            };
            let conditions = fields.entry(object).or_insert_with(|| json!({}));
            if let Some(conditions) = conditions.as_object_mut() {
                conditions.insert(key.to_owned(), value);
            }
        }
        rule
    }
}

/// `index:operator:value[:second value]`
fn argument(text: &str) -> Value {
    let mut words = text.split(':');
    let mut word = || words.next().unwrap_or_default();
    let (index, operator, value, second) = (word(), word(), word(), word());
    // swallowed: our own table, which its test reads whole
    let number = |text: &str| text.parse::<u64>().ok();
    let mut argument =
        json!({"index": number(index), "op": format!("SCMP_CMP_{operator}"), "value": number(value)});
    if let (Some(second), Some(fields)) = (number(second), argument.as_object_mut()) {
        fields.insert("valueTwo".to_owned(), second.into());
    }
    argument
}

/// The filter that the runtime of a node makes of its default profile for a container with these capabilities.
pub fn of_node(
    runtime: &str,
    version: &str,
    capabilities: &BTreeSet<String>,
    machine: Architecture,
    kernel: Option<KernelVersion>,
) -> Result<Filter, RuntimeDefaultError> {
    let known = RuntimeDefault::of_node(runtime, version).ok_or_else(|| RuntimeDefaultError::Node {
        runtime: runtime.to_owned(),
        version: version.to_owned(),
    })?;
    Ok(Filter::read(&known.profile(capabilities, machine, kernel)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{
        filter::{Action, Answer, Call},
        syscalls::Syscall,
    };

    fn filter(name: &str, extra: &[&str], machine: &str) -> Filter {
        let profile = RuntimeDefault::named(name).unwrap();
        let mut capabilities = profile.default_capabilities();
        capabilities.extend(extra.iter().map(|name| (*name).to_owned()));
        let machine = Architecture::of_go(machine).unwrap();
        Filter::read(&profile.profile(&capabilities, machine, Some((6, 1))).unwrap()).unwrap()
    }

    #[test]
    fn every_release_has_a_profile_with_one_meaning_and_known_names() {
        let known: Vec<&str> = RUNTIMES.iter().map(|runtime| runtime.name).collect();
        assert_eq!(known, ["containerd", "cri-o", "docker"]);
        for runtime in RUNTIMES.iter() {
            assert!(runtime.releases.is_sorted() && !runtime.rules.is_empty());
            for release in &runtime.releases {
                let profile = RuntimeDefault { runtime, release: *release };
                for machine in ["amd64", "arm64", "s390x", "ppc64le", "riscv64"] {
                    let filter = filter(&profile.to_string(), &["CAP_PERFMON", "CAP_BPF"], machine);
                    assert!(filter.denied_call().unwrap().is_some(), "{profile} {machine}");
                }
                // CRI-O rejects socket(AF_VSOCK) beside a rule that allows all families but one.
                let contradicts = runtime.name == "cri-o" && release >= &[1, 35, 1];
                let filter = filter(&profile.to_string(), &[], "amd64");
                assert_eq!(filter.conflicts().unwrap().is_empty(), !contradicts, "{profile}");
            }
            let unknown = |name: &&str| Syscall::named(name).is_none();
            let names = runtime.rules.iter().flat_map(|rule| rule.names.split(','));
            // Names that runtimes list and no kernel has.
            let odd: BTreeSet<&str> = names.filter(unknown).collect();
            assert!(
                odd.is_subset(&BTreeSet::from([
                    "fadvise64_64",
                    "signal",
                    "timerfd",
                    "syscall",
                    "epoll_ctl_old"
                ])),
                "{odd:?}"
            );
        }
    }

    #[test]
    fn a_version_is_a_release_or_the_last_one_of_a_line() {
        for (text, expected) in [
            ("containerd", "containerd@2.3.4"),
            ("containerd@2.3", "containerd@2.3.4"),
            ("containerd@v1.6", "containerd@1.6.39"),
            ("containerd@1.6.20", "containerd@1.6.20"),
            ("cri-o@1", "cri-o@1.36.3"),
            ("docker@29.4.2", "docker@29.4.2"),
        ] {
            assert_eq!(RuntimeDefault::named(text).unwrap().to_string(), expected);
        }
        for (text, expected) in [
            ("podman", "the default profile of \"podman\" is not known: containerd, cri-o, docker"),
            ("containerd@", "the default profile of containerd \"\" is not known: releases 1.6.0 to 2.3.4"),
            (
                "containerd@1.5",
                "the default profile of containerd \"1.5\" is not known: releases 1.6.0 to 2.3.4",
            ),
            (
                "containerd@2.3.99",
                "the default profile of containerd \"2.3.99\" is not known: releases 1.6.0 to 2.3.4",
            ),
        ] {
            assert_eq!(RuntimeDefault::named(text).unwrap_err().to_string(), expected);
        }
        for (runtime, version, expected) in [
            ("containerd", "1.6.20~ds1", Some("containerd@1.6.20")),
            ("containerd", "v2.3.4", Some("containerd@2.3.4")),
            ("containerd", "v9.0.0-rc.1", Some("containerd@9.0.0")),
            ("containerd", "1.5.9", None),
            ("containerd", "unknown", None),
            ("other", "1.0.0", None),
        ] {
            let found = RuntimeDefault::of_node(runtime, version).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{runtime} {version}");
        }
    }

    #[test]
    fn releases_differ_where_their_runtimes_did() {
        let answer = |name: &str, extra: &[&str], call: &str, first: u64| {
            let arguments = [first, 0, 0, 0, 0, 0];
            let call = Call { architecture: Architecture::COMMON, syscall: Syscall::named(call), arguments };
            filter(name, extra, "amd64").answer(&call, Architecture::COMMON)
        };
        let (allow, eperm, enosys) = (Action::Allow, Action::Errno(1), Action::Errno(38));
        for (name, extra, call, first, expected) in [
            ("containerd@1.7.31", &[][..], "socket", 38, allow),
            ("containerd@1.7.32", &[], "socket", 38, eperm),
            ("containerd@2.3.0", &[], "socket", 40, eperm),
            ("containerd@2.3.1", &[], "socket", 39, allow),
            ("containerd@1.7", &[], "io_uring_setup", 0, allow),
            ("containerd@2.0", &[], "io_uring_setup", 0, eperm),
            ("containerd", &[], "personality", 0xffff_ffff, allow),
            ("containerd", &[], "clone", 0x1000_0000, eperm),
            ("containerd", &[], "clone3", 0, enosys),
            ("containerd", &["CAP_SYS_ADMIN"], "clone3", 0, allow),
            ("containerd", &["CAP_SYS_ADMIN"], "mount", 0, allow),
            ("cri-o", &[], "mount_setattr", 0, allow),
            ("cri-o@1.24", &[], "mount_setattr", 0, enosys),
            ("cri-o", &[], "clone", 0x1000_0000, eperm),
            ("docker@29.4.2", &[], "socketcall", 0, eperm),
        ] {
            // x86-64 has no socketcall: without a number there is the default action.
            assert_eq!(answer(name, extra, call, first), Answer::Action(expected), "{name} {call}");
        }
    }
}
