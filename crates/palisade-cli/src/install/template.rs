//! One text for two readers: manifests for `kubectl apply`, and templates of the Helm chart.
//!
//! Templates are YAML with comments and placeholders: `${path}` is a value; lines that begin with `#@` are
//! directives, of which there are few:
//!
//! | directive | means |
//! | --- | --- |
//! | `if PATH` … `else` … `end` | only if the value is true |
//! | `elsewhere` … `end` | only if the namespace is not palisade-system |
//! | `since N` … `end`, `before N` … `end` | only for API servers of v1.N and later, or earlier |
//! | `with KEY PATH` | the field KEY with the value, left out if that is empty |
//! | `merge PATH` | the entries of the value, at this indentation |
//! | `include FILE` | the file, at this indentation, as it is |
//!
//! What others render later, such as `{{ $labels.name }}` of an alert, is quoted for Helm.

use std::fmt::Write as _;

use palisade_yaml::to_yaml;
use serde_json::Value;

/// Who reads the result.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// `kubectl apply`.
    Manifests(&'a Choices),
    /// `helm template`.
    Chart,
}

/// What was chosen for plain manifests.
#[derive(Debug, Clone)]
pub struct Choices {
    /// The values, as in the chart's `values.yaml`.
    pub values: Value,
    /// Where it all goes.
    pub namespace: String,
    /// The image, with its tag.
    pub image: String,
    /// The minor release of the oldest API server that must understand it.
    pub minor: u16,
}

/// What a template can include.
const FILES: &[(&str, &str)] =
    &[("grafana-dashboard.json", include_str!("../../manifests/grafana-dashboard.json"))];

/// The namespace that leases and the global configuration are in, wherever the components run.
pub const COORDINATION: &str = palisade_policy::enforcement::instances::NAMESPACE;

impl Choices {
    fn value(&self, path: &str) -> &Value {
        path.split('.').fold(&self.values, |value, key| value.get(key).unwrap_or(&Value::Null))
    }

    fn scalar(&self, path: &str) -> String {
        match path {
            "namespace" => self.namespace.clone(),
            "image" => self.image.clone(),
            path => match self.value(path) {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            },
        }
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Number(_) => true,
    }
}

