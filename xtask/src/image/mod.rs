//! `cargo xtask image`: the binary as an OCI image, without a container engine.
//!
//! One static binary and nothing else: no shell, no package manager. Two builds of a commit have the same digest: paths of
//! the machine are mapped away, times are `SOURCE_DATE_EPOCH` or the commit's, entries are sorted.

mod build;
mod elf;
pub(crate) mod layer;
mod layout;
mod sbom;

use std::{env, fs, path::Path, process::Command};

use palisade_base::{sha256, time};
use serde_json::Value;

pub(crate) use self::build::{ARCHITECTURES, Build, StaticBinary, static_binaries, static_binary};
use self::{
    layer::{Entry, layer},
    layout::{Platform, archive},
};
use crate::{
    Failure,
    process::{output, run},
    root,
};

/// The user that the image runs as; a pod that needs root sets it, as that of the node agent does.
const USER: &str = "65532:65532";

/// What to write, and from what.
pub(crate) struct Options<'o> {
    /// The name in the archive.
    pub(crate) name: Option<&'o str>,
    /// The archive, by default `target/image/palisade-VERSION.tar`.
    pub(crate) output: Option<&'o Path>,
    /// The profile of cargo, by default `release`.
    pub(crate) profile: Option<&'o str>,
    /// Whether to build everything again from a copy of the source, and to compare.
    pub(crate) twice: bool,
}

/// Builds the binaries and writes the archive.
pub(crate) fn run_image(options: &Options<'_>) -> Result<(), Failure> {
    let profile = options.profile.unwrap_or("release");
    let (binaries, left_out) = static_binaries(profile)?;
    for reason in left_out {
        println!("LEFT OUT: {reason}");
    }
    if binaries.is_empty() {
        return Err(Failure("no architecture can be built".to_owned()));
    }
    if options.twice {
        build_again(&binaries, profile)?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let name = options.name.map_or_else(|| format!("palisade:{version}"), str::to_owned);
    let default = root().join(format!("target/image/palisade-{version}.tar"));
    write_image(&binaries, &name, options.output.unwrap_or(&default))?;
    Ok(())
}

/// Writes static binaries as one image for their architectures, and returns its digest.
pub(crate) fn write_image(binaries: &[StaticBinary], name: &str, output: &Path) -> Result<String, Failure> {
    let epoch = epoch()?;
    let sboms: Result<Vec<_>, _> = binaries.iter().map(|binary| sbom_for(&binary.triple, epoch)).collect();
    write_image_with(binaries, &sboms?, name, output, epoch, &details(epoch)?)
}

/// The same, with SBOMs and labels that are known already.
pub(crate) fn write_image_with(
    binaries: &[StaticBinary],
    sboms: &[Vec<u8>],
    name: &str,
    output: &Path,
    epoch: u64,
    details: &Value,
) -> Result<String, Failure> {
    let platforms: Result<Vec<_>, _> = binaries
        .iter()
        .zip(sboms)
        .map(|(StaticBinary { architecture, triple, path }, sbom)| {
            platform(architecture, triple, path, epoch, sbom.clone())
        })
        .collect();
    write(output, name, &platforms?, details, true)
}

/// Builds from a copy of the tracked files, and fails if a binary differs.
pub(crate) fn build_again(binaries: &[StaticBinary], profile: &str) -> Result<(), Failure> {
    let folder = tempfile::tempdir().map_err(|error| cannot("create", Path::new("a folder"), &error))?;
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    let tracked = output(Command::new("git").args(["ls-files", "-z"]).current_dir(root()))?;
    for file in tracked.split('\0').filter(|file| !file.is_empty() && root().join(file).is_file()) {
        let (from, to) = (root().join(file), source.join(file));
        let parent = to.parent().unwrap_or(&source);
        fs::create_dir_all(parent).map_err(|error| cannot("create", parent, &error))?;
        fs::copy(&from, &to).map_err(|error| cannot("copy", &from, &error))?;
    }
    let again = Build { source: &source, target: &target, package: "palisade", binary: "palisade", profile };
    let read = |path: &Path| fs::read(path).map_err(|error| cannot("read", path, &error));
    for binary in binaries {
        let architecture = ARCHITECTURES.iter().find(|architecture| architecture.oci == binary.architecture);
        let architecture =
            architecture.ok_or_else(|| Failure(format!("{} is unknown", binary.architecture)))?;
        let second = static_binary(architecture, &again)?.map_err(Failure)?;
        let (first, second) = (read(&binary.path)?, read(&second.path)?);
        let (name, digest) = (binary.architecture, sha256::hex(&first));
        if first != second {
            let other = sha256::hex(&second);
            return Err(Failure(format!("{name} is not reproducible: {digest}, then {other}")));
        }
        println!(
            "{name}: built twice, in different folders: the same {} bytes, sha256:{digest}",
            first.len()
        );
    }
    Ok(())
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
    let platform = platform(architecture, &target, &stripped, epoch, sbom_for(&target, epoch)?)?;
    write(output, name, &[platform], &details(epoch)?, false)?;
    Ok(())
}

fn write(
    path: &Path,
    name: &str,
    platforms: &[Platform],
    details: &Value,
    compress: bool,
) -> Result<String, Failure> {
    let (bytes, digest) = archive(name, platforms, details, compress);
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|error| cannot("create", parent, &error))?;
    fs::write(path, &bytes).map_err(|error| cannot("write", path, &error))?;
    println!("{}: {name}, {} MB, digest {digest}", path.display(), bytes.len() / 1_000_000);
    Ok(digest)
}

/// The shared libraries and the loader of a binary; none if it is static.
fn libraries(binary: &Path) -> Result<Vec<String>, Failure> {
    let listed =
        Command::new("ldd").arg(binary).output().map_err(|error| cannot("inspect", binary, &error))?;
    // It fails for a static binary, and for one of another architecture, which is known to be static.
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
    sbom: Vec<u8>,
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
    Ok(Platform { architecture, layer: layer(&entries, epoch), sbom })
}

/// The SBOM of the binary for a target.
pub(crate) fn sbom_for(target: &str, epoch: u64) -> Result<Vec<u8>, Failure> {
    let metadata = ["metadata", "--format-version=1", "--locked", "--filter-platform", target];
    let metadata = output(Command::new("cargo").args(metadata).current_dir(root()))?;
    let metadata: Value = serde_json::from_str(&metadata)
        .map_err(|error| Failure(format!("cargo metadata printed no JSON: {error}")))?;
    let lock = root().join("Cargo.lock");
    let lock = fs::read_to_string(&lock).map_err(|error| cannot("read", &lock, &error))?;
    let sbom = sbom::cyclonedx(&metadata, &lock, "palisade", &time::rfc3339(seconds(epoch)));
    Ok(sbom.to_string().into_bytes())
}

/// The time of everything in the image.
pub(crate) fn epoch() -> Result<u64, Failure> {
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
pub(crate) fn details(epoch: u64) -> Result<Value, Failure> {
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

pub(crate) fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("cannot {verb} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::parse_libraries;

    #[test]
    fn libraries_are_those_with_a_path() {
        let listed = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\t/lib64/ld-linux.so.2 (0x7f)\n";
        assert_eq!(parse_libraries(listed), ["/lib/x/libc.so.6", "/lib64/ld-linux.so.2"]);
        assert!(parse_libraries("\tstatically linked\n").is_empty());
    }
}
