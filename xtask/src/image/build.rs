//! Static binaries whose content does not depend on where they are built.
//!
//! Linked with the toolchain's own linker and musl; only the C and assembly of `ring` need a compiler for the architecture. Without the
//! musl target, the binary is linked statically with glibc.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    cannot,
    elf::{self, AARCH64, X86_64},
    process_text,
};
use crate::{
    Failure,
    process::{cargo, exists, run},
    root,
};

/// An architecture by its names in images and in Rust.
pub(crate) struct Architecture {
    /// As images name it.
    pub(crate) oci: &'static str,
    /// As Rust names it.
    pub(crate) rust: &'static str,
    machine: u16,
}

/// What a release is built for.
pub(crate) const ARCHITECTURES: [Architecture; 2] = [
    Architecture { oci: "amd64", rust: "x86_64", machine: X86_64 },
    Architecture { oci: "arm64", rust: "aarch64", machine: AARCH64 },
];

/// A binary that needs no library, for one architecture.
pub(crate) struct StaticBinary {
    /// The architecture, as images name it.
    pub(crate) architecture: &'static str,
    /// The target, as Rust names it.
    pub(crate) triple: String,
    /// The file.
    pub(crate) path: PathBuf,
}

/// What is built, and where.
pub(crate) struct Build<'b> {
    /// The workspace.
    pub(crate) source: &'b Path,
    /// Where cargo keeps what it builds.
    pub(crate) target: &'b Path,
    /// The package.
    pub(crate) package: &'b str,
    /// Its binary.
    pub(crate) binary: &'b str,
    /// The profile of cargo.
    pub(crate) profile: &'b str,
}

/// A target of the toolchain, and the programs that it needs.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    triple: String,
    linker: Linker,
    /// The C compiler; none: the one of the machine.
    compiler: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Linker {
    /// The one that comes with Rust, with musl's start files and library.
    OfRust,
    Named(String),
    /// What the toolchain calls for the machine itself.
    Default,
}

/// What is installed here.
struct Machine<'m> {
    /// Whether the toolchain has a target.
    target: &'m dyn Fn(&str) -> bool,
    /// Whether a program is on the path.
    program: &'m dyn Fn(&str) -> bool,
    /// Whether the toolchain brings a linker.
    linker: bool,
}

impl Architecture {
    /// The target to build for: musl if the toolchain has it, otherwise glibc.
    fn target(&self, machine: &Machine<'_>) -> Result<Target, String> {
        let native = self.rust == env::consts::ARCH;
        let [musl, gnu] = ["musl", "gnu"].map(|libc| format!("{}-unknown-linux-{libc}", self.rust));
        let [for_gnu, for_musl] = ["gnu", "musl"].map(|libc| format!("{}-linux-{libc}-gcc", self.rust));
        let mut compilers = vec![for_gnu.clone(), for_musl];
        if native {
            compilers.extend(["cc", "musl-gcc"].map(str::to_owned));
        }
        let found = compilers.iter().find(|program| (machine.program)(program));
        let has_musl = (machine.target)(&musl);
        if has_musl && let Some(compiler) = found {
            if machine.linker {
                return Ok(Target { triple: musl, linker: Linker::OfRust, compiler: Some(compiler.clone()) });
            }
            if let Some(linker) =
                compilers.iter().find(|program| program.contains("musl") && (machine.program)(program))
            {
                let linker = linker.clone();
                return Ok(Target {
                    triple: musl,
                    linker: Linker::Named(linker.clone()),
                    compiler: Some(linker),
                });
            }
        }
        if (machine.target)(&gnu) {
            if native {
                return Ok(Target { triple: gnu, linker: Linker::Default, compiler: None });
            }
            if (machine.program)(&for_gnu) {
                return Ok(Target {
                    triple: gnu,
                    linker: Linker::Named(for_gnu.clone()),
                    compiler: Some(for_gnu),
                });
            }
        }
        Err(if has_musl {
            let package = for_gnu.trim_end_matches("-gcc").replace('_', "-");
            format!("there is no C compiler for it ({}): apt-get install gcc-{package}", compilers.join(", "))
        } else {
            format!("the toolchain does not have its target: rustup target add {musl}")
        })
    }
}

