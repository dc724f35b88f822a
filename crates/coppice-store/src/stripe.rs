//! What organizations are known as at Stripe, and which of them are looked at
//! there.
//!
//! A delivery says only that something may be otherwise: its id and the mark
//! that has somebody look are one transaction. So deliveries may come twice,
//! late and in any order, and none is lost after it was answered.

use coppice_core::OrganizationId;
use coppice_core::payment::Card;
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// Days that ids of deliveries are remembered: Stripe sends one again for three.
const DELIVERY_DAYS: i32 = 7;

/// What may be otherwise after a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripeNews {
    /// Whose cards.
    pub customers: Vec<String>,
    /// What became of this card; nobody says any more whose it was.
    pub card: Option<String>,
}

/// What an organization is known as at Stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeCustomer {
    /// None: it is not made yet.
    pub id: Option<String>,
    /// Which one of the organization it is; grows when one is gone there.
    pub number: u32,
    /// What it pays with.
    pub card: Option<Card>,
}

/// A customer that somebody looks at now.
#[derive(Clone, Debug)]
pub struct ClaimedCustomer {
    /// Whose.
    pub organization: OrganizationId,
    /// Stripe's id.
    pub id: String,
    /// When the newest card was made that was ever seen, in seconds of the epoch.
    pub newest_card_at: i64,
    /// Which look this is.
    pub asked: i64,
    /// Looks since one succeeded, with this one.
    pub attempts: u32,
}

/// What a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripeFinding {
    /// The customer.
    There {
        /// What it pays with.
        card: Option<Card>,
        /// When its newest card was made, in seconds of the epoch.
        newest_card_at: i64,
    },
    /// Stripe knows no such customer any more.
    Gone,
}

#[derive(FromRow)]
struct Row {
    customer_id: Option<String>,
    number: i32,
    card_id: Option<String>,
    card_brand: Option<String>,
    card_last4: Option<String>,
    card_month: Option<i32>,
    card_year: Option<i32>,
}

const COLUMNS: &str = "customer_id, number, card_id, card_brand, card_last4, card_month, card_year";

impl From<Row> for StripeCustomer {
    fn from(row: Row) -> Self {
        let card = row.card_id.map(|id| Card {
            id,
            brand: row.card_brand.unwrap_or_default(),
            last4: row.card_last4.unwrap_or_default(),
            expiry_month: row.card_month.unwrap_or_default().unsigned_abs(),
            expiry_year: row.card_year.unwrap_or_default().unsigned_abs(),
        });
        Self { id: row.customer_id, number: row.number.unsigned_abs(), card }
    }
}

