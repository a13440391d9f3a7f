//! Programs of a few instructions that try one system call, for containers without a compiler.
//!
//! Each exits with the number of the error that the call failed with, as the kernel or a filter returned it: 1 is EPERM, 38 ENOSYS,
//! 97 EAFNOSUPPORT, which only the call itself returns. They are for x86-64.

/// How a program makes `socket(AF_ALG, SOCK_SEQPACKET, 0)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketCall {
    /// As programs do.
    Plain,
    /// With a bit above the 32 that the kernel reads of the family.
    UpperBit,
    /// As a 32-bit program, through `socketcall`.
    Multiplexed,
    /// The twin that is harmless: with another family, that of the internet. It succeeds.
    Internet,
}

/// What a program exits with whose call succeeded, at least.
pub const SUCCEEDED: i32 = 128;

const ADDRESS: u32 = 0x0040_0000;
/// The header of the file and that of its only segment.
const HEADERS: u32 = 64 + 56;

impl SocketCall {
    /// The instructions of the call, which leave its result in `eax`.
    fn code(self) -> Vec<u8> {
        // mov esi, 5; xor edx, edx; mov eax, 41; syscall
        const REST: [u8; 14] = [0xbe, 5, 0, 0, 0, 0x31, 0xd2, 0xb8, 41, 0, 0, 0, 0x0f, 0x05];
        match self {
            // mov edi, 38
            Self::Plain => [&[0xbf, 38, 0, 0, 0][..], &REST].concat(),
            // mov edi, 2; mov esi, 1; xor edx, edx; mov eax, 41; syscall
            Self::Internet => {
                vec![0xbf, 2, 0, 0, 0, 0xbe, 1, 0, 0, 0, 0x31, 0xd2, 0xb8, 41, 0, 0, 0, 0x0f, 0x05]
            }
            // movabs rdi, 0x100000026
            Self::UpperBit => [&[0x48, 0xbf, 38, 0, 0, 0, 1, 0, 0, 0][..], &REST].concat(),
            Self::Multiplexed => {
                // Behind these instructions and the exit are the arguments.
                let arguments = ADDRESS + HEADERS + 17 + EXIT_LENGTH;
                // mov eax, 102; mov ebx, 1; mov ecx, arguments; int 0x80
                let mut code = vec![0xb8, 102, 0, 0, 0, 0xbb, 1, 0, 0, 0, 0xb9];
                code.extend(arguments.to_le_bytes());
                code.extend([0xcd, 0x80]);
                code
            }
        }
    }

    /// The program.
    #[must_use]
    pub fn program(self) -> Vec<u8> {
        let mut body = self.code();
        body.extend(EXIT);
        for argument in [38_u32, 5, 0] {
            body.extend(argument.to_le_bytes());
        }
        let size = u64::from(HEADERS) + body.len() as u64;
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // An executable for x86-64.
        file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        for word in [u64::from(ADDRESS + HEADERS), 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        // One segment, which can be read and executed.
        file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        for word in [0, u64::from(ADDRESS), u64::from(ADDRESS), size, size, 0x1000] {
            file.extend(word.to_le_bytes());
        }
        file.extend(body);
        file
    }

    /// A command for a shell that makes the program and runs it.
    #[must_use]
    pub fn command(self) -> String {
        let octal: Vec<String> = self.program().iter().map(|byte| format!("\\{byte:03o}")).collect();
        let octal = octal.concat();
        let path = format!("/tmp/call-{self:?}");
        format!("printf '{octal}' > {path} && chmod 755 {path} && {path}")
    }
}

const EXIT_LENGTH: u32 = 11;

/// neg eax; mov edi, eax; mov eax, 60; syscall
const EXIT: [u8; EXIT_LENGTH as usize] = [0xf7, 0xd8, 0x89, 0xc7, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
