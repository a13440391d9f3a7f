//! `cargo xtask release`: everything that a release has, from static binaries: archives, Debian packages, an image, SBOMs, a krew
//! manifest and checksums.
//!
//! Two runs of a commit write the same bytes: what is packed is sorted, owned by root, and has the time of the commit
//! (`SOURCE_DATE_EPOCH` overrides it). Packing is done twice and compared. Nothing is signed and nothing is uploaded.

mod archive;
mod debian;
mod krew;

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use palisade_base::sha256;
use serde_json::Value;

use crate::{
    Failure,
    image::{
        ARCHITECTURES, StaticBinary, build_again, cannot, details, epoch, sbom_for, static_binaries,
        write_image_with,
    },
    process::output,
    root,
};

/// What to write, and where.
pub(crate) struct Options<'o> {
    /// The folder, by default `target/release-files`.
    pub(crate) output: Option<&'o Path>,
    /// Where the archives will be; without it there is no krew manifest.
    pub(crate) base_url: Option<&'o str>,
    /// The profile of cargo, by default `release`.
    pub(crate) profile: Option<&'o str>,
    /// Whether to build everything again from a copy of the source, and to compare.
    pub(crate) twice: bool,
}

/// What is packed.
struct Release<'r> {
    version: &'r str,
    epoch: u64,
    binaries: &'r [StaticBinary],
    /// One for each binary.
    sboms: &'r [Vec<u8>],
    /// The configuration of the image.
    details: &'r Value,
    base_url: Option<&'r str>,
    /// Completions and manual pages, by their paths below a prefix such as `/usr`.
    shared: &'r BTreeMap<String, Vec<u8>>,
}

/// Builds the binaries and packs them.
pub(crate) fn run_release(options: &Options<'_>) -> Result<(), Failure> {
    let profile = options.profile.unwrap_or("release");
    let (binaries, left_out) = static_binaries(profile)?;
    for reason in left_out {
        println!("LEFT OUT: {reason}");
    }
    if options.base_url.is_none() {
        println!("LEFT OUT: the krew manifest, which needs --base-url");
    }
    let host = ARCHITECTURES.iter().find(|architecture| architecture.rust == env::consts::ARCH);
    let native = binaries.iter().find(|binary| host.is_some_and(|host| host.oci == binary.architecture));
    let native = native.ok_or_else(|| {
        Failure(
            "completions and manual pages are printed by a binary for this machine, and there is none"
                .to_owned(),
        )
    })?;
    if options.twice {
        build_again(&binaries, profile)?;
    }
    let epoch = epoch()?;
    let sboms: Result<Vec<_>, _> = binaries.iter().map(|binary| sbom_for(&binary.triple, epoch)).collect();
    let release = Release {
        version: env!("CARGO_PKG_VERSION"),
        epoch,
        binaries: &binaries,
        sboms: &sboms?,
        details: &details(epoch)?,
        base_url: options.base_url,
        shared: &shared_files(&native.path)?,
    };
    let default = root().join("target/release-files");
    let folder = options.output.unwrap_or(&default);
    write(&release, folder)?;
    println!("\n{}:", folder.display());
    for (name, bytes) in contents(folder)? {
        println!("  {name}, {} bytes", bytes.len());
    }
    println!("packed twice: the same bytes");
    Ok(())
}

/// Packs twice, and fails if anything differs.
fn write(release: &Release<'_>, folder: &Path) -> Result<(), Failure> {
    let again = tempfile::tempdir().map_err(|error| cannot("create", Path::new("a folder"), &error))?;
    release.pack(folder)?;
    release.pack(again.path())?;
    let (first, second) = (contents(folder)?, contents(again.path())?);
    for (name, bytes) in &second {
        if first.get(name) != Some(bytes) {
            return Err(Failure(format!("{name} is not reproducible")));
        }
    }
    if first.len() == second.len() {
        Ok(())
    } else {
        let other = first.keys().find(|name| !second.contains_key(*name)).cloned().unwrap_or_default();
        Err(Failure(format!("{}: {other} is of another release", folder.display())))
    }
}

