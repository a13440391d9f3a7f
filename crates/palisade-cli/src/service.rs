//! What all long-running commands share: a runtime, a log on stderr, and the wish to stop.

use std::future::Future;

use crate::{Exit, resident, terminal::Terminal};

/// Runs a long-running command: its log goes to stderr, `work` has all processors, and what only the start needed is given back.
pub fn run(terminal: &Terminal, work: impl Future<Output = Exit>) -> Exit {
    log_to_stderr(terminal);
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            runtime.spawn(resident::stay_small());
            runtime.block_on(work)
        }
        Err(error) => fail(terminal, &format!("cannot start: {error}"), Exit::Incomplete),
    }
}

/// Runs a command that asks a cluster something and ends.
pub fn ask(terminal: &Terminal, work: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => fail(terminal, &format!("cannot start: {error}"), Exit::Incomplete),
    }
}

/// Asks a cluster something on the way of a command that is not about clusters alone.
pub fn with_answer<T>(question: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map(|runtime| runtime.block_on(question)).map_err(|error| format!("cannot start: {error}"))
}

/// What long-running parts say goes to stderr, warnings and worse unless `RUST_LOG` asks for more.
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

/// Says why the command ends.
#[must_use]
pub fn fail(terminal: &Terminal, why: &str, exit: Exit) -> Exit {
    terminal.say(format!("error: {why}"));
    exit
}

/// An error with its causes, in one line.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
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
