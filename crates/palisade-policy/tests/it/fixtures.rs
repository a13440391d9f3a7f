//! Upstream's fixture pods, each judged at the level and version of its folder.

use std::{collections::BTreeMap, fs, path::Path};

use palisade_model::{
    compat::Compat,
    pod::Pod,
    prepare::{Prepared, Subject},
};
use palisade_policy::standards::{evaluator::Evaluator, level::LevelVersion};
use palisade_testkit::shared;
use palisade_yaml::{Limits, parse};

/// The entries of a folder, sorted.
fn entries(folder: &Path) -> Vec<(String, std::path::PathBuf)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut entries: Vec<_> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect();
    entries.sort();
    entries
}

#[test]
fn every_fixture_is_judged_as_its_folder_names() {
    let Some(folder) = shared("fixtures/pod-security-standards") else { return };
    let evaluator = Evaluator::default();
    let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (level, folder) in ["baseline", "restricted"].map(|level| (level.to_owned(), folder.join(level))) {
        for (version, folder) in entries(&folder) {
            let policy = LevelVersion::new(level.parse().unwrap(), version.parse().unwrap());
            for (verdict, folder) in entries(&folder) {
                for (name, file) in entries(&folder) {
                    let text = fs::read_to_string(file).unwrap();
                    let parsed = parse(&text, &Limits::default());
                    let pod: Pod<'_> = parsed.documents[0].deserialize().unwrap();
                    let prepared = Prepared::new(pod, Subject::Pod, &Compat::kubernetes(37));
                    let outcome = evaluator.evaluate(policy, &prepared);
                    let row = table.entry(level.clone()).or_default();
                    row.0 += 1;
                    if outcome.allowed() == (verdict == "pass") {
                        row.1 += 1;
                    } else {
                        wrong.push(format!("{level}/{version}/{verdict}/{name}: {}", outcome.details()));
                    }
                }
            }
        }
    }
    println!("\n{:<18} {:>7} {:>7} {:>9}", "fixtures", "total", "right", "wrong");
    for (level, (total, right)) in &table {
        println!("{level:<18} {total:>7} {right:>7} {:>9}", total - right);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(table.values().map(|row| row.0).sum::<usize>() >= 1600, "{table:?}");
}
