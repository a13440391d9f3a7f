//! What the kernel enforces on a process, read from `/proc/PID`.
//!
//! Facts: proc_pid_status(5), proc_pid_attr(5), namespaces(7), proc_pid_mountinfo(5). Whether it is what was requested
//! is judged by [`crate::verify`].

use std::{collections::BTreeMap, fs, io, path::Path};

use serde::Serialize;

/// The security of a process, as the kernel reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the fields are the kernel's own")]
pub struct ProcessSecurity {
    /// Real, effective, saved and file system user.
    pub uid: [u32; 4],
    /// Real, effective, saved and file system group.
    pub gid: [u32; 4],
    pub groups: Vec<u32>,
    pub cap_inheritable: u64,
    pub cap_permitted: u64,
    pub cap_effective: u64,
    pub cap_bounding: u64,
    pub cap_ambient: u64,
    pub no_new_privs: bool,
    /// 0 none, 1 strict, 2 filter.
    pub seccomp_mode: u8,
    /// Absent before Linux 5.9.
    pub seccomp_filters: Option<u32>,
    /// The label that AppArmor gave it, with its mode; none where AppArmor is not active.
    pub app_armor: Option<String>,
    /// The label that SELinux gave it; none where SELinux is not active.
    pub se_linux: Option<String>,
    /// Namespace kind to inode.
    pub namespaces: BTreeMap<String, u64>,
    /// Which of the node's users its users are, if it has a user namespace; as this process sees it.
    pub uid_map: Vec<IdMapLine>,
    /// The same for groups.
    pub gid_map: Vec<IdMapLine>,
    /// Whether the root file system is mounted read-only.
    pub root_read_only: bool,
    /// Paths of `/proc` that are neither hidden from it nor read-only, although they are by default.
    pub unmasked: Vec<&'static str>,
}

/// A line of `/proc/PID/uid_map` or `gid_map` (user_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdMapLine {
    /// The first id inside.
    pub inside: u32,
    /// The first id outside.
    pub outside: u32,
    /// How many there are.
    pub length: u32,
}

/// Ids that belong to the node's own users.
const OF_THE_NODE: u32 = 1 << 16;

impl IdMapLine {
    /// The id inside of an id outside.
    #[must_use]
    pub fn inside(&self, outside: u32) -> Option<u32> {
        let offset = outside.checked_sub(self.outside)?;
        if offset < self.length { self.inside.checked_add(offset) } else { None }
    }

    /// Whether one of the ids is that of a user of the node itself.
    #[must_use]
    pub const fn reaches_the_node(&self) -> bool {
        self.outside < OF_THE_NODE && self.length > 0
    }
}

/// What every release hides of `/proc`, as far as the kernel has it.
const MASKED: [&str; 8] = [
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
];
/// What every release makes read-only.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Namespaces that every kernel with containers has.
const NAMESPACES: [&str; 5] = ["ipc", "mnt", "net", "pid", "uts"];
/// Namespaces that came later or can be left out of a kernel.
const OPTIONAL_NAMESPACES: [&str; 3] = ["cgroup", "time", "user"];

/// What is wrong with the text of `/proc/PID/status`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    /// A line that every kernel writes is missing.
    #[error("no line {0}")]
    Missing(&'static str),
    /// The value of a line is of another form.
    #[error("cannot read the line {key} {value:?}")]
    Line {
        /// Its name.
        key: String,
        /// Its value.
        value: String,
    },
}

/// Lines of `/proc/PID/status` that every kernel with containers writes. Without one of them the process would seem to have less
/// than it has.
const REQUIRED_LINES: [&str; 7] = ["Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd"];

