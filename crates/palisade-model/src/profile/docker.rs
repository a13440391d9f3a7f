//! Docker's form of a profile, resolved for a container.
//!
//! Implements: `includes`, `excludes`, `archMap` and the single `name` of Docker Engine's seccomp profiles, which Docker, Podman
//! and CRI-O evaluate when a container is made; containerd and runc drop them.
//! <https://docs.docker.com/engine/security/seccomp/>

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use thiserror::Error;

use super::{architecture::Architecture, document::KernelVersion};

/// What the conditions of rules are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The capabilities of the bounding set, such as `CAP_SYS_ADMIN`.
    pub capabilities: BTreeSet<String>,
    /// The machine.
    pub machine: Architecture,
    /// The kernel; `None` for one that has everything.
    pub kernel: Option<KernelVersion>,
}

/// Why a profile in Docker's form cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DockerError {
    /// A value of the wrong type.
    #[error("{at}: {message}")]
    Value {
        /// The field.
        at: String,
        /// What is wrong with it.
        message: &'static str,
    },
    /// Docker reads neither then.
    #[error("{at}: both {one:?} and {other:?} are set: Docker rejects the profile")]
    Both {
        /// The object.
        at: String,
        /// A key.
        one: &'static str,
        /// Another one.
        other: &'static str,
    },
}

fn wrong(at: impl Into<String>, message: &'static str) -> DockerError {
    DockerError::Value { at: at.into(), message }
}

/// The names that conditions use for a machine, which are the kernel's and Go's mixed.
fn machine_names(machine: Architecture) -> &'static [&'static str] {
    match machine.token() {
        "SCMP_ARCH_X86_64" => &["amd64"],
        "SCMP_ARCH_X86" => &["x86", "386"],
        "SCMP_ARCH_X32" => &["x32"],
        "SCMP_ARCH_ARM" => &["arm"],
        "SCMP_ARCH_AARCH64" => &["arm64"],
        "SCMP_ARCH_LOONGARCH64" => &["loong64"],
        "SCMP_ARCH_MIPS64" => &["mips64"],
        "SCMP_ARCH_MIPSEL64" => &["mips64le", "mipsel64"],
        "SCMP_ARCH_PPC64LE" => &["ppc64le"],
        "SCMP_ARCH_PPC64" => &["ppc64"],
        "SCMP_ARCH_RISCV64" => &["riscv64"],
        "SCMP_ARCH_S390X" => &["s390x"],
        "SCMP_ARCH_S390" => &["s390"],
        _ => &[],
    }
}

/// Whether a document has keys that only Docker reads.
#[must_use]
pub fn is_docker_form(profile: &Value) -> bool {
    let has = |value: &Value, keys: &[&str]| {
        keys.iter().any(|key| value.get(*key).is_some_and(|value| !value.is_null()))
    };
    let rules = profile.get("syscalls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    has(profile, &["archMap"]) || rules.iter().any(|rule| has(rule, &["includes", "excludes", "name"]))
}

/// The profile as Docker hands it to runc for a container.
pub fn resolve(profile: &Value, container: &Container) -> Result<Value, DockerError> {
    let Some(fields) = profile.as_object() else { return Err(wrong("", "a profile is a JSON object")) };
    let mut resolved = fields.clone();
    if let Some(map) = resolved.remove("archMap").filter(|map| !map.is_null()) {
        if fields.get("architectures").and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
            return Err(DockerError::Both {
                at: "the profile".into(),
                one: "architectures",
                other: "archMap",
            });
        }
        let listed = map.as_array().ok_or_else(|| wrong("archMap", "must be a list"))?;
        let own = listed.iter().find(|entry| {
            entry.get("architecture").and_then(Value::as_str) == Some(container.machine.token())
        });
        if let Some(entry) = own {
            let mut tokens = vec![Value::from(container.machine.token())];
            match entry.get("subArchitectures") {
                None | Some(Value::Null) => {}
                Some(Value::Array(others)) => tokens.extend(others.iter().cloned()),
                Some(_) => return Err(wrong("archMap.subArchitectures", "must be a list")),
            }
            resolved.insert("architectures".to_owned(), tokens.into());
        }
    }
    let rules = match fields.get("syscalls") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(rules)) => rules,
        Some(_) => return Err(wrong("syscalls", "must be a list")),
    };
    let mut kept = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let at = format!("syscalls[{index}]");
        let Some(fields) = rule.as_object() else { return Err(wrong(at, "must be an object")) };
        if applies(fields, container, &at)? {
            kept.push(plain(fields, &at)?);
        }
    }
    if !fields.get("syscalls").is_none_or(Value::is_null) {
        resolved.insert("syscalls".to_owned(), kept.into());
    }
    Ok(Value::Object(resolved))
}

