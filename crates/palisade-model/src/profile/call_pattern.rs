//! Patterns of system calls: `socket(AF_ALG, *, *)`.
//!
//! A pattern names a call and constrains its arguments. It is a question to a filter (`verify --can`) and a prohibition
//! (`SyscallGuard`).
//!
//! - `*`, and every argument that is left out: any value.
//! - A number or a constant, several joined with `|`: exactly this value. The kernel reads most arguments as 32-bit numbers, whatever
//!   the upper half of the register holds, while a filter sees all 64 bits. So a value that fits into 32 bits is compared with the
//!   lower half, and every value of the upper half is meant.
//! - `&FLAGS`: any value in which all of these bits are set.
//! - `VALUE/MASK`: any value whose bits in the mask are those of the value; the only form that compares exactly what it names.
//!
//! A filter sees some calls under another name: 32-bit programs make socket calls through `socketcall`, `clone3` has its flags in
//! memory, and what io_uring does is not a call at all. [`CallPattern::ways`] lists them: only if each of them is closed the call
//! cannot be made.

use std::fmt;

use thiserror::Error;

use super::{
    architecture::Architecture,
    decision::Comparison,
    syscalls::{self, Syscall},
};

/// The longest text of a pattern.
pub const MAX_TEXT: usize = 512;

const LOW: u64 = 0xffff_ffff;

/// Which values of an argument are meant: those with `argument & mask == value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValuePattern {
    /// The bits that count.
    pub mask: u64,
    /// What they must be.
    pub value: u64,
}

/// A system call with constraints on its arguments.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallPattern {
    syscall: Syscall,
    arguments: [Option<ValuePattern>; 6],
    text: String,
}

/// How a filter sees a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The call that the filter sees.
    pub syscall: Syscall,
    /// Its arguments.
    pub arguments: [Option<ValuePattern>; 6],
    /// Why it is another one than the pattern names.
    pub because: Option<&'static str>,
}

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternError {
    /// Longer than any pattern needs to be.
    #[error("is longer than {MAX_TEXT} characters")]
    TooLong,
    /// Not of the form `name(argument, …)`.
    #[error("is not a call pattern: write it as name(argument, …), such as socket(AF_ALG, *, *)")]
    Form,
    /// No architecture has the call.
    #[error("{name:?} is not a system call{}", nearest.map(|near| format!(": did you mean {near:?}?")).unwrap_or_default())]
    UnknownCall {
        /// The name.
        name: String,
        /// A known name that is similar.
        nearest: Option<&'static str>,
    },
    /// A filter sees six arguments.
    #[error("has {0} arguments: a system call has at most six")]
    Arguments(usize),
    /// An argument is no value.
    #[error("argument {position}: {text:?} is not a value: write a number, a constant such as AF_ALG, or *")]
    Value {
        /// The number of the argument, from 1.
        position: usize,
        /// What is there.
        text: String,
    },
    /// No value has these bits.
    #[error("argument {position}: {text:?} matches no value: it has bits outside of its mask")]
    Empty {
        /// The number of the argument, from 1.
        position: usize,
        /// What is there.
        text: String,
    },
}

impl ValuePattern {
    fn parse(text: &str, position: usize) -> Result<Option<Self>, PatternError> {
        let no_value = || PatternError::Value { position, text: text.to_owned() };
        let (value, mask) = match text.split_once('/') {
            _ if text == "*" => return Ok(None),
            Some((value, mask)) => (value.trim(), Some(mask.trim())),
            None => (text, None),
        };
        if let Some(flags) = value.strip_prefix('&') {
            let (bits, _) = number(flags.trim()).filter(|_| mask.is_none()).ok_or_else(no_value)?;
            // Without a bit any value would do.
            return if bits == 0 { Err(no_value()) } else { Ok(Some(Self { mask: bits, value: bits })) };
        }
        let (value, is_narrow) = number(value).ok_or_else(no_value)?;
        let Some(mask) = mask else {
            let mask = if is_narrow { LOW } else { u64::MAX };
            return Ok(Some(Self { mask, value: value & mask }));
        };
        let (mask, _) = number(mask).ok_or_else(no_value)?;
        match (mask, value & !mask) {
            (_, 1..) => Err(PatternError::Empty { position, text: text.to_owned() }),
            (0, 0) => Ok(None),
            _ => Ok(Some(Self { mask, value })),
        }
    }

