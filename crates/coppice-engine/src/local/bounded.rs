//! A connection that takes only so many bytes from a server, and only what the
//! platform understands.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::Descriptions;

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

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        let take = |left: usize| left.checked_sub(bytes);
        if self.allowance.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Poll::Ready(Err(io::Error::other("the other end sends more than it was asked for")));
        }
        self.descriptions.follow(buffer.filled().get(before..).unwrap_or_default())?;
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
}
