//! A profile as a program for the kernel (classic BPF), and what such a program answers.
//!
//! Implements: `seccomp(2)` and `Documentation/userspace-api/seccomp_filter.rst` of the kernel. A call of an architecture that
//! the profile does not cover ends the thread, x32 included, which shares its architecture with x86-64.
//!
//! The compiler writes from the last instruction to the first, so that every jump has its target before it is written.
//! Runtimes compile profiles with libseccomp; this is what the algebra is tested with against the kernel, and what reads
//! back the filters of a process.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{
    algebra::AlgebraError,
    architecture::Architecture,
    decision::{Arguments, Comparison},
    filter::{Action, Filter, Rule},
    syscalls::Syscall,
};

/// One instruction, as `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions to skip if the condition holds.
    pub jt: u8,
    /// How many to skip if it does not.
    pub jf: u8,
    /// Its operand.
    pub k: u32,
}

/// A program, and the byte order of the machine it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its instructions.
    pub instructions: Vec<Instruction>,
    little_endian: bool,
}

/// A call as the kernel hands it to a filter: `struct seccomp_data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeccompData {
    /// The number of the call.
    pub number: u32,
    /// `AUDIT_ARCH_…`
    pub architecture: u32,
    /// Where the call was made.
    pub instruction_pointer: u64,
    /// Its arguments.
    pub arguments: Arguments,
}

/// Why a profile has no program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// It has no single meaning.
    #[error(transparent)]
    Algebra(#[from] AlgebraError),
    /// Longer than the kernel accepts.
    #[error("the program has {0} instructions, more than the {MAX_INSTRUCTIONS} that the kernel accepts")]
    TooLong(usize),
}

/// Why a program has no answer: the kernel would not have accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProgramError {
    /// An instruction that seccomp filters do not have.
    #[error("instruction {at} has the unknown code {code:#x}")]
    Code {
        /// Which instruction.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// A load from outside of the call, or not of a whole word.
    #[error("instruction {at} loads from offset {offset}")]
    Load {
        /// Which instruction.
        at: usize,
        /// The offset.
        offset: u32,
    },
    /// The program ends without a return.
    #[error("the program ends without a return")]
    NoReturn,
}

/// `BPF_MAXINSNS`
pub const MAX_INSTRUCTIONS: usize = 4096;

const LOAD: u16 = 0x20;
const RETURN: u16 = 0x06;
const JUMP: u16 = 0x05;
const EQUAL: u16 = 0x15;
const GREATER: u16 = 0x25;
const GREATER_OR_EQUAL: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const AND: u16 = 0x54;

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
const X32_BIT: u32 = 0x4000_0000;

impl Action {
    /// `SECCOMP_RET_…` with its data.
    #[must_use]
    pub const fn to_kernel(self) -> u32 {
        match self {
            Self::KillProcess => 0x8000_0000,
            Self::KillThread => 0,
            Self::Trap => 0x0003_0000,
            Self::Errno(errno) => 0x0005_0000 | errno as u32,
            Self::Notify => 0x7fc0_0000,
            Self::Trace(data) => 0x7ff0_0000 | data as u32,
            Self::Log => 0x7ffc_0000,
            Self::Allow => 0x7fff_0000,
        }
    }

    /// The action of a value that a filter returned; an unknown one ends the process.
    #[must_use]
    pub fn from_kernel(value: u32) -> Self {
        let data = u16::try_from(value & 0xffff).unwrap_or(u16::MAX);
        match value & 0xffff_0000 {
            0 => Self::KillThread,
            0x0003_0000 => Self::Trap,
            0x0005_0000 => Self::Errno(data.min(4095)),
            0x7fc0_0000 => Self::Notify,
            0x7ff0_0000 => Self::Trace(data),
            0x7ffc_0000 => Self::Log,
            0x7fff_0000 => Self::Allow,
            _ => Self::KillProcess,
        }
    }
}

/// An instruction that is written already: how many come after it.
type Label = usize;

/// Where the answer to a call comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Return(Action),
    Block(Label),
}

#[derive(Default)]
struct Assembler {
    reversed: Vec<Instruction>,
    returns: BTreeMap<Action, Label>,
}

/// How far a conditional jump is let go before a nearer copy of its target is written; two copies may follow.
const NEAR: usize = 250;

