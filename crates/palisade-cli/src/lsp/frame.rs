//! The messages of the protocol on a stream: a header with the length, then that many bytes.
//!
//! Implements: Language Server Protocol 3.17, "Base Protocol".
//! <https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/#baseProtocol>
//! What a client announces is never allocated before it arrives, and nothing is read beyond [`MAX_BODY`]: a longer message is
//! skipped. After a header that cannot be read, the next `Content-Length` begins a message.

use std::io::{self, BufRead, Read as _, Write};

/// The longest message that is read. A message holds a text once, with escapes.
pub const MAX_BODY: u64 = 32 << 20;
/// The end of a header line that is kept; all headers of the protocol are shorter.
const MAX_LINE: usize = 256;

/// What a stream held next.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message.
    Body(Vec<u8>),
    /// A message that was skipped because of its length.
    TooLong(u64),
    /// A header without a length.
    NoLength,
    /// The end of the stream, or of the message that it broke off in.
    End,
}

/// Reads the next message.
pub fn read_frame(input: &mut impl BufRead) -> io::Result<Frame> {
    let mut length = None;
    loop {
        let Some(line) = line_end(input)? else { return Ok(Frame::End) };
        if line.is_empty() {
            break;
        }
        length = content_length(&line).or(length);
    }
    let Some(length) = length else { return Ok(Frame::NoLength) };
    if length > MAX_BODY {
        let skipped = io::copy(&mut input.take(length), &mut io::sink())?;
        return Ok(if skipped == length { Frame::TooLong(length) } else { Frame::End });
    }
    // The buffer grows with what arrives, not with what was announced.
    let mut body = Vec::new();
    let read = input.take(length).read_to_end(&mut body)?;
    Ok(if read as u64 == length { Frame::Body(body) } else { Frame::End })
}

/// The end of the next line, without its line break.
fn line_end(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let available = input.fill_buf()?;
        if available.is_empty() {
            return Ok(None);
        }
        let end = memchr::memchr(b'\n', available);
        let taken = end.map_or(available.len(), |at| at + 1);
        line.extend_from_slice(available.get(..end.unwrap_or(taken)).unwrap_or_default());
        input.consume(taken);
        line.drain(..line.len().saturating_sub(MAX_LINE));
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Some(line));
        }
    }
}

/// The length that a header line has at its end: the rest of a message that was not understood may stand before it.
fn content_length(line: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"content-length:";
    let at = line.windows(NAME.len()).rposition(|window| window.eq_ignore_ascii_case(NAME))?;
    let value = line.get(at + NAME.len()..)?.trim_ascii();
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    // A number that does not fit is a length that is too long.
    let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    is_number.then(number)
}

/// Writes a message.
pub fn write_frame(output: &mut impl Write, body: &[u8]) -> io::Result<()> {
    write!(output, "Content-Length: {}\r\n\r\n", body.len())?;
    output.write_all(body)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn frames(stream: &[u8]) -> Vec<Frame> {
        // A small buffer, so that lines and messages come in pieces.
        let mut input = BufReader::with_capacity(3, stream);
        let mut found = Vec::new();
        loop {
            match read_frame(&mut input).unwrap() {
                Frame::End => return found,
                frame => found.push(frame),
            }
        }
    }

    fn body(text: &str) -> Frame {
        Frame::Body(text.into())
    }

    #[test]
    fn reads_messages_and_goes_on_after_those_that_it_cannot_read() {
        let long = "x".repeat(1000);
        for (case, stream, expected) in [
            ("nothing", String::new(), vec![]),
            ("one", "Content-Length: 2\r\n\r\n{}".into(), vec![body("{}")]),
            (
                "two, with another header and another case",
                "Content-Type: x\r\ncontent-LENGTH:1\r\n\r\n1Content-Length: 2\n\n{}".into(),
                vec![body("1"), body("{}")],
            ),
            ("an empty one", "Content-Length: 0\r\n\r\n".into(), vec![body("")]),
            ("bytes, not characters", "Content-Length: 4\r\n\r\n😀".into(), vec![body("😀")]),
            ("it breaks off", "Content-Length: 9\r\n\r\n{}".into(), vec![]),
            ("the header breaks off", "Content-Le".into(), vec![]),
            (
                "no length, then a message",
                format!("Content-Type: x\r\n\r\n{long}Content-Length: 2\r\n\r\n{{}}"),
                vec![Frame::NoLength, body("{}")],
            ),
            (
                "no number",
                "Content-Length: -1\r\n\r\nContent-Length: 2\r\n\r\n{}".into(),
                vec![Frame::NoLength, body("{}")],
            ),
        ] {
            assert_eq!(frames(stream.as_bytes()), expected, "{case}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_skipped() {
        let length = MAX_BODY + 1;
        let header = format!("Content-Length: {length}\r\n\r\n");
        let next: &[u8] = b"Content-Length: 2\r\n\r\n{}";
        let stream = header.as_bytes().chain(io::repeat(b'x').take(length)).chain(next);
        let mut input = BufReader::new(stream);
        assert_eq!(read_frame(&mut input).unwrap(), Frame::TooLong(length));
        assert_eq!(read_frame(&mut input).unwrap(), body("{}"));
        for announced in ["99999999999", "99999999999999999999999999999999"] {
            let mut broken = BufReader::new(&b"Content-Length: "[..])
                .chain(announced.as_bytes())
                .chain(&b"\r\n\r\nshort"[..]);
            assert_eq!(read_frame(&mut broken).unwrap(), Frame::End, "{announced}");
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let mut written = Vec::new();
        for text in ["{}", "\"é\""] {
            write_frame(&mut written, text.as_bytes()).unwrap();
        }
        assert_eq!(frames(&written), [body("{}"), body("\"é\"")]);
    }
}
