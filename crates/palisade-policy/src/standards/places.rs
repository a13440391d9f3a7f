//! Where each check finds something, in CEL: what an exported policy needs to leave out the findings that an exception names.
//!
//! The rule of a check is one text about the whole pod. An exception names a field and a value, so its policy needs the places
//! one by one: each is a condition, with the path and the value that [`Finding`](super::finding::Finding) has there. The places of a
//! check are all of its findings and no fewer, those that another one masks included: a place too many rejects more, one that is
//! missing would admit what no exception names. `exported_exceptions.rs` of the tests on
//! a real cluster compares them with the findings in every fixture.

use palisade_model::{
    profile::{apparmor, seccomp},
    volume::VolumeSource,
};

use super::{
    cel::{self, POD_CONTEXT},
    checks::{
        app_armor_profile, capabilities_baseline, capabilities_restricted, host_namespaces,
        host_probes_and_host_lifecycle, proc_mount, restricted_volumes, se_linux_options,
        seccomp_profile_baseline, sysctls,
    },
    evaluator::Options,
};

/// What the path of a place begins with, and whose finding it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A field of the pod, which concerns all its containers.
    Pod,
    /// A field of each container of each list, `c` in the expressions.
    Containers,
    /// Annotations, `k` in the expressions: the list of their keys, and what stands before the name of a container in a key.
    Annotations { keys: String, prefix: &'static str },
}

/// Findings of one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) scope: Scope,
    /// The list whose elements are judged, `x` in the expressions; none: the field itself.
    pub(crate) elements: Option<String>,
    /// Whether there is a finding.
    pub(crate) bad: String,
    /// The paths it can have.
    pub(crate) variants: Vec<Variant>,
}

/// A path that a finding can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variant {
    /// From the root of the pod, or from the container; `[*]` stands for a position. Empty for annotations.
    pub(crate) path: String,
    /// Whether it is this path, where there are several.
    pub(crate) guard: Option<String>,
    /// The value of the finding, an expression of a text; none if it has no value.
    pub(crate) value: Option<String>,
}

impl Variant {
    fn of(path: &str, value: Option<&str>) -> Self {
        Self { path: path.to_owned(), guard: None, value: value.map(str::to_owned) }
    }
}

impl Place {
    fn of(scope: Scope, bad: &str, path: &str, value: Option<&str>) -> Self {
        Self { scope, elements: None, bad: bad.to_owned(), variants: vec![Variant::of(path, value)] }
    }

    fn pod(bad: &str, path: &str, value: Option<&str>) -> Self {
        Self::of(Scope::Pod, bad, path, value)
    }

    fn container(bad: &str, path: &str, value: Option<&str>) -> Self {
        Self::of(Scope::Containers, bad, path, value)
    }

    fn among(self, elements: &str) -> Self {
        Self { elements: Some(elements.to_owned()), ..self }
    }
}