    /// Whether a value is meant.
    #[must_use]
    pub const fn matches(self, argument: u64) -> bool {
        argument & self.mask == self.value
    }

    pub(super) const fn comparison(self) -> Comparison {
        Comparison::MaskedEqual { mask: self.mask, value: self.value }
    }
}

/// A number or the name of a constant, or several joined with `|`; and whether it fits into 32 bits.
fn number(text: &str) -> Option<(u64, bool)> {
    let mut value = 0;
    let mut is_narrow = true;
    for part in text.split('|') {
        let (part, narrow) = single(part.trim())?;
        value |= part;
        is_narrow &= narrow;
    }
    Some((value, is_narrow))
}

fn single(text: &str) -> Option<(u64, bool)> {
    // swallowed: what is no number is no value, which the caller reports
    let digits = |text: &str, base| {
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        // swallowed: what is no number is no value, which the caller reports
        u64::from_str_radix(text, base).ok().filter(|_| plain)
    };
    if let Some(rest) = text.strip_prefix('-') {
        // swallowed: as above
        let value = digits(rest, 10).and_then(|value| 0_i64.checked_sub_unsigned(value))?;
        return Some((value.cast_unsigned(), value >= i64::from(i32::MIN)));
    }
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let value = match hexadecimal {
        Some(rest) => digits(rest, 16)?,
        None if text.starts_with(|first: char| first.is_ascii_digit()) => digits(text, 10)?,
        None => constant(text)?,
    };
    Some((value, value <= LOW))
}

/// The value of a constant of the kernel's headers.
#[must_use]
pub fn constant(name: &str) -> Option<u64> {
    let name = name.strip_prefix("PF_").map_or_else(|| name.to_owned(), |family| format!("AF_{family}"));
    let word = CONSTANTS.split_ascii_whitespace().find_map(|word| {
        let (known, value) = word.split_once('=')?;
        (known == name).then_some(value)
    })?;
    // swallowed: our own table, which its test reads whole
    match word.strip_prefix("0x") {
        // swallowed: our own table, which its test reads whole
        Some(rest) => u64::from_str_radix(rest, 16).ok(),
        // swallowed: our own table, which its test reads whole
        None => word.parse().ok(),
    }
}

