//! Absolute URLs and absolute paths, as Go's `url.ParseRequestURI` takes them apart.

use std::collections::BTreeMap;

/// A URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(super) scheme: String,
    /// With the port.
    pub(super) host: String,
    pub(super) path: String,
    pub(super) query: String,
}

impl Url {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
            return None;
        }
        let (scheme, rest) = match text.split_once(':') {
            _ if text.starts_with('/') => ("", text),
            Some((scheme, rest)) => (scheme, rest),
            None => return None,
        };
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        if !(text.starts_with('/') || is_scheme && rest.starts_with('/')) {
            return None;
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => {
                let at = rest.find('/').unwrap_or(rest.len());
                let (authority, path) = rest.split_at(at);
                (authority.rsplit_once('@').map_or(authority, |(_, host)| host), path)
            }
            _ => ("", rest),
        };
        if !is_host(host) || !percent_is_valid(path) {
            return None;
        }
        Some(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    pub(super) fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
            None => self.host.rsplit_once(':').map_or(&self.host, |(name, _)| name),
        }
    }

    pub(super) fn port(&self) -> &str {
        let after = self.host.rsplit_once(']').map_or(self.host.as_str(), |(_, after)| after);
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }

    pub(super) fn query(&self) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for part in self.query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            found.entry(unescaped(key)).or_default().push(unescaped(value));
        }
        found
    }

    pub(super) fn text(&self) -> String {
        let start =
            if self.scheme.is_empty() { String::new() } else { format!("{}://{}", self.scheme, self.host) };
        let query = if self.query.is_empty() { String::new() } else { format!("?{}", self.query) };
        format!("{start}{}{query}", self.path)
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => ("", port),
            _ => return false,
        },
        None => host.split_once(':').map_or((host, ""), |(name, _)| (name, &host[name.len()..])),
    };
    let port_is_valid = port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit()));
    port_is_valid && name.chars().all(|c| !"<>\"[]^`{}|\\ ".contains(c)) && percent_is_valid(name)
}

fn percent_is_valid(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || is_hex(at + 1) && is_hex(at + 2))
}

fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let pair = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (byte, pair) {
            (b'%', Some(decoded)) => {
                out.push(decoded);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(*other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
