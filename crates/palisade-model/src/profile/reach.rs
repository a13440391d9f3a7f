//! Which calls get through the filters of a process.
//!
//! Implements: the evaluation of classic BPF as `seccomp_data` programs (`kernel/seccomp.c`, `net/core/filter.c`), for all values of
//! the arguments at once. The number and the architecture of a call are known, so that most jumps are; where a jump depends on an
//! argument, both ways are followed, and the result is a decision diagram. Of several filters the strictest answer counts, of equal
//! ones that of the filter installed last.
//!
//! What the evaluation does not follow (a load of the instruction pointer, arithmetic on arguments) is [`ReachError::Undecidable`], and
//! never a denial.

use std::collections::{BTreeSet, HashMap};

use thiserror::Error;

use super::{
    architecture::Architecture,
    bpf::Instruction,
    call_pattern::{CallPattern, ValuePattern, Way},
    decision::{Arguments, Comparison, Diagram, Diagrams, TooComplex},
    filter::{Action, Call},
    syscalls::Syscall,
};

/// Why it is not known what filters do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReachError {
    /// The programs are larger than any real one.
    #[error("the filter is too complex to evaluate")]
    TooComplex,
    /// A program does what no compiler of profiles makes it do.
    #[error("instruction {at} of the filter computes with what is not known in advance")]
    Undecidable {
        /// Which instruction.
        at: usize,
    },
    /// The kernel does not load such a program.
    #[error("instruction {at} of the filter has the unknown code {code:#x}")]
    Code {
        /// Which instruction.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// The program ends without a return.
    #[error("the filter ends without a return")]
    NoReturn,
}

impl From<TooComplex> for ReachError {
    fn from(TooComplex: TooComplex) -> Self {
        Self::TooComplex
    }
}

/// A call that gets through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// The call, as filters see it.
    pub call: Call,
    /// What happens to it.
    pub action: Action,
    /// Why it is another call than the pattern names.
    pub because: Option<&'static str>,
}

/// Whether filters let a pattern through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// This call is made.
    Can(Witness),
    /// Another process decides about this call.
    Delegated(Witness),
    /// No call is made: these actions are taken instead.
    Cannot(BTreeSet<Action>),
}

/// The filters of a thread, that of the filter installed last first.
pub type Filters = Vec<Vec<Instruction>>;

/// Whether a call that matches the pattern gets through all filters, made by any convention that the machine has.
pub fn reach(
    filters: &[Vec<Instruction>],
    pattern: &CallPattern,
    machine: Architecture,
) -> Result<Reach, ReachError> {
    let mut delegated = None;
    let mut denials = BTreeSet::new();
    let others = Architecture::all().filter(|known| *known != machine && known.runs_on(machine));
    for architecture in std::iter::once(machine).chain(others) {
        for way in pattern.ways(architecture) {
            let found = reach_by(filters, &way, architecture)?;
            match found {
                Reach::Can(_) => return Ok(found),
                Reach::Delegated(_) if delegated.is_none() => delegated = Some(found),
                Reach::Delegated(_) => {}
                Reach::Cannot(actions) => denials.extend(actions),
            }
        }
    }
    Ok(delegated.unwrap_or(Reach::Cannot(denials)))
}

fn reach_by(
    filters: &[Vec<Instruction>],
    way: &Way,
    architecture: Architecture,
) -> Result<Reach, ReachError> {
    let Some(number) = way.syscall.number(architecture) else { return Ok(Reach::Cannot(BTreeSet::new())) };
    let mut diagrams = Diagrams::new();
    let mut answer = diagrams.always(BTreeSet::from([Action::Allow]))?;
    // The one installed last is asked first, and keeps its number where an older one is as strict.
    for program in filters {
        let own = Evaluation { program, number, architecture, done: HashMap::new() }.run(&mut diagrams)?;
        answer = diagrams.combine(answer, own, &|known, own| stricter(known, own))?;
    }
    let meant = matching(&way.arguments, architecture.bits(), &mut diagrams)?;
    let find = |wanted: &dyn Fn(Action) -> bool| {
        diagrams.find(answer, meant, &|actions, meant| {
            !meant.is_empty() && actions.iter().any(|action| wanted(*action))
        })
    };
    let witness = |arguments: Arguments, action: Action| Witness {
        call: Call { architecture, syscall: Some(way.syscall), arguments },
        action,
        because: way.because,
    };
    for action in [Action::Allow, Action::Log] {
        if let Some(arguments) = find(&|found| found == action)? {
            return Ok(Reach::Can(witness(arguments, action)));
        }
    }
    if let Some(arguments) = find(&|found| !found.denies())? {
        let is_notify = find(&|found| found == Action::Notify)?.is_some();
        let action = if is_notify { Action::Notify } else { Action::Trace(0) };
        return Ok(Reach::Delegated(witness(arguments, action)));
    }
    let mut denials = BTreeSet::new();
    while let Some(arguments) = find(&|found| !denials.contains(&found))? {
        let at = |set: &BTreeSet<Action>| set.first().copied();
        let Some(action) = diagrams.at(answer, &arguments, at) else { break };
        if !denials.insert(action) {
            break;
        }
    }
    Ok(Reach::Cannot(denials))
}