impl Store {
    /// What an organization is known as; none when nobody asked for it.
    pub async fn stripe_customer(&self, organization: &OrganizationId) -> Result<Option<StripeCustomer>> {
        let sql = format!("select {COLUMNS} from stripe_customers where organization_id = $1");
        let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(StripeCustomer::from))
    }

    /// The same; writes down before that it is to be known.
    pub async fn stripe_customer_begin(&self, organization: &OrganizationId) -> Result<StripeCustomer> {
        let sql = format!(
            "insert into stripe_customers as c (organization_id) values ($1)
             on conflict (organization_id) do update set number = c.number returning {COLUMNS}"
        );
        let row: Row = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .fetch_one(&self.pool)
            .await?;
        Ok(row.into())
    }

    /// Notes what Stripe made for the organization, unless there is something
    /// or the number is another by now.
    pub async fn stripe_customer_made(
        &self,
        organization: &OrganizationId,
        number: u32,
        id: &str,
    ) -> Result<()> {
        sqlx::query(
            "update stripe_customers set customer_id = $3
             where organization_id = $1 and number = $2 and customer_id is null",
        )
        .bind(organization.as_str())
        .bind(i64::from(number))
        .bind(id)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Has an organization's customer looked at after so many seconds, at the latest.
    pub async fn stripe_customer_look_by(&self, organization: &OrganizationId, seconds: u32) -> Result<()> {
        sqlx::query(
            "update stripe_customers set due_at = least(due_at, now() + make_interval(secs => $2))
             where organization_id = $1",
        )
        .bind(organization.as_str())
        .bind(f64::from(seconds))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Writes down that a delivery came, with all that follows from it; false
    /// when it came before.
    pub async fn stripe_delivery(&self, id: &str, news: &StripeNews) -> Result<bool> {
        let mut tx = self.begin().await?;
        let inserted = sqlx::query("insert into stripe_deliveries (id) values ($1) on conflict do nothing")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 0 {
            return Ok(false);
        }
        ask(&mut tx, news).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Forgets deliveries that nobody sends again.
    pub async fn stripe_delivery_purge(&self) -> Result<()> {
        sqlx::query("delete from stripe_deliveries where received_at < now() - make_interval(days => $1)")
            .bind(DELIVERY_DAYS)
            .execute(&self.relaxed)
            .await?;
        Ok(())
    }

    /// Takes customers that are due, up to `count`. Nobody else gets them for
    /// `lease_seconds`; what nothing is heard of until then is due again.
    pub async fn stripe_customers_claim(
        &self,
        count: u32,
        lease_seconds: u32,
    ) -> Result<Vec<ClaimedCustomer>> {
        let rows: Vec<(String, String, i64, i64, i32)> = sqlx::query_as(
            "update stripe_customers
             set attempts = attempts + 1, due_at = now() + make_interval(secs => $2)
             where organization_id in (
                 select organization_id from stripe_customers
                 where due_at <= now() and customer_id is not null
                 order by due_at limit $1 for update skip locked)
             returning organization_id, customer_id, newest_card_at, asked, attempts",
        )
        .bind(i64::from(count))
        .bind(f64::from(lease_seconds))
        .fetch_all(&self.pool)
        .await?;
        let claimed = |(organization, id, newest_card_at, asked, attempts): (String, _, _, _, i32)| {
            let organization = OrganizationId::from_trusted(organization);
            ClaimedCustomer { organization, id, newest_card_at, asked, attempts: attempts.unsigned_abs() }
        };
        Ok(rows.into_iter().map(claimed).collect())
    }

    /// Writes down what a look found, to be looked at again after so many
    /// seconds, or at once if another look was asked for meanwhile. Returns
    /// whether there was a card before; none when the organization has another
    /// customer by now.
    pub async fn stripe_looked_in_tx(
        &self,
        tx: &mut Tx,
        claimed: &ClaimedCustomer,
        finding: &StripeFinding,
        again_seconds: u32,
    ) -> Result<Option<bool>> {
        let had: Option<bool> = sqlx::query_scalar(
            "select card_id is not null from stripe_customers
             where organization_id = $1 and customer_id = $2 for update",
        )
        .bind(claimed.organization.as_str())
        .bind(&claimed.id)
        .fetch_optional(&mut **tx)
        .await?;
        let (card, newest) = match finding {
            StripeFinding::There { card, newest_card_at } => (card.as_ref(), Some(*newest_card_at)),
            StripeFinding::Gone => (None, None),
        };
        sqlx::query(
            "update stripe_customers set card_id = $3, card_brand = $4, card_last4 = $5, card_month = $6,
                 card_year = $7, newest_card_at = coalesce($8, 0), attempts = 0,
                 customer_id = case when $8::bigint is not null then customer_id end,
                 number = case when $8::bigint is not null then number else number + 1 end,
                 due_at = case when asked = $9 then now() + make_interval(secs => $10) else now() end
             where organization_id = $1 and customer_id = $2",
        )
        .bind(claimed.organization.as_str())
        .bind(&claimed.id)
        .bind(card.map(|card| &card.id))
        .bind(card.map(|card| &card.brand))
        .bind(card.map(|card| &card.last4))
        .bind(card.map(|card| i64::from(card.expiry_month)))
        .bind(card.map(|card| i64::from(card.expiry_year)))
        .bind(newest)
        .bind(claimed.asked)
        .bind(f64::from(again_seconds))
        .execute(&mut **tx)
        .await?;
        Ok(had)
    }

    /// Has a customer looked at again after so many seconds, at the latest.
    pub async fn stripe_look_again(&self, claimed: &ClaimedCustomer, seconds: u32) -> Result<()> {
        sqlx::query(
            "update stripe_customers
             set due_at = case when asked = $2 then now() + make_interval(secs => $3) else now() end
             where organization_id = $1",
        )
        .bind(claimed.organization.as_str())
        .bind(claimed.asked)
        .bind(f64::from(seconds))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Organizations that are disabled for want of something to pay with, or for an invoice of Orb's.
    pub async fn organization_list_unpaid(&self) -> Result<Vec<OrganizationId>> {
        let ids: Vec<String> = sqlx::query_scalar(
            "select id from organizations o where deleted_at is null
                and (billing_status = 'no_payment_method' or billing_status = 'invoice_overdue'
                     and exists (select from orb_customers c where c.organization_id = o.id))
             order by id",
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ids.into_iter().map(OrganizationId::from_trusted).collect())
    }
}

async fn ask(tx: &mut Tx, news: &StripeNews) -> Result<()> {
    sqlx::query(
        "update stripe_customers set asked = asked + 1, attempts = 0, due_at = now()
         where customer_id = any($1) or card_id = $2",
    )
    .bind(&news.customers)
    .bind(&news.card)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