impl Assembler {
    fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) -> Label {
        self.reversed.push(Instruction { code, jt, jf, k });
        self.reversed.len() - 1
    }

    fn distance(&self, label: Label) -> usize {
        self.reversed.len() - 1 - label
    }

    /// A label within reach of a conditional jump.
    fn near(&mut self, target: Target) -> Label {
        let label = match target {
            Target::Return(action) => match self.returns.get(&action) {
                Some(&label) => label,
                None => return self.write_return(action),
            },
            Target::Block(label) => label,
        };
        match (target, self.distance(label)) {
            (_, 0..NEAR) => label,
            (Target::Return(action), _) => self.write_return(action),
            (Target::Block(_), distance) => {
                self.push(JUMP, u32::try_from(distance).unwrap_or(u32::MAX), 0, 0)
            }
        }
    }

    fn write_return(&mut self, action: Action) -> Label {
        let label = self.push(RETURN, action.to_kernel(), 0, 0);
        self.returns.insert(action, label);
        label
    }

    fn jump(&mut self, code: u16, k: u32, yes: Target, no: Target) -> Label {
        let yes = self.near(yes);
        let no = self.near(no);
        let skip =
            |assembler: &Self, label: Label| u8::try_from(assembler.distance(label)).unwrap_or(u8::MAX);
        let (jt, jf) = (skip(self, yes), skip(self, no));
        self.push(code, k, jt, jf)
    }

    fn load(&mut self, offset: u32) -> Label {
        self.push(LOAD, offset, 0, 0)
    }

    /// Goes on at `yes` if the comparison holds, else at `no`.
    fn compare(
        &mut self,
        (index, comparison): (u8, Comparison),
        architecture: Architecture,
        yes: Target,
        no: Target,
    ) -> Label {
        let base = ARGUMENTS + 8 * u32::from(index);
        let (low, high) = if architecture.is_little_endian() { (base, base + 4) } else { (base + 4, base) };
        let is_wide = architecture.bits() == 64;
        let halves = |value: u64| {
            (
                u32::try_from(value & 0xffff_ffff).unwrap_or(u32::MAX),
                u32::try_from(value >> 32).unwrap_or(u32::MAX),
            )
        };
        match comparison {
            Comparison::NotEqual(value) => {
                self.compare((index, Comparison::Equal(value)), architecture, no, yes)
            }
            Comparison::Less(value) => {
                self.compare((index, Comparison::GreaterOrEqual(value)), architecture, no, yes)
            }
            Comparison::LessOrEqual(value) => {
                self.compare((index, Comparison::Greater(value)), architecture, no, yes)
            }
            Comparison::Equal(value) => {
                let (lower, upper) = halves(value);
                self.jump(EQUAL, lower, yes, no);
                let rest = self.load(low);
                if is_wide {
                    self.jump(EQUAL, upper, Target::Block(rest), no);
                    return self.load(high);
                }
                rest
            }
            Comparison::GreaterOrEqual(value) | Comparison::Greater(value) => {
                let (lower, upper) = halves(value);
                let code =
                    if matches!(comparison, Comparison::Greater(_)) { GREATER } else { GREATER_OR_EQUAL };
                self.jump(code, lower, yes, no);
                let rest = self.load(low);
                if is_wide {
                    let same = self.jump(EQUAL, upper, Target::Block(rest), no);
                    self.jump(GREATER, upper, yes, Target::Block(same));
                    return self.load(high);
                }
                rest
            }
            Comparison::MaskedEqual { mask, value } => {
                let ((lower, upper), (low_mask, high_mask)) = (halves(value & mask), halves(mask));
                self.jump(EQUAL, lower, yes, no);
                self.push(AND, low_mask, 0, 0);
                let rest = self.load(low);
                if is_wide {
                    self.jump(EQUAL, upper, Target::Block(rest), no);
                    self.push(AND, high_mask, 0, 0);
                    return self.load(high);
                }
                rest
            }
        }
    }

    /// The rules of a call, one after the other.
    fn rules(&mut self, rules: &[Rule], architecture: Architecture, default: Action) -> Target {
        let bits = architecture.bits();
        // Without conditions a rule comes before all others; a mask may be empty on a narrow architecture only.
        if let Some(rule) = rules.iter().find(|rule| rule.conditions(bits).is_empty()) {
            return Target::Return(rule.action);
        }
        let mut next = Target::Return(default);
        for rule in rules.iter().rev() {
            let mut target = Target::Return(rule.action);
            for condition in rule.conditions(bits).into_iter().rev() {
                target = Target::Block(self.compare(condition, architecture, target, next));
            }
            next = target;
        }
        next
    }

    /// A search for the number among ranges: each begins at its number and ends before the next one's.
    fn search(&mut self, ranges: &[(u32, Target)]) -> Target {
        match ranges {
            [] => Target::Return(Action::KillProcess),
            [(_, only)] => *only,
            _ => {
                let (lower, upper) = ranges.split_at(ranges.len() / 2);
                let boundary = upper.first().map_or(0, |(start, _)| *start);
                let upper = self.search(upper);
                let lower = self.search(lower);
                Target::Block(self.jump(GREATER_OR_EQUAL, boundary, upper, lower))
            }
        }
    }
}

