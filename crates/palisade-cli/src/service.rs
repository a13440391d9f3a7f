//! What all long-running commands share: a runtime, a log on stderr, and signals.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use palisade_node::kernel::resident::{give_code_back, give_freed_memory_back, resident_bytes};
use palisade_serve::status::{self, Status};

use crate::{
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// Code is given back when the start is over, when what was read first has been worked on, and from then on now and then:
/// reloading a certificate or writing a report wakes code that sleeps for hours afterwards.
const FIRST_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
const THEN_EVERY: Duration = Duration::from_mins(1);
/// Freed memory is given back when so much more is resident than when that was last done.
const GROWTH: usize = 4 << 20;

/// Runs a long-running command: its log goes to stderr, `work` has all processors, and what only the start needed is given back.
pub fn run(terminal: &Terminal, work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    log_to_stderr(terminal);
    let runtime = started(&mut tokio::runtime::Builder::new_multi_thread())?;
    runtime.spawn(give_code_back_regularly());
    runtime.spawn(give_memory_back_after_growth());
    runtime.block_on(work)
}

/// Starts a runtime.
pub fn started(builder: &mut tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Failure> {
    builder.enable_all().build().map_err(|error| Failure::incomplete(format!("cannot start: {error}")))
}

/// Unmaps code that is no longer used, for as long as the process lives.
async fn give_code_back_regularly() {
    for pause in FIRST_PAUSES.into_iter().chain(std::iter::repeat(THEN_EVERY)) {
        tokio::time::sleep(pause).await;
        give_code_back();
    }
}

/// Releases freed memory within a second of the work that left it, for as long as the process lives.
async fn give_memory_back_after_growth() {
    let mut usual = resident_bytes().unwrap_or_default();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let Some(resident) = resident_bytes() else { return };
        if resident > usual.saturating_add(GROWTH) {
            // A large heap takes milliseconds: no request waits behind it.
            if tokio::task::spawn_blocking(give_freed_memory_back).await.is_err() {
                return;
            }
            usual = resident_bytes().unwrap_or(resident);
        } else {
            usual = usual.min(resident);
        }
    }
}

/// Runs the part of a command that sends requests to a cluster.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    started(&mut tokio::runtime::Builder::new_current_thread())?.block_on(work)
}

/// Serves `/metrics`, `/healthz` and `/readyz` for as long as the process lives, and prints the address.
pub async fn serve_status(
    address: SocketAddr,
    status: Arc<impl Status>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let (address, _) = status::listen(address, status)
        .await
        .map_err(|error| Failure::incomplete(format!("cannot listen on {address}: {error}")))?;
    terminal.report(format!("metrics on http://{address}/metrics"));
    Ok(())
}

/// Logs to stderr, warnings and worse unless `RUST_LOG` is set.
pub fn log_to_stderr(terminal: &Terminal) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,palisade_cli=info"));
    // A second subscriber in one process is a test's; the first one stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal.err_color)
        .try_init();
}

/// Ctrl-C, or the polite signal of service managers.
pub async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
