//! The binary `palisade`; all it does is hand the process over to the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    palisade_cli::command_line::main(std::env::args_os())
}
