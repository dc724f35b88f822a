//! What was bought at AWS Marketplace, by whom it was taken, and which organization is billed by it.

use chrono::{DateTime, Utc};
use coppice_core::marketplace::{Purchase, SubscriptionNews};
use coppice_core::{OrganizationId, UserId};
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// Removes arrivals that were too long ago: their customers have to come again.
const ARRIVALS: &str = "delete from marketplace_arrivals where expires_at <= now()";

/// Whether a subscription paid for an organization that is deleted, so that it may pay for another.
const IS_LEFT: &str = "(s.bound_at is not null
    and not exists (select from organizations o where o.id = s.organization_id and o.deleted_at is null))";

/// A subscription whose buyer's browser is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivedSubscription {
    /// What tells it apart from every other one.
    pub license: String,
    /// The account at AWS that pays.
    pub account: String,
    /// The user who has taken it, unless the organization it paid for is deleted.
    pub user: Option<UserId>,
    /// Whether it pays for an organization.
    pub is_bound: bool,
    /// Whether it is over.
    pub is_over: bool,
}

/// A subscription that is over, and has usage that AWS may not have been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedSubscription {
    /// What tells it apart.
    pub license: String,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// The organizations that it paid for, and from when on.
    pub paid_for: Vec<(OrganizationId, DateTime<Utc>)>,
}

#[derive(FromRow)]
struct ArrivedRow {
    license_id: String,
    account_id: String,
    user_id: Option<String>,
    is_bound: bool,
    is_over: bool,
}

