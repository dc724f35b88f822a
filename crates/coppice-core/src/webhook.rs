//! Webhooks: where events are sent, and when an attempt is repeated.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::event::EventType;
use crate::{DeliveryId, EventId, WebhookId};

/// Pauses after a first failed attempt, a second one and so on, in seconds;
/// after one more it is given up.
const PAUSES: [u64; 9] = [5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400];
/// The longest that a receiver may put off the next attempt.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);
/// Hours that a replaced secret still signs.
pub const FORMER_SECRET_HOURS: u32 = 24;

/// Where events of an organization are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// Where to.
    pub url: String,
    /// For people.
    pub description: String,
    /// Which events.
    pub interest: Interest,
    /// Whether anything is sent.
    pub is_enabled: bool,
    /// Whether its receiver said that it wants no more.
    pub is_gone: bool,
    /// Until when deliveries are signed with the replaced secret, too.
    pub former_secret_until: Option<DateTime<Utc>>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
}

/// Which events a webhook is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Names of types; none is every type.
    pub types: Vec<String>,
    /// Ids of projects; none is every project, and what is about none.
    pub projects: Vec<String>,
}

impl Interest {
    /// Whether it wants an event of this type, about this project if about one.
    pub fn wants(&self, kind: EventType, project: Option<&str>) -> bool {
        let of_type = self.types.is_empty() || self.types.iter().any(|name| name == kind.as_str());
        let of_project =
            self.projects.is_empty() || project.is_some_and(|id| self.projects.iter().any(|own| own == id));
        of_type && of_project
    }
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// To be tried, for the first time or again.
    Pending,
    /// Its receiver took it.
    Delivered,
    /// Given up.
    Failed,
}

names!(DeliveryState { Pending = "pending", Delivered = "delivered", Failed = "failed" });

/// An event on its way to a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its id.
    pub id: DeliveryId,
    /// The event.
    pub event: EventId,
    /// Its type.
    pub kind: EventType,
    /// How far it is.
    pub state: DeliveryState,
    /// How often it was tried since it was last begun anew.
    pub attempts: u32,
    /// The status of the last answer; none when there was no answer.
    pub status: Option<u16>,
    /// Why the last attempt got no answer, for people.
    pub failure: Option<String>,
    /// When the event was published.
    pub created_at: DateTime<Utc>,
    /// When it was last tried.
    pub attempted_at: Option<DateTime<Utc>>,
    /// When it is tried next.
    pub due_at: Option<DateTime<Utc>>,
}

/// How long to wait after so many failed attempts; none gives it up. `chance`
/// is up to 1 and spreads what failed together over another tenth. A receiver
/// may ask for more.
pub fn pause_after(attempts: u32, chance: f64, retry_after: Option<Duration>) -> Option<Duration> {
    let index = usize::try_from(attempts.checked_sub(1)?).ok()?;
    let pause = Duration::from_secs(*PAUSES.get(index)?);
    let spread = pause.mul_f64(1.0 + chance.clamp(0.0, 1.0) / 10.0);
    Some(retry_after.map_or(spread, |asked| spread.max(asked.min(RETRY_AFTER_MAX))))
}

/// What the header `Retry-After` asks for: seconds, or a date (RFC 9110).
pub fn read_retry_after(text: &str, now: DateTime<Utc>) -> Option<Duration> {
    let text = text.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => (DateTime::parse_from_rfc2822(text).ok()?.to_utc() - now).to_std().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_repeated_nine_times_over_three_days() {
        let pauses: Vec<_> = (1..=9).filter_map(|attempts| pause_after(attempts, 0.0, None)).collect();
        let (minute, hour) = (60, 3600);
        let expected =
            [5, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour];
        assert_eq!(pauses, expected.map(Duration::from_secs));
        assert_eq!([0, 10, 11, u32::MAX].map(|attempts| pause_after(attempts, 0.0, None)), [None; 4]);
        assert_eq!(pause_after(2, 1.0, None), Some(Duration::from_secs(330)));
    }

    #[test]
    fn a_receiver_puts_the_next_attempt_off_by_no_more_than_a_day() {
        let seconds = Duration::from_secs;
        let asked = |asked| pause_after(2, 0.0, Some(seconds(asked)));
        assert_eq!([asked(1), asked(400), asked(u64::MAX)], [300, 400, 86_400].map(|n| Some(seconds(n))));
        assert_eq!(pause_after(10, 0.0, Some(seconds(1))), None, "given up all the same");
        let now = DateTime::from_timestamp(784_111_777, 0).expect("a time");
        let read = |text| read_retry_after(text, now);
        assert_eq!([read("120"), read(" 0 ")], [Some(seconds(120)), Some(seconds(0))]);
        assert_eq!(read("Sun, 06 Nov 1994 08:49:47 GMT"), Some(seconds(10)));
        assert_eq!([read("Sun, 06 Nov 1994 08:49:27 GMT"), read("-1"), read("soon"), read("")], [None; 4]);
    }

    #[test]
    fn a_webhook_gets_what_it_asked_for() {
        let interest = |types: &[&str], projects: &[&str]| Interest {
            types: types.iter().map(|name| (*name).to_owned()).collect(),
            projects: projects.iter().map(|id| (*id).to_owned()).collect(),
        };
        let (ready, added) = (EventType::BranchReady, EventType::MemberAdded);
        let everything = interest(&[], &[]);
        assert!(everything.wants(ready, Some("p")) && everything.wants(added, None));
        assert!(interest(&["branch.ready"], &[]).wants(ready, Some("p")));
        assert!(!interest(&["branch.ready"], &[]).wants(added, None));
        assert!(interest(&[], &["p"]).wants(ready, Some("p")));
        assert!(!interest(&[], &["q"]).wants(ready, Some("p")));
        assert!(!interest(&[], &["p"]).wants(added, None), "it is about no project");
    }
}
