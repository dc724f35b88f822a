//! How many requests a credential, or an address without one, may send.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;

use coppice_core::access::CredentialId;
use coppice_core::organization::Holder;
use coppice_core::{Error, ErrorCode, Result, network};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{NotUntil, Quota, RateLimiter};

use crate::context::RateState;
use crate::progress::Progress;
use crate::{context, metrics};

/// Changes that whoever answers for them, a person or an organization without an owner, makes or is refused: so many
/// an hour, and as many at once. Each leaves a line in the audit log.
const CHANGES: Quota = Quota::per_hour(NonZeroU32::new(20_000).expect("not zero"));
/// Of them, changes by one credential: whoever has a key of somebody leaves them enough to delete it.
const CHANGES_OF_CREDENTIAL: Quota = Quota::per_hour(NonZeroU32::new(15_000).expect("not zero"));
/// How many seconds' worth of requests may come at once.
const BURST_SECONDS: NonZeroU32 = NonZeroU32::new(5).expect("not zero");

type Limiter<K> = RateLimiter<K, DefaultKeyedStateStore<K>, DefaultClock, StateInformationMiddleware>;

impl RateState {
    fn new(quota: Quota, remaining: u32) -> Self {
        let limit = quota.burst_size().get();
        let remaining = remaining.min(limit);
        let until_full = quota.replenish_interval().saturating_mul(limit - remaining);
        Self { limit, remaining, reset_seconds: until_full.as_secs_f64().ceil() as u32 }
    }
}

/// The rates of everybody.
pub(crate) struct Rates {
    credentials: Limiter<CredentialId>,
    refused: Limiter<CredentialId>,
    /// By who makes them: credentials are as many as an organization likes, and organizations as many as a person
    /// may own.
    changes: Limiter<Holder>,
    changes_of_credential: Limiter<CredentialId>,
    addresses: Limiter<IpAddr>,
    /// Of those that are here.
    pub(crate) progress: Progress,
    clock: DefaultClock,
}

impl std::fmt::Debug for Rates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rates")
    }
}

fn limiter<K: Hash + Eq + Clone>(per_second: NonZeroU32) -> Limiter<K> {
    let quota = Quota::per_second(per_second).allow_burst(per_second.saturating_mul(BURST_SECONDS));
    RateLimiter::dashmap(quota).with_middleware()
}

impl Rates {
    /// With the requests a second of a credential, and of an address without
    /// one. A credential counts as none where it may not change what it wants to.
    pub(crate) fn new(credential_per_second: NonZeroU32, address_per_second: NonZeroU32) -> Self {
        Self {
            credentials: limiter(credential_per_second),
            refused: limiter(address_per_second),
            changes: RateLimiter::dashmap(CHANGES).with_middleware(),
            changes_of_credential: RateLimiter::dashmap(CHANGES_OF_CREDENTIAL).with_middleware(),
            addresses: limiter(address_per_second),
            progress: Progress::new(),
            clock: DefaultClock::default(),
        }
    }

    /// Counts a request of a credential.
    pub(crate) fn admit_credential(&self, credential: &CredentialId) -> Result<RateState> {
        self.admit(&self.credentials, credential).inspect_err(|_| metrics::rate_limited("credential"))
    }

    /// Counts a change that a credential may not make.
    pub(crate) fn admit_refused(&self, credential: &CredentialId) -> Result<RateState> {
        self.admit(&self.refused, credential).inspect_err(|_| metrics::rate_limited("credential"))
    }

    /// Counts a change that somebody makes, also one that is refused. The headers of its answer are
    /// about requests.
    pub(crate) fn admit_change(&self, of: &Holder, by: &CredentialId) -> Result<()> {
        let of_credential = self.changes_of_credential.check_key(by).map(drop);
        let admitted = of_credential.and_then(|()| self.changes.check_key(of).map(drop));
        admitted.map_err(|not_yet| {
            metrics::rate_limited("changes");
            self.too_many(&not_yet)
        })
    }

    /// Counts a request without a valid credential, of whoever has the address:
    /// of IPv6, a whole network.
    pub(crate) fn admit_address(&self, address: IpAddr) -> Result<RateState> {
        self.admit(&self.addresses, &network::source(address))
            .inspect_err(|_| metrics::rate_limited("address"))
    }

