//! The architectures a seccomp profile may name, as far as system calls and their arguments are concerned.
//!
//! Implements: `architectures` of the OCI runtime specification, "Seccomp", with libseccomp's tokens.
//! <https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp>

/// An architecture, or rather a calling convention: a machine may offer several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture(&'static Convention);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Convention {
    /// As profiles write it.
    token: &'static str,
    /// `AUDIT_ARCH_…`: how the kernel names it to a filter. x32 shares that of x86-64.
    audit: u32,
    /// The column in the table of system calls.
    column: &'static str,
    /// Width of a register: a filter compares no more of an argument.
    bits: u32,
    little_endian: bool,
    /// Added to the number in the table.
    offset: u32,
    /// The 64-bit machines that also run programs of this convention.
    hosts: &'static [&'static str],
}

const fn row(
    token: &'static str,
    audit: u32,
    column: &'static str,
    bits: u32,
    little_endian: bool,
    offset: u32,
    hosts: &'static [&'static str],
) -> Convention {
    Convention { token, audit, column, bits, little_endian, offset, hosts }
}

const MIPS64: &[&str] = &["SCMP_ARCH_MIPS64"];
const MIPSEL64: &[&str] = &["SCMP_ARCH_MIPSEL64"];

static CONVENTIONS: &[Convention] = &[
    row("SCMP_ARCH_AARCH64", 0xc000_00b7, "aarch64", 64, true, 0, &[]),
    row("SCMP_ARCH_ARM", 0x4000_0028, "arm", 32, true, 0, &["SCMP_ARCH_AARCH64"]),
    row("SCMP_ARCH_LOONGARCH64", 0xc000_0102, "loongarch64", 64, true, 0, &[]),
    row("SCMP_ARCH_M68K", 0x4, "m68k", 32, false, 0, &[]),
    row("SCMP_ARCH_MIPS", 0x8, "mips", 32, false, 4000, MIPS64),
    row("SCMP_ARCH_MIPS64", 0x8000_0008, "mips64", 64, false, 5000, &[]),
    row("SCMP_ARCH_MIPS64N32", 0xa000_0008, "mips64n32", 32, false, 6000, MIPS64),
    row("SCMP_ARCH_MIPSEL", 0x4000_0008, "mips", 32, true, 4000, MIPSEL64),
    row("SCMP_ARCH_MIPSEL64", 0xc000_0008, "mips64", 64, true, 5000, &[]),
    row("SCMP_ARCH_MIPSEL64N32", 0xe000_0008, "mips64n32", 32, true, 6000, MIPSEL64),
    row("SCMP_ARCH_PARISC", 0xf, "parisc", 32, false, 0, &["SCMP_ARCH_PARISC64"]),
    row("SCMP_ARCH_PARISC64", 0x8000_000f, "parisc64", 64, false, 0, &[]),
    row("SCMP_ARCH_PPC", 0x14, "ppc", 32, false, 0, &["SCMP_ARCH_PPC64"]),
    row("SCMP_ARCH_PPC64", 0x8000_0015, "ppc64", 64, false, 0, &[]),
    row("SCMP_ARCH_PPC64LE", 0xc000_0015, "ppc64", 64, true, 0, &[]),
    row("SCMP_ARCH_RISCV64", 0xc000_00f3, "riscv64", 64, true, 0, &[]),
    row("SCMP_ARCH_S390", 0x16, "s390", 32, false, 0, &["SCMP_ARCH_S390X"]),
    row("SCMP_ARCH_S390X", 0x8000_0016, "s390x", 64, false, 0, &[]),
    row("SCMP_ARCH_SH", 0x4000_002a, "sh", 32, true, 0, &[]),
    row("SCMP_ARCH_SHEB", 0x2a, "sh", 32, false, 0, &[]),
    row("SCMP_ARCH_X32", 0xc000_003e, "x32", 32, true, 0x4000_0000, &["SCMP_ARCH_X86_64"]),
    row("SCMP_ARCH_X86", 0x4000_0003, "x86", 32, true, 0, &["SCMP_ARCH_X86_64"]),
    row("SCMP_ARCH_X86_64", 0xc000_003e, "x86_64", 64, true, 0, &[]),
];

