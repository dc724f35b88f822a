//! Bodies of requests on their way into memory.
//!
//! A body takes memory for as long as its sender likes to be slow. So all of
//! them together share a room of fixed size, each byte takes its place there
//! when it arrives, and who finds none is told to come again.

use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use coppice_core::Error;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::BODY_LIMIT_BYTES;

/// For bodies of those who are known and may do what they ask for.
pub(crate) static CALLERS: Room =
    Room::new(64 << 20, BODY_LIMIT_BYTES, Duration::from_secs(20), Duration::from_secs(3));
/// For bodies that say who sends them: forms of people, requests of programs
/// for tokens. Small ones, and a room of their own, so that who has no
/// credential takes nothing from those who have one.
pub(crate) static STRANGERS: Room =
    Room::new(64 << 20, 64 << 10, Duration::from_secs(10), Duration::from_secs(3));

/// Memory for bodies.
#[derive(Debug)]
pub(crate) struct Room {
    free: Semaphore,
    limit_bytes: usize,
    /// How long a body may take to come to its end.
    patience: Duration,
    /// How long it may wait for others to leave.
    patience_for_room: Duration,
}

/// A body that was read. It has its place until this is dropped.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    bytes: Vec<u8>,
    place: Option<SemaphorePermit<'a>>,
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It has more bytes than are allowed.
    TooLarge,
    /// Its sender went away.
    Broken,
    /// Its sender took too long.
    Slow,
    /// Bodies of others fill the room.
    NoRoom,
}

impl Room {
    /// Of `size_bytes` for bodies of at most `limit_bytes`.
    const fn new(
        size_bytes: usize,
        limit_bytes: usize,
        patience: Duration,
        patience_for_room: Duration,
    ) -> Self {
        Self { free: Semaphore::const_new(size_bytes), limit_bytes, patience, patience_for_room }
    }

    /// Reads a body to its end.
    pub(crate) async fn read(&self, body: Body) -> Result<Received<'_>, Unread> {
        if body.size_hint().lower() > self.limit_bytes as u64 {
            return Err(Unread::TooLarge);
        }
        timeout(self.patience, self.collect(body)).await.unwrap_or(Err(Unread::Slow))
    }

    async fn collect(&self, mut body: Body) -> Result<Received<'_>, Unread> {
        let mut received = Received { bytes: vec![], place: None };
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
            if received.bytes.len() + data.len() > self.limit_bytes {
                return Err(Unread::TooLarge);
            }
            let place = self.place(&data).await?;
            match &mut received.place {
                Some(taken) => taken.merge(place),
                none => *none = Some(place),
            }
            received.bytes.extend_from_slice(&data);
        }
        Ok(received)
    }

    async fn place(&self, data: &Bytes) -> Result<SemaphorePermit<'_>, Unread> {
        let count = u32::try_from(data.len()).map_err(|_| Unread::TooLarge)?;
        match timeout(self.patience_for_room, self.free.acquire_many(count)).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(Unread::NoRoom),
        }
    }
}

impl<'a> Received<'a> {
    /// The bytes, and the place that they have until it is dropped.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<SemaphorePermit<'a>>) {
        (self.bytes, self.place)
    }
}

impl Deref for Received<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Unread {
    /// The error that it is, where the body itself is not to blame.
    pub(crate) fn error(self) -> Option<Error> {
        match self {
            Self::TooLarge | Self::Broken => None,
            Self::Slow => Some(Error::Timeout { private: "a body did not come to its end".to_owned() }),
            Self::NoRoom => Some(Error::unavailable("bodies of other requests fill their room")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Room {
        let moment = Duration::from_millis(10);
        Room::new(10, 8, Duration::from_secs(30), moment)
    }

    #[tokio::test]
    async fn who_finds_no_room_is_told_and_who_leaves_makes_room() {
        let room = room();
        let first = room.read(Body::from("12345678")).await.expect("room");
        assert_eq!(*first, *b"12345678");
        assert_eq!(room.read(Body::from("123")).await.err(), Some(Unread::NoRoom));
        let small = room.read(Body::from("12")).await.expect("two bytes are left");
        drop(first);
        assert!(room.read(Body::from("12345678")).await.is_ok());
        drop(small);
        assert_eq!(room.free.available_permits(), 10);
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_takes_no_room() {
        let room = room();
        assert_eq!(room.read(Body::from("123456789")).await.err(), Some(Unread::TooLarge));
        assert!(room.read(Body::empty()).await.expect("nothing needs no room").is_empty());
        assert_eq!(room.free.available_permits(), 10);
    }
}
