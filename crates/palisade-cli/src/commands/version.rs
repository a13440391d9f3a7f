//! `palisade version`: the version and the supported releases.

use palisade_base::version::{NEWEST_MINOR, OLDEST_MINOR};

use crate::{
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// Prints the version.
pub fn run(terminal: &mut Terminal) -> Result<Exit, Failure> {
    let text = format!(
        "palisade {}\nPod Security Standards v1.0 to v1.{NEWEST_MINOR}\nKubernetes v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR}\n",
        env!("CARGO_PKG_VERSION")
    );
    terminal.print(text)?;
    Ok(Exit::Clean)
}