impl CallPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_TEXT {
            return Err(PatternError::TooLong);
        }
        let text = text.trim();
        let (name, rest) = match text.split_once('(') {
            Some((name, rest)) => (name.trim(), Some(rest.strip_suffix(')').ok_or(PatternError::Form)?)),
            None => (text, None),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(PatternError::Form);
        }
        let syscall = Syscall::named(name).ok_or_else(|| PatternError::UnknownCall {
            name: name.to_owned(),
            nearest: syscalls::nearest(name),
        })?;
        let words: Vec<&str> = match rest {
            Some(rest) if !rest.trim().is_empty() => rest.split(',').map(str::trim).collect(),
            _ => Vec::new(),
        };
        if words.len() > 6 {
            return Err(PatternError::Arguments(words.len()));
        }
        let mut arguments = [None; 6];
        for (position, (word, argument)) in words.iter().zip(&mut arguments).enumerate() {
            *argument = ValuePattern::parse(word, position + 1)?;
        }
        Ok(Self { syscall, arguments, text: text.to_owned() })
    }

    /// The call.
    #[must_use]
    pub const fn syscall(&self) -> Syscall {
        self.syscall
    }

    /// The constraints on its arguments.
    #[must_use]
    pub const fn arguments(&self) -> &[Option<ValuePattern>; 6] {
        &self.arguments
    }

    /// Every way in which a program of this convention makes the call: what a filter sees. The call itself comes first.
    #[must_use]
    pub fn ways(&self, architecture: Architecture) -> Vec<Way> {
        let own = Way { syscall: self.syscall, arguments: self.arguments, because: None };
        self.other_ways()
            .fold(vec![own], |mut ways, way| {
                ways.push(way);
                ways
            })
            .into_iter()
            .filter(|way| way.syscall.number(architecture).is_some())
            .collect()
    }

    /// The calls through which this one can be made as well, on any architecture.
    pub fn other_ways(&self) -> impl Iterator<Item = Way> + use<> {
        let name = self.syscall.name();
        let first = |value: u64, mask: u64| {
            let mut arguments = [None; 6];
            arguments[0] = Some(ValuePattern { mask, value });
            arguments
        };
        let numbered = |table: &str| {
            let mut words = table.split_ascii_whitespace();
            let word = words.find(|word| word.split_once('=').is_some_and(|(known, _)| known == name))?;
            // swallowed: our own table, which its test reads whole
            word.split_once('=')?.1.parse::<u64>().ok()
        };
        let mut found = Vec::new();
        let mut add = |call: &str, arguments, because| {
            if let Some(syscall) = Syscall::named(call) {
                found.push(Way { syscall, arguments, because: Some(because) });
            }
        };
        if let Some(number) = numbered(SOCKET_CALLS) {
            add("socketcall", first(number, LOW), "a 32-bit program passes the arguments in memory");
        }
        if let Some(number) = numbered(IPC_CALLS) {
            // The upper 16 bits are a version.
            add("ipc", first(number, 0xffff), "a 32-bit program passes the arguments in memory");
        }
        if name == "clone" {
            add("clone3", [None; 6], "its flags are in memory");
        }
        if URING_CALLS.split_ascii_whitespace().any(|known| known == name) {
            add("io_uring_setup", [None; 6], "a filter does not see what io_uring does");
        }
        found.into_iter()
    }
}

impl fmt::Display for CallPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `net/socket.c`, with the numbers of `linux/net.h`.
const SOCKET_CALLS: &str = "socket=1 bind=2 connect=3 listen=4 accept=5 getsockname=6 getpeername=7 socketpair=8 send=9 recv=10 \
    sendto=11 recvfrom=12 shutdown=13 setsockopt=14 getsockopt=15 sendmsg=16 recvmsg=17 accept4=18 recvmmsg=19 sendmmsg=20";

/// `ipc/syscall.c`, with the numbers of `linux/ipc.h`.
const IPC_CALLS: &str = "semop=1 semget=2 semctl=3 semtimedop=4 msgsnd=11 msgrcv=12 msgget=13 msgctl=14 shmat=21 shmdt=22 \
    shmget=23 shmctl=24";

/// What `io_uring/opdef.c` and socket commands do, by the name of the call that does the same.
const URING_CALLS: &str = "accept accept4 bind close connect epoll_ctl epoll_wait fadvise64 fallocate fgetxattr fsetxattr fsync \
    ftruncate futex_wait futex_waitv futex_wake getsockopt getxattr linkat listen madvise mkdirat openat openat2 pipe2 poll pread64 \
    preadv preadv2 pwrite64 pwritev pwritev2 read readv recv recvfrom recvmsg renameat renameat2 send sendmsg sendto setsockopt \
    setxattr shutdown socket splice statx symlinkat sync_file_range tee unlinkat waitid write writev";

