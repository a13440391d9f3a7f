//! Records one container: the recorder's side of the tests of recordings, as a process that can be killed.
//!
//! Arguments: a folder, and the path of the journal. Prints the socket, the token and the profile as lines, and records until its
//! input ends.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is what the test reads")]

use std::{io, path::Path, process::ExitCode};

use palisade_model::{
    pod_view::ContainerKind,
    profile::{architecture::Architecture, recording::unconfined},
};
use palisade_node::{
    api::PodKey,
    recording::{Recordable, Recorder},
};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("recorder: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(journal)) = (arguments.next(), arguments.next()) else {
        return Err("needs a folder and a journal".into());
    };
    let recorder = Recorder::start(Path::new(&folder), Path::new(&journal))?;
    let base = unconfined(Architecture::COMMON)?;
    let pod = PodKey { namespace: "default".to_owned(), name: "p".to_owned(), uid: "u".to_owned() };
    let what = Recordable { pod: &pod, container: "c", kind: ContainerKind::App, has_probes: false };
    let (profile, token) = recorder.plan(what, &base)?;
    println!("{}\n{token}\n{}", recorder.socket().display(), profile.to_oci());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    let _ = recorder.finish();
    Ok(())
}
