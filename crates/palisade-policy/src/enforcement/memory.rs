//! What the workloads of a namespace need, including those that are gone for the moment.
//!
//! A level that follows only what is there now would break a Deployment that is deleted and made again: between the two
//! nothing needs its level. So a need is remembered by workload, kept in an annotation of the namespace, and given up only
//! when a pod of the same workload was seen that needs less, or after [`RETENTION_DAYS`].
//!
//! Leaves to others: which pods and templates count (`palisade-controllers`), and the clock: days are a parameter.

use std::{collections::BTreeMap, sync::Arc};

use palisade_base::time::{civil_from_days, days_from_civil};

use crate::standards::level::Level;

/// Annotation of a namespace: its workloads that need less than `restricted`, such as
/// `Deployment/web=baseline, Job/import=privileged until 2026-12-01`.
pub const MEMORY_ANNOTATION: &str = "palisade.dev/workload-levels";

/// For how many days a workload that is gone keeps its level.
pub const RETENTION_DAYS: i64 = 30;

/// How many workloads the annotation names. The rest is one entry.
const MOST_NAMED: usize = 32;
/// The name of that entry.
const OTHERS: &str = "*";

/// The needs of the workloads of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    entries: BTreeMap<Arc<str>, Entry>,
    /// Workloads that turned out to be controlled by others, such as a ReplicaSet by its Deployment.
    aliases: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The level it needs, or needed.
    level: Level,
    /// How many objects of it need `privileged` and `baseline` now.
    present: [u32; 2],
    /// The loosest level that pods of it needed since its level was last needed.
    complied: Option<Level>,
    /// Until which day it is remembered, once nothing of it needs the level.
    until: Option<i64>,
}

impl Entry {
    const fn present(&self) -> Level {
        match self.present {
            [0, 0] => Level::Restricted,
            [0, _] => Level::Baseline,
            _ => Level::Privileged,
        }
    }

    fn count(&mut self, level: Level) -> Option<&mut u32> {
        self.present.get_mut(level as usize)
    }

    fn settle(&mut self, today: i64) {
        let present = self.present();
        if present < self.level {
            (self.level, self.complied, self.until) = (present, None, None);
        } else if present == self.level {
            self.until = None;
        } else if let Some(complied) = self.complied {
            self.level = present.min(complied);
            // What is less strict than what is there is remembered, like everything that is gone.
            self.until = (present > self.level).then_some(today.saturating_add(RETENTION_DAYS));
        } else if self.until.is_none() {
            self.until = Some(today.saturating_add(RETENTION_DAYS));
        }
    }
}

impl Memory {
    /// The level that everything remembered complies with.
    #[must_use]
    pub fn level(&self) -> Level {
        self.entries.values().map(|entry| entry.level).min().unwrap_or(Level::Restricted)
    }

