//! Content negotiation: what a client accepts, and what it sent.
//!
//! Implements: Kubernetes API Concepts, "Alternate representations of resources" and "Receiving resources as Tables".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>

use http::{HeaderMap, header};
use palisade_apimachinery::Status;

/// How the bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// JSON.
    #[default]
    Json,
    /// YAML.
    Yaml,
    /// Protobuf, for built-in kinds.
    Protobuf,
}

impl Encoding {
    /// The media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => super::reply::JSON,
            Self::Yaml => "application/yaml",
            Self::Protobuf => super::protobuf::MEDIA_TYPE,
        }
    }
}

/// Which form of the object is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// The object.
    #[default]
    Object,
    /// A table of printed columns, in this version of `meta.k8s.io`.
    Table(&'static str),
    /// The metadata alone, in this version of `meta.k8s.io`.
    Metadata(&'static str),
}

/// What the client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Output {
    /// How it is written.
    pub encoding: Encoding,
    /// What is written.
    pub form: Form,
    /// Whether the client requested line breaks.
    pub pretty: bool,
}

/// One clause of an `Accept` header.
#[derive(Debug)]
struct Clause<'a> {
    media: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut found: Vec<Clause<'_>> = accept
        .split(',')
        .filter_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().filter(|media| !media.is_empty())?;
            let parameters: Vec<(&str, &str)> = parts
                .filter_map(|p| p.split_once('='))
                .map(|(k, v)| (k.trim(), v.trim().trim_matches('"')))
                .collect();
            let quality = parameters.iter().find(|(key, _)| *key == "q");
            let quality = quality.and_then(|(_, q)| q.parse().ok()).unwrap_or(1.0);
            Some(Clause { media, quality, parameters })
        })
        .collect();
    found.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    found
}

fn encoding(media: &str) -> Option<Encoding> {
    match media {
        "application/json" | "*/*" | "application/*" => Some(Encoding::Json),
        "application/yaml" => Some(Encoding::Yaml),
        super::protobuf::MEDIA_TYPE => Some(Encoding::Protobuf),
        _ => None,
    }
}

fn accept_header(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// What an object, list or watch is to be answered with. `representations` is what the complaint names; `protobuf`
/// returns whether objects have a form in it. Tables have none, and what is not stored has no `tables` and no metadata.
pub fn output(
    headers: &HeaderMap,
    representations: &str,
    tables: bool,
    protobuf: impl Fn() -> bool,
) -> Result<Output, Box<Status>> {
    let accept = accept_header(headers);
    if accept.trim().is_empty() {
        return Ok(Output::default());
    }
    for clause in clauses(accept) {
        let Some(encoding) = encoding(clause.media) else { continue };
        let pretty = clause.parameter("pretty") == Some("1");
        let version = match (clause.parameter("g"), clause.parameter("v")) {
            (Some("meta.k8s.io"), Some("v1")) => Some("v1"),
            (Some("meta.k8s.io"), Some("v1beta1")) => Some("v1beta1"),
            _ => None,
        };
        let form = match (clause.parameter("as"), version) {
            (None, _) => Form::Object,
            (Some("Table"), Some(version)) => Form::Table(version),
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some(version)) => {
                Form::Metadata(version)
            }
            // A form that is not known here: the next clause may be a plain one.
            _ => continue,
        };
        let written = match form {
            Form::Object => encoding != Encoding::Protobuf || protobuf(),
            Form::Table(_) => tables && encoding != Encoding::Protobuf,
            Form::Metadata(_) => tables,
        };
        if !written {
            continue;
        }
        return Ok(Output { encoding, form, pretty });
    }
    Err(not_acceptable(representations))
}

/// Whether errors are sent in protobuf: it comes before what else the client accepts.
#[must_use]
pub fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let accept = accept_header(headers);
    // Most clients do not name it at all.
    accept.contains(super::protobuf::MEDIA_TYPE)
        && clauses(accept).iter().find_map(|clause| encoding(clause.media)) == Some(Encoding::Protobuf)
}

/// 406 in the words of the generic handlers.
#[must_use]
pub fn not_acceptable(representations: &str) -> Box<Status> {
    Status::generic(
        406,
        "NotAcceptable",
        format!("406: Not Acceptable\n\nAvailable representations: {representations}"),
    )
}

/// The version of the aggregated discovery document a client prefers over the plain one.
#[must_use]
pub fn aggregated_discovery(headers: &HeaderMap, offered: &[&'static str]) -> Option<&'static str> {
    for clause in clauses(accept_header(headers)) {
        if matches!(encoding(clause.media), None | Some(Encoding::Protobuf)) {
            continue;
        }
        match (clause.parameter("g"), clause.parameter("v"), clause.parameter("as")) {
            (Some("apidiscovery.k8s.io"), Some(version), Some("APIGroupDiscoveryList")) => {
                if let Some(known) = offered.iter().find(|o| **o == version) {
                    return Some(known);
                }
            }
            (None, None, None) => return None,
            _ => {}
        }
    }
    None
}

/// The media type of the body, without parameters; JSON by default.
#[must_use]
pub fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = value.split(';').next().unwrap_or_default().trim();
    if media.is_empty() { super::reply::JSON } else { media }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form_of(accept: &str) -> Option<(Encoding, Form)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().expect("header"));
        output(&headers, "x", true, || true).ok().map(|o| (o.encoding, o.form))
    }

    #[test]
    fn takes_the_first_clause_it_can_serve() {
        for (accept, expected) in [
            ("*/*", Some((Encoding::Json, Form::Object))),
            ("text/html", None),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some((Encoding::Protobuf, Form::Object)),
            ),
            (
                "application/vnd.kubernetes.protobuf;stream=watch, */*",
                Some((Encoding::Protobuf, Form::Object)),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                Some((Encoding::Protobuf, Form::Metadata("v1"))),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some((Encoding::Json, Form::Object)),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Some((Encoding::Json, Form::Table("v1"))),
            ),
            (
                "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
                Some((Encoding::Json, Form::Object)),
            ),
            ("application/json;q=0.5, application/yaml", Some((Encoding::Yaml, Form::Object))),
        ] {
            assert_eq!(form_of(accept), expected, "{accept}");
        }
    }

    #[test]
    fn kinds_without_a_protobuf_form_are_sent_as_something_else_or_not_at_all() {
        for (accept, expected) in [
            ("application/vnd.kubernetes.protobuf", None),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Encoding::Json)),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                Some(Encoding::Protobuf),
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("header"));
            assert_eq!(output(&headers, "x", true, || false).ok().map(|o| o.encoding), expected, "{accept}");
        }
    }

    #[test]
    fn errors_are_sent_in_protobuf_where_it_comes_first() {
        for (accept, expected) in [
            ("", false),
            ("application/json", false),
            ("application/vnd.kubernetes.protobuf", true),
            ("application/vnd.kubernetes.protobuf, */*", true),
            ("application/json,application/vnd.kubernetes.protobuf", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().expect("header"));
            assert_eq!(prefers_protobuf(&headers), expected, "{accept}");
        }
    }
}
