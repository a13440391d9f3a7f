//! The standards as admission policies that an API server evaluates itself.
//!
//! Implements: Pod Security Admission as ValidatingAdmissionPolicy objects. The rules come from the checks, the kinds with pod
//! templates from the model, the reading of labels from [`Policy::from_labels`](super::policy::Policy::from_labels).
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>
//!
//! Leaves to others: how the objects are printed, and where they are applied.

use palisade_base::version::NEWEST_MINOR;
use palisade_model::{compat::Compat, workload::WORKLOADS};
use serde_json::{Value, json};
use thiserror::Error;

use super::{
    cel::{self, CelRules},
    checks::CHECKS,
    evaluator::{Check, CheckVersion, Options, rules},
    level::{Level, LevelVersion},
    policy::Mode,
};
use crate::exceptions::{
    cel::{CelExceptions, ExceptionExportError},
    object::SecurityException,
};

/// The first release that serves ValidatingAdmissionPolicy as `v1`.
pub const OLDEST_RELEASE: u16 = 30;
/// The first release that serves MutatingAdmissionPolicy as `v1beta1`, and the first with `v1`.
const MUTATING_SINCE: (u16, u16) = (34, 36);
/// The first release that loads policies from files.
const STATIC_SINCE: u16 = 36;
/// The end of the names of objects that an API server loads from files.
const STATIC_SUFFIX: &str = ".static.k8s.io";
/// The end of the names of all other objects.
const SUFFIX: &str = ".palisade.dev";
const GROUP: &str = "admissionregistration.k8s.io";
/// What an API server accepts of a message, with a margin for characters of several bytes.
const MESSAGE_CHARACTERS: usize = 5_000;

/// Why no policies are exported.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportError {
    /// Nothing is forbidden.
    #[error(
        "level privileged forbids nothing: choose baseline or restricted, or follow the labels of namespaces"
    )]
    NothingForbidden,
    /// The release has no such policies, or this program does not know it.
    #[error(
        "Kubernetes v1.{0} does not serve ValidatingAdmissionPolicy v1: supported versions are v1.{OLDEST_RELEASE} to v1.{NEWEST_MINOR}"
    )]
    Release(u16),
    /// The release has no policies that change objects.
    #[error("Kubernetes v1.{0} does not serve MutatingAdmissionPolicy: defaults need v1.{since} or later", since = MUTATING_SINCE.0)]
    NoMutation(u16),
    /// The release loads no policies from files.
    #[error("Kubernetes v1.{0} does not load policies from files: that needs v1.{STATIC_SINCE} or later")]
    NoFiles(u16),
    /// Defaults are what one level requires.
    #[error(
        "defaults are what level restricted requires: choose it, without following the labels of namespaces"
    )]
    DefaultsOfLevel,
    /// An exception says more than expressions can decide.
    #[error(transparent)]
    Exception(#[from] ExceptionExportError),
}

/// What to export.
#[derive(Debug, Clone)]
pub struct PolicyExport {
    /// The level and version that apply; where labels are followed, to namespaces without labels.
    pub policy: LevelVersion,
    /// Whether the labels of a namespace decide about its level and version.
    pub follows_labels: bool,
    /// The release of the API server, `v1.<minor>`.
    pub kubernetes: u16,
    /// A label selector that chooses namespaces.
    pub namespace_selector: Option<Value>,
    /// Namespaces that are never judged.
    pub exempt_namespaces: Vec<String>,
    /// Users whose requests are never judged.
    pub exempt_users: Vec<String>,
    /// Runtime classes whose pods are never judged.
    pub exempt_runtime_classes: Vec<String>,
    /// Whether pods get the values that the level requires where they have none.
    pub defaults: bool,
    /// Whether the objects are loaded from files.
    pub is_static: bool,
    /// What is accepted in new pods, for whom and until when.
    pub exceptions: Vec<SecurityException>,
}

impl PolicyExport {
    /// Every namespace, as a release judges it by a level.
    #[must_use]
    pub const fn new(policy: LevelVersion, kubernetes: u16) -> Self {
        Self {
            policy,
            follows_labels: false,
            kubernetes,
            namespace_selector: None,
            exempt_namespaces: Vec::new(),
            exempt_users: Vec::new(),
            exempt_runtime_classes: Vec::new(),
            defaults: false,
            is_static: false,
            exceptions: Vec::new(),
        }
    }

