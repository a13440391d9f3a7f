//! Completion of security fields and their values.
//!
//! While a text is typed it is rarely YAML, so that the place of the cursor is found by lines and indentation alone. Which fields there
//! are is decided by the schema of the release (`palisade-apimachinery`); which of them are about security, by the tables here.

use lsp_types::{CompletionItem, CompletionItemKind, Documentation};
use palisade_apimachinery::schema::{Type, TypeKind, TypeRef, builtin};
use palisade_base::version::KubeVersion;
use palisade_model::{
    compat::Compat,
    workload::{WorkloadKind, workload_kind},
};
use palisade_node::kernel::process::CAPABILITIES;

/// A step from the root of the document to the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Key(String),
    Item,
}

/// What is typed at the cursor.
#[derive(Debug, PartialEq, Eq)]
enum Typing {
    /// The name of a field.
    Field,
    /// The value of a field, which is the last key of the path.
    Value,
}

/// The place of the cursor.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    path: Vec<Segment>,
    typing: Typing,
    api_version: String,
    kind: String,
}

/// Types of which every field is about security.
const WHOLE: [&str; 8] = [
    "SecurityContext",
    "PodSecurityContext",
    "Capabilities",
    "SeccompProfile",
    "AppArmorProfile",
    "SELinuxOptions",
    "WindowsSecurityContextOptions",
    "Sysctl",
];

/// Types of which some fields are.
const PARTS: [(&str, &[&str]); 3] = [
    (
        "PodSpec",
        &[
            "securityContext",
            "hostNetwork",
            "hostPID",
            "hostIPC",
            "hostUsers",
            "shareProcessNamespace",
            "automountServiceAccountToken",
        ],
    ),
    ("Container", &["securityContext"]),
    ("EphemeralContainer", &["securityContext"]),
];

/// The values of fields of a type, the one that the standards want first.
const VALUES: [(&str, &str, &[&str]); 20] = [
    ("SecurityContext", "runAsNonRoot", &["true", "false"]),
    ("SecurityContext", "allowPrivilegeEscalation", &["false", "true"]),
    ("SecurityContext", "privileged", &["false", "true"]),
    ("SecurityContext", "readOnlyRootFilesystem", &["true", "false"]),
    ("SecurityContext", "procMount", &["Default", "Unmasked"]),
    ("PodSecurityContext", "runAsNonRoot", &["true", "false"]),
    ("PodSecurityContext", "fsGroupChangePolicy", &["OnRootMismatch", "Always"]),
    ("PodSecurityContext", "supplementalGroupsPolicy", &["Strict", "Merge"]),
    ("PodSecurityContext", "seLinuxChangePolicy", &["MountOption", "Recursive"]),
    ("SeccompProfile", "type", &["RuntimeDefault", "Localhost", "Unconfined"]),
    ("AppArmorProfile", "type", &["RuntimeDefault", "Localhost", "Unconfined"]),
    ("WindowsSecurityContextOptions", "hostProcess", &["false", "true"]),
    ("SELinuxOptions", "type", &["container_t", "container_init_t", "container_kvm_t"]),
    ("PodSpec", "hostNetwork", &["false", "true"]),
    ("PodSpec", "hostPID", &["false", "true"]),
    ("PodSpec", "hostIPC", &["false", "true"]),
    ("PodSpec", "hostUsers", &["false", "true"]),
    ("PodSpec", "shareProcessNamespace", &["false", "true"]),
    ("PodSpec", "automountServiceAccountToken", &["false", "true"]),
    ("Capabilities", "drop", &["ALL"]),
];

/// What fields are for, where their names do not show it.
const ABOUT: [(&str, &str); 14] = [
    ("runAsNonRoot", "The kubelet starts no container as user 0. The restricted level requires true."),
    ("runAsUser", "The user of the processes. The restricted level does not allow 0."),
    (
        "allowPrivilegeEscalation",
        "Whether programs with a set-user-ID bit gain rights. The restricted level requires false.",
    ),
    ("privileged", "A privileged container is root on the node. The baseline level does not allow it."),
    ("capabilities", "The restricted level requires `drop: [ALL]` and allows to add NET_BIND_SERVICE alone."),
    (
        "seccompProfile",
        "The system calls that the kernel allows. The restricted level requires RuntimeDefault or Localhost.",
    ),
    ("appArmorProfile", "The AppArmor profile. The baseline level does not allow Unconfined."),
    ("procMount", "The baseline level allows Default alone."),
    ("hostNetwork", "Whether the pod has the network of the node. The baseline level does not allow it."),
    ("hostPID", "Whether the pod sees the processes of the node. The baseline level does not allow it."),
    ("hostIPC", "Whether the pod has the IPC namespace of the node. The baseline level does not allow it."),
    ("hostUsers", "With false, the pod has a user namespace: root in it is no user of the node."),
    ("readOnlyRootFilesystem", "Whether the root file system of the container is mounted read-only."),
    (
        "localhostProfile",
        "The path of the profile below the folder of the kubelet, or the name of a loaded AppArmor profile.",
    ),
];