impl ProcessSecurity {
    /// Reads the security of a process below a `/proc`. Either everything is read or nothing: a process that ends meanwhile, or
    /// one that may not be looked into, is an error.
    pub fn read(proc: &Path, pid: u32) -> io::Result<Self> {
        let folder = proc.join(pid.to_string());
        let named = |file: &str| {
            let path = folder.join(file);
            move |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let invalid =
            |file: &str, why: &str| named(file)(io::Error::new(io::ErrorKind::InvalidData, why.to_owned()));
        let status = fs::read_to_string(folder.join("status")).map_err(named("status"))?;
        let mut found = Self::from_status(&status).map_err(|error| invalid("status", &error.to_string()))?;
        // AppArmor's own file came with Linux 5.8; the older one belongs to whichever module is first, and a label of SELinux
        // does not stand for an AppArmor profile.
        let (first, own) = (label(&folder, "attr/current")?, label(&folder, "attr/apparmor/current")?);
        found.app_armor = own.or_else(|| first.clone().filter(|label| is_app_armor(label)));
        found.se_linux = first.filter(|label| !is_app_armor(label));
        for kind in NAMESPACES.into_iter().chain(OPTIONAL_NAMESPACES) {
            let file = format!("ns/{kind}");
            let link = match fs::read_link(folder.join(&file)) {
                Ok(link) => link,
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && OPTIONAL_NAMESPACES.contains(&kind) =>
                {
                    continue;
                }
                Err(error) => return Err(named(&file)(error)),
            };
            let inode =
                namespace_inode(&link.to_string_lossy()).ok_or_else(|| invalid(&file, "not a namespace"))?;
            found.namespaces.insert(kind.to_owned(), inode);
        }
        for (file, map) in [("uid_map", &mut found.uid_map), ("gid_map", &mut found.gid_map)] {
            let text = match fs::read_to_string(folder.join(file)) {
                Ok(text) => text,
                // A kernel without user namespaces.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(named(file)(error)),
            };
            *map = id_map(&text).ok_or_else(|| invalid(file, "not a mapping of ids"))?;
        }
        let mounts = fs::read_to_string(folder.join("mountinfo")).map_err(named("mountinfo"))?;
        found.root_read_only =
            root_read_only(&mounts).ok_or_else(|| invalid("mountinfo", "no root file system"))?;
        found.unmasked = unmasked(&mounts, |path| {
            let missing = proc.join(path.trim_start_matches("/proc/")).symlink_metadata().err();
            missing.is_none_or(|error| error.kind() != io::ErrorKind::NotFound)
        });
        Ok(found)
    }

    /// Reads the text of `/proc/PID/status`.
    pub fn from_status(text: &str) -> Result<Self, StatusError> {
        let mut found = Self::default();
        let mut missing: Vec<&'static str> = REQUIRED_LINES.to_vec();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let read = found.read_line(key, value);
            read.ok_or_else(|| StatusError::Line { key: key.to_owned(), value: value.to_owned() })?;
            missing.retain(|required| *required != key);
        }
        match missing.first() {
            None => Ok(found),
            Some(line) => Err(StatusError::Missing(line)),
        }
    }

    fn read_line(&mut self, key: &str, value: &str) -> Option<()> {
        // swallowed: the caller reports the line
        let hex = || u64::from_str_radix(value, 16).ok();
        match key {
            "Uid" => self.uid = four(value)?,
            "Gid" => self.gid = four(value)?,
            "Groups" => {
                // swallowed: as above
                self.groups = value.split_whitespace().map(|id| id.parse().ok()).collect::<Option<_>>()?;
            }
            "CapInh" => self.cap_inheritable = hex()?,
            "CapPrm" => self.cap_permitted = hex()?,
            "CapEff" => self.cap_effective = hex()?,
            "CapBnd" => self.cap_bounding = hex()?,
            "CapAmb" => self.cap_ambient = hex()?,
            "NoNewPrivs" => self.no_new_privs = value == "1",
            // swallowed: as above
            "Seccomp" => self.seccomp_mode = value.parse().ok()?,
            // swallowed: as above
            "Seccomp_filters" => self.seccomp_filters = Some(value.parse().ok()?),
            _ => {}
        }
        Some(())
    }

    /// The AppArmor profile without its mode: `p` of `p (enforce)`.
    #[must_use]
    pub fn app_armor_profile(&self) -> Option<&str> {
        self.app_armor.as_deref().map(|label| label.split(" (").next().unwrap_or(label))
    }

    /// The mode of the AppArmor profile: `enforce` of `p (enforce)`. A process without a profile has none.
    #[must_use]
    pub fn app_armor_mode(&self) -> Option<&str> {
        app_armor_mode(self.app_armor.as_deref()?)
    }
}

fn id_map(text: &str) -> Option<Vec<IdMapLine>> {
    let line = |line: &str| {
        // swallowed: the caller reports the file
        let numbers: Vec<u32> = line.split_whitespace().map(|id| id.parse().ok()).collect::<Option<_>>()?;
        let [inside, outside, length] = numbers[..] else { return None };
        Some(IdMapLine { inside, outside, length })
    };
    text.lines().map(line).collect()
}

fn four(value: &str) -> Option<[u32; 4]> {
    // swallowed: the caller reports the line
    let ids: Vec<u32> = value.split_whitespace().map(|id| id.parse().ok()).collect::<Option<_>>()?;
    // swallowed: as above
    ids.try_into().ok()
}

fn app_armor_mode(label: &str) -> Option<&str> {
    label.rsplit_once(" (")?.1.strip_suffix(')')
}

fn is_app_armor(label: &str) -> bool {
    label == "unconfined" || app_armor_mode(label).is_some()
}