/// The rule without its conditions on the container.
fn plain(rule: &Map<String, Value>, at: &str) -> Result<Value, DockerError> {
    let mut rule = rule.clone();
    rule.retain(|key, _| key != "includes" && key != "excludes" && key != "comment");
    if let Some(name) = rule.remove("name").filter(|name| name.as_str() != Some("")) {
        if rule.get("names").and_then(Value::as_array).is_some_and(|names| !names.is_empty()) {
            return Err(DockerError::Both { at: at.to_owned(), one: "name", other: "names" });
        }
        rule.insert("names".to_owned(), vec![name].into());
    }
    Ok(Value::Object(rule))
}

/// Conditions of one rule.
struct Conditions<'r> {
    architectures: Vec<&'r str>,
    capabilities: Vec<&'r str>,
    kernel: Option<KernelVersion>,
}

impl<'r> Conditions<'r> {
    fn read(rule: &'r Map<String, Value>, key: &str, at: &str) -> Result<Option<Self>, DockerError> {
        let at = format!("{at}.{key}");
        let fields = match rule.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(wrong(at, "must be an object")),
        };
        let names = |key: &str| match fields.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(names)) => names
                .iter()
                .map(|name| {
                    name.as_str().ok_or_else(|| wrong(format!("{at}.{key}"), "must be a list of strings"))
                })
                .collect(),
            Some(_) => Err(wrong(format!("{at}.{key}"), "must be a list of strings")),
        };
        let kernel = match fields.get("minKernel") {
            None | Some(Value::Null) => None,
            Some(version) => {
                let parts = version.as_str().and_then(|text| text.split_once('.'));
                // swallowed: the error below names the field
                let parsed =
                    parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
                Some(
                    parsed
                        .ok_or_else(|| wrong(format!("{at}.minKernel"), "must be a version such as 4.8"))?,
                )
            }
        };
        Ok(Some(Self { architectures: names("arches")?, capabilities: names("caps")?, kernel }))
    }
}

