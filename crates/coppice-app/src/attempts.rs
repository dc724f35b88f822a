//! How often something may be tried.

use std::net::IpAddr;
use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use coppice_core::{Error, ErrorCode, Result, network};
use coppice_store::Store;

use crate::secrets::MasterKey;

/// A bound on trying something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// What is tried.
    pub(crate) kind: &'static str,
    /// How often within `span`.
    pub(crate) max: i32,
    /// How long attempts count.
    pub(crate) span: TimeDelta,
}

const QUARTER: TimeDelta = TimeDelta::minutes(15);

/// Signing in to one account from one address.
pub(crate) const SIGN_IN: Bound = Bound { kind: "sign-in", max: 10, span: QUARTER };
/// Signing in to whichever account from one address.
pub(crate) const SIGN_INS: Bound = Bound { kind: "sign-ins", max: 100, span: QUARTER };
/// Guessing at the codes of devices.
pub(crate) const USER_CODE: Bound = Bound { kind: "user-code", max: 10, span: QUARTER };
/// Registering clients from one address.
pub(crate) const REGISTRATION: Bound = Bound { kind: "registration", max: 20, span: QUARTER };
/// Devices that ask to be connected from one address.
pub(crate) const DEVICE: Bound = Bound { kind: "device", max: 100, span: QUARTER };
/// Showing the second factor of one account from one address.
pub(crate) const SECOND_FACTOR: Bound = Bound { kind: "second-factor", max: 10, span: QUARTER };
/// Codes of an app for one account from wherever: of a million, three are good
/// at a time, so who has many addresses must not get many guesses.
pub(crate) const CODES: Bound = Bound { kind: "codes", max: 50, span: TimeDelta::days(1) };

/// Accepting an invitation by its link from one address, without an account.
pub(crate) const JOINING: Bound = Bound { kind: "joining", max: 10, span: QUARTER };
/// Coming from another platform, which is asked who that is: there the questions of all are ours.
pub(crate) const ARRIVAL: Bound = Bound { kind: "arrival", max: 30, span: QUARTER };
/// Showing codes for installations of the GitHub App in the organizations of one holder: GitHub counts what is asked
/// about them for all.
pub(crate) const LINKING: Bound = Bound { kind: "linking", max: 30, span: QUARTER };
/// Asking GitHub with the App's own token for the organizations of one holder, whoever or whatever needs it: GitHub
/// counts that for all. A repository that is mapped needs it once an hour, and when something happens to it.
pub(crate) const AS_APP: Bound = Bound { kind: "as-app", max: 120, span: QUARTER };

/// Asking Stripe for the organizations of one holder: it counts what is asked for all.
pub(crate) const STRIPE: Bound = Bound { kind: "stripe", max: 60, span: QUARTER };

/// Asking Orb for invoices of the organizations of one holder: as with Stripe.
pub(crate) const ORB: Bound = Bound { kind: "orb", max: 100, span: QUARTER };

/// Attempts that are counted.
#[derive(Clone)]
pub(crate) struct Attempts {
    store: Store,
    key: Arc<MasterKey>,
}

impl Attempts {
    pub(crate) fn new(store: Store, key: Arc<MasterKey>) -> Self {
        Self { store, key }
    }

    /// Counts an attempt of `who`.
    ///
    /// # Errors
    /// `rate_limited` when there were too many.
    pub(crate) async fn count(&self, bound: Bound, who: &str) -> Result<()> {
        let attempts = self.store.attempt_count(bound.kind, &self.key.hash(who), bound.span).await?;
        if attempts.count <= bound.max {
            return Ok(());
        }
        let wait = (attempts.began_at + bound.span - Utc::now()).num_seconds().max(1);
        Err(Error::TooMany {
            code: ErrorCode::RateLimited,
            public: "too many attempts".to_owned(),
            retry_after_seconds: u32::try_from(wait).unwrap_or(u32::MAX),
        })
    }

    /// An attempt that succeeded does not count.
    pub(crate) async fn take_back(&self, bound: Bound, who: &str) -> Result<()> {
        Ok(self.store.attempt_take_back(bound.kind, &self.key.hash(who)).await?)
    }

    /// None of the attempts so far counts any more.
    pub(crate) async fn forget(&self, bound: Bound, who: &str) -> Result<()> {
        Ok(self.store.attempts_forget(bound.kind, &self.key.hash(who)).await?)
    }
}

/// Who is at an address, as one of those who are counted.
pub(crate) fn source(address: IpAddr) -> String {
    network::source(address).to_string()
}
