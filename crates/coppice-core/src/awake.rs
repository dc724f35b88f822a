//! What keeps a branch awake, and what kept it awake before.

use std::net::IpAddr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::BranchId;

/// Names of applications that are told apart in one [`AwakePeriod`]; whoever can
/// sign in chooses them, as many as they like.
pub const APPLICATIONS_MAX: usize = 64;
/// Under which the rest goes.
pub const OTHER_APPLICATIONS: &str = "(others)";

/// What began a time in which a branch was awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// The branch was made.
    Creation,
    /// Somebody asked for it through the API.
    Request,
    /// A client connected.
    Connection,
    /// Its organization was enabled again.
    Organization,
    /// A budget that was used up has room again.
    Budget,
}

/// What ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepCause {
    /// Nobody used the branch for as long as its scale-to-zero says.
    Idle,
    /// Somebody asked for it through the API.
    Request,
    /// Its organization was disabled.
    Organization,
    /// A budget is used up.
    Budget,
}

names!(WakeCause {
    Creation = "creation",
    Request = "request",
    Connection = "connection",
    Organization = "organization",
    Budget = "budget",
});
names!(SleepCause { Idle = "idle", Request = "request", Organization = "organization", Budget = "budget" });

/// A time in which a branch was awake.
#[derive(Clone, Debug, PartialEq)]
pub struct AwakePeriod {
    /// When it began.
    pub began_at: DateTime<Utc>,
    /// Why.
    pub cause: WakeCause,
    /// Who or what woke the branch, for people; empty when it was made.
    pub woken_by: String,
    /// When it ended and why; none while it lasts.
    pub ended: Option<(DateTime<Utc>, SleepCause)>,
    /// Who used the branch meanwhile, longest first.
    pub uses: Vec<ApplicationUse>,
}

/// How one application used a branch in an [`AwakePeriod`].
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationUse {
    /// `application_name` as clients sent it; may be empty.
    pub application: String,
    /// Sessions that began.
    pub sessions: u32,
    /// How long at least one was open.
    pub open_for: Duration,
    /// When that was last so.
    pub last_used: DateTime<Utc>,
}

/// What is to be added to the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUse {
    /// The branch.
    pub branch: BranchId,
    /// As in [`ApplicationUse`].
    pub application: String,
    /// As in [`ApplicationUse`].
    pub sessions: u32,
    /// As in [`ApplicationUse`].
    pub open_for: Duration,
}

/// A client's open session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSession {
    /// The role.
    pub role: String,
    /// `application_name`; may be empty.
    pub application: String,
    /// The client's address.
    pub address: IpAddr,
    /// Since when it is open.
    pub since: DateTime<Utc>,
}

/// Fewer sessions than this are no habit.
const POLLS_MIN: u32 = 4;

impl AwakePeriod {
    /// How long it lasts, or lasted.
    pub fn length(&self, now: DateTime<Utc>) -> Duration {
        let until = self.ended.map_or(now, |(at, _)| at);
        (until - self.began_at).to_std().unwrap_or_default()
    }

    /// Applications that keep the branch awake by connecting, for a moment
    /// each time, more often than it may be idle before it sleeps; with the
    /// usual time between two of their sessions.
    pub fn polling(&self, now: DateTime<Utc>, inactivity: Duration) -> Vec<(&str, Duration)> {
        let length = self.length(now);
        let interval_of = |used: &ApplicationUse| {
            let interval = length.checked_div(used.sessions)?;
            let open_for = used.open_for.checked_div(used.sessions)?;
            let is_recent = (now - used.last_used).to_std().unwrap_or_default() <= inactivity;
            let is_polling =
                used.sessions >= POLLS_MIN && is_recent && interval < inactivity && open_for * 2 < interval;
            is_polling.then_some(interval)
        };
        self.uses.iter().filter_map(|used| Some((used.application.as_str(), interval_of(used)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn hour_with(sessions: u32, open_for: Duration, idle_for: Duration) -> (AwakePeriod, DateTime<Utc>) {
        let began_at = DateTime::<Utc>::UNIX_EPOCH;
        let now = began_at + 60 * MINUTE;
        let last_used = now - idle_for;
        let used = ApplicationUse { application: "probe".to_owned(), sessions, open_for, last_used };
        let cause = WakeCause::Creation;
        (AwakePeriod { began_at, cause, woken_by: String::new(), ended: None, uses: vec![used] }, now)
    }

    #[test]
    fn an_application_that_comes_and_goes_all_the_time_polls() {
        let (period, now) = hour_with(60, MINUTE, Duration::ZERO);
        assert_eq!(period.polling(now, 5 * MINUTE), [("probe", MINUTE)]);
    }

    #[test]
    fn other_habits_are_no_polling() {
        let none = |(period, now): (AwakePeriod, DateTime<Utc>), inactivity| {
            assert_eq!(period.polling(now, inactivity), []);
        };
        // Too rarely to keep anything awake.
        none(hour_with(6, MINUTE, Duration::ZERO), 5 * MINUTE);
        // Busy rather than asking.
        none(hour_with(60, 50 * MINUTE, Duration::ZERO), 5 * MINUTE);
        // Once or twice.
        none(hour_with(2, MINUTE, Duration::ZERO), 45 * MINUTE);
        // Not any more.
        none(hour_with(60, MINUTE, 10 * MINUTE), 5 * MINUTE);
    }
}
