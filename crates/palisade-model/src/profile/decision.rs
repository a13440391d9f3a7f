//! Decision diagrams over the arguments of a system call: what a filter answers to every value of every argument.
//!
//! A diagram is a binary decision diagram with several terminals, over the bits of the six arguments, most significant bit
//! first. Comparisons and masks are small in this order, equal functions are the same node, and a difference between two
//! functions is a path, that is: a call. Rules can be made for which every diagram is huge; `Diagrams` gives up on
//! those instead of using up the machine.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::Hash,
};

/// The values of the six arguments.
pub type Arguments = [u64; 6];

/// A test of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Comparison {
    /// `argument != value`
    NotEqual(u64),
    /// `argument < value`
    Less(u64),
    /// `argument <= value`
    LessOrEqual(u64),
    /// `argument == value`
    Equal(u64),
    /// `argument >= value`
    GreaterOrEqual(u64),
    /// `argument > value`
    Greater(u64),
    /// `argument & mask == value & mask`
    MaskedEqual {
        /// The bits that count.
        mask: u64,
        /// What they must be.
        value: u64,
    },
}

impl Comparison {
    /// The result for a value, of which only `bits` count.
    #[must_use]
    pub const fn holds(self, argument: u64, bits: u32) -> bool {
        let width = width(bits);
        let argument = argument & width;
        match self {
            Self::NotEqual(value) => argument != value & width,
            Self::Less(value) => argument < value & width,
            Self::LessOrEqual(value) => argument <= value & width,
            Self::Equal(value) => argument == value & width,
            Self::GreaterOrEqual(value) => argument >= value & width,
            Self::Greater(value) => argument > value & width,
            Self::MaskedEqual { mask, value } => argument & mask == value & mask & width,
        }
    }
}

pub(super) const fn width(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Why a question has no answer: the rules are more involved than any real profile's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooComplex;

/// How many nodes are made before giving up; a real profile needs some hundred for a call.
const MAX_NODES: usize = 100_000;

/// How many pairs of nodes are looked at before giving up.
const MAX_STEPS: usize = 1_000_000;

/// A function from arguments to sets of `T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Diagram(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Terminal(u32),
    Branch { bit: u16, zero: Diagram, one: Diagram },
}

/// Diagrams that share their nodes, with sets of `T` at their ends. All questions to them together may take so long.
pub(super) struct Diagrams<T> {
    nodes: Vec<Node>,
    unique: HashMap<Node, Diagram>,
    sets: Vec<BTreeSet<T>>,
    interned: HashMap<BTreeSet<T>, u32>,
    steps: Cell<usize>,
}