/// Where arguments are as in a pattern, the set is not empty.
pub(super) fn matching(
    arguments: &[Option<ValuePattern>; 6],
    bits: u32,
    diagrams: &mut Diagrams<Action>,
) -> Result<Diagram, TooComplex> {
    let yes = diagrams.always(BTreeSet::from([Action::Allow]))?;
    let no = diagrams.always(BTreeSet::new())?;
    let conditions: Vec<(u8, Comparison)> = (0..)
        .zip(arguments)
        .filter_map(|(index, pattern)| pattern.map(|pattern| (index, pattern.comparison())))
        .collect();
    // The upper half of an argument is empty on a narrow architecture.
    let impossible = |(_, comparison): &(u8, Comparison)| match comparison {
        Comparison::MaskedEqual { mask, value } => bits == 32 && (mask & value) >> 32 != 0,
        _ => false,
    };
    if conditions.iter().any(impossible) {
        return Ok(no);
    }
    diagrams.when(&conditions, bits, yes, no)
}

/// The answer that the kernel prefers; the first of equal ones.
fn stricter(first: &BTreeSet<Action>, second: &BTreeSet<Action>) -> BTreeSet<Action> {
    match (first.first(), second.first()) {
        (Some(known), Some(own)) if own.precedence() < known.precedence() => second.clone(),
        (Some(_), _) => first.clone(),
        (None, _) => second.clone(),
    }
}

/// A value of the machine that runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Word {
    Known(u32),
    /// Half of an argument, of which only some bits are left.
    Argument {
        index: u8,
        is_upper: bool,
        mask: u32,
    },
    Unknown,
}

/// Where a program is, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    at: usize,
    accumulator: Word,
    index: Word,
    memory: [Word; 16],
}

/// How many jumps that depend on arguments may follow each other, and how many states are looked at.
const MAX_DEPTH: usize = 512;
const MAX_STATES: usize = 50_000;

struct Evaluation<'p> {
    program: &'p [Instruction],
    number: u32,
    architecture: Architecture,
    done: HashMap<State, Diagram>,
}

/// What a comparison says.
enum Test {
    Known(bool),
    /// Not empty where it holds.
    Depends(Diagram),
}

