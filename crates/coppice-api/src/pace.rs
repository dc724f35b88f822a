//! How fast a connection is read, and who waits for answers.
//!
//! What costs its sender nothing would else be read and answered as fast as it can be
//! sent, by the workers that everybody's sign-ins wait for: refusals, and what belongs
//! to no request. So a connection has an allowance of bytes that requests add to, most
//! when somebody answers for them; and who sends too many that nobody answers for waits
//! for what is said. Neither holds for the connections of trusted proxies: others would
//! wait behind whoever sends too much, and have no place where all wait.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use coppice_core::network;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

use crate::connections::{Awaited, Seat};

/// What a connection may send before it has asked for anything.
const FIRST_BYTES: i64 = 16 << 10;
/// What it may send beside its requests: pings, settings, what it has received.
const BYTES_PER_SECOND: u64 = 4 << 10;
/// What it may have saved.
const BYTES_MAX: i64 = 256 << 10;
/// How much comes at once when it has to wait for more.
const STEP: Duration = Duration::from_millis(500);

/// Answers a second to requests of one address that nobody answers for, and as many at once;
/// the files of pages are among them.
const AT_ONCE: Quota = Quota::per_second(NonZeroU32::new(200).expect("not zero"))
    .allow_burst(NonZeroU32::new(1000).expect("not zero"));
/// What a request that is taken back costs its connection: it was worked on, and nobody waits for what is said.
const TAKEN_BACK_BYTES: usize = 2 << 10;
/// How long those that are beyond wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Somebody answers for the request: it was in the rate of a credential, or a role signed in;
/// in the extensions of its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnsweredFor;

/// What may be read of a connection now.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<Allowance>);

#[derive(Debug)]
struct Allowance {
    bytes: i64,
    at: Instant,
    is_boundless: bool,
    waits: Option<Waker>,
}

/// A reader that waits until more may be read.
#[derive(Debug, Default)]
pub(crate) struct Pause(Option<Pin<Box<Sleep>>>);

/// How often who has no credential is answered at once.
#[derive(Debug)]
pub(crate) struct Strangers(DefaultKeyedRateLimiter<IpAddr>);

/// A request that is not answered yet. Dropped so, it was taken back.
#[derive(Debug)]
pub(crate) struct Unanswered(Option<Arc<Pace>>);

/// The body of a request: what a handler reads of it is no more than was asked for.
#[derive(Debug)]
pub(crate) struct Arriving {
    body: Incoming,
    pace: Arc<Pace>,
    /// Until it has come to its end.
    awaited: Option<Awaited>,
}

impl Default for Pace {
    fn default() -> Self {
        let (bytes, at) = (FIRST_BYTES, Instant::now());
        Self(Mutex::new(Allowance { bytes, at, is_boundless: false, waits: None }))
    }
}

impl Allowance {
    fn earn(&mut self, now: Instant) {
        let millis = u64::try_from(now.duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        let earned = i64::try_from(millis.saturating_mul(BYTES_PER_SECOND) / 1000).unwrap_or(i64::MAX);
        if earned > 0 {
            self.at += Duration::from_millis(millis);
            self.bytes = self.bytes.max(self.bytes.saturating_add(earned).min(FIRST_BYTES));
        }
    }

    /// How long until something may be read again.
    fn wait(&mut self, now: Instant) -> Option<Duration> {
        self.earn(now);
        let is_short = !self.is_boundless && self.bytes <= 0;
        is_short.then(|| STEP + Duration::from_millis(self.bytes.unsigned_abs() * 1000 / BYTES_PER_SECOND))
    }
}

impl Pace {
    /// Lets everything be read from now on: of a trusted proxy, which many are behind, and of a
    /// WebSocket, whose frames are looked at one by one.
    pub(crate) fn set_boundless(&self) {
        let mut allowance = self.0.lock();
        allowance.is_boundless = true;
        allowance.waits.take().into_iter().for_each(Waker::wake);
    }

    /// Adds to what may be read.
    pub(crate) fn add(&self, bytes: usize) {
        let mut allowance = self.0.lock();
        let bytes = i64::try_from(bytes).unwrap_or(BYTES_MAX).min(BYTES_MAX);
        allowance.bytes = (allowance.bytes + bytes).min(BYTES_MAX);
        if allowance.bytes > 0 {
            allowance.waits.take().into_iter().for_each(Waker::wake);
        }
    }

    /// A piece of an answer was taken, which its client may have to confirm.
    pub(crate) fn add_confirmations(&self, sent: usize) {
        self.add(32 + sent / 16);
    }

    /// A request was answered: the next one may come.
    pub(crate) fn add_request(&self, status: StatusCode, is_answered_for: bool) {
        self.add(match () {
            () if is_answered_for => 32 << 10,
            () if status.is_client_error() || status.is_server_error() => 512,
            () => 2 << 10,
        });
    }

