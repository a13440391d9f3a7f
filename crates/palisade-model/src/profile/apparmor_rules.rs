//! The rules of an AppArmor profile that the users of a namespace write: a part of the language, read strictly and written anew.
//!
//! Implements: the rules of apparmor.d(5) for files, capabilities, networks and `umount`. <https://manpages.debian.org/apparmor.d.5>
//!
//! The text is not trusted, and what a node loads is never that text: each rule is read into a value, and the profile is made of
//! those values, under a name and with flags that the text cannot express. So nothing in it can open or close a block, name another
//! profile, attach to programs of the node, include its files, or set a flag. What is not read is rejected.
//!
//! A profile may only restrict what the default profile of the runtime allows, or it would be a way around Pod Security: `Unconfined` is
//! forbidden, and a profile that allows everything is the same under another name. So only those kinds of rules are read that the
//! default profile allows without limit, and its denials are part of every profile: in AppArmor, `deny` always wins. Programs keep
//! the profile of their container (`ix`); every transition that leaves it is rejected.

use std::fmt::{self, Write as _};

use thiserror::Error;

/// The longest text, in bytes.
pub const MAX_TEXT: usize = 32 << 10;
/// The most rules.
const MAX_RULES: usize = 256;
/// The longest path, in bytes.
const MAX_PATH: usize = 256;
/// The most wildcards of a path, and of all paths together. What a pattern compiles to grows with them, and every node compiles it.
const MAX_WILDCARDS: (usize, usize) = (4, 64);
/// The most alternatives of a path.
const MAX_ALTERNATIVES: usize = 8;

/// Rules that every node can apply: of files, capabilities, networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppArmorRules(Vec<Rule>);

/// What a profile does with an access that it does not allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AppArmorMode {
    /// It is denied.
    #[default]
    Enforce,
    /// It is logged. Only what is denied in so many words is denied, so a profile in this mode confines less than the runtime's default.
    Complain,
}

impl AppArmorMode {
    /// As the field has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "Enforce",
            Self::Complain => "Complain",
        }
    }

    /// As the kernel reports it.
    #[must_use]
    pub const fn kernel_word(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Complain => "complain",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    is_deny: bool,
    subject: Subject,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// Capabilities; none: all.
    Capability(Vec<&'static str>),
    /// Domain and type of sockets; none: all.
    Network(Vec<&'static str>),
    /// All files.
    Files,
    /// A path.
    File { is_owner: bool, path: String, access: Access },
    /// Unmounting.
    Umount,
}

/// What may be done with a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a letter of the language")]
struct Access {
    read: bool,
    write: bool,
    append: bool,
    link: bool,
    lock: bool,
    map: bool,
    execute: bool,
}

/// Why a text has no rules that can be applied.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RulesError {
    /// Longer than a profile needs to be.
    #[error("longer than {MAX_TEXT} bytes")]
    TooLong,
    /// More rules than a profile needs.
    #[error("more than {MAX_RULES} rules")]
    TooMany,
    /// Patterns that take a node long to compile.
    #[error("more than {} wildcards in all paths together", MAX_WILDCARDS.1)]
    TooManyWildcards,
    /// A rule.
    #[error("line {line}: {problem}")]
    Rule {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: RuleProblem,
    },
}

/// What is wrong with a rule.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RuleProblem {
    /// Not printable ASCII.
    #[error("{0:?} is not allowed: rules are printable ASCII")]
    Character(char),
    /// Not one rule on one line.
    #[error("a rule is one line and ends with one comma")]
    Unfinished,
    /// A part of the language that reaches beyond the containers of the profile.
    #[error("{word} is not allowed: {why}")]
    Forbidden {
        /// The word.
        word: String,
        /// What it would do.
        why: &'static str,
    },
    /// Not a rule that is known.
    #[error("{0:?} is not a rule for files, capability, network or umount")]
    Unknown(String),
    /// A capability that does not exist.
    #[error("{0:?} is not a capability")]
    Capability(String),
    /// A domain or type of sockets that does not exist.
    #[error("{0:?} is not a domain of sockets, a type, or a domain and a type")]
    Network(String),
    /// A path that is not one, or takes long to compile.
    #[error("path {path:?} {why}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Permissions that leave the profile, or are none.
    #[error("permissions {access:?}: {why}")]
    Access {
        /// The permissions.
        access: String,
        /// What is wrong with them.
        why: &'static str,
    },
}

