//! Answers to what can't be read as a request.
//!
//! The HTTP library gives them itself, without anything that support could ask
//! for. So its stream is watched: what it writes while no request of the
//! connection is being answered gets an id like every other answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Response, StatusCode, Version};
use coppice_core::id::random_text;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::context::REQUEST_ID;
use crate::pace::{Pace, Pause};

/// How such an answer begins; no frame of HTTP/2 does.
const BEGINNING: &[u8] = b"HTTP/1.1 4";
const LINE_END: &[u8] = b"\r\n";

/// What is being answered on a connection.
#[derive(Debug, Default)]
pub(crate) struct InProgress {
    /// Requests whose answers the library has not taken to their end.
    answers: AtomicUsize,
    /// Whether the library may still have to write of what it has taken.
    is_written: AtomicBool,
    /// How fast it is read.
    pub(crate) pace: Arc<Pace>,
}

/// A request whose answer the library has not taken to its end.
#[derive(Debug)]
pub(crate) struct Answering(Arc<InProgress>);

/// The body of an answer; the answer is in progress until this is dropped.
#[derive(Debug)]
struct AnswerBody {
    body: Body,
    answering: Answering,
}

/// The stream of a connection as the library sees it.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    in_progress: Arc<InProgress>,
    /// What is written instead of the library's own answer, and how much of it
    /// was.
    instead: Option<(Vec<u8>, usize)>,
    pause: Pause,
}

impl InProgress {
    /// A request came.
    pub(crate) fn begin(self: &Arc<Self>, version: Version) -> Answering {
        // HTTP/2 has no such answers, so its first request is never over here.
        let count = if version < Version::HTTP_2 { 1 } else { 2 };
        self.answers.fetch_add(count, Ordering::Relaxed);
        self.is_written.store(false, Ordering::Relaxed);
        Answering(self.clone())
    }
}

impl Answering {
    /// The answer, in progress until the library is done with its body. After a
    /// change of the protocol that is never.
    pub(crate) fn with(self, answer: Response<Body>) -> Response<Body> {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.0.answers.fetch_add(1, Ordering::Relaxed);
            self.0.pace.set_boundless();
        }
        answer.map(|body| Body::new(AnswerBody { body, answering: self }))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.answering.0.pace.add_confirmations(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, in_progress: Arc<InProgress>) -> Self {
        in_progress.is_written.store(true, Ordering::Relaxed);
        Self { stream, in_progress, instead: None, pause: Pause::default() }
    }

    /// The library's own answer with an id, if this is one.
    fn with_id(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let is_own = self.instead.is_none()
            && self.in_progress.is_written.load(Ordering::Relaxed)
            && bytes.starts_with(BEGINNING);
        let line = is_own.then(|| bytes.windows(LINE_END.len()).position(|end| end == LINE_END)).flatten()?;
        let (line, rest) = bytes.split_at(line + LINE_END.len());
        let id = random_text();
        tracing::debug!(request_id = format!("req_{id}"), "what came is no request");
        Some([line, format!("{REQUEST_ID}: req_{id}\r\n").as_bytes(), rest].concat())
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    fn poll_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((bytes, written)) = &mut self.instead
            && *written < bytes.len()
        {
            let count = ready!(Pin::new(&mut self.stream).poll_write(context, &bytes[*written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += count;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, in_progress, pause, .. } = &mut *self;
        ready!(in_progress.pace.poll(pause, context));
        let before = buffer.filled().len();
        ready!(Pin::new(stream).poll_read(context, buffer))?;
        in_progress.pace.take(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(instead) = self.with_id(bytes) {
            self.instead = Some((instead, 0));
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_instead(context))?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            // Its own answers have no body.
            [only] => self.poll_write(context, only),
            _ => {
                ready!(self.poll_instead(context))?;
                Pin::new(&mut self.stream).poll_write_vectored(context, slices)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(context))?;
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        // The library flushes when it has written all that it has taken.
        if self.in_progress.answers.load(Ordering::Relaxed) == 0 {
            self.in_progress.is_written.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    /// A connection whose client has sent a megabyte.
    async fn connection() -> (Watched<tokio::io::DuplexStream>, Arc<InProgress>) {
        let (mut client, server) = duplex(1 << 20);
        client.write_all(&vec![0; 1 << 20]).await.expect("room");
        let in_progress = Arc::<InProgress>::default();
        (Watched::new(server, in_progress.clone()), in_progress)
    }

    /// How much is read before it has to wait.
    async fn read(watched: &mut Watched<tokio::io::DuplexStream>) -> usize {
        let (mut sum, mut bytes) = (0, [0; 1024]);
        let reading = std::future::poll_fn(|context| {
            loop {
                let mut buffer = ReadBuf::new(&mut bytes);
                match Pin::new(&mut *watched).poll_read(context, &mut buffer) {
                    Poll::Ready(Ok(())) if !buffer.filled().is_empty() => sum += buffer.filled().len(),
                    Poll::Ready(_) | Poll::Pending => return Poll::Ready(()),
                }
            }
        });
        tokio::task::unconstrained(reading).await;
        sum
    }

    #[tokio::test]
    async fn what_belongs_to_no_request_is_read_slowly() {
        let (mut watched, in_progress) = connection().await;
        let pace = &in_progress.pace;
        let none = read(&mut watched).await;
        assert!((16 << 10..40 << 10).contains(&none), "{none}");
        (0..10).for_each(|_| pace.add_request(StatusCode::TOO_MANY_REQUESTS, false));
        let refused = read(&mut watched).await;
        assert!((4 << 10..24 << 10).contains(&refused), "{refused}");
        (0..10).for_each(|_| pace.add_request(StatusCode::OK, true));
        let answered = read(&mut watched).await;
        assert!((255 << 10..300 << 10).contains(&answered), "no more than may be saved: {answered}");
        pace.set_boundless();
        assert_eq!(none + refused + answered + read(&mut watched).await, 1 << 20);
    }
}
