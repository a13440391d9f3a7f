//! Whether a binary is what an image without libraries can run.
//!
//! Implements: System V ABI, "ELF Header", "Program Header", "Dynamic Section". A binary of another architecture cannot be run to find out.

/// `e_machine` of x86-64 and AArch64.
pub(super) const X86_64: u16 = 62;
pub(super) const AARCH64: u16 = 183;

const INTERPRETER: u32 = 3;
const DYNAMIC: u32 = 2;
const NEEDED: u64 = 1;

/// Why a binary cannot run alone on a machine; `None` if it can.
pub(super) fn objection(binary: &[u8], machine: u16) -> Option<String> {
    let Some(file) = Elf::read(binary) else {
        return Some("it is no 64-bit little-endian ELF file".to_owned());
    };
    if file.machine != machine {
        return Some(format!("it is for machine {}, not {machine}", file.machine));
    }
    match file.needs_loader() {
        Some(false) => None,
        Some(true) => Some("it is not static: it needs a loader or shared libraries".to_owned()),
        None => Some("its program headers cannot be read".to_owned()),
    }
}

struct Elf<'b> {
    bytes: &'b [u8],
    machine: u16,
    headers: usize,
    header_size: usize,
    count: usize,
}

impl<'b> Elf<'b> {
    fn read(bytes: &'b [u8]) -> Option<Self> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        Some(Self {
            bytes,
            machine: half(bytes, 18)?,
            headers: usize::try_from(long(bytes, 32)?).ok()?,
            header_size: half(bytes, 54)?.into(),
            count: half(bytes, 56)?.into(),
        })
    }

    fn needs_loader(&self) -> Option<bool> {
        if self.count == 0 {
            return None;
        }
        for index in 0..self.count {
            let at = self.headers.checked_add(index.checked_mul(self.header_size)?)?;
            match word(self.bytes, at)? {
                INTERPRETER => return Some(true),
                DYNAMIC => {
                    let start = usize::try_from(long(self.bytes, at.checked_add(8)?)?).ok()?;
                    let size = usize::try_from(long(self.bytes, at.checked_add(32)?)?).ok()?;
                    let entries = self.bytes.get(start..start.checked_add(size)?)?.chunks_exact(16);
                    if entries.into_iter().any(|entry| long(entry, 0) == Some(NEEDED)) {
                        return Some(true);
                    }
                }
                _ => {}
            }
        }
        Some(false)
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{AARCH64, DYNAMIC, INTERPRETER, NEEDED, X86_64, objection};

    /// A header, one program header of a type, and a dynamic section with one entry.
    fn elf(machine: u16, header: u32, tag: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 + 16];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, b"\x7fELF\x02\x01");
        put(18, &machine.to_le_bytes());
        put(32, &64_u64.to_le_bytes());
        put(54, &56_u16.to_le_bytes());
        put(56, &1_u16.to_le_bytes());
        put(64, &header.to_le_bytes());
        put(72, &120_u64.to_le_bytes());
        put(96, &16_u64.to_le_bytes());
        put(120, &tag.to_le_bytes());
        bytes
    }

    #[test]
    fn accepts_what_runs_alone() {
        let mut long = elf(X86_64, DYNAMIC, 0);
        long[96..104].copy_from_slice(&17_000_u64.to_le_bytes());
        for (case, bytes, machine, expected) in [
            ("static", elf(X86_64, 1, 0), X86_64, None),
            ("static, relocated by itself", elf(AARCH64, DYNAMIC, 7), AARCH64, None),
            ("a loader", elf(X86_64, INTERPRETER, 0), X86_64, Some("it is not static")),
            ("a library", elf(X86_64, DYNAMIC, NEEDED), X86_64, Some("it is not static")),
            ("another machine", elf(X86_64, 1, 0), AARCH64, Some("it is for machine 62")),
            ("a section behind the end", long, X86_64, Some("its program headers cannot be read")),
            ("cut off", elf(X86_64, 1, 0)[..60].to_vec(), X86_64, Some("its program headers cannot be read")),
            ("a script", b"#!/bin/sh".to_vec(), X86_64, Some("it is no 64-bit")),
        ] {
            let found = objection(&bytes, machine);
            assert_eq!(found.is_some(), expected.is_some(), "{case}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{case}");
        }
    }

    #[test]
    fn the_tests_themselves_need_a_loader() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let machine = if cfg!(target_arch = "x86_64") { X86_64 } else { AARCH64 };
        assert!(objection(&own, machine).is_some_and(|found| found.starts_with("it is not static")));
    }
}
