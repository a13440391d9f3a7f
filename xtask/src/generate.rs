//! Files made from the code: the references of checks and commands, the results of
//! Kubernetes' tests, the texts of the program, the Helm chart, the example of README.md. `check` fails if they are stale.

use std::{fmt::Write as _, fs};

use palisade_policy::standards::{checks::CHECKS, level::Level};

use crate::{
    Failure, e2e,
    process::{cargo, output},
    root, texts,
};

/// Write the files, or only compare them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    Check,
}

/// Makes every generated file.
pub(crate) fn run_generate(mode: Mode) -> Result<(), Failure> {
    for (name, text) in [
        ("docs/checks.md", check_reference()),
        ("docs/conformance.md", e2e::page()?),
        ("tests/data/texts.txt", texts::catalogue(&root())?),
    ] {
        let file = root().join(name);
        let current = fs::read_to_string(&file).unwrap_or_default();
        if current == text {
            continue;
        }
        match mode {
            Mode::Write => fs::write(&file, text).map_err(|error| Failure(error.to_string()))?,
            Mode::Check => return Err(Failure(format!("{name} is stale: run cargo xtask gen"))),
        }
    }
    match mode {
        Mode::Write => generate_by_tests(),
        // The tests of the command line compare these files with what they are made of.
        Mode::Check => Ok(()),
    }
}

/// The Helm chart, the reference of commands and the first example of README.md are written by the tests that compare them.
fn generate_by_tests() -> Result<(), Failure> {
    let tests = "binary_id(palisade::it) and test(/the_chart_is_made_of_the_same_templates|generated::/)";
    let test = ["nextest", "run", "--workspace", "--cargo-quiet", "-E", tests];
    output(cargo(&test).env("PALISADE_GENERATE", "1")).map(drop)
}

fn check_reference() -> String {
    let mut text = String::from(
        "# The checks of the Pod Security Standards\n\n\
         Made by `cargo xtask gen` from `crates/palisade-policy/src/standards/checks`.\n\n\
         | code | level | standard | versions | replaces | why |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for check in CHECKS {
        let versions: Vec<String> =
            check.versions.iter().map(|version| format!("v1.{}", version.since)).collect();
        let replaces: Vec<&str> =
            check.versions.iter().flat_map(|version| version.overrides).copied().collect();
        let level = if check.level == Level::Baseline { "baseline" } else { "restricted" };
        let _ = writeln!(
            text,
            "| `pss/{}` | {level} | {} | {} | {} | {} |",
            check.id,
            check.title,
            versions.join(", "),
            replaces.first().copied().unwrap_or_default(),
            check.why
        );
    }
    text
}