/// Words that begin a rule or a statement of the language, and what they would do.
const FORBIDDEN: &[(&str, &str)] = &[
    (
        "include",
        "it reads files of the node; write the rules out, as apparmor_parser --preprocess prints them",
    ),
    ("abi", "it reads files of the node"),
    ("profile", "an object is one profile, whose name follows from its namespace and its own name"),
    ("hat", "an object is one profile"),
    ("alias", "it changes the paths of other rules"),
    ("change_profile", "a program could leave the profile"),
    ("change_hat", "a program could leave the profile"),
    ("mount", "the default profile of the runtime denies it"),
    ("remount", "the default profile of the runtime denies it"),
    ("pivot_root", "the default profile of the runtime denies it"),
    ("ptrace", "processes of the profile may trace each other, and no others"),
    ("signal", "processes of the profile may signal each other, and no others"),
    ("dbus", "it reaches services of the node"),
    ("unix", "it can name peers outside of the container; use network unix"),
    ("userns", "the default profile of the runtime does not name it"),
    ("io_uring", "the default profile of the runtime does not name it"),
    ("mqueue", "the default profile of the runtime does not name it"),
    ("link", "write the permission l of the path"),
    ("rlimit", "limits are set by the pod"),
    ("set", "limits are set by the pod"),
    ("all", "name what is allowed"),
    ("audit", "it writes to the log of the node for every access"),
    ("quiet", "denials are logged"),
    ("prompt", "it waits for a service of the node"),
    ("priority", "it could come before a denial"),
    ("if", "conditions depend on the node"),
    ("else", "conditions depend on the node"),
];

const CAPABILITIES: &[&str] = &[
    "audit_control",
    "audit_read",
    "audit_write",
    "block_suspend",
    "bpf",
    "checkpoint_restore",
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "ipc_lock",
    "ipc_owner",
    "kill",
    "lease",
    "linux_immutable",
    "mac_admin",
    "mac_override",
    "mknod",
    "net_admin",
    "net_bind_service",
    "net_broadcast",
    "net_raw",
    "perfmon",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_admin",
    "sys_boot",
    "sys_chroot",
    "sys_module",
    "sys_nice",
    "sys_pacct",
    "sys_ptrace",
    "sys_rawio",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "syslog",
    "wake_alarm",
];

const DOMAINS: &[&str] = &[
    "alg",
    "appletalk",
    "ash",
    "atmpvc",
    "atmsvc",
    "ax25",
    "bluetooth",
    "bridge",
    "caif",
    "can",
    "econet",
    "ib",
    "ieee802154",
    "inet",
    "inet6",
    "ipx",
    "irda",
    "isdn",
    "iucv",
    "kcm",
    "key",
    "llc",
    "mpls",
    "netbeui",
    "netlink",
    "netrom",
    "nfc",
    "packet",
    "phonet",
    "pppox",
    "qipcrtr",
    "rds",
    "rose",
    "rxrpc",
    "security",
    "smc",
    "sna",
    "tipc",
    "unix",
    "vsock",
    "wanpipe",
    "x25",
    "xdp",
];

const TYPES: &[&str] = &["dgram", "packet", "raw", "rdm", "seqpacket", "stream"];

/// What the default profiles of containerd and CRI-O deny, and nothing of which a profile may give back: first what both have, then
/// what only one of them has. The last two they do not allow either; here it is said, because `complain` denies nothing else.
const DENIED: &[&str] = &[
    "deny mount,",
    "deny /proc/* w,",
    "deny /proc/{[^1-9],[^1-9][^0-9],[^1-9s][^0-9y][^0-9s],[^1-9][^0-9][^0-9][^0-9]*}/** w,",
    "deny /proc/sys/[^k]** w,",
    "deny /proc/sys/kernel/{?,??,[^s][^h][^m]**} w,",
    "deny /proc/sysrq-trigger rwklx,",
    "deny /proc/kcore rwklx,",
    "deny /sys/[^f]*/** wklx,",
    "deny /sys/f[^s]*/** wklx,",
    "deny /sys/fs/[^c]*/** wklx,",
    "deny /sys/fs/c[^g]*/** wklx,",
    "deny /sys/fs/cg[^r]*/** wklx,",
    "deny /sys/kernel/security/** rwklx,",
    "deny /proc/mem rwklx,",
    "deny /proc/kmem rwklx,",
    "deny /sys/firmware/** rwklx,",
    "deny /sys/devices/virtual/powercap/** rwklx,",
    "deny remount,",
    "deny pivot_root,",
];

