//! Mail that is still to be sent.

use coppice_core::InvitationId;
use coppice_core::organization::Invitation;
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// A letter that somebody may try to send now.
#[derive(Clone, Debug)]
pub struct DueMail {
    /// Of the letter. One that was sent twice has one id.
    pub id: String,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// What it is about, with the name of the organization.
    pub invitation: Invitation,
    /// The secret of the invitation's link, sealed for its id.
    pub link_sealed: Vec<u8>,
    /// Name of the organization it is to.
    pub organization_name: String,
}

#[derive(FromRow)]
struct ClaimRow {
    id: String,
    attempts: i32,
    organization_id: String,
    invitation_id: String,
    organization_name: String,
}

impl Store {
    /// Has a letter about an invitation sent, in the place of an earlier one
    /// about it that is not sent yet.
    pub async fn mail_insert_in_tx(&self, tx: &mut Tx, id: &str, invitation: &InvitationId) -> Result<()> {
        sqlx::query(
            "insert into mails (id, invitation_id) values ($1, $2)
             on conflict (invitation_id) do update set id = excluded.id, attempts = 0, due_at = now()",
        )
        .bind(id)
        .bind(invitation.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Takes a letter that is due. Nobody else gets it for `lease_seconds`; if
    /// nothing is heard of it until then, it is due again. Served by index
    /// `mails_due`.
    pub async fn mail_claim(&self, lease_seconds: u32) -> Result<Option<DueMail>> {
        let claimed: Option<ClaimRow> = sqlx::query_as(
            "with due as (
                 update mails set attempts = attempts + 1, due_at = now() + make_interval(secs => $1)
                 where id = (select id from mails where due_at <= now() order by due_at limit 1
                             for update skip locked)
                 returning id, attempts, invitation_id)
             select due.id, due.attempts, i.organization_id, i.id as invitation_id,
                    o.name as organization_name
             from due join invitations i on i.id = due.invitation_id
             join organizations o on o.id = i.organization_id",
        )
        .bind(f64::from(lease_seconds))
        .fetch_optional(&self.pool)
        .await?;
        let Some(claimed) = claimed else { return Ok(None) };
        let organization = coppice_core::OrganizationId::from_trusted(claimed.organization_id);
        let id = InvitationId::from_trusted(claimed.invitation_id);
        // Withdrawn or accepted meanwhile: then the letter is gone as well.
        let Some(record) = self.invitation_find(&organization, &id).await? else { return Ok(None) };
        Ok(Some(DueMail {
            id: claimed.id,
            attempts: u32::try_from(claimed.attempts).unwrap_or(u32::MAX),
            invitation: record.invitation,
            link_sealed: record.link_sealed,
            organization_name: claimed.organization_name,
        }))
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
