//! The body of an answer: known bytes, or a watch that goes on.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// What is sent after the headers.
pub enum Body {
    /// Pieces that are all there already: the objects of a list are not copied together.
    Known(VecDeque<Bytes>),
    /// Pieces that are made when they are sent.
    Lazy(Box<dyn Iterator<Item = Bytes> + Send>),
    /// Pieces as they come, until the sender ends.
    Stream(mpsc::Receiver<Bytes>),
    /// The same, where what may wait is counted in bytes.
    Watch(mpsc::UnboundedReceiver<Piece>),
    /// Another server's body, after what was read of it; it breaks off where the other one does.
    Relayed(VecDeque<Bytes>, Incoming),
}

/// A piece of a watch, with its share of the buffer as long as it waits.
#[derive(Debug)]
pub struct Piece {
    /// What is sent.
    pub bytes: Bytes,
    /// Given back when the connection takes the piece.
    pub permits: OwnedSemaphorePermit,
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Known(_) => "Known",
            Self::Lazy(_) => "Lazy",
            Self::Stream(_) => "Stream",
            Self::Watch(_) => "Watch",
            Self::Relayed(..) => "Relayed",
        })
    }
}

impl Body {
    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::Known(VecDeque::new())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::empty() } else { Self::Known(VecDeque::from([bytes])) }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Known(pieces) => Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece)))),
            Self::Lazy(pieces) => Poll::Ready(pieces.next().map(|piece| Ok(Frame::data(piece)))),
            Self::Stream(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|p| Ok(Frame::data(p)))),
            Self::Relayed(pieces, rest) => match pieces.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None => Pin::new(rest).poll_frame(cx),
            },
            Self::Watch(pieces) => {
                pieces.poll_recv(cx).map(|piece| piece.map(|Piece { bytes, .. }| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Known(pieces) => pieces.is_empty(),
            Self::Relayed(pieces, rest) => pieces.is_empty() && rest.is_end_stream(),
            Self::Lazy(_) | Self::Stream(_) | Self::Watch(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Known(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|p| u64::try_from(p.len()).unwrap_or(u64::MAX)).sum())
            }
            Self::Relayed(pieces, rest) if pieces.is_empty() => rest.size_hint(),
            Self::Lazy(_) | Self::Stream(_) | Self::Watch(_) | Self::Relayed(..) => SizeHint::default(),
        }
    }
}
