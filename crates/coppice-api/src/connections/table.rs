//! The connections that are held, and which of them gives its place to another.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use coppice_core::network;
use coppice_core::organization::Holder;
use coppice_gateway::Shares;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bodies::Bodies;

/// The part of all connections, as a divisor, that nobody keeps: of them whoever comes gets one.
const LEFT: usize = 8;

/// For so long whoever has come makes no room while another network holds more than the next one's: most ask meanwhile.
const UNDISPLACED: Duration = Duration::from_millis(250);

/// And for so long none for somebody of a network that holds more than theirs: whoever is far away asks meanwhile.
const UNDISPLACED_BY_MORE: Duration = Duration::from_secs(5);

/// How many of those on which nothing was asked for are looked at for one that makes room.
const LOOKED_AT: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    /// Before everything that is noted here.
    began: Instant,
    next: u64,
    pub(super) open: HashMap<u64, Open>,
    /// How many of each address that has a limit.
    pub(super) of_address: HashMap<IpAddr, usize>,
    /// How many of the networks that these are in.
    of_site: HashMap<IpAddr, usize>,
    /// Those that have not sent a request, oldest first.
    silent: BTreeSet<u64>,
    /// The same by address.
    silent_of_address: BTreeSet<(IpAddr, u64)>,
    /// Those without a request that somebody answers for, by the network of their address if that has a limit,
    /// with since when.
    idle: BTreeSet<Idle>,
    /// The same by address.
    idle_of_address: BTreeSet<Idle>,
    /// Those with a request that somebody answers for.
    pub(super) kept: Shares<Bodies>,
}

/// Of what, since when, and which.
type Idle = (IpAddr, Instant, u64);

