//! Makes system calls under a seccomp profile: the kernel's side of the tests of the algebra.
//!
//! Reads `{"profile": …, "calls": [["getpid", [0, 0, 0, 0, 0, 0]], …]}` and prints a line for each call: `0` if it was made, or
//! the number it failed with. A thread of its own has the filter and does nothing but the calls, so that a profile need not
//! allow anything else. Exits with 3 if a call ended that thread; a call that ends the process does just that.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is what the test compares")]

use std::{
    fs, hint, io,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use palisade_model::profile::{architecture::Architecture, filter::Filter};
use palisade_node::kernel::seccomp::{self, Harmless};

const PENDING: i32 = -1;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("seccomp_calls: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let input: serde_json::Value = serde_json::from_reader(io::stdin())?;
    let program = Filter::read(&input["profile"])?.compile(Architecture::COMMON)?;
    let calls: Vec<(String, [u64; 6])> = serde_json::from_value(input["calls"].clone())?;
    let mut planned = Vec::new();
    for (name, arguments) in calls {
        let call = Harmless::ALL.into_iter().find(|call| call.name() == name);
        planned.push((call.ok_or("a call that may do harm")?, arguments));
    }
    let results: Arc<Vec<AtomicI32>> = Arc::new(planned.iter().map(|_| AtomicI32::new(PENDING)).collect());
    let thread_id = Arc::new(AtomicUsize::new(0));
    let (own_results, own_id) = (Arc::clone(&results), Arc::clone(&thread_id));
    thread::spawn(move || {
        let id = fs::read_link("/proc/thread-self").ok();
        let id = id.and_then(|path| path.file_name()?.to_str()?.parse().ok());
        if seccomp::install(&program).is_err() {
            return;
        }
        own_id.store(id.unwrap_or_default(), Ordering::SeqCst);
        for ((call, arguments), result) in planned.iter().zip(own_results.iter()) {
            result.store(call.call(*arguments).err().unwrap_or_default(), Ordering::SeqCst);
        }
        // To end is a call too, which the profile may not allow.
        loop {
            hint::spin_loop();
        }
    });
    let all_made = || results.iter().all(|result| result.load(Ordering::SeqCst) != PENDING);
    let is_gone = || match thread_id.load(Ordering::SeqCst) {
        0 => false,
        id => !fs::exists(format!("/proc/self/task/{id}")).unwrap_or(true),
    };
    while !all_made() && !is_gone() {
        thread::sleep(Duration::from_millis(1));
    }
    for result in
        results.iter().map(|result| result.load(Ordering::SeqCst)).filter(|result| *result != PENDING)
    {
        println!("{result}");
    }
    Ok(if all_made() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}