impl AppArmorRules {
    /// Reads rules: one on each line, with comments on lines of their own.
    pub fn parse(text: &str) -> Result<Self, RulesError> {
        if text.len() > MAX_TEXT {
            return Err(RulesError::TooLong);
        }
        let mut rules = Vec::new();
        for (index, line) in text.split('\n').enumerate() {
            let read = rule(line).map_err(|problem| RulesError::Rule { line: index + 1, problem })?;
            rules.extend(read);
        }
        if rules.len() > MAX_RULES {
            return Err(RulesError::TooMany);
        }
        let wildcards = |rule: &Rule| match &rule.subject {
            Subject::File { path, .. } => wildcards(path),
            _ => 0,
        };
        if rules.iter().map(wildcards).sum::<usize>() > MAX_WILDCARDS.1 {
            return Err(RulesError::TooManyWildcards);
        }
        Ok(Self(rules))
    }

    /// The profile that a node loads. `name` has no character that means something in the language; see
    /// [`kernel_name`](super::apparmor_profile::kernel_name).
    #[must_use]
    pub(super) fn profile(&self, name: &str, mode: AppArmorMode) -> String {
        let complain = if mode == AppArmorMode::Complain { ",complain" } else { "" };
        let mut text =
            format!("profile \"{name}\" flags=(attach_disconnected,mediate_deleted{complain}) {{\n");
        // As the default profiles have it: the runtime stops processes of the container, and they signal and trace each other.
        for peer in ["unconfined", "runc", "crun"] {
            let _ = writeln!(text, "  signal (receive) peer={peer},");
        }
        let _ = writeln!(text, "  signal (send, receive) peer=\"{name}\",");
        let _ = writeln!(text, "  ptrace (trace, tracedby, read, readby) peer=\"{name}\",");
        for rule in &self.0 {
            let _ = writeln!(text, "  {rule}");
        }
        for denied in DENIED {
            let _ = writeln!(text, "  {denied}");
        }
        text.push_str("}\n");
        text
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_deny {
            f.write_str("deny ")?;
        }
        match &self.subject {
            Subject::Capability(words) => write!(f, "capability{},", Words(words)),
            Subject::Network(words) => write!(f, "network{},", Words(words)),
            Subject::Files => f.write_str("file,"),
            Subject::Umount => f.write_str("umount,"),
            Subject::File { is_owner, path, access } => {
                let owner = if *is_owner { "owner " } else { "" };
                write!(f, "{owner}{path} {},", access.letters(self.is_deny))
            }
        }
    }
}

struct Words<'w>(&'w [&'static str]);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, " {word}"))
    }
}

impl Access {
    fn letters(self, is_deny: bool) -> String {
        let execute = if is_deny { "x" } else { "ix" };
        [
            (self.read, "r"),
            (self.write, "w"),
            (self.append, "a"),
            (self.lock, "k"),
            (self.link, "l"),
            (self.map, "m"),
            (self.execute, execute),
        ]
        .into_iter()
        .filter_map(|(has, letter)| has.then_some(letter))
        .collect()
    }