    /// The objects: each policy, followed by its binding.
    pub fn objects(&self) -> Result<Vec<Value>, ExportError> {
        if !(OLDEST_RELEASE..=NEWEST_MINOR).contains(&self.kubernetes) {
            return Err(ExportError::Release(self.kubernetes));
        }
        if self.policy.level == Level::Privileged && !self.follows_labels {
            return Err(ExportError::NothingForbidden);
        }
        if self.is_static && self.kubernetes < STATIC_SINCE {
            return Err(ExportError::NoFiles(self.kubernetes));
        }
        let mut objects = Vec::new();
        if self.defaults {
            if self.kubernetes < MUTATING_SINCE.0 {
                return Err(ExportError::NoMutation(self.kubernetes));
            }
            if self.policy.level != Level::Restricted || self.follows_labels {
                return Err(ExportError::DefaultsOfLevel);
            }
            objects.extend(self.mutating());
        }
        let (pods, templates) = (Subjects::Pods, Subjects::Templates);
        if self.follows_labels {
            let name = |mode: Mode| format!("pod-security-labels-{}", mode.as_str());
            objects.extend(self.validating(&name(Mode::Enforce), Mode::Enforce, pods, &["Deny"])?);
            for (mode, action) in [(Mode::Audit, "Audit"), (Mode::Warn, "Warn")] {
                let name = name(mode);
                objects.extend(self.validating(&format!("{name}-pods"), mode, pods, &[action])?);
                objects.extend(self.validating(&format!("{name}-workloads"), mode, templates, &[action])?);
            }
        } else {
            let name = format!("pod-security-{}-{}", self.policy.level, self.policy.version);
            objects.extend(self.validating(&name, Mode::Enforce, pods, &["Deny"])?);
            let workloads = format!("{name}-workloads");
            objects.extend(self.validating(&workloads, Mode::Warn, templates, &["Warn", "Audit"])?);
        }
        Ok(objects)
    }

    fn name(&self, name: &str) -> String {
        format!("{name}{}", if self.is_static { STATIC_SUFFIX } else { SUFFIX })
    }

    fn metadata(&self, name: &str) -> Value {
        json!({
            "name": self.name(name),
            "labels": {"app.kubernetes.io/name": "palisade", "app.kubernetes.io/managed-by": "palisade"},
        })
    }

    /// The minor version of the standards by which the release judges.
    fn minor(&self) -> u16 {
        self.policy.version.clamp(self.kubernetes)
    }

