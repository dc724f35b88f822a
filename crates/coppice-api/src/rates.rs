//! How many requests a credential, or an address without one, may send.

use std::hash::Hash;
use std::net::IpAddr;
use std::num::NonZeroU32;

use coppice_core::access::{Caller, CredentialId, Principal};
use coppice_core::organization::Holder;
use coppice_core::{Error, ErrorCode, Result, network};
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{NotUntil, Quota, RateLimiter};

use crate::context::RateState;
use crate::progress::Progress;
use crate::{context, metrics};

/// Changes that whoever answers for them, a person or an organization without an owner, makes: so many an hour, and as
/// many at once. Each leaves a line in the audit log. As many may be refused.
const CHANGES: Quota = Quota::per_hour(NonZeroU32::new(20_000).expect("not zero"));
/// Of them, changes by all keys of organizations: whoever has however many of them leaves the owner enough to delete
/// them.
const CHANGES_OF_ORGANIZATIONS: Quota = Quota::per_hour(NonZeroU32::new(17_500).expect("not zero"));
/// Of either, changes by one credential: whoever has a key of somebody leaves their others enough.
const CHANGES_OF_CREDENTIAL: Quota = Quota::per_hour(NonZeroU32::new(15_000).expect("not zero"));
/// How many seconds' worth of requests may come at once.
const BURST_SECONDS: NonZeroU32 = NonZeroU32::new(5).expect("not zero");

type Limiter<K> = RateLimiter<K, DefaultKeyedStateStore<K>, DefaultClock, StateInformationMiddleware>;
type NotYet = NotUntil<<DefaultClock as Clock>::Instant>;

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
    changes: Changes,
    /// Beside those that are made: what a key may not do takes nothing from who may.
    refused_changes: Changes,
    addresses: Limiter<IpAddr>,
    /// Of those that are here.
    pub(crate) progress: Progress,
    clock: DefaultClock,
}

/// Changes of an hour.
struct Changes {
    of_credential: Limiter<CredentialId>,
    /// By keys of organizations, by who answers for these.
    of_organizations: Limiter<Holder>,
    /// By who makes them: credentials are as many as an organization likes, and organizations as many as a person
    /// may own.
    all: Limiter<Holder>,
}

impl Changes {
    fn new() -> Self {
        Self {
            of_credential: RateLimiter::dashmap(CHANGES_OF_CREDENTIAL).with_middleware(),
            of_organizations: RateLimiter::dashmap(CHANGES_OF_ORGANIZATIONS).with_middleware(),
            all: RateLimiter::dashmap(CHANGES).with_middleware(),
        }
    }

    /// Counts one; the smallest part first, so that what is beyond it takes nothing from the others.
    fn count(&self, of: &Holder, by: &Caller) -> Result<(), NotYet> {
        self.of_credential.check_key(&by.credential)?;
        if matches!(by.principal, Principal::Organization(_)) {
            self.of_organizations.check_key(of)?;
        }
        self.all.check_key(of).map(drop)
    }

