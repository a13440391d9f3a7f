//! What a security field comes to, container by container, and which line decides it: `explain` for the place of the cursor.

use std::fmt::Write as _;

use palisade_model::{compat::Compat, workload::read_template};
use palisade_yaml::{Limits, NodeRef, Span, Step, parse};

use crate::{
    commands::explain::{Container, containers},
    manifest::{Object, objects},
    source_map::Source,
};

/// A pod may have hundreds of containers; a window for them is of no use.
const MOST_CONTAINERS: usize = 8;

/// What is shown, and for which part of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hovered {
    pub(super) markdown: String,
    pub(super) span: Span,
}

/// Which rows of which containers are meant.
#[derive(Debug, PartialEq, Eq)]
struct Focus<'p> {
    /// One of the containers of a list; all if the pod is meant.
    container: Option<(&'p str, usize)>,
    /// The fields; all that something sets, if there are none.
    fields: Vec<&'p str>,
}

/// Explains the field at a place.
pub(super) fn hover(text: &str, offset: usize, compat: &Compat) -> Option<Hovered> {
    let parsed = parse(text, &Limits::default());
    let source = Source::new(text);
    for document in &parsed.documents {
        for object in objects(document) {
            let Some(workload) = object.workload else { continue };
            let Some((path, span)) = path_at(object.node, offset) else { continue };
            let template = without_prefix(&path, workload.path)?;
            let focus = focus(template)?;
            // What cannot be read is reported, and explained by that.
            let Ok(Some(pod)) = read_template(object.node, workload.path) else { return None };
            let name = container_name(&object, workload.path, focus.container);
            let found = containers(pod, &object, workload, &source, name.as_deref(), compat);
            let markdown = markdown(&found.containers, &focus)?;
            return Some(Hovered { markdown, span });
        }
    }
    None
}

fn container_name(object: &Object<'_>, prefix: &[&str], container: Option<(&str, usize)>) -> Option<String> {
    let (list, index) = container?;
    let template = prefix.iter().try_fold(object.node, |node, field| node.get(field))?;
    let item = template.get("spec")?.get(list)?.target().item(index)?;
    item.get("name").and_then(NodeRef::as_str).map(str::to_owned)
}

/// The path of the deepest key or item whose text has the offset in it, and where that key or value is.
pub(super) fn path_at(root: NodeRef<'_>, offset: usize) -> Option<(Vec<Step<'_>>, Span)> {
    let within = |span: Span| span.start <= offset && offset <= span.end;
    let mut node = root;
    let mut path = Vec::new();
    let mut place = None;
    // Depth is bounded by the reader; what an alias stands for is written elsewhere.
    while within(node.span()) {
        if node.target().id() != node.id() {
            break;
        }
        let mut next = None;
        for (index, item) in node.items().enumerate() {
            if within(item.span()) {
                next = Some((Step::Index(index), item, item.span()));
            }
        }
        if let Some(entry) = entry_at(node, offset) {
            next = Some(entry);
        }
        let Some((step, value, span)) = next else { break };
        path.push(step);
        place = Some(span);
        if !within(value.span()) {
            break;
        }
        node = value;
    }
    place.map(|place| (path, place))
}

/// The entry of a mapping that has an offset in its key or value.
fn entry_at(node: NodeRef<'_>, offset: usize) -> Option<(Step<'_>, NodeRef<'_>, Span)> {
    let within = |span: Span| span.start <= offset && offset <= span.end;
    let written = node.entries().into_iter().filter(|entry| entry.merge.is_none());
    written.into_iter().find_map(|entry| {
        let (key, value) = (entry.key_node.span(), entry.value.span());
        // The space between a key and its value belongs to both.
        let is_here = within(Span::new(key.start, key.end.max(value.end)));
        let is_scalar = entry.value.as_scalar().is_some() && !value.is_empty();
        let span = if is_scalar { Span::new(key.start, value.end.max(key.end)) } else { key };
        is_here.then_some((Step::Key(entry.key_node.as_str()?), entry.value, span))
    })
}