impl<T: Ord + Hash + Clone> Diagrams<T> {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            unique: HashMap::new(),
            sets: Vec::new(),
            interned: HashMap::new(),
            steps: Cell::new(0),
        }
    }

    fn step(&self) -> Result<(), TooComplex> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > MAX_STEPS { Err(TooComplex) } else { Ok(()) }
    }

    fn node(&mut self, node: Node) -> Result<Diagram, TooComplex> {
        if let Node::Branch { zero, one, .. } = node
            && zero == one
        {
            return Ok(zero);
        }
        if let Some(&known) = self.unique.get(&node) {
            return Ok(known);
        }
        if self.nodes.len() >= MAX_NODES {
            return Err(TooComplex);
        }
        let diagram = Diagram(u32::try_from(self.nodes.len()).map_err(|_| TooComplex)?);
        self.nodes.push(node);
        self.unique.insert(node, diagram);
        Ok(diagram)
    }

    /// The same set for all arguments.
    pub(super) fn always(&mut self, set: BTreeSet<T>) -> Result<Diagram, TooComplex> {
        let id = if let Some(&id) = self.interned.get(&set) {
            id
        } else {
            let id = u32::try_from(self.sets.len()).map_err(|_| TooComplex)?;
            self.sets.push(set.clone());
            self.interned.insert(set, id);
            id
        };
        self.node(Node::Terminal(id))
    }

    /// `yes` where every condition holds, `no` elsewhere; at most one condition for each argument.
    pub(super) fn when(
        &mut self,
        conditions: &[(u8, Comparison)],
        bits: u32,
        yes: Diagram,
        no: Diagram,
    ) -> Result<Diagram, TooComplex> {
        let mut sorted = conditions.to_vec();
        sorted.sort_unstable_by_key(|&(index, _)| std::cmp::Reverse(index));
        let mut diagram = yes;
        for (index, comparison) in sorted {
            diagram = self.compare(index, comparison, bits, diagram, no)?;
        }
        Ok(diagram)
    }

    fn compare(
        &mut self,
        index: u8,
        comparison: Comparison,
        bits: u32,
        yes: Diagram,
        no: Diagram,
    ) -> Result<Diagram, TooComplex> {
        // From the last bit to the first: what the bits below decide is `diagram`.
        let (value, mask, mut diagram, above, below) = match comparison {
            Comparison::Equal(value) => (value, u64::MAX, yes, no, no),
            Comparison::MaskedEqual { mask, value } => (value, mask, yes, no, no),
            Comparison::NotEqual(value) => (value, u64::MAX, no, yes, yes),
            Comparison::GreaterOrEqual(value) => (value, u64::MAX, yes, yes, no),
            Comparison::Greater(value) => (value, u64::MAX, no, yes, no),
            Comparison::LessOrEqual(value) => (value, u64::MAX, yes, no, yes),
            Comparison::Less(value) => (value, u64::MAX, no, no, yes),
        };
        for bit in 0..bits.min(64) {
            if mask >> bit & 1 == 0 {
                continue;
            }
            let bit_id = u16::from(index) * 64 + u16::try_from(63 - bit).unwrap_or_default();
            let (zero, one) = if value >> bit & 1 == 1 { (below, diagram) } else { (diagram, above) };
            diagram = self.node(Node::Branch { bit: bit_id, zero, one })?;
        }
        Ok(diagram)
    }

    fn get(&self, diagram: Diagram) -> Node {
        self.nodes.get(diagram.0 as usize).copied().unwrap_or(Node::Terminal(u32::MAX))
    }

    /// The set at a terminal.
    fn set(&self, id: u32) -> BTreeSet<T> {
        self.sets.get(id as usize).cloned().unwrap_or_default()
    }

    /// Both sets together.
    pub(super) fn union(&mut self, a: Diagram, b: Diagram) -> Result<Diagram, TooComplex> {
        if a == b {
            return Ok(a);
        }
        self.combine(a, b, &|left, right| left.union(right).cloned().collect())
    }

    /// The set that `join` makes of the sets of both, for all arguments.
    pub(super) fn combine(
        &mut self,
        a: Diagram,
        b: Diagram,
        join: &impl Fn(&BTreeSet<T>, &BTreeSet<T>) -> BTreeSet<T>,
    ) -> Result<Diagram, TooComplex> {
        self.combine_with(a, b, join, &mut HashMap::new())
    }

    fn combine_with(
        &mut self,
        a: Diagram,
        b: Diagram,
        join: &impl Fn(&BTreeSet<T>, &BTreeSet<T>) -> BTreeSet<T>,
        done: &mut HashMap<(Diagram, Diagram), Diagram>,
    ) -> Result<Diagram, TooComplex> {
        if let Some(&known) = done.get(&(a, b)) {
            return Ok(known);
        }
        self.step()?;
        let joined = match split(self.get(a), self.get(b), (a, b)) {
            Err((left, right)) => {
                let set = join(&self.set(left), &self.set(right));
                self.always(set)?
            }
            Ok((bit, zero, one)) => {
                let zero = self.combine_with(zero.0, zero.1, join, done)?;
                let one = self.combine_with(one.0, one.1, join, done)?;
                self.node(Node::Branch { bit, zero, one })?
            }
        };
        done.insert((a, b), joined);
        Ok(joined)
    }

    /// Conditions that hold exactly where the sets are, for each set that is `wanted`: at most one condition for each argument,
    /// and no two lists of conditions hold for the same arguments.
    ///
    /// Lists that exclude each other are what libseccomp 2.5 compiles as they read, whatever their order; of lists that overlap
    /// it tests some against the wrong half of a comparison.
    pub(super) fn cover(
        &self,
        diagram: Diagram,
        bits: u32,
        wanted: &impl Fn(&BTreeSet<T>) -> bool,
    ) -> Result<Vec<Region<T>>, TooComplex> {
        let (index, values) = match self.get(diagram) {
            Node::Terminal(id) => {
                let set = self.set(id);
                return Ok(if wanted(&set) { vec![(Vec::new(), set)] } else { Vec::new() });
            }
            Node::Branch { bit, .. } => {
                let mut values = BTreeMap::new();
                self.values(diagram, bit / 64, Cube::default(), &mut values)?;
                (u8::try_from(bit / 64).map_err(|_| TooComplex)?, values)
            }
        };
        let mut regions = Vec::new();
        for (target, cubes) in values {
            let below = self.cover(target, bits, wanted)?;
            if below.is_empty() {
                continue;
            }
            for comparison in comparisons(&cubes, bits) {
                for (conditions, set) in &below {
                    let own = std::iter::once((index, comparison));
                    regions.push((own.chain(conditions.iter().copied()).collect(), set.clone()));
                }
                if regions.len() > MAX_REGIONS {
                    return Err(TooComplex);
                }
            }
        }
        Ok(regions)
    }

    /// The values of an argument, by the diagram of the arguments after it; ascending.
    fn values(
        &self,
        diagram: Diagram,
        index: u16,
        cube: Cube,
        found: &mut BTreeMap<Diagram, Vec<Cube>>,
    ) -> Result<(), TooComplex> {
        match self.get(diagram) {
            Node::Branch { bit, zero, one } if bit / 64 == index => {
                self.step()?;
                let bit = 1 << (63 - bit % 64);
                self.values(zero, index, Cube { mask: cube.mask | bit, ..cube }, found)?;
                self.values(one, index, Cube { mask: cube.mask | bit, value: cube.value | bit }, found)
            }
            _ => {
                found.entry(diagram).or_default().push(cube);
                Ok(())
            }
        }
    }

    /// Arguments for which the two sets are `different`, if there are any.
    pub(super) fn find(
        &self,
        a: Diagram,
        b: Diagram,
        different: &impl Fn(&BTreeSet<T>, &BTreeSet<T>) -> bool,
    ) -> Result<Option<Arguments>, TooComplex> {
        let mut arguments = [0; 6];
        let found = self.search(a, b, different, &mut HashSet::new(), &mut arguments)?;
        Ok(found.then_some(arguments))
    }

    /// What the set for these arguments is made into.
    pub(super) fn at<R>(
        &self,
        diagram: Diagram,
        arguments: &Arguments,
        read: impl Fn(&BTreeSet<T>) -> Option<R>,
    ) -> Option<R> {
        let mut diagram = diagram;
        loop {
            match self.get(diagram) {
                Node::Terminal(id) => return read(&self.set(id)),
                Node::Branch { bit, zero, one } => {
                    let argument = arguments.get(usize::from(bit / 64)).copied().unwrap_or_default();
                    diagram = if argument >> (63 - bit % 64) & 1 == 1 { one } else { zero };
                }
            }
        }
    }

    fn search(
        &self,
        a: Diagram,
        b: Diagram,
        different: &impl Fn(&BTreeSet<T>, &BTreeSet<T>) -> bool,
        done: &mut HashSet<(Diagram, Diagram)>,
        arguments: &mut Arguments,
    ) -> Result<bool, TooComplex> {
        if done.contains(&(a, b)) {
            return Ok(false);
        }
        self.step()?;
        let found = match split(self.get(a), self.get(b), (a, b)) {
            Err((left, right)) => different(&self.set(left), &self.set(right)),
            Ok((bit, zero, one)) => {
                if self.search(zero.0, zero.1, different, done, arguments)? {
                    true
                } else if self.search(one.0, one.1, different, done, arguments)? {
                    let (index, bit) = (usize::from(bit / 64), 63 - bit % 64);
                    if let Some(argument) = arguments.get_mut(index) {
                        *argument |= 1 << bit;
                    }
                    true
                } else {
                    false
                }
            }
        };
        if !found {
            done.insert((a, b));
        }
        Ok(found)
    }
}