    fn forget_idle(&self) {
        self.of_credential.retain_recent();
        self.of_organizations.retain_recent();
        self.all.retain_recent();
    }
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
            changes: Changes::new(),
            refused_changes: Changes::new(),
            addresses: limiter(address_per_second),
            progress: Progress::new(),
            clock: DefaultClock::default(),
        }
    }

    /// Counts a request of a credential.
    pub(crate) fn admit_credential(&self, credential: &CredentialId) -> Result<RateState> {
        self.admit(&self.credentials, credential).inspect_err(|_| metrics::rate_limited("credential"))
    }

    /// Counts a change that a caller may not make, for which this one answers.
    pub(crate) fn admit_refused(&self, of: &Holder, by: &Caller) -> Result<()> {
        self.admit(&self.refused, &by.credential).inspect_err(|_| metrics::rate_limited("credential"))?;
        self.admit_to(&self.refused_changes, of, by)
    }

    /// Counts a change that a caller makes, for which this one answers.
    pub(crate) fn admit_change(&self, of: &Holder, by: &Caller) -> Result<()> {
        self.admit_to(&self.changes, of, by)
    }

    /// The headers of the answer are about requests, but where this is too much.
    fn admit_to(&self, changes: &Changes, of: &Holder, by: &Caller) -> Result<()> {
        changes.count(of, by).map_err(|not_yet| {
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
        self.changes.forget_idle();
        self.refused_changes.forget_idle();
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

    fn too_many(&self, not_yet: &NotYet) -> Error {
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
    use coppice_core::access::Grant;
    use coppice_core::{ApiKeyId, OrganizationId, UserId};

    use super::*;

    fn by(principal: Principal, key: &str) -> Caller {
        let credential = CredentialId::Key(ApiKeyId::from_trusted(key));
        Caller { principal, credential, grant: Grant::everything(), expiry: None, is_stale: false }
    }

    /// A person, by a key of their own.
    fn by_person(key: &str) -> Caller {
        by(Principal::User(UserId::from_trusted("usr_1")), key)
    }

    /// An organization of theirs, by one of its keys.
    fn by_organization(organization: &str, key: &str) -> Caller {
        by(Principal::Organization(OrganizationId::from_trusted(organization)), key)
    }

    fn holder(id: &str) -> Holder {
        Holder::from_trusted(id)
    }

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
        let (of, one, other) = (holder("usr_1"), by_person("key_1"), by_person("key_2"));
        let refused = (0..100).find_map(|_| rates.admit_refused(&of, &one).err()).expect("the burst ends");
        assert_eq!(refused.code(), ErrorCode::RateLimited);
        assert!(rates.admit_credential(&one.credential).is_ok(), "it may do what it may do");
        assert!(rates.admit_refused(&of, &other).is_ok(), "others are not affected");
    }

    #[test]
    fn changes_have_a_rate_of_whoever_makes_them_whatever_the_credential() {
        let rates = Rates::new(NonZeroU32::MAX, NonZeroU32::MAX);
        let of = holder("usr_1");
        let last = |key: &str| (0..30_000).find_map(|_| rates.admit_change(&of, &by_person(key)).err());
        let refused = last("key_1").expect("it ends");
        assert_eq!(refused.code(), ErrorCode::RateLimited);
        assert!(refused.retry_after_seconds().is_some_and(|seconds| seconds < 60), "it goes on soon");
        assert!(
            rates.admit_change(&of, &by_person("key_2")).is_ok(),
            "another one can still delete that one"
        );
        assert!(last("key_2").is_some(), "both together have a rate, too");
        let (other, by) = (holder("usr_2"), by_person("key_3"));
        assert!(rates.admit_change(&other, &by).is_ok(), "others are not affected");
    }

    #[test]
    fn however_many_keys_of_organizations_leave_their_owner_some_changes() {
        let rates = Rates::new(NonZeroU32::MAX, NonZeroU32::MAX);
        let of = holder("usr_1");
        let last = |by: &Caller| (0..30_000).find_map(|_| rates.admit_change(&of, by).err());
        assert!(last(&by_organization("org_1", "key_1")).is_some(), "one key has a rate");
        let second = by_organization("org_2", "key_2");
        assert!(rates.admit_change(&of, &second).is_ok(), "one leaves some to others");
        assert!(last(&second).is_some(), "both together have a rate, too");
        let third = by_organization("org_3", "key_3");
        let third = (0..100).find_map(|_| rates.admit_change(&of, &third).err());
        assert!(third.is_some(), "more of them have no more");
        for _ in 0..2_000 {
            rates.admit_change(&of, &by_person("key_4")).expect("the owner can delete those");
        }
    }

    #[test]
    fn what_keys_may_not_do_takes_nothing_from_what_others_may() {
        let often = NonZeroU32::new(1_000_000).expect("not zero");
        let rates = Rates::new(often, often);
        let of = holder("usr_1");
        for key in ["key_1", "key_2", "key_3"] {
            let by = by_organization("org_1", key);
            let refused = (0..30_000).find_map(|_| rates.admit_refused(&of, &by).err());
            assert_eq!(refused.map(|refused| refused.code()), Some(ErrorCode::RateLimited), "{key}");
        }
        let able = by_organization("org_1", "key_4");
        assert!(rates.admit_change(&of, &able).is_ok(), "also not from keys of the organization");
        assert!(rates.admit_change(&of, &by_person("key_5")).is_ok());
        assert!(rates.admit_refused(&of, &by_person("key_5")).is_ok(), "the owner is told why");
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
