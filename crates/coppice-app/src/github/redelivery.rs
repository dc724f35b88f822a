//! Deliveries that failed, asked for again: GitHub tries none twice by itself.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::{Error, Result};
use parking_lot::Mutex;
use reqwest::Method;
use serde::Deserialize;

use super::Github;
use super::api::{Asked, Asker, GithubApi, GithubError};

/// How often GitHub is asked which deliveries failed, and how soon again when it does not say.
const PERIOD: Duration = Duration::from_secs(3600);
const AFTER_FAILURE: Duration = Duration::from_secs(300);
/// Attempts of an answer, the most that GitHub gives, and most answers that are read.
const PAGE: usize = 100;
const PAGES_MAX: usize = 20;
/// Most deliveries that are asked for at once; the others are an hour later.
const AGAIN_MAX: usize = 200;
/// As often as this a delivery is tried: one that we refuse each time is no news.
const ATTEMPTS_MAX: usize = 5;

/// For so long GitHub can send a delivery again.
fn reach() -> TimeDelta {
    TimeDelta::days(3)
}

/// When GitHub is asked next.
#[derive(Debug, Default)]
pub(crate) struct Redelivery {
    next: Mutex<Option<Instant>>,
}

/// One attempt at a delivery.
#[derive(Clone, Debug, Deserialize)]
struct Attempt {
    /// Of the attempt; each has another.
    id: i64,
    /// Of the delivery; all attempts have the same.
    guid: String,
    delivered_at: DateTime<Utc>,
    status_code: i64,
}

impl GithubApi {
    /// Attempts of the last days, the latest first.
    async fn attempts(&self, app: &str, since: DateTime<Utc>) -> Asked<Vec<Attempt>> {
        let (mut found, mut cursor) = (vec![], String::new());
        for _ in 0..PAGES_MAX {
            let path = format!("/app/hook/deliveries?per_page={PAGE}{cursor}");
            let answer = self.ask((Method::GET, &path), Asker::app(app), None, "deliveries").await?;
            let page: Vec<Attempt> = answer.json()?;
            let is_last = page.last().is_none_or(|attempt| attempt.delivered_at < since);
            found.extend(page.into_iter().filter(|attempt| attempt.delivered_at >= since));
            match answer.next_cursor() {
                Some(next) if !is_last => cursor = format!("&cursor={next}"),
                _ => break,
            }
        }
        Ok(found)
    }

    /// Has GitHub send deliveries again none of whose attempts came through; how many.
    async fn send_failed_again(&self, now: DateTime<Utc>) -> Asked<usize> {
        let app = self.app_token().map_err(|error| GithubError::Away(error.for_log()))?;
        let failed = failed(&self.attempts(&app, now - reach()).await?);
        let count = failed.len().min(AGAIN_MAX);
        for id in &failed[..count] {
            let path = format!("/app/hook/deliveries/{id}/attempts");
            match self.ask((Method::POST, &path), Asker::app(&app), None, "a delivery again").await {
                Ok(_) => {}
                // It is too old, or of an App's hook that is no more.
                Err(refused @ GithubError::Refused { .. }) => tracing::debug!("{refused}"),
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

/// The last attempt of each delivery that never came through and may be tried again, the oldest delivery first.
fn failed(attempts: &[Attempt]) -> Vec<i64> {
    let mut deliveries: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        deliveries.entry(&attempt.guid).or_default().push(attempt);
    }
    let is_good = |attempt: &&Attempt| (200..300).contains(&attempt.status_code);
    deliveries.retain(|_, attempts| attempts.len() < ATTEMPTS_MAX && !attempts.iter().any(is_good));
    let when = |attempt: &&Attempt| (attempt.delivered_at, attempt.id);
    let last = deliveries.into_values().filter_map(|attempts| attempts.into_iter().max_by_key(when));
    let mut last: Vec<_> = last.collect();
    last.sort_by_key(when);
    last.into_iter().map(|attempt| attempt.id).collect()
}

impl Github {
    /// Has GitHub send again what failed, after the start and every hour; to be called every few seconds.
    pub(crate) async fn ask_for_failed_deliveries(&self, redelivery: &Redelivery) -> Result<()> {
        let is_due = redelivery.next.lock().is_none_or(|next| next <= Instant::now());
        // Before that nobody would be there to take them.
        if !is_due || !self.is_set_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        *redelivery.next.lock() = Some(Instant::now() + AFTER_FAILURE);
        let count = self.api()?.send_failed_again(Utc::now()).await.map_err(Error::from)?;
        *redelivery.next.lock() = Some(Instant::now() + PERIOD);
        if count > 0 {
            tracing::info!("GitHub was asked to send {count} deliveries again that had failed");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_asked_for_until_one_attempt_came_through_and_not_for_ever() {
        let attempt = |id: i64, guid: &str, minute: i64, status_code: i64| Attempt {
            id,
            guid: guid.to_owned(),
            delivered_at: DateTime::from_timestamp(minute * 60, 0).expect("a time"),
            status_code,
        };
        let mut attempts = vec![
            attempt(1, "came", 1, 200),
            attempt(2, "lost", 2, 502),
            attempt(3, "second time", 3, 0),
            attempt(4, "second time", 9, 202),
            attempt(5, "twice lost", 1, 504),
            attempt(6, "twice lost", 8, 500),
        ];
        attempts.extend((10..15).map(|id| attempt(id, "refused", id, 400)));
        assert_eq!(failed(&attempts), [2, 6]);
        attempts.reverse();
        assert_eq!(failed(&attempts), [2, 6]);
        assert_eq!(failed(&[]), [0; 0]);
    }
}