    fn validating(
        &self,
        name: &str,
        mode: Mode,
        subjects: Subjects,
        actions: &[&str],
    ) -> Result<[Value; 2], ExportError> {
        let options = Options::of(&Compat::kubernetes(self.kubernetes));
        let mut rules = CelRules::new(options, subjects.pod());
        let shown = if self.follows_labels {
            self.define_labels(&mut rules, mode);
            "variables.level + ':' + variables.version".to_owned()
        } else {
            cel::text(&self.policy.to_string())
        };
        let exceptions =
            CelExceptions { exceptions: &self.exceptions, templates: subjects == Subjects::Templates };
        let found = if self.follows_labels {
            labelled(&mut rules, exceptions)?
        } else {
            self.fixed(&mut rules, exceptions)?
        };
        let mut exempt = Vec::new();
        if self.follows_labels {
            exempt.push("variables.level == 'privileged'".to_owned());
        }
        if !self.exempt_runtime_classes.is_empty() {
            let classes: Vec<&str> = self.exempt_runtime_classes.iter().map(String::as_str).collect();
            exempt.push(format!("variables.spec.?runtimeClassName.orValue('') in {}", cel::list(&classes)));
        }
        let violations = format!("[{}].filter(v, v != '')", found.join(", "));
        let violations = match exempt.as_slice() {
            [] => violations,
            exempt => format!("{} ? [] : {violations}", exempt.join(" || ")),
        };
        rules.define("violations", violations);
        let verb = if mode == Mode::Enforce { "violates" } else { "would violate" };
        let message = format!("'{verb} PodSecurity \"' + {shown} + '\": ' + variables.violations.join(', ')");
        rules.define("message", message);
        let cut = MESSAGE_CHARACTERS - 3;
        let message = format!(
            "size(variables.message) > {MESSAGE_CHARACTERS} ? variables.message.substring(0, {cut}) + '...' : variables.message"
        );
        let fallback = if self.follows_labels {
            format!("{verb} PodSecurity")
        } else {
            format!("{verb} PodSecurity \"{}\"", self.policy)
        };
        let variables = rules.into_variables();
        let variables: Vec<Value> =
            variables.iter().map(|(name, value)| json!({"name": name, "expression": value})).collect();
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": subjects.rules()},
            "variables": variables,
            "validations": [{
                "expression": "size(variables.violations) == 0",
                "message": fallback,
                "messageExpression": message,
                "reason": "Forbidden",
            }],
        });
        let conditions = self.match_conditions(subjects);
        if !conditions.is_empty() {
            spec["matchConditions"] = Value::Array(conditions);
        }
        let mut binding = json!({"policyName": self.name(name), "validationActions": actions});
        if let Some(resources) = self.bound_namespaces() {
            binding["matchResources"] = resources;
        }
        let version = format!("{GROUP}/v1");
        Ok([
            json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": self.metadata(name), "spec": spec}),
            json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": self.metadata(name), "spec": binding}),
        ])
    }

    fn match_conditions(&self, subjects: Subjects) -> Vec<Value> {
        let mut conditions = Vec::new();
        if !self.exempt_users.is_empty() {
            let users: Vec<&str> = self.exempt_users.iter().map(String::as_str).collect();
            let expression = format!("!(request.userInfo.username in {})", cel::list(&users));
            conditions.push(json!({"name": "user-is-not-exempt", "expression": expression}));
        }
        if subjects == Subjects::Pods {
            conditions.push(json!({"name": "update-is-significant", "expression": SIGNIFICANT}));
        }
        conditions
    }

    /// Where a binding applies; `None`: everywhere.
    fn bound_namespaces(&self) -> Option<Value> {
        let mut selector = self.namespace_selector.clone().unwrap_or_else(|| json!({}));
        if !self.exempt_namespaces.is_empty() {
            let exempt = json!({
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": self.exempt_namespaces,
            });
            match selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
                Some(expressions) => expressions.push(exempt),
                None => selector["matchExpressions"] = json!([exempt]),
            }
        }
        selector
            .as_object()
            .is_some_and(|fields| !fields.is_empty())
            .then(|| json!({"namespaceSelector": selector}))
    }

    /// The rules of one level and version.
    fn fixed(&self, found: &mut CelRules, exceptions: CelExceptions<'_>) -> Result<Vec<String>, ExportError> {
        rules(self.policy.level, self.minor())
            .map(|(check, version)| rule(check.id, check, version, found, exceptions))
            .collect()
    }

    /// Level and version by the labels of the namespace, as Pod Security Admission reads them.
    fn define_labels(&self, rules: &mut CelRules, mode: Mode) {
        rules.define("labels", "namespaceObject.metadata.?labels.orValue({})".to_owned());
        let level = |mode: Mode, otherwise: &str| {
            let label = cel::text(mode.level_label());
            let invalid = if mode == Mode::Enforce { Level::Restricted } else { Level::Privileged };
            format!(
                "{label} in variables.labels ? (variables.labels[{label}] in {LEVELS} ? variables.labels[{label}] : \
                 '{invalid}') : {otherwise}"
            )
        };
        let version = |mode: Mode, otherwise: &str| {
            let label = cel::text(mode.version_label());
            format!(
                "{label} in variables.labels ? (variables.labels[{label}].matches('{VERSION}') ? variables.labels[{label}] : \
                 'latest') : {otherwise}"
            )
        };
        let default_level = cel::text(self.policy.level.as_str());
        let default_version = cel::text(&self.policy.version.to_string());
        if mode == Mode::Warn {
            // A level that is enforced is also warned about where it is not enforced, if it is stricter.
            let label = cel::text(Mode::Enforce.level_label());
            let own = cel::text(Mode::Warn.level_label());
            rules.define("enforced", format!("variables.labels[?{label}].orValue('')"));
            rules.define(
                "inherits",
                format!(
                    "!({own} in variables.labels) && variables.enforced in {LEVELS} && \
                     {LEVELS}.indexOf(variables.enforced) > {LEVELS}.indexOf({default_level})"
                ),
            );
            rules.define("enforcedVersion", version(Mode::Enforce, &default_version));
            let otherwise = format!("(variables.inherits ? variables.enforced : {default_level})");
            rules.define("level", level(Mode::Warn, &otherwise));
            let otherwise = format!("(variables.inherits ? variables.enforcedVersion : {default_version})");
            rules.define("version", version(Mode::Warn, &otherwise));
        } else {
            rules.define("level", level(mode, &default_level));
            rules.define("version", version(mode, &default_version));
        }
        rules.define(
            "minor",
            format!(
                "variables.version.startsWith('v1.') && size(variables.version) <= 12 ? \
                 int(variables.version.substring(3)) : {}",
                self.kubernetes
            ),
        );
    }

    /// The values that the level requires, for pods that have none.
    fn mutating(&self) -> [Value; 2] {
        let name = format!("pod-security-{}-{}-defaults", self.policy.level, self.policy.version);
        let version = if self.kubernetes >= MUTATING_SINCE.1 { "v1" } else { "v1beta1" };
        let version = format!("{GROUP}/{version}");
        let mut conditions = self.match_conditions(Subjects::Templates);
        conditions.push(json!({
            "name": "is-for-linux",
            "expression": "object.spec.?os.?name.orValue('') != 'windows'",
        }));
        if !self.exempt_runtime_classes.is_empty() {
            let classes: Vec<&str> = self.exempt_runtime_classes.iter().map(String::as_str).collect();
            conditions.push(json!({
                "name": "runtime-class-is-not-exempt",
                "expression": format!("!(object.spec.?runtimeClassName.orValue('') in {})", cel::list(&classes)),
            }));
        }
        let patches: Vec<Value> = self
            .defaults()
            .into_iter()
            .map(|expression| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}))
            .collect();
        let spec = json!({
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]},
            "matchConditions": conditions,
            "mutations": patches,
        });
        let mut binding = json!({"policyName": self.name(&name)});
        if let Some(resources) = self.bound_namespaces() {
            binding["matchResources"] = resources;
        }
        [
            json!({"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": self.metadata(&name), "spec": spec}),
            json!({"apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": self.metadata(&name), "spec": binding}),
        ]
    }

    /// One list of patches for each value; an empty list where there is a value. Each sees what those before it changed.
    fn defaults(&self) -> Vec<String> {
        let minor = self.minor();
        let required = |id: &str| rules(Level::Restricted, minor).any(|(check, _)| check.id == id);
        let mut patches = vec![
            "has(object.spec.securityContext) ? [] : \
             [JSONPatch{op: 'add', path: '/spec/securityContext', value: Object.spec.securityContext{}}]"
                .to_owned(),
        ];
        let of_pod = |condition: &str, field: &str, value: &str| {
            format!(
                "{condition} ? [JSONPatch{{op: 'add', path: '/spec/securityContext/{field}', value: {value}}}] : []"
            )
        };
        if required("runAsNonRoot") {
            let condition = "!has(object.spec.securityContext.runAsNonRoot)";
            // A pod with its own user namespace may run as root from the version on in which the check has a second version.
            let relaxed = CHECKS.iter().filter(|check| check.id == "runAsNonRoot");
            let relaxed =
                relaxed.filter_map(|check| check.versions.get(1)).any(|version| version.since <= minor);
            let condition = if relaxed {
                format!("{condition} && object.spec.?hostUsers.orValue(true)")
            } else {
                condition.to_owned()
            };
            patches.push(of_pod(&condition, "runAsNonRoot", "true"));
        }
        if required("seccompProfile_restricted") {
            patches.push(of_pod(
                "!has(object.spec.securityContext.seccompProfile)",
                "seccompProfile",
                "Object.spec.securityContext.seccompProfile{type: 'RuntimeDefault'}",
            ));
        }
        let escalation = required("allowPrivilegeEscalation");
        let capabilities = required("capabilities_restricted");
        for list in ["initContainers", "containers"] {
            let each = |condition: &str, at: &str, value: &str| {
                format!(
                    "object.spec.?{list}.orValue([]).transformList(i, c, {condition}, \
                     JSONPatch{{op: 'add', path: '/spec/{list}/' + string(i) + '/{at}', value: {value}}})"
                )
            };
            let context = format!("Object.spec.{list}.securityContext");
            if escalation || capabilities {
                patches.push(each("!has(c.securityContext)", "securityContext", &format!("{context}{{}}")));
            }
            if escalation {
                // An API server rejects a privileged container that may not escalate.
                patches.push(each(
                    "!has(c.securityContext.allowPrivilegeEscalation) && !c.securityContext.?privileged.orValue(false)",
                    "securityContext/allowPrivilegeEscalation",
                    "false",
                ));
            }
            if capabilities {
                patches.push(each(
                    "!has(c.securityContext.capabilities)",
                    "securityContext/capabilities",
                    &format!("{context}.capabilities{{drop: ['ALL']}}"),
                ));
                patches.push(each(
                    "!has(c.securityContext.capabilities.drop)",
                    "securityContext/capabilities/drop",
                    "['ALL']",
                ));
            }
        }
        patches
    }
}