impl Filter {
    /// The program for a machine.
    pub fn compile(&self, machine: Architecture) -> Result<Program, CompileError> {
        let filter = self.normalized()?;
        let mut assembler = Assembler::default();
        // Conventions by what the kernel calls them.
        let mut families: BTreeMap<u32, Vec<Architecture>> = BTreeMap::new();
        for architecture in Architecture::all().filter(|known| known.runs_on(machine)) {
            if architecture == machine || filter.architectures.contains(&architecture) {
                families.entry(architecture.audit()).or_default().push(architecture);
            }
        }
        let mut otherwise = Target::Return(Action::KillThread);
        let mut entries = Vec::new();
        for (audit, architectures) in families {
            let mut numbers: BTreeMap<u32, Target> = BTreeMap::new();
            for &architecture in &architectures {
                for (syscall, rules) in &filter.rules {
                    if let Some(number) = syscall.number(architecture) {
                        let target = assembler.rules(rules, architecture, filter.default);
                        numbers.insert(number, target);
                    }
                }
            }
            let ranges = ranges(&numbers, filter.default, &architectures);
            let found = assembler.search(&ranges);
            assembler_entry(&mut assembler, found);
            let label = assembler.load(NUMBER);
            entries.push((audit, label));
        }
        for (audit, label) in entries {
            otherwise = Target::Block(assembler.jump(EQUAL, audit, Target::Block(label), otherwise));
        }
        assembler.load(ARCHITECTURE);
        let instructions: Vec<Instruction> = assembler.reversed.into_iter().rev().collect();
        if instructions.len() > MAX_INSTRUCTIONS {
            return Err(CompileError::TooLong(instructions.len()));
        }
        Ok(Program { instructions, little_endian: machine.is_little_endian() })
    }
}

/// Makes sure that what is written next runs into the target.
fn assembler_entry(assembler: &mut Assembler, target: Target) {
    let label = match target {
        Target::Return(action) => assembler.write_return(action),
        Target::Block(label) => label,
    };
    let distance = assembler.distance(label);
    if distance > 0 {
        assembler.push(JUMP, u32::try_from(distance).unwrap_or(u32::MAX), 0, 0);
    }
}

/// Numbers with the same answer side by side; what no rule names has the default action.
fn ranges(
    numbers: &BTreeMap<u32, Target>,
    default: Action,
    architectures: &[Architecture],
) -> Vec<(u32, Target)> {
    let mut starts: BTreeMap<u32, Target> = BTreeMap::from([(0, Target::Return(default))]);
    let has = |token: &str| architectures.iter().any(|known| known.token() == token);
    if has("SCMP_ARCH_X86_64") {
        let x32 = if has("SCMP_ARCH_X32") { default } else { Action::KillThread };
        starts.insert(X32_BIT, Target::Return(x32));
    }
    for (&number, &target) in numbers {
        starts.insert(number, target);
        let next = number + 1;
        if !numbers.contains_key(&next) && next != X32_BIT {
            starts.insert(next, Target::Return(default));
        }
    }
    let mut merged: Vec<(u32, Target)> = Vec::with_capacity(starts.len());
    for (start, target) in starts {
        if merged.last().is_none_or(|(_, last)| *last != target) {
            merged.push((start, target));
        }
    }
    merged
}

impl Program {
    /// What the kernel would answer.
    pub fn run(&self, data: &SeccompData) -> Result<Action, ProgramError> {
        let mut accumulator: u32 = 0;
        let mut at = 0_usize;
        while let Some(instruction) = self.instructions.get(at) {
            let Instruction { code, jt, jf, k } = *instruction;
            let branch = |taken: bool| usize::from(if taken { jt } else { jf });
            let mut skip = 0;
            match code {
                LOAD => accumulator = self.load(data, k).ok_or(ProgramError::Load { at, offset: k })?,
                RETURN => return Ok(Action::from_kernel(k)),
                AND => accumulator &= k,
                JUMP => skip = usize::try_from(k).unwrap_or(usize::MAX),
                EQUAL => skip = branch(accumulator == k),
                GREATER => skip = branch(accumulator > k),
                GREATER_OR_EQUAL => skip = branch(accumulator >= k),
                ANY_BIT => skip = branch(accumulator & k != 0),
                _ => return Err(ProgramError::Code { at, code }),
            }
            at = at.saturating_add(1).saturating_add(skip);
        }
        Err(ProgramError::NoReturn)
    }

    fn load(&self, data: &SeccompData, offset: u32) -> Option<u32> {
        let half = |value: u64, second: bool| {
            let upper = second == self.little_endian;
            u32::try_from(if upper { value >> 32 } else { value & 0xffff_ffff }).unwrap_or(u32::MAX)
        };
        match offset {
            NUMBER => Some(data.number),
            ARCHITECTURE => Some(data.architecture),
            8 | 12 => Some(half(data.instruction_pointer, offset == 12)),
            _ if offset >= ARGUMENTS && offset.is_multiple_of(4) => {
                let at = usize::try_from((offset - ARGUMENTS) / 8).unwrap_or(usize::MAX);
                data.arguments.get(at).map(|value| half(*value, (offset - ARGUMENTS) % 8 == 4))
            }
            _ => None,
        }
    }
}

impl SeccompData {
    /// A call as the kernel hands it over; none if the architecture does not have it.
    #[must_use]
    pub fn of(syscall: Syscall, architecture: Architecture, arguments: Arguments) -> Option<Self> {
        let number = syscall.number(architecture)?;
        Some(Self { number, architecture: architecture.audit(), instruction_pointer: 0, arguments })
    }
}
