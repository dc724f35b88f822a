//! Sealed usage on its way to AWS Marketplace. Rows of branches come in the transaction that seals an hour
//! (`migrations/0521_marketplace_former.sql`); they become records, one number for each license, dimension and hour, in
//! the transaction that removes them; and a record is done with when AWS has answered.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use coppice_core::marketplace::UsageRecord;
use coppice_core::usage::Meter;
use sqlx::FromRow;

use crate::usage::BILLED_KEPT_DAYS;
use crate::{Result, Store, StoreError, Tx};

/// What an organization used in an hour and is not in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecordedUsage {
    /// When the hour began.
    pub hour: DateTime<Utc>,
    /// What was counted.
    pub meter: Meter,
    /// The type of the instances, where those are counted; else empty.
    pub instance_type: String,
    /// How much, a whole number in the unit of the meter.
    pub quantity: String,
}

/// What becomes of a record after it was to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Telling {
    /// AWS has it, and knows it as this.
    Done(String),
    /// AWS does not take it, and why; it is tried again after so many seconds, or never.
    Refused(String, Option<u32>),
}

#[derive(FromRow)]
struct RecordRow {
    license_id: String,
    license_arn: String,
    account_id: String,
    dimension: String,
    hour: DateTime<Utc>,
    quantity: String,
    refused: Option<String>,
}

impl Store {
    /// Licenses with usage that is not in a record.
    pub async fn record_licenses_due(&self) -> Result<Vec<String>> {
        let found = sqlx::query_scalar("select distinct license_id from marketplace_usage order by 1");
        Ok(found.fetch_all(&self.pool).await?)
    }

    /// Takes the usage of a license that is not in a record, which is locked until the transaction ends.
    pub async fn record_take_in_tx(&self, tx: &mut Tx, license: &str) -> Result<Vec<UnrecordedUsage>> {
        sqlx::query("select from marketplace_subscriptions where license_id = $1 for no key update")
            .bind(license)
            .execute(&mut **tx)
            .await?;
        let rows: Vec<(DateTime<Utc>, String, String, String)> = sqlx::query_as(
            "with taken as (delete from marketplace_usage where license_id = $1
                            returning hour, meter, instance_type, quantity)
             select hour, meter, instance_type, sum(quantity)::text from taken group by 1, 2, 3 order by 1, 2, 3",
        )
        .bind(license)
        .fetch_all(&mut **tx)
        .await?;
        let usage = |(hour, meter, instance_type, quantity): (DateTime<Utc>, String, String, String)| {
            let meter = Meter::parse(&meter)
                .ok_or_else(|| StoreError::UnknownValue { what: "meter", value: meter.clone() })?;
            Ok(UnrecordedUsage { hour, meter, instance_type, quantity })
        };
        rows.into_iter().map(usage).collect()
    }

    /// What is carried into the next record of each dimension of a license.
    pub async fn record_carries_in_tx(&self, tx: &mut Tx, license: &str) -> Result<BTreeMap<String, String>> {
        let rows: Vec<(String, String)> =
            sqlx::query_as("select dimension, quantity::text from marketplace_carries where license_id = $1")
                .bind(license)
                .fetch_all(&mut **tx)
                .await?;
        Ok(rows.into_iter().collect())
    }

    /// Says what is carried into the next record of a dimension.
    pub async fn record_carry_in_tx(
        &self,
        tx: &mut Tx,
        license: &str,
        dimension: &str,
        quantity: &str,
    ) -> Result<()> {
        sqlx::query(
            "insert into marketplace_carries (license_id, dimension, quantity) values ($1, $2, $3::numeric)
             on conflict (license_id, dimension) do update set quantity = excluded.quantity",
        )
        .bind(license)
        .bind(dimension)
        .bind(quantity)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Whether an hour of a dimension is in a record, or too long ago to say that it is not.
    pub async fn record_exists_in_tx(
        &self,
        tx: &mut Tx,
        license: &str,
        dimension: &str,
        hour: DateTime<Utc>,
    ) -> Result<bool> {
        let found = sqlx::query_scalar(
            "select $3 < now() - make_interval(days => $4)
                 or exists (select from marketplace_records
                            where license_id = $1 and dimension = $2 and hour = $3)",
        )
        .bind(license)
        .bind(dimension)
        .bind(hour)
        .bind(BILLED_KEPT_DAYS)
        .fetch_one(&mut **tx)
        .await?;
        Ok(found)
    }

    /// Makes a record.
    pub async fn record_insert_in_tx(
        &self,
        tx: &mut Tx,
        license: &str,
        dimension: &str,
        hour: DateTime<Utc>,
        quantity: &str,
    ) -> Result<()> {
        sqlx::query(
            "insert into marketplace_records (license_id, dimension, hour, quantity)
             values ($1, $2, $3, $4::numeric)",
        )
        .bind(license)
        .bind(dimension)
        .bind(hour)
        .bind(quantity)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Notes that all that a license is charged for is in records: what is sealed from here on is not.
    pub async fn record_close_in_tx(&self, tx: &mut Tx, license: &str) -> Result<()> {
        for statement in [
            "update marketplace_subscriptions set closed_at = now() where license_id = $1 and ended_at is not null",
            "delete from marketplace_usage where license_id = $1",
        ] {
            sqlx::query(statement).bind(license).execute(&mut **tx).await?;
        }
        Ok(())
    }

    /// Takes records that are due, up to `count`, the oldest first. Nobody else gets them for `lease_seconds`.
    pub async fn record_claim(&self, count: u32, lease_seconds: u32) -> Result<Vec<UsageRecord>> {
        let rows: Vec<RecordRow> = sqlx::query_as(
            "with claimed as (
                 update marketplace_records r set due_at = now() + make_interval(secs => $2)
                 from (select license_id, dimension, hour from marketplace_records where due_at <= now()
                       order by hour, license_id, dimension limit $1 for update skip locked) k
                 where (r.license_id, r.dimension, r.hour) = (k.license_id, k.dimension, k.hour)
                 returning r.license_id, r.dimension, r.hour, r.quantity::text as quantity, r.refused)
             select c.*, s.license_arn, s.account_id from claimed c join marketplace_subscriptions s using (license_id)
             order by c.hour, c.license_id, c.dimension",
        )
        .bind(i64::from(count))
        .bind(f64::from(lease_seconds))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(UsageRecord::from).collect())
    }

    /// Writes down what became of a record.
    pub async fn record_told(&self, record: &UsageRecord, telling: &Telling) -> Result<()> {
        let (id, refused, again) = match telling {
            Telling::Done(id) => (Some(id), None, None),
            Telling::Refused(why, again) => (None, Some(why), *again),
        };
        sqlx::query(
            "update marketplace_records set record_id = $4, refused = $5,
                 told_at = case when $4 is not null then now() end,
                 due_at = now() + make_interval(secs => $6)
             where license_id = $1 and dimension = $2 and hour = $3",
        )
        .bind(&record.license)
        .bind(&record.dimension)
        .bind(record.hour)
        .bind(id)
        .bind(refused)
        .bind(again.map(f64::from))
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

impl From<RecordRow> for UsageRecord {
    fn from(row: RecordRow) -> Self {
        Self {
            license: row.license_id,
            license_arn: row.license_arn,
            account: row.account_id,
            dimension: row.dimension,
            hour: row.hour,
            quantity: row.quantity,
            refused: row.refused,
        }
    }
}