fn without_prefix<'p, 's>(path: &'p [Step<'s>], prefix: &[&str]) -> Option<&'p [Step<'s>]> {
    let begins =
        prefix.iter().zip(path).all(|(field, step)| *step == Step::Key(field)) && path.len() > prefix.len();
    begins.then(|| path.get(prefix.len()..)).flatten()
}

/// Fields of a pod that are settings of each container.
const OF_POD: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace"];

fn focus<'p>(template: &'p [Step<'_>]) -> Option<Focus<'p>> {
    let fields = |rest: &'p [Step<'_>]| match rest.first() {
        Some(Step::Key(field)) => related(field),
        _ => Vec::new(),
    };
    match template {
        [Step::Key("metadata"), Step::Key("annotations"), Step::Key(key), ..] => {
            let field = if key.contains("seccomp") {
                "seccompProfile"
            } else if key.contains("apparmor") {
                "appArmorProfile"
            } else {
                return None;
            };
            Some(Focus { container: None, fields: vec![field] })
        }
        [Step::Key("spec"), Step::Key("securityContext"), rest @ ..] => {
            Some(Focus { container: None, fields: fields(rest) })
        }
        [Step::Key("spec"), Step::Key(field), ..] if OF_POD.contains(field) => {
            Some(Focus { container: None, fields: vec![field] })
        }
        [
            Step::Key("spec"),
            Step::Key(list @ ("containers" | "initContainers" | "ephemeralContainers")),
            Step::Index(index),
            rest @ ..,
        ] => {
            let container = Some((*list, *index));
            match rest {
                [Step::Key("name"), ..] => Some(Focus { container, fields: Vec::new() }),
                [Step::Key("securityContext"), rest @ ..] => Some(Focus { container, fields: fields(rest) }),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The rows that a field decides about.
fn related(field: &str) -> Vec<&str> {
    match field {
        "allowPrivilegeEscalation" => vec!["allowPrivilegeEscalation", "noNewPrivs"],
        "procMount" => vec!["procMount", "maskedPaths", "readonlyPaths"],
        "windowsOptions" => {
            vec!["windowsOptions.runAsUserName", "windowsOptions.hostProcess", "windowsOptions.gmsa"]
        }
        field => vec![field],
    }
}

fn markdown(containers: &[Container], focus: &Focus<'_>) -> Option<String> {
    let mut text = String::new();
    let wanted =
        |container: &&Container| focus.container.is_none_or(|(list, _)| container.kind.field() == list);
    let matching: Vec<&Container> = containers.iter().filter(wanted).collect();
    for container in matching.iter().take(MOST_CONTAINERS) {
        let is_wanted = |field: &str| focus.fields.contains(&field);
        let rows: Vec<_> = container
            .rows
            .iter()
            .filter(|row| if focus.fields.is_empty() { row.set } else { is_wanted(row.field) })
            .collect();
        if rows.is_empty() && !focus.fields.is_empty() {
            continue;
        }
        let _ = writeln!(text, "**{} {}**\n", kind_name(container), code(&container.name));
        if rows.is_empty() {
            text.push_str("no security setting is set\n\n");
        } else {
            text.push_str("| field | effective value | decided by |\n| --- | --- | --- |\n");
        }
        for row in rows {
            let line = row.line.map_or_else(String::new, |line| format!(", line {line}"));
            let (value, from) = (code(&row.value), cell(&row.from));
            let _ = writeln!(text, "| {} | {value} | {from}{line} |", row.field);
        }
        text.push('\n');
        if focus.fields.is_empty() {
            for note in &container.notes {
                let _ = writeln!(text, "{}\n", cell(note));
            }
        }
    }
    if matching.len() > MOST_CONTAINERS && !text.is_empty() {
        let _ = writeln!(text, "and {} more containers", matching.len() - MOST_CONTAINERS);
    }
    (!text.is_empty()).then_some(text)
}

fn kind_name(container: &Container) -> &'static str {
    match container.kind.field() {
        "initContainers" => "init container",
        "ephemeralContainers" => "ephemeral container",
        _ => "container",
    }
}

/// A text in a table: what the manifest contains must not become markup.
fn cell(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '|' | '<' | '>' | '[' | ']' | '`' | '*' | '_' => escaped.extend(['\\', character]),
            '\n' | '\r' => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A value as code, in a table.
fn code(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|character| match character {
            '`' => '\'',
            '|' => '¦',
            '\n' | '\r' => ' ',
            other => other,
        })
        .collect();
    format!("`{plain}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata:
      annotations:
        seccomp.security.alpha.kubernetes.io/pod: runtime/default
    spec:
      hostNetwork: true
      securityContext:
        runAsUser: 1000
      initContainers:
        - name: setup
          image: x
      containers:
        - name: web
          image: nginx
          securityContext:
            runAsUser: 2000
            privileged: true
";

    fn at(text: &str, place: &str) -> Option<Hovered> {
        hover(text, text.find(place).unwrap(), &Compat::kubernetes(30))
    }

    #[test]
    fn a_field_shows_what_each_container_gets_and_why() {
        for (case, place, expected) in [
            (
                "of a container",
                "runAsUser: 2000",
                &[
                    "container `web`",
                    "| runAsUser | `2000` | container's securityContext.runAsUser, line 20 |",
                ][..],
            ),
            (
                "of the pod",
                "runAsUser: 1000",
                &[
                    "init container `setup`",
                    "| runAsUser | `1000` | pod's securityContext.runAsUser, line 12 |",
                    "`2000`",
                ],
            ),
            ("a value", "1000", &["| runAsUser | `1000` |"]),
            ("of the node", "hostNetwork", &["| hostNetwork | `true` | pod's hostNetwork, line 10 |"]),
            (
                "a container",
                "name: web\n          image",
                &["| privileged | `true` |", "| runAsUser | `2000` |"],
            ),
            ("an annotation", "seccomp.security", &["| seccompProfile |"]),
        ] {
            let found = at(POD, place).unwrap_or_else(|| panic!("{case}")).markdown;
            for text in expected {
                assert!(found.contains(text), "{case}: {text} in\n{found}");
            }
        }
        for (case, place) in [("the image", "nginx"), ("the kind", "Deployment"), ("no template", "web}")] {
            assert_eq!(at(POD, place), None, "{case}");
        }
    }

    #[test]
    fn what_a_manifest_contains_is_no_markup() {
        let text = POD.replace("name: web\n", "name: \"a`|<b>](c)\"\n");
        let found = at(&text, "runAsUser: 2000").map(|found| found.markdown).unwrap_or_default();
        assert!(found.contains("`a'¦<b>](c)`"), "{found}");
        assert_eq!(cell("a|b<c>`"), "a\\|b\\<c\\>\\`");
    }

    #[test]
    fn aliases_lists_and_broken_texts_have_no_panic() {
        for text in [
            "",
            "a",
            "- a\n- b\n",
            "apiVersion: v1\nkind: Pod\nspec: &s\n  containers: [{name: a, securityContext: {privileged: tr",
            "apiVersion: v1\nkind: Pod\nspec: {containers: [&c {name: a}, *c], securityContext: {runAsUser: x}}\n",
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  spec: {hostPID: true, containers: [{name: a}]}\n",
        ] {
            for offset in 0..=text.len() {
                let _ = hover(text, offset, &Compat::kubernetes(30));
            }
        }
        let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: p}\n  spec: {hostPID: true, containers: [{name: a}]}\n";
        assert!(
            at(list, "hostPID").unwrap().markdown.contains("| hostPID | `true` | pod's hostPID, line 7 |")
        );
    }
}
