//! Which connections are held, and which are let go.
//!
//! Whoever connects costs a descriptor before anything is known of them. So
//! connections are counted, all together and by address; and one that has not
//! sent a request yet makes room for the next one. When all have, the network that
//! holds most gives up the one that has gone longest without a request that
//! somebody answers for: to be answered slowly costs a stranger nothing. Nor does it
//! cost much to be somebody: of the connections on which somebody's requests are
//! answered, which make no room, no more are kept than leave some for who comes, and
//! whoever has most of them gives one up for who has fewer.

mod bodies;
mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coppice_core::network;
use coppice_core::organization::Holder;
use coppice_core::proxies::TrustedProxies;
use metrics::{counter, describe_counter, describe_gauge, gauge};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub(crate) use self::bodies::Awaited;
use self::bodies::Bodies;
use self::table::Table;

const CONNECTIONS: &str = "coppice_http_connections";
const CONNECTIONS_REFUSED: &str = "coppice_http_connections_refused_total";
const CONNECTIONS_ENDED: &str = "coppice_http_connections_ended_total";

/// How long a connection without a request is held: longer than clients keep
/// those that they don't use, so that they and not we close them and no request
/// is sent into a connection that goes away.
pub(crate) const IDLE_PATIENCE: Duration = Duration::from_secs(120);

/// How many connections are held, and how long without a request.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// At the same time.
    pub total: usize,
    /// At the same time of one address; of IPv6, one /64. Trusted proxies have
    /// no such limit.
    pub per_address: usize,
    /// From the connection to the end of the first request's headers.
    pub first_request: Duration,
    /// Who connects for others.
    pub trusted_proxies: TrustedProxies,
}

/// The connections that are held.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    table: Mutex<Table>,
}

/// A connection that is held.
#[derive(Debug)]
pub(crate) struct Seat {
    connections: Arc<Connections>,
    number: u64,
    end: Arc<Notify>,
    unread: Arc<Notify>,
    usage: Mutex<Usage>,
    bodies: Bodies,
}

/// The way to end a connection on which an answer is not read; in the extensions
/// of its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unread(pub(crate) Arc<Notify>);

/// Whoever holds it has not left yet.
#[derive(Debug)]
pub(crate) struct Left {
    /// Closed when it has.
    _left: oneshot::Sender<()>,
}

impl Unread {
    /// Ends the connection when what holds the value has not left after so long.
    pub(crate) fn notify_after(self, patience: Duration) -> Left {
        let (left, has_left) = oneshot::channel();
        tokio::spawn(async move {
            if tokio::time::timeout(patience, has_left).await.is_err() {
                self.0.notify_one();
            }
        });
        Left { _left: left }
    }
}

/// What a connection is used for now.
#[derive(Clone, Copy, Debug)]
struct Usage {
    has_asked: bool,
    in_progress: usize,
    /// Of them, those that somebody answers for.
    kept: usize,
    since: Instant,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its first request did not come in time.
    FirstRequest,
    /// No request came any more.
    Idle,
    /// Another connection needed its place.
    Displaced,
    /// An answer that takes much memory was not read.
    Unread,
}

impl Ending {
    /// As `/metrics` names it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::FirstRequest => "first_request",
            Self::Idle => "idle",
            Self::Displaced => "displaced",
            Self::Unread => "unread",
        }
    }
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::new(Table::new()) })
    }

    /// A place for a new connection, where need be that of a silent one, or of
    /// one that is not kept: of the same address if that has as many as it may
    /// have, else of a network that holds more than this one's does.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        self.admit_at(peer, Instant::now())
    }

    fn admit_at(self: &Arc<Self>, peer: IpAddr, now: Instant) -> Option<Seat> {
        let peer = peer.to_canonical();
        let address = (!self.limits.trusted_proxies.trusts(peer)).then(|| network::source(peer));
        let (mut table, mut refusal) = (self.table.lock(), None);
        if let Some(address) = address
            && table.of_address.get(&address).is_some_and(|count| *count >= self.limits.per_address)
            && !table.displace_one_of(address)
        {
            refusal = Some("address");
        } else if table.open.len() >= self.limits.total && !table.make_room(address.map(network::site), now) {
            refusal = Some("total");
        }
        if let Some(limit) = refusal {
            counter!(CONNECTIONS_REFUSED, "limit" => limit).increment(1);
            return None;
        }
        let end = Arc::new(Notify::new());
        let number = table.insert(address, end.clone(), now);
        gauge!(CONNECTIONS).set(table.open.len() as f64);
        let usage = Mutex::new(Usage { has_asked: false, in_progress: 0, kept: 0, since: now });
        let (unread, bodies) = Default::default();
        Some(Seat { connections: self.clone(), number, end, unread, usage, bodies })
    }
}

