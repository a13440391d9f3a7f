//! Compresses large responses for clients that accept it.
//!
//! Implements: upstream's feature gate `APIResponseCompression`: gzip at its fastest, from 128 KiB on, never for watches.
//! <https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/>

use std::collections::VecDeque;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, header};

use super::{Body, Reply};

/// Below, compressing costs more than it saves.
const THRESHOLD: usize = 128 << 10;
/// Compressed bytes are sent in pieces of about this size.
const PIECE: usize = 64 << 10;

/// Whether a client accepts gzip, by upstream's reading of the header.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.split(',').any(|token| token.trim() == "gzip"))
}

/// The answer, compressed where that is wanted and worth it.
pub(crate) fn compress(mut reply: Reply, headers: &HeaderMap) -> Reply {
    if !accepts_gzip(headers) {
        return reply;
    }
    let pieces: Box<dyn Iterator<Item = Bytes> + Send> =
        match std::mem::replace(&mut reply.body, Body::empty()) {
            Body::Known(pieces) => {
                if pieces.iter().map(Bytes::len).sum::<usize>() <= THRESHOLD {
                    reply.body = Body::Known(pieces);
                    return reply;
                }
                Box::new(pieces.into_iter())
            }
            Body::Lazy(mut pieces) => {
                // How much there is shows only when it is made.
                let (mut first, mut length) = (VecDeque::new(), 0_usize);
                while length <= THRESHOLD {
                    let Some(piece) = pieces.next() else {
                        reply.body = Body::Known(first);
                        return reply;
                    };
                    length = length.saturating_add(piece.len());
                    first.push_back(piece);
                }
                Box::new(first.into_iter().chain(pieces))
            }
            stream @ (Body::Stream(_) | Body::Watch(_) | Body::Relayed(..)) => {
                reply.body = stream;
                return reply;
            }
        };
    let encoder = GzEncoder::new(Vec::with_capacity(PIECE), Compression::fast());
    reply.body = Body::Lazy(Box::new(Compressed { pieces, encoder: Some(encoder) }));
    reply
        .with_header(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))
        .with_header(header::VARY, HeaderValue::from_static("Accept-Encoding"))
}

/// Pieces that are compressed when they are sent.
struct Compressed {
    pieces: Box<dyn Iterator<Item = Bytes> + Send>,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Iterator for Compressed {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let encoder = self.encoder.as_mut()?;
        for piece in self.pieces.by_ref() {
            // Writing to memory does not fail.
            let _ = encoder.write_all(&piece);
            if encoder.get_ref().len() >= PIECE {
                return Some(std::mem::replace(encoder.get_mut(), Vec::with_capacity(PIECE)).into());
            }
        }
        self.encoder.take()?.finish().ok().map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn sent(body: Body, accepted: &'static str) -> (bool, Vec<u8>) {
        let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
        let reply = compress(Reply::bytes(200, crate::http::reply::JSON, body), &headers);
        let compressed = reply.headers.iter().any(|(name, _)| name == header::CONTENT_ENCODING);
        let bytes = match reply.body {
            Body::Known(pieces) => pieces.into_iter().flatten().collect(),
            Body::Lazy(pieces) => pieces.flatten().collect(),
            Body::Stream(_) | Body::Watch(_) | Body::Relayed(..) => Vec::new(),
        };
        (compressed, bytes)
    }

    #[test]
    fn only_what_is_large_and_wanted() {
        let large: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let pieces = |bytes: &[u8]| -> Body {
            let pieces: Vec<Bytes> = bytes.chunks(1000).map(Bytes::copy_from_slice).collect();
            Body::Lazy(Box::new(pieces.into_iter()))
        };
        for (case, body, accepted, expected) in [
            ("known", Body::from(large.clone()), "gzip, deflate", true),
            ("made on the way", pieces(&large), "br,gzip", true),
            ("small", pieces(&large[..THRESHOLD]), "gzip", false),
            ("not wanted", Body::from(large.clone()), "gzip;q=0", false),
        ] {
            let (compressed, bytes) = sent(body, accepted);
            assert_eq!(compressed, expected, "{case}");
            let mut read = Vec::new();
            if compressed {
                assert!(bytes.len() < large.len(), "{case}");
                flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut read).expect("gzip");
            } else {
                read = bytes;
            }
            assert!(large.starts_with(&read) && (!compressed || read.len() == large.len()), "{case}");
        }
    }
}
