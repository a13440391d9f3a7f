//! The known name nearest to an unknown one.

/// The known name nearest to a misspelt one, if one is near enough to have been meant; the first in order of two as near.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let bound = 1 + name.len() / 6;
    let candidates = known.into_iter().filter(|known| known.len().abs_diff(name.len()) <= bound);
    let (distance, nearest) = candidates.map(|known| (distance(name, known), known)).min()?;
    (distance <= bound).then_some(nearest)
}

/// Levenshtein's distance over bytes, letter case aside; names are short and plain.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let above = *cell;
            *cell = (diagonal + usize::from(!x.eq_ignore_ascii_case(&y))).min(left + 1).min(above + 1);
            diagonal = above;
            left = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(distance("kitten", "sitting"), 3);
        let known = ["securityContext", "serviceAccount", "subdomain"];
        for (name, expected) in [
            ("securityContxt", Some("securityContext")),
            ("SecurityContext", Some("securityContext")),
            ("security_context", Some("securityContext")),
            ("sub", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }
}