/// Renders a template.
#[must_use]
pub fn render(template: &str, target: Target<'_>) -> String {
    let mut out = String::new();
    // Whether the text of each open condition counts.
    let mut open: Vec<bool> = Vec::new();
    for line in template.lines() {
        let rest = line.trim_start();
        let indent = line.len() - rest.len();
        let Some(directive) = rest.strip_prefix("#@") else {
            if open.iter().all(|counts| *counts) {
                substitute(line, target, &mut out);
                out.push('\n');
            }
            continue;
        };
        let words: Vec<&str> = directive.split_whitespace().collect();
        if let ["include", name] = words.as_slice() {
            let text = FILES.iter().find(|(file, _)| file == name).map_or("", |(_, text)| text);
            if open.iter().all(|counts| *counts) {
                for line in text.lines() {
                    out.push_str(&" ".repeat(indent));
                    literal(line, target, &mut out);
                    out.push('\n');
                }
            }
            continue;
        }
        match target {
            Target::Chart => chart_directive(&words, indent, &mut out),
            Target::Manifests(choices) => {
                let holds = |condition: bool, open: &mut Vec<bool>| open.push(condition);
                match words.as_slice() {
                    ["if", path] => holds(is_true(choices.value(path)), &mut open),
                    ["elsewhere"] => holds(choices.namespace != COORDINATION, &mut open),
                    ["since", minor] => {
                        holds(minor.parse().is_ok_and(|minor: u16| choices.minor >= minor), &mut open);
                    }
                    ["before", minor] => {
                        holds(minor.parse().is_ok_and(|minor: u16| choices.minor < minor), &mut open);
                    }
                    ["else"] => {
                        if let Some(last) = open.last_mut() {
                            *last = !*last;
                        }
                    }
                    ["end"] => drop(open.pop()),
                    ["with", key, path] if open.iter().all(|counts| *counts) => {
                        let value = choices.value(path);
                        if is_true(value) {
                            out.push_str(&" ".repeat(indent));
                            out.push_str(key);
                            out.push_str(":\n");
                            out.push_str(&to_yaml(value, if value.is_array() { indent } else { indent + 2 }));
                        }
                    }
                    ["merge", path] if open.iter().all(|counts| *counts) => {
                        let value = choices.value(path);
                        if is_true(value) {
                            out.push_str(&to_yaml(value, indent));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    out
}

fn substitute(line: &str, target: Target<'_>, out: &mut String) {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((path, after)) = after.split_once('}') else { break };
        literal(before, target, out);
        match target {
            Target::Manifests(choices) => out.push_str(&choices.scalar(path)),
            Target::Chart => {
                let _ = match path {
                    "namespace" => write!(out, "{{{{ .Release.Namespace }}}}"),
                    "image" => write!(
                        out,
                        "{{{{ .Values.image.repository }}}}:{{{{ .Values.image.tag | default .Chart.AppVersion }}}}"
                    ),
                    path => write!(out, "{{{{ .Values.{path} }}}}"),
                };
            }
        }
        rest = after;
    }
    literal(rest, target, out);
}

/// Text that is no placeholder.
fn literal(text: &str, target: Target<'_>, out: &mut String) {
    match target {
        Target::Manifests(_) => out.push_str(text),
        Target::Chart => out.push_str(&text.replace("{{", "{{ \"{{\" }}")),
    }
}

fn chart_directive(words: &[&str], indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    let version = ".Capabilities.KubeVersion.Version";
    let _ = match words {
        ["if", path] => writeln!(out, "{pad}{{{{- if .Values.{path} }}}}"),
        ["elsewhere"] => writeln!(out, "{pad}{{{{- if ne .Release.Namespace {COORDINATION:?} }}}}"),
        ["since", minor] => writeln!(out, "{pad}{{{{- if semverCompare \">=1.{minor}.0-0\" {version} }}}}"),
        ["before", minor] => writeln!(out, "{pad}{{{{- if semverCompare \"<1.{minor}.0-0\" {version} }}}}"),
        ["else"] => writeln!(out, "{pad}{{{{- else }}}}"),
        ["end"] => writeln!(out, "{pad}{{{{- end }}}}"),
        ["with", key, path] => writeln!(
            out,
            "{pad}{{{{- with .Values.{path} }}}}\n{pad}{key}:\n{pad}  {{{{- toYaml . | nindent {} }}}}\n{pad}{{{{- end }}}}",
            indent + 2
        ),
        ["merge", path] => writeln!(
            out,
            "{pad}{{{{- with .Values.{path} }}}}\n{pad}{{{{- toYaml . | nindent {indent} }}}}\n{pad}{{{{- end }}}}"
        ),
        _ => Ok(()),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEMPLATE: &str = "a: ${x.name} {{ $later }}\n#@if x.on\nb: 1\n#@else\nb: 2\n#@end\n#@since 30\nnew: true\n#@end\nspec:\n  #@with list x.list\n  #@with gone x.gone\n  #@merge x.more\n";

    #[test]
    fn manifests_have_values_and_charts_have_expressions() {
        let values = json!({"x": {"name": "n", "on": false, "list": [{"a": 1, "b": "c"}], "gone": {}, "more": {"k": "v w"}}});
        let choices = Choices { values, namespace: "ns".into(), image: "i".into(), minor: 24 };
        assert_eq!(
            render(TEMPLATE, Target::Manifests(&choices)),
            "a: n {{ $later }}\nb: 2\nspec:\n  list:\n  - a: 1\n    b: c\n  k: v w\n"
        );
        insta::assert_snapshot!(render(TEMPLATE, Target::Chart), @r#"
        a: {{ .Values.x.name }} {{ "{{" }} $later }}
        {{- if .Values.x.on }}
        b: 1
        {{- else }}
        b: 2
        {{- end }}
        {{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}
        new: true
        {{- end }}
        spec:
          {{- with .Values.x.list }}
          list:
            {{- toYaml . | nindent 4 }}
          {{- end }}
          {{- with .Values.x.gone }}
          gone:
            {{- toYaml . | nindent 4 }}
          {{- end }}
          {{- with .Values.x.more }}
          {{- toYaml . | nindent 2 }}
          {{- end }}
        "#);
    }
}
