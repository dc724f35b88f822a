//! Stage: a place for each connection.
//!
//! Places are bounded in all and for each address, apart for clients that have
//! signed in and for those that have not: strangers can neither take those of
//! clients, nor one of them those of all the others. Who finds none may get one
//! at the door, to cancel a statement or to be told properly.
//!
//! Where strangers of many addresses have taken all, whoever comes gets the place
//! of the one that has gone longest without signing in. Where clients that have signed in
//! have, theirs have that are of whoever has most: one that waits, or the last that came
//! (`shares.rs`).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coppice_core::network;
use coppice_core::organization::Holder;
use parking_lot::Mutex;
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;

use crate::ConnectionLimits;
use crate::refusal::Refusal;
use crate::shares::{NoneLeft, Shares};

/// Places at the door, in all and for one address. Those beyond are sent away
/// without being listened to.
const DOOR_MAX: usize = 32;
const DOOR_PER_ADDRESS_MAX: usize = 4;

/// For so long nobody's place is given to another: most clients sign in meanwhile.
const UNDISPLACED: Duration = Duration::from_millis(250);

/// The part of all places, as a divisor, that is left for clients that sign in: those that have signed in
/// are not asked to make room by strangers.
const LEFT: usize = 8;

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All are taken.
    Gateway,
    /// The address has as many as it may have.
    Address,
}

impl Full {
    pub(crate) fn refusal(self) -> Refusal {
        match self {
            Self::Gateway => Refusal::too_many_clients(),
            Self::Address => Refusal::too_many_of_address(),
        }
    }
}

/// All places.
pub(crate) struct Places {
    limits: ConnectionLimits,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: Counts,
    by_address: HashMap<IpAddr, Counts>,
    /// Who has not signed in, but for those at the door, by the order in which they came.
    starting: BTreeMap<u64, Starter>,
    /// Who has signed in, by who answers for the branch, by the same order.
    staying: Shares<Arc<Stay>>,
    /// How many have come.
    came: u64,
}

struct Starter {
    source: Option<IpAddr>,
    since: Instant,
    displaced: CancellationToken,
}

/// The stay of a client that has signed in.
#[derive(Debug, Default)]
struct Stay {
    source: Option<IpAddr>,
    is_waiting: AtomicBool,
    gives_way: CancellationToken,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    starting: usize,
    signed_in: usize,
    at_the_door: usize,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Starting,
    SignedIn,
    Door(Full),
}

/// A client's place, taken as long as it lives.
pub(crate) struct Place {
    places: Arc<Places>,
    /// Of IPv6 a whole network; none until a proxy has said it.
    source: Option<IpAddr>,
    stand: Stand,
    /// Which of those that came it is.
    number: u64,
    displaced: CancellationToken,
    /// Once its client has signed in: with whoever answers for its branch.
    stay: Option<(Holder, Arc<Stay>)>,
    /// The same, for who took the client in.
    signed_in: Arc<SetOnce<Holder>>,
}

impl Counts {
    fn of(&mut self, stand: Stand) -> &mut usize {
        match stand {
            Stand::Starting => &mut self.starting,
            Stand::SignedIn => &mut self.signed_in,
            Stand::Door(_) => &mut self.at_the_door,
        }
    }
}

impl Taken {
    fn of_address(&self, source: Option<IpAddr>) -> Counts {
        source.and_then(|source| self.by_address.get(&source)).copied().unwrap_or_default()
    }

    fn add(&mut self, stand: Stand, source: Option<IpAddr>) {
        *self.all.of(stand) += 1;
        if let Some(source) = source {
            *self.by_address.entry(source).or_default().of(stand) += 1;
        }
    }

    fn remove(&mut self, stand: Stand, source: Option<IpAddr>) {
        *self.all.of(stand) -= 1;
        let Some(source) = source else { return };
        if let Some(counts) = self.by_address.get_mut(&source) {
            *counts.of(stand) -= 1;
            if *counts == Counts::default() {
                self.by_address.remove(&source);
            }
        }
    }

    /// Frees the place of who came first of those that have not signed in; tells
    /// whether there was one that had the time to.
    fn displace(&mut self, now: Instant) -> bool {
        let Some(first) = self.starting.first_entry() else { return false };
        if now.duration_since(first.get().since) < UNDISPLACED {
            return false;
        }
        let starter = first.remove();
        self.remove(Stand::Starting, starter.source);
        starter.displaced.cancel();
        true
    }

