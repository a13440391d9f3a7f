//! Many files at the same time, answers in order.
//!
//! A free worker takes the next file; results are passed on in the order of the files, as soon as all
//! before them are there. So output is deterministic, begins early, and only a few answers wait in memory.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    num::NonZeroUsize,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How many answers may wait for each worker.
const WAITING: usize = 64;

/// Runs `work` on every item with `jobs` workers and hands the answers to `take` in order.
pub fn in_order<T: Sync, R: Send>(
    items: &[T],
    jobs: NonZeroUsize,
    progress: &Progress,
    work: impl Fn(&T) -> R + Sync,
    mut take: impl FnMut(R),
) {
    let jobs = jobs.get().min(items.len());
    if jobs <= 1 {
        for (done, item) in items.iter().enumerate() {
            take(work(item));
            progress.show(done + 1, items.len());
        }
        progress.clear();
        return;
    }
    let next = AtomicUsize::new(0);
    let (answers, incoming) = mpsc::sync_channel::<(usize, R)>(jobs * WAITING);
    thread::scope(|scope| {
        for _ in 0..jobs {
            let (answers, next, work) = (answers.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    if answers.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(answers);
        let mut early = BTreeMap::new();
        let mut expected = 0;
        for (index, answer) in incoming {
            early.insert(index, answer);
            while let Some(answer) = early.remove(&expected) {
                take(answer);
                expected += 1;
            }
            progress.show(expected, items.len());
        }
    });
    progress.clear();
}

/// A bar on stderr, once the work takes longer than a second.
#[derive(Debug)]
pub struct Progress {
    begun: Instant,
    bar: Option<ProgressBar>,
}

const PATIENCE: Duration = Duration::from_secs(1);

impl Progress {
    /// Wanted by the user, and useful only on a terminal.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        let bar = (wanted && io::stderr().is_terminal()).then(ProgressBar::hidden);
        Self { begun: Instant::now(), bar }
    }

    fn show(&self, done: usize, total: usize) {
        let Some(bar) = &self.bar else { return };
        if bar.is_hidden() {
            if self.begun.elapsed() < PATIENCE {
                return;
            }
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.set_length(total as u64);
            if let Ok(style) = ProgressStyle::with_template("checking {bar:30} {pos}/{len} files, {eta} left")
            {
                bar.set_style(style);
            }
        }
        bar.set_position(done as u64);
    }

    /// Whether stderr is a terminal, so that a bar may come at any time.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        self.bar.is_some()
    }

    /// Prints something else while the progress bar is hidden.
    pub fn around(&self, print: impl FnOnce()) {
        match self.bar.as_ref().filter(|bar| !bar.is_hidden()) {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// As many workers as the machine has processors.
#[must_use]
pub fn default_jobs() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::{Progress, in_order};

    #[test]
    fn results_are_in_order_however_long_each_takes() {
        let items: Vec<u64> = (0..500).collect();
        let work = |item: &u64| {
            std::thread::sleep(std::time::Duration::from_micros(item * 7 % 50));
            *item
        };
        for jobs in [1, 2, 8] {
            let mut seen = Vec::new();
            let jobs = NonZeroUsize::new(jobs).unwrap();
            in_order(&items, jobs, &Progress::new(false), work, |answer| seen.push(answer));
            assert_eq!(seen, items);
        }
    }
}