    /// Whether nothing needs less than `restricted`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The workloads that need no more than a level, by name.
    pub fn needing(&self, level: Level) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(move |(_, entry)| entry.level <= level).map(|(name, _)| &**name)
    }

    /// An object of a workload is there that needs a level.
    pub fn appear(&mut self, workload: &Arc<str>, level: Level, today: i64) {
        if level == Level::Restricted {
            return;
        }
        let name = Arc::clone(self.aliases.get(workload).unwrap_or(workload));
        let entry =
            self.entries.entry(name).or_insert(Entry { level, present: [0, 0], complied: None, until: None });
        if let Some(count) = entry.count(level) {
            *count = count.saturating_add(1);
        }
        if level <= entry.level {
            // Whatever complied before, this one does not.
            entry.complied = None;
        }
        entry.settle(today);
    }

    /// An object of a workload is gone that needed a level.
    pub fn vanish(&mut self, workload: &Arc<str>, level: Level, today: i64) {
        self.change(workload, |entry| {
            if let Some(count) = entry.count(level) {
                *count = count.saturating_sub(1);
            }
            entry.settle(today);
        });
    }

    /// A pod of a workload was made just now that needs no more than a level: what admission really makes of its template.
    pub fn comply(&mut self, workload: &Arc<str>, level: Level, today: i64) {
        self.change(workload, |entry| {
            if level > entry.level {
                entry.complied = Some(entry.complied.map_or(level, |complied| complied.min(level)));
                entry.settle(today);
            }
        });
    }

    fn change(&mut self, workload: &Arc<str>, change: impl FnOnce(&mut Entry)) {
        let name = Arc::clone(self.aliases.get(workload).unwrap_or(workload));
        if let Some(entry) = self.entries.get_mut(&name) {
            change(entry);
            if entry.level == Level::Restricted {
                self.entries.remove(&name);
            }
        }
    }

    /// A workload is controlled by another, of which that was not known when its pods were seen.
    pub fn rename(&mut self, from: &Arc<str>, to: &Arc<str>) {
        if from == to {
            return;
        }
        let Some(moved) = self.entries.remove(from) else { return };
        self.aliases.insert(Arc::clone(from), Arc::clone(to));
        match self.entries.get_mut(to) {
            None => drop(self.entries.insert(Arc::clone(to), moved)),
            Some(entry) => {
                for (count, more) in entry.present.iter_mut().zip(moved.present) {
                    *count = count.saturating_add(more);
                }
                if moved.level < entry.level {
                    (entry.level, entry.complied) = (moved.level, moved.complied);
                }
                entry.until = entry.until.zip(moved.until).map(|(one, other)| one.max(other));
            }
        }
    }

    /// Takes up what an earlier controller wrote. What is no entry is no need; what is there already is kept.
    pub fn recall(&mut self, annotation: &str, today: i64) {
        for part in annotation.split(',') {
            let Some((name, need)) = part.trim().split_once('=') else { continue };
            let longest = today.saturating_add(RETENTION_DAYS);
            let (level, until) = match need.split_once(" until ") {
                // No need is written down for longer than that.
                Some((level, day)) => (level, read_day(day).map(|day| day.min(longest))),
                // It was there when this was written, and may have gone since.
                None => (need, Some(longest)),
            };
            // swallowed: what cannot be read was not written by the label syncer
            let Ok(level) = level.parse::<Level>() else { continue };
            let Some(until) = until.filter(|day| *day >= today) else { continue };
            if level == Level::Restricted {
                continue;
            }
            let fresh = Entry { level, present: [0, 0], complied: None, until: Some(until) };
            let entry = self.entries.entry(name.into()).or_insert(fresh);
            entry.level = entry.level.min(level);
            entry.settle(today);
        }
    }

    /// Forgets what is gone for long enough; returns whether there was such.
    pub fn expire(&mut self, today: i64) -> bool {
        let mut changed = false;
        self.entries.retain(|_, entry| {
            if entry.until.is_none_or(|day| day >= today) {
                return true;
            }
            changed = true;
            entry.level = entry.present();
            entry.until = None;
            entry.level != Level::Restricted
        });
        changed
    }

    /// The annotation to write; `None` if there is nothing to remember.
    #[must_use]
    pub fn annotation(&self) -> Option<String> {
        let mut named: Vec<(&str, Level, Option<i64>)> =
            self.entries.iter().map(|(name, entry)| (&**name, entry.level, entry.until)).collect();
        if named.len() > MOST_NAMED {
            // Those that need the most come first, and what is left out keeps the level of the first of them.
            named.sort_by(|one, other| (one.1, one.0).cmp(&(other.1, other.0)));
            let rest = named.split_off(MOST_NAMED - 1);
            if let Some(&(_, level, _)) = rest.first() {
                let until = rest
                    .iter()
                    .map(|(_, _, until)| *until)
                    .try_fold(i64::MIN, |latest, until| until.map(|until| latest.max(until)));
                named.push((OTHERS, level, until));
            }
            named.sort_by_key(|(name, ..)| *name);
        }
        let parts: Vec<String> = named
            .into_iter()
            .map(|(name, level, until)| match until {
                None => format!("{name}={level}"),
                Some(day) => format!("{name}={level} until {}", day_text(day)),
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

fn day_text(day: i64) -> String {
    let (year, month, day) = civil_from_days(day);
    format!("{year:04}-{month:02}-{day:02}")
}

fn read_day(text: &str) -> Option<i64> {
    // swallowed: what is not a day was not written by the label syncer, and its entry does not count
    let mut parts = text.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let is_day = (0..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    is_day.then(|| days_from_civil(year, month, day))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Level, MOST_NAMED, Memory, RETENTION_DAYS};

    enum Step {
        Appear(&'static str, Level),
        Vanish(&'static str, Level),
        Comply(&'static str, Level),
        Rename(&'static str, &'static str),
        Restart,
        Day(i64),
    }
    use Step::{Appear, Comply, Day, Rename, Restart, Vanish};

    fn after(steps: &[Step]) -> String {
        let (mut memory, mut today) = (Memory::default(), 20_000);
        for step in steps {
            match *step {
                Appear(name, level) => memory.appear(&Arc::from(name), level, today),
                Vanish(name, level) => memory.vanish(&Arc::from(name), level, today),
                Comply(name, level) => memory.comply(&Arc::from(name), level, today),
                Rename(from, to) => memory.rename(&Arc::from(from), &Arc::from(to)),
                Restart => {
                    let text = memory.annotation();
                    memory = Memory::default();
                    memory.recall(text.as_deref().unwrap_or_default(), today);
                }
                Day(days) => {
                    today += days;
                    memory.expire(today);
                }
            }
        }
        format!("{} ({})", memory.level(), memory.annotation().unwrap_or_default())
    }

    #[test]
    fn a_need_outlives_its_objects() {
        use Level::{Baseline, Privileged, Restricted};
        for (case, steps, expected) in [
            ("nothing", vec![], "restricted ()"),
            ("needs restricted", vec![Appear("Pod/a", Restricted)], "restricted ()"),
            (
                "the loosest decides",
                vec![Appear("Pod/a", Baseline), Appear("Pod/b", Privileged)],
                "privileged (Pod/a=baseline, Pod/b=privileged)",
            ),
            (
                "gone, and remembered",
                vec![Appear("Pod/a", Privileged), Vanish("Pod/a", Privileged)],
                "privileged (Pod/a=privileged until 2024-11-03)",
            ),
            (
                "made again",
                vec![
                    Appear("Pod/a", Privileged),
                    Vanish("Pod/a", Privileged),
                    Day(3),
                    Appear("Pod/a", Privileged),
                ],
                "privileged (Pod/a=privileged)",
            ),
            (
                "gone for good",
                vec![Appear("Pod/a", Privileged), Vanish("Pod/a", Privileged), Day(RETENTION_DAYS + 1)],
                "restricted ()",
            ),
            (
                "a template that complies is not enough",
                vec![Appear("Deployment/a", Baseline), Vanish("Deployment/a", Baseline), Day(1)],
                "baseline (Deployment/a=baseline until 2024-11-03)",
            ),
            (
                "fixed: a pod complies, the last one that does not is gone",
                vec![
                    Appear("Deployment/a", Privileged),
                    Comply("Deployment/a", Restricted),
                    Vanish("Deployment/a", Privileged),
                ],
                "restricted ()",
            ),
            (
                "fixed halfway",
                vec![
                    Appear("Deployment/a", Privileged),
                    Appear("Deployment/a", Baseline),
                    Comply("Deployment/a", Baseline),
                    Vanish("Deployment/a", Privileged),
                ],
                "baseline (Deployment/a=baseline)",
            ),
            (
                "a pod that complies while another does not changes nothing",
                vec![Appear("Deployment/a", Privileged), Comply("Deployment/a", Restricted)],
                "privileged (Deployment/a=privileged)",
            ),
            (
                "a restart in between",
                vec![Appear("Pod/a", Privileged), Restart],
                "privileged (Pod/a=privileged until 2024-11-03)",
            ),
            (
                "a restart, and it is there again",
                vec![Appear("Pod/a", Privileged), Restart, Appear("Pod/a", Privileged)],
                "privileged (Pod/a=privileged)",
            ),
            (
                "the owner is known later",
                vec![
                    Appear("ReplicaSet/a-1", Baseline),
                    Rename("ReplicaSet/a-1", "Deployment/a"),
                    Vanish("ReplicaSet/a-1", Baseline),
                    Comply("Deployment/a", Restricted),
                ],
                "restricted ()",
            ),
        ] {
            assert_eq!(after(&steps), expected, "{case}");
        }
    }

    #[test]
    fn the_annotation_is_bounded_and_forgets_no_level() {
        let mut memory = Memory::default();
        for number in 0..200 {
            let level = if number == 150 { Level::Privileged } else { Level::Baseline };
            memory.appear(&format!("Job/import-{number:03}").into(), level, 0);
        }
        let text = memory.annotation().unwrap();
        assert_eq!(text.matches('=').count(), MOST_NAMED);
        assert!(text.contains("*=baseline") && text.contains("Job/import-150=privileged"), "{text}");
        let mut recalled = Memory::default();
        recalled.recall(&text, 0);
        assert_eq!(recalled.level(), Level::Privileged);
        recalled.recall("nonsense, a=b, x=privileged until never, y=baseline until 1969-01-01", 1);
        assert_eq!(recalled.entries.len(), MOST_NAMED, "what cannot be read adds nothing");
    }

    #[test]
    fn no_annotation_is_remembered_for_longer_than_the_label_syncer_remembers() {
        for (until, expected) in [
            ("9223372036854775807-01-01", None),
            ("-9223372036854775808-01-01", None),
            ("2024-13-01", None),
            ("9999-12-31", Some("Pod/a=privileged until 2024-11-03")),
            ("2024-10-05", Some("Pod/a=privileged until 2024-10-05")),
        ] {
            let mut memory = Memory::default();
            memory.recall(&format!("Pod/a=privileged until {until}"), 20_000);
            assert_eq!(memory.annotation().as_deref(), expected, "{until}");
        }
    }
}
