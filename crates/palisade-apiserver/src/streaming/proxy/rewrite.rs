//! What changes in a proxied answer: links to the backend's own pages lead through the proxy.
//!
//! Implements: `Transport` of upstream's `apimachinery/pkg/util/proxy`: the header `Location`, and the attributes of HTML that hold
//! a URL. A URL is changed if its path is absolute and its host is the backend's or none. Other than upstream, a path
//! cannot climb out of the prefix. Pure.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What Go leaves as it is in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// The attributes that hold a URL, for each element.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is text, whatever it looks like.
const TEXT_ONLY: &[&str] = &[
    "iframe",
    "noembed",
    "noframes",
    "noscript",
    "plaintext",
    "script",
    "style",
    "textarea",
    "title",
    "xmp",
];

/// A path as Go encodes it.
pub(super) fn encoded(path: &str) -> String {
    percent_encode(path.as_bytes(), PATH).to_string()
}

/// An absolute path without `.`, `..` and empty segments; a slash at its end is kept.
pub(super) fn clean(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let slash = if path.ends_with('/') && !kept.is_empty() { "/" } else { "" };
    format!("/{}{slash}", kept.join("/"))
}

/// How the links of one answer change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links<'a> {
    /// The path that stands for the backend's root.
    pub(super) prefix: &'a str,
    /// Host and port of the backend, and the host of the client's request, which the backend was given.
    pub(super) hosts: [&'a str; 2],
}

impl Links<'_> {
    /// The URL for a client; nothing if it stays as it is.
    pub(super) fn rewritten(&self, url: &str) -> Option<String> {
        let (scheme, rest) = split_scheme(url);
        let (host, rest) = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
                (Some(authority), rest)
            }
            None => (None, rest),
        };
        if host.is_none() && !scheme.is_empty() {
            return None;
        }
        if host.is_some_and(|host| !host.is_empty() && !self.hosts.contains(&host)) {
            return None;
        }
        let (path, more) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        if !path.starts_with('/') {
            return None;
        }
        if path.starts_with(self.prefix) {
            return host.map(|_| format!("{path}{more}"));
        }
        Some(format!("{}{}{more}", self.prefix, clean(path)))
    }

    /// The page for a client.
    pub(super) fn page(&self, html: &[u8]) -> Vec<u8> {
        let mut page = Page { html, at: 0, copied: 0, out: Vec::with_capacity(html.len()) };
        while let Some(start) = page.find(b'<') {
            page.at = start + 1;
            match page.peek() {
                Some(b'!') if page.rest().starts_with(b"!--") => page.skip_past(b"-->"),
                Some(b'!' | b'?' | b'/') => page.skip_past(b">"),
                Some(letter) if letter.is_ascii_alphabetic() => self.element(&mut page),
                _ => {}
            }
        }
        page.finish()
    }

    fn element(&self, page: &mut Page<'_>) {
        let name = page.word(|byte| byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>'));
        let links = LINKS.iter().find(|(element, _)| *element == name).map_or(&[][..], |(_, links)| links);
        loop {
            page.skip(|byte| byte.is_ascii_whitespace() || byte == b'/');
            match page.peek() {
                None => return,
                Some(b'>') => break,
                Some(_) => self.attribute(page, links),
            }
        }
        page.at += 1;
        if TEXT_ONLY.contains(&name.as_str()) {
            page.skip_to_end_of(&name);
        }
    }

    fn attribute(&self, page: &mut Page<'_>, links: &[&str]) {
        // An equals sign at its beginning is a part of its name.
        let first = page.at;
        page.at += 1;
        page.skip(|byte| !(byte.is_ascii_whitespace() || matches!(byte, b'/' | b'>' | b'=')));
        let name = page.html.get(first..page.at).unwrap_or_default().to_ascii_lowercase();
        page.skip(|byte| byte.is_ascii_whitespace());
        if page.peek() != Some(b'=') {
            return;
        }
        page.at += 1;
        page.skip(|byte| byte.is_ascii_whitespace());
        let from = page.at;
        let value = if let Some(quote @ (b'"' | b'\'')) = page.peek() {
            page.at += 1;
            page.skip(|byte| byte != quote);
            let value = page.html.get(from + 1..page.at).unwrap_or_default();
            if page.peek().is_none() {
                return;
            }
            page.at += 1;
            value
        } else {
            page.skip(|byte| !byte.is_ascii_whitespace() && byte != b'>');
            page.html.get(from..page.at).unwrap_or_default()
        };
        // swallowed: a URL that is no text is not ours
        let Some(url) = std::str::from_utf8(value).ok().map(without_entities) else { return };
        if !links.iter().any(|link| link.as_bytes() == name) {
            return;
        }
        if let Some(changed) = self.rewritten(url.trim()) {
            let mut attribute = String::from("\"");
            for letter in changed.chars() {
                match letter {
                    '&' => attribute.push_str("&amp;"),
                    '"' => attribute.push_str("&#34;"),
                    '<' => attribute.push_str("&lt;"),
                    '>' => attribute.push_str("&gt;"),
                    letter => attribute.push(letter),
                }
            }
            attribute.push('"');
            page.replace(from, attribute.as_bytes());
        }
    }
}