/// Conditions, and the set of the arguments for which all of them hold.
pub(super) type Region<T> = (Vec<(u8, Comparison)>, BTreeSet<T>);

/// How many lists of conditions a call may take; real profiles need less than ten.
const MAX_REGIONS: usize = 512;

/// Values of an argument: those whose bits in `mask` are as in `value`.
#[derive(Debug, Clone, Copy, Default)]
struct Cube {
    mask: u64,
    value: u64,
}

/// How many bits between tested ones a cube may leave free before it is no longer written as ranges.
const MAX_FREE: u32 = 4;

/// A cube as cubes whose free bits are the lowest; none if these are many.
fn aligned(cube: Cube, last: u64) -> Option<Vec<Cube>> {
    let free = !cube.mask & last;
    let below = if cube.mask == 0 { last } else { (1 << cube.mask.trailing_zeros()) - 1 };
    let between = free & !below;
    if between.count_ones() > MAX_FREE {
        return None;
    }
    let mut cubes = vec![Cube { mask: cube.mask | between, value: cube.value }];
    for bit in (0..64).map(|bit| 1_u64 << bit).filter(|bit| between & bit != 0) {
        let with_bit: Vec<Cube> =
            cubes.iter().map(|cube| Cube { value: cube.value | bit, ..*cube }).collect();
        cubes.extend(with_bit);
    }
    Some(cubes)
}