    /// Forgets those who have not called for a while.
    pub(crate) fn forget_idle(&self) {
        self.credentials.retain_recent();
        self.refused.retain_recent();
        self.changes.retain_recent();
        self.changes_of_credential.retain_recent();
        self.addresses.retain_recent();
    }

    /// Counts a request, and notes what is left for the headers of its answer.
    fn admit<K: Hash + Eq + Clone>(&self, limiter: &Limiter<K>, who: &K) -> Result<RateState> {
        match limiter.check_key(who) {
            Ok(snapshot) => {
                let state = RateState::new(snapshot.quota(), snapshot.remaining_burst_capacity());
                context::note_rate(state);
                Ok(state)
            }
            Err(not_yet) => Err(self.too_many(&not_yet)),
        }
    }

    fn too_many(&self, not_yet: &NotUntil<<DefaultClock as Clock>::Instant>) -> Error {
        context::note_rate(RateState::new(not_yet.quota(), 0));
        let wait = not_yet.wait_time_from(self.clock.now()).as_secs_f64().ceil();
        Error::TooMany {
            code: ErrorCode::RateLimited,
            public: "too many requests".to_owned(),
            retry_after_seconds: (wait as u32).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_its_burst_and_then_waits() {
        let twenty = NonZeroU32::new(20).expect("not zero");
        let rates = Rates::new(twenty, twenty);
        let address = IpAddr::from([192, 0, 2, 1]);
        let first = rates.admit_address(address).expect("within the rate");
        assert_eq!((first.limit, first.remaining), (100, 99));
        let refused = (0..200).find_map(|_| rates.admit_address(address).err()).expect("the burst ends");
        assert_eq!(refused.code(), ErrorCode::RateLimited);
        assert!(rates.admit_address(IpAddr::from([192, 0, 2, 2])).is_ok(), "others are not affected");
    }

    #[test]
    fn changes_that_a_credential_may_not_make_have_a_smaller_rate() {
        let rates = Rates::new(NonZeroU32::new(1000).expect("not zero"), NonZeroU32::MIN);
        let key = |id: &str| CredentialId::Key(coppice_core::ApiKeyId::from_trusted(id));
        let refused =
            (0..100).find_map(|_| rates.admit_refused(&key("key_1")).err()).expect("the burst ends");
        assert_eq!(refused.code(), ErrorCode::RateLimited);
        assert!(rates.admit_credential(&key("key_1")).is_ok(), "it may do what it may do");
        assert!(rates.admit_refused(&key("key_2")).is_ok(), "others are not affected");
    }

    #[test]
    fn changes_have_a_rate_of_whoever_makes_them_whatever_the_credential() {
        let rates = Rates::new(NonZeroU32::MAX, NonZeroU32::MAX);
        let of = |id: &str| Holder::from_trusted(id);
        let key = |id: &str| CredentialId::Key(coppice_core::ApiKeyId::from_trusted(id));
        let last = |by: &str| (0..30_000).find_map(|_| rates.admit_change(&of("usr_1"), &key(by)).err());
        let refused = last("key_1").expect("it ends");
        assert_eq!(refused.code(), ErrorCode::RateLimited);
        assert!(refused.retry_after_seconds().is_some_and(|seconds| seconds < 60), "it goes on soon");
        assert!(
            rates.admit_change(&of("usr_1"), &key("key_2")).is_ok(),
            "another one can still delete that one"
        );
        assert!(last("key_2").is_some(), "both together have a rate, too");
        assert!(rates.admit_change(&of("usr_2"), &key("key_3")).is_ok(), "others are not affected");
    }

    #[test]
    fn a_network_of_ipv6_gets_one_burst() {
        let twenty = NonZeroU32::new(20).expect("not zero");
        let rates = Rates::new(twenty, twenty);
        let address = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host]);
        let refused = (0..200).find_map(|host| rates.admit_address(address(1, host)).err());
        assert_eq!(refused.expect("the burst ends").code(), ErrorCode::RateLimited);
        assert!(rates.admit_address(address(2, 1)).is_ok(), "others are not affected");
    }
}
