//! Invoices, and where they go.

use chrono::{DateTime, NaiveDate, Utc};
use coppice_core::invoice::InvoiceContent;
use coppice_core::{InvoiceId, OrganizationId};
use sqlx::FromRow;
use sqlx::types::Json;

use crate::{Result, Store, Tx};

/// What was asked for a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoice {
    /// Its id.
    pub id: InvoiceId,
    /// The place in the operator's books: one after the other.
    pub number: u64,
    /// When it was made.
    pub issued_at: DateTime<Utc>,
    /// The first day of its month.
    pub month: NaiveDate,
    /// What it says.
    pub content: InvoiceContent,
}

/// An organization without an invoice of a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingInvoice {
    /// The organization.
    pub organization: OrganizationId,
    /// What it is called, as far as anybody knows.
    pub name: String,
    /// Whether it was there in that month, and is not billed at a marketplace at its end.
    pub was_there: bool,
}

#[derive(FromRow)]
struct Row {
    id: String,
    number: i64,
    issued_at: DateTime<Utc>,
    month: NaiveDate,
    content: Json<InvoiceContent>,
}

impl From<Row> for Invoice {
    fn from(row: Row) -> Self {
        Self {
            id: InvoiceId::from_trusted(row.id),
            number: row.number.unsigned_abs(),
            issued_at: row.issued_at,
            month: row.month,
            content: row.content.0,
        }
    }
}

const COLUMNS: &str = "id, number, issued_at, month, content";

impl Store {
    /// The oldest month that is not invoiced yet, when all its hours are sealed.
    pub async fn invoice_month_due(&self) -> Result<Option<NaiveDate>> {
        let query = sqlx::query_scalar(
            "select p.month from invoice_progress p, usage_meter m
             where (p.month + interval '1 month') at time zone 'UTC' <= m.sealed_until",
        );
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// Organizations that are or were, and have no invoice of a month yet.
    pub async fn invoice_missing(&self, month: NaiveDate) -> Result<Vec<MissingInvoice>> {
        let rows: Vec<(String, String, bool)> = sqlx::query_as(
            "select k.id, coalesce(o.name, k.id),
                    coalesce(o.created_at < ($1 + interval '1 month') at time zone 'UTC'
                             and (o.deleted_at is null or o.deleted_at >= $1::timestamp at time zone 'UTC'), false)
                    and not is_billed_at_aws(k.id, ($1 + interval '1 month - 1 hour') at time zone 'UTC')
             from (select id from organizations union select organization_id from usage_branches) k (id)
             left join organizations o on o.id = k.id
             where not exists (select from invoices i where i.organization_id = k.id and i.month = $1)
             order by 1",
        )
        .bind(month)
        .fetch_all(&self.pool)
        .await?;
        let missing = |(id, name, was_there): (String, _, _)| MissingInvoice {
            organization: OrganizationId::from_trusted(id),
            name,
            was_there,
        };
        Ok(rows.into_iter().map(missing).collect())
    }

    /// Makes an invoice with the next number, unless the organization has one of
    /// the month, or the month is done with; false then.
    pub async fn invoice_insert(
        &self,
        id: &InvoiceId,
        organization: &OrganizationId,
        month: NaiveDate,
        content: &InvoiceContent,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        let current: NaiveDate =
            sqlx::query_scalar("select month from invoice_progress for update").fetch_one(&mut *tx).await?;
        if current != month {
            return Ok(false);
        }
        let done = sqlx::query(
            "insert into invoices (id, number, organization_id, month, total, content)
             select $1, coalesce(max(number), 0) + 1, $2, $3, $4::numeric, $5 from invoices
             having not exists (select from invoices where organization_id = $2 and month = $3)",
        )
        .bind(id.as_str())
        .bind(organization.as_str())
        .bind(month)
        .bind(&content.total)
        .bind(Json(content))
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Says that every organization has its invoice of a month.
    pub async fn invoice_month_done(&self, month: NaiveDate) -> Result<()> {
        sqlx::query(
            "update invoice_progress set month = (month + interval '1 month')::date where month = $1",
        )
        .bind(month)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Invoices of an organization, the newest first, after `after`.
    pub async fn invoice_list(
        &self,
        organization: &OrganizationId,
        after: Option<u64>,
        count_max: u32,
    ) -> Result<Vec<Invoice>> {
        let sql = format!(
            "select {COLUMNS} from invoices
             where organization_id = $1 and ($2::bigint is null or number < $2)
             order by number desc limit $3"
        );
        let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .bind(after.map(|number| i64::try_from(number).unwrap_or(i64::MAX)))
            .bind(i64::from(count_max))
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(Invoice::from).collect())
    }

    /// An invoice of an organization.
    pub async fn invoice_find(
        &self,
        organization: &OrganizationId,
        id: &InvoiceId,
    ) -> Result<Option<Invoice>> {
        let sql = format!("select {COLUMNS} from invoices where organization_id = $1 and id = $2");
        let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .bind(id.as_str())
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(Invoice::from))
    }

    /// Where invoices of an organization go: to its owner, if it said nothing
    /// else; empty when there is none any more.
    pub async fn billing_email(&self, organization: &OrganizationId) -> Result<String> {
        let email: Option<String> = sqlx::query_scalar(
            "select coalesce((select billing_email from billing_customers where organization_id = $1),
                             (select u.email from members m join users u on u.id = m.user_id
                              where m.organization_id = $1 and m.role = 'owner'))",
        )
        .bind(organization.as_str())
        .fetch_one(&self.pool)
        .await?;
        Ok(email.unwrap_or_default())
    }

    /// Says where they go, in an organization that the transaction has locked. Returns what was said before, if anything
    /// was.
    pub async fn billing_set_email_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        email: &str,
    ) -> Result<Option<String>> {
        let before = sqlx::query_scalar(
            "with said as (select billing_email from billing_customers where organization_id = $1)
             insert into billing_customers (organization_id, billing_email) values ($1, $2)
             on conflict (organization_id) do update set billing_email = excluded.billing_email
             returning (select billing_email from said)",
        )
        .bind(organization.as_str())
        .bind(email)
        .fetch_one(&mut **tx)
        .await?;
        Ok(before)
    }

    /// Takes back what was said of where they go, in an organization that the transaction has locked: it is as it was
    /// `before`, if nothing else was said meanwhile.
    pub async fn billing_take_back_email_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        email: &str,
        before: Option<&str>,
    ) -> Result<()> {
        // Orb is told of a row that is updated, so one that goes is, too.
        sqlx::query(
            "update billing_customers set billing_email = coalesce($3, billing_email)
             where organization_id = $1 and billing_email = $2",
        )
        .bind(organization.as_str())
        .bind(email)
        .bind(before)
        .execute(&mut **tx)
        .await?;
        if before.is_none() {
            sqlx::query("delete from billing_customers where organization_id = $1 and billing_email = $2")
                .bind(organization.as_str())
                .bind(email)
                .execute(&mut **tx)
                .await?;
        }
        Ok(())
    }
}