/// Comparisons that exclude each other and together hold for the values of the cubes, which are ascending and disjoint.
fn comparisons(cubes: &[Cube], bits: u32) -> Vec<Comparison> {
    let last = width(bits);
    let masked = |cube: &Cube| {
        if cube.mask == last {
            Comparison::Equal(cube.value)
        } else {
            Comparison::MaskedEqual { mask: cube.mask, value: cube.value }
        }
    };
    // Ranges are what a narrow architecture reads as a wide one does: masks of high bits are empty there.
    let [_, _, ..] = cubes else { return cubes.iter().map(masked).collect() };
    let mut parts = Vec::new();
    for cube in cubes {
        match aligned(*cube, last) {
            Some(aligned) => parts.extend(aligned),
            None => return cubes.iter().map(masked).collect(),
        }
    }
    parts.sort_unstable_by_key(|cube| cube.value);
    let mut ranges: Vec<(u64, u64, Vec<Cube>)> = Vec::new();
    for cube in &parts {
        let (first, end) = (cube.value, cube.value | (!cube.mask & last));
        match ranges.last_mut() {
            Some((_, until, parts)) if until.checked_add(1) == Some(first) => {
                *until = end;
                parts.push(*cube);
            }
            _ => ranges.push((first, end, vec![*cube])),
        }
    }
    if let [(0, below, _), (above, end, _)] = ranges.as_slice()
        && *end == last
        && *above - *below == 2
    {
        return vec![Comparison::NotEqual(below + 1)];
    }
    let mut found = Vec::new();
    for (first, end, parts) in ranges {
        match (first, end) {
            (first, end) if first == end => found.push(Comparison::Equal(first)),
            (0, end) => found.push(Comparison::LessOrEqual(end)),
            (first, end) if end == last => found.push(Comparison::GreaterOrEqual(first)),
            _ => found.extend(parts.iter().map(masked)),
        }
    }
    found
}

/// Two diagrams below the first bit that either tests; the terminals if neither tests one.
type Halves = (u16, (Diagram, Diagram), (Diagram, Diagram));

