//! `cargo xtask image`: the binary as an OCI image, without a container engine.
//!
//! One static binary and nothing else: no shell, no package manager. Two builds of a commit have the same digest: paths of
//! the machine are mapped away, times are `SOURCE_DATE_EPOCH` or the commit's, entries are sorted.

mod layer;
mod layout;
mod sbom;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use palisade_base::time;
use serde_json::Value;

use self::{
    layer::{Entry, layer},
    layout::{Platform, archive},
};
use crate::{
    Failure,
    process::{exists, output, run},
    root,
};

/// The user that the image runs as; a pod that needs root sets it, as that of the node agent does.
const USER: &str = "65532:65532";

/// An architecture by its names in images and in Rust, and the linker that its binaries need.
struct Architecture {
    oci: &'static str,
    rust: &'static str,
    linkers: [&'static str; 2],
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture { oci: "amd64", rust: "x86_64", linkers: ["musl-gcc", "x86_64-linux-gnu-gcc"] },
    Architecture {
        oci: "arm64",
        rust: "aarch64",
        linkers: ["aarch64-linux-musl-gcc", "aarch64-linux-gnu-gcc"],
    },
];

/// A target of the toolchain, and its linker if that is not the toolchain's own choice.
struct Target {
    triple: String,
    linker: Option<&'static str>,
}

impl Architecture {
    /// The target to build for: musl if the toolchain has it, otherwise glibc, linked statically.
    fn target(
        &self,
        has_target: impl Fn(&str) -> bool,
        has_linker: impl Fn(&str) -> bool,
    ) -> Result<Target, String> {
        let triples = ["musl", "gnu"].map(|libc| format!("{}-unknown-linux-{libc}", self.rust));
        let native = self.rust == env::consts::ARCH;
        let mut installed =
            triples.iter().zip(self.linkers).filter(|(triple, _)| has_target(triple)).peekable();
        if installed.peek().is_none() {
            return Err(format!("the toolchain has neither {} nor {}", triples[0], triples[1]));
        }
        // The toolchain links what is native with the compiler of the machine.
        let usable =
            installed.find(|(triple, linker)| has_linker(linker) || (native && triple.ends_with("gnu")));
        let Some((triple, linker)) = usable else {
            return Err(format!("there is no linker for it: {}", self.linkers.join(" or ")));
        };
        let linker = Some(linker).filter(|_| !(native && triple.ends_with("gnu")));
        Ok(Target { triple: triple.clone(), linker })
    }
}

/// Builds the binaries and writes `output`, by default `target/image/palisade-VERSION.tar`.
pub(crate) fn run_image(name: Option<&str>, output: Option<&Path>) -> Result<(), Failure> {
    let sysroot = process_text(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    let installed = Path::new(&sysroot).join("lib/rustlib");
    let mut platforms = Vec::new();
    let epoch = epoch()?;
    for architecture in &ARCHITECTURES {
        match architecture.target(|triple| installed.join(triple).is_dir(), exists) {
            Ok(target) => {
                let binary = build(&target)?;
                platforms.push(platform(architecture.oci, &target.triple, &binary, epoch)?);
            }
            Err(reason) => println!("{} is LEFT OUT: {reason}", architecture.oci),
        }
    }
    if platforms.is_empty() {
        return Err(Failure("no architecture can be built".to_owned()));
    }
    let version = env!("CARGO_PKG_VERSION");
    let name = name.map_or_else(|| format!("palisade:{version}"), str::to_owned);
    let default = root().join(format!("target/image/palisade-{version}.tar"));
    write(output.unwrap_or(&default), &name, &platforms, &details(epoch)?, true)
}

/// Writes an image of the debug binary for the tests on a real Kubernetes, with the libraries that it needs.
pub(crate) fn write_test_image(binary: &Path, name: &str, output: &Path) -> Result<(), Failure> {
    let stripped = output.with_extension("stripped");
    let parent = output.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|error| cannot("create", parent, &error))?;
    run(Command::new("strip").arg("--strip-debug").arg("-o").arg(&stripped).arg(binary))?;
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let architecture = ARCHITECTURES.iter().find(|architecture| architecture.rust == env::consts::ARCH);
    let architecture = architecture.map_or(env::consts::ARCH, |architecture| architecture.oci);
    let epoch = epoch()?;
    let platform = platform(architecture, &target, &stripped, epoch)?;
    write(output, name, &[platform], &details(epoch)?, false)
}

fn write(
    path: &Path,
    name: &str,
    platforms: &[Platform],
    details: &Value,
    compress: bool,
) -> Result<(), Failure> {
    let (bytes, digest) = archive(name, platforms, details, compress);
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|error| cannot("create", parent, &error))?;
    fs::write(path, &bytes).map_err(|error| cannot("write", path, &error))?;
    println!("{}: {name}, {} MB, digest {digest}", path.display(), bytes.len() / 1_000_000);
    Ok(())
}

