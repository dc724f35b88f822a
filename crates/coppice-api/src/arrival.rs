//! Bodies of requests on their way into memory.
//!
//! A body takes memory for as long as its sender likes to be slow. So all of
//! them together share a room of fixed size, each byte takes its place there
//! when it arrives, and who finds none is told to come again. Nobody has more
//! of it than is left: one sender alone gets half, two get a third each, and
//! there is always something for the next one. A network of which others may be
//! in the same place has three times as much, so one alone leaves a quarter.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::request::Parts;
use coppice_core::{Error, network};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::BODY_LIMIT_BYTES;
use crate::client_address::client_address;
use crate::context;
use crate::proof::Proof;

/// For bodies of those who are known and may do what they ask for.
pub(crate) static CALLERS: LazyLock<Room> =
    LazyLock::new(|| Room::new(64 << 20, BODY_LIMIT_BYTES, Duration::from_secs(20), Duration::from_secs(3)));
/// For bodies that say who sends them: forms of people, requests of programs
/// for tokens. Small ones, and a room of their own, so that who has no
/// credential takes nothing from those who have one.
pub(crate) static STRANGERS: LazyLock<Room> =
    LazyLock::new(|| Room::new(64 << 20, 64 << 10, Duration::from_secs(10), Duration::from_secs(3)));

/// For what GitHub sends, which may be large; whether it did is only known at its end.
pub(crate) static DELIVERIES: LazyLock<Room> =
    LazyLock::new(|| Room::new(128 << 20, 25 << 20, Duration::from_secs(10), Duration::from_secs(3)));

/// For what Stripe, Orb and Vercel send.
pub(crate) static BILLING_DELIVERIES: LazyLock<Room> =
    LazyLock::new(|| Room::new(64 << 20, 5 << 20, Duration::from_secs(10), Duration::from_secs(3)));

/// What a body takes of its room at least: a request that is here takes some memory, however small
/// its body is.
const LEAST_BYTES: usize = 16 << 10;

/// How many times what is left a network may have: of IPv4 a /24, of IPv6 a /48.
const SHARE_OF_SITE: usize = 3;

/// Tells senders apart, also after a request is gone.
static SENDERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Memory for bodies.
#[derive(Debug)]
pub(crate) struct Room {
    taken: Mutex<Taken>,
    left: Notify,
    size_bytes: usize,
    limit_bytes: usize,
    /// See [`LEAST_BYTES`].
    least_bytes: usize,
    /// How long a body may take to come to its end.
    patience: Duration,
    /// How long it may wait for others to leave.
    patience_for_room: Duration,
}

/// Bytes that have a place.
#[derive(Debug, Default)]
struct Taken {
    sum: usize,
    by_sender: HashMap<u64, usize>,
}

/// Whose body it is, to count bytes by: an address and its network, what was shown as a
/// credential, if something was, and who answers for the request, once that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Senders {
    address: u64,
    site: u64,
    shown: Option<u64>,
    holder: Option<u64>,
}

/// The place of a body; its bytes are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    room: &'a Room,
    senders: Senders,
    bytes: usize,
}

/// A body that was read. It has its place until this is dropped.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    bytes: Vec<u8>,
    place: Place<'a>,
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It has more bytes than are allowed.
    TooLarge,
    /// Its sender went away, or does not send what it announced.
    Broken,
    /// Its sender took too long.
    Slow,
    /// Other bodies fill the room.
    NoRoom,
}

/// The error for a request for whose body there is no room.
pub(crate) fn no_room() -> Error {
    Error::unavailable("bodies of other requests fill their room")
}

impl Senders {
    /// Who sends a request.
    pub(crate) fn of(parts: &Parts) -> Self {
        // However it is written.
        let shown = Proof::of(&parts.headers, &parts.extensions);
        Self::new(client_address(parts), shown.map(|shown| SENDERS.hash_one(shown.text())))
    }

    /// Who sends a request with another kind of credential.
    pub(crate) fn who_show(address: IpAddr, credential: impl Hash) -> Self {
        Self::new(address, Some(SENDERS.hash_one(credential)))
    }

    fn new(address: IpAddr, shown: Option<u64>) -> Self {
        let (source, site) = (network::source(address), network::site(address));
        let (address, site) = (SENDERS.hash_one(source), SENDERS.hash_one(("site", site)));
        Self { address, site, shown, holder: None }
    }

    /// With who answers for the request by now.
    fn known(self) -> Self {
        let holder = context::holder().map(|holder| SENDERS.hash_one(("holder", holder)));
        Self { holder: self.holder.or(holder), ..self }
    }

