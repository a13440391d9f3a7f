//! The two layers of framing between a runtime and a plugin. Pure.
//!
//! Implements: `pkg/net/multiplex` of github.com/containerd/nri (connection and length, four bytes each) and the protocol of
//! github.com/containerd/ttrpc, `PROTOCOL.md` (length, stream, type, flags). Numbers are big-endian.

use thiserror::Error;

/// Where the runtime calls the plugin.
pub const PLUGIN_CONNECTION: u32 = 1;
/// Where the plugin calls the runtime.
pub const RUNTIME_CONNECTION: u32 = 2;

/// A request that is answered with a single response.
pub const REQUEST: u8 = 1;
/// The response.
pub const RESPONSE: u8 = 2;

const OUTER: usize = 8;
const INNER: usize = 10;
/// The largest message.
pub const MAX_DATA: usize = 4 << 20;
/// The other end reads through a buffer of this size, and drops what does not fit.
const PIECE: usize = 4096;

/// A message of one of the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Which connection.
    pub connection: u32,
    /// Which call.
    pub stream: u32,
    /// [`REQUEST`] or [`RESPONSE`].
    pub kind: u8,
    /// The message.
    pub data: Vec<u8>,
}

/// Why what came is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Larger than the protocol allows.
    #[error("a message of {0} bytes is larger than the protocol allows")]
    TooLarge(usize),
}

impl Frame {
    /// The bytes for the socket; none if the message is too large.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        if self.data.len() > MAX_DATA {
            return Err(FrameError::TooLarge(self.data.len()));
        }
        let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        let mut inner = Vec::with_capacity(INNER + self.data.len());
        inner.extend(number(self.data.len()));
        inner.extend(self.stream.to_be_bytes());
        inner.extend([self.kind, 0]);
        inner.extend(&self.data);
        let mut bytes = Vec::with_capacity(inner.len() + OUTER * inner.len().div_ceil(PIECE));
        for piece in inner.chunks(PIECE) {
            bytes.extend(self.connection.to_be_bytes());
            bytes.extend(number(piece.len()));
            bytes.extend(piece);
        }
        Ok(bytes)
    }
}

/// Puts frames together from what the socket delivers.
#[derive(Debug, Default)]
pub struct Decoder {
    trunk: Vec<u8>,
    /// What came of each of the two connections.
    connections: [Vec<u8>; 2],
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    // swallowed: four bytes are four bytes
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

impl Decoder {
    /// Takes bytes over.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.trunk.extend_from_slice(bytes);
        let mut used = 0;
        while let Some(rest) = self.trunk.get(used..)
            && let (Some(connection), Some(length)) = (number(rest, 0), number(rest, 4))
        {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > INNER + MAX_DATA {
                return Err(FrameError::TooLarge(length));
            }
            let Some(payload) = rest.get(OUTER..OUTER + length) else { break };
            // What is for a connection that nobody opened is dropped.
            let known = connection
                .checked_sub(1)
                .and_then(|index| self.connections.get_mut(usize::try_from(index).unwrap_or(usize::MAX)));
            if let Some(known) = known {
                known.extend_from_slice(payload);
            }
            used += OUTER + length;
        }
        self.trunk.drain(..used);
        Ok(())
    }

    /// The next whole frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        for (connection, bytes) in (1..).zip(&mut self.connections) {
            let (Some(length), Some(stream)) = (number(bytes, 0), number(bytes, 4)) else { continue };
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > MAX_DATA {
                return Err(FrameError::TooLarge(length));
            }
            let (Some(&kind), Some(data)) = (bytes.get(8), bytes.get(INNER..INNER + length)) else {
                continue;
            };
            let frame = Frame { connection, stream, kind, data: data.to_vec() };
            bytes.drain(..INNER + length);
            // One large message must not keep its memory for good.
            bytes.shrink_to(PIECE);
            self.trunk.shrink_to(PIECE);
            return Ok(Some(frame));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(connection: u32, stream: u32, size: usize) -> Frame {
        let data = (0..size).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
        Frame { connection, stream, kind: REQUEST, data }
    }

    #[test]
    fn frames_survive_however_the_socket_cuts_them() {
        let frames =
            [frame(1, 1, 0), frame(2, 1, 5), frame(1, 3, 4086), frame(1, 5, 4087), frame(2, 3, 100_000)];
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.encode().unwrap()).collect();
        for size in [1, 7, 4096, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece).unwrap();
                while let Some(frame) = decoder.next_frame().unwrap() {
                    found.push(frame);
                }
            }
            found.sort_by_key(|frame| (frame.connection, frame.stream));
            let mut expected = frames.to_vec();
            expected.sort_by_key(|frame| (frame.connection, frame.stream));
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn no_piece_is_larger_than_the_buffer_of_the_other_end() {
        let bytes = frame(1, 1, 20_000).encode().unwrap();
        let (mut at, mut pieces) = (0, 0);
        while at < bytes.len() {
            let length = number(&bytes, at + 4).unwrap() as usize;
            assert!(length <= PIECE);
            at += OUTER + length;
            pieces += 1;
        }
        assert_eq!((at, pieces), (bytes.len(), 5));
    }

    #[test]
    fn what_is_too_large_or_for_others_is_not_kept() {
        assert!(frame(1, 1, MAX_DATA + 1).encode().is_err());
        let mut decoder = Decoder::default();
        assert!(decoder.push(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]).is_err());
        let mut decoder = Decoder::default();
        let mut other = frame(1, 1, 3);
        other.connection = 7;
        decoder.push(&other.encode().unwrap()).unwrap();
        other.connection = 0;
        decoder.push(&other.encode().unwrap()).unwrap();
        assert_eq!(decoder.next_frame(), Ok(None));
        let mut decoder = Decoder::default();
        decoder.push(&[0, 0, 0, 2, 0, 0, 0, 10, 0x7f, 0, 0, 0, 0, 0, 0, 1, 1, 0]).unwrap();
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge(0x7f00_0000)));
    }
}
