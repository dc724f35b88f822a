//! How often sign-ins fail.
//!
//! Failures are counted for a role of a branch and an address together, which
//! is strict; for an address across all roles; and for a role across all
//! addresses. Only the first two send anybody away, and only the address that
//! failed: otherwise a stranger could keep a role's owner out. A role that is
//! tried from everywhere is answered slowly instead, owner included. Names
//! count as they were sent, whether or not they exist.
//!
//! Cancel requests that fit no session are counted for an address: a key may
//! have a secret of four bytes, and process ids are easy to guess.
//!
//! Memory is constant however many names and addresses there are: a count-min
//! sketch (Cormode and Muthukrishnan, 2005) of debts in time. A failure adds
//! its share of a minute to a debt, which time pays off.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use coppice_core::network;
use parking_lot::Mutex;

use crate::refusal::Refusal;

/// Within which as many failures are let pass as there may be.
const SPAN: Duration = Duration::from_secs(60);
/// How many times as often as in one role an address may fail in all of them.
const ADDRESS_FACTOR: NonZeroU32 = NonZeroU32::new(5).expect("not zero");
/// How many times as often a role may be failed from everywhere.
const ROLE_FACTOR: NonZeroU32 = NonZeroU32::new(50).expect("not zero");
/// What a sign-in as a role waits that is tried from everywhere.
pub(crate) const SLOW: Duration = Duration::from_secs(1);

/// Two keys are taken for each other only where they meet in every row.
const ROWS: usize = 4;
const COLUMNS: usize = 65_536;

/// As whom a client signs in, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    branch_name: String,
    role: String,
    /// Of IPv6 a whole network.
    source: IpAddr,
}

impl Attempt {
    pub(crate) fn new(branch_name: &str, role: &str, address: IpAddr) -> Self {
        let source = network::source(address);
        Self { branch_name: branch_name.to_owned(), role: role.to_owned(), source }
    }

    fn of_role(&self) -> (&str, &str) {
        (&self.branch_name, &self.role)
    }
}

/// Failed sign-ins, and guessed cancel keys, of the last minute.
pub(crate) struct Failures {
    attempts: Sketch,
    addresses: Sketch,
    roles: Sketch,
    cancels: Sketch,
    began: Instant,
}

impl Failures {
    /// Lets a role be failed so often a minute by one address.
    pub(crate) fn new(per_minute: NonZeroU32) -> Self {
        let times = |factor| Sketch::new(per_minute.saturating_mul(factor));
        Self {
            attempts: Sketch::new(per_minute),
            addresses: times(ADDRESS_FACTOR),
            roles: times(ROLE_FACTOR),
            cancels: times(ADDRESS_FACTOR),
            began: Instant::now(),
        }
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Whether one more may fail.
    ///
    /// # Errors
    /// What the address is told that failed too often.
    pub(crate) fn check(&self, attempt: &Attempt, now: Instant) -> Result<(), Refusal> {
        let now = self.since(now);
        let wait = self.attempts.wait(attempt, now).max(self.addresses.wait(&attempt.source, now));
        if wait.is_zero() { Ok(()) } else { Err(Refusal::too_many_failures(wait)) }
    }

    /// Whether the role is tried so often that whoever signs in waits.
    pub(crate) fn is_slow(&self, attempt: &Attempt, now: Instant) -> bool {
        !self.roles.wait(&attempt.of_role(), self.since(now)).is_zero()
    }

    /// Whether one more cancel request of an address may fit no session.
    pub(crate) fn may_cancel(&self, address: IpAddr, now: Instant) -> bool {
        self.cancels.wait(&network::source(address), self.since(now)).is_zero()
    }

    /// Counts a cancel request that fits no session.
    pub(crate) fn count_cancel(&self, address: IpAddr, now: Instant) {
        self.cancels.add(&network::source(address), self.since(now));
    }

    /// Counts a failure.
    pub(crate) fn count(&self, attempt: &Attempt, now: Instant) {
        let now = self.since(now);
        self.attempts.add(attempt, now);
        self.addresses.add(&attempt.source, now);
        self.roles.add(&attempt.of_role(), now);
    }
}

/// Debts of keys, never too small and seldom too large.
struct Sketch {
    hashers: [RandomState; ROWS],
    /// When each debt is paid off, in nanoseconds, row by row. Memory that
    /// nobody ever touched is not there yet.
    paid: Mutex<Vec<u64>>,
    /// What one failure costs.
    share: u64,
}

impl Sketch {
    fn new(per_span: NonZeroU32) -> Self {
        Self {
            // Unknown to strangers, so that they can't aim at a cell.
            hashers: std::array::from_fn(|_| RandomState::new()),
            paid: Mutex::new(vec![0; ROWS * COLUMNS]),
            share: nanoseconds(SPAN / per_span.get()),
        }
    }

    fn cells(&self, key: &impl Hash) -> [usize; ROWS] {
        std::array::from_fn(|row| {
            let column = self.hashers[row].hash_one(key) % COLUMNS as u64;
            row * COLUMNS + column as usize
        })
    }

    fn debt(paid: &[u64], cells: [usize; ROWS], now: u64) -> u64 {
        let debts = cells.into_iter().map(|cell| paid[cell].saturating_sub(now));
        debts.min().unwrap_or_default()
    }

