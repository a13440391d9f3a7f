//! Gives the code of the start back to the kernel.
//!
//! Nearly all that is resident of an idle agent or server is its own code: what reads the command line, a kubeconfig and
//! certificates runs once, and every page of it stays mapped, with its neighbours, for as long as the process lives. The pages
//! are clean and the file's, so unmapping them costs nothing but a short fault where one is needed again; what still runs is back
//! at once, and the rest is no longer counted against the node. Memory that holds data is never touched.

use std::{fs, path::Path, time::Duration};

use rustix::mm::{Advice, madvise};

/// The start is over, what was read first has been worked on, and from then on now and then: reloading a certificate or writing a
/// report wakes code that sleeps for hours afterwards.
const FIRST: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
const THEN: Duration = Duration::from_secs(60);

/// Gives code back for as long as the process lives.
pub(crate) async fn stay_small() {
    for pause in FIRST.into_iter().chain(std::iter::repeat(THEN)) {
        tokio::time::sleep(pause).await;
        give_code_back();
    }
}

/// Unmaps the pages of this program's code. Where /proc is missing nothing is given back.
fn give_code_back() {
    let (Ok(program), Ok(maps)) = (fs::read_link("/proc/self/exe"), fs::read_to_string("/proc/self/maps"))
    else {
        return;
    };
    for (start, length) in maps.lines().filter_map(|line| code_of(&program, line)) {
        // SAFETY: the range is a mapping of this program's file that can be executed and not written, so that no page of it
        // differs from the file: whoever touches one next, this very function included, gets the same bytes from the file.
        let _ = unsafe { madvise(start as *mut _, length, Advice::LinuxDontNeed) };
    }
}

/// Start and length of a mapping in a line of `/proc/self/maps`, if it is code of the program.
fn code_of(program: &Path, line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    // Offset, device and inode stand between the permissions and the path, which may hold blanks.
    let path = line.get(line.find('/')?..)?;
    if permissions != "r-xp" || Path::new(path) != program {
        return None;
    }
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{code_of, give_code_back};

    #[test]
    fn only_code_of_the_program_is_given_back() {
        let program = Path::new("/usr/local/my bin/palisade");
        for (line, expected) in [
            (
                "555746a70000-555746a72000 r-xp 005b2000 fe:00 131 /usr/local/my bin/palisade",
                Some((0x5557_46a7_0000, 0x2000)),
            ),
            ("555746a70000-555746a72000 r--p 005b2000 fe:00 131 /usr/local/my bin/palisade", None),
            ("555746a70000-555746a72000 rw-p 005b2000 fe:00 131 /usr/local/my bin/palisade", None),
            ("555746a70000-555746a72000 rwxp 005b2000 fe:00 131 /usr/local/my bin/palisade", None),
            ("555746a70000-555746a72000 r-xp 005b2000 fe:00 131 /usr/lib/libc.so.6", None),
            ("7ffd1c9f6000-7ffd1c9f8000 r-xp 00000000 00:00 0 [vdso]", None),
            ("555746a72000-555746a70000 r-xp 005b2000 fe:00 131 /usr/local/my bin/palisade", None),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(code_of(program, line), expected, "{line}");
        }
    }

    #[test]
    fn less_is_resident_afterwards_and_everything_still_works() {
        let resident = || -> u64 {
            let status =
                std::fs::read_to_string("/proc/self/status").expect("Linux tells the sizes of a process");
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).expect("RssFile");
            line.trim().trim_end_matches(" kB").parse().expect("a number")
        };
        let before = resident();
        give_code_back();
        let after = resident();
        assert!(after < before, "{after} of {before} kB of files are resident");
        assert_eq!("still here".split(' ').count(), 2);
    }
}
