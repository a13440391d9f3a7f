//! Kubernetes' own end-to-end tests against `palisade up --node`: which run, what passes, and `docs/conformance.md`.
//!
//! `tests/data/e2e/results.txt` has the result of each test, `tests/data/e2e/reasons.txt` why some do not pass. The gate runs a part of what
//! passes, another one for each commit; `crates/palisade-cli/tests/system/e2e.rs` runs the tests.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use serde_json::Value;

use crate::{
    Failure,
    process::{cargo, output, run},
    root, setup,
};

/// How many parts the list of what passes has. One takes about five minutes on two processors.
const PARTS: usize = 4;

/// Most of a test's time is waiting, so that more of them run at a time than there are processors.
const PROCESSES_PER_CPU: usize = 5;

/// Parts of the names of tests that no part has: one takes as long as a whole part, and user namespaces need runc 1.2, which is newer than Debian's.
const LEFT_OUT: [&str; 2] =
    ["if the original version has been compacted away", "[Feature:UserNamespacesSupport]"];

const RESULTS: &str = "tests/data/e2e/results.txt";
const REASONS: &str = "tests/data/e2e/reasons.txt";

/// A line of the file of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// Passed the second time: not on the list of what passes.
    Flaky,
    Failed,
    /// The suite itself skipped it.
    Skipped,
}

impl Outcome {
    const ALL: [(Self, &str); 4] = [
        (Self::Passed, "passed"),
        (Self::Flaky, "flaky"),
        (Self::Failed, "failed"),
        (Self::Skipped, "skipped"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(outcome, _)| *outcome == self).map_or("failed", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(outcome, _)| *outcome)
    }

    /// Of a result that the run wrote. What did not run has not passed.
    fn of(result: &Value) -> Self {
        match (result["state"].as_str(), result["round"].as_u64()) {
            (Some("passed"), Some(1)) => Self::Passed,
            (Some("passed"), _) => Self::Flaky,
            (Some("skipped"), _) => Self::Skipped,
            _ => Self::Failed,
        }
    }
}

type Results = BTreeMap<String, Outcome>;

/// What `cargo xtask e2e` runs.
#[derive(Debug, Default)]
pub(crate) struct Options<'a> {
    /// Part of a test's name; all Conformance tests without it.
    pub(crate) focus: Option<&'a str>,
    /// A file with the names of tests, one in a line.
    pub(crate) list: Option<&'a Path>,
    /// Only a part of the list of what passes, from 0.
    pub(crate) part: Option<usize>,
    /// Whether the results are written down.
    pub(crate) write: bool,
    pub(crate) processes: Option<usize>,
}

/// Runs tests and prints what did not pass. A test on the list that fails is an error.
pub(crate) fn run_e2e(options: &Options<'_>) -> Result<(), Failure> {
    setup::need_cluster()?;
    let known = read_results()?;
    let part = options.part.map(|part| part_of(&known, part)).transpose()?;
    let named =
        options.list.map(|path| fs::read_to_string(path).map_err(|error| cannot("read", path, &error)));
    let named = named.transpose()?;
    let named = named.as_deref().map(|text| text.lines().collect());
    let Some(found) = start(options, part.or(named).as_deref())? else {
        println!("NOT RUN: Kubernetes' end-to-end tests need ../shared/kubernetes");
        return Ok(());
    };
    let mut results = Results::new();
    for (name, result) in found.as_object().into_iter().flatten() {
        let outcome = Outcome::of(result);
        if outcome != Outcome::Passed {
            let message = result["message"].as_str().unwrap_or_default();
            let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
            let short: String = line.chars().take(200).collect();
            println!("{}  {name}\n    {short}", outcome.word());
        }
        results.insert(name.clone(), outcome);
    }
    let passed = results.values().filter(|outcome| **outcome == Outcome::Passed).count();
    println!("{passed} of {} end-to-end tests passed at once; logs in target/e2e", results.len());
    if options.write {
        return write_results(&known.into_iter().chain(results).collect());
    }
    let broken: Vec<&str> = results
        .iter()
        .filter(|(name, outcome)| {
            !matches!(outcome, Outcome::Passed | Outcome::Flaky) && known.get(*name) == Some(&Outcome::Passed)
        })
        .map(|(name, _)| name.as_str())
        .collect();
    if broken.is_empty() {
        return Ok(());
    }
    Err(Failure(format!("end-to-end tests that must pass fail:\n  {}", broken.join("\n  "))))
}

