//! Query parameters, percent-decoded, with Go's readings of numbers and booleans.

use std::borrow::Cow;

use palisade_apimachinery::Status;
use percent_encoding::percent_decode_str;

/// The parameters of a request, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part of a URL after the question mark.
    #[must_use]
    pub fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key, true), decode(value, true))
        });
        Self(pairs.collect())
    }

    /// The first value of a parameter that is set to something.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is there, even without a value.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A boolean: upstream takes everything but `false` and `0` for true, even no value.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        let value = self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.to_ascii_lowercase());
        value.is_some_and(|value| value != "false" && value != "0")
    }

    /// A number, or upstream's complaint about it.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Box<Status>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(error) => {
                let why = match error.kind() {
                    std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => {
                        "value out of range"
                    }
                    _ => "invalid syntax",
                };
                let quoted = palisade_base::go::quote(text);
                Err(Status::bad_request(format!("strconv.ParseInt: parsing {quoted}: {why}")))
            }
        }
    }
}

/// Percent-decodes; `plus` reads `+` as a space. Bytes that are no UTF-8 become replacement characters, which
/// no name and no selector matches.
#[must_use]
pub fn decode(text: &str, plus: bool) -> String {
    let spaced = if plus { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_clients_escape() {
        for (text, expected) in
            [("a%20b", "a b"), ("a+b", "a b"), ("%C3%A9", "é"), ("%zz%", "%zz%"), ("%4", "%4"), ("", "")]
        {
            assert_eq!(decode(text, true), expected, "{text}");
        }
    }

    #[test]
    fn reads_booleans_as_upstream_does() {
        for (query, expected) in
            [("watch=true", true), ("watch=1", true), ("watch", true), ("watch=False", false), ("", false)]
        {
            assert_eq!(Query::parse(query).flag("watch"), expected, "{query}");
        }
    }
}
