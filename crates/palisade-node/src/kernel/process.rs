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
    /// The label of the security module, with its mode; none where no module is active.
    pub app_armor: Option<String>,
    /// Namespace kind to inode.
    pub namespaces: BTreeMap<String, u64>,
    /// Whether the root file system is mounted read-only.
    pub root_read_only: Option<bool>,
}

const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];

impl ProcessSecurity {
    /// Reads the security of a process below a `/proc`.
    pub fn read(proc: &Path, pid: u32) -> io::Result<Self> {
        let folder = proc.join(pid.to_string());
        let mut found = Self::from_status(&fs::read_to_string(folder.join("status"))?);
        found.app_armor = app_armor_label(&folder);
        for kind in NAMESPACES {
            if let Ok(link) = fs::read_link(folder.join("ns").join(kind))
                && let Some(inode) = namespace_inode(&link.to_string_lossy())
            {
                found.namespaces.insert(kind.to_owned(), inode);
            }
        }
        found.root_read_only =
            fs::read_to_string(folder.join("mountinfo")).ok().and_then(|text| root_read_only(&text));
        Ok(found)
    }

    /// Reads the text of `/proc/PID/status`; what is missing or unreadable stays at its default.
    #[must_use]
    pub fn from_status(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let hex = || u64::from_str_radix(value, 16).unwrap_or_default();
            match key {
                "Uid" => found.uid = four(value),
                "Gid" => found.gid = four(value),
                "Groups" => {
                    found.groups = value.split_whitespace().filter_map(|id| id.parse().ok()).collect();
                }
                "CapInh" => found.cap_inheritable = hex(),
                "CapPrm" => found.cap_permitted = hex(),
                "CapEff" => found.cap_effective = hex(),
                "CapBnd" => found.cap_bounding = hex(),
                "CapAmb" => found.cap_ambient = hex(),
                "NoNewPrivs" => found.no_new_privs = value == "1",
                "Seccomp" => found.seccomp_mode = value.parse().unwrap_or_default(),
                "Seccomp_filters" => found.seccomp_filters = value.parse().ok(),
                _ => {}
            }
        }
        found
    }

    /// The AppArmor profile without its mode: `p` of `p (enforce)`.
    #[must_use]
    pub fn app_armor_profile(&self) -> Option<&str> {
        self.app_armor.as_deref().map(|label| label.split(" (").next().unwrap_or(label))
    }
}

fn four(value: &str) -> [u32; 4] {
    let mut ids = [0; 4];
    for (slot, id) in ids.iter_mut().zip(value.split_whitespace()) {
        *slot = id.parse().unwrap_or_default();
    }
    ids
}

fn app_armor_label(folder: &Path) -> Option<String> {
    // The specific file came with Linux 5.8; the older one belongs to whichever module is first.
    let label = fs::read_to_string(folder.join("attr/apparmor/current"))
        .or_else(|_| fs::read_to_string(folder.join("attr/current")))
        .ok()?;
    let label = label.trim_end_matches(['\n', '\0']).to_owned();
    (!label.is_empty()).then_some(label)
}

fn namespace_inode(link: &str) -> Option<u64> {
    link.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// The mount point `/` of mountinfo, the last one if several are stacked: field 5 is where, field 6 how.
fn root_read_only(mountinfo: &str) -> Option<bool> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(4);
            (fields.next()? == "/").then(|| fields.next())?
        })
        .next_back()
        .map(|options| options.split(',').any(|option| option == "ro"))
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

    #[test]
    fn reads_what_the_kernel_writes() {
        let text = "Name:\tsleep\nUid:\t1000\t1000\t1000\t1000\nGid:\t2000\t2000\t2000\t2000\nGroups:\t2000 3000 4000 \n\
                    CapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let found = ProcessSecurity::from_status(text);
        assert_eq!(found.uid, [1000; 4]);
        assert_eq!(found.gid, [2000; 4]);
        assert_eq!(found.groups, [2000, 3000, 4000]);
        assert_eq!((found.cap_effective, found.cap_bounding), (0xa804_25fb, 0xa804_25fb));
        assert!(found.no_new_privs);
        assert_eq!((found.seccomp_mode, found.seccomp_filters), (2, Some(1)));
    }

    #[test]
    fn survives_nonsense() {
        for text in ["", "Uid:", "Uid:\tx\t\t", "Groups:\t-1", "CapEff:\tzz", "no colon", "Seccomp:\t999999"]
        {
            assert_eq!(ProcessSecurity::from_status(text), ProcessSecurity::default(), "{text}");
        }
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
        assert!(found.root_read_only.is_some());
    }
}
