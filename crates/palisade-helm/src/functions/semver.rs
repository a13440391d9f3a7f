//! Versions and their constraints, as charts write them.
//!
//! Implements: Masterminds/semver v3, "Checking Version Constraints". <https://github.com/Masterminds/semver>

use std::cmp::Ordering;

/// A version, of which charts may leave parts out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pub(crate) pre: String,
    pub(crate) metadata: String,
}

/// A version with the number of its parts that are given.
struct Partial {
    version: Version,
    parts: usize,
}

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let partial = Partial::parse(text)?;
        (partial.parts > 0).then_some(partial.version)
    }

    fn order(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch)).then_with(
            || match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => pre_order(&self.pre, &other.pre),
            },
        )
    }
}

fn pre_order(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

impl Partial {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let (text, metadata) = text.split_once('+').unwrap_or((text, ""));
        let (core, pre) = text.split_once('-').unwrap_or((text, ""));
        let mut numbers = [0; 3];
        let mut parts = 0;
        for (index, part) in core.split('.').enumerate() {
            if matches!(part, "x" | "X" | "*") {
                break;
            }
            *numbers.get_mut(index)? = part.parse().ok()?;
            parts = index + 1;
        }
        let [major, minor, patch] = numbers;
        let version = Version { major, minor, patch, pre: pre.to_owned(), metadata: metadata.to_owned() };
        Some(Self { version, parts })
    }

    /// The first version after those that share the first `parts` parts.
    fn after(&self, parts: usize) -> Version {
        let of = &self.version;
        let (major, minor, patch) = match parts {
            0 => (u64::MAX, 0, 0),
            1 => (of.major.saturating_add(1), 0, 0),
            2 => (of.major, of.minor.saturating_add(1), 0),
            _ => (of.major, of.minor, of.patch.saturating_add(1)),
        };
        Version { major, minor, patch, pre: String::new(), metadata: String::new() }
    }
}

/// Whether a version fulfils a constraint; `None` if that is no constraint.
pub(crate) fn matches(constraint: &str, version: &Version) -> Option<bool> {
    let mut any = false;
    for alternative in constraint.split("||") {
        any |= all(alternative, version)?;
    }
    Some(any)
}

fn all(text: &str, version: &Version) -> Option<bool> {
    if let Some((low, high)) = text.split_once(" - ") {
        let (low, high) = (Partial::parse(low)?, Partial::parse(high)?);
        let below = if high.parts == 3 {
            version.order(&high.version) != Ordering::Greater
        } else {
            version.order(&high.after(high.parts)) == Ordering::Less
        };
        return Some(version.order(&low.version) != Ordering::Less && below);
    }
    // `>= 1.2` is one word.
    let mut words: Vec<String> = Vec::new();
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        match words.last_mut() {
            Some(last) if last.chars().all(|c| "<>=!~^".contains(c)) => last.push_str(word),
            _ => words.push(word.to_owned()),
        }
    }
    if words.is_empty() {
        return None;
    }
    let mut holds = true;
    for word in &words {
        holds &= single(word, version)?;
    }
    Some(holds)
}

fn single(word: &str, version: &Version) -> Option<bool> {
    let digits = word.trim_start_matches(|c| "<>=!~^".contains(c));
    let operator = word.strip_suffix(digits).unwrap_or_default();
    let wanted = Partial::parse(digits)?;
    // A version before a release is only meant where the constraint has one as well.
    if !version.pre.is_empty() && wanted.version.pre.is_empty() {
        return Some(false);
    }
    let order = version.order(&wanted.version);
    let within = |parts: usize| {
        order != Ordering::Less && (parts == 0 || version.order(&wanted.after(parts)) == Ordering::Less)
    };
    let of = &wanted.version;
    Some(match operator {
        "" | "=" => {
            if wanted.parts < 3 {
                within(wanted.parts)
            } else {
                order == Ordering::Equal
            }
        }
        "!=" => {
            if wanted.parts < 3 {
                !within(wanted.parts)
            } else {
                order != Ordering::Equal
            }
        }
        ">" if wanted.parts < 3 => version.order(&wanted.after(wanted.parts)) != Ordering::Less,
        ">" => order == Ordering::Greater,
        "<" => order == Ordering::Less,
        ">=" | "=>" => order != Ordering::Less,
        "<=" | "=<" if wanted.parts < 3 => version.order(&wanted.after(wanted.parts)) == Ordering::Less,
        "<=" | "=<" => order != Ordering::Greater,
        "~" | "~>" => within(wanted.parts.min(2)),
        "^" => {
            let parts = match (of.major, of.minor, wanted.parts) {
                (_, _, parts @ (0 | 1)) => parts,
                (0, 0, 3) => 3,
                (0, _, _) => 2,
                _ => 1,
            };
            within(parts)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_hold_as_charts_expect() {
        for (constraint, version, expected) in [
            (">=1.19-0", "v1.37.0", true),
            (">= 1.21-0", "1.20.9", false),
            ("<1.14-0", "v1.13.12", true),
            (">=1.19.0-0 <1.22.0-0", "v1.21.3", true),
            (">=1.19, <1.20 || >=1.30", "v1.31.0", true),
            ("^1.2", "1.9.0", true),
            ("^0.2.3", "0.3.0", false),
            ("~1.2.3", "1.2.9", true),
            ("~1.2", "1.3.0", false),
            ("1.x", "1.5.2", true),
            ("*", "3.0.0", true),
            ("1.2 - 1.4", "1.4.9", true),
            ("!=1.2.3", "1.2.3", false),
            (">1.2", "1.2.9", false),
            (">=1.2.3", "1.3.0-beta.1", false),
            (">=1.2.3-0", "1.3.0-beta.1", true),
            (">=1.25-0", "v1.25.4-gke.1500", true),
        ] {
            let version = Version::parse(version).expect(version);
            assert_eq!(matches(constraint, &version), Some(expected), "{constraint}");
        }
        assert_eq!(matches("not a version", &Version::parse("1.0.0").unwrap()), None);
    }
}
