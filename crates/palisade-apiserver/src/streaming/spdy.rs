//! SPDY/3.1 as a client of a container runtime or kubelet: one connection, a few streams that this side opens.
//!
//! Implements: SPDY Protocol Draft 3.1, as far as container runtimes use it: `SYN_STREAM`, `SYN_REPLY`, `RST_STREAM`, `PING`,
//! `GOAWAY` and data frames. <https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/> Runtimes have no flow
//! control; TCP holds up a sender.
//!
//! Written here because no kept-up crate has SPDY: the ones on crates.io ended with the drafts, ten years ago, and HTTP/2
//! crates do not read its frames. Headers of the peer are not needed and are never decompressed; own headers are written as
//! stored blocks of a zlib stream without dictionary, which every inflater reads. A frame of the peer is passed on in pieces,
//! so that its length (up to 16 MiB) is no amount of memory.

use std::io;

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The length of the head of each frame.
const HEAD: usize = 8;
/// Data is passed on in pieces of this size.
pub(super) const PIECE: usize = 32 << 10;
/// The control bit and version 3.
const CONTROL: u16 = 0x8003;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
/// The last frame of a sender on a stream.
pub(super) const FIN: u8 = 1;
/// `zlib` with the fastest compression and no dictionary.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];

/// The frames that this side writes. Headers share one zlib stream.
#[derive(Debug, Default)]
pub(super) struct Writer {
    has_written_headers: bool,
}

impl Writer {
    /// Opens a stream. Names of headers are lower case.
    pub(super) fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> BytesMut {
        let mut block = BytesMut::new();
        block.put_u32(length(headers.len()));
        for (name, value) in headers {
            for text in [name, value] {
                block.put_u32(length(text.len()));
                block.put_slice(text.as_bytes());
            }
        }
        let mut body = BytesMut::new();
        body.put_u32(stream);
        body.put_u32(0);
        body.put_u16(0);
        if !std::mem::replace(&mut self.has_written_headers, true) {
            body.put_slice(&ZLIB_HEADER);
        }
        // A stored block, and an empty one so that the peer has it all without waiting for more.
        for piece in block.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
            let size = u16::try_from(piece.len()).unwrap_or(u16::MAX);
            body.put_u8(0);
            body.put_u16_le(size);
            body.put_u16_le(!size);
            body.put_slice(piece);
        }
        control(SYN_STREAM, &body)
    }
}

/// The answer to a ping, and its echo.
pub(super) fn ping(id: u32) -> BytesMut {
    control(PING, &id.to_be_bytes())
}

/// Data on a stream, [`PIECE`] bytes at most.
pub(super) fn data(stream: u32, flags: u8, content: &[u8]) -> BytesMut {
    let mut frame = BytesMut::with_capacity(HEAD + content.len());
    frame.put_u32(stream & 0x7fff_ffff);
    frame.put_u32(u32::from(flags) << 24 | length(content.len()) & 0x00ff_ffff);
    frame.put_slice(content);
    frame
}

fn control(kind: u16, body: &[u8]) -> BytesMut {
    let mut frame = BytesMut::with_capacity(HEAD + body.len());
    frame.put_u16(CONTROL);
    frame.put_u16(kind);
    frame.put_u32(length(body.len()) & 0x00ff_ffff);
    frame.put_slice(body);
    frame
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// What the peer sends, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A stream of ours is open on the other side, or is refused by a reset before that.
    Opened(u32),
    /// A part of a data frame.
    Data(u32, BytesMut),
    /// The peer sends no more on a stream.
    Finished(u32),
    /// The peer has given up a stream.
    Reset(u32),
    /// A ping of the peer, to be answered.
    Ping(u32),
    /// The peer ends the connection.
    GoAway,
}