impl Seat {
    /// A request came; it is answered when what this returns is dropped. Until somebody answers for it, its
    /// connection makes room for others.
    pub(crate) fn asked(self: &Arc<Self>) -> Asked {
        let mut usage = self.usage.lock();
        let mut table = self.connections.table.lock();
        if !usage.has_asked {
            usage.has_asked = true;
            table.has_asked(self.number);
        }
        if usage.kept == 0 {
            table.let_go(self.number, Instant::now());
        }
        drop(table);
        usage.in_progress += 1;
        drop(usage);
        Asked { seat: self.clone(), is_kept: AtomicBool::new(false) }
    }

    /// The body of a request begins to come.
    pub(crate) fn awaits(&self) -> Awaited {
        self.bodies.begin()
    }

    /// Ends the connection when it is notified, because an answer is not read.
    pub(crate) fn unread(&self) -> Unread {
        Unread(self.unread.clone())
    }

    /// Completes when the connection has to end.
    pub(crate) async fn ended(&self) -> Ending {
        loop {
            let next_look =
                match self.usage.lock().next_look(self.connections.limits.first_request, Instant::now()) {
                    Ok(next_look) => next_look,
                    Err(ending) => return ending,
                };
            tokio::select! {
                () = self.end.notified() => return Ending::Displaced,
                () = self.unread.notified() => return Ending::Unread,
                () = tokio::time::sleep_until(next_look) => {}
            }
        }
    }
}

