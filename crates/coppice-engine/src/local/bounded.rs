//! A connection that takes only so many bytes from a server, and only what the
//! platform understands.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::Descriptions;

/// What a row takes in memory, however short it is on the way.
const ROW_BYTES: usize = 128;

/// How many bytes may still come.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    left: Arc<AtomicUsize>,
    bytes: usize,
}

impl Allowance {
    pub(super) fn of(bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes)), bytes }
    }

    /// Allows as many once more.
    pub(super) fn renew(&self) {
        self.left.store(self.bytes, Ordering::Relaxed);
    }
}

/// Fails to read when more comes than is allowed.
pub(super) struct Bounded<S> {
    pub(super) stream: S,
    pub(super) allowance: Allowance,
    pub(super) descriptions: Descriptions,
}

impl<S> Bounded<S> {
    fn check(&mut self, come: &[u8]) -> io::Result<()> {
        let rows = self.descriptions.follow(come)?;
        let take = |left: usize| left.checked_sub(come.len() + rows * ROW_BYTES);
        match self.allowance.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the other end sends more than it was asked for")),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let come = buffer.filled().get(before..).unwrap_or_default();
        if let Err(error) = self.check(come) {
            // Where reading fails, nothing was read.
            buffer.set_filled(before);
            return Poll::Ready(Err(error));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, repeat};

    use super::*;

    #[tokio::test]
    async fn an_answer_without_end_ends() {
        let allowance = Allowance::of(100);
        let descriptions = Descriptions::default();
        let mut endless = Bounded { stream: repeat(7), allowance: allowance.clone(), descriptions };
        let mut bytes = [0; 60];
        endless.read_exact(&mut bytes).await.expect("so much is allowed");
        allowance.renew();
        endless.read_exact(&mut bytes).await.expect("and so much again");
        assert!(endless.read_exact(&mut bytes).await.is_err());
    }

    #[tokio::test]
    async fn rows_of_nothing_are_counted_as_what_they_take() {
        // A description of no columns, and rows of none.
        let rows = [&b"T\0\0\0\x06\0\0"[..], &b"D\0\0\0\x06\0\0".repeat(1000)].concat();
        let read = async |allowed| {
            let (allowance, descriptions) = (Allowance::of(allowed), Descriptions::default());
            let mut stream = Bounded { stream: rows.as_slice(), allowance, descriptions };
            stream.read_to_end(&mut vec![]).await
        };
        assert!(read(rows.len() + 1000 * ROW_BYTES).await.is_ok());
        assert!(read(rows.len() + 999 * ROW_BYTES).await.is_err());
    }
}
