//! Answers on their way out of memory.
//!
//! An answer takes memory for as long as whoever asked likes to be slow with
//! reading it, and over HTTP/2 one connection has many of them. So it is made
//! and compressed to its end, which leaves nothing behind but its bytes, and
//! all larger ones together share a room of fixed size, in which nobody has more
//! than is left for others. Small ones are bounded by the number of connections.

use std::sync::LazyLock;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coppice_core::Error;

use crate::arrival::{Place, Room, Senders, no_room};
use crate::error::ApiError;

/// Larger ones need a place.
const SMALL_BYTES: usize = 16 << 10;

/// For answers that were not read yet.
static ANSWERS: LazyLock<Room> =
    LazyLock::new(|| Room::new(64 << 20, usize::MAX, Duration::MAX, Duration::from_secs(3)));

/// Bytes that have a place until the last of them was sent, or nobody is there
/// any more to send them to.
struct Leaving {
    bytes: Bytes,
    _place: Place<'static>,
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
    let response = next.run(Request::from_parts(parts, body)).await;
    placed(&ANSWERS, senders, response).await
}

async fn placed(room: &'static Room, senders: Senders, response: Response) -> Response {
    let (head, body) = response.into_parts();
    let bytes = match to_bytes(body, usize::MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return ApiError::from(Error::internal(error)).into_response(),
    };
    if bytes.len() <= SMALL_BYTES {
        return Response::from_parts(head, Body::from(bytes));
    }
    match room.hold(bytes.len(), senders).await {
        Ok(place) => {
            Response::from_parts(head, Body::from(Bytes::from_owner(Leaving { bytes, _place: place })))
        }
        Err(_) => ApiError::from(no_room()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ROOM: LazyLock<Room> =
        LazyLock::new(|| Room::new(1 << 20, usize::MAX, Duration::MAX, Duration::from_millis(10)));

    async fn answered(count: usize) -> Response {
        let senders = Senders::of(&Request::new(Body::empty()).into_parts().0);
        placed(&ROOM, senders, "x".repeat(count).into_response()).await
    }

    #[tokio::test]
    async fn answers_that_nobody_reads_take_no_more_than_their_room() {
        let mut unread = vec![];
        for _ in 0..8 {
            unread.push(answered(64 << 10).await);
        }
        assert!(unread.iter().all(|answer| answer.status().is_success()), "half of the room");
        assert_eq!(answered(64 << 10).await.status().as_u16(), 503);
        assert!(answered(100).await.status().is_success(), "a small one needs no place");
        // What was sent has left.
        let body = unread.pop().expect("one").into_body();
        assert_eq!(to_bytes(body, usize::MAX).await.expect("a body").len(), 64 << 10);
        assert!(answered(64 << 10).await.status().is_success());
        // What is being sent has not: its bytes are there, whoever holds them.
        let body = unread.pop().expect("one").into_body();
        let sending = to_bytes(body, usize::MAX).await.expect("a body");
        assert_eq!(answered(128 << 10).await.status().as_u16(), 503);
        drop((sending, unread));
        assert!(answered(512 << 10).await.status().is_success());
    }
}