/// The label that a security module gave a process.
fn label(folder: &Path, file: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(folder.join(file)) {
        Ok(label) => {
            Ok(Some(label.trim_end_matches(['\n', '\0']).to_owned()).filter(|label| !label.is_empty()))
        }
        // No such file, or no module that answers: EINVAL.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {
            Ok(None)
        }
        Err(error) => {
            let path = folder.join(file);
            Err(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        }
    }
}

fn namespace_inode(link: &str) -> Option<u64> {
    // swallowed: the caller reports the link
    link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

fn root_read_only(mountinfo: &str) -> Option<bool> {
    mounted_read_only(mountinfo, "/")
}

/// Whether what is mounted at a place is read-only; the last one counts if several are stacked. Field 5 of mountinfo is where,
/// field 6 how.
fn mounted_read_only(mountinfo: &str, place: &str) -> Option<bool> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(4);
            (fields.next()? == place).then(|| fields.next())?
        })
        .next_back()
        .map(|options| options.split(',').any(|option| option == "ro"))
}

/// The paths of `/proc` that nothing is mounted over, or nothing read-only; those that the kernel does not have are no matter.
fn unmasked(mountinfo: &str, exists: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let seen = MASKED.into_iter().filter(|path| mounted_read_only(mountinfo, path).is_none());
    let writable = READ_ONLY.into_iter().filter(|path| mounted_read_only(mountinfo, path) != Some(true));
    seen.chain(writable).filter(|path| exists(path)).collect()
}

/// Linux' capabilities in the order of their numbers (capabilities(7)).
pub const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The bit of a capability, with or without `CAP_`.
#[must_use]
pub fn capability_bit(name: &str) -> Option<u64> {
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    CAPABILITIES.iter().position(|&known| known == name).map(|number| 1 << number)
}