    /// Each with how many times what is left it may have.
    fn each(self) -> impl Iterator<Item = (u64, usize)> {
        let others =
            [Some(self.address), self.shown, self.holder].into_iter().flatten().map(|other| (other, 1));
        others.chain([(self.site, SHARE_OF_SITE)])
    }
}

impl Room {
    /// Of `size_bytes` for bodies of at most `limit_bytes`.
    pub(crate) fn new(
        size_bytes: usize,
        limit_bytes: usize,
        patience: Duration,
        patience_for_room: Duration,
    ) -> Self {
        let (taken, left) = (Mutex::default(), Notify::new());
        let least_bytes = LEAST_BYTES;
        Self { taken, left, size_bytes, limit_bytes, least_bytes, patience, patience_for_room }
    }

    /// Reads a body to its end.
    pub(crate) async fn read(&self, body: Body, senders: Senders) -> Result<Received<'_>, Unread> {
        if body.size_hint().lower() > self.limit_bytes as u64 {
            return Err(Unread::TooLarge);
        }
        timeout(self.patience, self.collect(body, senders.known())).await.unwrap_or(Err(Unread::Slow))
    }

    async fn collect(&self, mut body: Body, senders: Senders) -> Result<Received<'_>, Unread> {
        let mut received = Received { bytes: vec![], place: Place { room: self, senders, bytes: 0 } };
        if !body.is_end_stream() {
            received.place.grow(self.least_bytes).await?;
        }
        while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
            if received.bytes.len() + data.len() > self.limit_bytes {
                return Err(Unread::TooLarge);
            }
            let bytes = (received.bytes.len() + data.len()).max(self.least_bytes);
            received.place.grow(bytes - received.place.bytes).await?;
            received.bytes.extend_from_slice(&data);
        }
        Ok(received)
    }

    /// A place for what is in memory already.
    pub(crate) async fn hold(&self, bytes: usize, senders: Senders) -> Result<Place<'_>, Unread> {
        let mut place = Place { room: self, senders: senders.known(), bytes: 0 };
        place.grow(bytes).await?;
        Ok(place)
    }

    /// Gives bytes a place, if none of their senders has more then than it may.
    fn take(&self, senders: Senders, bytes: usize) -> bool {
        let mut taken = self.taken.lock();
        let left = self.size_bytes.saturating_sub(taken.sum + bytes);
        let has = |sender| taken.by_sender.get(&sender).copied().unwrap_or_default();
        if senders.each().any(|(sender, times)| has(sender) + bytes > left.saturating_mul(times)) {
            return false;
        }
        taken.sum += bytes;
        senders.each().for_each(|(sender, _)| *taken.by_sender.entry(sender).or_default() += bytes);
        true
    }
}

impl Place<'_> {
    /// Takes place for more bytes; waits a while for others to leave.
    async fn grow(&mut self, bytes: usize) -> Result<(), Unread> {
        let room = self.room;
        let taken = async {
            loop {
                let left = room.left.notified();
                tokio::pin!(left);
                // From here on nobody leaves unnoticed.
                left.as_mut().enable();
                if room.take(self.senders, bytes) {
                    return;
                }
                left.await;
            }
        };
        timeout(room.patience_for_room, taken).await.map_err(|_| Unread::NoRoom)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl coppice_sql::Memory for Place<'_> {
    async fn take(&mut self, bytes: usize) -> Result<(), coppice_sql::Full> {
        self.grow(bytes).await.map_err(|_| coppice_sql::Full)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.room.taken.lock();
        taken.sum -= self.bytes;
        for (sender, _) in self.senders.each() {
            if let Some(has) = taken.by_sender.get_mut(&sender) {
                *has -= self.bytes;
                if *has == 0 {
                    taken.by_sender.remove(&sender);
                }
            }
        }
        drop(taken);
        self.room.left.notify_waiters();
    }
}

impl<'a> Received<'a> {
    /// The bytes, and the place that they have until it is dropped.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Place<'a>) {
        (self.bytes, self.place)
    }
}

