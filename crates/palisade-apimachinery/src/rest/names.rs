//! Names, labels and other small formats, with upstream's texts.
//!
//! Implements: `k8s.io/apimachinery/pkg/util/validation` and `…/api/validate/content`. Every check returns the messages
//! for what is wrong, most often none; nothing is allocated for good values and no regular expression is used.

use std::net::IpAddr;

use palisade_base::go;
use palisade_base::version::KubeVersion;

/// Messages about a value.
pub type Messages = Vec<String>;

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// Label keys and values count bytes, and their messages state it since v1.34.
fn label_too_long(limit: usize, version: KubeVersion) -> String {
    let unit = if version.at_least(34) { "bytes" } else { "characters" };
    format!("must be no more than {limit} {unit}")
}

fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label_shaped(text: &str, first: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(a), Some(z)) => {
            first(*a) && lower_alnum(*z) && bytes.iter().all(|b| lower_alnum(*b) || *b == b'-')
        }
        _ => false,
    }
}

fn is_subdomain_shaped(text: &str) -> bool {
    text.split('.').all(|label| is_label_shaped(label, lower_alnum))
}

/// A DNS label (RFC 1123).
#[must_use]
pub fn dns1123_label(text: &str) -> Messages {
    let mut out = Vec::new();
    if text.len() > 63 {
        out.push(too_long(63));
    }
    if !is_label_shaped(text, lower_alnum) {
        out.push(if is_subdomain_shaped(text) {
            "must not contain dots".into()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "123-abc"],
            )
        });
    }
    out
}

/// An IP address in the form in which it is printed.
#[must_use]
pub fn address(text: &str) -> Messages {
    match text.parse::<IpAddr>() {
        Err(_) => vec![format!("ParseAddr({}): unable to parse IP", go::quote(text))],
        Ok(address) if address.to_string() != text => {
            vec!["must be a canonical format IP address".to_owned()]
        }
        Ok(_) => Vec::new(),
    }
}

/// A DNS subdomain (RFC 1123).
#[must_use]
pub fn dns1123_subdomain(text: &str) -> Messages {
    let mut out = Vec::new();
    if text.len() > 253 {
        out.push(too_long(253));
    }
    if !is_subdomain_shaped(text) {
        out.push(subdomain_message());
    }
    out
}

fn subdomain_message() -> String {
    regex_error(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
         and end with an alphanumeric character",
        r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        &["example.com"],
    )
}

/// A DNS label (RFC 1035): starts with a letter.
#[must_use]
pub fn dns1035_label(text: &str) -> Messages {
    let mut out = Vec::new();
    if text.len() > 63 {
        out.push(too_long(63));
    }
    if !is_label_shaped(text, |b| b.is_ascii_lowercase()) {
        out.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    out
}

/// A name for generating others: what follows is filled in, so a dash at the end is fine.
#[must_use]
pub fn masked_prefix(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => format!("{rest}a"),
        _ => text.to_owned(),
    }
}

const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                                 alphanumeric character";

fn is_label_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(a), Some(z)) => {
            a.is_ascii_alphanumeric()
                && z.is_ascii_alphanumeric()
                && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        }
        _ => false,
    }
}