fn applies(rule: &Map<String, Value>, container: &Container, at: &str) -> Result<bool, DockerError> {
    let own = machine_names(container.machine);
    let is_own = |names: &[&str]| names.iter().any(|name| own.contains(name));
    let has = |capability: &&str| container.capabilities.contains(*capability);
    let is_at_least = |wanted: KernelVersion| container.kernel.is_none_or(|kernel| kernel >= wanted);
    if let Some(excludes) = Conditions::read(rule, "excludes", at)?
        && (is_own(&excludes.architectures)
            || excludes.capabilities.iter().any(has)
            || excludes.kernel.is_some_and(is_at_least))
    {
        return Ok(false);
    }
    let Some(includes) = Conditions::read(rule, "includes", at)? else { return Ok(true) };
    Ok((includes.architectures.is_empty() || is_own(&includes.architectures))
        && includes.capabilities.iter().all(has)
        && includes.kernel.is_none_or(is_at_least))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(capabilities: &[&str], machine: &str, kernel: Option<KernelVersion>) -> Container {
        Container {
            capabilities: capabilities.iter().map(|name| (*name).to_owned()).collect(),
            machine: Architecture::of_go(machine).unwrap(),
            kernel,
        }
    }

    #[test]
    fn rules_are_kept_for_the_containers_they_are_meant_for() {
        let rule = |includes: Value, excludes: Value| {
            json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
                {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": includes, "excludes": excludes, "comment": "x"}]})
        };
        for (case, profile, container, kept) in [
            ("no conditions", rule(json!({}), json!({})), container(&[], "amd64", None), true),
            (
                "has the capability",
                rule(json!({"caps": ["CAP_A"]}), json!(null)),
                container(&["CAP_A"], "amd64", None),
                true,
            ),
            (
                "lacks one of two",
                rule(json!({"caps": ["CAP_A", "CAP_B"]}), json!({})),
                container(&["CAP_A"], "amd64", None),
                false,
            ),
            (
                "excluded by one of two",
                rule(json!({}), json!({"caps": ["CAP_A", "CAP_B"]})),
                container(&["CAP_B"], "amd64", None),
                false,
            ),
            (
                "other machine",
                rule(json!({"arches": ["arm", "arm64"]}), json!({})),
                container(&[], "amd64", None),
                false,
            ),
            (
                "this machine",
                rule(json!({"arches": ["arm", "arm64"]}), json!({})),
                container(&[], "arm64", None),
                true,
            ),
            (
                "machine excluded",
                rule(json!({}), json!({"arches": ["s390x"]})),
                container(&[], "s390x", None),
                false,
            ),
            (
                "old kernel",
                rule(json!({"minKernel": "4.8"}), json!({})),
                container(&[], "amd64", Some((4, 7))),
                false,
            ),
            (
                "new kernel",
                rule(json!({"minKernel": "4.8"}), json!({})),
                container(&[], "amd64", Some((4, 10))),
                true,
            ),
            (
                "kernel excluded",
                rule(json!({}), json!({"minKernel": "4.8"})),
                container(&[], "amd64", Some((5, 0))),
                false,
            ),
        ] {
            let resolved = resolve(&profile, &container).unwrap();
            let rules = resolved["syscalls"].as_array().unwrap();
            assert_eq!(rules.len(), usize::from(kept), "{case}");
            assert!(!is_docker_form(&resolved), "{case}");
        }
    }

    #[test]
    fn the_map_of_architectures_gives_those_of_the_machine() {
        let profile = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"name": "read", "action": "SCMP_ACT_ALLOW"}],
            "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]},
                        {"architecture": "SCMP_ARCH_RISCV64", "subArchitectures": null}]});
        for (machine, expected) in [
            ("amd64", json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"])),
            ("riscv64", json!(["SCMP_ARCH_RISCV64"])),
            ("arm64", json!(null)),
        ] {
            let resolved = resolve(&profile, &container(&[], machine, None)).unwrap();
            assert_eq!(resolved.get("architectures").cloned().unwrap_or_default(), expected, "{machine}");
            assert_eq!(resolved["syscalls"][0]["names"], json!(["read"]));
        }
    }

    #[test]
    fn what_docker_rejects_is_an_error() {
        for (profile, expected) in [
            (json!([]), ": a profile is a JSON object"),
            (
                json!({"archMap": [{}], "architectures": ["SCMP_ARCH_X86"]}),
                "the profile: both \"architectures\" and \"archMap\" are set: Docker rejects the profile",
            ),
            (
                json!({"syscalls": [{"name": "a", "names": ["b"]}]}),
                "syscalls[0]: both \"name\" and \"names\" are set: Docker rejects the profile",
            ),
            (json!({"syscalls": [{"includes": []}]}), "syscalls[0].includes: must be an object"),
            (
                json!({"syscalls": [{"includes": {"caps": [1]}}]}),
                "syscalls[0].includes.caps: must be a list of strings",
            ),
            (
                json!({"syscalls": [{"excludes": {"minKernel": "new"}}]}),
                "syscalls[0].excludes.minKernel: must be a version such as 4.8",
            ),
            (json!({"syscalls": {}}), "syscalls: must be a list"),
        ] {
            assert_eq!(resolve(&profile, &container(&[], "amd64", None)).unwrap_err().to_string(), expected);
        }
    }
}