/// `linux/socket.h`, `linux/net.h`, `linux/sched.h`, `linux/prctl.h`, `linux/netlink.h`, `linux/bpf.h`, `linux/ptrace.h` and
/// `asm-generic/ioctls.h`, as x86 and ARM have them.
const CONSTANTS: &str = "
AF_UNSPEC=0 AF_UNIX=1 AF_LOCAL=1 AF_INET=2 AF_AX25=3 AF_IPX=4 AF_APPLETALK=5 AF_NETROM=6 AF_BRIDGE=7 AF_ATMPVC=8 AF_X25=9 AF_INET6=10
AF_ROSE=11 AF_DECnet=12 AF_NETBEUI=13 AF_SECURITY=14 AF_KEY=15 AF_NETLINK=16 AF_ROUTE=16 AF_PACKET=17 AF_ASH=18 AF_ECONET=19
AF_ATMSVC=20 AF_RDS=21 AF_SNA=22 AF_IRDA=23 AF_PPPOX=24 AF_WANPIPE=25 AF_LLC=26 AF_IB=27 AF_MPLS=28 AF_CAN=29 AF_TIPC=30
AF_BLUETOOTH=31 AF_IUCV=32 AF_RXRPC=33 AF_ISDN=34 AF_PHONET=35 AF_IEEE802154=36 AF_CAIF=37 AF_ALG=38 AF_NFC=39 AF_VSOCK=40 AF_KCM=41
AF_QIPCRTR=42 AF_SMC=43 AF_XDP=44 AF_MCTP=45
SOCK_STREAM=1 SOCK_DGRAM=2 SOCK_RAW=3 SOCK_RDM=4 SOCK_SEQPACKET=5 SOCK_DCCP=6 SOCK_PACKET=10 SOCK_NONBLOCK=0x800 SOCK_CLOEXEC=0x80000
CLONE_NEWTIME=0x80 CLONE_VM=0x100 CLONE_FS=0x200 CLONE_FILES=0x400 CLONE_SIGHAND=0x800 CLONE_PIDFD=0x1000 CLONE_PTRACE=0x2000
CLONE_VFORK=0x4000 CLONE_PARENT=0x8000 CLONE_THREAD=0x10000 CLONE_NEWNS=0x20000 CLONE_SYSVSEM=0x40000 CLONE_SETTLS=0x80000
CLONE_PARENT_SETTID=0x100000 CLONE_CHILD_CLEARTID=0x200000 CLONE_DETACHED=0x400000 CLONE_UNTRACED=0x800000
CLONE_CHILD_SETTID=0x1000000 CLONE_NEWCGROUP=0x2000000 CLONE_NEWUTS=0x4000000 CLONE_NEWIPC=0x8000000 CLONE_NEWUSER=0x10000000
CLONE_NEWPID=0x20000000 CLONE_NEWNET=0x40000000 CLONE_IO=0x80000000
PR_SET_PDEATHSIG=1 PR_GET_PDEATHSIG=2 PR_GET_DUMPABLE=3 PR_SET_DUMPABLE=4 PR_GET_UNALIGN=5 PR_SET_UNALIGN=6 PR_GET_KEEPCAPS=7
PR_SET_KEEPCAPS=8 PR_GET_FPEMU=9 PR_SET_FPEMU=10 PR_GET_FPEXC=11 PR_SET_FPEXC=12 PR_GET_TIMING=13 PR_SET_TIMING=14 PR_SET_NAME=15
PR_GET_NAME=16 PR_GET_ENDIAN=19 PR_SET_ENDIAN=20 PR_GET_SECCOMP=21 PR_SET_SECCOMP=22 PR_CAPBSET_READ=23 PR_CAPBSET_DROP=24
PR_GET_TSC=25 PR_SET_TSC=26 PR_GET_SECUREBITS=27 PR_SET_SECUREBITS=28 PR_SET_TIMERSLACK=29 PR_GET_TIMERSLACK=30
PR_TASK_PERF_EVENTS_DISABLE=31 PR_TASK_PERF_EVENTS_ENABLE=32 PR_MCE_KILL=33 PR_MCE_KILL_GET=34 PR_SET_MM=35
PR_SET_CHILD_SUBREAPER=36 PR_GET_CHILD_SUBREAPER=37 PR_SET_NO_NEW_PRIVS=38 PR_GET_NO_NEW_PRIVS=39 PR_GET_TID_ADDRESS=40
PR_SET_THP_DISABLE=41 PR_GET_THP_DISABLE=42 PR_SET_FP_MODE=45 PR_GET_FP_MODE=46 PR_CAP_AMBIENT=47 PR_SVE_SET_VL=50 PR_SVE_GET_VL=51
PR_GET_SPECULATION_CTRL=52 PR_SET_SPECULATION_CTRL=53 PR_PAC_RESET_KEYS=54 PR_SET_TAGGED_ADDR_CTRL=55 PR_GET_TAGGED_ADDR_CTRL=56
PR_SET_IO_FLUSHER=57 PR_GET_IO_FLUSHER=58 PR_SET_SYSCALL_USER_DISPATCH=59 PR_PAC_SET_ENABLED_KEYS=60 PR_PAC_GET_ENABLED_KEYS=61
PR_SCHED_CORE=62 PR_SME_SET_VL=63 PR_SME_GET_VL=64 PR_SET_MDWE=65 PR_GET_MDWE=66 PR_SET_MEMORY_MERGE=67 PR_GET_MEMORY_MERGE=68
PR_SET_VMA=0x53564d41 PR_SET_PTRACER=0x59616d61
NETLINK_ROUTE=0 NETLINK_SOCK_DIAG=4 NETLINK_NFLOG=5 NETLINK_XFRM=6 NETLINK_SELINUX=7 NETLINK_AUDIT=9 NETLINK_CONNECTOR=11
NETLINK_NETFILTER=12 NETLINK_KOBJECT_UEVENT=15 NETLINK_GENERIC=16 NETLINK_CRYPTO=21
BPF_MAP_CREATE=0 BPF_MAP_LOOKUP_ELEM=1 BPF_MAP_UPDATE_ELEM=2 BPF_MAP_DELETE_ELEM=3 BPF_MAP_GET_NEXT_KEY=4 BPF_PROG_LOAD=5
BPF_OBJ_PIN=6 BPF_OBJ_GET=7 BPF_PROG_ATTACH=8 BPF_PROG_DETACH=9 BPF_PROG_TEST_RUN=10 BPF_RAW_TRACEPOINT_OPEN=17 BPF_BTF_LOAD=18
BPF_LINK_CREATE=28 BPF_TOKEN_CREATE=36
PTRACE_TRACEME=0 PTRACE_PEEKTEXT=1 PTRACE_PEEKDATA=2 PTRACE_PEEKUSER=3 PTRACE_POKETEXT=4 PTRACE_POKEDATA=5 PTRACE_POKEUSER=6
PTRACE_CONT=7 PTRACE_KILL=8 PTRACE_SINGLESTEP=9 PTRACE_ATTACH=16 PTRACE_DETACH=17 PTRACE_SETOPTIONS=0x4200 PTRACE_SEIZE=0x4206
PTRACE_INTERRUPT=0x4207
TIOCSTI=0x5412 TIOCLINUX=0x541c
";

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(text: &str) -> Option<ValuePattern> {
        CallPattern::parse(&format!("prctl({text})")).unwrap().arguments()[0]
    }

    #[test]
    fn reads_numbers_constants_flags_and_masks() {
        let pattern = |mask, value| Some(ValuePattern { mask, value });
        for (text, expected) in [
            ("*", None),
            ("", None),
            ("38", pattern(LOW, 38)),
            ("AF_ALG", pattern(LOW, 38)),
            ("PF_ALG", pattern(LOW, 38)),
            ("0x26", pattern(LOW, 38)),
            ("-1", pattern(LOW, LOW)),
            ("-2147483649", pattern(u64::MAX, 0xffff_ffff_7fff_ffff)),
            ("0x100000000", pattern(u64::MAX, 1 << 32)),
            ("CLONE_NEWUSER | CLONE_NEWNS", pattern(LOW, 0x1002_0000)),
            ("&CLONE_NEWUSER|CLONE_NEWNS", pattern(0x1002_0000, 0x1002_0000)),
            ("38/0xff", pattern(0xff, 38)),
            ("38/0xffffffffffffffff", pattern(u64::MAX, 38)),
            ("0/0", None),
            ("PR_SET_VMA", pattern(LOW, 0x5356_4d41)),
        ] {
            assert_eq!(argument(text), expected, "{text}");
        }
        let whole = CallPattern::parse(" socket ( AF_ALG , * , 0 ) ").unwrap();
        assert_eq!(whole.syscall().name(), "socket");
        assert_eq!(whole.to_string(), "socket ( AF_ALG , * , 0 )");
        assert_eq!(
            whole.arguments().map(|argument| argument.is_some()),
            [true, false, true, false, false, false]
        );
        assert_eq!(CallPattern::parse("socket").unwrap().arguments(), &[None; 6]);
        assert_eq!(CallPattern::parse("socket()").unwrap().arguments(), &[None; 6]);
    }

    #[test]
    fn what_is_no_pattern_is_an_error() {
        for (text, expected) in [
            ("", "is not a call pattern"),
            ("socket(AF_ALG", "is not a call pattern"),
            ("socket(AF_ALG) x", "is not a call pattern"),
            ("(1)", "is not a call pattern"),
            ("*", "is not a call pattern"),
            ("sockett(1)", "\"sockett\" is not a system call: did you mean \"socket\"?"),
            ("zzzzzzzzzzzzzzz", "\"zzzzzzzzzzzzzzz\" is not a system call"),
            ("socket(1,2,3,4,5,6,7)", "has 7 arguments"),
            ("socket(AF_NONE)", "argument 1: \"AF_NONE\" is not a value"),
            ("socket(1,)", "argument 2: \"\" is not a value"),
            ("socket(1, +1)", "argument 2: \"+1\" is not a value"),
            ("socket(0x)", "argument 1"),
            ("socket(18446744073709551616)", "argument 1"),
            ("socket(--1)", "argument 1"),
            ("socket(&0)", "argument 1"),
            ("socket(&1/1)", "argument 1"),
            ("socket(1|)", "argument 1"),
            ("socket(2/1)", "argument 1: \"2/1\" matches no value"),
            ("socket(**)", "argument 1"),
        ] {
            let error = CallPattern::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        assert_eq!(CallPattern::parse(&"a".repeat(MAX_TEXT + 1)), Err(PatternError::TooLong));
    }

    #[test]
    fn a_call_can_be_made_in_more_than_one_way() {
        let machine = Architecture::COMMON;
        let narrow = Architecture::named("SCMP_ARCH_X86").unwrap();
        for (text, architecture, expected) in [
            ("socket(AF_ALG)", machine, &["socket", "io_uring_setup"][..]),
            ("socket(AF_ALG)", narrow, &["socket", "socketcall", "io_uring_setup"]),
            ("shmget(1)", narrow, &["shmget", "ipc"]),
            ("clone(&CLONE_NEWUSER)", machine, &["clone", "clone3"]),
            ("ptrace", machine, &["ptrace"]),
            ("send", machine, &["io_uring_setup"]),
        ] {
            let ways = CallPattern::parse(text).unwrap().ways(architecture);
            let names: Vec<&str> = ways.iter().map(|way| way.syscall.name()).collect();
            assert_eq!(names, expected, "{text}");
        }
    }

    #[test]
    fn the_tables_are_whole() {
        for word in CONSTANTS.split_ascii_whitespace() {
            let (name, _) = word.split_once('=').unwrap();
            assert!(constant(name).is_some(), "{word}");
        }
        for word in SOCKET_CALLS.split_ascii_whitespace().chain(IPC_CALLS.split_ascii_whitespace()) {
            let (name, number) = word.split_once('=').unwrap();
            assert!(Syscall::named(name).is_some() && number.parse::<u64>().is_ok(), "{word}");
        }
        for name in URING_CALLS.split_ascii_whitespace() {
            assert!(Syscall::named(name).is_some(), "{name}");
        }
    }
}