/// The scheme of a URL and the rest of it.
fn split_scheme(url: &str) -> (&str, &str) {
    let Some((scheme, rest)) = url.split_once(':') else { return ("", url) };
    let mut letters = scheme.bytes();
    let valid = letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'+' | b'-' | b'.'));
    if valid { (scheme, rest) } else { ("", url) }
}

/// The references to characters that URLs contain.
fn without_entities(value: &str) -> Cow<'_, str> {
    if !value.contains('&') {
        return Cow::Borrowed(value);
    }
    let mut text = value.to_owned();
    for (entity, letter) in
        [("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&#x2F;", "/"), ("&#47;", "/"), ("&amp;", "&")]
    {
        text = text.replace(entity, letter);
    }
    Cow::Owned(text)
}

/// A page that is read, and what of it is written.
struct Page<'h> {
    html: &'h [u8],
    at: usize,
    copied: usize,
    out: Vec<u8>,
}

impl Page<'_> {
    fn rest(&self) -> &[u8] {
        self.html.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.html.get(self.at).copied()
    }

    fn find(&self, byte: u8) -> Option<usize> {
        memchr::memchr(byte, self.rest()).map(|offset| self.at + offset)
    }

    fn skip(&mut self, skipped: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&skipped) {
            self.at += 1;
        }
    }

    /// Goes on after an end, or at the end of the page.
    fn skip_past(&mut self, end: &[u8]) {
        let found = memchr::memmem::find(self.rest(), end);
        self.at = found.map_or(self.html.len(), |offset| self.at + offset + end.len());
    }

    fn word(&mut self, ends: impl Fn(u8) -> bool) -> String {
        let from = self.at;
        self.skip(|byte| !ends(byte));
        String::from_utf8_lossy(self.html.get(from..self.at).unwrap_or_default()).to_ascii_lowercase()
    }

    /// Goes on at the end tag of an element, or at the end of the page.
    fn skip_to_end_of(&mut self, name: &str) {
        loop {
            let Some(found) = memchr::memmem::find(self.rest(), b"</") else {
                self.at = self.html.len();
                return;
            };
            let end = self.at + found;
            let after = self.html.get(end + 2..end + 2 + name.len());
            if after.is_some_and(|after| after.eq_ignore_ascii_case(name.as_bytes())) {
                self.at = end;
                return;
            }
            self.at = end + 2;
        }
    }

    /// Puts something in the place of what was read since `from`.
    fn replace(&mut self, from: usize, with: &[u8]) {
        self.out.extend_from_slice(self.html.get(self.copied..from).unwrap_or_default());
        self.out.extend_from_slice(with);
        self.copied = self.at;
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.extend_from_slice(self.html.get(self.copied..).unwrap_or_default());
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: Links<'static> =
        Links { prefix: "/api/v1/namespaces/n/pods/p/proxy", hosts: ["10.0.0.1:80", "127.0.0.1:6443"] };

    #[test]
    fn links_to_the_backend_lead_through_the_proxy() {
        for (url, expected) in [
            ("/a", Some("/api/v1/namespaces/n/pods/p/proxy/a")),
            ("/", Some("/api/v1/namespaces/n/pods/p/proxy/")),
            ("/a/?q=1#f", Some("/api/v1/namespaces/n/pods/p/proxy/a/?q=1#f")),
            ("http://10.0.0.1:80/a", Some("/api/v1/namespaces/n/pods/p/proxy/a")),
            ("https://127.0.0.1:6443/a", Some("/api/v1/namespaces/n/pods/p/proxy/a")),
            ("//10.0.0.1:80/a", Some("/api/v1/namespaces/n/pods/p/proxy/a")),
            ("/../../../secrets", Some("/api/v1/namespaces/n/pods/p/proxy/secrets")),
            ("/api/v1/namespaces/n/pods/p/proxy/a", None),
            (
                "http://10.0.0.1:80/api/v1/namespaces/n/pods/p/proxy/a?b",
                Some("/api/v1/namespaces/n/pods/p/proxy/a?b"),
            ),
            ("a/b", None),
            ("?q", None),
            ("", None),
            ("http://example.com/a", None),
            ("http://10.0.0.1:81/a", None),
            ("http://10.0.0.1:80", None),
            ("mailto:/a", None),
            ("javascript:alert(1)", None),
        ] {
            assert_eq!(LINKS.rewritten(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn pages_keep_everything_but_their_links() {
        let p = "/api/v1/namespaces/n/pods/p/proxy";
        for (html, expected) in [
            (r#"<a href="/x">y</a>"#, format!(r#"<a href="{p}/x">y</a>"#)),
            ("<A class=b HREF=/x>y</A>", format!(r#"<A class=b HREF="{p}/x">y</A>"#)),
            (
                "<img src = '/x?a=1&amp;b=2' alt='/x'/>",
                format!(r#"<img src = "{p}/x?a=1&amp;b=2" alt='/x'/>"#),
            ),
            ("<p href=\"/x\"><a title='/x'>", "<p href=\"/x\"><a title='/x'>".to_owned()),
            ("<!-- <a href=\"/x\"> --><a href=/y>", format!("<!-- <a href=\"/x\"> --><a href=\"{p}/y\">")),
            (
                "<script src=/s>if (a<b) x='<a href=\"/x\">'</SCRIPT><link href=/y>",
                format!("<script src=\"{p}/s\">if (a<b) x='<a href=\"/x\">'</SCRIPT><link href=\"{p}/y\">"),
            ),
            ("a < b <a href=\"/x", "a < b <a href=\"/x".to_owned()),
            ("<a", "<a".to_owned()),
            ("<a href=", "<a href=".to_owned()),
            ("<a =href=/x>", "<a =href=/x>".to_owned()),
            ("", String::new()),
        ] {
            assert_eq!(String::from_utf8_lossy(&LINKS.page(html.as_bytes())), expected, "{html}");
        }
        assert_eq!(LINKS.page(b"\xff<a href=\"/\xff\">"), b"\xff<a href=\"/\xff\">");
    }

    #[test]
    fn paths_are_encoded_as_go_encodes_them() {
        for (path, expected) in
            [("/a b/c?d#e%", "/a%20b/c%3Fd%23e%25"), ("/a:b;c=d@e~f", "/a:b;c=d@e~f"), ("/é!", "/%C3%A9%21")]
        {
            assert_eq!(encoded(path), expected, "{path}");
        }
        for (path, expected) in [
            ("", "/"),
            ("/", "/"),
            ("/a//b/", "/a/b/"),
            ("/a/../../b", "/b"),
            ("/a/./b/..", "/a"),
            ("/../", "/"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
    }
}
