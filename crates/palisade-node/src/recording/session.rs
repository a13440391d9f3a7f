//! What a runtime hands over, and the calls that follow.
//!
//! Implements: "The Container Process State" of the OCI runtime specification: a connection to the socket of `listenerPath`
//! sends one JSON object with the listener beside it (`SCM_RIGHTS`), for the first process of a container and for each command
//! that is executed in it.
//! <https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#containerprocessstate>

use std::{
    io::{self, IoSliceMut},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use palisade_model::profile::{recording::Phase, syscalls::Syscall};
use rustix::{
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt::socket_peercred},
    process::geteuid,
};
use serde::Deserialize;
use thiserror::Error;
use tracing::{debug, warn};

use super::{MAX_COMMANDS, Shared};
use crate::kernel::notify::{Listener, run_first};

/// Far more than a container's state with its annotations.
const MAX_STATE: usize = 1 << 20;
/// How long a runtime takes to send it, at most.
const PATIENCE: Duration = Duration::from_secs(10);
/// A listener's thread needs little.
pub(super) const STACK: usize = 256 << 10;
/// Descriptors that are taken with one message.
const MAX_DESCRIPTORS: usize = 4;

/// Why a connection gave no listener.
#[derive(Debug, Error)]
enum HandoverError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the peer is user {0}")]
    Peer(u32),
    #[error("the state is larger than {MAX_STATE} bytes")]
    TooLarge,
    #[error("the state cannot be read: {0}")]
    State(#[from] serde_json::Error),
    #[error("there is no descriptor for seccompFd")]
    NoListener,
    #[error("the container is not one that is recorded")]
    Unknown,
    #[error("more than {MAX_COMMANDS} commands are executed in the container at a time")]
    TooMany,
}

/// `ContainerProcessState`
#[derive(Debug, Deserialize)]
struct ProcessState {
    fds: Vec<String>,
    pid: i64,
    #[serde(default)]
    metadata: String,
    state: ContainerState,
}

#[derive(Debug, Deserialize)]
struct ContainerState {
    id: String,
    #[serde(default)]
    pid: i64,
}

/// Takes connections until the recorder is dropped.
pub(super) fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                shared.lose(&format!("the recorder's socket failed: {error}"));
                return;
            }
        };
        if shared.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let own = Arc::clone(shared);
        let builder = thread::Builder::new().name("recording".to_owned()).stack_size(STACK);
        let spawned = builder.spawn(move || {
            if let Err(error) = serve(&stream, &own) {
                warn!(%error, "a connection to the recorder gave no listener");
            }
        });
        if let Err(error) = spawned {
            shared.lose(&format!("a listener could not be served: {error}"));
        }
    }
}

/// Serves one listener until no process has its filter any more.
fn serve(stream: &UnixStream, shared: &Shared) -> Result<(), HandoverError> {
    let (listener, process) = receive(stream)?;
    let is_first = process.pid == process.state.pid;
    let token = process.metadata;
    let command = {
        let mut state = shared.lock();
        let run = state.runs.get_mut(&token).ok_or(HandoverError::Unknown)?;
        if run.open > MAX_COMMANDS {
            let container = run.container.clone();
            state.lose(&format!(
                "{} in container {container:?}: the calls of others failed with ENOSYS",
                HandoverError::TooMany
            ));
            return Err(HandoverError::TooMany);
        }
        run.id = Some(process.state.id);
        run.open += 1;
        if is_first {
            run.began = Some(Instant::now());
        }
        // A command that the node did not execute, or one of several at the same time, is somebody's.
        let expected = match run.expected.as_slice() {
            [first, rest @ ..] if rest.iter().all(|phase| phase == first) => *first,
            _ => Phase::Exec,
        };
        (!is_first).then_some(expected)
    };
    debug!(is_first, pid = process.pid, "listening");
    let listener = Listener::from(listener);
    if shared.is_first {
        run_first();
    }
    let mut has_executed = false;
    let ended = loop {
        match listener.receive() {
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
            Ok(Some(call)) => {
                let phase = if has_executed { command } else { Some(Phase::Runtime) };
                shared.write_down(&token, phase, &call);
                has_executed |= executes(call.audit, call.number);
                match listener.let_continue(&call) {
                    Ok(true) => {}
                    Ok(false) => shared.interrupted(),
                    Err(error) => break Err(error),
                }
            }
        }
    };
    let mut state = shared.lock();
    if let Err(error) = ended {
        state.lose(&format!("a listener failed, and later calls with ENOSYS: {error}"));
    }
    if let Some(run) = state.runs.get_mut(&token) {
        run.open = run.open.saturating_sub(1);
        // No process has its filter any more: the container has ended.
        if run.open == 0
            && let Some(id) = state.runs.remove(&token).and_then(|run| run.id)
        {
            state.see(&id);
        }
    }
    Ok(())
}

fn executes(audit: u32, number: u32) -> bool {
    Syscall::reported(audit, number).is_some_and(|(_, call)| matches!(call.name(), "execve" | "execveat"))
}

/// The listener and the state that a connection sends.
fn receive(stream: &UnixStream) -> Result<(OwnedFd, ProcessState), HandoverError> {
    let peer = socket_peercred(stream).map_err(io::Error::from)?;
    if peer.uid != geteuid() {
        return Err(HandoverError::Peer(peer.uid.as_raw()));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    let mut descriptors = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let process = loop {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received =
            recvmsg(stream, &mut [IoSliceMut::new(&mut buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)
                .map_err(io::Error::from)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        text.extend_from_slice(buffer.get(..received.bytes).unwrap_or_default());
        if text.len() > MAX_STATE {
            return Err(HandoverError::TooLarge);
        }
        // runc keeps the connection until the container runs, which waits for its listener to be served.
        match serde_json::from_slice::<ProcessState>(&text) {
            Ok(process) => break process,
            Err(error) if error.is_eof() && received.bytes > 0 => {}
            Err(error) => return Err(error.into()),
        }
    };
    let position = process.fds.iter().position(|name| name == "seccompFd");
    let position = position.filter(|position| *position < descriptors.len());
    let listener = descriptors.swap_remove(position.ok_or(HandoverError::NoListener)?);
    Ok((listener, process))
}
