//! What is left of a request's body when its answer is ready.
//!
//! A refusal does not wait for the body. If the connection were then closed
//! with bytes unread, the kernel would reset it and the client would lose the
//! answer, or send its next request into a connection that is going away (RFC
//! 9112, section 9.6). So the rest is read and thrown away, and where it is too
//! much the answer says that the connection ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, Version};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;

/// Most bytes that are thrown away for one answer.
const LIMIT_BYTES: usize = 16 << 20;
/// How long a client may take to send them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers, and leaves the connection as the next request needs it.
pub(crate) async fn discard_remainder(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let is_http1 = request.version() < Version::HTTP_2;
    // A client that asks before it sends a body (Expect) sends none after a refusal.
    let waits_for_consent = request.headers().contains_key(EXPECT);
    let (parts, body) = request.into_parts();
    let mut body = SharedBody(Arc::new(Mutex::new(body)));
    let mut response = next.run(Request::from_parts(parts, Body::new(body.clone()))).await;
    if is_http1 && !body.is_end_stream() && (waits_for_consent || !body.is_discarded().await) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The body as handlers read it, and as it is found after them.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<Body>>);

impl SharedBody {
    /// Reads to the end; false if that is too far away.
    async fn is_discarded(&mut self) -> bool {
        let read_all = async {
            let mut size = 0;
            while let Some(frame) =
                std::future::poll_fn(|context| Pin::new(&mut *self).poll_frame(context)).await
            {
                let Ok(frame) = frame else { return false };
                size += frame.data_ref().map_or(0, Bytes::len);
                if size > LIMIT_BYTES {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(PATIENCE, read_all).await.unwrap_or(false)
    }

    fn with<T>(&self, look: impl FnOnce(Pin<&mut Body>) -> T) -> T {
        look(Pin::new(&mut *self.0.lock()))
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.with(|body| body.poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.with(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|body| body.size_hint())
    }
}
