//! What AWS tells of subscriptions: by EventBridge into a queue of the operator's, which is asked for it. Nobody else
//! may write there, and nothing listens for it here. Messages come at least once and in any order; what they say has
//! a time, and the later one counts.

use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::marketplace::{SubscriptionNews, license_of};
use coppice_core::{Error, Result};
use coppice_failpoint::failpoint;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::AwsMarketplace;
use super::api::AwsApi;
use crate::asking;

/// How often the queue is asked; the question itself waits for five seconds.
pub(crate) const LOOK: Duration = Duration::from_secs(10);
/// Most messages of an answer, seconds that it waits for one, and seconds for which nobody else gets them.
const MESSAGES_MAX: u32 = 10;
const WAIT_SECONDS: u32 = 5;
const LEASE_SECONDS: u32 = 60;
/// The source of events about agreements, and the beginnings of their names. Their ends name the recipient.
const SOURCE: &str = "aws.agreement-marketplace";
const ENDS: &str = "License Deprovisioned - ";
const GOES_ON: &str = "License Updated - ";

#[derive(Deserialize)]
struct Received {
    #[serde(rename = "Messages", default)]
    messages: Option<Vec<Message>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Message {
    receipt_handle: String,
    body: String,
}

#[derive(Deserialize)]
struct Event {
    source: String,
    #[serde(rename = "detail-type")]
    kind: String,
    time: DateTime<Utc>,
    detail: Detail,
}

#[derive(Deserialize)]
struct Detail {
    product: Product,
    license: Option<License>,
    acceptor: Option<Acceptor>,
}

#[derive(Deserialize)]
struct Product {
    code: String,
}

#[derive(Deserialize)]
struct License {
    arn: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Acceptor {
    account_id: String,
}

impl AwsMarketplace {
    /// Takes what is in the queue. A message is removed when what follows from it is written down;
    /// one of which that fails keeps none back that came with it, and comes again.
    pub(crate) async fn look_at_queue(&self) -> Result<()> {
        let aws = self.api()?;
        loop {
            let messages = aws.receive().await?;
            if messages.is_empty() {
                return Ok(());
            }
            let mut failed = None;
            for message in &messages {
                if let Err(error) = self.take(aws, message).await {
                    tracing::warn!(
                        "a message in the queue of AWS Marketplace is left there: {}",
                        error.for_log()
                    );
                    failed = Some(error);
                }
            }
            // For a while nobody gets it, and so the next look has others.
            failed.map_or(Ok(()), Err)?;
        }
    }

    async fn take(&self, aws: &AwsApi, Message { receipt_handle, body }: &Message) -> Result<()> {
        match news(body, &aws.config.product_code) {
            Ok(Some(news)) => self.apply_news(&news).await?,
            Ok(None) => {}
            Err(why) => tracing::warn!("a message in the queue of AWS Marketplace is none of AWS's: {why}"),
        }
        failpoint!("marketplace.applied");
        aws.remove(receipt_handle).await
    }

    /// Writes down what AWS says of a subscription, with all that follows from it.
    pub(super) async fn apply_news(&self, news: &SubscriptionNews) -> Result<()> {
        let found = self.store.subscription_organization(&news.license, &news.account).await?;
        let mut tx = self.store.begin().await?;
        match found {
            None => {
                self.store.subscription_told_in_tx(&mut tx, news).await?;
            }
            Some(id) => {
                self.store.organization_lock_in_tx(&mut tx, &id).await?;
                let had = self.store.means_in_tx(&mut tx, &id).await?;
                if self.store.subscription_told_in_tx(&mut tx, news).await? {
                    self.subscriptions.apply_in_tx(&mut tx, &id, had).await?;
                }
            }
        }
        tx.commit().await?;
        Ok(())
    }
}

impl AwsApi {
    async fn receive(&self) -> Result<Vec<Message>> {
        let body = json!({
            "QueueUrl": self.config.queue.as_str(),
            "MaxNumberOfMessages": MESSAGES_MAX,
            "WaitTimeSeconds": WAIT_SECONDS,
            "VisibilityTimeout": LEASE_SECONDS,
        });
        let received: Received = self.queue("ReceiveMessage", &body).await.map_err(Error::from)?;
        Ok(received.messages.unwrap_or_default())
    }

