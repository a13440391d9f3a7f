//! Files that are read again when they change: configuration, certificates.
//!
//! By looking at their times, not by inotify: a mounted ConfigMap or Secret changes by a symbolic link two folders up, and
//! network file systems report nothing. (The node agent watches its profiles with inotify: there every touch counts, not the
//! last content.)

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Calls `read` at once and whenever a file has changed, for ever; if it returns false, for example because only one of two
/// files that belong together has changed, again at the next look. A file that is missing has not changed.
pub async fn follow(files: &[PathBuf], mut read: impl FnMut() -> bool) {
    let mut seen = None;
    loop {
        let now: Option<Vec<_>> = files.iter().map(|file| stamp(file)).collect();
        if now.is_some() && now != seen && read() {
            seen = now;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// When a file was last written, and how long it is.
fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    // swallowed: a file that cannot be looked at has not changed; the last content stays in use
    let metadata = std::fs::metadata(file).ok()?;
    // swallowed: the same
    Some((metadata.modified().ok()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use super::follow;

    #[tokio::test(start_paused = true)]
    async fn reads_at_once_on_change_and_until_it_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write("a");
        let read = RefCell::new(Vec::new());
        let following = follow(std::slice::from_ref(&file), || {
            let text = std::fs::read_to_string(&file).unwrap();
            read.borrow_mut().push(text.clone());
            text != "not yet"
        });
        let scenario = async {
            let seen = async |expected: &[&str]| {
                tokio::time::sleep(Duration::from_millis(1600)).await;
                assert_eq!(*read.borrow(), expected);
                read.borrow_mut().clear();
            };
            seen(&["a"]).await;
            write("a longer one");
            seen(&["a longer one"]).await;
            std::fs::remove_file(&file).unwrap();
            seen(&[]).await;
            write("not yet");
            seen(&["not yet", "not yet", "not yet"]).await;
        };
        tokio::select! {
            () = following => {}
            () = scenario => {}
        }
    }
}
