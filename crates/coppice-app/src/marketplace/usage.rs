//! Telling AWS what is used: one number for each license, dimension and hour. AWS takes the first that it is told and no
//! other, so a number is written down before it is told, never changes, and what comes later is part of a later one.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::amount::{Decimal, Whole};
use coppice_core::marketplace::{SubscriptionNews, UsageRecord};
use coppice_core::usage::Meter;
use coppice_core::{Error, OrganizationId, Result};
use coppice_failpoint::failpoint;
use coppice_store::{EndedSubscription, Telling, Tx, UnrecordedUsage, UsageGrouping, UsageQuery, UsageStep};
use serde::Deserialize;
use serde_json::json;

use super::AwsMarketplace;
use super::api::AwsApi;
use crate::metrics;
use crate::subscriptions::hour_of;

/// How often it is looked whether there is something to tell.
pub(crate) const LOOK: Duration = Duration::from_secs(10);
/// Most records of one request.
const RECORDS_MAX: u32 = 25;
/// Seconds until a record is told again of which AWS says nothing, and one that it does not take.
const LEASE_SECONDS: u32 = 60;
const REFUSED_PAUSE: u32 = 3600;
/// How long branches have to fall asleep before what an organization used to the end is summed up. AWS takes it for an
/// hour.
const AFTER_END: TimeDelta = TimeDelta::minutes(3);
/// Most rows of a report on the last hours.
const ROWS_MAX: u32 = 10_000;
/// AWS says so of a license by which nobody pays any more, or that it does not know.
const NOT_SUBSCRIBED: &str = "CustomerNotSubscribed";
/// What AWS says of a request when one of its records is wrong; it takes none of them then.
const OF_RECORDS: [&str; 6] = [
    TOO_LATE,
    "InvalidCustomerIdentifierException",
    "InvalidLicenseException",
    "InvalidProductCodeException",
    "InvalidUsageDimensionException",
    "ValidationException",
];
const TOO_LATE: &str = "TimestampOutOfBoundsException";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(default)]
    results: Vec<Outcome>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Outcome {
    usage_record: Told,
    metering_record_id: Option<String>,
    status: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    timestamp: f64,
    dimension: String,
    license_arn: Option<String>,
}

/// How much of each dimension was used in each hour.
type Amounts = BTreeMap<(String, DateTime<Utc>), Decimal>;

impl AwsMarketplace {
    /// Puts sealed usage into records, and tells AWS those that are due.
    pub(crate) async fn tell_usage(&self) -> Result<()> {
        let aws = self.api()?;
        for license in self.store.record_licenses_due().await? {
            let mut tx = self.store.begin().await?;
            let used = self.store.record_take_in_tx(&mut tx, &license).await?;
            self.record_in_tx(&mut tx, &license, amounts(aws, &used)?).await?;
            tx.commit().await?;
        }
        for ended in self.store.subscription_list_ended(Utc::now() - AFTER_END).await? {
            self.close_subscription(aws, &ended).await?;
        }
        failpoint!("marketplace.recorded");
        loop {
            let due = self.store.record_claim(RECORDS_MAX, LEASE_SECONDS).await?;
            if due.is_empty() {
                return Ok(());
            }
            let now = Utc::now();
            let (late, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|one| one.deadline() <= now);
            for record in &late {
                self.give_up(record).await?;
            }
            self.tell(aws, &due).await?;
        }
    }

    /// Makes records of amounts. What is of an hour that has one, is carried into the next, and so is what is less than
    /// nothing after a correction.
    async fn record_in_tx(&self, tx: &mut Tx, license: &str, amounts: Amounts) -> Result<()> {
        if amounts.is_empty() {
            return Ok(());
        }
        let carries = self.store.record_carries_in_tx(tx, license).await?;
        let mut by_dimension = BTreeMap::<String, (Decimal, Vec<(DateTime<Utc>, Decimal)>)>::new();
        for ((dimension, hour), amount) in amounts {
            let is_known = self.store.record_exists_in_tx(tx, license, &dimension, hour).await?;
            let carried = || carries.get(&dimension).and_then(|text| text.parse().ok()).unwrap_or_default();
            let (carry, new) = by_dimension.entry(dimension.clone()).or_insert_with(|| (carried(), vec![]));
            match is_known {
                true => *carry += amount,
                false => new.push((hour, amount)),
            }
        }
        for (dimension, (mut carry, new)) in by_dimension {
            for (hour, amount) in new {
                carry += amount;
                if carry > Decimal::default() {
                    let quantity = std::mem::take(&mut carry).to_plain_string();
                    self.store.record_insert_in_tx(tx, license, &dimension, hour, &quantity).await?;
                }
            }
            self.store.record_carry_in_tx(tx, license, &dimension, &carry.to_plain_string()).await?;
        }
        Ok(())
    }

    /// Sums up what was used to the end of a subscription, also in the hour that is not sealed: AWS does not wait for
    /// that.
    async fn close_subscription(&self, aws: &AwsApi, ended: &EndedSubscription) -> Result<()> {
        let sealed_until = self.store.usage_sealed_until().await?;
        let to = hour_of(ended.ended_at) + TimeDelta::hours(1);
        let mut last = vec![];
        for (organization, billed_from) in &ended.paid_for {
            let from = sealed_until.max(*billed_from);
            if from < to {
                last.extend(self.used_by_hour(organization, from, to).await?);
            }
        }
        let mut tx = self.store.begin().await?;
        let mut used = self.store.record_take_in_tx(&mut tx, &ended.license).await?;
        // What was sealed meanwhile is in the reports.
        used.retain(|one| one.hour < sealed_until);
        used.extend(last);
        self.record_in_tx(&mut tx, &ended.license, amounts(aws, &used)?).await?;
        self.store.record_close_in_tx(&mut tx, &ended.license).await?;
        tx.commit().await?;
        tracing::info!("the subscription {} at AWS Marketplace is over and summed up", ended.license);
        Ok(())
    }

