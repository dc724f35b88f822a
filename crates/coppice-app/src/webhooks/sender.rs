//! Trying deliveries.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use coppice_core::webhook::{pause_after, read_retry_after};
use coppice_core::{Result, random};
use coppice_failpoint::failpoint;
use coppice_store::{AfterAttempt, AttemptEnd, ClaimedDelivery, DueDelivery};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::guard::{Clients, Refused, for_holder};
use super::queue::{PER_WEBHOOK_MAX, Running};
use super::{Webhooks, secret};
use crate::metrics::{task_begun, task_succeeded};

/// How long an attempt may take with all that belongs to it; then somebody
/// else may try.
const LEASE_SECONDS: u32 = 60;
/// A receiver that takes a delivery later comes after others.
const QUICK: Duration = Duration::from_secs(2);
/// How often it is looked for what is due.
const LOOK: Duration = Duration::from_secs(1);
/// The name of the task.
const TASK: &str = "webhook_sender";

impl Webhooks {
    /// Sends what is due for ever.
    pub(crate) async fn send(&self) {
        task_begun(TASK, LOOK);
        let mut sender = Sender { webhooks: self.clone(), clients: None, running: Running::default() };
        let mut attempts = JoinSet::new();
        loop {
            match sender.begin_due(&mut attempts).await {
                Ok(()) => task_succeeded(TASK),
                Err(error) => tracing::warn!("looking for deliveries to webhooks: {}", error.for_log()),
            }
            tokio::select! {
                biased;
                Some(ended) = attempts.join_next() => {
                    sender.note_end(ended);
                    while let Some(ended) = attempts.try_join_next() {
                        sender.note_end(ended);
                    }
                }
                () = self.nudge.notified() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Tries one delivery and writes down what came of it.
    async fn try_delivery(&self, clients: &Clients, claimed: &ClaimedDelivery) {
        failpoint!("webhook.claimed");
        let begun = Instant::now();
        let answer = self.attempt(clients, claimed).await.unwrap_or_else(|error| {
            // The right secret.key may be put back meanwhile.
            tracing::warn!("delivery {} can't be put together: {}", claimed.due.id, error.for_log());
            Answer::none("it could not be put together")
        });
        let end = judge(claimed.attempts, answer, begun.elapsed());
        failpoint!("webhook.tried");
        if let Err(error) = self.store.delivery_end(claimed, &end).await {
            tracing::warn!("noting the end of delivery {}: {error}", claimed.due.id);
        }
    }

    async fn attempt(&self, clients: &Clients, claimed: &ClaimedDelivery) -> Result<Answer> {
        let open = |sealed: &Vec<u8>| self.key.open(claimed.due.webhook.as_str(), sealed);
        let secrets = claimed.secrets_sealed.iter().map(open).collect::<Result<Vec<Zeroizing<String>>>>()?;
        let occurred = claimed.occurred_at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let body = json!({ "type": claimed.kind, "timestamp": occurred, "data": claimed.data }).to_string();
        let (id, timestamp) = (claimed.event.as_str(), Utc::now().timestamp());
        let signature = secret::sign(&secrets, id, timestamp, &body)?;
        let target = Url::parse(&claimed.url).ok().and_then(|url| Some((clients.client(&url)?, url)));
        let Some((client, url)) = target else { return Ok(Answer::none("its address is not allowed")) };
        let request = client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(body);
        // Nothing of an answer is read but its head.
        Ok(match for_holder(&claimed.due.holder, request.send()).await {
            Ok(response) => Answer {
                status: Some(response.status()),
                retry_after: response
                    .headers()
                    .get(RETRY_AFTER)
                    .and_then(|value| read_retry_after(value.to_str().ok()?, Utc::now())),
                failure: None,
            },
            Err(error) => Answer::none(reason(&error)),
        })
    }
}

/// See [`Webhooks::send`].
struct Sender {
    webhooks: Webhooks,
    /// Made when something is due for the first time.
    clients: Option<Arc<Clients>>,
    running: Running,
}

impl Sender {
    /// Begins attempts of what is due, as far as there is room.
    async fn begin_due(&mut self, attempts: &mut JoinSet<DueDelivery>) -> Result<()> {
        let due = self.webhooks.store.delivery_due(PER_WEBHOOK_MAX as u32).await?;
        let chosen = self.running.choose(&due);
        if chosen.is_empty() {
            return Ok(());
        }
        let clients = match &self.clients {
            Some(clients) => clients.clone(),
            None => self
                .clients
                .insert(Arc::new(Clients::new(&self.webhooks.reach, &self.webhooks.lookups)?))
                .clone(),
        };
        for claimed in self.webhooks.store.delivery_claim(&chosen, LEASE_SECONDS).await? {
            self.running.begin(&claimed.due);
            let (webhooks, clients) = (self.webhooks.clone(), clients.clone());
            attempts.spawn(async move {
                webhooks.try_delivery(&clients, &claimed).await;
                claimed.due
            });
        }
        Ok(())
    }

    fn note_end(&mut self, ended: std::result::Result<DueDelivery, tokio::task::JoinError>) {
        match ended {
            Ok(delivery) => self.running.end(&delivery),
            // Begun again with nothing running: whoever panicked is not counted for ever.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// What came of an attempt.
struct Answer {
    status: Option<StatusCode>,
    retry_after: Option<Duration>,
    failure: Option<&'static str>,
}

impl Answer {
    fn none(failure: &'static str) -> Self {
        Self { status: None, retry_after: None, failure: Some(failure) }
    }
}

fn judge(attempts: u32, answer: Answer, took: Duration) -> AttemptEnd {
    let next = match answer.status {
        Some(status) if status.is_success() => AfterAttempt::Delivered,
        Some(StatusCode::GONE) => AfterAttempt::Gone,
        _ => pause_after(attempts, chance(), answer.retry_after)
            .map_or(AfterAttempt::GivenUp, AfterAttempt::Again),
    };
    AttemptEnd {
        next,
        status: answer.status.map(|status| status.as_u16()),
        failure: answer.failure,
        is_slow: next != AfterAttempt::Delivered || took > QUICK,
    }
}

/// From 0 to 1.
fn chance() -> f64 {
    let mut bytes = [0; 4];
    random::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

/// Why there was no answer, in words that say nothing of what is inside.
fn reason(error: &reqwest::Error) -> &'static str {
    let mut cause = error.source();
    while let Some(one) = cause {
        if one.is::<Refused>() {
            return "its name leads to no address of the internet";
        }
        cause = one.source();
    }
    match error {
        error if error.is_timeout() => "it did not answer in 15 seconds",
        error if error.is_connect() => "no connection could be made",
        _ => "the connection broke",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_decides_what_comes_next() {
        let after = |attempts, status: u16, retry_after: Option<u64>| {
            let answer = Answer {
                status: StatusCode::from_u16(status).ok(),
                retry_after: retry_after.map(Duration::from_secs),
                failure: None,
            };
            judge(attempts, answer, Duration::ZERO).next
        };
        for good in [200, 202, 204, 299] {
            assert_eq!(after(1, good, None), AfterAttempt::Delivered);
        }
        assert_eq!(after(1, 410, None), AfterAttempt::Gone);
        for bad in [301, 302, 307, 400, 404, 429, 500, 503] {
            let AfterAttempt::Again(pause) = after(1, bad, None) else { panic!("{bad} is tried again") };
            assert!((5.0..=5.5).contains(&pause.as_secs_f64()), "{pause:?}");
            assert_eq!(after(10, bad, None), AfterAttempt::GivenUp);
        }
        assert_eq!(after(1, 429, Some(77)), AfterAttempt::Again(Duration::from_secs(77)));
        let none = |attempts| judge(attempts, Answer::none("x"), Duration::ZERO);
        assert!(matches!(none(1).next, AfterAttempt::Again(_)) && none(1).is_slow);
        assert_eq!(none(10).failure, Some("x"));
        let taken = |took| {
            let answer = Answer { status: Some(StatusCode::OK), retry_after: None, failure: None };
            judge(1, answer, took).is_slow
        };
        assert_eq!([0, 2, 3].map(|seconds| taken(Duration::from_secs(seconds))), [false, false, true]);
    }
}