impl Deref for Received<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::to_bytes;
    use axum::extract::Request;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use tower::ServiceExt;

    use super::*;
    use crate::body::RawBody;

    fn room(size_bytes: usize) -> Room {
        let room = Room::new(size_bytes, 8, Duration::from_secs(30), Duration::from_millis(10));
        Room { least_bytes: 0, ..room }
    }

    fn sender(number: u8) -> Senders {
        Senders::new(IpAddr::from([192, 0, number, 1]), None)
    }

    #[tokio::test]
    async fn who_finds_no_room_is_told_and_who_leaves_makes_room() {
        let room = room(16);
        let first = room.read(Body::from("12345678"), sender(1)).await.expect("half of it");
        assert_eq!(*first, *b"12345678");
        assert_eq!(room.read(Body::from("12345"), sender(2)).await.err(), Some(Unread::NoRoom));
        let small = room.read(Body::from("1234"), sender(2)).await.expect("half of what is left");
        drop(first);
        assert!(room.read(Body::from("123456"), sender(1)).await.is_ok());
        drop(small);
        let taken = room.taken.lock();
        assert_eq!((taken.sum, taken.by_sender.len()), (0, 0));
    }

    #[tokio::test]
    async fn no_address_and_no_credential_has_the_whole_room() {
        let room = room(40);
        let mut held = vec![];
        // One address, whatever credentials it shows.
        for number in 0..8 {
            let senders = Senders::new(IpAddr::from([192, 0, 2, 1]), Some(number));
            held.extend(room.read(Body::from("12345678"), senders).await.ok());
        }
        assert_eq!(held.len(), 2, "half of the room");
        // One credential, from wherever it is used.
        let everywhere = |number| Senders::new(IpAddr::from([198, 51, number, 1]), Some(99));
        for number in 0..8 {
            held.extend(room.read(Body::from("1234"), everywhere(number)).await.ok());
        }
        assert_eq!(held.len(), 5, "half of what was left");
        assert!(room.read(Body::from("12345"), sender(3)).await.is_ok(), "there is room for the others");
    }

    #[tokio::test]
    async fn a_network_leaves_something_and_so_does_whoever_answers_for_requests() {
        let room = room(40);
        let mut held = vec![];
        for number in 0..20 {
            let senders = Senders::new(IpAddr::from([192, 0, 2, number]), None);
            held.extend(room.read(Body::from("1234"), senders).await.ok());
        }
        assert_eq!(held.len(), 7, "three quarters of the room");
        assert!(room.read(Body::from("1234"), sender(3)).await.is_ok(), "there is room for others");
        held.clear();
        for number in 0..20 {
            let senders = Senders { holder: Some(7), ..sender(number) };
            held.extend(room.read(Body::from("1234"), senders).await.ok());
        }
        assert_eq!(held.len(), 5, "half of the room");
    }

    #[tokio::test]
    async fn a_body_has_its_place_until_its_request_is_answered() {
        let shown = "who-sends-a-body-of-a-known-size";
        let has = move || {
            let taken = CALLERS.taken.lock();
            taken.by_sender.get(&SENDERS.hash_one(shown)).copied().unwrap_or_default()
        };
        let answer = async move |body: RawBody| {
            let name = body.read(|body| Ok(body["name"].as_str().map(str::to_owned))).await;
            format!("{} {}", name.is_ok(), has())
        };
        let router = Router::new().route("/", post(answer)).layer(from_fn(crate::identify::identify));
        let request = Request::post("/").header("authorization", format!("bEARER   {shown}"));
        let request = request.body(Body::from(r#"{"name":"ada"}"#));
        let answered = router.oneshot(request.expect("a request")).await.expect("an answer");
        let said = to_bytes(answered.into_body(), 100).await.expect("a body");
        assert_eq!(said, format!("true {LEAST_BYTES}"));
        assert_eq!(has(), 0);
    }

    /// A body of which nothing comes, or an error.
    struct Silent(bool);

    impl HttpBody for Silent {
        type Data = axum::body::Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
            match self.0 {
                true => std::task::Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into()))),
                false => std::task::Poll::Pending,
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_to_its_end_is_slow_or_broken() {
        let room = Room { patience: Duration::from_millis(1), ..room(16) };
        let read = async |is_broken| room.read(Body::new(Silent(is_broken)), sender(1)).await.err();
        assert_eq!((read(true).await, read(false).await), (Some(Unread::Broken), Some(Unread::Slow)));
    }

    #[tokio::test]
    async fn the_smallest_body_takes_more_than_its_bytes() {
        let room = Room { least_bytes: 6, ..room(16) };
        let first = room.read(Body::from("1"), sender(1)).await.expect("half of it");
        assert_eq!(room.taken.lock().sum, 6);
        assert_eq!(room.read(Body::from("1"), sender(1)).await.err(), Some(Unread::NoRoom));
        drop(first);
        let larger = room.read(Body::from("1234567"), sender(1)).await.expect("half of it");
        assert_eq!(room.taken.lock().sum, 7);
        drop(larger);
        assert_eq!(room.taken.lock().sum, 0);
    }

    #[tokio::test]
    async fn a_body_that_is_too_large_takes_no_room() {
        let room = room(20);
        assert_eq!(room.read(Body::from("123456789"), sender(1)).await.err(), Some(Unread::TooLarge));
        assert!(room.read(Body::empty(), sender(1)).await.expect("nothing needs no room").is_empty());
        assert_eq!(room.taken.lock().sum, 0);
    }
}