/// What may be written at a place.
pub(super) fn completions(
    text: &str,
    offset: usize,
    is_values: bool,
    compat: &Compat,
) -> Vec<CompletionItem> {
    let Some(place) = place(text, offset) else { return Vec::new() };
    let release = compat.api;
    let Some(found) = (if is_values { of_values(&place) } else { of_manifest(&place) }) else {
        return Vec::new();
    };
    match place.typing {
        Typing::Field => fields(found, release),
        Typing::Value => values(found, &place.path, compat),
    }
}

/// The type that a path of a manifest leads to; for a value, the one that has the field.
fn of_manifest(place: &Place) -> Option<TypeRef<'static>> {
    let workload = workload_kind(&place.api_version, &place.kind)?;
    let is_below = |(segment, field): (&Segment, &&str)| matches!(segment, Segment::Key(key) if key == field);
    if place.path.len() < workload.path.len() || !place.path.iter().zip(workload.path).all(is_below) {
        return None;
    }
    let rest = place.path.get(workload.path.len()..)?;
    walk(root(workload)?, parents(rest, &place.typing))
}

fn root(workload: &WorkloadKind) -> Option<TypeRef<'static>> {
    named(if workload.path.is_empty() { "core.Pod" } else { "core.PodTemplateSpec" })
}

/// The same for values of a chart, whose authors name contexts as Kubernetes does.
fn of_values(place: &Place) -> Option<TypeRef<'static>> {
    let (at, name) = place.path.iter().enumerate().rev().find_map(|(at, segment)| match segment {
        Segment::Key(key) if key.to_lowercase().ends_with("securitycontext") => Some((at, key)),
        _ => None,
    })?;
    let of_pod = name.to_lowercase().contains("pod");
    let root = named(if of_pod { "core.PodSecurityContext" } else { "core.SecurityContext" })?;
    let rest = place.path.get(at + 1..)?;
    walk(root, parents(rest, &place.typing))
}

fn named(name: &str) -> Option<TypeRef<'static>> {
    // The schema is static, and so must be the types that stand for its structs.
    static TYPES: std::sync::LazyLock<Vec<(&'static str, Type)>> = std::sync::LazyLock::new(|| {
        ["core.Pod", "core.PodTemplateSpec", "core.PodSecurityContext", "core.SecurityContext"]
            .into_iter()
            .filter_map(|name| {
                let (id, _) = builtin().by_name(name)?;
                Some((name, Type::plain(TypeKind::Struct { id, atomic: false })))
            })
            .collect()
    });
    let (_, ty) = TYPES.iter().find(|(known, _)| *known == name)?;
    Some(TypeRef { schema: builtin(), ty })
}

/// The path to the struct: without the field whose value is typed, and without the list that the value is an item of.
fn parents<'p>(path: &'p [Segment], typing: &Typing) -> &'p [Segment] {
    if *typing == Typing::Field {
        return path;
    }
    let keys = path.iter().rposition(|segment| matches!(segment, Segment::Key(_)));
    path.get(..keys.unwrap_or_default()).unwrap_or_default()
}