impl Release<'_> {
    fn pack(&self, folder: &Path) -> Result<(), Failure> {
        fs::create_dir_all(folder).map_err(|error| cannot("create", folder, &error))?;
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut archives = Vec::new();
        for (binary, sbom) in self.binaries.iter().zip(self.sboms) {
            let content = read(&binary.path)?;
            let name = self.archive_name(binary.architecture);
            let packed = archive::pack(&content, self.shared, self.epoch)?;
            archives.push((binary.architecture, name.clone(), sha256::hex(&packed)));
            files.insert(name, packed);
            let package = debian::Package {
                version: self.version,
                architecture: binary.architecture,
                binary: &content,
                shared: self.shared,
                epoch: self.epoch,
            };
            files.insert(package.file_name(), package.pack()?);
            let name = format!("palisade-{}-linux-{}.cdx.json", self.version, binary.architecture);
            files.insert(name, sbom.clone());
        }
        if let Some(base_url) = self.base_url {
            let manifest = krew::manifest(self.version, base_url, &archives);
            files.insert("palisade.krew.yaml".to_owned(), manifest.into_bytes());
        }
        let image = format!("palisade-{}-image.tar", self.version);
        let name = format!("palisade:{}", self.version);
        let path = folder.join(&image);
        write_image_with(self.binaries, self.sboms, &name, &path, self.epoch, self.details)?;
        files.insert(image, read(&path)?);
        let mut sums = String::new();
        for (name, content) in &files {
            let _ = writeln!(sums, "{}  {name}", sha256::hex(content));
        }
        files.insert("SHA256SUMS".to_owned(), sums.into_bytes());
        for (name, content) in files {
            let path = folder.join(name);
            fs::write(&path, content).map_err(|error| cannot("write", &path, &error))?;
        }
        Ok(())
    }

    fn archive_name(&self, architecture: &str) -> String {
        format!("palisade-{}-linux-{architecture}.tar.gz", self.version)
    }
}

/// Completions and manual pages, as a binary prints them.
fn shared_files(binary: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let mut files = BTreeMap::new();
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/palisade"),
        ("zsh", "share/zsh/vendor-completions/_palisade"),
        ("fish", "share/fish/vendor_completions.d/palisade.fish"),
    ] {
        let script = output(Command::new(binary).args(["completions", shell]))?;
        files.insert(path.to_owned(), script.into_bytes());
    }
    let folder = tempfile::tempdir().map_err(|error| cannot("create", Path::new("a folder"), &error))?;
    output(Command::new(binary).args(["man", "--folder"]).arg(folder.path()))?;
    for (name, page) in contents(folder.path())? {
        files.insert(format!("share/man/man1/{name}.gz"), archive::gzip(&page)?);
    }
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| cannot("read", path, &error))
}

/// The files of a folder by name.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| cannot("list", folder, &error))?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let paths = paths.map_err(|error| cannot("list", folder, &error))?;
    let named = |path: PathBuf| -> Result<(String, Vec<u8>), Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, read(&path)?))
    };
    paths.into_iter().filter(|path| path.is_file()).map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;
    use crate::process::{exists, run};

    /// What stands for the binary: it prints what is packed beside it.
    const FAKE: &str = "#!/bin/sh
