//! A virtual machine with AppArmor and cgroup v2: Debian's cloud kernel under QEMU, without installing anything.
//!
//! `cargo xtask vm --payload DIR` puts busybox, containerd, runc, apparmor_parser and their libraries into an initramfs, adds
//! the payload as `/payload`, boots, runs `/payload/run` and prints the serial console. KVM is not needed. Needed
//! are the packages qemu-system-x86, containerd, runc, apparmor and busybox-static, and a package archive to fetch the kernel
//! from, once: it is unpacked below `target/vm`.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, BufWriter, Write as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use walkdir::WalkDir;

use crate::{Failure, root};

/// Far more than the twenty seconds it takes: emulation on a busy machine is slow.
const PATIENCE: Duration = Duration::from_mins(8);

/// The last line when the payload has run; its exit status follows.
const END: &str = "PALISADE-VM-END ";

/// What runs in the machine. The second is where containerd's own check looks for it.
const PROGRAMS: [&str; 6] = [
    "/usr/bin/containerd",
    "/usr/sbin/apparmor_parser",
    "/usr/bin/containerd-shim-runc-v2",
    "/usr/bin/ctr",
    "/usr/sbin/runc",
    "/bin/busybox",
];

/// First init: runc cannot pivot_root on an initramfs, so everything moves to a tmpfs.
const INIT: &str = r"#!/usr/bin/busybox sh
B=/usr/bin/busybox
$B mkdir -p /proc /newroot
$B mount -t proc proc /proc
$B mount -t tmpfs -o size=80%,mode=755 tmpfs /newroot
$B cp -a /usr /etc /payload /modules /bin /sbin /lib /lib64 /second-init /newroot/
$B mkdir -p /newroot/proc /newroot/sys /newroot/dev /newroot/run /newroot/tmp /newroot/var/lib /newroot/root
$B umount /proc
exec $B switch_root /newroot /second-init
";