fn walk(root: TypeRef<'static>, path: &[Segment]) -> Option<TypeRef<'static>> {
    path.iter().try_fold(root, |ty, segment| match segment {
        Segment::Key(key) => ty.member(key),
        Segment::Item => ty.item(),
    })
}

fn fields(ty: TypeRef<'static>, release: KubeVersion) -> Vec<CompletionItem> {
    let Some(of) = ty.as_struct() else { return Vec::new() };
    let name = of.short_name();
    let part = PARTS.iter().find(|(known, _)| *known == name).map(|(_, fields)| *fields);
    let is_offered = |field: &str| match part {
        Some(fields) => fields.contains(&field),
        None => WHOLE.contains(&name),
    };
    let offered = of.fields.iter().filter(|field| is_offered(&field.name) && field.exists_in(release));
    offered
        .map(|field| {
            let nested = matches!(
                field.ty.kind,
                TypeKind::Struct { .. } | TypeKind::List { .. } | TypeKind::Map { .. }
            );
            let about = ABOUT.iter().find(|(known, _)| *known == field.name);
            CompletionItem {
                label: field.name.to_string(),
                kind: Some(CompletionItemKind::FIELD),
                detail: Some(type_name(&field.ty).to_owned()),
                documentation: about.map(|(_, text)| Documentation::String((*text).to_owned())),
                insert_text: Some(format!("{}:{}", field.name, if nested { "" } else { " " })),
                ..CompletionItem::default()
            }
        })
        .collect()
}

fn type_name(ty: &Type) -> &'static str {
    match &ty.kind {
        TypeKind::Bool => "true or false",
        TypeKind::Int(_) => "a whole number",
        TypeKind::List { .. } => "a list",
        TypeKind::Struct { .. } | TypeKind::Map { .. } => "a mapping",
        _ => "a string",
    }
}

fn values(ty: TypeRef<'static>, path: &[Segment], compat: &Compat) -> Vec<CompletionItem> {
    let field = path.iter().rev().find_map(|segment| match segment {
        Segment::Key(key) => Some(key.as_str()),
        Segment::Item => None,
    });
    let (Some(of), Some(field)) = (ty.as_struct(), field) else { return Vec::new() };
    let name = of.short_name();
    if of.field(field).is_none_or(|field| !field.exists_in(compat.api)) {
        return Vec::new();
    }
    let known = VALUES.iter().find(|(of, known, _)| *of == name && *known == field);
    let mut found: Vec<&str> = known.map(|(_, _, values)| values.to_vec()).unwrap_or_default();
    if name == "SeccompProfile" && field == "type" && compat.gates.seccomp_config_maps {
        found.push("ConfigMap");
    }
    if name == "SeccompProfile" && field == "type" && compat.gates.security_profile_oci_artifact {
        found.push("OCI");
    }
    if name == "Capabilities" {
        let first: &[&str] = if field == "add" { &["NET_BIND_SERVICE"] } else { &[] };
        found.extend(first);
        found.extend(CAPABILITIES.iter().filter(|name| !first.contains(name)));
    }
    let item = |(index, value): (usize, &str)| CompletionItem {
        label: value.to_owned(),
        kind: Some(CompletionItemKind::VALUE),
        // In this order, not by name.
        sort_text: Some(format!("{index:03}")),
        ..CompletionItem::default()
    };
    found.into_iter().enumerate().map(item).collect()
}

/// A line as far as its structure matters.
struct Line<'t> {
    /// The columns of the dashes that begin items.
    dashes: Vec<usize>,
    /// The column of what follows them.
    column: usize,
    rest: &'t str,
}

fn structure(line: &str) -> Line<'_> {
    let mut dashes = Vec::new();
    let mut rest = line.trim_start_matches(' ');
    let mut column = line.len() - rest.len();
    while let Some(after) = rest.strip_prefix('-').filter(|after| after.is_empty() || after.starts_with(' '))
    {
        dashes.push(column);
        rest = after.trim_start_matches(' ');
        column = line.len() - rest.len();
    }
    Line { dashes, column, rest }
}

/// The key of `key: …`, without quotes, and what follows the colon.
fn key_of(rest: &str) -> Option<(&str, &str)> {
    let (key, value) = match rest.split_once(": ") {
        Some(found) => found,
        None => (rest.trim_end().strip_suffix(':')?, ""),
    };
    let is_plain = !key.is_empty() && !key.contains(['{', '[', '#', ' ']);
    is_plain.then(|| (key.trim_matches(['"', '\'']), value))
}

