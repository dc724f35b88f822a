//! What is known of the bodies that are sent on a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bodies of requests on a connection have not come to their end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bodies(Arc<AtomicUsize>);

/// A body that has not come to its end, until this is dropped.
#[derive(Debug)]
pub(crate) struct Awaited(Bodies);

impl Bodies {
    pub(super) fn begin(&self) -> Awaited {
        self.0.fetch_add(1, Ordering::Relaxed);
        Awaited(self.clone())
    }

    pub(super) fn are_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coppice_core::organization::Holder;
    use coppice_core::proxies::TrustedProxies;
    use futures_util::FutureExt as _;
    use tokio::time::Instant;

    use super::super::{Asked, ConnectionLimits, Connections, Ending, Seat};
    use super::*;

    fn connections(total: usize) -> Arc<Connections> {
        Connections::new(ConnectionLimits {
            total,
            per_address: total,
            first_request: Duration::from_secs(15),
            trusted_proxies: TrustedProxies::default(),
        })
    }

    /// A connection, if there is room, with a request that this holder answers for.
    fn ask(all: &Arc<Connections>, peer: &str, holder: &str) -> Option<(Arc<Seat>, Asked)> {
        let seat = Arc::new(all.admit(peer.parse().expect("an address"))?);
        let asked = seat.asked();
        asked.keep(&Holder::from_trusted(holder));
        Some((seat, asked))
    }

    fn has_to_go(seat: &Seat) -> bool {
        match seat.ended().now_or_never() {
            Some(ending) => ending == Ending::Displaced,
            None => false,
        }
    }

    #[tokio::test]
    async fn whoever_has_most_gives_up_connections_for_who_has_fewer() {
        let all = connections(16);
        let crowd: Vec<_> =
            (0..16).map(|number| ask(&all, &format!("10.0.1.{number}"), "usr_1").expect("room")).collect();
        let _slow = [crowd[4].0.awaits(), crowd[9].0.awaits()];
        drop(crowd[2].0.awaits());
        assert!(!crowd.iter().any(|(seat, _)| has_to_go(seat)));
        let mut others = vec![];
        while let Some(other) = ask(&all, "10.0.2.1", "usr_2") {
            others.push(other);
            assert!(others.len() <= 16, "it has no more than the others");
        }
        let gone: Vec<_> = (0..16).filter(|at| has_to_go(&crowd[*at].0)).collect();
        // One that was not kept, two on which a body has not come, and the last ones.
        assert_eq!(gone, [4, 8, 9, 10, 11, 12, 13, 14]);
        assert!(!others.iter().any(|(seat, _)| has_to_go(seat)));
        let third = ask(&all, "10.0.3.1", "usr_3").expect("who has none gets one");
        assert!(!has_to_go(&third.0));
        drop((crowd, others, third));
        let table = all.table.lock();
        assert!(table.open.is_empty() && table.kept.is_unused());
    }

    #[tokio::test]
    async fn who_has_just_come_has_the_time_to_ask() {
        let all = connections(4);
        let _crowd = [1, 2, 3].map(|number| ask(&all, &format!("10.0.1.{number}"), "usr_1").expect("room"));
        let now = Instant::now();
        let come_at = |peer: &str, now| all.admit_at(peer.parse().expect("an address"), now);
        let come = |peer| come_at(peer, now);
        let newcomer = come("10.0.2.1").expect("room");
        assert!(come("10.0.1.4").is_none(), "the crowd's network has more");
        assert!(!has_to_go(&newcomer));
        let other = come("10.0.3.1").expect("it has no fewer than this one");
        assert!(has_to_go(&newcomer));
        assert!(come_at("10.0.1.4", now + Duration::from_millis(250)).is_none());
        let later = now + Duration::from_secs(5);
        assert!(come_at("10.0.1.4", later).is_some() && has_to_go(&other), "it had the time");
    }
}
