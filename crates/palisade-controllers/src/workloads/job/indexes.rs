//! Sets of completion indexes, as `status.completedIndexes` has them: `1,3-5,7`. Pure.
//!
//! They are kept as ranges: a Job may have two thousand million completions.

use std::fmt;

/// A set of indexes: ranges that are sorted and do not touch, with their ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads a set; what is not below `limit` is left out, as is what is no number.
    #[must_use]
    pub fn read(text: &str, limit: i64) -> Self {
        let mut set = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) else { continue };
            set.insert_range(first, last.min(limit - 1));
        }
        set
    }

    /// Adds an index.
    pub fn insert(&mut self, index: i64) {
        self.insert_range(index, index);
    }

    fn insert_range(&mut self, mut first: i64, mut last: i64) {
        if first > last {
            return;
        }
        let start = self.0.partition_point(|(_, end)| end.saturating_add(1) < first);
        let end = self.0.partition_point(|(begin, _)| *begin <= last.saturating_add(1));
        if let (Some((low, _)), Some((_, high))) =
            (self.0.get(start), end.checked_sub(1).and_then(|end| self.0.get(end)))
            && start < end
        {
            first = first.min(*low);
            last = last.max(*high);
        }
        self.0.splice(start..end.max(start), [(first, last)]);
    }

    /// Whether it has an index.
    #[must_use]
    pub fn contains(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many indexes there are.
    #[must_use]
    pub fn len(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many indexes are in both.
    #[must_use]
    pub fn shared(&self, other: &Self) -> i64 {
        let overlap = |a: &(i64, i64), b: &(i64, i64)| (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
        self.0.iter().map(|a| other.0.iter().map(|b| overlap(a, b)).sum::<i64>()).sum()
    }

    /// The first indexes below `limit` that are not in the set.
    pub fn missing(&self, limit: i64) -> impl Iterator<Item = i64> + '_ {
        let starts = std::iter::once(0).chain(self.0.iter().map(|(_, last)| last + 1));
        let ends = self.0.iter().map(|(first, _)| *first).chain(std::iter::once(limit));
        starts.zip(ends).flat_map(move |(start, end)| start..end.min(limit))
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                // Two are listed: a range is not shorter.
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Indexes;

    #[test]
    fn sets_are_written_as_upstream_writes_them() {
        for (case, text, added, expected, count) in [
            ("empty", "", &[][..], "", 0),
            ("one", "", &[3][..], "3", 1),
            ("two are listed", "1", &[2], "1,2", 2),
            ("three are a range", "1,2", &[3], "1-3", 3),
            ("a gap is closed", "1-3,5", &[4], "1-5", 5),
            ("known already", "1-5", &[4], "1-5", 5),
            ("before", "4", &[0], "0,4", 2),
            ("beyond the limit", "1-200", &[], "1-9", 9),
            ("wholly beyond the limit", "1,20-30", &[], "1", 1),
            ("no numbers", "x,1", &[], "1", 1),
        ] {
            let mut set = Indexes::read(text, 10);
            for index in added {
                set.insert(*index);
            }
            assert_eq!((set.to_string().as_str(), set.len()), (expected, count), "{case}");
        }
    }

    #[test]
    fn what_is_missing_comes_in_order() {
        let set = Indexes::read("0,2-3,6", 10);
        assert_eq!(set.missing(8).collect::<Vec<_>>(), [1, 4, 5, 7]);
        assert_eq!(set.missing(3).collect::<Vec<_>>(), [1]);
        assert_eq!(set.shared(&Indexes::read("2-6", 10)), 3);
        assert!(set.contains(3) && !set.contains(4) && !set.contains(7));
    }
}