    /// Has a client stay as one of this holder's, where need be instead of one of whoever has most. Who waits for
    /// its client to say something loses least.
    fn stay(&mut self, (holder, number): (&Holder, u64), stay: Arc<Stay>, most: usize) -> Result<(), Full> {
        let is_waiting = |stay: &Arc<Stay>| stay.is_waiting.load(Ordering::Relaxed);
        let gives_way = self.staying.take((holder, number), stay, most, is_waiting);
        if let Some((_, gone)) = gives_way.map_err(|NoneLeft| Full::Gateway)? {
            self.remove(Stand::SignedIn, gone.source);
            gone.gives_way.cancel();
        }
        Ok(())
    }
}

impl Places {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    /// Clients with a place that is not at the door, and how many of them have
    /// not signed in.
    pub(crate) fn taken_and_starting(&self) -> (usize, usize) {
        let all = self.taken.lock().all;
        (all.starting + all.signed_in, all.starting)
    }

    /// Takes a place for a client that has just connected from `address`; none
    /// when that is a proxy, which is going to say where the client is.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Place, Full> {
        self.enter_at(address, Instant::now())
    }

    fn enter_at(self: &Arc<Self>, address: Option<IpAddr>, now: Instant) -> Result<Place, Full> {
        let source = address.map(network::source);
        let mut taken = self.taken.lock();
        let (all, own) = (taken.all, taken.of_address(source));
        let is_full =
            all.starting + all.signed_in >= self.limits.total || all.starting >= self.limits.starting;
        let full = if own.starting >= self.limits.starting_per_address {
            Some(Full::Address)
        } else {
            (is_full && !taken.displace(now)).then_some(Full::Gateway)
        };
        let stand = match full {
            None => Stand::Starting,
            Some(full) if all.at_the_door >= DOOR_MAX || own.at_the_door >= DOOR_PER_ADDRESS_MAX => {
                return Err(full);
            }
            Some(full) => Stand::Door(full),
        };
        taken.add(stand, source);
        taken.came += 1;
        let (number, displaced) = (taken.came, CancellationToken::new());
        if stand == Stand::Starting {
            taken.starting.insert(number, Starter { source, since: now, displaced: displaced.clone() });
        }
        let signed_in = Arc::new(SetOnce::new());
        Ok(Place { places: self.clone(), source, stand, number, displaced, stay: None, signed_in })
    }
}

impl Place {
    /// Cancelled when the place is another client's before this one has signed in.
    pub(crate) fn displaced(&self) -> CancellationToken {
        self.displaced.clone()
    }

    /// Who answers for the branch that the client has signed in to, once it has.
    pub(crate) fn signed_in(&self) -> Arc<SetOnce<Holder>> {
        self.signed_in.clone()
    }

    /// Counts the client to the address that its proxy has told.
    pub(crate) fn name(&mut self, address: IpAddr) -> Result<(), Full> {
        if self.source.is_some() {
            return Ok(());
        }
        let source = Some(network::source(address));
        let mut taken = self.places.taken.lock();
        if self.displaced.is_cancelled() {
            return Err(Full::Gateway);
        }
        let own = taken.of_address(source);
        let full = match self.stand {
            Stand::Door(full) => (own.at_the_door >= DOOR_PER_ADDRESS_MAX).then_some(full),
            Stand::Starting | Stand::SignedIn => {
                (own.starting >= self.places.limits.starting_per_address).then_some(Full::Address)
            }
        };
        if let Some(full) = full {
            return Err(full);
        }
        taken.remove(self.stand, None);
        taken.add(self.stand, source);
        if let Some(starter) = taken.starting.get_mut(&self.number) {
            starter.source = source;
        }
        self.source = source;
        Ok(())
    }

    /// Whether its client may begin a session.
    pub(crate) fn check(&self) -> Result<(), Full> {
        match self.stand {
            Stand::Starting | Stand::SignedIn => Ok(()),
            Stand::Door(full) => Err(full),
        }
    }

