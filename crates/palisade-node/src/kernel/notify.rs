//! System calls that the kernel leaves to a listener.
//!
//! Implements: the listener's side of `SECCOMP_RET_USER_NOTIF` (seccomp_unotify(2)): receive a notification, and let the call
//! continue. The caller waits in the kernel in between. A call is never made for its caller, and never denied: what may be made
//! is decided by the filter.
#![allow(unsafe_code, reason = "no safe call receives a notification")]

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    ioctl::{IntegerSetter, Updater, ioctl, opcode},
};

/// `struct seccomp_data`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawData {
    number: i32,
    architecture: u32,
    instruction_pointer: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawNotification {
    id: u64,
    pid: u32,
    flags: u32,
    data: RawData,
}

/// `struct seccomp_notif_resp`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawResponse {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const RECEIVE: rustix::ioctl::Opcode = opcode::read_write::<RawNotification>(b'!', 0);
const SEND: rustix::ioctl::Opcode = opcode::read_write::<RawResponse>(b'!', 1);
const SET_FLAGS: rustix::ioctl::Opcode = opcode::write::<u64>(b'!', 4);
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`
const CONTINUE: u32 = 1;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: caller and listener take turns on one CPU.
const SYNC_WAKE_UP: usize = 1;

/// A call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// Names the notification.
    pub id: u64,
    /// The thread that called; 0 if it is of another PID namespace.
    pub pid: u32,
    /// `AUDIT_ARCH_…`
    pub audit: u32,
    /// The number of the call.
    pub number: u32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Where the kernel reports the calls of processes that share a filter.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl From<OwnedFd> for Listener {
    fn from(listener: OwnedFd) -> Self {
        // SAFETY: the kernel takes a number for this code. A kernel before 6.6 does not have it, and then nothing changes.
        let _ = unsafe { ioctl(&listener, IntegerSetter::<SET_FLAGS>::new_usize(SYNC_WAKE_UP)) };
        Self(listener)
    }
}

impl Listener {
    /// Waits for a call; none when no process has the filter any more.
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        loop {
            let mut waiting = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
            match poll(&mut waiting, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [ready] = waiting;
            if !ready.revents().contains(PollFlags::IN) {
                return Ok(None);
            }
            let mut raw = RawNotification::default();
            // SAFETY: `RECEIVE` has the size of `RawNotification`, which the kernel fills in and which is zero before, as it
            // requires; any bytes are a value of it.
            match unsafe { ioctl(&self.0, Updater::<RECEIVE, _>::new(&mut raw)) } {
                Ok(()) => {
                    return Ok(Some(Notification {
                        id: raw.id,
                        pid: raw.pid,
                        audit: raw.data.architecture,
                        number: raw.data.number.cast_unsigned(),
                        arguments: raw.data.arguments,
                    }));
                }
                // The caller was ended or interrupted meanwhile.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets a call continue; false if its caller was ended or interrupted by a signal meanwhile. The kernel then repeats the call, or
    /// lets it fail with EINTR if the signal's handler was installed without `SA_RESTART`.
    pub fn let_continue(&self, notification: &Notification) -> io::Result<bool> {
        let mut raw = RawResponse { id: notification.id, flags: CONTINUE, ..RawResponse::default() };
        // SAFETY: `SEND` has the size of `RawResponse`, which the kernel reads.
        match unsafe { ioctl(&self.0, Updater::<SEND, _>::new(&mut raw)) } {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs this thread before those without a real-time priority, as far as it may: the shorter a call waits, the fewer signals
/// interrupt it. It does nothing but take calls, and the kernel leaves a part of each CPU to others.
pub fn run_first() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads one structure, which lives until it returns; 0 is the calling thread.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const first) };
}