/// The binary of Palisade for each architecture that can be built here, and why the others cannot.
pub(crate) fn static_binaries(profile: &str) -> Result<(Vec<StaticBinary>, Vec<String>), Failure> {
    let (source, target) = (root(), root().join("target/image"));
    let build = Build { source: &source, target: &target, package: "palisade", binary: "palisade", profile };
    let (mut binaries, mut left_out) = (Vec::new(), Vec::new());
    for architecture in &ARCHITECTURES {
        match static_binary(architecture, &build)? {
            Ok(binary) => binaries.push(binary),
            Err(reason) => left_out.push(format!("{}: {reason}", architecture.oci)),
        }
    }
    Ok((binaries, left_out))
}

/// Builds a binary for an architecture; the inner error is what is missing here.
pub(crate) fn static_binary(
    architecture: &Architecture,
    build: &Build<'_>,
) -> Result<Result<StaticBinary, String>, Failure> {
    let sysroot = process_text(Command::new("rustc").args(["--print", "sysroot"]).current_dir(build.source))?;
    let installed = Path::new(&sysroot).join("lib/rustlib");
    let host = format!("{}-unknown-linux-gnu/bin/rust-lld", env::consts::ARCH);
    let machine = Machine {
        target: &|triple| installed.join(triple).join("lib").is_dir(),
        program: &exists,
        linker: installed.join(host).is_file(),
    };
    let target = match architecture.target(&machine) {
        Ok(target) => target,
        Err(reason) => return Ok(Err(reason)),
    };
    run(&mut command(&target, build))?;
    let folder = if build.profile == "dev" { "debug" } else { build.profile };
    let path = build.target.join(&target.triple).join(folder).join(build.binary);
    let content = fs::read(&path).map_err(|error| cannot("read", &path, &error))?;
    match elf::objection(&content, architecture.machine) {
        Some(reason) => Err(Failure(format!("{} cannot be in an image: {reason}", path.display()))),
        None => Ok(Ok(StaticBinary { architecture: architecture.oci, triple: target.triple, path })),
    }
}