/// Builds a static binary whose content does not depend on where it is built.
fn build(target: &Target) -> Result<PathBuf, Failure> {
    let folder = root().join("target/image");
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let maps: Vec<(PathBuf, &str)> = [(Some(root()), "/palisade"), (cargo_home.or_else(home), "/cargo")]
        .into_iter()
        .filter_map(|(path, name)| Some((path?, name)))
        .collect();
    let mut flags =
        vec!["-Ctarget-feature=+crt-static".to_owned(), "-Clink-arg=-Wl,--build-id=none".to_owned()];
    flags.extend(maps.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())));
    let c_flags: Vec<_> =
        maps.iter().map(|(path, name)| format!("-ffile-prefix-map={}={name}", path.display())).collect();
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--locked", "--package", "palisade-cli", "--bin", "palisade"]);
    command.args(["--target", &target.triple, "--target-dir"]).arg(&folder).current_dir(root());
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env("CFLAGS", c_flags.join(" "));
    if let Some(linker) = target.linker {
        let variable = format!("CARGO_TARGET_{}_LINKER", target.triple.to_uppercase().replace('-', "_"));
        command.env(variable, linker).env(format!("CC_{}", target.triple.replace('-', "_")), linker);
    }
    run(&mut command)?;
    let binary = folder.join(&target.triple).join("release/palisade");
    match libraries(&binary)?.as_slice() {
        [] => Ok(binary),
        found => Err(Failure(format!("{} is not static, it needs {}", binary.display(), found.join(", ")))),
    }
}

/// The shared libraries and the loader of a binary; none if it is static.
fn libraries(binary: &Path) -> Result<Vec<String>, Failure> {
    let listed =
        Command::new("ldd").arg(binary).output().map_err(|error| cannot("inspect", binary, &error))?;
    // It fails for a binary of another architecture too, which is then known to have been linked with +crt-static.
    Ok(if listed.status.success() {
        parse_libraries(&String::from_utf8_lossy(&listed.stdout))
    } else {
        Vec::new()
    })
}

fn parse_libraries(listed: &str) -> Vec<String> {
    let path = |line: &str| {
        let place = line.split_once("=>").map_or(line, |(_, place)| place);
        place.split_whitespace().next().filter(|path| path.starts_with('/')).map(str::to_owned)
    };
    listed.lines().filter_map(path).collect()
}