impl Store {
    /// Keeps what was bought, and who shows `secret_hash` as its buyer's browser until a time.
    pub async fn subscription_arrive(
        &self,
        purchase: &Purchase,
        secret_hash: &str,
        expires_at: DateTime<Utc>,
    ) -> Result<()> {
        let mut tx = self.begin().await?;
        let Purchase { license_arn, account } = purchase;
        self.subscription_know_in_tx(&mut tx, [purchase.license(), license_arn, account]).await?;
        sqlx::query(ARRIVALS).execute(&mut *tx).await?;
        sqlx::query(
            "insert into marketplace_arrivals (secret_hash, license_id, expires_at) values ($1, $2, $3)",
        )
        .bind(secret_hash)
        .bind(purchase.license())
        .bind(expires_at)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Keeps that there is a subscription, unless that is known.
    async fn subscription_know_in_tx(
        &self,
        tx: &mut Tx,
        [license, license_arn, account]: [&str; 3],
    ) -> Result<()> {
        sqlx::query(
            "insert into marketplace_subscriptions (license_id, license_arn, account_id) values ($1, $2, $3)
             on conflict (license_id) do nothing",
        )
        .bind(license)
        .bind(license_arn)
        .bind(account)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// What the browser with that secret came with; none when it came too long ago.
    pub async fn subscription_arrived(&self, secret_hash: &str) -> Result<Option<ArrivedSubscription>> {
        let sql = format!(
            "select s.license_id, s.account_id, case when not {IS_LEFT} then s.user_id end as user_id,
                    s.bound_at is not null and not {IS_LEFT} as is_bound, s.ended_at is not null as is_over
             from marketplace_arrivals a join marketplace_subscriptions s using (license_id)
             where a.secret_hash = $1 and a.expires_at > now()"
        );
        let row: Option<ArrivedRow> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(secret_hash).fetch_optional(&self.pool).await?;
        Ok(row.map(|row| ArrivedSubscription {
            license: row.license_id,
            account: row.account_id,
            user: row.user_id.map(UserId::from_trusted),
            is_bound: row.is_bound,
            is_over: row.is_over,
        }))
    }

    /// Makes a subscription a user's; false when it is somebody else's, pays for something, or is over. One whose
    /// organization is deleted is free for whoever comes with it; what that used is charged by it all the same. False
    /// as well when the user's browser session with the hash `session` has ended.
    pub async fn subscription_take(&self, license: &str, user: &UserId, session: &str) -> Result<bool> {
        let mut tx = self.begin().await?;
        // The user first, as everywhere.
        if !self.browser_session_lives_in_tx(&mut tx, user, session).await? {
            return Ok(false);
        }
        // Before it is looked at, and alone: a statement that waits for a row sees the organization that this got
        // meanwhile as if it were not there.
        sqlx::query("select from marketplace_subscriptions where license_id = $1 for update")
            .bind(license)
            .execute(&mut *tx)
            .await?;
        let sql = format!(
            "select {IS_LEFT} from marketplace_subscriptions s
             where license_id = $1 and ended_at is null and ({IS_LEFT} or bound_at is null and coalesce(user_id, $2) = $2)"
        );
        let found: Option<bool> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(license)
            .bind(user.as_str())
            .fetch_optional(&mut *tx)
            .await?;
        let Some(is_left) = found else { return Ok(false) };
        if is_left {
            sqlx::query(
                "insert into marketplace_former (license_id, organization_id, billed_from)
                 select license_id, organization_id, billed_from from marketplace_subscriptions
                 where license_id = $1 and organization_id is not null",
            )
            .bind(license)
            .execute(&mut *tx)
            .await?;
        }
        sqlx::query(
            "update marketplace_subscriptions set user_id = $2, organization_id = null, billed_from = null, bound_at = null
             where license_id = $1",
        )
        .bind(license)
        .bind(user.as_str())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Whether a user has taken a subscription of that account, and whether it pays for something already.
    pub async fn subscription_taken(&self, user: &UserId, account: &str) -> Result<Option<bool>> {
        let found = sqlx::query_scalar(
            "select bool_and(bound_at is not null) from marketplace_subscriptions
             where user_id = $1 and account_id = $2 having count(*) > 0",
        )
        .bind(user.as_str())
        .bind(account)
        .fetch_optional(&self.pool)
        .await?;
        Ok(found)
    }

    /// Has an organization billed from an hour on by what its user has taken, if that pays for nothing yet: by
    /// `license`, or by whatever was taken first. The organization must be locked by the transaction.
    pub async fn subscription_bind_in_tx(
        &self,
        tx: &mut Tx,
        (user, license): (&UserId, Option<&str>),
        organization: &OrganizationId,
        from: DateTime<Utc>,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update marketplace_subscriptions set organization_id = $3, billed_from = $4, bound_at = now()
             where license_id = (
                     select license_id from marketplace_subscriptions
                     where user_id = $1 and ($2::text is null or license_id = $2) and bound_at is null and ended_at is null
                     order by created_at, license_id limit 1 for update)
               and not exists (select from marketplace_subscriptions
                               where organization_id = $3 and ended_at is null)",
        )
        .bind(user.as_str())
        .bind(license)
        .bind(organization.as_str())
        .bind(from)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// The organization that a subscription of that license and account pays for, or did.
    pub async fn subscription_organization(
        &self,
        license: &str,
        account: &str,
    ) -> Result<Option<OrganizationId>> {
        let found: Option<Option<String>> = sqlx::query_scalar(
            "select organization_id from marketplace_subscriptions where license_id = $1 and account_id = $2",
        )
        .bind(license)
        .bind(account)
        .fetch_optional(&self.pool)
        .await?;
        Ok(found.flatten().map(OrganizationId::from_trusted))
    }

    /// Writes down what AWS says of a subscription, unless it has said something later already; of two things of the
    /// same moment the end counts. False when nothing is otherwise. The organization must be locked by the transaction.
    /// An end is written down also where nobody has come with the subscription: what AWS gave its buyer is good for
    /// hours, and must not bring what pays no more.
    pub async fn subscription_told_in_tx(&self, tx: &mut Tx, news: &SubscriptionNews) -> Result<bool> {
        if news.is_end {
            let known = self.subscription_know_in_tx(tx, [&news.license, &news.license_arn, &news.account]);
            known.await?;
        }
        let done = sqlx::query(
            "update marketplace_subscriptions set told_at = $3,
                 ended_at = case when $4 then coalesce(ended_at, $3) end,
                 closed_at = case when $4 then closed_at end
             where license_id = $1 and account_id = $2
               and (told_at is null or told_at < $3 or told_at = $3 and $4 and ended_at is null)
               and ($4 or ended_at is null or organization_id is null
                    or not exists (select from marketplace_subscriptions other
                                   where other.organization_id = marketplace_subscriptions.organization_id
                                     and other.ended_at is null))",
        )
        .bind(&news.license)
        .bind(&news.account)
        .bind(news.at)
        .bind(news.is_end)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Subscriptions that ended before a time and whose last usage is still to be put into records.
    pub async fn subscription_list_ended(&self, before: DateTime<Utc>) -> Result<Vec<EndedSubscription>> {
        type Row = (String, DateTime<Utc>, Option<String>, Option<DateTime<Utc>>);
        let rows: Vec<Row> = sqlx::query_as(
            "select s.license_id, s.ended_at, p.organization_id, p.billed_from
             from marketplace_subscriptions s left join marketplace_paid p using (license_id)
             where s.ended_at < $1 and s.closed_at is null order by s.ended_at, s.license_id",
        )
        .bind(before)
        .fetch_all(&self.pool)
        .await?;
        let mut found = Vec::<EndedSubscription>::new();
        for (license, ended_at, organization, billed_from) in rows {
            if found.last().is_none_or(|last| last.license != license) {
                found.push(EndedSubscription { license, ended_at, paid_for: vec![] });
            }
            let paid_for = organization.map(OrganizationId::from_trusted).zip(billed_from);
            if let Some(last) = found.last_mut() {
                last.paid_for.extend(paid_for);
            }
        }
        Ok(found)
    }

    /// Whether an organization was ever billed through a marketplace that was asked.
    pub async fn subscription_exists(&self, organization: &OrganizationId) -> Result<bool> {
        let found =
            sqlx::query_scalar("select exists (select from marketplace_paid where organization_id = $1)")
                .bind(organization.as_str())
                .fetch_one(&self.pool)
                .await?;
        Ok(found)
    }

    /// Whether one bills it now.
    pub async fn subscription_is_active(&self, organization: &OrganizationId) -> Result<bool> {
        let found = sqlx::query_scalar(
            "select exists (select from marketplace_subscriptions where organization_id = $1 and ended_at is null)",
        )
        .bind(organization.as_str())
        .fetch_one(&self.pool)
        .await?;
        Ok(found)
    }
}
