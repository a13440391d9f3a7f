//! Every chore of the project, in Rust: `cargo xtask <chore>`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore prints to its terminal")]

mod architecture;
mod bench;
mod check;
mod conformance;
mod demo;
mod dependencies;
mod docs;
mod e2e;
mod fuzz;
mod generate;
mod image;
mod kubernetes;
mod package;
mod playground;
mod process;
mod release;
mod setup;
mod string_errors;
mod swallowed;
mod texts;
mod tidy;
mod vm;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

const USAGE: &str = "usage: cargo xtask CHORE
  demo                             check and explain the bundled example manifests
  check [--without-system]         the one gate: format, lints, tests, documentation, conformance, fuzzing; as root also
                                   the tests on a real runtime, which other users must leave out by name
  conformance [--recordings DIR]   replay what real servers answered, and upstream's fixtures
  conformance --server             only against the embedded API server, over HTTPS
  conformance --webhook            those about pods through /mutate and /validate of the webhook, over TLS
  bench                            measure, print a table, write BENCHMARKS.md
  bench --against-kubernetes       measure side by side with kube-apiserver, from ../shared/kubernetes
  fuzz [TARGET] [--seconds N]      fuzz one target or each of them
  gen                              write generated files
  gen --kubernetes DIR             write the tables of Kubernetes' types from DIR/v1.N, checkouts of its sources
  docs                             build the documentation site into target/book
  playground                       build the page that checks a manifest in a browser into target/playground/index.html;
                                   needs the target wasm32-unknown-unknown
  texts [DIR]                      print the texts of the program, or of another checkout of it, for review
  tidy                             edges between crates, module docs, names, links
  setup                            install what the tests need
  system [FILTER]                  the tests on a real containerd, kernel and virtual machine (as root)
  cluster [FILTER]                 the tests on a real Kubernetes, from ../shared/kubernetes (as root)
  e2e [--focus TEXT] [--list FILE] [--part N] [--write] [--processes N]
                                   Kubernetes' own tests against palisade up --node, from ../shared/kubernetes (as root):
                                   those whose names contain TEXT or are in FILE, else all of Conformance, or a part of those
                                   that pass; --write writes down the results, and docs/conformance.md
  image [--name REF] [--output FILE] [--profile NAME] [--twice]
                                   write the static binaries for amd64 and arm64 as an OCI archive, with their SBOMs;
                                   --twice builds them again in another folder and compares
  package                          pack the crates as a registry would have them, and look for what is missing
  release [--output DIR] [--base-url URL] [--profile NAME] [--twice]
                                   write everything that a release has into DIR (target/release-files): archives, Debian packages,
                                   image, SBOMs, checksums, and for archives that will be at URL the krew manifest;
                                   --twice builds the binaries again in another folder and compares
  vm --payload DIR                 boot a machine with AppArmor and run DIR/run in it";

/// Why a chore did not end well.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(text)) => {
            eprintln!("xtask: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let option = |name: &str| {
        arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1))
    };
    match arguments.first().map(String::as_str) {
        Some("check") => check::run_check(arguments.iter().any(|argument| argument == "--without-system")),
        Some("demo") => demo::run_demo(),
        Some("setup") => setup::run_setup(),
        Some("bench") if arguments.iter().any(|argument| argument == "--against-kubernetes") => {
            bench::run_against_kubernetes()
        }
        Some("bench") => bench::run_bench(),
        Some("gen") => match option("--kubernetes") {
            Some(folder) => {
                print!("{}", kubernetes::run_generate(&root(), Path::new(folder))?);
                Ok(())
            }
            None => generate::run_generate(generate::Mode::Write),
        },
        Some("docs") => docs::run_docs(),
        Some("playground") => playground::run_playground(),
        Some("texts") => {
            let folder = arguments.get(1).map_or_else(root, PathBuf::from);
            print!("{}", texts::catalogue(&folder)?);
            Ok(())
        }
        Some("tidy") => tidy::run_tidy(),
        Some("fuzz") => {
            let seconds = option("--seconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
            let target = arguments.get(1).filter(|argument| !argument.starts_with("--"));
            fuzz::run_fuzz(target.map(String::as_str), seconds)
        }
        Some("conformance") => {
            let folder =
                option("--recordings").map_or_else(|| root().join("tests/data/recordings"), PathBuf::from);
            if arguments.iter().any(|argument| argument == "--server") {
                return conformance::run_server(&folder);
            }
            if arguments.iter().any(|argument| argument == "--webhook") {
                return conformance::run_webhook(&folder);
            }
            conformance::run_all(&folder)
        }
        Some("system") => check::run_system(arguments.get(1..).unwrap_or_default()),
        Some("cluster") => check::run_cluster(arguments.get(1..).unwrap_or_default()),
        Some("e2e") => e2e::run_e2e(&e2e::Options {
            focus: option("--focus").map(String::as_str),
            list: option("--list").map(Path::new),
            part: option("--part").map(|number| parse_number(number)).transpose()?,
            write: arguments.iter().any(|argument| argument == "--write"),
            processes: option("--processes").map(|number| parse_number(number)).transpose()?,
        }),
        Some("image") => image::run_image(&image::Options {
            name: option("--name").map(String::as_str),
            output: option("--output").map(Path::new),
            profile: option("--profile").map(String::as_str),
            twice: arguments.iter().any(|argument| argument == "--twice"),
        }),
        Some("package") => package::run_package(),
        Some("release") => release::run_release(&release::Options {
            output: option("--output").map(Path::new),
            base_url: option("--base-url").map(String::as_str),
            profile: option("--profile").map(String::as_str),
            twice: arguments.iter().any(|argument| argument == "--twice"),
        }),
        Some("vm") => match option("--payload") {
            Some(payload) => vm::run_vm(Path::new(payload)),
            None => Err(Failure(USAGE.to_owned())),
        },
        _ => Err(Failure(USAGE.to_owned())),
    }
}

fn parse_number(text: &str) -> Result<usize, Failure> {
    text.parse().map_err(|_| Failure(format!("not a number: {text}\n{USAGE}")))
}

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