/// Runs the part of the list that is the commit's.
pub(crate) fn run_part_of_commit() -> Result<(), Failure> {
    let commit = output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()))?;
    let number = commit
        .get(..8)
        .and_then(|digits| usize::from_str_radix(digits, 16).ok())
        .ok_or_else(|| Failure(format!("not a commit: {commit}")))?;
    let part = number % PARTS;
    println!("\nKubernetes' end-to-end tests: part {part} of {PARTS} of those that pass");
    run_e2e(&Options { part: Some(part), ..Options::default() })
}

/// Every so many names of what passes: neighbours in the list take about as long.
fn part_of(results: &Results, part: usize) -> Result<Vec<&str>, Failure> {
    if part >= PARTS {
        return Err(Failure(format!("the list has the parts 0 to {}", PARTS - 1)));
    }
    let runs = |name: &str| !LEFT_OUT.iter().any(|part| name.contains(part));
    let passed = results.iter().filter(|(name, outcome)| **outcome == Outcome::Passed && runs(name));
    Ok(passed.map(|(name, _)| name.as_str()).skip(part).step_by(PARTS).collect())
}

/// Runs the test that runs them; nothing without `../shared/kubernetes`.
fn start(options: &Options<'_>, list: Option<&[&str]>) -> Result<Option<Value>, Failure> {
    let folder = root().join("target/e2e");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|error| cannot("remove", &folder, &error))?;
    }
    fs::create_dir_all(&folder).map_err(|error| cannot("create", &folder, &error))?;
    let mut command = cargo(&["nextest", "run", "--workspace", "--profile", "e2e", "--no-capture"]);
    // The other tests take minutes to link.
    command.args(["--test", "system"]);
    command.env("PALISADE_E2E_FOLDER", &folder);
    if let Some(names) = list {
        let file = folder.join("list.txt");
        fs::write(&file, names.join("\n")).map_err(|error| cannot("write", &file, &error))?;
        command.env("PALISADE_E2E_LIST", &file);
    }
    if list.is_some() || options.write {
        command.env("PALISADE_E2E_RETRY", "1");
    }
    if let Some(focus) = options.focus {
        command.env("PALISADE_E2E_FOCUS", focus);
    }
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let processes = options.processes.unwrap_or(cpus * PROCESSES_PER_CPU);
    command.env("PALISADE_E2E_PROCESSES", processes.to_string());
    run(&mut command)?;
    let file = folder.join("results.json");
    if !file.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&file).map_err(|error| cannot("read", &file, &error))?;
    serde_json::from_str(&text).map(Some).map_err(|error| Failure(format!("{}: {error}", file.display())))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure(format!("cannot {what} {}: {error}", path.display()))
}

fn read(name: &str) -> Result<String, Failure> {
    let path = root().join(name);
    fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))
}

fn read_results() -> Result<Results, Failure> {
    parse_results(&read(RESULTS)?)
}

fn parse_results(text: &str) -> Result<Results, Failure> {
    let parse = |line: &str| {
        let (word, name) = line.split_once(' ')?;
        Some((name.to_owned(), Outcome::parse(word)?))
    };
    text.lines()
        .map(|line| parse(line).ok_or_else(|| Failure(format!("{RESULTS}: no result: {line}"))))
        .collect()
}

fn write_results(results: &Results) -> Result<(), Failure> {
    let mut text = String::new();
    for (name, outcome) in results {
        let _ = writeln!(text, "{} {name}", outcome.word());
    }
    let path: PathBuf = root().join(RESULTS);
    fs::write(&path, text).map_err(|error| cannot("write", &path, &error))?;
    let path = root().join("docs/conformance.md");
    let page = render(results, &parse_reasons(&read(REASONS)?));
    fs::write(&path, page).map_err(|error| cannot("write", &path, &error))
}

/// The page of the documentation.
pub(crate) fn page() -> Result<String, Failure> {
    Ok(render(&read_results()?, &parse_reasons(&read(REASONS)?)))
}

/// Reasons with parts of the names of tests that have it: a reason stands at the start of a line, the parts below it are indented.
fn parse_reasons(text: &str) -> Vec<(&str, &str)> {
    let mut reasons = Vec::new();
    let mut reason = "";
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match line.strip_prefix("  ") {
            Some(part) => reasons.push((part, reason)),
            None => reason = line,
        }
    }
    reasons
}

/// What a test without a reason has.
const UNKNOWN: &str = "not explained yet";