case \"$1\" in
completions) echo \"complete $2\" ;;
man) mkdir -p \"$3\"; echo .TH palisade 1 > \"$3/palisade.1\"; echo .TH palisade-check 1 > \"$3/palisade-check.1\" ;;
*) echo \"palisade of $0\" ;;
esac
";

    /// A release of the stand-in, in a folder.
    fn release_in(folder: &Path, base_url: Option<&str>) -> Result<PathBuf, Failure> {
        let path = folder.join("palisade");
        fs::write(&path, FAKE).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let binaries = ARCHITECTURES.map(|architecture| StaticBinary {
            architecture: architecture.oci,
            triple: format!("{}-unknown-linux-musl", architecture.rust),
            path: path.clone(),
        });
        let release = Release {
            version: "1.2.3",
            epoch: 1_700_000_000,
            binaries: &binaries,
            sboms: &[b"{\"a\":1}".to_vec(), b"{\"a\":2}".to_vec()],
            details: &json!({"created": "2023-11-14T22:13:20Z", "config": {"Labels": {}}}),
            base_url,
            shared: &shared_files(&path)?,
        };
        let output = folder.join("files");
        write(&release, &output)?;
        Ok(output)
    }

    #[test]
    fn two_releases_have_the_same_bytes_and_every_file_is_in_the_checksums() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let url = Some("https://example.com/download");
        let [first, second] =
            folders.each_ref().map(|folder| contents(&release_in(folder.path(), url).unwrap()).unwrap());
        let names: Vec<&String> = first.keys().collect();
        assert_eq!(
            names,
            [
                "SHA256SUMS",
                "palisade-1.2.3-image.tar",
                "palisade-1.2.3-linux-amd64.cdx.json",
                "palisade-1.2.3-linux-amd64.tar.gz",
                "palisade-1.2.3-linux-arm64.cdx.json",
                "palisade-1.2.3-linux-arm64.tar.gz",
                "palisade.krew.yaml",
                "palisade_1.2.3_amd64.deb",
                "palisade_1.2.3_arm64.deb",
            ]
        );
        assert!(first == second, "two runs differ");
        let files = folders[0].path().join("files");
        run(Command::new("sha256sum")
            .args(["--check", "--strict", "--quiet", "SHA256SUMS"])
            .current_dir(&files))
        .unwrap();
        let listed = String::from_utf8_lossy(&first["SHA256SUMS"]).lines().count();
        assert_eq!(listed, first.len() - 1);
    }

    #[test]
    fn a_file_of_another_release_and_a_folder_that_cannot_be_written_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let files = release_in(folder.path(), None).unwrap();
        assert!(!files.join("palisade.krew.yaml").exists());
        fs::write(files.join("palisade-1.2.2.tar.gz"), "").unwrap();
        let Err(Failure(text)) = release_in(folder.path(), None) else { panic!("it was accepted") };
        assert!(text.ends_with("palisade-1.2.2.tar.gz is of another release"), "{text}");
    }

    #[test]
    fn archives_and_packages_are_unpacked_by_their_own_programs() {
        let folder = tempfile::tempdir().unwrap();
        let files = release_in(folder.path(), None).unwrap();
        let unpacked = folder.path().join("unpacked");
        fs::create_dir(&unpacked).unwrap();
        run(Command::new("tar")
            .arg("-xzf")
            .arg(files.join("palisade-1.2.3-linux-amd64.tar.gz"))
            .current_dir(&unpacked))
        .unwrap();
        let printed = output(Command::new(unpacked.join("palisade")).arg("version")).unwrap();
        assert!(printed.starts_with("palisade of "), "{printed}");
        for name in [
            "LICENSE",
            "README.md",
            "share/man/man1/palisade-check.1.gz",
            "share/zsh/vendor-completions/_palisade",
        ] {
            assert!(unpacked.join(name).is_file(), "{name}");
        }
        if !exists("dpkg-deb") {
            println!("NOT RUN: dpkg-deb is not on this machine");
            return;
        }
        let package = files.join("palisade_1.2.3_arm64.deb");
        let field =
            |name: &str| output(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)).unwrap();
        for (name, value) in [("Package", "palisade"), ("Version", "1.2.3"), ("Architecture", "arm64")] {
            assert_eq!(field(name).trim(), value);
        }
        let root = folder.path().join("root");
        run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&root)).unwrap();
        let mode = fs::metadata(root.join("usr/bin/palisade")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let script = fs::read_to_string(root.join("usr/share/bash-completion/completions/palisade")).unwrap();
        assert_eq!(script, "complete bash\n");
    }
}
