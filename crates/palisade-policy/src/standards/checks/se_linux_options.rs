//! A pod may choose among the container types of SELinux, and no user or role.
//!
//! Implements: Pod Security Standards, Baseline, "SELinux".

use palisade_base::field_path::FieldPath;
use palisade_model::security_context::SeLinuxOptions;

use super::super::cel::{self, CONTAINERS, CelRules, POD_CONTEXT};
use super::{Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, called, message};

pub(super) static CHECK: Check = Check {
    id: "seLinuxOptions",
    level: Level::Baseline,
    title: "SELinux",
    why: "other types, users and roles are confined less than containers are",
    versions: &[
        CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: |rules| cel_rule(rules, SINCE_V1_0) },
        CheckVersion { since: 31, overrides: &[], run: since_v1_31, cel: |rules| cel_rule(rules, TYPES) },
    ],
};

/// In the order they were allowed; the first is no type at all.
const TYPES: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
const SINCE_V1_0: &[&str] = TYPES.split_at(4).0;

/// The types that a version of the check allows.
pub(in crate::standards) const fn types_since(since: u16) -> &'static [&'static str] {
    if since < 31 { SINCE_V1_0 } else { TYPES }
}

fn since_v1_0(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    evaluate(pod, options, SINCE_V1_0)
}

fn since_v1_31(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    evaluate(pod, options, TYPES)
}

fn evaluate(pod: &PodView<'_, '_>, options: Options, types: &[&str]) -> Option<Violation> {
    let mut found = Found { types: Vec::new(), user: false, role: false, findings: Vec::new() };
    let of_pod = pod.security_context().and_then(|context| context.se_linux_options.as_ref());
    let pod_offends = of_pod.is_some_and(|options| {
        let path = || pod.path(&["spec", "securityContext", "seLinuxOptions"]);
        found.look(options, types, path, || "pod".to_owned(), None)
    });
    let mut offenders = Vec::new();
    for container in pod.containers() {
        let options = container.security_context().and_then(|context| context.se_linux_options.as_ref());
        let Some(options) = options else { continue };
        let path = || container.path(pod).fields(&["securityContext", "seLinuxOptions"]);
        if found.look(options, types, path, || called(&container), Some(container.name())) {
            offenders.push(container.name());
        }
    }
    if found.findings.is_empty() {
        return None;
    }
    let types = message::sorted_unique(found.types);
    let mut data = Vec::with_capacity(3);
    if !types.is_empty() {
        data.push(format!("{} {}", message::plural("type", "types", types.len()), message::quoted(&types)));
    }
    // v1.24 and before reported users and roles only together with a type.
    let reports_all = options.newest >= 25 || !types.is_empty();
    if found.user && reports_all {
        data.push("user may not be set".to_owned());
    }
    if found.role && reports_all {
        data.push("role may not be set".to_owned());
    }
    let detail = format!(
        "{} set forbidden securityContext.seLinuxOptions: {}",
        message::setters(pod_offends, &offenders),
        data.join("; ")
    );
    Some(Violation {
        check: CHECK.id,
        reason: "seLinuxOptions",
        detail,
        findings: found.findings,
        masked: Vec::new(),
    })
}

struct Found<'p> {
    types: Vec<&'p str>,
    user: bool,
    role: bool,
    findings: Vec<Finding>,
}

impl<'p> Found<'p> {
    fn look(
        &mut self,
        options: &'p SeLinuxOptions<'_>,
        types: &[&str],
        path: impl Fn() -> FieldPath,
        who: impl Fn() -> String,
        container: Option<&str>,
    ) -> bool {
        let before = self.findings.len();
        let mut add = |field: &'static str, value: &str, allowed: &'static str| {
            let path = path().field(field);
            self.findings.push(Finding {
                path: path.clone(),
                container: container.map(str::to_owned),
                value: Some(value.to_owned()),
                summary: format!("{} sets the SELinux {field} {value}", who()),
                allowed,
                remedy: Remedy::remove(path),
            });
        };
        let kind = options.kind.as_str();
        if !types.contains(&kind) {
            self.types.push(kind);
            add(
                "type",
                kind,
                "container_t, container_init_t, container_kvm_t (from v1.31 on container_engine_t), or no value",
            );
        }
        if !options.user.is_empty() {
            self.user = true;
            add("user", &options.user, "no value");
        }
        if !options.role.is_empty() {
            self.role = true;
            add("role", &options.role, "no value");
        }
        self.findings.len() > before
    }
}

fn cel_rule(rules: &mut CelRules, types: &[&str]) -> String {
    let bad_type = format!("!(o.?type.orValue('') in {})", cel::list(types));
    let set = |field: &str| format!("o.?{field}.orValue('') != ''");
    let bad = |context: &str| {
        format!(
            "{context}.?seLinuxOptions.optMap(o, {bad_type} || {} || {}).orValue(false)",
            set("user"),
            set("role")
        )
    };
    let pod = rules.define("seLinuxPod", bad(POD_CONTEXT));
    let names = rules.names_where("seLinuxContainers", &bad("c.?securityContext"));
    let given = rules.define(
        "seLinuxGiven",
        format!(
            "({POD_CONTEXT}.?seLinuxOptions.hasValue() ? [{POD_CONTEXT}.seLinuxOptions] : []) + \
             {CONTAINERS}.map(c, c.?securityContext.?seLinuxOptions.hasValue(), c.securityContext.seLinuxOptions)"
        ),
    );
    let found = rules.sorted_unique(&format!("{given}.map(o, {bad_type}, o.type)"));
    let found = rules.define("seLinuxTypes", found);
    let detail = format!(
        "{} + ' set forbidden securityContext.seLinuxOptions: ' + ((size({found}) > 0 ? [{} + {}] : []) + \
         ({given}.exists(o, {}) ? ['user may not be set'] : []) + ({given}.exists(o, {}) ? ['role may not be set'] : []))\
         .join('; ')",
        cel::setters(&pod, &names),
        cel::plural("type ", "types ", &found),
        cel::quoted(&found),
        set("user"),
        set("role")
    );
    cel::violation(&format!("{pod} || {}", cel::some(&names)), "seLinuxOptions", &detail)
}