/// What the image of one architecture consists of.
fn platform(
    architecture: &'static str,
    target: &str,
    binary: &Path,
    epoch: u64,
) -> Result<Platform, Failure> {
    let read = |path: &Path| fs::read(path).map_err(|error| cannot("read", path, &error));
    let mut entries = vec![
        Entry::folder("tmp", 0o1777),
        Entry::file("etc/passwd", 0o644, b"nonroot:x:65532:65532::/:/sbin/nologin\n".to_vec()),
        Entry::file("etc/group", 0o644, b"nonroot:x:65532:\n".to_vec()),
        Entry::file("usr/bin/palisade", 0o755, read(binary)?),
    ];
    if target.ends_with("gnu") {
        // glibc's default looks names up in more places than an empty image has.
        entries.push(Entry::file("etc/nsswitch.conf", 0o644, b"hosts: files dns\n".to_vec()));
    }
    for library in libraries(binary)? {
        let content = read(Path::new(&library))?;
        entries.push(Entry::file(library.trim_start_matches('/'), 0o755, content));
    }
    let metadata = ["metadata", "--format-version=1", "--locked", "--filter-platform", target];
    let metadata = output(Command::new("cargo").args(metadata).current_dir(root()))?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| Failure(format!("cargo metadata printed no JSON: {error}")))?;
    let lock = root().join("Cargo.lock");
    let lock = fs::read_to_string(&lock).map_err(|error| cannot("read", &lock, &error))?;
    let sbom = sbom::cyclonedx(&metadata, &lock, "palisade-cli", &time::rfc3339(seconds(epoch)));
    Ok(Platform { architecture, layer: layer(&entries, epoch), sbom: sbom.to_string().into_bytes() })
}

/// The time of everything in the image.
fn epoch() -> Result<u64, Failure> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => process_text(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))?,
    };
    text.trim().parse().map_err(|error| Failure(format!("SOURCE_DATE_EPOCH {text:?} is no time: {error}")))
}

fn seconds(epoch: u64) -> i64 {
    i64::try_from(epoch).unwrap_or(i64::MAX)
}

/// The configuration of the image, with the labels of OCI.
fn details(epoch: u64) -> Result<Value, Failure> {
    let created = time::rfc3339(seconds(epoch));
    let git = |arguments: &[&str]| process_text(Command::new("git").args(arguments).current_dir(root()));
    let mut labels = serde_json::json!({
        "org.opencontainers.image.title": "palisade",
        "org.opencontainers.image.description": "Pod security for Kubernetes, from the manifest to the kernel",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
        "org.opencontainers.image.created": created,
    });
    // The commit is named only if it is what was built.
    if git(&["status", "--porcelain"])?.is_empty() {
        labels["org.opencontainers.image.revision"] = git(&["rev-parse", "HEAD"])?.into();
    }
    Ok(serde_json::json!({"created": created, "config": {"User": USER, "Entrypoint": ["/usr/bin/palisade"],
        "Cmd": ["version"], "Env": ["PATH=/usr/bin"], "WorkingDir": "/", "Labels": labels}}))
}

fn process_text(command: &mut Command) -> Result<String, Failure> {
    Ok(output(command)?.trim().to_owned())
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("cannot {verb} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{ARCHITECTURES, parse_libraries};

    #[test]
    fn an_architecture_needs_a_target_and_a_linker() {
        let [native, other] = &ARCHITECTURES;
        let (native, other) =
            if native.rust == std::env::consts::ARCH { (native, other) } else { (other, native) };
        let target = |architecture: &super::Architecture, targets: &[&str], linkers: &[&str]| {
            let triple = |libc: &&str| format!("{}-unknown-linux-{libc}", architecture.rust);
            let found = architecture.target(
                |wanted| targets.iter().any(|libc| triple(libc) == wanted),
                |wanted| linkers.contains(&wanted),
            );
            found.map(|target| target.triple)
        };
        let [musl, gnu] = ["musl", "gnu"].map(|libc| format!("{}-unknown-linux-{libc}", native.rust));
        assert_eq!(target(native, &["musl", "gnu"], &native.linkers), Ok(musl));
        assert_eq!(target(native, &["musl", "gnu"], &[]), Ok(gnu.clone()));
        assert_eq!(target(native, &["gnu"], &[]), Ok(gnu));
        assert!(
            target(other, &["musl", "gnu"], &native.linkers).unwrap_err().starts_with("there is no linker")
        );
        assert!(target(other, &[], &other.linkers).unwrap_err().starts_with("the toolchain has neither"));
    }

    #[test]
    fn libraries_are_those_with_a_path() {
        let listed = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\t/lib64/ld-linux.so.2 (0x7f)\n";
        assert_eq!(parse_libraries(listed), ["/lib/x/libc.so.6", "/lib64/ld-linux.so.2"]);
        assert!(parse_libraries("\tstatically linked\n").is_empty());
    }
}