    fn parse(text: &str, is_deny: bool) -> Result<Self, RuleProblem> {
        let wrong = |why| RuleProblem::Access { access: text.to_owned(), why };
        let mut access = Self::default();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            rest = rest.get(1..).unwrap_or_default();
            let flag = match letter {
                'r' => &mut access.read,
                'w' => &mut access.write,
                'a' => &mut access.append,
                'k' => &mut access.lock,
                'l' => &mut access.link,
                'm' => &mut access.map,
                'x' if is_deny => &mut access.execute,
                'i' if !is_deny && rest.starts_with('x') => {
                    rest = rest.get(1..).unwrap_or_default();
                    &mut access.execute
                }
                'x' => return Err(wrong("write ix: programs run under the same profile")),
                'p' | 'P' | 'c' | 'C' | 'u' | 'U' => {
                    return Err(wrong("a program could leave the profile; only ix is allowed"));
                }
                _ => return Err(wrong("only r, w, a, k, l, m and ix, or x to deny, are allowed")),
            };
            if std::mem::replace(flag, true) {
                return Err(wrong("a letter is there twice"));
            }
        }
        if access.write && access.append {
            return Err(wrong("w and a exclude each other"));
        }
        if access == Self::default() {
            return Err(wrong("missing"));
        }
        Ok(access)
    }
}

/// The rule of a line; none if it is empty or a comment.
fn rule(line: &str) -> Result<Option<Rule>, RuleProblem> {
    let is_text = |letter: char| letter == ' ' || letter == '\t' || letter.is_ascii_graphic();
    if let Some(other) = line.chars().find(|letter| !is_text(*letter)) {
        return Err(RuleProblem::Character(other));
    }
    let line = line.trim();
    if line.is_empty() {
        return Ok(None);
    }
    if let Some(comment) = line.strip_prefix('#') {
        // The language has an old way to include.
        return if comment.trim_start().starts_with("include") {
            Err(forbidden("include"))
        } else {
            Ok(None)
        };
    }
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    if let Some(problem) = words.iter().find_map(|word| structure(word)) {
        return Err(problem);
    }
    let mut is_deny = false;
    match words.first() {
        Some(&"deny") => {
            is_deny = true;
            words.remove(0);
        }
        Some(&"allow") => drop(words.remove(0)),
        _ => {}
    }
    let is_owner = words.first() == Some(&"owner");
    if is_owner {
        words.remove(0);
    }
    let begin = words.first().copied().unwrap_or_default();
    let word: &str = begin.split([',', '=', '(', '<']).next().unwrap_or_default();
    if FORBIDDEN.iter().any(|(known, _)| *known == word) {
        return Err(forbidden(word));
    }
    let line = words.join(" ");
    let body = line.strip_suffix(',').ok_or(RuleProblem::Unfinished)?;
    let words: Vec<&str> = body.split(' ').filter(|word| !word.is_empty()).collect();
    let (first, rest) = words.split_first().ok_or(RuleProblem::Unfinished)?;
    let unknown = || RuleProblem::Unknown(line.clone());
    let subject = match (*first, rest) {
        ("capability", names) if !is_owner => Subject::Capability(
            names
                .iter()
                .map(|name| {
                    known(CAPABILITIES, name).ok_or_else(|| RuleProblem::Capability((*name).to_owned()))
                })
                .collect::<Result<_, _>>()?,
        ),
        ("network", rest) if !is_owner => {
            let wrong = || RuleProblem::Network(rest.join(" "));
            Subject::Network(match rest {
                [] => Vec::new(),
                [one] => vec![known(DOMAINS, one).or_else(|| known(TYPES, one)).ok_or_else(wrong)?],
                [domain, kind] => {
                    vec![known(DOMAINS, domain).ok_or_else(wrong)?, known(TYPES, kind).ok_or_else(wrong)?]
                }
                _ => return Err(wrong()),
            })
        }
        ("umount", []) if !is_owner => Subject::Umount,
        ("file", []) if !is_owner && !is_deny => Subject::Files,
        ("file", &[path, access]) | (path, &[access]) if path.starts_with('/') => Subject::File {
            is_owner,
            path: checked(path)?.to_owned(),
            access: Access::parse(access, is_deny)?,
        },
        _ => return Err(unknown()),
    };
    Ok(Some(Rule { is_deny, subject }))
}

