//! Mail that is still to be sent.

use coppice_core::OrganizationId;
use coppice_core::mail::MailContent;
use coppice_core::organization::Holder;
use sqlx::FromRow;
use sqlx::types::Json;

use crate::holders::{Room, holder_turns};
use crate::{Result, Store, Tx};

/// A letter that somebody may try to send now.
#[derive(Clone, Debug)]
pub struct DueMail {
    /// Of the letter. One that was sent twice has one id.
    pub id: String,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// What it is about.
    pub content: MailContent,
}

#[derive(FromRow)]
struct ClaimRow {
    holder: String,
    id: String,
    attempts: i32,
    content: Json<MailContent>,
}

impl From<ClaimRow> for DueMail {
    fn from(row: ClaimRow) -> Self {
        let attempts = u32::try_from(row.attempts).unwrap_or(u32::MAX);
        Self { id: row.id, attempts, content: row.content.0 }
    }
}

impl Store {
    /// Has a letter sent, in the place of an earlier one about the same that is
    /// not sent yet.
    pub async fn mail_insert_in_tx(&self, tx: &mut Tx, id: &str, content: &MailContent) -> Result<()> {
        sqlx::query(
            "insert into mails (id, about, content) values ($1, $2, $3)
             on conflict (about) do update
                 set id = excluded.id, content = excluded.content, attempts = 0, due_at = now()",
        )
        .bind(id)
        .bind(content.about())
        .bind(Json(content))
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Takes letters that are due, by turns of the holders of the organizations that they are
    /// about, each with its holder. Nobody else gets them for `lease_seconds`; what nothing is heard
    /// of until then is due again. Served by index `mails_due`.
    pub async fn mail_claim(&self, room: Room, lease_seconds: u32) -> Result<Vec<(Holder, DueMail)>> {
        let next = holder_turns(
            "mail",
            "select id, due_at as since, content ->> 'organization' as organization_id, about as part
             from mails where due_at <= now()",
        );
        let sql = format!(
            "{next}
             update mails m set attempts = attempts + 1, due_at = now() + make_interval(secs => $4)
             from (select l.id, next.holder from next join mails l on l.id = next.id
                   where l.due_at <= now() for update of l skip locked) free
             where m.id = free.id returning free.holder, m.id, m.attempts, m.content"
        );
        let rows: Vec<ClaimRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(room.holders())
            .bind(i64::from(room.each))
            .bind(i64::from(room.count))
            .bind(f64::from(lease_seconds))
            .fetch_all(&self.pool)
            .await?;
        self.holder_turn_note("mail", rows.iter().map(|row| row.holder.as_str())).await;
        Ok(rows.into_iter().map(|row| (Holder::from_trusted(&row.holder), row.into())).collect())
    }

    /// The seconds until an address may get another letter about an organization, if it got `max` about
    /// organizations of the same holder within the last day. Served by index `letters_sent_address`.
    pub async fn letter_wait(
        &self,
        address: &str,
        organization: &OrganizationId,
        max: u32,
    ) -> Result<Option<u32>> {
        let wait: Option<f64> = sqlx::query_scalar(
            "select extract(epoch from sent_at + interval '1 day' - now())::float8 from letters_sent
             where address = lower($1) and holder = holder_of($2) and sent_at > now() - interval '1 day'
             order by sent_at desc offset greatest($3 - 1, 0) limit 1",
        )
        .bind(address)
        .bind(organization.as_str())
        .bind(i64::from(max))
        .fetch_optional(&self.pool)
        .await?;
        Ok(wait.map(|wait| wait.ceil().max(1.0) as u32))
    }

    /// Records a letter that is about to be sent. Those of the day before are forgotten.
    pub async fn letter_note(&self, address: &str, organization: &OrganizationId) -> Result<()> {
        sqlx::query(
            "with forgotten as (delete from letters_sent where sent_at < now() - interval '1 day')
             insert into letters_sent (address, holder) values (lower($1), holder_of($2))",
        )
        .bind(address)
        .bind(organization.as_str())
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Puts a letter off that was not tried.
    pub async fn mail_put_off(&self, id: &str, seconds: u32) -> Result<()> {
        sqlx::query(
            "update mails set due_at = now() + make_interval(secs => $2), attempts = attempts - 1 where id = $1",
        )
        .bind(id)
        .bind(f64::from(seconds))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Forgets a letter: it was sent, or never will be.
    pub async fn mail_delete(&self, id: &str) -> Result<()> {
        sqlx::query("delete from mails where id = $1").bind(id).execute(&self.pool).await?;
        Ok(())
    }

    /// Has a letter tried again after a while.
    pub async fn mail_postpone(&self, id: &str, seconds: u32) -> Result<()> {
        sqlx::query("update mails set due_at = now() + make_interval(secs => $2) where id = $1")
            .bind(id)
            .bind(f64::from(seconds))
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
