//! The system calls of Linux, on every architecture: names, numbers and the release that brought them.
//!
//! The facts are in `syscalls.txt`, read on first use. A runtime ignores a name that it does not recognize, which is why a
//! misspelt one is worth a warning.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{architecture::Architecture, document::KernelVersion};

const TABLE: &str = include_str!("syscalls.txt");

static SYSCALLS: LazyLock<Table> = LazyLock::new(|| Table::read(TABLE));

/// By what a filter and its listener see of a call.
static NUMBERS: LazyLock<BTreeMap<(u32, u32), (Architecture, Syscall)>> = LazyLock::new(|| {
    let numbers = |architecture: Architecture| {
        let numbered = move |call: Syscall| Some(((architecture.audit(), call.number(architecture)?), call));
        Syscall::all().filter_map(numbered).map(move |(key, call)| (key, (architecture, call)))
    };
    Architecture::all().flat_map(numbers).collect()
});

struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    since: KernelVersion,
    numbers: Vec<Option<u32>>,
}

impl Table {
    fn read(text: &'static str) -> Self {
        let mut table = Self { columns: Vec::new(), rows: Vec::new() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("@"), Some(first)) => table.columns = std::iter::once(first).chain(words).collect(),
                (Some(name), Some(since)) => {
                    let since = since
                        .split_once('.')
                        // swallowed: our own table, which its test reads whole
                        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
                    // swallowed: `-` in our own table: no such call on this architecture
                    let numbers = words.map(|number| number.parse().ok()).collect();
                    table.rows.push(Row { name, since: since.unwrap_or_default(), numbers });
                }
                _ => {}
            }
        }
        table
    }
}

/// A system call that some architecture has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Syscall(u16);

impl Syscall {
    /// All of them, sorted by name.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..u16::try_from(SYSCALLS.rows.len()).unwrap_or(u16::MAX)).map(Self)
    }

    /// The call of that name on any architecture.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        // swallowed: a name that is not in the table
        let at = SYSCALLS.rows.binary_search_by(|row| row.name.cmp(name)).ok()?;
        // swallowed: the table has fewer rows than that
        u16::try_from(at).ok().map(Self)
    }

    fn row(self) -> Option<&'static Row> {
        SYSCALLS.rows.get(usize::from(self.0))
    }

    /// The call that a kernel reports by `AUDIT_ARCH_…` and number, and the convention that it was made by.
    #[must_use]
    pub fn reported(audit: u32, number: u32) -> Option<(Architecture, Self)> {
        NUMBERS.get(&(audit, number)).copied()
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().map_or("", |row| row.name)
    }

    /// The first release that has it on any architecture; 0.0 if it is older than seccomp filters.
    #[must_use]
    pub fn since(self) -> KernelVersion {
        self.row().map_or((0, 0), |row| row.since)
    }

    /// The number that a filter sees; none if the architecture does not have the call.
    #[must_use]
    pub fn number(self, architecture: Architecture) -> Option<u32> {
        let column = SYSCALLS.columns.iter().position(|column| *column == architecture.column())?;
        let number = *self.row()?.numbers.get(column)?;
        // Calls of the ARM kernel itself have numbers far above all others.
        number.map(|number| number + architecture.offset())
    }
}

/// The known name nearest to a misspelt one, if one is near enough to have been meant.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    crate::spelling::nearest(name, Syscall::all().map(Syscall::name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_is_sorted_and_complete() {
        let table = &*SYSCALLS;
        assert!(table.rows.is_sorted_by_key(|row| row.name));
        assert!(table.rows.len() > 500);
        assert!(table.rows.iter().all(|row| row.numbers.len() == table.columns.len()));
        for architecture in Architecture::all() {
            assert!(table.columns.contains(&architecture.column()), "{}", architecture.token());
            let numbers: Vec<u32> = Syscall::all().filter_map(|call| call.number(architecture)).collect();
            for call in Syscall::all() {
                let Some(number) = call.number(architecture) else { continue };
                assert_eq!(Syscall::reported(architecture.audit(), number), Some((architecture, call)));
            }
            assert_eq!(
                numbers.len(),
                numbers.iter().collect::<BTreeSet<_>>().len(),
                "no number is used twice"
            );
        }
    }

    #[test]
    fn knows_the_calls_of_every_architecture_and_release() {
        for (name, architecture, number, since) in [
            ("read", "SCMP_ARCH_X86_64", Some(0), (0, 0)),
            ("read", "SCMP_ARCH_X32", Some(0x4000_0000), (0, 0)),
            ("read", "SCMP_ARCH_MIPSEL64", Some(5000), (0, 0)),
            ("open", "SCMP_ARCH_AARCH64", None, (0, 0)),
            ("openat2", "SCMP_ARCH_S390X", Some(437), (5, 6)),
            ("riscv_hwprobe", "SCMP_ARCH_RISCV64", Some(258), (6, 4)),
            ("riscv_hwprobe", "SCMP_ARCH_X86_64", None, (6, 4)),
            ("mseal", "SCMP_ARCH_PPC64LE", Some(462), (6, 10)),
            ("listns", "SCMP_ARCH_ARM", Some(470), (6, 19)),
        ] {
            let call = Syscall::named(name).unwrap();
            assert_eq!(call.number(Architecture::named(architecture).unwrap()), number, "{name}");
            assert_eq!((call.name(), call.since()), (name, since));
        }
        assert_eq!(Syscall::named("opne"), None);
    }

    #[test]
    fn a_misspelt_name_finds_what_was_meant() {
        assert_eq!(nearest("opennat"), Some("openat"));
        assert_eq!(nearest("mkdirt"), Some("mkdir"));
        assert_eq!(nearest("completely_made_up"), None);
    }
}