/// The levels from the weakest to the strictest, as a list.
const LEVELS: &str = "['privileged', 'baseline', 'restricted']";
/// A version that has a number. What is longer than the number of any release is the latest, and so is what cannot be read.
const VERSION: &str = "^v1[.](0|[1-9][0-9]*)$";

/// Whether an update of a pod is one that Pod Security Admission evaluates: other images, or other containers.
const SIGNIFICANT: &str = "request.operation != 'UPDATE' || \
    object.spec.containers.map(c, c.?image.orValue('')) != oldObject.spec.containers.map(c, c.?image.orValue('')) || \
    object.spec.?initContainers.orValue([]).map(c, c.?image.orValue('')) != \
    oldObject.spec.?initContainers.orValue([]).map(c, c.?image.orValue('')) || \
    !object.spec.?ephemeralContainers.orValue([]).all(c, oldObject.spec.?ephemeralContainers.orValue([]).exists(o, \
    o.name == c.name && o.?image.orValue('') == c.?image.orValue('')))";

/// What a policy judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subjects {
    /// Pods, and the containers that are added to them.
    Pods,
    /// The templates of the kinds that make pods.
    Templates,
}

impl Subjects {
    /// The expression of the pod or template. It is dynamic: the three lists of containers have different types.
    const fn pod(self) -> &'static str {
        match self {
            Self::Pods => "dyn(object)",
            Self::Templates => {
                "request.kind.kind == 'PodTemplate' ? dyn(object).?template.orValue({}) : \
                 request.kind.kind == 'CronJob' ? dyn(object).?spec.?jobTemplate.?spec.?template.orValue({}) : \
                 dyn(object).?spec.?template.orValue({})"
            }
        }
    }

    fn rules(self) -> Vec<Value> {
        let operations = ["CREATE", "UPDATE"];
        if self == Self::Pods {
            return vec![json!({
                "apiGroups": [""], "apiVersions": ["v1"], "operations": operations,
                "resources": ["pods", "pods/ephemeralcontainers"],
            })];
        }
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        // The group `extensions` is no longer served; requests for it are equivalent to those for `apps`.
        let kinds = WORKLOADS
            .iter()
            .filter(|kind| kind.built_in && !kind.path.is_empty() && kind.group != "extensions");
        for kind in kinds {
            match groups.iter_mut().find(|(group, _)| *group == kind.group) {
                Some((_, resources)) => resources.push(kind.resource),
                None => groups.push((kind.group, vec![kind.resource])),
            }
        }
        groups
            .into_iter()
            .map(|(group, resources)| {
                json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": resources})
            })
            .collect()
    }
}