    /// Waits until something may be read.
    pub(crate) fn poll(&self, pause: &mut Pause, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let wait = {
                let mut allowance = self.0.lock();
                let wait = allowance.wait(Instant::now());
                allowance.waits = wait.map(|_| context.waker().clone());
                wait
            };
            let Some(wait) = wait else {
                pause.0 = None;
                return Poll::Ready(());
            };
            let sleeping = pause.0.get_or_insert_with(|| Box::pin(sleep(wait)));
            ready!(sleeping.as_mut().poll(context));
            pause.0 = None;
        }
    }

    /// So much was read.
    pub(crate) fn take(&self, bytes: usize) {
        let mut allowance = self.0.lock();
        allowance.bytes = allowance.bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

impl Strangers {
    pub(crate) fn new() -> Self {
        Self(RateLimiter::dashmap(AT_ONCE))
    }

    /// Whether a request of an address, for which nobody answers, is answered at once.
    pub(crate) fn is_answered_at_once(&self, address: IpAddr) -> bool {
        self.0.check_key(&network::source(address)).is_ok()
    }

    /// Forgets those who have not called for a while.
    pub(crate) fn forget_idle(&self) {
        self.0.retain_recent();
        self.0.shrink_to_fit();
    }
}

impl Unanswered {
    pub(crate) fn on(pace: Arc<Pace>) -> Self {
        Self(Some(pace))
    }

    /// It has its answer.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(pace) = &self.0 {
            pace.take(TAKEN_BACK_BYTES);
        }
    }
}

impl Arriving {
    pub(crate) fn new(body: Incoming, pace: Arc<Pace>, seat: &Seat) -> Self {
        let awaited = (!body.is_end_stream()).then(|| seat.awaits());
        Self { body, pace, awaited }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            // With what it is wrapped into.
            self.pace.add(data.len() + data.len() / 16);
        }
        if self.body.is_end_stream() || !matches!(frame, Some(Ok(_))) {
            self.awaited = None;
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

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    #[test]
    fn who_takes_requests_back_is_read_no_faster_than_who_waits() {
        let pace = Arc::<Pace>::default();
        let has_to_wait = || pace.0.lock().wait(Instant::now()).is_some();
        for _ in 0..20 {
            Unanswered::on(pace.clone()).end();
        }
        assert!(!has_to_wait());
        for _ in 0..9 {
            drop(Unanswered::on(pace.clone()));
        }
        assert!(has_to_wait());
        pace.add_request(StatusCode::OK, true);
        assert!(!has_to_wait(), "somebody answers for the next one");
    }

    #[derive(Default)]
    struct Woken(Mutex<bool>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            *self.0.lock() = true;
        }
    }

    #[test]
    fn an_allowance_grows_with_time_and_no_further_than_its_beginning() {
        let pace = Pace::default();
        let began = pace.0.lock().at;
        let read = |bytes: usize, seconds: u64| {
            pace.take(bytes);
            pace.0.lock().wait(began + Duration::from_secs(seconds))
        };
        assert_eq!(read((16 << 10) - 1, 0), None);
        assert_eq!(read(1, 0), Some(STEP));
        assert_eq!(
            read(4 << 10, 0),
            Some(STEP + Duration::from_secs(1)),
            "what was read beyond is waited for"
        );
        assert_eq!(read(0, 3), None);
        assert_eq!(read(8 << 10, 3), Some(STEP));
        assert_eq!(read(0, 3600), None);
        assert_eq!(read((16 << 10) - 1, 3600), None);
        assert_eq!(read(1, 3600), Some(STEP));
    }

    #[tokio::test]
    async fn who_waits_goes_on_at_once_when_a_body_is_read() {
        let pace = Pace::default();
        pace.take(1 << 20);
        let (woken, mut pause) = (Arc::<Woken>::default(), Pause::default());
        let waker = woken.clone().into();
        let context = &mut Context::from_waker(&waker);
        assert!(pace.poll(&mut pause, context).is_pending());
        pace.add(256 << 10);
        assert!(!*woken.0.lock() && pace.poll(&mut pause, context).is_pending(), "it read more than that");
        (0..4).for_each(|_| pace.add(256 << 10));
        assert!(*woken.0.lock() && pace.poll(&mut pause, context).is_ready());
    }

    #[test]
    fn an_address_is_answered_at_once_until_it_asks_too_often() {
        let strangers = Strangers::new();
        let ask = |last: u8| strangers.is_answered_at_once(IpAddr::from([192, 0, 2, last]));
        assert!((0..1000).all(|_| ask(1)), "a page has many files");
        assert!((0..1000).any(|_| !ask(1)));
        assert!(ask(2), "others are not affected");
    }
}
