//! Makes many different system calls under a recorder's profile and ends: the workload's side of the tests of recordings.
//!
//! Arguments: the socket, the token, how many calls, and how often. The profile is read from the input. The listener is handed over
//! as runc does it. Prints how long the calls took, in microseconds, and how many of the last round failed with ENOSYS.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is what the test reads")]

use std::{
    hint, io,
    io::IoSlice,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    process::{self, ExitCode},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use palisade_model::profile::{architecture::Architecture, filter::Filter, syscalls::Syscall};
use palisade_node::kernel::seccomp::{self, recorded_in_vain};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recorded_calls: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("needs a socket, a token, how many calls and how often");
    let (socket, token) = (next()?, next()?);
    let (count, rounds) = (next()?.parse::<usize>()?, next()?.parse::<usize>()?);
    let profile: serde_json::Value = serde_json::from_reader(io::stdin())?;
    let machine = Architecture::COMMON;
    let program = Filter::read(&profile)?.compile(machine)?;
    let calls: Vec<Syscall> = recorded_in_vain().take(count).collect();

    let listener: Arc<Mutex<Option<OwnedFd>>> = Arc::default();
    let may_begin = Arc::new(AtomicBool::new(false));
    let outcome: Arc<Mutex<Option<(u128, usize)>>> = Arc::default();
    let (own_listener, own_begin) = (Arc::clone(&listener), Arc::clone(&may_begin));
    let own_outcome = Arc::clone(&outcome);
    thread::spawn(move || {
        let Ok(installed) = seccomp::install_with_listener(&program) else { process::exit(3) };
        // From here on every call waits for the recorder, which does not have the listener yet: a free lock takes no call.
        if let Ok(mut slot) = own_listener.lock() {
            *slot = Some(installed);
        }
        while !own_begin.load(Ordering::SeqCst) {
            hint::spin_loop();
        }
        let begun = Instant::now();
        let mut missing = 0;
        for _ in 0..rounds {
            missing = calls.iter().filter(|call| seccomp::call_in_vain(**call) == Some(38)).count();
        }
        if let Ok(mut slot) = own_outcome.lock() {
            *slot = Some((begun.elapsed().as_micros(), missing));
        }
        // To end is a call too, which fails if no recorder is there.
        loop {
            hint::spin_loop();
        }
    });
    let handed_over = taken(&listener);
    let pid = process::id();
    let state = serde_json::json!({"ociVersion": "1.0.2", "fds": ["seccompFd"], "pid": pid, "metadata": token,
        "state": {"ociVersion": "1.0.2", "id": "recorded-calls", "status": "creating", "pid": pid, "bundle": "/"}});
    let stream = UnixStream::connect(socket)?;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [handed_over.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err("no room for the listener".into());
    }
    sendmsg(&stream, &[IoSlice::new(state.to_string().as_bytes())], &mut control, SendFlags::empty())?;
    drop((stream, handed_over));
    may_begin.store(true, Ordering::SeqCst);
    let (time, missing) = taken(&outcome);
    println!("{time} {missing}");
    Ok(())
}

/// What the other thread leaves, which may not wait for a lock.
fn taken<T>(slot: &Mutex<Option<T>>) -> T {
    loop {
        if let Ok(mut slot) = slot.try_lock()
            && let Some(value) = slot.take()
        {
            return value;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
