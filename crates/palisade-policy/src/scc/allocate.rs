//! Ranges for new namespaces.
//!
//! Implements: OpenShift's namespace allocation: blocks of 10,000 ids from 1,000,000,000 on, and for each block five
//! SELinux categories pairs of which the namespace gets the first. Lowest free block first; which blocks are taken is
//! read from the namespaces themselves, so that there is no second list to repair.

use super::namespace_ranges::{MCS, SUPPLEMENTAL_GROUPS, UID_RANGE, parse_block};

const FIRST: u32 = 1_000_000_000;
const SIZE: u32 = 10_000;
const BLOCKS: u32 = 100_000;
const PAIRS_PER_BLOCK: u32 = 5;

/// The blocks that are taken.
#[derive(Debug, Clone)]
pub struct Allocator {
    taken: Vec<u64>,
    /// No block below this one is free.
    lowest: u32,
}

impl Default for Allocator {
    fn default() -> Self {
        Self { taken: vec![0; BLOCKS.div_ceil(64) as usize], lowest: 0 }
    }
}

/// The annotations of a new namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// `openshift.io/sa.scc.uid-range` and `openshift.io/sa.scc.supplemental-groups`.
    pub ids: String,
    /// `openshift.io/sa.scc.mcs`.
    pub mcs: String,
}

impl Ranges {
    /// Key and value of each annotation.
    pub fn annotations(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(UID_RANGE, &self.ids), (SUPPLEMENTAL_GROUPS, &self.ids), (MCS, &self.mcs)]
            .into_iter()
            .map(|(key, value)| (key, value.as_str()))
    }
}

impl Allocator {
    /// Takes note of the uid range of a namespace that exists. Ranges outside the pool do not count.
    pub fn reserve(&mut self, uid_range: &str) {
        for index in blocks(uid_range) {
            if let Some(word) = self.taken.get_mut(index as usize / 64) {
                *word |= 1 << (index % 64);
            }
        }
    }

    /// A namespace is gone: its block can be given away again.
    pub fn release(&mut self, uid_range: &str) {
        for index in blocks(uid_range) {
            if let Some(word) = self.taken.get_mut(index as usize / 64) {
                *word &= !(1 << (index % 64));
                self.lowest = self.lowest.min(index);
            }
        }
    }

    /// The lowest free block; `None` when all hundred thousand are taken.
    pub fn allocate(&mut self) -> Option<Ranges> {
        let index = (self.lowest..BLOCKS).find(|&index| !self.is_taken(index))?;
        self.lowest = index + 1;
        if let Some(word) = self.taken.get_mut(index as usize / 64) {
            *word |= 1 << (index % 64);
        }
        Some(Ranges { ids: format!("{}/{SIZE}", FIRST + index * SIZE), mcs: pair(index * PAIRS_PER_BLOCK) })
    }

    fn is_taken(&self, index: u32) -> bool {
        self.taken.get(index as usize / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }
}

/// The blocks that a range touches.
fn blocks(uid_range: &str) -> std::ops::Range<u32> {
    match parse_block(uid_range) {
        Ok(block) if block.end >= FIRST && block.start <= block.end => {
            let first = block.start.saturating_sub(FIRST) / SIZE;
            let last = (block.end - FIRST) / SIZE;
            first.min(BLOCKS)..last.saturating_add(1).min(BLOCKS)
        }
        _ => 0..0,
    }
}

/// The pair of categories with that number: 0 is `c1,c0`, 1 is `c2,c0`, 2 is `c2,c1`, and so on.
fn pair(number: u32) -> String {
    let mut high = 1;
    let mut rest = number;
    while rest >= high {
        rest -= high;
        high += 1;
    }
    format!("s0:c{high},c{rest}")
}

#[cfg(test)]
mod tests {
    use super::{Allocator, pair};

    #[test]
    fn gives_what_openshift_gives() {
        let mut allocator = Allocator::default();
        let first = allocator.allocate().unwrap();
        assert_eq!((first.ids.as_str(), first.mcs.as_str()), ("1000000000/10000", "s0:c1,c0"));
        for index in 1..68 {
            assert_eq!(
                allocator.allocate().unwrap().ids,
                format!("{}/10000", 1_000_000_000 + index * 10_000)
            );
        }
        // As in OpenShift's documentation.
        let known = allocator.allocate().unwrap();
        assert_eq!((known.ids.as_str(), known.mcs.as_str()), ("1000680000/10000", "s0:c26,c15"));
        assert_eq!(known.annotations().count(), 3);
    }

    #[test]
    fn never_gives_twice_and_gives_again() {
        let mut allocator = Allocator::default();
        for taken in ["1000000000/10000", "1000015000-1000024999", "5/3", "nonsense", "4000000000/1"] {
            allocator.reserve(taken);
        }
        assert_eq!(allocator.allocate().unwrap().ids, "1000030000/10000");
        allocator.release("1000000000/10000");
        assert_eq!(allocator.allocate().unwrap().ids, "1000000000/10000");
        assert_eq!(allocator.allocate().unwrap().ids, "1000040000/10000");
        allocator.reserve("1000000000-1999999999");
        assert_eq!(allocator.allocate(), None);
    }

    #[test]
    fn the_last_pair_still_has_categories() {
        assert_eq!(pair(1), "s0:c2,c0");
        assert_eq!(pair(2), "s0:c2,c1");
        assert_eq!(pair(499_995), "s0:c1000,c495");
    }
}