fn split(a: Node, b: Node, (left, right): (Diagram, Diagram)) -> Result<Halves, (u32, u32)> {
    let first = |node: Node| match node {
        Node::Terminal(_) => u16::MAX,
        Node::Branch { bit, .. } => bit,
    };
    if let (Node::Terminal(a), Node::Terminal(b)) = (a, b) {
        return Err((a, b));
    }
    let bit = first(a).min(first(b));
    let halves = |node: Node, whole: Diagram| match node {
        Node::Branch { bit: own, zero, one } if own == bit => (zero, one),
        _ => (whole, whole),
    };
    let (a, b) = (halves(a, left), halves(b, right));
    Ok((bit, (a.0, b.0), (a.1, b.1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn comparison() -> impl Strategy<Value = Comparison> {
        let value = prop_oneof![0..8_u64, Just(u64::MAX), Just(1 << 32), any::<u64>()];
        (0..7, value.clone(), value).prop_map(|(kind, value, mask)| match kind {
            0 => Comparison::NotEqual(value),
            1 => Comparison::Less(value),
            2 => Comparison::LessOrEqual(value),
            3 => Comparison::Equal(value),
            4 => Comparison::GreaterOrEqual(value),
            5 => Comparison::Greater(value),
            _ => Comparison::MaskedEqual { mask, value },
        })
    }

    proptest! {
        /// A diagram finds arguments exactly where the comparison holds.
        #[test]
        fn a_diagram_is_its_comparison(comparison in comparison(), bits in prop_oneof![Just(32_u32), Just(64)], probe in any::<u64>()) {
            let mut diagrams = Diagrams::<bool>::new();
            let yes = diagrams.always(BTreeSet::from([true])).unwrap();
            let no = diagrams.always(BTreeSet::new()).unwrap();
            let diagram = diagrams.when(&[(2, comparison)], bits, yes, no).unwrap();
            for wanted in [true, false] {
                let found = diagrams.find(diagram, diagram, &|a, _| a.contains(&true) == wanted).unwrap();
                match found {
                    Some(arguments) => prop_assert_eq!(comparison.holds(arguments[2], bits), wanted),
                    None => for value in [probe, 0, 1, u64::MAX, 7, 8] {
                        prop_assert_ne!(comparison.holds(value, bits), wanted);
                    },
                }
            }
        }
    }

    proptest! {
        /// Every argument is in the region of its set, and in no other.
        #[test]
        fn a_cover_is_its_diagram(
            rules in prop::collection::vec((comparison(), comparison(), 0..3_u8), 1..4),
            bits in prop_oneof![Just(32_u32), Just(64)],
            probes in prop::collection::vec((prop_oneof![0..9_u64, any::<u64>()], prop_oneof![0..9_u64, any::<u64>()]), 40),
        ) {
            let mut diagrams = Diagrams::<u8>::new();
            let none = diagrams.always(BTreeSet::new()).unwrap();
            let mut all = none;
            for (first, second, set) in &rules {
                let yes = diagrams.always(BTreeSet::from([*set])).unwrap();
                let one = diagrams.when(&[(0, *first), (3, *second)], bits, yes, none).unwrap();
                all = diagrams.union(all, one).unwrap();
            }
            // Rules can be made that take more lists than any profile needs.
            let Ok(regions) = diagrams.cover(all, bits, &|set| !set.is_empty()) else { return Ok(()) };
            for (a, b) in probes {
                let expected: BTreeSet<u8> = rules.iter()
                    .filter(|(first, second, _)| first.holds(a, bits) && second.holds(b, bits)).map(|rule| rule.2).collect();
                let holds = |conditions: &[(u8, Comparison)]| {
                    conditions.iter().all(|(index, test)| test.holds(if *index == 0 { a } else { b }, bits))
                };
                let found: Vec<_> = regions.iter().filter(|(conditions, _)| holds(conditions)).map(|region| &region.1).collect();
                prop_assert!(found.len() <= 1, "{found:?}");
                prop_assert_eq!(found.first().copied().cloned().unwrap_or_default(), expected);
            }
        }
    }

    #[test]
    fn gives_up_instead_of_filling_memory() {
        // The order of the bits is the worst for pairs of arguments that must have the same bit set.
        let mut diagrams = Diagrams::<bool>::new();
        let yes = diagrams.always(BTreeSet::from([true])).unwrap();
        let no = diagrams.always(BTreeSet::new()).unwrap();
        let all = (0..24).try_fold(no, |all, bit| {
            let one = Comparison::MaskedEqual { mask: 1 << bit, value: u64::MAX };
            let rule = diagrams.when(&[(0, one), (1, one)], 64, yes, no)?;
            diagrams.union(all, rule)
        });
        assert_eq!(all, Err(TooComplex));
    }
}
