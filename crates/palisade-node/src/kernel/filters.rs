//! The seccomp filters of other processes, read back from the kernel.
//!
//! Implements: `PTRACE_SECCOMP_GET_FILTER` of `ptrace(2)`. The kernel gives the classic BPF programs as they were installed, to a process
//! with CAP_SYS_ADMIN that has no filter of its own, of threads that it traces and that are stopped. A thread is stopped for
//! microseconds and goes on as it was; one that does not stop in time (it may wait for a device) is reported, and left alone.
//!
//! All calls about a thread must come from the thread that traces it. When that ends the kernel releases whatever it still traces, so
//! that a failure in the middle leaves nothing stopped.
#![allow(unsafe_code, reason = "there are no safe calls to trace a thread and to read its filters")]

use std::{
    io,
    ptr::null_mut,
    thread,
    time::{Duration, Instant},
};

use palisade_model::profile::{bpf::Instruction, reach::Filters};
use thiserror::Error;

/// Why the filters of a thread are not known.
#[derive(Debug, Error)]
pub enum FilterReadError {
    /// It has ended.
    #[error("thread {thread} has ended")]
    Ended {
        /// The thread.
        thread: u32,
    },
    /// The kernel does not permit it.
    #[error(
        "the seccomp filters of thread {thread} cannot be read: {source}; CAP_SYS_ADMIN and CAP_SYS_PTRACE are required, and no seccomp \
         filter on palisade itself"
    )]
    Denied {
        /// The thread.
        thread: u32,
        /// The error of the system.
        source: io::Error,
    },
    /// It does not stop.
    #[error("thread {thread} does not stop, so that its seccomp filters cannot be read")]
    Busy {
        /// The thread.
        thread: u32,
    },
    /// More filters than any process needs.
    #[error("thread {thread} has more than {MAX_FILTERS} seccomp filters")]
    TooMany {
        /// The thread.
        thread: u32,
    },
    /// Another error of the system.
    #[error("the seccomp filters of thread {thread} cannot be read: {source}")]
    System {
        /// The thread.
        thread: u32,
        /// The error.
        source: io::Error,
    },
    /// No thread could be started that reads them.
    #[error("no thread can be started to read seccomp filters: {0}")]
    Reader(io::Error),
}

/// How many filters of a thread are read.
pub const MAX_FILTERS: usize = 64;

/// How long a thread may take to stop.
const STOPS_WITHIN: Duration = Duration::from_millis(500);

/// `PTRACE_SECCOMP_GET_FILTER` of linux/ptrace.h.
const GET_FILTER: libc::c_uint = 0x420c;

/// The filters of threads, in the same order. Must not be called on a thread that may not wait.
#[must_use]
pub fn read(threads: Vec<u32>) -> Vec<Result<Filters, FilterReadError>> {
    let reader = thread::Builder::new().name("filters".to_owned());
    let count = threads.len();
    let started = reader.spawn(move || threads.into_iter().map(read_one).collect::<Vec<_>>());
    let failed =
        |error: &dyn Fn() -> io::Error| (0..count).map(|_| Err(FilterReadError::Reader(error()))).collect();
    match started.map(thread::JoinHandle::join) {
        Ok(Ok(found)) => found,
        Ok(Err(_)) => failed(&|| io::Error::other("it ended early")),
        Err(error) => failed(&|| io::Error::from(error.kind())),
    }
}

fn read_one(thread: u32) -> Result<Filters, FilterReadError> {
    // swallowed: no thread has such a number
    let id = libc::pid_t::try_from(thread).map_err(|_| FilterReadError::Ended { thread })?;
    trace(libc::PTRACE_SEIZE, id).map_err(|source| failure(thread, source))?;
    // A thread that does not stop cannot be released before its tracer ends, which it does soon.
    let signal = interrupted(id, thread)?;
    let filters = filters_of(id, thread);
    release(id, signal);
    filters
}

