//! `palisade profile intersect|merge|subset|minimize|explain-call`: the algebra of profiles on the command line.
//!
//! A profile is what the other commands take, or `runtime-default:<runtime>[@<version>]`: the default profile of a container
//! runtime for a container with the given capabilities.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use palisade_model::profile::{
    algebra::{CallRegion, Strictness},
    architecture::Architecture,
    decision::Comparison,
    docker::{self, Container},
    document::KernelVersion,
    filter::{Call, Filter},
    runtime_default::{PREFIX, RuntimeDefault},
    syscalls::{self, Syscall},
};

use super::{document, kernel_version};
use crate::{
    args::ValueError,
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// The container that default profiles, and profiles in Docker's form, are resolved for.
#[derive(Debug, Args)]
pub(super) struct ContainerArgs {
    /// Capabilities of the container, such as NET_ADMIN,SYS_TIME, for runtime-default: and --docker; without it, those that
    /// the runtime gives to a container that sets none
    #[arg(long, value_name = "CAPABILITY", value_delimiter = ',', value_parser = capability)]
    capabilities: Option<Vec<String>>,
    /// Machine, as Go names it
    #[arg(long, value_name = "ARCHITECTURE", default_value = "amd64", value_parser = machine)]
    architecture: Architecture,
    /// Kernel of the machine, such as 5.10, for runtime-default: and --docker; without it, one that has everything
    #[arg(long, value_name = "VERSION", value_parser = kernel_version)]
    kernel: Option<KernelVersion>,
    /// Evaluate includes, excludes and archMap, as Docker, Podman and CRI-O do; containerd and runc drop them
    #[arg(long)]
    docker: bool,
}

/// What Docker and containerd give to a container that sets no capabilities.
const DEFAULT_RUNTIME: &str = "containerd";

fn capability(text: &str) -> Result<String, ValueError> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') {
        return Err(ValueError::Form("write capabilities as NET_ADMIN or CAP_NET_ADMIN"));
    }
    Ok(format!("CAP_{name}"))
}

pub(crate) fn machine(text: &str) -> Result<Architecture, ValueError> {
    Architecture::of_go(text).ok_or(ValueError::Form(
        "is not an architecture: amd64, arm64, arm, 386, loong64, mips64, mips64le, ppc64, ppc64le, riscv64 or s390x",
    ))
}

/// A number as C writes it; a negative one as the kernel sees it.
fn argument(text: &str) -> Result<u64, ValueError> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let number = number.map_err(|_| ValueError::Form("is not a number: write 38, 0x26 or -1"))?;
    Ok(if sign { number.wrapping_neg() } else { number })
}

/// Two profiles.
#[derive(Debug, Args)]
pub struct PairArgs {
    /// The first profile: a file, or runtime-default:RUNTIME[@VERSION]
    #[arg(value_name = "A")]
    first: PathBuf,
    /// The second profile
    #[arg(value_name = "B")]
    second: PathBuf,
    #[command(flatten)]
    container: ContainerArgs,
}

/// One profile.
#[derive(Debug, Args)]
pub struct SingleArgs {
    /// The profile: a file, or runtime-default:RUNTIME[@VERSION]
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    container: ContainerArgs,
}

/// A profile and a call.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// The profile: a file, or runtime-default:RUNTIME[@VERSION]
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the system call
    #[arg(value_name = "CALL")]
    call: String,
    /// Arguments of the call, such as 38, 0x26 or -1; those left out are 0. Without any, every case is shown
    #[arg(value_name = "ARGUMENT", num_args = 0..=6, allow_negative_numbers = true, value_parser = argument)]
    arguments: Vec<u64>,
    #[command(flatten)]
    container: ContainerArgs,
}

/// Which profile two profiles make.
#[derive(Debug, Clone, Copy)]
pub(super) enum Combination {
    Intersection,
    Union,
}

impl ContainerArgs {
    fn capabilities(&self, default: &RuntimeDefault) -> BTreeSet<String> {
        let given = self.capabilities.as_ref().map(|names| names.iter().cloned().collect());
        given.unwrap_or_else(|| default.default_capabilities())
    }

    fn read(&self, path: &Path, terminal: &Terminal) -> Result<Filter, Failure> {
        let name = path.to_string_lossy();
        let unusable = |error: &dyn std::fmt::Display| Failure::input(format!("{name}: {error}"));
        let value = if let Some(runtime) = name.strip_prefix(PREFIX) {
            let default = RuntimeDefault::named(runtime).map_err(|error| unusable(&error))?;
            let capabilities = self.capabilities(&default);
            let profile = default.profile(&capabilities, self.architecture, self.kernel);
            profile.map_err(|error| unusable(&error))?
        } else {
            let value = document(path)?;
            match (docker::is_docker_form(&value), self.docker) {
                (true, true) => {
                    let default = RuntimeDefault::named(DEFAULT_RUNTIME).map_err(|error| unusable(&error))?;
                    let container = Container {
                        capabilities: self.capabilities(&default),
                        machine: self.architecture,
                        kernel: self.kernel,
                    };
                    docker::resolve(&value, &container).map_err(|error| unusable(&error))?
                }
                (true, false) => {
                    terminal.report(format!(
                        "warning: {name}: includes, excludes, archMap and name are dropped, as containerd does; use --docker to evaluate them"
                    ));
                    value
                }
                (false, _) => value,
            }
        };
        Filter::read(&value).map_err(|error| unusable(&error))
    }
}