    async fn remove(&self, receipt_handle: &str) -> Result<()> {
        let body = json!({ "QueueUrl": self.config.queue.as_str(), "ReceiptHandle": receipt_handle });
        let done: IgnoredAny = self.queue("DeleteMessage", &body).await.map_err(Error::from)?;
        let IgnoredAny = done;
        Ok(())
    }
}

/// What a message says of a subscription of our product; nothing when it is of something else. What AWS writes for the
/// queue it writes for nobody else, so one that is none of its is an operator's mistake.
fn news(body: &str, product_code: &str) -> std::result::Result<Option<SubscriptionNews>, String> {
    let event: Event = serde_json::from_str(body).map_err(|error| error.to_string())?;
    if event.source != SOURCE {
        return Err(format!("its source is not {SOURCE}"));
    }
    let is_end = event.kind.starts_with(ENDS);
    if !is_end && !event.kind.starts_with(GOES_ON) || event.detail.product.code != product_code {
        return Ok(None);
    }
    let (Some(license), Some(acceptor)) = (event.detail.license, event.detail.acceptor) else {
        return Err("it names no license".to_owned());
    };
    // A time can be longer ago than the metastore knows times.
    let is_time = (DateTime::UNIX_EPOCH..=Utc::now() + AHEAD).contains(&event.time);
    if !asking::is_id(&license.arn) || !asking::is_id(&acceptor.account_id) || !is_time {
        return Err("its license, account or time can't be one".to_owned());
    }
    Ok(Some(SubscriptionNews {
        license: license_of(&license.arn).to_owned(),
        license_arn: license.arn,
        account: acceptor.account_id,
        at: event.time,
        is_end,
    }))
}

/// How much our clock may be behind. What is of a later time would count against all that is said until then.
const AHEAD: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn event(change: impl FnOnce(&mut Value)) -> String {
        let mut event = json!({
            "version": "0", "id": "1", "detail-type": "License Deprovisioned - Manufacturer",
            "source": "aws.agreement-marketplace", "account": "1", "time": "2026-11-23T10:00:00Z",
            "region": "us-east-1", "resources": [],
            "detail": {
                "product": { "code": "ours", "id": "prod-1" }, "acceptor": { "accountId": "123456789012" },
                "license": { "arn": "aws:license-manager:us-east-1:123456789012:l-1" },
            },
        });
        change(&mut event);
        event.to_string()
    }

    #[test]
    fn only_what_aws_says_of_licenses_of_our_product_counts() {
        let said = news(&event(|_| {}), "ours").expect("one of AWS's").expect("news");
        assert_eq!(
            (said.license.as_str(), said.account.as_str(), said.is_end),
            ("l-1", "123456789012", true)
        );
        let goes_on = event(|event| event["detail-type"] = json!("License Updated - Manufacturer"));
        assert!(!news(&goes_on, "ours").expect("one of AWS's").expect("news").is_end);
        for (name, value) in
            [("detail-type", json!("Purchase Agreement Ended - Proposer")), ("detail-type", json!("License"))]
        {
            assert_eq!(news(&event(|event| event[name] = value.clone()), "ours"), Ok(None), "{value}");
        }
        assert_eq!(news(&event(|_| {}), "other"), Ok(None));
        for wrong in [
            "{}".to_owned(),
            "no JSON".to_owned(),
            event(|event| event["source"] = json!("ours")),
            event(|event| event["detail"]["license"] = Value::Null),
            event(|event| event["detail"]["acceptor"]["accountId"] = json!("1\u{0}")),
            event(|event| event["time"] = json!("9999-01-01T00:00:00Z")),
            event(|event| event["time"] = json!("-9000-01-01T00:00:00Z")),
        ] {
            assert!(news(&wrong, "ours").is_err(), "{wrong}");
        }
    }
}