#[derive(Debug)]
pub(super) struct Open {
    address: Option<IpAddr>,
    pub(super) end: Arc<Notify>,
    since: Instant,
    idle_since: Option<Instant>,
    kept_for: Option<Holder>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            next: 0,
            open: HashMap::new(),
            of_address: HashMap::new(),
            of_site: HashMap::new(),
            silent: BTreeSet::new(),
            silent_of_address: BTreeSet::new(),
            idle: BTreeSet::new(),
            idle_of_address: BTreeSet::new(),
            kept: Shares::default(),
        }
    }

    pub(super) fn insert(&mut self, address: Option<IpAddr>, end: Arc<Notify>, now: Instant) -> u64 {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Open { address, end, since: now, idle_since: None, kept_for: None });
        self.silent.insert(number);
        if let Some(address) = address {
            *self.of_address.entry(address).or_default() += 1;
            *self.of_site.entry(network::site(address)).or_default() += 1;
            self.silent_of_address.insert((address, number));
        }
        number
    }

    /// Forgets a connection; none when it was forgotten before.
    pub(super) fn remove(&mut self, number: u64) -> Option<Open> {
        self.set_idle(number, None);
        let open = self.open.remove(&number)?;
        if let Some(holder) = &open.kept_for {
            self.kept.leave(holder, number);
        }
        self.silent.remove(&number);
        if let Some(address) = open.address {
            self.silent_of_address.remove(&(address, number));
            take_one(&mut self.of_address, address);
            take_one(&mut self.of_site, network::site(address));
        }
        Some(open)
    }

    pub(super) fn has_asked(&mut self, number: u64) {
        self.silent.remove(&number);
        if let Some(address) = self.open.get(&number).and_then(|open| open.address) {
            self.silent_of_address.remove(&(address, number));
        }
    }

    /// Makes room for a connection of this network, if it has one.
    pub(super) fn make_room(&mut self, comes: Option<IpAddr>, now: Instant) -> bool {
        let own = self.held_by(comes);
        self.displace_silent(own, now, UNDISPLACED)
            || self.displace_idle_of_most(own)
            || self.displace_silent(own, now, Duration::ZERO)
    }

    fn held_by(&self, site: Option<IpAddr>) -> usize {
        site.and_then(|site| self.of_site.get(&site)).copied().unwrap_or_default()
    }

    /// Ends the oldest connection on which nothing was asked for, of a network that holds no fewer than `own`, after
    /// `patience`; or after [`UNDISPLACED_BY_MORE`] of one that holds fewer.
    fn displace_silent(&mut self, own: usize, now: Instant, patience: Duration) -> bool {
        let gives_way = |open: &Open| {
            let holds = self.held_by(open.address.map(network::site));
            now.duration_since(open.since) >= if holds >= own { patience } else { UNDISPLACED_BY_MORE }
        };
        let mut oldest = self.silent.iter().take(LOOKED_AT);
        let found = oldest.find(|number| self.open.get(number).is_some_and(gives_way)).copied();
        found.is_some_and(|number| self.displace(number))
    }

    pub(super) fn displace_one_of(&mut self, address: IpAddr) -> bool {
        let silent = self.silent_of_address.range((address, 0)..=(address, u64::MAX)).next();
        let silent = silent.map(|(_, number)| *number);
        let oldest = silent.or_else(|| self.longest(&self.idle_of_address, address));
        oldest.is_some_and(|number| self.displace(number))
    }

    /// Keeps a connection, which makes no room for others then, where need be instead of one of whoever has most;
    /// tells whether it may.
    pub(super) fn keep(&mut self, number: u64, holder: &Holder, bodies: &Bodies, total: usize) -> bool {
        if !self.open.contains_key(&number) {
            return false;
        }
        let most = total - total / LEFT;
        let Ok(gone) = self.kept.take((holder, number), bodies.clone(), most, Bodies::are_awaited) else {
            return false;
        };
        if let Some((gone, _)) = gone {
            self.displace(gone);
        }
        self.set_idle(number, None);
        if let Some(open) = self.open.get_mut(&number) {
            open.kept_for = Some(holder.clone());
        }
        true
    }

    /// From now on a connection has no request that somebody answers for.
    pub(super) fn let_go(&mut self, number: u64, now: Instant) {
        let kept_for = self.open.get_mut(&number).and_then(|open| open.kept_for.take());
        if let Some(holder) = kept_for {
            self.kept.leave(&holder, number);
        }
        self.set_idle(number, Some(now));
    }

    /// Notes since when a connection has no request that somebody answers for; none while it has.
    fn set_idle(&mut self, number: u64, since: Option<Instant>) {
        let Some(open) = self.open.get_mut(&number) else { return };
        let before = std::mem::replace(&mut open.idle_since, since);
        let Some(address) = open.address else { return };
        let sets = [(&mut self.idle, network::site(address)), (&mut self.idle_of_address, address)];
        for (idle, of) in sets {
            if let Some(before) = before {
                idle.remove(&(of, before, number));
            }
            if let Some(since) = since {
                idle.insert((of, since, number));
            }
        }
    }

    /// Which of these has been there for longest.
    fn longest(&self, idle: &BTreeSet<Idle>, of: IpAddr) -> Option<u64> {
        let first = idle.range((of, self.began, 0)..).next();
        first.filter(|(whose, ..)| *whose == of).map(|(.., number)| *number)
    }

    /// Ends the connection that has been idle longest of the network that holds
    /// most, if that is more than this.
    fn displace_idle_of_most(&mut self, own: usize) -> bool {
        let holders = self.of_site.iter().filter(|(_, count)| **count > own);
        let holders = holders.filter_map(|(site, count)| Some((*count, self.longest(&self.idle, *site)?)));
        let most = holders.max();
        most.is_some_and(|(_, number)| self.displace(number))
    }

    fn displace(&mut self, number: u64) -> bool {
        self.remove(number).inspect(|open| open.end.notify_one()).is_some()
    }
}

fn take_one(counts: &mut HashMap<IpAddr, usize>, of: IpAddr) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_slow_to_ask_makes_no_room_for_a_network_that_holds_more() {
        let (mut table, begun) = (Table::new(), Instant::now());
        let address = |text: &str| Some(text.parse().expect("an address"));
        let [many, few, none] = ["10.0.1.0", "10.0.2.0", "10.0.3.0"].map(address);
        for _ in 0..2 {
            let asked = table.insert(many, Arc::default(), begun);
            table.has_asked(asked);
        }
        let slow = table.insert(few, Arc::default(), begun);
        let after = |millis| begun + Duration::from_millis(millis);
        assert!(!table.make_room(many, after(4900)), "its network holds all others");
        assert!(table.make_room(none, after(300)) && !table.open.contains_key(&slow), "that holds fewer");

        let slow = table.insert(few, Arc::default(), begun);
        assert!(table.make_room(many, after(5000)) && !table.open.contains_key(&slow), "it had time");
    }
}