/// The last of [`CONVENTIONS`].
static X86_64: Convention = row("SCMP_ARCH_X86_64", 0xc000_003e, "x86_64", 64, true, 0, &[]);

impl Architecture {
    /// The most common machine: the one for examples.
    pub const COMMON: Self = Self(&X86_64);

    /// The most common architecture that passes a test.
    pub fn with(test: impl Fn(Self) -> bool) -> Option<Self> {
        [Self::COMMON].into_iter().chain(Self::all()).find(|&architecture| test(architecture))
    }

    /// A machine that also runs programs of this convention.
    #[must_use]
    pub fn host(self) -> Option<Self> {
        self.0.hosts.first().and_then(|token| Self::named(token))
    }

    /// Whether a machine of the architecture `machine` runs programs of this convention.
    #[must_use]
    pub fn runs_on(self, machine: Self) -> bool {
        self == machine || self.0.hosts.contains(&machine.token())
    }

    /// The machine with this name in Go's spelling, as Docker and Kubernetes write it: `amd64`.
    #[must_use]
    pub fn of_go(name: &str) -> Option<Self> {
        Self::named(match name {
            "amd64" => "SCMP_ARCH_X86_64",
            "386" => "SCMP_ARCH_X86",
            "arm64" => "SCMP_ARCH_AARCH64",
            "arm" => "SCMP_ARCH_ARM",
            "loong64" => "SCMP_ARCH_LOONGARCH64",
            "mips64" => "SCMP_ARCH_MIPS64",
            "mips64le" => "SCMP_ARCH_MIPSEL64",
            "ppc64" => "SCMP_ARCH_PPC64",
            "ppc64le" => "SCMP_ARCH_PPC64LE",
            "riscv64" => "SCMP_ARCH_RISCV64",
            "s390x" => "SCMP_ARCH_S390X",
            _ => return None,
        })
    }

    /// All of them, sorted by name.
    pub fn all() -> impl Iterator<Item = Self> {
        CONVENTIONS.iter().map(Self)
    }

    /// The architecture with this token, such as `SCMP_ARCH_X86_64`.
    #[must_use]
    pub fn named(token: &str) -> Option<Self> {
        // swallowed: a token that is not in the table
        let at = CONVENTIONS.binary_search_by(|known| known.token.cmp(token)).ok()?;
        CONVENTIONS.get(at).map(Self)
    }

    /// Its token.
    #[must_use]
    pub const fn token(self) -> &'static str {
        self.0.token
    }

    pub(super) const fn column(self) -> &'static str {
        self.0.column
    }

    /// What the kernel gives to a filter as the architecture of a call: `AUDIT_ARCH_…`.
    #[must_use]
    pub const fn audit(self) -> u32 {
        self.0.audit
    }

    pub(super) const fn offset(self) -> u32 {
        self.0.offset
    }

    /// How many bits of an argument a filter compares.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0.bits
    }

    /// Byte order; a filter cannot mix them.
    #[must_use]
    pub const fn is_little_endian(self) -> bool {
        self.0.little_endian
    }

    /// Whether programs of this convention run beside others: only then does it matter whether a profile names it,
    /// since a runtime always adds the architecture of the machine.
    #[must_use]
    pub const fn is_secondary(self) -> bool {
        !self.0.hosts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_hosts_exist() {
        assert!(Architecture::all().is_sorted_by_key(Architecture::token));
        assert_eq!(Architecture::named("SCMP_ARCH_X86_64"), Some(Architecture::COMMON));
        for architecture in Architecture::all() {
            assert_eq!(Architecture::named(architecture.token()), Some(architecture));
            for host in architecture.0.hosts {
                let host = Architecture::named(host).unwrap();
                assert_eq!(host.is_little_endian(), architecture.is_little_endian());
                assert_eq!(host.bits(), 64);
            }
        }
    }
}
