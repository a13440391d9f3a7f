//! Texts in the documentation that the binary prints: the first example of README.md, and the reference of the commands.
//!
//! `cargo xtask gen` runs these tests with `PALISADE_GENERATE` set, and they write the files instead of comparing them.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use clap::CommandFactory as _;
use palisade_cli::command_line::{Cli, GROUPS};

use crate::support::Run;

fn holds(name: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("PALISADE_GENERATE").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} is stale: run cargo xtask gen");
}

#[test]
fn the_first_example_of_the_readme_prints_what_the_page_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("README.md")).unwrap();
    for word in ["designs", "house"] {
        assert!(!page.contains(word), "{word} is not a word of the README");
    }
    let (before, rest) = page.split_once("```console\n").unwrap();
    let (example, after) = rest.split_once("```\n").unwrap();
    let command = example.lines().next().unwrap().strip_prefix("$ palisade ").unwrap();
    let mut binary = Command::new(env!("CARGO_BIN_EXE_palisade"));
    let run = Run::of(binary.args(command.split(' ')).current_dir(&root));
    let shown = format!("$ palisade {command}\n{}{}", run.stdout, run.stderr);
    holds("README.md", &format!("{before}```console\n{shown}```\n{after}"));
}

#[test]
fn the_reference_of_commands_is_their_help() {
    let mut text = "# Commands\n\nMade by `cargo xtask gen` from the help texts of the binary.\n".to_owned();
    let mut command = Cli::command().term_width(110);
    command.build();
    for (group, names) in GROUPS.iter().filter(|(group, _)| *group != "Other") {
        let _ = write!(text, "\n## {group}\n");
        for name in *names {
            let found = command.find_subcommand(name).unwrap();
            let nested: Vec<_> =
                found.get_subcommands().filter(|nested| nested.get_name() != "help").collect();
            let all = if nested.is_empty() { vec![found] } else { nested };
            for found in all {
                let title = found.get_bin_name().unwrap();
                let help = found.clone().render_help().to_string();
                let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
                let _ = write!(text, "\n### `{title}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
            }
        }
    }
    holds("docs/commands.md", &text);
}