    /// Works until that has ended, or the place of its client, who has signed in, is another's; none then.
    pub(crate) async fn until_given<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        match &self.stay {
            Some((_, stay)) => stay.gives_way.run_until_cancelled(work).await,
            None => Some(work.await),
        }
    }

    /// Whether its client has nothing under way.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stay.as_ref().is_some_and(|(_, stay)| stay.is_waiting.load(Ordering::Relaxed))
    }

    /// Says whether its client has nothing under way: it makes room before others.
    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        if let Some((_, stay)) = &self.stay {
            stay.is_waiting.store(is_waiting, Ordering::Relaxed);
        }
    }

    /// Makes it a place of a client that has signed in to a branch of this holder.
    pub(crate) fn sign_in(&mut self, holder: &Holder) -> Result<(), Full> {
        let mut taken = self.places.taken.lock();
        if self.displaced.is_cancelled() {
            return Err(Full::Gateway);
        }
        if taken.of_address(self.source).signed_in >= self.places.limits.per_address {
            return Err(Full::Address);
        }
        let total = self.places.limits.total;
        let stay = Arc::new(Stay { source: self.source, ..Stay::default() });
        taken.stay((holder, self.number), stay.clone(), total - total / LEFT)?;
        taken.starting.remove(&self.number);
        taken.remove(self.stand, self.source);
        self.stand = Stand::SignedIn;
        taken.add(self.stand, self.source);
        self.stay = Some((holder.clone(), stay));
        let _ = self.signed_in.set(holder.clone());
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.starting.remove(&self.number);
        if let Some((holder, stay)) = &self.stay {
            if stay.gives_way.is_cancelled() {
                return;
            }
            taken.staying.leave(holder, self.number);
        }
        if !self.displaced.is_cancelled() {
            taken.remove(self.stand, self.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits =
        ConnectionLimits { total: 100, per_address: 5, starting: 60, starting_per_address: 10 };

    fn holder(name: &str) -> Holder {
        Holder::from_trusted(name)
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// Enters until there is no place, not even at the door.
    fn fill(places: &Arc<Places>, address: Option<IpAddr>) -> (Vec<Place>, Full) {
        let mut taken = vec![];
        loop {
            match places.enter(address) {
                Ok(place) => taken.push(place),
                Err(full) => return (taken, full),
            }
        }
    }

    #[test]
    fn an_address_takes_its_own_places_only() {
        let places = Places::new(LIMITS);
        let (silent, full) = fill(&places, address(1));
        assert_eq!((silent.len(), full), (LIMITS.starting_per_address + DOOR_PER_ADDRESS_MAX, Full::Address));
        assert_eq!(silent.iter().filter(|place| place.check().is_ok()).count(), LIMITS.starting_per_address);
        let other = places.enter(address(2)).expect("others are not affected");
        assert_eq!(other.check(), Ok(()));
        drop((silent, other));
        assert!(places.taken.lock().by_address.is_empty());
        assert_eq!(places.taken.lock().all, Counts::default());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let places = Places::new(LIMITS);
        let of = |text: &str| text.parse().ok();
        let (silent, _) = fill(&places, of("2001:db8:1:2::1"));
        assert_eq!(silent.len(), LIMITS.starting_per_address + DOOR_PER_ADDRESS_MAX);
        assert_eq!(places.enter(of("2001:db8:1:2:ffff::")).err(), Some(Full::Address));
        assert!(places.enter(of("2001:db8:1:3::1")).is_ok());
    }

    #[test]
    fn many_strangers_leave_the_places_of_clients() {
        let places = Places::new(LIMITS);
        let mut clients = vec![];
        for last in 0..8 {
            for _ in 0..LIMITS.per_address {
                let mut place = places.enter(address(last)).expect("a place");
                assert_eq!(place.sign_in(&holder("one")), Ok(()));
                clients.push(place);
            }
        }
        let strangers: Vec<_> = (0..).map_while(|last| places.enter(address(last)).ok()).collect();
        let starting = strangers.iter().filter(|place| place.check().is_ok()).count();
        assert_eq!(starting, LIMITS.starting);
        assert_eq!(strangers.len() - starting, DOOR_MAX, "some more are told so");
        assert_eq!(places.taken_and_starting(), (100, 60));
        assert_eq!(places.enter(address(200)).err(), Some(Full::Gateway));
    }

    #[test]
    fn who_does_not_sign_in_makes_room_for_who_comes_later() {
        let places = Places::new(LIMITS);
        let mut strangers: Vec<_> =
            (0..60).map(|last| places.enter(address(last)).expect("a place")).collect();
        let first = strangers.first().map(Place::displaced).expect("one");
        let refused = places.enter(address(200)).expect("at the door");
        assert_eq!(refused.check(), Err(Full::Gateway), "nobody had the time to sign in");
        let now = Instant::now() + UNDISPLACED;
        let mut client = places.enter_at(address(201), now).expect("a place");
        assert!(first.is_cancelled());
        assert_eq!((client.check(), client.sign_in(&holder("one"))), (Ok(()), Ok(())));
        assert_eq!(strangers[0].sign_in(&holder("one")), Err(Full::Gateway), "its place is another's");
        assert_eq!(strangers[1].sign_in(&holder("one")), Ok(()));
        let others: Vec<_> =
            (0..5).map(|last| places.enter_at(address(last), now).expect("a place")).collect();
        assert_eq!(strangers.iter().filter(|place| place.displaced.is_cancelled()).count(), 4);
        assert!(!strangers[1].displaced.is_cancelled(), "who has signed in stays");
        drop((strangers, others, refused, client));
        assert!(places.taken.lock().by_address.is_empty() && places.taken.lock().starting.is_empty());
        assert_eq!(places.taken.lock().all, Counts::default());
    }

    #[test]
    fn who_has_signed_in_counts_apart() {
        let places = Places::new(LIMITS);
        let mut clients: Vec<_> =
            (0..LIMITS.per_address + 1).map(|_| places.enter(address(1)).expect("a place")).collect();
        let signed_in: Vec<_> = clients.iter_mut().map(|place| place.sign_in(&holder("one"))).collect();
        assert_eq!(signed_in.iter().filter(|result| result.is_ok()).count(), LIMITS.per_address);
        assert_eq!(signed_in.last(), Some(&Err(Full::Address)));
        assert_eq!(places.taken_and_starting(), (LIMITS.per_address + 1, 1));
    }

    /// As many clients of a holder as may sign in, of addresses from this one on.
    fn sign_in_all(places: &Arc<Places>, of: &Holder, from: u8) -> Vec<Place> {
        let mut clients = vec![];
        for last in from.. {
            for _ in 0..LIMITS.per_address {
                let mut place = places.enter(address(last)).expect("a place");
                if place.sign_in(of).is_err() {
                    return clients;
                }
                clients.push(place);
            }
        }
        clients
    }

    #[test]
    fn who_has_most_makes_room_for_clients_of_others() {
        let places = Places::new(LIMITS);
        let (many, few, none) = (holder("many"), holder("few"), holder("none"));
        let crowd = sign_in_all(&places, &many, 0);
        assert_eq!(crowd.len(), 88, "an eighth is left for who signs in");
        let has_gone =
            |place: &Place| place.stay.as_ref().is_some_and(|(_, stay)| stay.gives_way.is_cancelled());
        let gone = || crowd.iter().enumerate().filter(|(_, place)| has_gone(place)).map(|(at, _)| at);
        crowd[40].set_waiting(true);
        crowd[41].set_waiting(true);
        crowd[41].set_waiting(false);
        let others = sign_in_all(&places, &few, 100);
        assert_eq!(others.len(), 44, "until both have as many");
        assert_eq!(gone().collect::<Vec<_>>(), [&[40][..], &(45..88).collect::<Vec<_>>()].concat());
        let mut third = places.enter(address(200)).expect("a place");
        assert_eq!(third.sign_in(&none), Ok(()), "who has none gets one");
        assert_eq!(places.taken.lock().all.signed_in, 88);
        drop((crowd, others, third));
        let taken = places.taken.lock();
        assert_eq!(taken.all, Counts::default());
        assert!(taken.staying.is_unused() && taken.by_address.is_empty());
    }

    #[test]
    fn behind_a_proxy_the_client_counts_that_it_names() {
        let places = Places::new(LIMITS);
        let (mut unnamed, full) = fill(&places, None);
        assert_eq!((unnamed.len(), full), (LIMITS.starting + DOOR_MAX, Full::Gateway));
        let client = IpAddr::from([203, 0, 113, 7]);
        let named: Vec<_> = unnamed.iter_mut().take(11).map(|place| place.name(client)).collect();
        assert_eq!(named.iter().filter(|result| result.is_ok()).count(), LIMITS.starting_per_address);
        assert_eq!(named.last(), Some(&Err(Full::Address)));
        drop(unnamed);
        assert!(places.taken.lock().by_address.is_empty());
        assert_eq!(places.taken.lock().all, Counts::default());
    }
}