/// Both profiles; what is wrong with either is reported.
fn read_pair(args: &PairArgs, terminal: &Terminal) -> Option<(Filter, Filter)> {
    let first = args.container.read(&args.first, terminal);
    let second = args.container.read(&args.second, terminal);
    for error in [&first, &second].into_iter().filter_map(|read| read.as_ref().err()) {
        terminal.report(format!("error: {error}"));
    }
    // swallowed: reported above
    Some((first.ok()?, second.ok()?))
}

fn print(filter: &Filter, terminal: &mut Terminal) -> Result<Exit, Failure> {
    terminal.print(format!("{:#}\n", filter.to_oci()))?;
    Ok(Exit::Clean)
}

/// `intersect A B` and `merge A B`
pub(super) fn combine(
    args: &PairArgs,
    combination: Combination,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let Some((first, second)) = read_pair(args, terminal) else { return Ok(Exit::Input) };
    let result = match combination {
        Combination::Intersection => {
            for (path, filter) in [(&args.first, &first), (&args.second, &second)] {
                let conflicts = filter
                    .conflicts()
                    .map_err(|_| Failure::incomplete("the rules are too complex to evaluate"))?;
                for (call, answer) in conflicts {
                    terminal.report(format!(
                        "warning: {}: rules contradict each other: {call} gets {answer}; the strictest applies",
                        path.display()
                    ));
                }
            }
            first.intersection(&second)
        }
        Combination::Union => first.union(&second),
    };
    print(&result.map_err(Failure::incomplete)?, terminal)
}

/// `minimize FILE`
pub(super) fn minimize(args: &SingleArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let filter = args.container.read(&args.file, terminal)?;
    print(&filter.normalized().map_err(Failure::incomplete)?, terminal)
}

/// `subset A B`
pub(super) fn subset(args: &PairArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let Some((first, second)) = read_pair(args, terminal) else { return Ok(Exit::Input) };
    let found = first
        .at_least_as_strict_as(&second, Strictness::Access)
        .map_err(|_| Failure::incomplete("the rules are too complex to compare"))?;
    let (a, b) = (args.first.display(), args.second.display());
    match found {
        None => {
            terminal.report(format!("{a} allows nothing that {b} does not"));
            Ok(Exit::Clean)
        }
        Some(found) => {
            terminal.print(format!("{}: {} in {a}, {} in {b}\n", found.call, found.answer, found.bound))?;
            Ok(Exit::Findings)
        }
    }
}

/// A condition as C writes it.
fn condition(&(index, comparison): &(u8, Comparison)) -> String {
    let name = format!("argument {index}");
    match comparison {
        Comparison::NotEqual(value) => format!("{name} != {value:#x}"),
        Comparison::Less(value) => format!("{name} < {value:#x}"),
        Comparison::LessOrEqual(value) => format!("{name} <= {value:#x}"),
        Comparison::Equal(value) => format!("{name} == {value:#x}"),
        Comparison::GreaterOrEqual(value) => format!("{name} >= {value:#x}"),
        Comparison::Greater(value) => format!("{name} > {value:#x}"),
        Comparison::MaskedEqual { mask, value } => format!("{name} & {mask:#x} == {:#x}", value & mask),
    }
}

fn regions(text: &mut String, call: &str, architecture: Architecture, regions: &[CallRegion]) {
    match regions {
        [(conditions, answer)] if conditions.is_empty() => {
            let _ = writeln!(text, "{call} on {}: {answer}", architecture.token());
        }
        _ => {
            let _ = writeln!(text, "{call} on {}:", architecture.token());
            for (conditions, answer) in regions {
                let conditions: Vec<String> = conditions.iter().map(condition).collect();
                let when = if conditions.is_empty() { "otherwise".to_owned() } else { conditions.join(", ") };
                let _ = writeln!(text, "  {when}: {answer}");
            }
        }
    }
}

/// `explain-call FILE CALL [ARGUMENT…]`
pub(super) fn explain_call(args: &CallArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let filter = args.container.read(&args.file, terminal)?;
    let Some(syscall) = Syscall::named(&args.call) else {
        let near = syscalls::nearest(&args.call).map(|near| format!(": did you mean {near}?"));
        let near = near.unwrap_or_default();
        return Err(Failure::input(format!("there is no system call {:?}{near}", args.call)));
    };
    let machine = args.container.architecture;
    let covered = filter.architectures_on(machine).filter(|known| syscall.number(*known).is_some());
    let mut text = String::new();
    for architecture in covered {
        if args.arguments.is_empty() {
            let found = filter
                .regions(syscall, architecture)
                .map_err(|_| Failure::incomplete("the rules are too complex to evaluate"))?;
            regions(&mut text, &args.call, architecture, &found);
        } else {
            let mut arguments = [0; 6];
            for (argument, value) in arguments.iter_mut().zip(&args.arguments) {
                *argument = *value;
            }
            let call = Call { architecture, syscall: Some(syscall), arguments };
            let _ = writeln!(text, "{call}: {}", filter.answer(&call, machine));
        }
    }
    if text.is_empty() {
        let machine = machine.token();
        return Err(Failure::input(format!("{machine} has no system call {:?}", args.call)));
    }
    terminal.print(text)?;
    Ok(Exit::Clean)
}