impl Usage {
    /// When it may have to end at the earliest; or why it has to now.
    fn next_look(self, first_request: Duration, now: Instant) -> Result<Instant, Ending> {
        let (patience, ending) = match self.has_asked {
            false => (first_request, Ending::FirstRequest),
            true => (IDLE_PATIENCE, Ending::Idle),
        };
        let last = if self.in_progress == 0 { self.since + patience } else { now + patience };
        if last <= now { Err(ending) } else { Ok(last) }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.connections.table.lock();
        table.remove(self.number);
        gauge!(CONNECTIONS).set(table.open.len() as f64);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Asked {
    seat: Arc<Seat>,
    is_kept: AtomicBool,
}

impl Asked {
    /// This holder answers for the request, which keeps its connection, unless others do who have fewer. Where several
    /// holders ask on one, as by a proxy, it is of the one who was first of those that are being answered.
    pub(crate) fn keep(&self, holder: &Holder) {
        let seat = &self.seat;
        let mut usage = seat.usage.lock();
        let total = seat.connections.limits.total;
        let is_kept = self.is_kept.load(Ordering::Relaxed);
        if is_kept
            || (usage.kept == 0
                && !seat.connections.table.lock().keep(seat.number, holder, &seat.bodies, total))
        {
            return;
        }
        usage.kept += 1;
        self.is_kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut usage = self.seat.usage.lock();
        usage.in_progress -= 1;
        usage.kept -= usize::from(*self.is_kept.get_mut());
        usage.since = Instant::now();
        if usage.kept == 0 {
            self.seat.connections.table.lock().let_go(self.seat.number, usage.since);
        }
    }
}

/// Says what is counted of connections, and begins with zero.
pub(crate) fn describe() {
    describe_gauge!(CONNECTIONS, "Connections that are held.");
    describe_counter!(CONNECTIONS_REFUSED, "Connections for which there was no room, by limit.");
    describe_counter!(CONNECTIONS_ENDED, "Connections that were ended for want of a request, by reason.");
    gauge!(CONNECTIONS).set(0.0);
    for limit in ["total", "address"] {
        counter!(CONNECTIONS_REFUSED, "limit" => limit).absolute(0);
    }
    for ending in [Ending::FirstRequest, Ending::Idle, Ending::Displaced, Ending::Unread] {
        counter!(CONNECTIONS_ENDED, "reason" => ending.label()).absolute(0);
    }
}

/// Counts a connection that was ended.
pub(crate) fn count_ending(ending: Ending) {
    counter!(CONNECTIONS_ENDED, "reason" => ending.label()).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(total: usize, per_address: usize, proxies: &[&str]) -> Arc<Connections> {
        Connections::new(ConnectionLimits {
            total,
            per_address,
            first_request: Duration::from_secs(15),
            trusted_proxies: TrustedProxies::parse(proxies).expect("ranges"),
        })
    }

    fn admit(connections: &Arc<Connections>, peer: &str) -> Option<Arc<Seat>> {
        connections.admit(peer.parse().expect("an address")).map(Arc::new)
    }

    /// A request that somebody answers for.
    fn kept(seat: &Arc<Seat>) -> Asked {
        let asked = seat.asked();
        asked.keep(&Holder::from_trusted("usr_1"));
        asked
    }

    async fn has_to_go(seat: &Seat) -> Option<Ending> {
        tokio::time::timeout(Duration::from_millis(1), seat.ended()).await.ok()
    }

    #[tokio::test]
    async fn who_says_nothing_makes_room_and_who_has_asked_does_not() {
        let all = connections(3, 2, &[]);
        let [first, second] = ["10.0.1.1", "10.0.1.1"].map(|peer| admit(&all, peer).expect("room"));
        drop(first.asked());
        let third = admit(&all, "10.0.1.1").expect("the second makes room");
        assert_eq!((has_to_go(&first).await, has_to_go(&second).await), (None, Some(Ending::Displaced)));
        let busy = [kept(&first), kept(&third)];
        assert!(admit(&all, "10.0.1.1").is_none(), "both are being answered");
        assert!(admit(&all, "::ffff:10.0.1.1").is_none(), "it is the same address");

        let other = admit(&all, "10.0.2.1").expect("room");
        let another = admit(&all, "10.0.3.1").expect("the silent one makes room");
        assert_eq!(has_to_go(&other).await, Some(Ending::Displaced));
        let busy = (busy, kept(&another));
        assert!(admit(&all, "10.0.4.1").is_none(), "all three are being answered");
        drop((second, other));
        assert!(admit(&all, "10.0.4.1").is_none(), "who was displaced does not count twice");
        drop(busy);
        drop(first);
        assert!(admit(&all, "10.0.4.1").is_some());
    }

    #[tokio::test]
    async fn an_address_with_as_many_as_it_may_have_gives_up_an_idle_one() {
        let all = connections(9, 2, &[]);
        let [first, second] = ["10.0.1.1", "10.0.1.1"].map(|peer| admit(&all, peer).expect("room"));
        let busy = kept(&first);
        drop(second.asked());
        let third = admit(&all, "10.0.1.1").expect("room");
        assert_eq!(has_to_go(&second).await, Some(Ending::Displaced));
        let _third = kept(&third);
        assert!(admit(&all, "10.0.1.1").is_none(), "both are being answered");
        drop(busy);
        assert!(admit(&all, "10.0.1.1").is_some());
        assert_eq!(has_to_go(&first).await, Some(Ending::Displaced));
    }

    #[tokio::test]
    async fn idle_connections_of_whoever_holds_most_make_room() {
        let all = connections(5, 3, &[]);
        let [a1, a2, a3, b1, b2] = ["10.0.1.1", "10.0.1.1", "10.0.1.1", "10.0.2.1", "10.0.2.1"]
            .map(|peer| admit(&all, peer).expect("room"));
        for seat in [&b1, &a2, &a1, &b2, &a3] {
            drop(seat.asked());
        }
        let busy = kept(&a2);
        let third = admit(&all, "10.0.3.1").expect("room");
        assert_eq!(has_to_go(&a1).await, Some(Ending::Displaced), "idle longest of those that hold most");
        drop(third.asked());
        // The first address has one idle connection left and as many as the second.
        let fourth = admit(&all, "10.0.4.1").expect("room");
        drop(fourth.asked());
        drop(busy);
        let held = [&a2, &a3, &b1, &b2, &third, &fourth];
        let mut gone = vec![];
        for seat in held {
            gone.push(has_to_go(seat).await.is_some());
        }
        assert_eq!(gone.iter().filter(|gone| **gone).count(), 1, "{gone:?}");
        assert!(!gone[0] && !gone[4] && !gone[5], "neither who is answered nor who holds less: {gone:?}");

        // Where everybody holds as many, nobody is ended for one who has that many.
        let even = connections(2, 2, &[]);
        let seats = ["10.0.1.1", "10.0.2.1"].map(|peer| admit(&even, peer).expect("room"));
        seats.iter().for_each(|seat| drop(seat.asked()));
        assert!(admit(&even, "10.0.1.1").is_none());
        assert!(admit(&even, "10.0.3.1").is_some(), "who has none comes first");
    }

    #[tokio::test]
    async fn a_network_of_ipv6_is_one_address_and_a_trusted_proxy_none() {
        let all = connections(10, 1, &["192.0.2.1"]);
        let one = admit(&all, "2001:db8::1").expect("room");
        let _busy = kept(&one);
        assert!(admit(&all, "2001:db8::2:3").is_none());
        assert!(admit(&all, "2001:db8:0:1::1").is_some());
        let behind: Vec<_> = (0..8).map(|_| admit(&all, "192.0.2.1").expect("no limit of its own")).collect();
        behind.iter().for_each(|seat| drop(seat.asked()));
        drop(admit(&all, "10.0.1.1").expect("room"));
        let last = admit(&all, "192.0.2.1").expect("room");
        drop(last.asked());
        assert!(admit(&all, "192.0.2.1").is_none(), "the sum holds for it too");
    }

    #[tokio::test]
    async fn a_request_that_nobody_answers_for_keeps_no_connection() {
        let all = connections(3, 3, &[]);
        let of = |network: u16| format!("2001:db8:1:{network}::1");
        let strangers: Vec<_> = (1..4).map(|network| admit(&all, &of(network)).expect("room")).collect();
        let mut slow: Vec<_> = strangers.iter().map(|seat| Some(seat.asked())).collect();
        let known = admit(&all, "10.0.1.1").expect("room");
        assert_eq!(has_to_go(&strangers[0]).await, Some(Ending::Displaced), "it has been slow for longest");
        slow[1].as_ref().expect("in progress").keep(&Holder::from_trusted("usr_1"));
        let _known = kept(&known);
        assert!(admit(&all, &of(5)).is_none(), "all of a site are one");
        let other = admit(&all, "10.0.2.1").expect("room");
        assert_eq!(
            has_to_go(&strangers[2]).await,
            Some(Ending::Displaced),
            "somebody answers for the second"
        );
        let _other = kept(&other);
        assert!(admit(&all, "10.0.3.1").is_none(), "somebody answers for each");
        slow[1] = None;
        assert!(admit(&all, "10.0.3.1").is_some(), "it was answered");
        assert_eq!(has_to_go(&strangers[1]).await, Some(Ending::Displaced));
    }

    #[test]
    fn a_connection_ends_without_its_first_request_and_when_nothing_comes_any_more() {
        let (since, first_request) = (Instant::now(), Duration::from_secs(15));
        let look = |has_asked, in_progress, seconds| {
            let now = since + Duration::from_secs(seconds);
            let usage = Usage { has_asked, in_progress, kept: 0, since };
            usage.next_look(first_request, now).map(|next| next.duration_since(now).as_secs())
        };
        assert_eq!(look(false, 0, 0), Ok(15));
        assert_eq!(look(false, 0, 14), Ok(1));
        assert_eq!(look(false, 0, 15), Err(Ending::FirstRequest));
        assert_eq!(look(true, 0, 15), Ok(105));
        assert_eq!(look(true, 0, 120), Err(Ending::Idle));
        assert_eq!(look(true, 1, 1000), Ok(120), "it is being answered");
    }
}
