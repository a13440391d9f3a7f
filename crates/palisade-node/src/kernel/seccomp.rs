//! Seccomp filters on the calling thread.
//!
//! Implements: `SECCOMP_SET_MODE_FILTER` of `seccomp(2)`, and system calls that take no arguments, made with arguments all the
//! same: a filter sees them, and the kernel does not. With these the algebra of profiles is tested against the kernel's own
//! evaluation; containers get their filters from the runtime.
#![allow(unsafe_code, reason = "no safe call installs a filter or makes a call by its number")]

use std::io;

use palisade_model::profile::bpf::Program;

/// Installs a filter on this thread, for good. Privileges can no longer be gained by executing a program.
pub fn install(program: &Program) -> io::Result<()> {
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
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
