//! Whether work had to wait: what was true before it may not be any more.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Does work, and tells whether that waited for anything.
pub(crate) async fn and_whether_it_waited<T>(work: impl Future<Output = T>) -> (T, bool) {
    let mut work = pin!(work);
    match poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        Poll::Ready(done) => (done, false),
        Poll::Pending => (work.await, true),
    }
}