/// The names in a set of capabilities.
#[must_use]
pub fn capability_names(set: u64) -> Vec<String> {
    (0..64)
        .filter(|number| set & (1 << number) != 0)
        .map(|number| CAPABILITIES.get(number).map_or_else(|| format!("CAP_{number}"), ToString::to_string))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tsleep\nUid:\t1000\t1000\t1000\t1000\nGid:\t2000\t2000\t2000\t2000\nGroups:\t2000 3000 4000 \n\
        CapInh:\t0000000000000000\nCapPrm:\t00000000a80425fb\nCapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\n\
        CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";

    #[test]
    fn reads_what_the_kernel_writes() {
        let found = ProcessSecurity::from_status(STATUS).unwrap();
        assert_eq!(found.uid, [1000; 4]);
        assert_eq!(found.gid, [2000; 4]);
        assert_eq!(found.groups, [2000, 3000, 4000]);
        assert_eq!((found.cap_effective, found.cap_bounding), (0xa804_25fb, 0xa804_25fb));
        assert!(found.no_new_privs);
        assert_eq!((found.seccomp_mode, found.seccomp_filters), (2, Some(1)));
    }

    #[test]
    fn a_status_that_is_not_whole_is_an_error() {
        for (whole, broken, expected) in [
            ("CapBnd:\t00000000a80425fb\n", "", "no line CapBnd"),
            ("Groups:\t2000 3000 4000 \n", "", "no line Groups"),
            ("Uid:\t1000\t1000\t1000\t1000", "Uid:\t1000", "cannot read the line Uid \"1000\""),
            ("Uid:\t1000", "Uid:\tx", "cannot read the line Uid \"x\\t1000\\t1000\\t1000\""),
            ("2000 3000 4000", "-1", "cannot read the line Groups \"-1\""),
            ("CapPrm:\t00000000a80425fb", "CapPrm:\tzz", "cannot read the line CapPrm \"zz\""),
            ("Seccomp:\t2", "Seccomp:\t999999", "cannot read the line Seccomp \"999999\""),
        ] {
            assert!(STATUS.contains(whole), "{whole}");
            let found = ProcessSecurity::from_status(&STATUS.replacen(whole, broken, 1));
            assert_eq!(found.map_err(|error| error.to_string()), Err(expected.to_owned()), "{broken}");
        }
        assert_eq!(ProcessSecurity::from_status(""), Err(StatusError::Missing("Uid")));
    }

    #[test]
    fn a_process_that_cannot_be_read_as_a_whole_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("7");
        fs::create_dir_all(folder.join("ns")).unwrap();
        fs::create_dir_all(folder.join("attr")).unwrap();
        let read = || ProcessSecurity::read(temp.path(), 7).map_err(|error| error.to_string());
        assert!(read().unwrap_err().contains("/7/status: "));
        fs::write(folder.join("status"), STATUS).unwrap();
        assert!(read().unwrap_err().contains("/7/ns/ipc: "));
        for (number, kind) in NAMESPACES.into_iter().enumerate() {
            std::os::unix::fs::symlink(format!("{kind}:[{number}]"), folder.join("ns").join(kind)).unwrap();
        }
        assert!(read().unwrap_err().contains("/7/mountinfo: "));
        fs::write(folder.join("mountinfo"), "3 2 0:1 / /proc rw - proc p rw\n").unwrap();
        assert!(read().unwrap_err().contains("no root file system"));
        fs::write(folder.join("mountinfo"), "1 0 8:1 / / ro - ext4 d rw\n").unwrap();
        let found = read().unwrap();
        assert!(found.root_read_only);
        assert_eq!((found.namespaces.len(), found.app_armor), (5, None));
        for (label, app_armor, se_linux) in [
            ("unconfined\n", Some("unconfined"), None),
            ("mine (complain)\n", Some("mine (complain)"), None),
            (
                "system_u:system_r:container_t:s0:c1,c2\0",
                None,
                Some("system_u:system_r:container_t:s0:c1,c2"),
            ),
        ] {
            fs::write(folder.join("attr/current"), label).unwrap();
            let found = read().unwrap();
            assert_eq!(
                (found.app_armor.as_deref(), found.se_linux.as_deref()),
                (app_armor, se_linux),
                "{label}"
            );
        }
        fs::remove_file(folder.join("attr/current")).unwrap();
        fs::create_dir(folder.join("attr/current")).unwrap();
        assert!(read().unwrap_err().contains("/7/attr/current: "), "a label that cannot be read is not none");
    }

    #[test]
    fn the_last_mount_over_root_counts() {
        for (text, expected) in [
            ("", None),
            ("1 0 8:1 / / rw,relatime - ext4 d rw", Some(false)),
            (
                "1 0 8:1 / / rw - ext4 d rw\n2 1 8:1 / / ro,nosuid - overlay o rw\n3 2 0:1 / /proc rw - proc p rw",
                Some(true),
            ),
            ("short", None),
        ] {
            assert_eq!(root_read_only(text), expected, "{text}");
        }
    }

    #[test]
    fn paths_of_proc_are_masked_by_what_is_mounted_over_them() {
        let masked = "1 0 0:1 / /proc rw - proc p rw\n2 1 0:2 / /proc/kcore rw - tmpfs t rw\n\
            3 1 0:1 /sys /proc/sys ro,nosuid - proc p rw\n4 1 0:1 /bus /proc/bus rw - proc p rw\n";
        let exists = |path: &str| ["/proc/kcore", "/proc/sys", "/proc/bus"].contains(&path);
        assert_eq!(unmasked(masked, exists), ["/proc/bus"], "what is writable is not read-only");
        assert_eq!(
            unmasked("1 0 0:1 / /proc rw - proc p rw\n", exists),
            ["/proc/kcore", "/proc/bus", "/proc/sys"]
        );
        assert_eq!(unmasked("", |_| false), [""; 0], "a kernel without these files hides nothing");
    }

    #[test]
    fn maps_of_ids_lead_from_the_node_into_the_namespace() {
        let map = id_map("         0      65536      65536\n     70000        200          1\n").unwrap();
        for (outside, expected) in [
            (65_536, Some(0)),
            (66_536, Some(1000)),
            (131_071, Some(65_535)),
            (131_072, None),
            (0, None),
            (200, Some(70_000)),
        ] {
            assert_eq!(map.iter().find_map(|line| line.inside(outside)), expected, "{outside}");
        }
        assert_eq!(map.iter().map(IdMapLine::reaches_the_node).collect::<Vec<_>>(), [false, true]);
        assert_eq!(id_map("0 0 4294967295\n").unwrap()[0].inside(7), Some(7));
        for wrong in ["0 1", "0 1 2 3", "a b c", "0 1 -1", "0 1 4294967296"] {
            assert_eq!(id_map(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn capabilities_have_names_and_numbers() {
        assert_eq!(capability_bit("CHOWN"), Some(1));
        assert_eq!(capability_bit("cap_net_admin"), Some(1 << 12));
        assert_eq!(capability_bit("NOPE"), None);
        assert_eq!(capability_names(1 | 1 << 40 | 1 << 50), ["CHOWN", "CHECKPOINT_RESTORE", "CAP_50"]);
    }

    #[test]
    fn reads_this_process() {
        let found = ProcessSecurity::read(Path::new("/proc"), std::process::id()).unwrap();
        assert!(found.namespaces.contains_key("mnt"));
        assert!(found.namespaces.contains_key("net"));
    }
}
