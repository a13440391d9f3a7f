//! `palisade version`: which one this is, and what it knows.

use std::io::Write;

use palisade_base::version::{NEWEST_MINOR, OLDEST_MINOR};

use crate::{Exit, terminal::Terminal};

/// Prints the version.
pub fn run(terminal: &mut Terminal) -> Exit {
    let text = format!(
        "palisade {}\nPod Security Standards v1.0 to v1.{NEWEST_MINOR}\nKubernetes v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR}\n",
        env!("CARGO_PKG_VERSION")
    );
    match terminal.out.write_all(text.as_bytes()).and_then(|()| terminal.out.flush()) {
        Ok(()) => Exit::Clean,
        Err(error) => terminal.cannot_write(&error),
    }
}
