//! What organizations are known as at Orb, and which of them are looked at
//! there. As with Stripe (`stripe.rs`), a delivery or a change here only has
//! somebody look; changes are noticed by triggers (`migrations/0450_orb.sql`).

use chrono::{DateTime, Utc};
use coppice_core::OrganizationId;
use coppice_core::payment::{Credit, Means};
use sqlx::FromRow;
use sqlx::types::Json;

use crate::{Result, Store, Tx};

/// Days that ids of deliveries are remembered.
const DELIVERY_DAYS: i32 = 7;

/// An organization that somebody looks at at Orb now, and what Orb is to know of it.
#[derive(Clone, Debug)]
pub struct OrbSubject {
    /// Whose.
    pub organization: OrganizationId,
    /// What it is called.
    pub name: String,
    /// Where its invoices go; empty when nobody is known any more.
    pub email: String,
    /// From when on Orb makes invoices for it.
    pub billed_from: DateTime<Utc>,
    /// What Stripe knows it as, if it does.
    pub stripe_id: Option<String>,
    /// What Orb knows it as, if that is known.
    pub customer_id: Option<String>,
    /// Whether it is deleted, or is to be.
    pub is_ending: bool,
    /// Whether all that it used is sealed and sent.
    pub is_sent: bool,
    /// Which look this is.
    pub asked: i64,
    /// Looks since one succeeded, with this one.
    pub attempts: u32,
}

/// What a look found.
#[derive(Clone, Debug)]
pub struct OrbFinding {
    /// What Orb knows it as; none where it need not any more.
    pub customer_id: Option<String>,
    /// Its subscription, if it has one that is not over.
    pub subscription_id: Option<String>,
    /// What is paid already, also what is used up.
    pub credits: Vec<Credit>,
    /// Whether credit can be used; none where there never was any.
    pub has_credit: Option<bool>,
    /// Whether nothing is to be done there any more for an organization that ends.
    pub is_settled: bool,
}

#[derive(FromRow)]
struct SubjectRow {
    organization_id: String,
    name: String,
    email: String,
    billed_from: DateTime<Utc>,
    stripe_id: Option<String>,
    customer_id: Option<String>,
    is_ending: bool,
    is_sent: bool,
    asked: i64,
    attempts: i32,
}

impl From<SubjectRow> for OrbSubject {
    fn from(row: SubjectRow) -> Self {
        Self {
            organization: OrganizationId::from_trusted(row.organization_id),
            name: row.name,
            email: row.email,
            billed_from: row.billed_from,
            stripe_id: row.stripe_id,
            customer_id: row.customer_id,
            is_ending: row.is_ending,
            is_sent: row.is_sent,
            asked: row.asked,
            attempts: row.attempts.unsigned_abs(),
        }
    }
}