const SECOND_INIT: &str = r#"#!/usr/bin/busybox sh
export PATH=/usr/sbin:/usr/bin HOME=/root
/usr/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t securityfs securityfs /sys/kernel/security
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for module in /modules/*.ko; do insmod "$module"; done
ip link set lo up
hostname vm
sh /payload/run
status=$?
echo
echo "PALISADE-VM-END $status"
poweroff -f
"#;

/// Fetches the machine's kernel, unless it is there.
pub(crate) fn fetch_kernel() -> Result<(), Failure> {
    kernel(&work_folder()?).map(drop)
}

fn work_folder() -> Result<PathBuf, Failure> {
    let work = root().join("target/vm");
    fs::create_dir_all(&work).map_err(|error| failure(&work, &error))?;
    Ok(work)
}

/// Boots the machine with a payload and prints its console.
pub(crate) fn run_vm(payload: &Path) -> Result<(), Failure> {
    let work = work_folder()?;
    let (kernel, overlay) = kernel(&work)?;
    let tree = work.join(format!("tree-{}", std::process::id()));
    let image = work.join(format!("initramfs-{}", std::process::id()));
    let result = fill(&tree, payload, &overlay)
        .and_then(|()| write_archive(&tree, &image).map_err(|error| failure(&image, &error)))
        .and_then(|()| boot(&kernel, &image));
    fs::remove_dir_all(&tree).ok();
    fs::remove_file(&image).ok();
    result
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String, Failure> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|error| Failure(format!("{shown}: {error}")))?;
    if !output.status.success() {
        return Err(Failure(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Debian's cloud kernel and its overlay module, fetched once.
fn kernel(work: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let unpacked = work.join("kernel");
    let found = || {
        let file =
            |name: &str| {
                WalkDir::new(&unpacked).into_iter().flatten().map(walkdir::DirEntry::into_path).find(|path| {
                    path.file_name().is_some_and(|found| found.to_string_lossy().starts_with(name))
                })
            };
        Some((file("vmlinuz-")?, file("overlay.ko")?))
    };
    if let Some(found) = found() {
        return Ok(found);
    }
    let package = if let Some(package) = kernel_package()? {
        package
    } else {
        // Without an update, apt has no list of packages.
        output(Command::new("apt-get").args(["update", "-qq"]))?;
        kernel_package()?.ok_or_else(|| Failure("the archive has no linux-image-cloud-amd64".to_owned()))?
    };
    let download = work.join("download");
    fs::remove_dir_all(&download).ok();
    fs::create_dir_all(&download).map_err(|error| failure(&download, &error))?;
    output(Command::new("apt-get").args(["download", &package]).current_dir(&download))?;
    let archive = fs::read_dir(&download)
        .map_err(|error| failure(&download, &error))?
        .flatten()
        .map(|entry| entry.path())
        .next()
        .ok_or_else(|| Failure(format!("apt-get download {package} brought nothing")))?;
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    found().ok_or_else(|| Failure(format!("{package} holds no kernel, or no overlay.ko")))
}

/// The package behind `linux-image-cloud-amd64`, if apt has it.
fn kernel_package() -> Result<Option<String>, Failure> {
    let listed = Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]).output();
    let listed = listed.map_err(|error| Failure(format!("apt-cache: {error}")))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(depends.map(str::to_owned).find(|name| name.starts_with("linux-image-")))
}

/// Puts together the file tree of the machine.
fn fill(tree: &Path, payload: &Path, overlay: &Path) -> Result<(), Failure> {
    let at = |error: io::Error| failure(tree, &error);
    fs::remove_dir_all(tree).ok();
    for folder in ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "modules"] {
        fs::create_dir_all(tree.join(folder)).map_err(at)?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), tree.join(name)).map_err(at)?;
    }
    copy_tree(payload, &tree.join("payload")).map_err(|error| failure(payload, &error))?;
    let mut programs: Vec<PathBuf> = PROGRAMS.iter().map(PathBuf::from).collect();
    let missing: Vec<_> =
        programs.iter().filter(|path| !path.exists()).map(|path| path.display().to_string()).collect();
    if !missing.is_empty() {
        let packages = "containerd runc apparmor busybox-static qemu-system-x86";
        return Err(Failure(format!("missing: {}; apt-get install {packages}", missing.join(" "))));
    }
    for program in &programs {
        let name = program.strip_prefix("/").unwrap_or(program);
        let name = if name.starts_with("usr") { name.to_owned() } else { Path::new("usr").join(name) };
        fs::copy(program, tree.join(name)).map_err(|error| failure(program, &error))?;
    }
    // Programs of the payload bring their libraries as well.
    let is_program =
        |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
    programs.extend(
        WalkDir::new(payload)
            .into_iter()
            .flatten()
            .map(walkdir::DirEntry::into_path)
            .filter(|path| is_program(path)),
    );
    for library in libraries(&programs) {
        let name = library.strip_prefix("/").unwrap_or(&library);
        let target =
            tree.join(if name.starts_with("usr") { name.to_owned() } else { Path::new("usr").join(name) });
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(at)?;
        }
        fs::copy(&library, &target).map_err(|error| failure(&library, &error))?;
    }
    // What runtimes include in the profiles they write.
    if Path::new("/etc/apparmor.d/tunables").exists() {
        for part in ["tunables", "abstractions", "abi"] {
            copy_tree(&Path::new("/etc/apparmor.d").join(part), &tree.join("etc/apparmor.d").join(part))
                .map_err(at)?;
        }
    }
    // Runtimes copy these into every pod, and the parser needs its settings.
    for (name, text) in [
        ("hosts", "127.0.0.1 localhost\n"),
        ("resolv.conf", ""),
        ("hostname", "vm\n"),
        ("passwd", "root:x:0:0::/root:/bin/sh\n"),
        ("group", "root:x:0:\n"),
        ("apparmor/parser.conf", ""),
    ] {
        let path = tree.join("etc").join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(at)?;
        }
        fs::write(path, text).map_err(at)?;
    }
    let module = overlay.file_name().map_or_else(|| PathBuf::from("overlay.ko"), PathBuf::from);
    fs::copy(overlay, tree.join("modules").join(&module)).map_err(|error| failure(overlay, &error))?;
    if module.extension().is_some_and(|end| end == "xz") {
        output(Command::new("xz").arg("-d").arg(tree.join("modules").join(&module)))?;
    }
    for (name, text) in [("init", INIT), ("second-init", SECOND_INIT)] {
        let path = tree.join(name);
        fs::write(&path, text).map_err(at)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).map_err(at)?;
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in WalkDir::new(from).into_iter().flatten() {
        let target = to.join(entry.path().strip_prefix(from).unwrap_or_else(|_| entry.path()));
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target)?;
        } else if entry.file_type().is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
        } else if !entry.file_type().is_socket() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// The shared libraries of programs, the loader among them.
fn libraries(programs: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for program in programs {
        // A static program, or a script, has none and ldd reports that with its exit status.
        let Ok(output) = Command::new("ldd").arg(program).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        found.extend(
            text.split_whitespace()
                .filter(|word| word.starts_with('/') && !word.ends_with(':'))
                .map(PathBuf::from),
        );
    }
    found
}

/// Writes the tree as the kernel reads it: cpio, new ASCII format.
fn write_archive(tree: &Path, archive: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(archive)?);
    let mut inode = 1;
    for entry in WalkDir::new(tree).min_depth(1).sort_by_file_name().into_iter().flatten() {
        let metadata = entry.path().symlink_metadata()?;
        let name = entry.path().strip_prefix(tree).map_err(io::Error::other)?.to_string_lossy().into_owned();
        let content = if metadata.is_symlink() {
            fs::read_link(entry.path())?.to_string_lossy().into_owned().into_bytes()
        } else if metadata.is_file() {
            fs::read(entry.path())?
        } else {
            Vec::new()
        };
        write_entry(&mut out, inode, metadata.mode(), &name, &content)?;
        inode += 1;
    }
    // The kernel opens it for the first process before anything is mounted.
    write_entry(&mut out, inode, 0o040_755, "dev", &[])?;
    write_device(&mut out, inode + 1, "dev/console", 5, 1)?;
    write_entry(&mut out, 0, 0, "TRAILER!!!", &[])?;
    out.flush()
}

fn write_entry(
    out: &mut impl io::Write,
    inode: usize,
    mode: u32,
    name: &str,
    content: &[u8],
) -> io::Result<()> {
    header(out, inode, mode, content.len(), (0, 0), name)?;
    out.write_all(content)?;
    pad(out, content.len())
}

fn write_device(
    out: &mut impl io::Write,
    inode: usize,
    name: &str,
    major: u32,
    minor: u32,
) -> io::Result<()> {
    header(out, inode, 0o020_600, 0, (major, minor), name)
}

fn header(
    out: &mut impl io::Write,
    inode: usize,
    mode: u32,
    size: usize,
    (major, minor): (u32, u32),
    name: &str,
) -> io::Result<()> {
    let length = name.len() + 1;
    write!(
        out,
        "070701{inode:08x}{mode:08x}{owner:08x}{owner:08x}{links:08x}{time:08x}{size:08x}{zero:08x}{zero:08x}{major:08x}{minor:08x}{length:08x}{zero:08x}{name}\0",
        owner = 0,
        links = 1,
        time = 0,
        zero = 0,
    )?;
    pad(out, 110 + length)
}

fn pad(out: &mut impl io::Write, written: usize) -> io::Result<()> {
    let missing = written.next_multiple_of(4) - written;
    out.write_all([0_u8; 3].get(..missing).unwrap_or_default())
}

fn boot(kernel: &Path, image: &Path) -> Result<(), Failure> {
    let mut child = Command::new("qemu-system-x86_64")
        .args([
            "-accel",
            "tcg,thread=multi",
            "-smp",
            "2",
            "-m",
            "3072",
            "-nographic",
            "-no-reboot",
            "-nic",
            "none",
        ])
        .args(["-append", "console=ttyS0 apparmor=1 security=apparmor panic=-1 loglevel=3"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(image)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure(format!("qemu-system-x86_64: {error}")))?;
    let status = watch(&mut child);
    child.kill().ok();
    child.wait().ok();
    match status? {
        0 => Ok(()),
        status => Err(Failure(format!("the payload ended with status {status}"))),
    }
}

/// Prints the console until the payload ends; its exit status.
fn watch(child: &mut Child) -> Result<i32, Failure> {
    let console = child.stdout.take().ok_or_else(|| Failure("QEMU has no console".to_owned()))?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => {
                println!("{line}");
                if let Some(status) = line.strip_prefix(END) {
                    return Ok(status.trim().parse().unwrap_or(1));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(Failure(format!("the machine is not done after {} s", PATIENCE.as_secs())));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Failure("the machine stopped before the payload had run".to_owned()));
            }
        }
    }
}
