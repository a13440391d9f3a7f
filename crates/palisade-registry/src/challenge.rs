//! What a registry wants before it answers: the `WWW-Authenticate` header.
//!
//! Implements: RFC 9110, "WWW-Authenticate", and the token authentication of distribution.
//! <https://distribution.github.io/distribution/spec/auth/token/>

use http::{HeaderMap, header::WWW_AUTHENTICATE};

/// How to authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// With the user's name and password.
    Basic,
    /// With a token of this service.
    Bearer {
        /// Where tokens are.
        realm: String,
        /// For whom they are.
        service: Option<String>,
    },
}

impl Challenge {
    /// The strongest challenge of an answer that is known here.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let all = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| {
            // swallowed: a header that is no text is no challenge
            Self::parse(value.to_str().ok()?)
        });
        let mut basic = None;
        for challenge in all {
            match challenge {
                Self::Bearer { .. } => return Some(challenge),
                Self::Basic => basic = Some(challenge),
            }
        }
        basic
    }

    fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        for (name, value) in parameters(rest)? {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                _ => {}
            }
        }
        Some(Self::Bearer { realm: realm?, service })
    }
}

/// `name="value", name=value`; `None` if it is anything else.
fn parameters(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if rest.is_empty() {
            return Some(found);
        }
        let (name, after) = rest.split_once('=')?;
        let mut value = String::new();
        if let Some(quoted) = after.strip_prefix('"') {
            let mut characters = quoted.char_indices();
            let end = loop {
                match characters.next()? {
                    (at, '"') => break at + 1,
                    (_, '\\') => value.push(characters.next()?.1),
                    (_, character) => value.push(character),
                }
            };
            rest = quoted.get(end..)?;
        } else {
            let end = after.find(',').unwrap_or(after.len());
            value.push_str(after.get(..end)?.trim());
            rest = after.get(end..)?;
        }
        found.push((name.trim().to_owned(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_challenges_of_registries() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        for (headers, expected) in [
            (&["Basic realm=\"r\""][..], Some(Challenge::Basic)),
            (&["basic"], Some(Challenge::Basic)),
            (
                &[r#"Bearer realm="https://a.example/token",service="s",scope="repository:x:pull""#],
                bearer("https://a.example/token", Some("s")),
            ),
            (
                &[r#"bearer service=s, realm="https://a.example/\"x""#],
                bearer("https://a.example/\"x", Some("s")),
            ),
            (&["Basic realm=x", r#"Bearer realm="https://a""#], bearer("https://a", None)),
            (&["Bearer service=\"s\""], None),
            (&["Bearer realm=\"open"], None),
            (&["Negotiate"], None),
            (&[], None),
        ] {
            let mut map = HeaderMap::new();
            for header in headers {
                map.append(WWW_AUTHENTICATE, header.parse().unwrap());
            }
            assert_eq!(Challenge::of(&map), expected, "{headers:?}");
        }
    }
}