/// Finds the place of the cursor; `None` where nothing is known to be typed, such as in a comment.
fn place(text: &str, offset: usize) -> Option<Place> {
    let before = text.get(..offset)?;
    let line_start = before.rfind(['\n', '\r']).map_or(0, |at| at + 1);
    let current = before.get(line_start..)?;
    if current.trim_start().starts_with('#') || current.contains(" #") {
        return None;
    }
    // The document around the cursor.
    let is_separator = |line: &str| line.starts_with("---");
    let above: Vec<&str> =
        before.get(..line_start)?.lines().rev().take_while(|line| !is_separator(line)).collect();
    let below = text.get(offset..)?.lines().skip(1).take_while(|line| !is_separator(line));
    let root = |name: &str| {
        let mut lines = above.iter().copied().chain(below.clone());
        let value = lines.find_map(|line| key_of(line).filter(|(key, _)| *key == name))?.1;
        Some(value.split(" #").next()?.trim().trim_matches(['"', '\'']).to_owned())
    };
    let line = structure(current);
    let mut path = Vec::new();
    let typing = match key_of(line.rest) {
        Some((_, value)) if line.rest.ends_with(':') || value.trim_start().starts_with('{') => return None,
        Some((key, _)) => {
            path.push(Segment::Key(key.to_owned()));
            Typing::Value
        }
        None if line.rest.contains(['{', '[', ':', '"', '\'']) => return None,
        None => Typing::Field,
    };
    climb(&line, above.iter().copied(), &mut path);
    path.reverse();
    // `- NE` below `drop:` is a value of that list, and `- na` below `containers:` a field of an item.
    let typing = match (typing, path.last()) {
        (Typing::Field, Some(Segment::Item)) if is_list_of_scalars(&path) => Typing::Value,
        (typing, _) => typing,
    };
    let (api_version, kind) = (root("apiVersion").unwrap_or_default(), root("kind").unwrap_or_default());
    Some(Place { path, typing, api_version, kind })
}

fn is_list_of_scalars(path: &[Segment]) -> bool {
    let [.., Segment::Key(above), Segment::Key(list), Segment::Item] = path else { return false };
    above == "capabilities" && (list == "add" || list == "drop")
}