    /// What an organization used in hours that need not be sealed.
    async fn used_by_hour(
        &self,
        organization: &OrganizationId,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Vec<UnrecordedUsage>> {
        let grouping = UsageGrouping { by: Some(UsageStep::Hour), ..UsageGrouping::default() };
        let boundaries = &[];
        let query = UsageQuery {
            organization,
            from,
            to,
            grouping,
            boundaries,
            is_own_only: false,
            rows_max: ROWS_MAX,
        };
        let rows = self.store.usage_report(&query).await?.into_iter();
        let used = rows.filter_map(|row| {
            let (meter, instance_type, quantity) = (row.meter, row.instance_type, row.quantity);
            Some(UnrecordedUsage { hour: row.began_at?, meter, instance_type, quantity })
        });
        Ok(used.collect())
    }

    /// Tells records. Of a request with a wrong one AWS takes none, so that is looked for by halves.
    async fn tell(&self, aws: &AwsApi, records: &[UsageRecord]) -> Result<()> {
        let mut parts = vec![records];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let asked = aws.metering::<Answer>("BatchMeterUsage", &body(part)).await;
            failpoint!("marketplace.told");
            match (asked, part) {
                (Ok(answer), _) => self.note_outcomes(part, answer).await?,
                (Err(error), part) if error.wrong().is_some_and(|kind| OF_RECORDS.contains(&kind)) => {
                    match part {
                        [record] => {
                            let again = (error.wrong() != Some(TOO_LATE)).then_some(REFUSED_PAUSE);
                            self.note_refused(record, &error.to_string(), again).await?;
                        }
                        _ => parts.extend(<[_; 2]>::from(part.split_at(part.len() / 2))),
                    }
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What AWS says nothing of is told again.
    async fn note_outcomes(&self, records: &[UsageRecord], answer: Answer) -> Result<()> {
        for Outcome { usage_record, metering_record_id, status } in answer.results {
            let is_meant = |record: &&UsageRecord| {
                usage_record.license_arn.as_ref() == Some(&record.license_arn)
                    && usage_record.dimension == record.dimension
                    && (usage_record.timestamp - seconds(record.hour)).abs() < 1.0
            };
            let Some(record) = records.iter().find(is_meant) else { continue };
            match status.as_str() {
                "Success" => {
                    let id = metering_record_id.unwrap_or_default().replace('\0', "");
                    self.store.record_told(record, &Telling::Done(id)).await?;
                    metrics::marketplace_record("told");
                }
                NOT_SUBSCRIBED => self.note_refused(record, NOT_SUBSCRIBED, Some(REFUSED_PAUSE)).await?,
                // It has been told another number, by somebody else: it keeps that.
                other => self.note_refused(record, other, None).await?,
            }
        }
        Ok(())
    }

    async fn note_refused(&self, record: &UsageRecord, why: &str, again: Option<u32>) -> Result<()> {
        let why = why.replace('\0', " ");
        let UsageRecord { license, dimension, hour, quantity, .. } = record;
        match again {
            Some(_) => {
                metrics::marketplace_record("refused");
                tracing::warn!("AWS does not take {quantity} {dimension} of {license} at {hour}: {why}");
            }
            None => {
                metrics::marketplace_record("lost");
                tracing::error!("AWS will never charge {quantity} {dimension} of {license} at {hour}: {why}");
            }
        }
        Ok(self.store.record_told(record, &Telling::Refused(why, again)).await?)
    }

    /// AWS takes a record no more. A license of which it has said for all that time that nobody pays by it is over,
    /// even if nobody said so.
    async fn give_up(&self, record: &UsageRecord) -> Result<()> {
        let last = record.refused.as_deref();
        let why =
            format!("it is too old; before, AWS said: {}", last.unwrap_or("nothing, it did not answer"));
        self.note_refused(record, &why, None).await?;
        if last != Some(NOT_SUBSCRIBED) {
            return Ok(());
        }
        let UsageRecord { license, license_arn, account, .. } = record.clone();
        let news = SubscriptionNews { license, license_arn, account, at: Utc::now(), is_end: true };
        self.apply_news(&news).await
    }
}

/// What the product charges of usage, each rounded once.
fn amounts(aws: &AwsApi, used: &[UnrecordedUsage]) -> Result<Amounts> {
    let mut amounts = Amounts::new();
    for UnrecordedUsage { hour, meter, instance_type, quantity } in used {
        let kind = if *meter == Meter::Awake { instance_type.as_str() } else { "" };
        let Some(dimension) = aws.config.dimension(*meter, kind) else { continue };
        let quantity: Whole = quantity.parse().map_err(Error::internal)?;
        *amounts.entry((dimension.to_owned(), *hour)).or_default() += meter.shown(&quantity);
    }
    amounts.retain(|_, amount| *amount != Decimal::default());
    Ok(amounts)
}

/// The product is that of the license: AWS would charge twice for one that is named besides.
fn body(records: &[UsageRecord]) -> serde_json::Value {
    let record = |record: &UsageRecord| {
        json!({
            "Timestamp": record.hour.timestamp(),
            "CustomerAWSAccountId": record.account,
            "LicenseArn": record.license_arn,
            "Dimension": record.dimension,
            "QuantityAsDecimal": record.quantity,
        })
    };
    json!({ "UsageRecords": records.iter().map(record).collect::<Vec<_>>() })
}

#[expect(clippy::cast_precision_loss, reason = "seconds of our time are far from the limit of exact numbers")]
fn seconds(time: DateTime<Utc>) -> f64 {
    time.timestamp() as f64
}