/// The rules of every level and version, of which `variables.level` and `variables.minor` choose.
fn labelled(found: &mut CelRules, exceptions: CelExceptions<'_>) -> Result<Vec<String>, ExportError> {
    let newest = found.options().newest;
    CHECKS
        .iter()
        .map(|check| {
            let baseline = chain(check, Level::Baseline, newest, found, exceptions)?;
            let restricted = chain(check, Level::Restricted, newest, found, exceptions)?;
            let rule = if baseline == restricted {
                restricted
            } else {
                format!("variables.level == 'restricted' ? ({restricted}) : ({baseline})")
            };
            Ok(found.define(check.id, rule))
        })
        .collect()
}

/// The variable with the rule of a version of a check, without what exceptions accept.
fn rule(
    name: &str,
    check: &Check,
    version: &CheckVersion,
    found: &mut CelRules,
    exceptions: CelExceptions<'_>,
) -> Result<String, ExportError> {
    let rule = (version.cel)(found);
    let rule = found.define(name, rule);
    let Some(remaining) = exceptions.remaining(found, check, version)? else { return Ok(rule) };
    Ok(found.define(&format!("{name}_remaining"), format!("{rule} != '' && ({remaining}) ? {rule} : ''")))
}

/// The rule of one check at a level, by version.
fn chain(
    check: &Check,
    level: Level,
    newest: u16,
    found: &mut CelRules,
    exceptions: CelExceptions<'_>,
) -> Result<String, ExportError> {
    let version_at =
        |minor: u16| rules(level, minor).find(|(found, _)| found.id == check.id).map(|(_, version)| version);
    let mut steps: Vec<(u16, Option<&CheckVersion>)> = Vec::new();
    for minor in 0..=newest {
        let version = version_at(minor);
        let same = steps.last().is_some_and(|(_, last)| last.map(|v| v.since) == version.map(|v| v.since));
        if !same {
            steps.push((minor, version));
        }
    }
    let mut branches = Vec::with_capacity(steps.len());
    for (index, (minor, version)) in steps.iter().enumerate().rev() {
        let rule = match version {
            None => "''".to_owned(),
            Some(version) => {
                let name = format!("{}_v1_{}", check.id, version.since);
                rule(&name, check, version, found, exceptions)?
            }
        };
        branches.push(if index == 0 { rule } else { format!("variables.minor >= {minor} ? {rule} : ") });
    }
    Ok(branches.concat())
}
