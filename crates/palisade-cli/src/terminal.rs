//! The streams of the process: results to stdout, everything else to stderr.

use std::io::{self, BufWriter, IsTerminal, Write};

use crate::{command_line::ColorChoice, failure::Failure};

/// The process's streams, and what they can show.
#[derive(Debug)]
pub struct Terminal {
    /// Results.
    pub out: Out<BufWriter<io::Stdout>>,
    /// Whether stdout shows colours.
    pub out_color: bool,
    /// Whether stderr shows colours.
    pub err_color: bool,
}

impl Terminal {
    /// The streams of this process.
    #[must_use]
    pub fn of_process(choice: ColorChoice) -> Self {
        let allowed = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let color = |is_terminal: bool| match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => allowed && is_terminal,
        };
        Self {
            out: Out::new(BufWriter::with_capacity(1 << 16, io::stdout())),
            out_color: color(io::stdout().is_terminal()),
            err_color: color(io::stderr().is_terminal()),
        }
    }

    /// How many columns stdout has, if it is a terminal.
    #[must_use]
    pub fn width() -> Option<usize> {
        terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
    }

    /// Writes a whole text to stdout.
    pub fn print(&mut self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.out.write_all(text.as_ref()).and_then(|()| self.out.flush()).map_err(Failure::output)
    }

    /// Writes a text to stderr.
    pub fn report_text(&self, text: &str) {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// Writes a line to stderr. Failures are ignored: stderr may be closed.
    pub fn report(&self, line: impl AsRef<str>) {
        let mut err = io::stderr().lock();
        let _ = writeln!(err, "{}", line.as_ref());
    }
}

/// A stream whose reader may close it: what is written after that is dropped, any other failure is an error.
#[derive(Debug)]
pub struct Out<W> {
    inner: W,
    closed: bool,
}

impl<W: Write> Out<W> {
    /// Wraps a stream.
    pub const fn new(inner: W) -> Self {
        Self { inner, closed: false }
    }

    fn guard<T>(&mut self, result: io::Result<T>, dropped: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(dropped)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for Out<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        let result = self.inner.write(bytes);
        self.guard(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let result = self.inner.flush();
        self.guard(result, ())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::Out;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_fine_and_a_full_disk_is_not() {
        let mut out = Out::new(Broken(io::ErrorKind::BrokenPipe));
        assert!(out.write_all(b"x").is_ok() && out.flush().is_ok());
        let mut out = Out::new(Broken(io::ErrorKind::StorageFull));
        assert!(out.write_all(b"x").is_err() && out.flush().is_err());
    }
}