/// A label key, or anything else upstream calls a qualified name: `[prefix/]name`.
#[must_use]
pub fn qualified_name(text: &str, version: KubeVersion) -> Messages {
    let mut out = Vec::new();
    let mut parts = text.split('/');
    let (name, prefix) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (name, None),
        (Some(prefix), Some(name), None) => (name, Some(prefix)),
        _ => {
            let what = if version.at_least(34) { "a valid label key" } else { "a qualified name" };
            let rule = regex_error(LABEL_KEY_MESSAGE, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "{what} {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    match prefix {
        None => {}
        Some("") => out.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            if prefix.len() > 253 {
                out.push(format!("prefix part {}", label_too_long(253, version)));
            }
            if !is_subdomain_shaped(prefix) {
                out.push(format!("prefix part {}", subdomain_message()));
            }
        }
    }
    if name.is_empty() {
        out.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        out.push(format!("name part {}", label_too_long(63, version)));
    }
    if !is_label_part(name) {
        let rule = regex_error(LABEL_KEY_MESSAGE, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
        out.push(format!("name part {rule}"));
    }
    out
}

/// A label value.
#[must_use]
pub fn label_value(text: &str, version: KubeVersion) -> Messages {
    let mut out = Vec::new();
    if text.len() > 63 {
        out.push(label_too_long(63, version));
    }
    if !text.is_empty() && !is_label_part(text) {
        out.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    out
}

/// A key of a ConfigMap or Secret.
#[must_use]
pub fn config_map_key(text: &str) -> Messages {
    let mut out = Vec::new();
    if text.len() > 253 {
        out.push(too_long(253));
    }
    let fine = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !fine {
        out.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    out.extend(change_dir_prefix(text));
    out
}

fn change_dir_prefix(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".into()),
        ".." => Some("must not be '..'".into()),
        _ if text.starts_with("..") => Some("must not start with '..'".into()),
        _ => None,
    }
}

/// The name of an environment variable; anything printable except `=` is allowed since v1.32.
#[must_use]
pub fn env_var_name(text: &str, version: KubeVersion) -> Messages {
    let mut out = Vec::new();
    if version.at_least(32) {
        if text.is_empty() {
            out.push("environment variable name must be non-empty".into());
        }
        if text.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
            out.push(
                "a valid environment variable name must consist only of printable ASCII characters other than '='"
                    .into(),
            );
        }
        return out;
    }
    let first = |b: u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b'_' | b'.');
    let fine = text.bytes().next().is_some_and(first) && text.bytes().all(|b| first(b) || b.is_ascii_digit());
    if !fine {
        out.push(regex_error(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and \
             must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    out.extend(change_dir_prefix(text));
    out
}

/// The name of a port.
#[must_use]
pub fn port_name(text: &str) -> Messages {
    let mut out = Vec::new();
    if text.len() > 15 {
        out.push(too_long(15));
    }
    if text.is_empty() || !text.bytes().all(|b| lower_alnum(b) || b == b'-') {
        out.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        out.push("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        out.push("must not contain consecutive hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') {
        out.push("must not begin or end with a hyphen".into());
    }
    out
}

/// The number of a port.
#[must_use]
pub fn port_number(port: i64) -> Messages {
    if (1..=65535).contains(&port) { Vec::new() } else { vec![inclusive_range(1, 65535)] }
}

/// `must be between lo and hi, inclusive`.
#[must_use]
pub fn inclusive_range(lo: i64, hi: i64) -> String {
    format!("must be between {lo} and {hi}, inclusive")
}

/// The name of an HTTP header.
#[must_use]
pub fn http_header_name(text: &str) -> Messages {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// `25%`.
#[must_use]
pub fn percent(text: &str) -> Messages {
    let number = text.strip_suffix('%').unwrap_or_default();
    if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// A name that becomes part of a path of the API: everything else is allowed (RBAC).
#[must_use]
pub fn path_segment(text: &str) -> Messages {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|bad| text.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_values_pass() {
        let latest = KubeVersion::LATEST;
        assert!(dns1123_label("my-name").is_empty());
        assert!(dns1123_subdomain("a.b-c.d1").is_empty());
        assert!(qualified_name("example.com/MyName_1", latest).is_empty());
        assert!(label_value("", latest).is_empty());
        assert!(config_map_key("KEY.name-1_x").is_empty());
        assert!(port_name("http-2").is_empty());
        assert!(percent("25%").is_empty());
        assert!(path_segment("system:node").is_empty());
    }

    #[test]
    fn each_rule_has_its_text() {
        let latest = KubeVersion::LATEST;
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(qualified_name("/x", latest), ["prefix part must be non-empty"]);
        assert_eq!(label_value(&"x".repeat(64), latest), ["must be no more than 63 bytes"]);
        assert_eq!(label_value(&"x".repeat(64), KubeVersion::v1(24)), ["must be no more than 63 characters"]);
        assert_eq!(config_map_key("..a"), ["must not start with '..'"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
        assert_eq!(masked_prefix("gen-"), "gena");
    }
}