fn failure(thread: u32, source: io::Error) -> FilterReadError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => FilterReadError::Ended { thread },
        Some(libc::EPERM | libc::EACCES) => FilterReadError::Denied { thread, source },
        _ => FilterReadError::System { thread, source },
    }
}

/// A request that takes no data.
fn trace(request: libc::c_uint, thread: libc::pid_t) -> io::Result<()> {
    // SAFETY: these requests read and write no memory of this process: address and data are 0.
    let result =
        unsafe { libc::ptrace(request, thread, null_mut::<libc::c_void>(), null_mut::<libc::c_void>()) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Stops the thread, and returns the signal that it was about to get.
fn interrupted(id: libc::pid_t, thread: u32) -> Result<libc::c_int, FilterReadError> {
    const EVENT_STOP: libc::c_int = 128;
    trace(libc::PTRACE_INTERRUPT, id).map_err(|source| failure(thread, source))?;
    let deadline = Instant::now() + STOPS_WITHIN;
    let mut pause = Duration::from_micros(20);
    loop {
        let mut status: libc::c_int = 0;
        // SAFETY: `status` lives until the call returns.
        let found = unsafe { libc::waitpid(id, &raw mut status, libc::__WALL | libc::WNOHANG) };
        match found {
            -1 => return Err(failure(thread, io::Error::last_os_error())),
            0 if Instant::now() > deadline => return Err(FilterReadError::Busy { thread }),
            0 => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(5));
            }
            _ if libc::WIFSTOPPED(status) => {
                let is_event = status >> 16 == EVENT_STOP;
                return Ok(if is_event { 0 } else { libc::WSTOPSIG(status) });
            }
            _ => return Err(FilterReadError::Ended { thread }),
        }
    }
}

/// Lets the thread go on, with the signal that was held back.
fn release(id: libc::pid_t, signal: libc::c_int) {
    let signal = usize::try_from(signal).unwrap_or_default();
    // SAFETY: the request takes the signal as a number in place of an address, which the kernel never follows.
    unsafe {
        libc::ptrace(
            libc::PTRACE_DETACH,
            id,
            null_mut::<libc::c_void>(),
            std::ptr::without_provenance_mut::<libc::c_void>(signal),
        );
    }
}

/// All filters of a stopped thread, the one installed last first.
fn filters_of(id: libc::pid_t, thread: u32) -> Result<Filters, FilterReadError> {
    let mut filters = Filters::new();
    loop {
        let position = std::ptr::without_provenance_mut::<libc::c_void>(filters.len());
        // SAFETY: without a buffer the kernel only returns the length of the program; the position is a number.
        let length = unsafe { libc::ptrace(GET_FILTER, id, position, null_mut::<libc::c_void>()) };
        if length == -1 {
            let source = io::Error::last_os_error();
            return match source.raw_os_error() {
                // There are no more. A thread without any has EINVAL instead.
                Some(libc::ENOENT) => Ok(filters),
                Some(libc::EINVAL) if filters.is_empty() => Ok(filters),
                _ => Err(failure(thread, source)),
            };
        }
        if filters.len() == MAX_FILTERS {
            return Err(FilterReadError::TooMany { thread });
        }
        let empty = libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 };
        let mut program = vec![empty; usize::try_from(length).unwrap_or_default()];
        // SAFETY: the thread stays stopped, so that its filters are those whose length the kernel just returned; the buffer has as
        // many instructions and lives until the call returns.
        let copied =
            unsafe { libc::ptrace(GET_FILTER, id, position, program.as_mut_ptr().cast::<libc::c_void>()) };
        if copied != length {
            let source =
                if copied == -1 { io::Error::last_os_error() } else { io::ErrorKind::InvalidData.into() };
            return Err(failure(thread, source));
        }
        let instruction =
            |one: libc::sock_filter| Instruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k };
        filters.push(program.into_iter().map(instruction).collect());
    }
}