impl Evaluation<'_> {
    fn run(mut self, diagrams: &mut Diagrams<Action>) -> Result<Diagram, ReachError> {
        let zero = Word::Known(0);
        self.from(State { at: 0, accumulator: zero, index: zero, memory: [zero; 16] }, diagrams, 0)
    }

    fn from(
        &mut self,
        state: State,
        diagrams: &mut Diagrams<Action>,
        depth: usize,
    ) -> Result<Diagram, ReachError> {
        if let Some(&known) = self.done.get(&state) {
            return Ok(known);
        }
        if depth > MAX_DEPTH || self.done.len() > MAX_STATES {
            return Err(ReachError::TooComplex);
        }
        let found = self.follow(state, diagrams, depth)?;
        self.done.insert(state, found);
        Ok(found)
    }

    /// Follows the program to the next jump that depends on an argument.
    fn follow(
        &mut self,
        mut state: State,
        diagrams: &mut Diagrams<Action>,
        depth: usize,
    ) -> Result<Diagram, ReachError> {
        loop {
            let at = state.at;
            let Some(&Instruction { code, jt, jf, k }) = self.program.get(at) else {
                return Err(ReachError::NoReturn);
            };
            let unknown_code = ReachError::Code { at, code };
            let undecidable = ReachError::Undecidable { at };
            let cell = |state: &State| {
                let cell = usize::try_from(k).ok().and_then(|cell| state.memory.get(cell)); // swallowed: no such cell
                cell.copied().ok_or(unknown_code)
            };
            let mut skip = 0;
            match code {
                // BPF_LD and BPF_LDX: what the kernel allows of them in a filter.
                0x20 => state.accumulator = self.load(k).ok_or(unknown_code)?,
                0x80 => state.accumulator = Word::Known(DATA_SIZE),
                0x81 => state.index = Word::Known(DATA_SIZE),
                0x00 => state.accumulator = Word::Known(k),
                0x01 => state.index = Word::Known(k),
                0x60 => state.accumulator = cell(&state)?,
                0x61 => state.index = cell(&state)?,
                // BPF_ST, BPF_STX
                0x02 | 0x03 => {
                    cell(&state)?;
                    let value = if code == 0x02 { state.accumulator } else { state.index };
                    // swallowed: checked above
                    if let Some(cell) = usize::try_from(k).ok().and_then(|cell| state.memory.get_mut(cell)) {
                        *cell = value;
                    }
                }
                // BPF_MISC
                0x07 => state.index = state.accumulator,
                0x87 => state.accumulator = state.index,
                // BPF_RET
                0x06 => return Ok(diagrams.always(BTreeSet::from([Action::from_kernel(k)]))?),
                0x16 => {
                    let Word::Known(value) = state.accumulator else { return Err(undecidable) };
                    return Ok(diagrams.always(BTreeSet::from([Action::from_kernel(value)]))?);
                }
                0x05 => skip = usize::try_from(k).map_err(|_| ReachError::NoReturn)?,
                // BPF_JMP with a constant, or with the index register
                0x15 | 0x25 | 0x35 | 0x45 | 0x1d | 0x2d | 0x3d | 0x4d => {
                    let operand = match (code & 0x08 != 0, state.index) {
                        (false, _) => k,
                        (true, Word::Known(value)) => value,
                        (true, _) => return Err(undecidable),
                    };
                    let test = compare(code & !0x08, state.accumulator, operand, diagrams)?;
                    match test.ok_or(undecidable)? {
                        Test::Known(holds) => skip = usize::from(if holds { jt } else { jf }),
                        Test::Depends(condition) => {
                            let yes = State { at: at + 1 + usize::from(jt), ..state };
                            let no = State { at: at + 1 + usize::from(jf), ..state };
                            let yes = self.from(yes, diagrams, depth + 1)?;
                            let no = self.from(no, diagrams, depth + 1)?;
                            return Ok(choose(condition, yes, no, diagrams)?);
                        }
                    }
                }
                _ if code & 0x07 == 0x04 => {
                    let operand = if code & 0x08 == 0 { Word::Known(k) } else { state.index };
                    match arithmetic(code & !0x08, state.accumulator, operand) {
                        Arithmetic::Value(value) => state.accumulator = value,
                        // The kernel ends such a program with 0.
                        Arithmetic::DividesByZero => {
                            return Ok(diagrams.always(BTreeSet::from([Action::KillThread]))?);
                        }
                        Arithmetic::NoSuchCode => return Err(unknown_code),
                    }
                }
                _ => return Err(unknown_code),
            }
            state.at = at.saturating_add(1).saturating_add(skip);
        }
    }

    /// What is at an offset of `struct seccomp_data`.
    fn load(&self, offset: u32) -> Option<Word> {
        const ARGUMENTS: u32 = 16;
        Some(match offset {
            0 => Word::Known(self.number),
            4 => Word::Known(self.architecture.audit()),
            8 | 12 => Word::Unknown,
            _ if (ARGUMENTS..DATA_SIZE).contains(&offset) && offset.is_multiple_of(4) => {
                let is_second = (offset - ARGUMENTS) % 8 == 4;
                let is_upper = is_second == self.architecture.is_little_endian();
                // swallowed: fewer than six
                let index = u8::try_from((offset - ARGUMENTS) / 8).ok()?;
                if is_upper && self.architecture.bits() == 32 {
                    Word::Known(0)
                } else {
                    Word::Argument { index, is_upper, mask: u32::MAX }
                }
            }
            _ => return None,
        })
    }
}

/// The size of `struct seccomp_data`.
const DATA_SIZE: u32 = 64;

enum Arithmetic {
    Value(Word),
    DividesByZero,
    NoSuchCode,
}

