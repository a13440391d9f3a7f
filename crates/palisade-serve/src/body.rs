//! The body of a request, within limits of size and time.

use std::{pin::Pin, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    /// The connection broke.
    Unreadable,
    /// Larger than the limit.
    TooLarge,
    /// It did not arrive in time.
    TooSlow,
}

/// Limits of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// It may have this many bytes.
    pub most: usize,
    /// How much more of a body that is too large is read and dropped: clients that write it all before they read would
    /// otherwise see a broken connection instead of the response.
    pub drained: usize,
    /// It must arrive in this time.
    pub time: Duration,
}

/// Reads a body. One that arrives in one piece is not copied.
pub async fn read<B: Body<Data: Buf>>(body: B, limits: BodyLimits) -> Result<Bytes, BodyError> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limits.most.saturating_add(limits.drained) {
        return Err(BodyError::TooLarge);
    }
    match tokio::time::timeout(limits.time, collect(std::pin::pin!(body), announced, limits)).await {
        Ok(read) => read,
        Err(_) => Err(BodyError::TooSlow),
    }
}

async fn collect<B: Body<Data: Buf>>(
    mut body: Pin<&mut B>,
    announced: usize,
    limits: BodyLimits,
) -> Result<Bytes, BodyError> {
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    let (mut seen, mut is_too_large) = (0_usize, announced > limits.most);
    while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
        // swallowed: a frame of trailers has no data
        let Ok(mut data) = frame.map_err(|_| BodyError::Unreadable)?.into_data() else { continue };
        seen = seen.saturating_add(data.remaining());
        if is_too_large || seen > limits.most {
            (is_too_large, first, rest) = (true, Bytes::new(), BytesMut::new());
            if seen > limits.most.saturating_add(limits.drained) {
                break;
            }
            continue;
        }
        let piece = data.copy_to_bytes(data.remaining());
        if first.is_empty() {
            first = piece;
        } else {
            if rest.is_empty() {
                rest.reserve(announced.max(first.len() + piece.len()));
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&piece);
        }
    }
    match is_too_large {
        true => Err(BodyError::TooLarge),
        false if rest.is_empty() => Ok(first),
        false => Ok(rest.freeze()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        convert::Infallible,
        pin::Pin,
        task::{Context, Poll},
        time::Duration,
    };

    use bytes::Bytes;
    use http_body::Frame;

    use super::{BodyError, BodyLimits, read};

    /// Pieces without an announced length; after them the client sends nothing more, or ends.
    struct Pieces(VecDeque<&'static str>, bool);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))),
                None if self.1 => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_are_limited_in_size_and_time() {
        let limits = BodyLimits { most: 4, drained: 2, time: Duration::from_secs(1) };
        for (case, pieces, ends, expected) in [
            ("empty", &[][..], true, Ok("")),
            ("one piece", &["ab"], true, Ok("ab")),
            ("many pieces, as large as allowed", &["a", "", "bc", "d"], true, Ok("abcd")),
            ("too large", &["abc", "de"], true, Err(BodyError::TooLarge)),
            (
                "too large, and more than is drained",
                &["abc", "de", "fg", "h"],
                false,
                Err(BodyError::TooLarge),
            ),
            ("too slow", &["ab"], false, Err(BodyError::TooSlow)),
        ] {
            let body = Pieces(pieces.iter().copied().collect(), ends);
            assert_eq!(
                read(body, limits).await,
                expected.map(|text: &str| Bytes::from(text.to_owned())),
                "{case}"
            );
        }
    }
}