fn command(target: &Target, build: &Build<'_>) -> Command {
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    // Of two that match, the later one counts: what is built is often below the source.
    let maps: Vec<(PathBuf, &str)> = [
        (cargo_home.or_else(home), "/cargo"),
        (Some(build.source.to_owned()), "/palisade"),
        (Some(build.target.to_owned()), "/target"),
    ]
    .into_iter()
    .filter_map(|(path, name)| Some((path?, name)))
    .collect();
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    flags.extend(match &target.linker {
        Linker::OfRust => ["-Clinker-flavor=ld.lld", "-Clink-self-contained=yes"].map(str::to_owned).to_vec(),
        Linker::Named(_) | Linker::Default => vec!["-Clink-arg=-Wl,--build-id=none".to_owned()],
    });
    flags.extend(maps.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())));
    // The last one that matches counts for GCC as well. Debian's GCC does not fortify, others do, with symbols that musl does not have.
    let mut c_flags = vec!["-U_FORTIFY_SOURCE".to_owned()];
    c_flags.extend(maps.iter().map(|(path, name)| format!("-ffile-prefix-map={}={name}", path.display())));
    let mut command = cargo(&["build", "--locked", "--profile", build.profile, "--package", build.package]);
    command.args(["--bin", build.binary, "--target", &target.triple, "--target-dir"]).arg(build.target);
    command.current_dir(build.source).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    let lower = target.triple.replace('-', "_");
    command.env(format!("CFLAGS_{lower}"), c_flags.join(" "));
    let linker = match &target.linker {
        Linker::OfRust => Some("rust-lld"),
        Linker::Named(linker) => Some(linker.as_str()),
        Linker::Default => None,
    };
    if let Some(linker) = linker {
        command.env(format!("CARGO_TARGET_{}_LINKER", lower.to_uppercase()), OsString::from(linker));
    }
    if let Some(compiler) = &target.compiler {
        command.env(format!("CC_{lower}"), compiler);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::{env, fs, path::Path};

    use super::{ARCHITECTURES, Build, Linker, Machine, Target, static_binary};

    #[test]
    fn an_architecture_needs_a_target_and_a_compiler() {
        let [native, other] = &ARCHITECTURES;
        let (native, other) =
            if native.rust == env::consts::ARCH { (native, other) } else { (other, native) };
        for (case, architecture, libcs, programs, has_linker, expected) in [
            ("the toolchain's linker", native, &["musl", "gnu"][..], &["cc"][..], true, Ok(("musl", true))),
            ("no linker for musl", native, &["musl", "gnu"], &["cc"], false, Ok(("gnu", false))),
            ("a linker for musl", native, &["musl", "gnu"], &["cc", "musl-gcc"], false, Ok(("musl", false))),
            ("nothing but the machine's own", native, &["gnu"], &[], true, Ok(("gnu", false))),
            ("a cross compiler", other, &["musl"], &["RUST-linux-gnu-gcc"], true, Ok(("musl", true))),
            (
                "a cross compiler for glibc",
                other,
                &["gnu"],
                &["RUST-linux-gnu-gcc"],
                true,
                Ok(("gnu", false)),
            ),
            ("no cross compiler", other, &["musl"], &["cc", "musl-gcc"], true, Err("there is no C compiler")),
            ("no target", other, &[], &["RUST-linux-gnu-gcc"], true, Err("the toolchain does not have")),
        ] {
            let triple = |libc: &str| format!("{}-unknown-linux-{libc}", architecture.rust);
            let machine = Machine {
                target: &|wanted| libcs.iter().any(|libc| triple(libc) == wanted),
                program: &|wanted| {
                    programs.iter().any(|program| program.replace("RUST", architecture.rust) == wanted)
                },
                linker: has_linker,
            };
            match (architecture.target(&machine), expected) {
                (Ok(Target { triple: found, linker, .. }), Ok((libc, of_rust))) => {
                    assert_eq!(found, triple(libc), "{case}");
                    assert_eq!(linker == Linker::OfRust, of_rust, "{case}");
                }
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{case}: {found}"),
                (found, expected) => panic!("{case}: {found:?} is not {expected:?}"),
            }
        }
    }

    /// A workspace whose binary contains paths: of a panic in a dependency, of the source, and of what a build script wrote.
    fn workspace(folder: &Path) {
        for (path, content) in [
            ("Cargo.toml", "[workspace]\nmembers = [\"bin\", \"lib\"]\nresolver = \"2\"\n"),
            (
                "Cargo.lock",
                "version = 4\n\n[[package]]\nname = \"bin\"\nversion = \"0.1.0\"\ndependencies = [\n \"lib\",\n]\n\n[[package]]\nname = \"lib\"\nversion = \"0.1.0\"\n",
            ),
            (
                "bin/Cargo.toml",
                "[package]\nname = \"bin\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nlib = {path = \"../lib\"}\n",
            ),
            (
                "bin/build.rs",
                "fn main() { let out = std::env::var(\"OUT_DIR\").unwrap(); std::fs::write(format!(\"{out}/made.rs\"), \"pub fn made(n: usize) -> u8 { [1, 2][n] }\").unwrap(); }",
            ),
            (
                "bin/src/main.rs",
                "include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));\nfn main() { println!(\"{} {} {}\", file!(), made(std::env::args().count()), lib::of(std::env::args().count())); }",
            ),
            ("lib/Cargo.toml", "[package]\nname = \"lib\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
            ("lib/src/lib.rs", "pub fn of(n: usize) -> usize { assert!(n < 5, \"many\"); n }"),
        ] {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn a_binary_does_not_depend_on_where_it_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let mut contents = Vec::new();
        for (source, target) in [("one", "one/target"), ("somewhere/else", "other-target")] {
            let (source, target) = (folder.path().join(source), folder.path().join(target));
            workspace(&source);
            let build =
                Build { source: &source, target: &target, package: "bin", binary: "bin", profile: "release" };
            let native = ARCHITECTURES.iter().find(|architecture| architecture.rust == env::consts::ARCH);
            let binary = static_binary(native.unwrap(), &build).unwrap().unwrap();
            contents.push(fs::read(binary.path).unwrap());
        }
        let place = folder.path().to_str().unwrap().as_bytes().to_vec();
        assert!(
            !contents[0].windows(place.len()).any(|window| window == place),
            "it contains the path of the source"
        );
        assert!(contents[0] == contents[1], "two builds in different folders differ");
    }
}
