//! Judges upstream's fixture pods with the engine, each at the level and version of its folder.

use std::{collections::BTreeMap, fs, path::Path};

use palisade_model::{
    compat::Compat,
    pod::Pod,
    prepare::{Prepared, Subject},
};
use palisade_policy::standards::{
    evaluator::Evaluator,
    level::{Level, LevelVersion, Version},
};
use palisade_yaml::{Limits, parse};

use crate::Failure;

/// Judges every fixture below a folder; fails if any verdict is wrong. Says so if the folder is not there.
pub(crate) fn run(folder: &Path) -> Result<(), Failure> {
    if !folder.is_dir() {
        println!("\nNOT RUN: upstream's fixtures are not at hand ({})", folder.display());
        return Ok(());
    }
    let evaluator = Evaluator::default();
    let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for entry in walkdir::WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.map_err(|error| Failure(error.to_string()))?;
        if entry.path().extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let relative = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let [level, version, verdict, name] = parts.as_slice() else { continue };
        let policy = LevelVersion::new(
            level.parse::<Level>().map_err(|error| Failure(format!("{level}: {error}")))?,
            version.parse::<Version>().map_err(|error| Failure(format!("{version}: {error}")))?,
        );
        let text = fs::read_to_string(entry.path()).map_err(|error| Failure(error.to_string()))?;
        let parsed = parse(&text, &Limits::default());
        let document =
            parsed.documents.first().ok_or_else(|| Failure(format!("{name} holds no document")))?;
        let pod: Pod<'_> = document.deserialize().map_err(|error| Failure(format!("{name}: {error}")))?;
        let outcome = evaluator.evaluate(policy, &Prepared::new(pod, Subject::Pod, &Compat::kubernetes(37)));
        let row = table.entry(level.clone()).or_default();
        row.0 += 1;
        if outcome.allowed() == (verdict == "pass") {
            row.1 += 1;
        } else {
            wrong.push(format!("{}: {}", relative.display(), outcome.details()));
        }
    }
    println!("\n{:<18} {:>7} {:>7} {:>9}", "fixtures", "total", "right", "wrong");
    for (level, (total, right)) in &table {
        println!("{level:<18} {total:>7} {right:>7} {:>9}", total - right);
    }
    wrong.iter().take(10).for_each(|line| println!("{line}"));
    if wrong.is_empty() { Ok(()) } else { Err(Failure(format!("{} fixtures are judged wrong", wrong.len()))) }
}
