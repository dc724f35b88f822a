//! Telling what happened in organizations.
//!
//! What happens is written down by the statement that makes it happen. A task
//! publishes it, and from then on it is seen by whoever asks. Who waits for it
//! holds nothing meanwhile but a place to be woken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coppice_core::event::EventType;
use coppice_core::{Error, ErrorCode, OrganizationId, Result};
use coppice_store::{Event, EventFilter, Store};
use coppice_turns::step_aside;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::Access;
use crate::webhooks::Webhooks;

/// Days that events are kept.
const KEPT_DAYS: u32 = 7;
/// Events that are kept of an organization.
const KEPT_MAX: u32 = 50_000;
/// Callers of an organization that may wait at the same time; others are
/// answered at once.
const WAITING_MAX: u32 = 20;

/// Which events of an organization to list.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Goes on behind the answer whose cursor it was; none begins with the
    /// oldest that are kept.
    pub after: Option<String>,
    /// Only of these types; none means every one.
    pub types: Option<Vec<EventType>>,
    /// For how long to wait when there are none.
    pub wait: Duration,
    /// Most of them in this answer.
    pub count_max: u32,
}

/// Events, and where the next ones are.
#[derive(Clone, Debug)]
pub struct EventPage {
    /// The oldest first.
    pub events: Vec<Event>,
    /// For the next answer.
    pub cursor: String,
}

/// Wakes those who wait for events.
#[derive(Debug, Default)]
struct EventFeed {
    /// How often something was published; none while nobody would tell.
    published: watch::Sender<Option<i64>>,
    waiting: Mutex<BTreeMap<OrganizationId, u32>>,
}

/// Whoever tells the feed; when it ends, nobody waits any more.
pub(crate) struct OpenFeed(Arc<EventFeed>);

impl Drop for OpenFeed {
    fn drop(&mut self) {
        self.0.published.send_replace(None);
    }
}

/// A place to wait in.
struct Waiting<'a> {
    feed: &'a EventFeed,
    organization: &'a OrganizationId,
}

impl EventFeed {
    fn note(&self, count: i64) {
        self.published.send_if_modified(|known| known.replace(count) != Some(count));
    }

    /// A place, if the organization has one left.
    fn wait<'a>(&'a self, organization: &'a OrganizationId) -> Option<Waiting<'a>> {
        let mut waiting = self.waiting.lock();
        let count = waiting.entry(organization.clone()).or_default();
        let has_room = *count < WAITING_MAX;
        if has_room {
            *count += 1;
        }
        // Made only where there is room: dropping it gives a place back.
        has_room.then(|| Waiting { feed: self, organization })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.feed.waiting.lock();
        if let Some(count) = waiting.get_mut(self.organization) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(self.organization);
            }
        }
    }
}

/// What happened in organizations.
#[derive(Clone)]
pub struct Events {
    store: Store,
    feed: Arc<EventFeed>,
    webhooks: Webhooks,
}

impl Events {
    pub(crate) fn new(store: Store, webhooks: Webhooks) -> Self {
        Self { store, feed: Arc::default(), webhooks }
    }

    /// Lets callers wait for events, until the returned value is dropped.
    pub(crate) fn open_feed(&self) -> OpenFeed {
        OpenFeed(self.feed.clone())
    }

    /// Publishes what has happened, and wakes those who wait for it.
    pub(crate) async fn publish(&self, feed: &OpenFeed) -> Result<()> {
        loop {
            let publication = self.store.event_publication().await?;
            feed.0.note(publication.count);
            if !publication.is_due {
                return Ok(());
            }
            self.store.event_publish().await?;
            self.webhooks.nudge();
        }
    }

    /// Forgets events that were kept for long enough.
    pub(crate) async fn purge(&self) -> Result<()> {
        self.store.event_purge(KEPT_DAYS, KEPT_MAX).await?;
        Ok(())
    }

    /// What happened in the organization, as far as the caller may see it, the
    /// oldest first. A caller that is limited to projects or branches sees
    /// what is about those only.
    ///
    /// # Errors
    /// `invalid_cursor`
    pub async fn list(&self, access: &Access, query: &EventQuery) -> Result<EventPage> {
        let (organization, grant) = (&access.organization.id, &access.caller.grant);
        let mut filter = EventFilter {
            after: query.after.as_deref().map_or(Ok(0), read_cursor)?,
            types: query.types.as_deref().map(EventType::names),
            projects: grant.project_limit().map(<[String]>::to_vec),
            branches: grant.branch_limit().map(<[String]>::to_vec),
        };
        let end = Instant::now() + query.wait;
        let mut published = self.feed.published.subscribe();
        let mut place = None;
        loop {
            let is_open = published.borrow_and_update().is_some();
            let found = self.store.event_list(organization, &filter, query.count_max).await?;
            let (events, last) = found.ok_or_else(invalid_cursor)?;
            if place.is_none() && !query.wait.is_zero() {
                place = self.feed.wait(organization);
            }
            let may_wait = events.is_empty() && is_open && place.is_some();
            if may_wait {
                step_aside();
            }
            if !may_wait || timeout_at(end, published.changed()).await.is_err() {
                return Ok(EventPage { events, cursor: last.to_string() });
            }
            filter.after = last;
        }
    }
}

/// The number that a cursor stands for.
fn read_cursor(text: &str) -> Result<i64> {
    text.parse().ok().filter(|number| *number >= 0).ok_or_else(invalid_cursor)
}

fn invalid_cursor() -> Error {
    Error::invalid(
        ErrorCode::InvalidCursor,
        "invalid cursor: it is none of this organization's; without one, events begin with the oldest",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_of_an_organization_wait_and_their_places_come_back() {
        let feed = EventFeed::default();
        let (one, other) = ["org_1", "org_2"].map(OrganizationId::from_trusted).into();
        let places: Vec<_> = (0..WAITING_MAX).map(|_| feed.wait(&one)).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(feed.wait(&one).is_none());
        assert!(feed.wait(&other).is_some(), "others are not affected");
        drop(places);
        assert!(feed.wait(&one).is_some());
        assert!(feed.waiting.lock().is_empty());
    }

    #[test]
    fn a_cursor_is_a_number_that_was_given() {
        assert_eq!(read_cursor("17").expect("one"), 17);
        for none in ["", "-1", "x", "1.5", "99999999999999999999"] {
            assert_eq!(read_cursor(none).expect_err("none").code(), ErrorCode::InvalidCursor, "{none}");
        }
    }
}
