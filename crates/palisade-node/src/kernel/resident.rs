//! Gives back to the kernel what is resident and not used: the code of the start, and memory that was freed.
//!
//! Nearly all that is resident of an idle agent or server is its own code: what reads the command line, a kubeconfig and
//! certificates runs once, and every page of it stays mapped, with its neighbours, for as long as the process lives. The pages
//! are clean and the file's, so unmapping them costs nothing but a short fault where one is needed again; what still runs is back
//! at once, and the rest is no longer counted against the node. Memory that holds data is never touched.
//!
//! Reading a large document takes several times its size for a moment, in pieces among what is kept. The allocator of glibc keeps
//! their pages for later; here they are released as soon as the work is done.
//!
//! When to do so is left to the caller.
#![allow(unsafe_code, reason = "no safe call unmaps pages or trims the heap")]

use std::{fs, path::Path};

use rustix::mm::{Advice, madvise};

/// Unmaps the pages of this program's code. Where /proc is missing nothing is given back.
pub fn give_code_back() {
    let (Ok(program), Ok(maps)) = (fs::read_link("/proc/self/exe"), fs::read_to_string("/proc/self/maps"))
    else {
        return;
    };
    for (start, length) in maps.lines().filter_map(|line| code_of(&program, line)) {
        // SAFETY: the range is a mapping of this program's file that can be executed and not written, so that no page of it
        // differs from the file: the next access, by this very function too, gets the same bytes from the file.
        let _ = unsafe { madvise(start as *mut _, length, Advice::LinuxDontNeed) };
    }
}

/// Releases the pages of the heap that hold nothing. Other allocators than that of glibc do so by themselves.
pub fn give_freed_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no arguments that could be wrong, takes the locks of the allocator, and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// How many bytes of this process are resident, if /proc has it.
#[must_use]
pub fn resident_bytes() -> Option<usize> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    pages.split_ascii_whitespace().nth(1)?.parse::<usize>().ok()?.checked_mul(rustix::param::page_size())
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

    use super::code_of;

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
}