/// Collects the keys and items above a line, the closest first.
fn climb<'t>(line: &Line<'_>, above: impl Iterator<Item = &'t str>, path: &mut Vec<Segment>) {
    /// The column that a parent must be left of; the key of a list may have the column of its dashes.
    struct Bound {
        column: usize,
        may_be_equal: bool,
    }
    let mut bound = Bound { column: line.column, may_be_equal: false };
    let enter = |line: &Line<'_>, bound: &mut Bound, path: &mut Vec<Segment>| {
        for &dash in line.dashes.iter().rev() {
            if dash < bound.column || (bound.may_be_equal && dash == bound.column) {
                path.push(Segment::Item);
                *bound = Bound { column: dash, may_be_equal: true };
            }
        }
    };
    enter(line, &mut bound, path);
    for text in above {
        if bound.column == 0 && !bound.may_be_equal {
            return;
        }
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let line = structure(text);
        let is_parent = line.column < bound.column
            || (bound.may_be_equal && line.column == bound.column && line.dashes.is_empty());
        if is_parent {
            let Some((key, _)) = key_of(line.rest) else { return };
            path.push(Segment::Key(key.to_owned()));
            bound = Bound { column: line.column, may_be_equal: false };
            enter(&line, &mut bound, path);
        } else if line.dashes.first().is_some_and(|&dash| dash < bound.column) {
            // The first key of the item that the cursor is in has the column of its other keys.
            enter(&line, &mut bound, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n";

    /// Completes at `|`.
    fn labels(text: &str, is_values: bool, compat: &Compat) -> Vec<String> {
        let offset = text.find('|').unwrap();
        let text = text.replacen('|', "", 1);
        completions(&text, offset, is_values, compat).into_iter().map(|item| item.label).collect()
    }

    #[test]
    fn fields_and_values_of_security_are_offered_where_they_belong() {
        let pod = "apiVersion: v1\nkind: Pod\nspec:\n";
        for (case, text, expected) in [
            ("the pod", format!("{HEAD}      |"), &["hostNetwork", "hostUsers", "securityContext"][..]),
            (
                "its context",
                format!("{HEAD}      securityContext:\n        |"),
                &["runAsNonRoot", "fsGroup", "sysctls"],
            ),
            (
                "a container",
                format!("{HEAD}      containers:\n      - name: web\n        |"),
                &["securityContext"],
            ),
            (
                "the first key of a container",
                format!("{HEAD}      containers:\n        - |"),
                &["securityContext"],
            ),
            (
                "the second container",
                format!(
                    "{HEAD}      containers:\n      - name: a\n        image: b\n      - name: web\n        sec|"
                ),
                &["securityContext"],
            ),
            (
                "its context",
                format!(
                    "{HEAD}      containers:\n      - name: web\n        securityContext:\n          allow|"
                ),
                &["allowPrivilegeEscalation", "privileged"],
            ),
            (
                "after comments and empty lines",
                format!(
                    "{HEAD}      containers:\n      - name: web\n        # why\n\n        securityContext:\n          |"
                ),
                &["privileged"],
            ),
            (
                "a value",
                format!("{HEAD}      containers:\n      - securityContext:\n          privileged: |"),
                &["false", "true"],
            ),
            (
                "a value of a nested type",
                format!("{pod}  securityContext:\n    seccompProfile:\n      type: R|"),
                &["RuntimeDefault", "Localhost"],
            ),
            (
                "capabilities in a list",
                format!("{pod}  containers:\n  - securityContext:\n      capabilities:\n        drop: [|"),
                &["ALL", "NET_RAW"],
            ),
            (
                "capabilities as items",
                format!(
                    "{pod}  containers:\n  - securityContext:\n      capabilities:\n        add:\n        - NE|"
                ),
                &["NET_BIND_SERVICE"],
            ),
            (
                "what follows is broken",
                format!("{HEAD}      securityContext:\n        run|\n      containers: [{{\n"),
                &["runAsUser"],
            ),
            ("the kind is below", "spec:\n  host|\nkind: Pod\napiVersion: v1\n".to_owned(), &["hostPID"]),
            ("the second document", format!("a: {{\n---\n{pod}  host|"), &["hostPID"]),
        ] {
            let found = labels(&text, false, &Compat::kubernetes(37));
            for label in expected {
                assert!(found.iter().any(|found| found == label), "{case}: {label} in {found:?}");
            }
        }
    }

    #[test]
    fn nothing_is_offered_elsewhere() {
        for (case, text) in [
            ("another kind", "apiVersion: v1\nkind: ConfigMap\ndata:\n  |".to_owned()),
            ("no kind", "spec:\n  |".to_owned()),
            ("the root", "apiVersion: v1\nkind: Pod\n|".to_owned()),
            ("a comment", format!("{HEAD}      # |")),
            ("an image", format!("{HEAD}      containers:\n      - image: |")),
            ("beside the template", "apiVersion: apps/v1\nkind: Deployment\nspec:\n  |".to_owned()),
            ("labels", format!("{HEAD}      nodeSelector:\n        |")),
        ] {
            assert_eq!(labels(&text, false, &Compat::kubernetes(37)), [""; 0], "{case}");
        }
    }

    #[test]
    fn releases_and_extensions_differ() {
        let context = format!("{HEAD}      securityContext:\n        |");
        let has = |minor, field: &str| {
            labels(&context, false, &Compat::kubernetes(minor)).iter().any(|l| l == field)
        };
        assert!(!has(28, "appArmorProfile") && has(31, "appArmorProfile"));
        let profile = format!("{HEAD}      securityContext:\n        seccompProfile:\n          type: |");
        let mut compat = Compat::designs();
        compat.gates.seccomp_config_maps = true;
        assert!(labels(&profile, false, &compat).contains(&"ConfigMap".to_owned()));
        assert!(!labels(&profile, false, &Compat::kubernetes(37)).contains(&"ConfigMap".to_owned()));
    }

    #[test]
    fn values_of_charts_have_contexts_by_their_names() {
        for (case, text, expected) in [
            ("of a container", "web:\n  securityContext:\n    |", Some("privileged")),
            ("of a pod", "podSecurityContext:\n  |", Some("fsGroup")),
            ("by another name", "containerSecurityContext:\n  capabilities:\n    |", Some("drop")),
            ("a value", "securityContext:\n  runAsNonRoot: |", Some("true")),
            ("elsewhere", "image:\n  |", None),
        ] {
            let found = labels(text, true, &Compat::kubernetes(37));
            assert_eq!(
                found.iter().any(|label| Some(label.as_str()) == expected),
                expected.is_some(),
                "{case}: {found:?}"
            );
        }
    }

    #[test]
    fn no_place_of_any_text_has_a_panic() {
        for text in ["", "-", "- - -", ":", "a:", "😀: 漢\n  - é: {", "---\n---", "a: 'b\n\r\n- |\n   x"]
        {
            for offset in 0..=text.len() {
                let _ = completions(text, offset, false, &Compat::kubernetes(37));
                let _ = completions(text, offset, true, &Compat::kubernetes(37));
            }
        }
    }
}