/// Reads the frames of the peer.
#[derive(Debug)]
pub(super) struct Reader<R> {
    input: R,
    /// The data frame that is being passed on: stream, flags, bytes still to come.
    current: Option<(u32, u8, usize)>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, current: None }
    }

    /// The next event; nothing at the end of the connection. Not safe to cancel.
    pub(super) async fn next(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some((stream, flags, left)) = self.current.take() {
                if left > 0 {
                    let mut piece = BytesMut::zeroed(left.min(PIECE));
                    self.input.read_exact(&mut piece).await?;
                    self.current = Some((stream, flags, left - piece.len()));
                    return Ok(Some(Event::Data(stream, piece)));
                }
                if flags & FIN != 0 {
                    return Ok(Some(Event::Finished(stream)));
                }
            }
            let mut head = [0; HEAD];
            match self.input.read_exact(&mut head).await {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
            let (mut head, flags) = (&head[..], head[4]);
            let first = head.get_u32();
            let size = usize::try_from(head.get_u32() & 0x00ff_ffff).unwrap_or(usize::MAX);
            if first >> 31 == 0 {
                self.current = Some((first, flags, size));
                continue;
            }
            if first >> 16 != u32::from(CONTROL) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "not a SPDY/3.1 frame"));
            }
            let event = match u16::try_from(first & 0xffff).unwrap_or_default() {
                GOAWAY => {
                    self.skip(size).await?;
                    Some(Event::GoAway)
                }
                kind @ (SYN_REPLY | RST_STREAM | PING) => {
                    let id = self.first_word(size).await?;
                    match kind {
                        SYN_REPLY if flags & FIN != 0 => {
                            self.current = Some((id & 0x7fff_ffff, FIN, 0));
                            Some(Event::Opened(id & 0x7fff_ffff))
                        }
                        SYN_REPLY => Some(Event::Opened(id & 0x7fff_ffff)),
                        RST_STREAM => Some(Event::Reset(id & 0x7fff_ffff)),
                        _ => Some(Event::Ping(id)),
                    }
                }
                // The peer opens no streams, and what settings and windows say has no effect here.
                _ => {
                    self.skip(size).await?;
                    None
                }
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// The first number of a control frame; the rest is skipped.
    async fn first_word(&mut self, size: usize) -> io::Result<u32> {
        let Some(rest) = size.checked_sub(4) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a SPDY frame is too short"));
        };
        let word = self.input.read_u32().await?;
        self.skip(rest).await?;
        Ok(word)
    }

    async fn skip(&mut self, mut size: usize) -> io::Result<()> {
        let mut buffer = [0; 1024];
        while size > 0 {
            let most = size.min(buffer.len());
            let Some(part) = buffer.get_mut(..most) else { break };
            self.input.read_exact(part).await?;
            size -= most;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    async fn events(bytes: &[u8]) -> Vec<Event> {
        let mut reader = Reader::new(bytes);
        let mut events = Vec::new();
        while let Some(event) = reader.next().await.expect("readable") {
            events.push(event);
        }
        events
    }

    #[test]
    fn headers_are_a_zlib_stream_that_goes_on() {
        let mut writer = Writer::default();
        let first = writer.open(1, &[("streamtype", "error")]);
        let second = writer.open(3, &[("streamtype", "stdin")]);
        assert_eq!(
            first.get(..8),
            Some(&[0x80, 3, 0, 1, 0, 0, 0, u8::try_from(first.len() - 8).expect("short")][..])
        );
        let mut stream = Vec::new();
        for frame in [&first, &second] {
            stream.extend_from_slice(frame.get(18..).expect("headers"));
        }
        let mut text = vec![0; 54];
        flate2::read::ZlibDecoder::new(&stream[..]).read_exact(&mut text).expect("zlib");
        let expected = [
            &b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x05error"[..],
            b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x05stdin",
        ];
        assert_eq!(text, expected.concat());
    }

    #[tokio::test]
    async fn reads_what_runtimes_send() {
        let mut bytes = control(SYN_REPLY, &[0, 0, 0, 1, 9, 9, 9]);
        bytes.extend_from_slice(&control(4, &[0; 12]));
        bytes.extend_from_slice(&data(5, 0, b"out"));
        bytes.extend_from_slice(&data(1, FIN, b"status"));
        bytes.extend_from_slice(&ping(7));
        bytes.extend_from_slice(&control(RST_STREAM, &[0, 0, 0, 5, 0, 0, 0, 5]));
        bytes.extend_from_slice(&control(GOAWAY, &[0; 8]));
        let data = |stream, text: &[u8]| Event::Data(stream, BytesMut::from(text));
        let expected = [
            Event::Opened(1),
            data(5, b"out"),
            data(1, b"status"),
            Event::Finished(1),
            Event::Ping(7),
            Event::Reset(5),
            Event::GoAway,
        ];
        assert_eq!(events(&bytes).await, expected);
    }

    #[tokio::test]
    async fn a_large_frame_comes_in_pieces() {
        let sizes: Vec<usize> = events(&data(3, FIN, &vec![1; PIECE * 2 + 1]))
            .await
            .into_iter()
            .filter_map(|event| if let Event::Data(3, piece) = event { Some(piece.len()) } else { None })
            .collect();
        assert_eq!(sizes, [PIECE, PIECE, 1]);
    }

    #[tokio::test]
    async fn rejects_what_is_no_spdy() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            &[0x80, 2, 0, 1, 0, 0, 0, 0],
            &[0x80, 3, 0, 6, 0, 0, 0, 3, 0, 0, 0],
        ] {
            let mut reader = Reader::new(bytes);
            let mut last = reader.next().await;
            while let Ok(Some(_)) = last {
                last = reader.next().await;
            }
            assert!(last.is_err(), "{bytes:?}");
        }
    }
}