fn render(results: &Results, reasons: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "# Kubernetes' end-to-end tests\n\n\
         Made by `cargo xtask gen` from `tests/data/e2e`, which `cargo xtask e2e --write` writes.\n\n\
         These are the results of upstream's `e2e.test` v1.37 against `palisade up --node --emulate-kubernetes v1.37` on one machine with containerd, without a\n\
         service proxy, cluster DNS, volume provisioner or images from a registry. The images are made of Debian packages and the suite's own programs. Tests\n\
         of user namespaces, image volumes and `supplementalGroupsPolicy` run on containerd 2.3, those of user namespaces with a runc 1.3 that is first on\n\
         `PATH`; the others run on Debian's containerd and runc. `cargo xtask check` runs a part of the\n\
         tests that pass, another one for each commit, and fails if one of them fails.\n",
    );
    let conformance = |name: &str| name.contains("[Conformance]");
    for (title, wanted) in [("Conformance", true), ("Other tests", false)] {
        let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (name, outcome) in results.iter().filter(|(name, _)| conformance(name) == wanted) {
            let group = name.split_inclusive(']').next().unwrap_or_default();
            let (passed, all) = groups.entry(group).or_default();
            *passed += usize::from(*outcome == Outcome::Passed);
            *all += 1;
        }
        if groups.is_empty() {
            continue;
        }
        let (passed, all) = groups.values().fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
        let _ = write!(
            text,
            "\n## {title}\n\n{passed} of {all} pass.\n\n| group | passed | of |\n| --- | --- | --- |\n"
        );
        for (group, (passed, all)) in groups {
            let _ = writeln!(text, "| {} | {passed} | {all} |", group.trim_matches(['[', ']']));
        }
    }
    let mut failed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, outcome) in results {
        let found = reasons.iter().find(|(part, _)| name.contains(part)).map(|(_, reason)| *reason);
        let reason = match outcome {
            Outcome::Passed => continue,
            Outcome::Failed => found.unwrap_or(UNKNOWN),
            Outcome::Flaky => "passes, but not every time",
            Outcome::Skipped => found.unwrap_or("skipped by the suite itself"),
        };
        failed.entry(reason).or_default().push(code(name));
    }
    text.push_str("\n## What does not pass, and why\n");
    for (reason, names) in failed {
        let _ = write!(text, "\n### {reason}\n\n");
        for name in names {
            let _ = writeln!(text, "- {name}");
        }
    }
    text.push_str("\n## What passes\n\n");
    for (name, _) in results.iter().filter(|(_, outcome)| **outcome == Outcome::Passed) {
        let _ = writeln!(text, "- {}", code(name));
    }
    text
}

/// A name of a test may look like a link.
fn code(name: &str) -> String {
    format!("`{}`", name.replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "passed [sig-node] a [Conformance]\nfailed [sig-node] b [Conformance]\nflaky [sig-apps] c [Conformance]\nskipped [sig-auth] d\n";

    #[test]
    fn counts_what_passes_and_names_the_rest_with_its_reason() {
        let results = parse_results(TEXT).expect("results");
        let page = render(&results, &parse_reasons("no DNS\n  [sig-node] b\n"));
        assert!(page.contains("1 of 3 pass"), "{page}");
        assert!(page.contains("| sig-node | 1 | 2 |"), "{page}");
        assert!(page.contains("### no DNS\n\n- `[sig-node] b [Conformance]`"), "{page}");
        assert!(page.contains("### passes, but not every time\n\n- `[sig-apps] c"), "{page}");
        assert!(render(&results, &[]).contains(UNKNOWN));
    }

    #[test]
    fn every_test_that_passes_is_in_one_part_and_no_other_test_is() {
        let results: Results = (0..103)
            .map(|number| {
                let left_out = if number == 9 { LEFT_OUT[0] } else { "" };
                (format!("{number:03}{left_out}"), if number == 7 { Outcome::Flaky } else { Outcome::Passed })
            })
            .collect();
        let mut all: Vec<&str> = (0..PARTS).flat_map(|part| part_of(&results, part).expect("part")).collect();
        all.sort_unstable();
        let passed =
            results.keys().map(String::as_str).filter(|name| *name != "007" && !name.starts_with("009"));
        assert_eq!(all, passed.collect::<Vec<_>>());
        assert!(part_of(&results, PARTS).is_err());
    }

    #[test]
    fn only_what_passes_at_once_is_on_the_list() {
        for (result, expected) in [
            (json!({"state": "passed", "round": 1}), Outcome::Passed),
            (json!({"state": "passed", "round": 2}), Outcome::Flaky),
            (json!({"state": "failed", "round": 1}), Outcome::Failed),
            (json!({"state": "timedout", "round": 1}), Outcome::Failed),
            (json!({"state": "not run"}), Outcome::Failed),
            (json!({"state": "skipped", "round": 1}), Outcome::Skipped),
        ] {
            assert_eq!(Outcome::of(&result), expected, "{result}");
        }
        assert!(parse_results("unheard a\n").is_err());
    }
}
