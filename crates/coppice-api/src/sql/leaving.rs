//! A result on its way out of memory, piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use crate::arrival::Place;
use crate::connections::{Left, Unread};

/// How long the last byte of a larger one may take to be sent. Then its
/// connection ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Leaving {
    pieces: std::vec::IntoIter<Bytes>,
    left_bytes: u64,
    _place: Place<'static>,
    /// None where the first piece is all.
    _left: Option<Left>,
}

impl Leaving {
    pub(super) fn new(pieces: Vec<Bytes>, place: Place<'static>, unread: Unread) -> Self {
        let left = (pieces.len() > 1).then(|| unread.notify_after(PATIENCE));
        let left_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces: pieces.into_iter(), left_bytes, _place: place, _left: left }
    }
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = self.pieces.next();
        self.left_bytes -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}