impl Store {
    /// Says whether Orb makes invoices from now on: what is sealed while it does
    /// is sent there, and every organization has a row. When it does not any
    /// more, nobody has credit there.
    pub async fn orb_set_up(&self, is_used: bool) -> Result<()> {
        let mut tx = self.begin().await?;
        let statements: &[&str] = match is_used {
            true => &[
                "insert into orb_billing default values on conflict do nothing",
                "insert into orb_customers (organization_id)
                 select id from organizations where deleted_at is null on conflict do nothing",
            ],
            false => &[
                "delete from orb_billing",
                "update orb_customers set has_credit = null, credits = '[]' where has_credit is not null",
            ],
        };
        for statement in statements {
            sqlx::query(*statement).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The subscription of an organization, as far as is known.
    pub async fn orb_subscription(&self, organization: &OrganizationId) -> Result<Option<String>> {
        let found: Option<Option<String>> =
            sqlx::query_scalar("select subscription_id from orb_customers where organization_id = $1")
                .bind(organization.as_str())
                .fetch_optional(&self.pool)
                .await?;
        Ok(found.flatten())
    }

    /// What an organization has paid already, as Orb said last.
    pub async fn orb_credits(&self, organization: &OrganizationId) -> Result<Vec<Credit>> {
        let found: Option<Json<Vec<Credit>>> =
            sqlx::query_scalar("select credits from orb_customers where organization_id = $1")
                .bind(organization.as_str())
                .fetch_optional(&self.pool)
                .await?;
        Ok(found.map(|Json(credits)| credits).unwrap_or_default())
    }

    /// Whether an organization that is to end has nothing left to do at Orb: also one that never was there.
    pub async fn orb_is_settled(&self, organization: &OrganizationId) -> Result<bool> {
        let found: Option<bool> =
            sqlx::query_scalar("select is_settled from orb_customers where organization_id = $1")
                .bind(organization.as_str())
                .fetch_optional(&self.pool)
                .await?;
        Ok(found.unwrap_or(true))
    }

    /// Writes down that a delivery came, and that somebody is to look at whom it is about.
    pub async fn orb_delivery(&self, id: &str, organization: &OrganizationId) -> Result<()> {
        let mut tx = self.begin().await?;
        let inserted = sqlx::query("insert into orb_deliveries (id) values ($1) on conflict do nothing")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 1 {
            sqlx::query("select ask_orb($1)").bind(organization.as_str()).execute(&mut *tx).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Forgets deliveries that nobody sends again.
    pub async fn orb_delivery_purge(&self) -> Result<()> {
        sqlx::query("delete from orb_deliveries where received_at < now() - make_interval(days => $1)")
            .bind(DELIVERY_DAYS)
            .execute(&self.relaxed)
            .await?;
        Ok(())
    }

    /// Takes organizations that are due, up to `count`. Nobody else gets them for
    /// `lease_seconds`; what nothing is heard of until then is due again.
    pub async fn orb_customers_claim(&self, count: u32, lease_seconds: u32) -> Result<Vec<OrbSubject>> {
        let rows: Vec<SubjectRow> = sqlx::query_as(
            "with claimed as (
                 update orb_customers set attempts = attempts + 1, due_at = now() + make_interval(secs => $2)
                 where organization_id in (
                     select organization_id from orb_customers where due_at <= now()
                     order by due_at limit $1 for update skip locked)
                 returning organization_id, customer_id, asked, attempts)
             select c.organization_id, o.name, c.customer_id, c.asked, c.attempts, s.customer_id as stripe_id,
                    coalesce(b.billing_email, (select u.email from members m join users u on u.id = m.user_id
                                               where m.organization_id = o.id and m.role = 'owner'), '') as email,
                    date_trunc('hour', greatest(o.created_at, (select since from orb_billing)), 'UTC') as billed_from,
                    o.deleted_at is not null or o.billing_status = 'deletion_requested' as is_ending,
                    not exists (select from orb_usage q where q.organization_id = o.id)
                    and not exists (
                        select from usage_branches u join usage_periods p on p.branch_id = u.branch_id, usage_meter t
                        where u.organization_id = o.id and (p.ended_at is null or p.ended_at > t.sealed_until))
                    and not exists (
                        select from usage_branches u join usage_egress e on e.branch_id = u.branch_id, usage_meter t
                        where u.organization_id = o.id and e.hour >= t.sealed_until) as is_sent
             from claimed c join organizations o on o.id = c.organization_id
             left join billing_customers b on b.organization_id = o.id
             left join stripe_customers s on s.organization_id = o.id",
        )
        .bind(i64::from(count))
        .bind(f64::from(lease_seconds))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(OrbSubject::from).collect())
    }

    /// Writes down what a look found, to be looked at again after so many
    /// seconds, or never; at once if another look was asked for meanwhile.
    pub async fn orb_looked_in_tx(
        &self,
        tx: &mut Tx,
        subject: &OrbSubject,
        finding: &OrbFinding,
        again_seconds: Option<u32>,
    ) -> Result<()> {
        sqlx::query(
            "update orb_customers set customer_id = $2, subscription_id = $3, credits = $4, has_credit = $5,
                 is_settled = $6 and asked = $7, attempts = 0,
                 due_at = case when asked = $7 then now() + make_interval(secs => $8) else now() end
             where organization_id = $1",
        )
        .bind(subject.organization.as_str())
        .bind(&finding.customer_id)
        .bind(&finding.subscription_id)
        .bind(Json(&finding.credits))
        .bind(finding.has_credit)
        .bind(finding.is_settled)
        .bind(subject.asked)
        .bind(again_seconds.map(f64::from))
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Has an organization looked at again after so many seconds, at the latest.
    pub async fn orb_look_again(&self, subject: &OrbSubject, seconds: u32) -> Result<()> {
        sqlx::query(
            "update orb_customers
             set due_at = case when asked = $2 then now() + make_interval(secs => $3) else now() end
             where organization_id = $1",
        )
        .bind(subject.organization.as_str())
        .bind(subject.asked)
        .bind(f64::from(seconds))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// What an organization can be charged by, as far as is known. It must be
    /// locked by the transaction.
    pub async fn means_in_tx(&self, tx: &mut Tx, organization: &OrganizationId) -> Result<Means> {
        let (has_card, has_credit, has_subscription): (bool, Option<bool>, Option<bool>) = sqlx::query_as(
            "select exists (select from stripe_customers where organization_id = $1 and card_id is not null),
                    (select has_credit from orb_customers where organization_id = $1),
                    (select bool_or(ended_at is null) from marketplace_subscriptions where organization_id = $1)",
        )
        .bind(organization.as_str())
        .fetch_one(&mut **tx)
        .await?;
        Ok(Means { has_card, has_credit, has_subscription })
    }
}
