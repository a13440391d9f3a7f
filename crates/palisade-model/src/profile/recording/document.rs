//! A recording as a document that one node writes and a controller reads, and the profile of several of them.
//!
//! Numbers of arguments are text, because API servers keep no integers above 2^63; profiles are text, because what they hold is no
//! schema's. A document that was not written by this code is read as strictly as a journal: what has no meaning is an error.

use serde_json::{Value, json};
use thiserror::Error;

use super::{Architecture, Filter, FilterError, Phase, RecordedCall, Recording, RecordingError, Syscall};

/// Why a document is no recording.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    /// A value that is missing, or has no meaning.
    #[error("{0} is missing or has no meaning")]
    Field(String),
    /// A profile that cannot be read.
    #[error("the profile of container {container:?} {source}")]
    Filter {
        /// Whose.
        container: String,
        /// What is wrong with it.
        source: FilterError,
    },
    /// A profile that is not JSON.
    #[error("the profile of container {0:?} is not JSON")]
    Json(String),
    /// More than a recording holds.
    #[error("it is larger than a recording")]
    TooLarge,
}

fn field(name: &str) -> DocumentError {
    DocumentError::Field(name.to_owned())
}

impl Recording {
    /// What it holds, for another process.
    #[must_use]
    pub fn to_document(&self) -> Value {
        let containers: Vec<Value> = self
            .containers
            .iter()
            .map(|(name, container)| {
                let calls: Vec<Value> = container
                    .calls
                    .iter()
                    .map(|(call, phases)| {
                        let phases: Vec<&str> = phases.iter().map(|phase| phase.as_str()).collect();
                        let mut row = json!({"name": call.syscall.name(), "architecture": call.architecture.token(),
                            "phases": phases});
                        if let (Some(argument), Some(fields)) = (call.argument, row.as_object_mut()) {
                            fields.insert("argument".to_owned(), format!("{argument:#x}").into());
                        }
                        row
                    })
                    .collect();
                json!({"name": name, "base": container.base.to_oci().to_string(), "calls": calls})
            })
            .collect();
        json!({"machine": self.machine.token(), "interrupted": self.interrupted, "lossy": self.losses,
            "containers": containers})
    }

    /// Reads a document of [`Recording::to_document`].
    pub fn from_document(document: &Value) -> Result<Self, DocumentError> {
        let machine = document.get("machine").and_then(Value::as_str).and_then(Architecture::named);
        let mut recording = Self::new(machine.ok_or_else(|| field("machine"))?);
        let list = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_array).cloned().ok_or_else(|| field(key))
        };
        for container in list(document, "containers")? {
            let text = |key: &str| container.get(key).and_then(Value::as_str).ok_or_else(|| field(key));
            let name = text("name")?;
            let base =
                super::strict_json::read(text("base")?).map_err(|_| DocumentError::Json(name.to_owned()))?;
            let base = Filter::read(&base)
                .map_err(|source| DocumentError::Filter { container: name.to_owned(), source })?;
            if recording.containers.contains_key(name) {
                return Err(field("name"));
            }
            if !recording.begin(name, &base).0 {
                return Err(DocumentError::TooLarge);
            }
            for row in list(&container, "calls")? {
                let call = call(&row)?;
                for phase in list(&row, "phases")? {
                    let phase = phase.as_str().and_then(Phase::named).ok_or_else(|| field("phases"))?;
                    recording.note(name, call, phase);
                }
            }
        }
        for reason in list(document, "lossy")? {
            recording.lose(reason.as_str().ok_or_else(|| field("lossy"))?);
        }
        let interrupted = document.get("interrupted").and_then(Value::as_u64);
        recording.interrupted = interrupted.ok_or_else(|| field("interrupted"))?;
        Ok(recording)
    }
}

fn call(row: &Value) -> Result<RecordedCall, DocumentError> {
    let text = |key: &str| row.get(key).and_then(Value::as_str);
    // swallowed: the caller makes it an error
    let hexadecimal = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let argument = match row.get("argument") {
        None => None,
        Some(value) => Some(value.as_str().and_then(hexadecimal).ok_or_else(|| field("argument"))?),
    };
    Ok(RecordedCall {
        architecture: text("architecture")
            .and_then(Architecture::named)
            .ok_or_else(|| field("architecture"))?,
        syscall: text("name").and_then(Syscall::named).ok_or_else(|| field("name"))?,
        argument,
    })
}

impl std::fmt::Display for RecordedCall {
    /// `socket(0x2)`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.argument {
            Some(argument) => {
                let before = super::selected(self.syscall, self.architecture).unwrap_or_default();
                let skipped: String = (0..before).map(|_| "*, ").collect();
                write!(f, "{}({skipped}{argument:#x})", self.syscall.name())
            }
            None => f.write_str(self.syscall.name()),
        }
    }
}

/// The profile that allows what any of the recordings allows: each is bounded by the profiles that its own containers had.
pub fn combined_profile(parts: &[Recording]) -> Result<Filter, RecordingError> {
    let mut combined: Option<Filter> = None;
    for part in parts {
        let own = match part.profile() {
            Err(RecordingError::Empty) => continue,
            own => own?,
        };
        combined = Some(match combined {
            None => own,
            Some(before) => before.union(&own)?,
        });
    }
    combined.ok_or(RecordingError::Empty)
}

/// What several recordings of one workload hold together; none without a recording.
#[must_use]
pub fn combined(parts: &[Recording]) -> Option<Recording> {
    let mut parts = parts.iter();
    let mut all = parts.next()?.clone();
    for part in parts {
        all.absorb(part);
    }
    Some(all)
}