/// The places of a version of a check.
pub(crate) fn places(check: &str, since: u16, options: Options) -> Vec<Place> {
    match check {
        "appArmorProfile" => app_armor(),
        "capabilities_baseline" => vec![added(capabilities_baseline::ALLOWED)],
        "hostNamespaces" => host_namespaces::FIELDS
            .iter()
            .map(|field| {
                let bad = format!("variables.spec.?{field}.orValue(false)");
                Place::pod(&bad, &format!("spec.{field}"), Some("'true'"))
            })
            .collect(),
        "hostPathVolumes" => vec![
            Place::pod("has(x.hostPath)", "spec.volumes[*].hostPath", Some(HOST_PATH))
                .among("variables.volumes"),
        ],
        "hostPorts" => vec![
            Place::container("x.?hostPort.orValue(0) != 0", "ports[*].hostPort", Some("string(x.hostPort)"))
                .among("c.?ports.orValue([])"),
        ],
        "hostProbesAndHostLifecycle" => probes(),
        "privileged" => vec![Place::container(
            "c.?securityContext.?privileged.orValue(false)",
            "securityContext.privileged",
            Some("'true'"),
        )],
        "procMount" | "procMount_restricted" => {
            let bad = format!(
                "c.?securityContext.?procMount.orValue({allowed}) != {allowed}",
                allowed = cel::text(proc_mount::ALLOWED)
            );
            vec![Place::container(&bad, "securityContext.procMount", Some("c.securityContext.procMount"))]
        }
        "seLinuxOptions" => se_linux(se_linux_options::types_since(since)),
        "seccompProfile_baseline" if since < 19 => seccomp_annotations(),
        "seccompProfile_baseline" => seccomp_profiles(options),
        "sysctls" => {
            let bad = format!("!(x.name in {})", cel::list(sysctls::allowed_since(since)));
            let list = format!("{POD_CONTEXT}.?sysctls.orValue([])");
            vec![Place::pod(&bad, "spec.securityContext.sysctls[*].name", Some("x.name")).among(&list)]
        }
        "windowsHostProcess" => {
            let bad = |context: &str| format!("{context}.?windowsOptions.?hostProcess.orValue(false)");
            let path = "securityContext.windowsOptions.hostProcess";
            vec![
                Place::pod(&bad(POD_CONTEXT), &format!("spec.{path}"), Some("'true'")),
                Place::container(&bad("c.?securityContext"), path, Some("'true'")),
            ]
        }
        "allowPrivilegeEscalation" => {
            const FIELD: &str = "c.?securityContext.?allowPrivilegeEscalation";
            let path = "securityContext.allowPrivilegeEscalation";
            vec![
                Place::container(&format!("{FIELD}.orValue(false)"), path, Some("'true'")),
                Place::container(&format!("!{FIELD}.hasValue()"), path, None),
            ]
        }
        "capabilities_restricted" => vec![
            Place::container(
                "!('ALL' in c.?securityContext.?capabilities.?drop.orValue([]))",
                "securityContext.capabilities.drop",
                None,
            ),
            added(capabilities_restricted::ALLOWED),
        ],
        "restrictedVolumes" => vec![volumes(options)],
        "runAsNonRoot" => {
            let path = "securityContext.runAsNonRoot";
            let unset = format!(
                "!{POD_CONTEXT}.?runAsNonRoot.hasValue() && \
                 variables.containers.exists(c, !c.?securityContext.?runAsNonRoot.hasValue())"
            );
            let refused = |context: &str| format!("!{context}.?runAsNonRoot.orValue(true)");
            vec![
                Place::pod(&refused(POD_CONTEXT), &format!("spec.{path}"), Some("'false'")),
                Place::container(&refused("c.?securityContext"), path, Some("'false'")),
                Place::pod(&unset, &format!("spec.{path}"), None),
            ]
        }
        "runAsUser" => {
            let root = |context: &str| format!("{context}.?runAsUser.orValue(1) == 0");
            let path = "securityContext.runAsUser";
            vec![
                Place::pod(&root(POD_CONTEXT), &format!("spec.{path}"), Some("'0'")),
                Place::container(&root("c.?securityContext"), path, Some("'0'")),
            ]
        }
        "seccompProfile_restricted" => {
            let unset = format!(
                "!{POD_CONTEXT}.?seccompProfile.hasValue() && \
                 variables.containers.exists(c, !c.?securityContext.?seccompProfile.hasValue())"
            );
            let mut places = seccomp_profiles(options);
            places.push(Place::pod(&unset, "spec.securityContext.seccompProfile.type", None));
            places
        }
        // A check without places is violated by every pod that its rule forbids.
        _ => vec![Place { scope: Scope::Pod, elements: None, bad: "true".to_owned(), variants: Vec::new() }],
    }
}

/// The path of a `hostPath` volume.
const HOST_PATH: &str = "x.hostPath.?path.orValue('')";

fn added(allowed: &[&str]) -> Place {
    let bad = format!("!(x in {})", cel::list(allowed));
    Place::container(&bad, "securityContext.capabilities.add[*]", Some("x"))
        .among("c.?securityContext.?capabilities.?add.orValue([])")
}

