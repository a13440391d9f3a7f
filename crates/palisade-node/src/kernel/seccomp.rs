//! Seccomp filters on the calling thread.
//!
//! Implements: `SECCOMP_SET_MODE_FILTER` of `seccomp(2)`, and system calls that take no arguments, made with arguments all the
//! same: a filter sees them, and the kernel does not. With these the algebra of profiles is tested against the kernel's own
//! evaluation; containers get their filters from the runtime.
#![allow(unsafe_code, reason = "no safe call installs a filter or makes a call by its number")]

use std::{
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

use palisade_model::profile::{
    architecture::Architecture, bpf::Program, recording::is_assumed, syscalls::Syscall,
};

/// Installs a filter on this thread, for good. Privileges can no longer be gained by executing a program.
pub fn install(program: &Program) -> io::Result<()> {
    set_filter(program, 0).map(drop)
}

/// Installs a filter on this thread, for good; what listens to the calls that it leaves to a listener.
pub fn install_with_listener(program: &Program) -> io::Result<OwnedFd> {
    let listener = set_filter(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)?;
    let listener = i32::try_from(listener).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: with this flag the kernel returns a file descriptor that is new and that nothing else has.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

fn set_filter(program: &Program, flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let mut instructions: Vec<libc::sock_filter> = program
        .instructions
        .iter()
        .map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k })
        .collect();
    let length = u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `filter` points to `length` instructions, which live until the call returns; the kernel copies them.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter) };
    if result >= 0 { Ok(result) } else { Err(io::Error::last_os_error()) }
}

/// Calls that do something although every argument is wrong: they take none, or end, stop or divide the process. And those that
/// leave something behind.
const EFFECTIVE: &[&str] = &[
    "alarm",
    "clone",
    "clone3",
    "exit",
    "exit_group",
    "fork",
    "inotify_init",
    "msgget",
    "pause",
    "rt_sigreturn",
    "set_tid_address",
    "setsid",
    "sync",
    "umask",
    "uprobe",
    "uretprobe",
    "vfork",
    "vhangup",
];

/// The calls of this machine that cannot succeed with wrong arguments, and that a recorder would see.
pub fn recorded_in_vain() -> impl Iterator<Item = Syscall> {
    let machine = Architecture::COMMON;
    Syscall::all()
        .filter(move |call| call.number(machine).is_some())
        .filter(|call| !is_assumed(call.name()) && !EFFECTIVE.contains(&call.name()))
}

/// Makes a call that cannot succeed: every bit of every argument is set, so that no file descriptor, address, size or set of flags
/// is valid. The number that it failed with, if it did; calls that would do something all the same are not made.
#[must_use]
pub fn call_in_vain(call: Syscall) -> Option<i32> {
    let number = call.number(Architecture::COMMON).filter(|_| !EFFECTIVE.contains(&call.name()))?;
    let wrong = u64::MAX;
    // SAFETY: all addresses are outside of this process, so that the kernel neither reads nor writes its memory, and no mapping
    // begins or ends at them. Calls that do something to a process whatever their arguments are left out above.
    let result =
        unsafe { libc::syscall(libc::c_long::from(number), wrong, wrong, wrong, wrong, wrong, wrong) };
    if result >= 0 { None } else { io::Error::last_os_error().raw_os_error() }
}

/// A system call that takes no arguments, changes nothing, and never fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harmless {
    /// `getpid`
    GetPid,
    /// `getppid`
    GetParent,
    /// `getuid`
    GetUser,
    /// `getgid`
    GetGroup,
    /// `geteuid`
    GetEffectiveUser,
    /// `getegid`
    GetEffectiveGroup,
    /// `gettid`
    GetThread,
    /// `sched_yield`
    Yield,
}

impl Harmless {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::GetPid,
        Self::GetParent,
        Self::GetUser,
        Self::GetGroup,
        Self::GetEffectiveUser,
        Self::GetEffectiveGroup,
        Self::GetThread,
        Self::Yield,
    ];

    /// The name that a profile uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GetPid => "getpid",
            Self::GetParent => "getppid",
            Self::GetUser => "getuid",
            Self::GetGroup => "getgid",
            Self::GetEffectiveUser => "geteuid",
            Self::GetEffectiveGroup => "getegid",
            Self::GetThread => "gettid",
            Self::Yield => "sched_yield",
        }
    }

    const fn number(self) -> libc::c_long {
        match self {
            Self::GetPid => libc::SYS_getpid,
            Self::GetParent => libc::SYS_getppid,
            Self::GetUser => libc::SYS_getuid,
            Self::GetGroup => libc::SYS_getgid,
            Self::GetEffectiveUser => libc::SYS_geteuid,
            Self::GetEffectiveGroup => libc::SYS_getegid,
            Self::GetThread => libc::SYS_gettid,
            Self::Yield => libc::SYS_sched_yield,
        }
    }

    /// Makes the call with values in the registers of arguments: the number that a filter answered with, if it denied it.
    pub fn call(self, arguments: [u64; 6]) -> Result<(), i32> {
        // SAFETY: the call takes no arguments, so that the kernel reads none of the values, and it touches no memory. A filter
        // may end the thread or the process, which leaves nothing behind that another thread relies on.
        let result = unsafe {
            let [first, second, third, fourth, fifth, sixth] = arguments;
            libc::syscall(self.number(), first, second, third, fourth, fifth, sixth)
        };
        if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or_default()) }
    }
}