fn arithmetic(code: u16, left: Word, right: Word) -> Arithmetic {
    let value = |value: u32| Arithmetic::Value(Word::Known(value));
    match (code, left, right) {
        (0x34, _, Word::Known(0)) => Arithmetic::DividesByZero,
        (0x54, Word::Argument { index, is_upper, mask }, Word::Known(bits))
        | (0x54, Word::Known(bits), Word::Argument { index, is_upper, mask }) => {
            Arithmetic::Value(match mask & bits {
                0 => Word::Known(0),
                mask => Word::Argument { index, is_upper, mask },
            })
        }
        (0x84, Word::Known(left), _) => value(left.wrapping_neg()),
        (code, Word::Known(left), Word::Known(right)) => match code {
            0x04 => value(left.wrapping_add(right)),
            0x14 => value(left.wrapping_sub(right)),
            0x24 => value(left.wrapping_mul(right)),
            0x34 => value(left.checked_div(right).unwrap_or_default()),
            0x44 => value(left | right),
            0x54 => value(left & right),
            // The kernel loads no program with a larger constant; of the register the lower bits count.
            0x64 => value(left.wrapping_shl(right)),
            0x74 => value(left.wrapping_shr(right)),
            0xa4 => value(left ^ right),
            _ => Arithmetic::NoSuchCode,
        },
        (0x04 | 0x14 | 0x24 | 0x34 | 0x44 | 0x54 | 0x64 | 0x74 | 0x84 | 0xa4, _, _) => {
            Arithmetic::Value(Word::Unknown)
        }
        _ => Arithmetic::NoSuchCode,
    }
}

/// The result of a comparison; none if it depends on something else than an argument.
fn compare(
    code: u16,
    left: Word,
    right: u32,
    diagrams: &mut Diagrams<Action>,
) -> Result<Option<Test>, ReachError> {
    let (index, is_upper, mask) = match left {
        Word::Unknown => return Ok(None),
        Word::Known(left) => {
            return Ok(Some(Test::Known(match code {
                0x15 => left == right,
                0x25 => left > right,
                0x35 => left >= right,
                _ => left & right != 0,
            })));
        }
        Word::Argument { index, is_upper, mask } => (index, is_upper, mask),
    };
    let shift = if is_upper { 32 } else { 0 };
    let equal = |mask: u32, value: u32| {
        (index, Comparison::MaskedEqual { mask: u64::from(mask) << shift, value: u64::from(value) << shift })
    };
    let yes = diagrams.always(BTreeSet::from([Action::Allow]))?;
    let no = diagrams.always(BTreeSet::new())?;
    let depends = |diagram| Ok(Some(Test::Depends(diagram)));
    match code {
        0x15 if right & !mask != 0 => Ok(Some(Test::Known(false))),
        0x15 => depends(diagrams.when(&[equal(mask, right)], 64, yes, no)?),
        0x45 if right & mask == 0 => Ok(Some(Test::Known(false))),
        0x45 => depends(diagrams.when(&[equal(mask & right, 0)], 64, no, yes)?),
        0x35 if right == 0 => Ok(Some(Test::Known(true))),
        _ => {
            let bound = if code == 0x35 { right - 1 } else { right };
            // It is greater if it has a bit that the bound does not have, and is as the bound above that bit.
            let mut greater = no;
            for bit in (0..32).map(|bit| 1_u32 << bit) {
                let above = !(bit | (bit - 1));
                if bound & bit == 0 && mask & bit != 0 && bound & above & !mask == 0 {
                    let condition = equal(mask & above | bit, bound & above | bit);
                    let one = diagrams.when(&[condition], 64, yes, no)?;
                    greater = diagrams.union(greater, one)?;
                }
            }
            depends(greater)
        }
    }
}

/// `yes` where the condition is not empty, else `no`.
fn choose(
    condition: Diagram,
    yes: Diagram,
    no: Diagram,
    diagrams: &mut Diagrams<Action>,
) -> Result<Diagram, TooComplex> {
    let yes = diagrams.combine(condition, yes, &|condition, yes| {
        if condition.is_empty() { BTreeSet::new() } else { yes.clone() }
    })?;
    let no = diagrams.combine(condition, no, &|condition, no| {
        if condition.is_empty() { no.clone() } else { BTreeSet::new() }
    })?;
    diagrams.union(yes, no)
}

/// Whether strict mode, which is older than filters, lets the pattern through: four calls of the machine's own convention.
#[must_use]
pub fn reach_strict(pattern: &CallPattern, machine: Architecture) -> Reach {
    const ALLOWED: [&str; 4] = ["read", "write", "exit", "rt_sigreturn"];
    let denied = || Reach::Cannot(BTreeSet::from([Action::KillThread]));
    let is_allowed = |syscall: Syscall| ALLOWED.contains(&syscall.name());
    let Some(way) = pattern.ways(machine).into_iter().find(|way| is_allowed(way.syscall)) else {
        return denied();
    };
    let arguments = way.arguments.map(|pattern| pattern.map_or(0, |pattern| pattern.value));
    let call = Call { architecture: machine, syscall: Some(way.syscall), arguments };
    Reach::Can(Witness { call, action: Action::Allow, because: way.because })
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
