//! Answers on their way out of memory.
//!
//! An answer takes memory for as long as whoever asked likes to be slow with
//! reading it, and over HTTP/2 one connection has many of them. So it is made
//! and compressed to its end, which leaves nothing behind but its bytes, and
//! all larger ones together share a room of fixed size, in which nobody has more
//! than is left for others, and nobody for long. Small ones are bounded by the
//! number of connections. Documents and files that are in memory once need no
//! place, but keep a connection and what is under way on it, so they have as long.

use std::sync::LazyLock;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::response::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coppice_core::Error;

use crate::arrival::{Place, Room, Senders, no_room};
use crate::connections::{Left, Unread};
use crate::error::ApiError;

/// Larger ones need a place.
const SMALL_BYTES: usize = 16 << 10;

/// For answers that were not read yet.
static ANSWERS: LazyLock<Room> =
    LazyLock::new(|| Room::new(64 << 20, usize::MAX, Duration::MAX, Duration::from_secs(3)));

/// How long the last byte of a larger one may take to be sent. Then its
/// connection ends. So does one whose client takes nothing for as long, whatever it is sent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that have a place, if they need one, until the last of them was sent, or nobody is there
/// any more to send them to.
struct Leaving {
    bytes: Bytes,
    _place: Option<Place<'static>>,
    _left: Left,
}

impl AsRef<[u8]> for Leaving {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Gives an answer its place.
pub(crate) async fn leave_in_turn(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let senders = Senders::of(&parts);
    let unread = parts.extensions.get::<Unread>().cloned().unwrap_or_default();
    let response = next.run(Request::from_parts(parts, body)).await;
    placed(&ANSWERS, senders, response, (unread, PATIENCE)).await
}

async fn placed(
    room: &'static Room,
    senders: Senders,
    response: Response,
    (unread, patience): (Unread, Duration),
) -> Response {
    let (head, bytes) = match made(response).await {
        Ok(made) => made,
        Err(refused) => return refused,
    };
    if bytes.len() <= SMALL_BYTES {
        return Response::from_parts(head, Body::from(bytes));
    }
    match room.hold(bytes.len(), senders).await {
        Ok(place) => {
            let leaving = Leaving { bytes, _place: Some(place), _left: unread.notify_after(patience) };
            Response::from_parts(head, Body::from(Bytes::from_owner(leaving)))
        }
        Err(_) => ApiError::from(no_room()).into_response(),
    }
}

/// Gives an answer that is in memory once, whoever asks for it, as long as others have.
pub(crate) async fn leave_in_time(request: Request, next: Next) -> Response {
    let unread = request.extensions().get::<Unread>().cloned().unwrap_or_default();
    timed(next.run(request).await, (unread, PATIENCE)).await
}

async fn timed(response: Response, (unread, patience): (Unread, Duration)) -> Response {
    let (head, bytes) = match made(response).await {
        Ok(made) => made,
        Err(refused) => return refused,
    };
    if bytes.len() <= SMALL_BYTES {
        return Response::from_parts(head, Body::from(bytes));
    }
    let leaving = Leaving { bytes, _place: None, _left: unread.notify_after(patience) };
    Response::from_parts(head, Body::from(Bytes::from_owner(leaving)))
}

/// An answer with all of its bytes; of one piece nothing is copied.
async fn made(response: Response) -> Result<(Parts, Bytes), Response> {
    let (head, body) = response.into_parts();
    match to_bytes(body, usize::MAX).await {
        Ok(bytes) => Ok((head, bytes)),
        Err(error) => Err(ApiError::from(Error::internal(error)).into_response()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where one test's answers are.
    struct Out(&'static Room);

    impl Out {
        fn new() -> Self {
            Self(Box::leak(Box::new(Room::new(1 << 20, usize::MAX, PATIENCE, Duration::from_millis(10)))))
        }

        async fn answered_on(&self, count: usize, unread: Unread, patience: Duration) -> Response {
            let senders = Senders::of(&Request::new(Body::empty()).into_parts().0);
            placed(self.0, senders, "x".repeat(count).into_response(), (unread, patience)).await
        }

        async fn answered(&self, count: usize) -> Response {
            self.answered_on(count, Unread::default(), PATIENCE).await
        }
    }

    #[tokio::test]
    async fn a_connection_ends_on_which_a_large_answer_is_not_read() {
        let (out, slow, read) = (Out::new(), Unread::default(), Unread::default());
        drop(out.answered_on(SMALL_BYTES + 1, read.clone(), Duration::from_millis(200)).await);
        let _held = out.answered_on(SMALL_BYTES + 1, slow.clone(), Duration::from_millis(200)).await;
        slow.0.notified().await;
        // So does one on which a file is not read that is in memory once.
        let unread_file = Unread::default();
        let file = || vec![b'x'; SMALL_BYTES + 1].into_response();
        drop(timed(file(), (read.clone(), Duration::from_millis(200))).await);
        let _held_file = timed(file(), (unread_file.clone(), Duration::from_millis(200))).await;
        unread_file.0.notified().await;
        // Its time was over before.
        assert!(tokio::time::timeout(Duration::from_millis(10), read.0.notified()).await.is_err());
    }

    #[tokio::test]
    async fn answers_that_nobody_reads_take_no_more_than_their_room() {
        let (out, mut unread) = (Out::new(), vec![]);
        for _ in 0..8 {
            unread.push(out.answered(64 << 10).await);
        }
        assert!(unread.iter().all(|answer| answer.status().is_success()), "half of the room");
        assert_eq!(out.answered(64 << 10).await.status().as_u16(), 503);
        assert!(out.answered(100).await.status().is_success(), "a small one needs no place");
        // An answer that was sent gives its room back.
        let body = unread.pop().expect("one").into_body();
        assert_eq!(to_bytes(body, usize::MAX).await.expect("a body").len(), 64 << 10);
        assert!(out.answered(64 << 10).await.status().is_success());
        // One that is still being sent does not: its bytes are in memory.
        let body = unread.pop().expect("one").into_body();
        let sending = to_bytes(body, usize::MAX).await.expect("a body");
        assert_eq!(out.answered(128 << 10).await.status().as_u16(), 503);
        drop((sending, unread));
        assert!(out.answered(512 << 10).await.status().is_success());
    }
}