fn known(names: &[&'static str], word: &str) -> Option<&'static str> {
    names.iter().find(|name| **name == word).copied()
}

fn forbidden(word: &str) -> RuleProblem {
    let why = FORBIDDEN.iter().find(|(known, _)| *known == word).map_or("", |(_, why)| why);
    RuleProblem::Forbidden { word: word.to_owned(), why }
}

/// What is not a rule at all, wherever it stands on the line.
fn structure(word: &str) -> Option<RuleProblem> {
    let wrong = |why| Some(RuleProblem::Forbidden { word: word.to_owned(), why });
    let is_path = word.starts_with('/');
    match word {
        "->" => wrong("it names another profile or path"),
        _ if word.contains('"') || word.contains('\\') => wrong("quotes and escapes are not read"),
        _ if word.contains('#') => wrong("comments have lines of their own"),
        _ if word.contains('@') || word.contains('$') => {
            wrong("variables are defined on the node; write the path")
        }
        _ if word.starts_with('^') => wrong("an object is one profile, without hats"),
        _ if !is_path && word.contains(['{', '}']) => wrong("an object is one profile, without blocks"),
        _ => None,
    }
}

fn wildcards(path: &str) -> usize {
    path.replace("**", "*").bytes().filter(|byte| matches!(byte, b'*' | b'?' | b'[')).count()
}

/// A path that every parser reads alike, and that does not take it long.
fn checked(path: &str) -> Result<&str, RuleProblem> {
    let wrong = |why| Err(RuleProblem::Path { path: path.to_owned(), why });
    if path.len() > MAX_PATH {
        return wrong("is too long");
    }
    if wildcards(path) > MAX_WILDCARDS.0 {
        return wrong("has too many wildcards");
    }
    if path.contains("***") {
        return wrong("has more than two * in a row");
    }
    let (mut in_class, mut in_braces, mut alternatives) = (false, false, 0_usize);
    let mut before = ' ';
    for letter in path.chars() {
        match letter {
            ']' if in_class && before != '[' && before != '^' => in_class = false,
            '^' if in_class && before == '[' => {}
            letter if in_class => {
                if !(letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-')) {
                    return wrong("has a class with more than letters, digits, ., _ and -");
                }
            }
            '[' => in_class = true,
            '{' if !in_braces => in_braces = true,
            ',' | '}' if in_braces => {
                if matches!(before, '{' | ',') {
                    return wrong("has an empty alternative");
                }
                alternatives += 1;
                in_braces = letter == ',';
            }
            '/' | '.' | '_' | '-' | '+' | ':' | '~' | '%' | '*' | '?' => {}
            letter if letter.is_ascii_alphanumeric() => {}
            _ => return wrong("has a character that is not read"),
        }
        before = letter;
    }
    if in_class || in_braces {
        return wrong("has a bracket that is not closed");
    }
    if alternatives > MAX_ALTERNATIVES {
        return wrong("has too many alternatives");
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::{AppArmorMode, AppArmorRules, MAX_RULES, MAX_TEXT, RulesError};

    fn written(text: &str) -> Result<Vec<String>, String> {
        let rules = AppArmorRules::parse(text).map_err(|error| error.to_string())?;
        Ok(rules.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rules_are_read_and_written_anew() {
        for (text, expected) in [
            ("", &[][..]),
            ("# nothing\n\n  # more\n", &[]),
            ("capability,", &["capability,"]),
            ("capability net_bind_service chown,", &["capability net_bind_service chown,"]),
            ("deny capability sys_admin,", &["deny capability sys_admin,"]),
            ("network,", &["network,"]),
            ("network inet stream,\n\tdeny network raw,", &["network inet stream,", "deny network raw,"]),
            ("file,", &["file,"]),
            ("umount,", &["umount,"]),
            ("allow /etc/hosts r,", &["/etc/hosts r,"]),
            ("file /srv/** wr,", &["/srv/** rw,"]),
            ("owner /tmp/{a,b}/[^x]*.sock rwkl,", &["owner /tmp/{a,b}/[^x]*.sock rwkl,"]),
            ("/usr/bin/* mrix,", &["/usr/bin/* rmix,"]),
            ("deny /denied/** wx,", &["deny /denied/** wx,"]),
        ] {
            assert_eq!(written(text).unwrap(), expected, "{text:?}");
        }
    }

    /// Each attack beside a rule that is as near to it as a harmless one can be.
    #[test]
    fn what_reaches_beyond_the_profile_is_rejected() {
        for (case, attack, reason, harmless) in [
            (
                "a second profile",
                "}\nprofile evil /usr/sbin/sshd {",
                "line 1: } is not allowed: an object is one profile",
                "/usr/sbin/sshd r,",
            ),
            (
                "a second profile on the line of a rule",
                "file, } profile evil { file,",
                "} is not allowed",
                "file,",
            ),
            (
                "a block of a program of the node",
                "/usr/sbin/sshd {",
                "{ is not allowed",
                "/usr/sbin/sshd rix,",
            ),
            ("a profile by keyword", "profile palisade/other/web {", "{ is not allowed", "/profile r,"),
            ("a name without a block", "profile x,", "profile is not allowed", "/x r,"),
            ("a hat", "^hat {", "^hat is not allowed", "/hat r,"),
            ("a hat by keyword", "hat x,", "hat is not allowed", "/hat/x r,"),
            ("flags", "flags=(unconfined),", "is not a rule", "/flags r,"),
            (
                "a file of the node",
                "include <abstractions/base>",
                "include is not allowed",
                "/etc/apparmor.d/abstractions/base r,",
            ),
            (
                "a file of the node, the old way",
                "#include <abstractions/base>",
                "include is not allowed",
                "# nothing is included",
            ),
            (
                "a file of the node, with a space",
                "# include \"/etc/shadow\"",
                "include is not allowed",
                "# not included",
            ),
            (
                "a file of the node, if there is one",
                "include if exists <local/x>",
                "include is not allowed",
                "/etc/apparmor.d/local/x r,",
            ),
            ("an ABI of the node", "abi <abi/4.0>,", "abi is not allowed", "/abi r,"),
            ("leaving the profile", "change_profile,", "change_profile is not allowed", "/change_profile r,"),
            (
                "leaving the profile for a name",
                "change_profile -> unconfined,",
                "-> is not allowed",
                "/unconfined r,",
            ),
            ("running unconfined", "/usr/bin/sh ux,", "could leave the profile", "/usr/bin/sh ix,"),
            (
                "running unconfined, scrubbed",
                "/usr/bin/sh rUx,",
                "could leave the profile",
                "/usr/bin/sh rix,",
            ),
            (
                "running under a profile of the node",
                "/usr/bin/sh px,",
                "could leave the profile",
                "/usr/bin/sh rmix,",
            ),
            ("with a way out", "/usr/bin/sh pix,", "could leave the profile", "/usr/bin/sh mix,"),
            ("a child profile", "/usr/bin/sh cx -> child,", "-> is not allowed", "/usr/bin/sh rix,"),
            ("a transition by name", "/usr/bin/sh rix -> other,", "-> is not allowed", "/usr/bin/sh rix,"),
            ("an unqualified transition", "/usr/bin/sh x,", "write ix", "deny /usr/bin/sh x,"),
            ("mounts", "mount,", "mount is not allowed", "umount,"),
            ("mounts with options", "mount options=(rw,bind) /a -> /b,", "-> is not allowed", "/a rw,"),
            ("a new root", "pivot_root,", "pivot_root is not allowed", "/pivot_root r,"),
            ("tracing others", "ptrace,", "ptrace is not allowed", "capability sys_ptrace,"),
            (
                "tracing others by name",
                "ptrace (read) peer=unconfined,",
                "ptrace is not allowed",
                "capability kill,",
            ),
            (
                "signals to others",
                "signal (send) peer=unconfined,",
                "signal is not allowed",
                "capability kill,",
            ),
            ("a service of the node", "dbus bus=system,", "dbus is not allowed", "network unix,"),
            (
                "a peer",
                "unix (connect) peer=(label=unconfined),",
                "unix is not allowed",
                "network unix stream,",
            ),
            ("a user namespace", "userns,", "userns is not allowed", "capability setuid,"),
            ("everything", "all,", "all is not allowed", "file,"),
            ("nothing, as no parser reads it", "deny file,", "is not a rule", "deny /** rwx,"),
            (
                "before a denial",
                "priority=100 /sys/kernel/security/** rw,",
                "priority is not allowed",
                "/sys/kernel/mm/** r,",
            ),
            ("a log that is filled", "audit file,", "audit is not allowed", "file,"),
            ("a log that is filled by denials", "audit deny /x r,", "audit is not allowed", "deny /x r,"),
            ("hidden after a qualifier", "deny include <x>,", "include is not allowed", "deny /include r,"),
            ("variables of the node", "@{HOME}/** rw,", "variables are defined on the node", "/srv/** rw,"),
            ("a variable of its own", "@{X}=/etc", "variables are defined on the node", "/etc r,"),
            ("a quoted path", "\"/etc/a b\" r,", "quotes and escapes", "/etc/a?b r,"),
            ("an escape", "/etc/a\\040b r,", "quotes and escapes", "/etc/a*b r,"),
            (
                "a comment that hides a comma",
                "/etc/a r, # /etc/b",
                "comments have lines of their own",
                "/etc/a r,",
            ),
            ("two rules", "/a r, /b rw,", "is not a rule", "/a r,\n/b rw,"),
            ("no end", "/a r", "ends with one comma", "/a r,"),
            ("another end", "/a r,,", "only r, w, a", "/a r,"),
            ("a relative path", "etc/a r,", "is not a rule", "/etc/a r,"),
            ("a label of a namespace", ":root:unconfined r,", "is not a rule", "/root r,"),
            ("limits", "set rlimit nofile <= 100,", "set is not allowed", "/set r,"),
            ("an alias", "alias / -> /mnt/,", "-> is not allowed", "/mnt/ r,"),
            ("an unknown capability", "capability everything,", "is not a capability", "capability,"),
            (
                "a network of the language's future",
                "network inet ip=10.0.0.1,",
                "is not a domain",
                "network inet stream,",
            ),
            ("a control character", "/a\u{0} r,", "printable ASCII", "/a r,"),
            ("a line end that is none", "/a r,\rfile,", "printable ASCII", "/a r,\nfile,"),
            ("a letter that looks like another", "f\u{456}le,", "printable ASCII", "file,"),
            ("too many wildcards", "/*/*/*/*/* r,", "too many wildcards", "/*/*/*/* r,"),
            ("nested alternatives", "/{a,{b,c}} r,", "not read", "/{a,b,c} r,"),
            ("an open class", "/[a r,", "not closed", "/[a] r,"),
        ] {
            let error = written(attack).unwrap_err();
            assert!(error.contains(reason), "{case}: {error}");
            assert!(written(harmless).is_ok(), "{case}: {harmless}: {:?}", written(harmless));
        }
    }

    #[test]
    fn what_takes_a_node_long_is_rejected() {
        let rules = |count: usize| "/a r,\n".repeat(count);
        assert_eq!(AppArmorRules::parse(&rules(MAX_RULES + 1)), Err(RulesError::TooMany));
        assert!(AppArmorRules::parse(&rules(MAX_RULES)).is_ok());
        assert_eq!(AppArmorRules::parse(&"#".repeat(MAX_TEXT + 1)), Err(RulesError::TooLong));
        assert_eq!(AppArmorRules::parse(&"/*/*/*/* r,\n".repeat(17)), Err(RulesError::TooManyWildcards));
        assert!(AppArmorRules::parse(&"/*/*/*/* r,\n".repeat(16)).is_ok());
    }

    #[test]
    fn a_profile_has_the_denials_of_the_default_whatever_is_in_it() {
        let rules = AppArmorRules::parse("file,\n/sys/kernel/security/** rw,").unwrap();
        let text = rules.profile("palisade/shop/web", AppArmorMode::Enforce);
        assert!(
            text.starts_with("profile \"palisade/shop/web\" flags=(attach_disconnected,mediate_deleted) {\n")
        );
        for line in [
            "  file,",
            "  deny mount,",
            "  deny /sys/kernel/security/** rwklx,",
            "  deny /proc/sysrq-trigger rwklx,",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}: {text}");
        }
        let complain = rules.profile("palisade/shop/web", AppArmorMode::Complain);
        assert!(complain.contains("flags=(attach_disconnected,mediate_deleted,complain) {"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        assert_eq!(text.matches("profile ").count(), 1);
    }
}