fn app_armor() -> Vec<Place> {
    let bad = |context: &str| {
        format!("{context}.optMap(p, !(p.?type.orValue('') in {})).orValue(false)", app_armor_types())
    };
    let of_pod = format!("{POD_CONTEXT}.?appArmorProfile");
    let value = |profile: &str| format!("{profile}.?type.orValue('')");
    let path = "securityContext.appArmorProfile.type";
    let annotations = Place {
        scope: Scope::Annotations {
            keys: format!(
                "variables.annotations.filter(k, k.startsWith({}))",
                cel::text(apparmor::ANNOTATION_PREFIX)
            ),
            prefix: apparmor::ANNOTATION_PREFIX,
        },
        elements: None,
        bad: app_armor_profile::cel_bad_annotation("variables.annotations[k]"),
        variants: vec![Variant::of("", Some("variables.annotations[k]"))],
    };
    vec![
        Place::pod(&bad(&of_pod), &format!("spec.{path}"), Some(&value(&of_pod))),
        Place::container(
            &bad("c.?securityContext.?appArmorProfile"),
            path,
            Some(&value("c.securityContext.appArmorProfile")),
        ),
        annotations,
    ]
}

fn app_armor_types() -> String {
    cel::list(app_armor_profile::ALLOWED_TYPES)
}

fn probes() -> Vec<Place> {
    let mut places = Vec::new();
    for fields in host_probes_and_host_lifecycle::HANDLERS {
        for action in host_probes_and_host_lifecycle::ACTIONS {
            let value = format!("c.?{}.?{action}.?host.orValue('')", fields.join(".?"));
            let path = format!("{}.{action}.host", fields.join("."));
            places.push(Place::container(&format!("{value} != ''"), &path, Some(&value)));
        }
    }
    places
}

fn se_linux(types: &[&str]) -> Vec<Place> {
    let mut places = Vec::new();
    for field in ["type", "user", "role"] {
        let value = |context: &str| format!("{context}.?seLinuxOptions.?{field}.orValue('')");
        let bad = |context: &str| match field {
            "type" => format!("!({} in {})", value(context), cel::list(types)),
            _ => format!("{} != ''", value(context)),
        };
        let path = format!("securityContext.seLinuxOptions.{field}");
        let (pod, container) = (POD_CONTEXT, "c.?securityContext");
        places.push(Place::pod(&bad(pod), &format!("spec.{path}"), Some(&value(pod))));
        places.push(Place::container(&bad(container), &path, Some(&value(container))));
    }
    places
}

fn seccomp_annotations() -> Vec<Place> {
    let keys = format!(
        "([{}] + variables.containers.map(c, {} + c.name)).filter(k, k in variables.annotations)",
        cel::text(seccomp::POD_ANNOTATION),
        cel::text(&seccomp::container_annotation(""))
    );
    vec![Place {
        scope: Scope::Annotations { keys, prefix: seccomp::CONTAINER_ANNOTATION_PREFIX },
        elements: None,
        bad: seccomp_profile_baseline::cel_bad_annotation("variables.annotations[k]"),
        variants: vec![Variant::of("", Some("variables.annotations[k]"))],
    }]
}

fn seccomp_profiles(options: Options) -> Vec<Place> {
    let bad = |context: &str| {
        format!("{}.orValue(false)", seccomp_profile_baseline::cel_profile_where(context, true, options))
    };
    let path = "securityContext.seccompProfile.type";
    let value = |context: &str| format!("{context}.?seccompProfile.?type.orValue('')");
    let (pod, container) = (POD_CONTEXT, "c.?securityContext");
    vec![
        Place::pod(&bad(pod), &format!("spec.{path}"), Some(&value(pod))),
        Place::container(&bad(container), path, Some(&value(container))),
    ]
}

fn volumes(options: Options) -> Place {
    // An API server evaluates policies after validation, so that a volume has one source.
    let variants = restricted_volumes::forbidden().map(|source| Variant {
        path: format!("spec.volumes[*].{}", source.as_str()),
        guard: Some(format!("has(x.{})", source.as_str())),
        value: (source == VolumeSource::HostPath).then(|| HOST_PATH.to_owned()),
    });
    Place {
        scope: Scope::Pod,
        elements: Some("variables.volumes".to_owned()),
        bad: restricted_volumes::cel_is_bad("x", options),
        variants: variants.collect(),
    }
}