    /// How long until one more may fail.
    fn wait(&self, key: &impl Hash, now: Duration) -> Duration {
        let paid = self.paid.lock();
        let debt = Self::debt(&paid, self.cells(key), nanoseconds(now));
        Duration::from_nanos((debt + self.share).saturating_sub(nanoseconds(SPAN)))
    }

    fn add(&self, key: &impl Hash, now: Duration) {
        let mut paid = self.paid.lock();
        let (cells, now) = (self.cells(key), nanoseconds(now));
        let until = now + Self::debt(&paid, cells, now) + self.share;
        for cell in cells {
            paid[cell] = paid[cell].max(until);
        }
    }
}

/// Enough for centuries.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_MINUTE: NonZeroU32 = NonZeroU32::new(6).expect("not zero");

    fn attempt(role: &str, address: &str) -> Attempt {
        Attempt::new("b", role, address.parse().expect("an address"))
    }

    #[test]
    fn an_address_that_fails_waits_and_no_other_does() {
        let (failures, now) = (Failures::new(PER_MINUTE), Instant::now());
        let stranger = attempt("app", "192.0.2.1");
        for _ in 0..PER_MINUTE.get() {
            assert_eq!(failures.check(&stranger, now), Ok(()));
            failures.count(&stranger, now);
        }
        let refusal = failures.check(&stranger, now).expect_err("too many");
        assert_eq!(refusal.message, "too many failed sign-ins from this address, wait 10 seconds");
        assert_eq!(failures.check(&attempt("app", "192.0.2.2"), now), Ok(()), "the owner, elsewhere");
        assert_eq!(failures.check(&attempt("ada", "192.0.2.1"), now), Ok(()), "another role");
        let now = now + Duration::from_secs(10);
        assert_eq!(failures.check(&stranger, now), Ok(()), "once more");
        failures.count(&stranger, now);
        assert!(failures.check(&stranger, now).is_err(), "and no more");
        let now = now + SPAN;
        for _ in 0..PER_MINUTE.get() {
            assert_eq!(failures.check(&stranger, now), Ok(()));
            failures.count(&stranger, now);
        }
    }

    #[test]
    fn a_network_that_tries_many_roles_waits_for_all() {
        let (failures, now) = (Failures::new(PER_MINUTE), Instant::now());
        for number in 0..PER_MINUTE.get() * ADDRESS_FACTOR.get() {
            let attempt = attempt(&format!("role{number}"), &format!("2001:db8:1:2::{number:x}"));
            assert_eq!(failures.check(&attempt, now), Ok(()), "{number}");
            failures.count(&attempt, now);
        }
        assert!(failures.check(&attempt("another", "2001:db8:1:2:ffff::"), now).is_err());
        assert_eq!(failures.check(&attempt("another", "2001:db8:1:3::"), now), Ok(()));
    }

    #[test]
    fn a_network_that_guesses_cancel_keys_waits_and_no_other_does() {
        let (failures, now) = (Failures::new(PER_MINUTE), Instant::now());
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for number in 0..PER_MINUTE.get() * ADDRESS_FACTOR.get() {
            let guesser = address(&format!("2001:db8:1:2::{number:x}"));
            assert!(failures.may_cancel(guesser, now), "{number}");
            failures.count_cancel(guesser, now);
        }
        assert!(!failures.may_cancel(address("2001:db8:1:2:ffff::"), now));
        assert!(failures.may_cancel(address("2001:db8:1:3::"), now));
        assert_eq!(failures.check(&attempt("app", "2001:db8:1:2::1"), now), Ok(()), "may sign in");
        assert!(failures.may_cancel(address("2001:db8:1:2::"), now + SPAN));
    }

    #[test]
    fn a_role_that_is_tried_from_everywhere_is_slow_and_open() {
        let (failures, now) = (Failures::new(PER_MINUTE), Instant::now());
        let owner = attempt("app", "198.51.100.1");
        for number in 0..PER_MINUTE.get() * ROLE_FACTOR.get() {
            assert!(!failures.is_slow(&owner, now), "{number}");
            failures.count(&attempt("app", &format!("192.0.{}.{}", number / 256, number % 256)), now);
        }
        assert!(failures.is_slow(&owner, now));
        assert_eq!(failures.check(&owner, now), Ok(()));
        assert!(!failures.is_slow(&attempt("ada", "198.51.100.1"), now));
    }

    #[test]
    fn ten_thousand_strangers_are_not_taken_for_somebody_else() {
        let (failures, now) = (Failures::new(PER_MINUTE), Instant::now());
        for number in 0..10_000_u32 {
            let stranger = Attempt::new("b", "app", IpAddr::from(number.to_be_bytes()));
            (0..PER_MINUTE.get()).for_each(|_| failures.count(&stranger, now));
        }
        let innocent = |number: u8| Attempt::new("c", "ada", IpAddr::from([203, 0, 113, number]));
        let refused = (0..=255).filter(|number| failures.check(&innocent(*number), now).is_err()).count();
        // In each row 14 of 100 cells are taken, so 4 of 10,000 keys meet others in all.
        assert!(refused < 8, "{refused} of 256");
    }
}
