//! The known name nearest to an unknown one.

/// The known name nearest to a misspelt one, if one is near enough to have been meant; the first in order of two as near.
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let bound = 1 + name.len() / 6;
    let candidates = known.into_iter().filter(|known| known.len().abs_diff(name.len()) <= bound);
    let (distance, nearest) = candidates.map(|known| (distance(name, known), known)).min()?;
    (distance <= bound).then_some(nearest)
}

/// How many letters have to be added, removed, replaced, or exchanged with the next one; letter case aside. Over bytes: names
/// are short and plain.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|name| name.to_ascii_lowercase().into_bytes());
    // Row i holds the distances between the first i letters of `a` and the first letters of `b`.
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, x) in a.iter().enumerate() {
        let at = |row: usize, column: usize| rows.get(row).and_then(|row| row.get(column)).copied();
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let is_swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            let ways = [
                at(i, j).map(|before| before + usize::from(x != y)),
                at(i, j + 1).map(|before| before + 1),
                row.last().map(|before| before + 1),
                if is_swapped { at(i - 1, j - 1).map(|before| before + 1) } else { None },
            ];
            row.push(ways.into_iter().flatten().min().unwrap_or(usize::MAX));
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("mkdri", "mkdir"), 1);
        let known = ["securityContext", "serviceAccount", "subdomain"];
        for (name, expected) in [
            ("securityContxt", Some("securityContext")),
            ("SecurityContext", Some("securityContext")),
            ("usbdomain", Some("subdomain")),
            ("security_context", Some("securityContext")),
            ("sub", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }
}
