//! What a recording became: the profile, the statement, and the lines that a person reads.
//!
//! `palisade run --record` records a pod; `palisade profile recorded` reads what a recorder that ended early left behind.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use palisade_model::profile::{
    filter::Filter,
    recording::{Phase, Recording},
};
use palisade_node::recording::{Recorder, RecorderError};

use super::export::write_atomically;
use crate::{
    failure::{Exit, Failure},
    input::Input,
    judge::decode,
    terminal::Terminal,
};

/// The files of a recording.
#[derive(Debug)]
pub struct RecordingFiles {
    profile: PathBuf,
    statement: PathBuf,
    journal: PathBuf,
}

impl RecordingFiles {
    /// The profile in `file`, and the others beside it.
    #[must_use]
    pub fn beside(file: &Path) -> Self {
        Self {
            profile: file.to_owned(),
            statement: file.with_extension("statement.json"),
            journal: file.with_extension("journal"),
        }
    }

    /// Begins to record.
    pub fn start(&self, folder: &Path) -> Result<Arc<Recorder>, Failure> {
        let recorder = Recorder::start(folder, &self.journal).map_err(|error| match error {
            RecorderError::Unfinished { .. } | RecorderError::Journal { .. } => Failure::input(error),
            RecorderError::Machine(_) | RecorderError::Socket { .. } => Failure::incomplete(error),
        })?;
        Ok(Arc::new(recorder))
    }

    /// Removes the journal of a recording that never began.
    pub fn discard(&self) {
        fs::remove_file(&self.journal).ok();
    }

    /// Writes profile and statement, and removes the journal.
    pub fn write(
        &self,
        recording: &Recording,
        runtime_default: Option<&Filter>,
        terminal: &mut Terminal,
    ) -> Result<Exit, Failure> {
        if recording.containers().next().is_none() {
            self.discard();
            return Err(Failure::incomplete("no container was recorded"));
        }
        // The journal stays where the profile cannot be made or written.
        let profile = recording.profile().map_err(Failure::incomplete)?;
        let statement = recording.statement(runtime_default);
        for (file, document) in [(&self.profile, profile.to_oci()), (&self.statement, statement)] {
            write_file(file, &format!("{document:#}\n")).map_err(|error| Failure::file(file, error))?;
        }
        self.discard();
        summarize(recording, runtime_default, terminal);
        terminal.report(format!(
            "wrote the profile to {} and the statement to {}",
            self.profile.display(),
            self.statement.display()
        ));
        Ok(if recording.is_complete() { Exit::Clean } else { Exit::Findings })
    }
}

/// Writes a file in one piece.
fn write_file(file: &Path, text: &str) -> std::io::Result<()> {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    write_atomically(folder, file, text)
}

/// Reports what was recorded and what is missing.
fn summarize(recording: &Recording, runtime_default: Option<&Filter>, terminal: &Terminal) {
    let containers: Vec<&str> = recording.containers().collect();
    let (seen, missing): (Vec<Phase>, Vec<Phase>) =
        Phase::ALL.into_iter().partition(|phase| !recording.calls_in(*phase).is_empty());
    let names = |phases: &[Phase]| phases.iter().map(|phase| phase.as_str()).collect::<Vec<_>>().join(", ");
    terminal.report(format!(
        "recorded {} system calls of {} in the phases {}",
        recording.calls().len(),
        containers.join(", "),
        names(&seen),
    ));
    if !missing.is_empty() {
        terminal.report(format!("not recorded, because nothing happened there: {}", names(&missing)));
    }
    for reason in recording.losses() {
        terminal.report(format!("warning: the recording is lossy: {reason}"));
    }
    for call in runtime_default.map(|bound| recording.beyond(bound)).unwrap_or_default() {
        terminal.report(format!("warning: {call} is beyond the default profile of the runtime"));
    }
}

/// `palisade profile recorded JOURNAL`
pub fn recorded(journal: &Path, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let input = Input::File(journal.to_owned());
    let text = decode(&input.name(), &input.read()?)?.into_owned();
    let recording = Recording::replay(&text).map_err(|error| Failure::file(journal, error))?;
    let profile = recording.profile().map_err(Failure::incomplete)?;
    terminal.print(format!("{:#}\n", profile.to_oci()))?;
    summarize(&recording, None, terminal);
    Ok(if recording.is_complete() { Exit::Clean } else { Exit::Findings })
}
