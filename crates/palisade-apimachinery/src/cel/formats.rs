//! Named formats of texts: `format.dns1123Label().validate(…)`.

use palisade_base::version::KubeVersion;

use super::times;
use super::url::Url;
use super::value::Val;
use crate::rest::names;

const FORMATS: &[&str] = &[
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

pub(super) fn named(name: &str) -> Option<&'static str> {
    FORMATS.iter().find(|known| **known == name).copied()
}

/// What is wrong with a text, as an optional list.
pub(super) fn validate(format: &str, text: &str) -> Val {
    let latest = KubeVersion::LATEST;
    let valid =
        |is_valid: bool, what: &str| if is_valid { Vec::new() } else { vec![format!("invalid {what}")] };
    let problems = match format {
        "dns1123Label" => names::dns1123_label(text),
        "dns1123Subdomain" => names::dns1123_subdomain(text),
        "dns1035Label" => names::dns1035_label(text),
        "qualifiedName" => names::qualified_name(text, latest),
        "dns1123LabelPrefix" => names::dns1123_label(&names::masked_prefix(text)),
        "dns1123SubdomainPrefix" => names::dns1123_subdomain(&names::masked_prefix(text)),
        "dns1035LabelPrefix" => names::dns1035_label(&names::masked_prefix(text)),
        "labelValue" => names::label_value(text, latest),
        "uri" => valid(Url::parse(text).is_some(), "URI"),
        "uuid" => valid(is_uuid(text), "UUID"),
        "byte" => {
            use base64::Engine as _;
            valid(base64::engine::general_purpose::STANDARD.decode(text).is_ok(), "base64")
        }
        "date" => valid(times::parse_timestamp(&format!("{text}T00:00:00Z")).is_some(), "date"),
        _ => valid(times::parse_timestamp(text).is_some(), "datetime"),
    };
    let problems: Vec<Val> = problems.iter().map(|problem| Val::text(problem)).collect();
    Val::optional((!problems.is_empty()).then(|| Val::list(problems)))
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [8, 4, 4, 4, 12] && parts.iter().all(|part| part.chars().all(|c| c.is_ascii_hexdigit()))
}
