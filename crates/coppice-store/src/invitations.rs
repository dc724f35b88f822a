//! Invitations to organizations.

use chrono::{DateTime, Utc};
use coppice_core::organization::{Invitation, Role};
use coppice_core::{InvitationId, OrganizationId};
use sqlx::FromRow;

use crate::members::role_from;
use crate::{Result, Store, StoreError, Tx};

const COLUMNS: &str = "i.id, i.organization_id, i.email, i.first_name, i.last_name, i.role, i.created_at, \
    i.expires_at, i.expires_at > now() as is_pending, i.link_sealed, \
    exists (select from users u where lower(u.email) = i.email and not u.email_verified) as has_unverified_account";

/// An invitation with what its link is made of.
#[derive(Clone, Debug)]
pub struct InvitationRecord {
    /// The invitation.
    pub invitation: Invitation,
    /// The secret of its link, sealed for its id.
    pub link_sealed: Vec<u8>,
}

/// An invitation to be inserted.
#[derive(Clone, Copy, Debug)]
pub struct NewInvitation<'a> {
    /// Its id.
    pub id: &'a InvitationId,
    /// Where to.
    pub organization: &'a OrganizationId,
    /// Who, in lower case.
    pub email: &'a str,
    /// What they may do then.
    pub role: Role,
    /// Keyed hash of its link's secret.
    pub link_hash: &'a str,
    /// The secret, sealed for its id.
    pub link_sealed: &'a [u8],
    /// Days until it has expired.
    pub days: u32,
}

/// Which invitations to list; what is absent does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvitationFilter {
    /// Pending ones, or expired ones.
    pub is_pending: Option<bool>,
    /// For this address, without regard to case.
    pub email: Option<String>,
    /// For somebody whose first name contains this, without regard to case.
    pub first_name: Option<String>,
    /// For somebody whose last name contains this, without regard to case.
    pub last_name: Option<String>,
    /// For somebody whose address or name contains this, without regard to case.
    pub search: Option<String>,
}

#[derive(FromRow)]
struct InvitationRow {
    id: String,
    organization_id: String,
    email: String,
    first_name: Option<String>,
    last_name: Option<String>,
    role: String,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    is_pending: bool,
    has_unverified_account: bool,
    link_sealed: Vec<u8>,
}

impl TryFrom<InvitationRow> for InvitationRecord {
    type Error = StoreError;

    fn try_from(row: InvitationRow) -> Result<Self> {
        let invitation = Invitation {
            id: InvitationId::from_trusted(row.id),
            organization: OrganizationId::from_trusted(row.organization_id),
            email: row.email,
            first_name: row.first_name,
            last_name: row.last_name,
            role: role_from(row.role)?,
            created_at: row.created_at,
            expires_at: row.expires_at,
            is_pending: row.is_pending,
            has_unverified_account: row.has_unverified_account,
        };
        Ok(Self { invitation, link_sealed: row.link_sealed })
    }
}

impl Store {
    /// Invitations of an organization, the newest first. Served by index
    /// `invitations_organization`.
    pub async fn invitation_list(
        &self,
        organization: &OrganizationId,
        filter: &InvitationFilter,
        offset: u32,
        count_max: u32,
    ) -> Result<Vec<InvitationRecord>> {
        let sql = format!(
            "select {COLUMNS} from invitations i
             where i.organization_id = $1
               and ($2::boolean is null or (i.expires_at > now()) = $2)
               and ($3::text is null or i.email = lower($3))
               and ($4::text is null or strpos(lower(i.first_name), lower($4)) > 0)
               and ($5::text is null or strpos(lower(i.last_name), lower($5)) > 0)
               and ($6::text is null or strpos(lower(concat_ws(' ', i.email, i.first_name, i.last_name)), lower($6)) > 0)
             order by i.created_at desc, i.id offset $7 limit $8"
        );
        let rows: Vec<InvitationRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .bind(filter.is_pending)
            .bind(&filter.email)
            .bind(&filter.first_name)
            .bind(&filter.last_name)
            .bind(&filter.search)
            .bind(i64::from(offset))
            .bind(i64::from(count_max))
            .fetch_all(&self.pool)
            .await?;
        rows.into_iter().map(InvitationRecord::try_from).collect()
    }

    /// One invitation of an organization.
    pub async fn invitation_find(
        &self,
        organization: &OrganizationId,
        id: &InvitationId,
    ) -> Result<Option<InvitationRecord>> {
        let sql = format!("select {COLUMNS} from invitations i where i.organization_id = $1 and i.id = $2");
        let row: Option<InvitationRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(organization.as_str())
            .bind(id.as_str())
            .fetch_optional(&self.pool)
            .await?;
        row.map(InvitationRecord::try_from).transpose()
    }

    /// The invitation with this link, and its organization's name. Served by
    /// index `invitations_link_hash_key`.
    pub async fn invitation_find_by_link(&self, link_hash: &str) -> Result<Option<(Invitation, String)>> {
        #[derive(FromRow)]
        struct WithName {
            organization_name: String,
            #[sqlx(flatten)]
            row: InvitationRow,
        }
        let sql = format!(
            "select {COLUMNS}, o.name as organization_name
             from invitations i join organizations o on o.id = i.organization_id
             where i.link_hash = $1 and o.deleted_at is null"
        );
        let found: Option<WithName> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(link_hash).fetch_optional(&self.pool).await?;
        let Some(found) = found else { return Ok(None) };
        Ok(Some((InvitationRecord::try_from(found.row)?.invitation, found.organization_name)))
    }

    /// How many invitations of an organization are pending.
    pub async fn invitation_count_pending_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
    ) -> Result<u32> {
        let count: i64 = sqlx::query_scalar(
            "select count(*) from invitations where organization_id = $1 and expires_at > now()",
        )
        .bind(organization.as_str())
        .fetch_one(&mut **tx)
        .await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Whether an address belongs to a member, or to a pending invitation.
    pub async fn invitation_conflicts_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        email: &str,
    ) -> Result<bool> {
        let conflicts = sqlx::query_scalar(
            "select exists (select from invitations
                            where organization_id = $1 and email = $2 and expires_at > now())
                 or exists (select from members m join users u on u.id = m.user_id
                            where m.organization_id = $1 and lower(u.email) = $2)",
        );
        Ok(conflicts.bind(organization.as_str()).bind(email).fetch_one(&mut **tx).await?)
    }

    /// Inserts an invitation in the place of an expired one for the same
    /// address, and returns it.
    pub async fn invitation_insert_in_tx(
        &self,
        tx: &mut Tx,
        new: &NewInvitation<'_>,
    ) -> Result<InvitationRecord> {
        sqlx::query(
            "delete from invitations where organization_id = $1 and email = $2 and expires_at <= now()",
        )
        .bind(new.organization.as_str())
        .bind(new.email)
        .execute(&mut **tx)
        .await?;
        let sql = format!(
            "insert into invitations as i (id, organization_id, email, role, link_hash, link_sealed, expires_at)
             values ($1, $2, $3, $4, $5, $6, now() + make_interval(days => $7)) returning {COLUMNS}"
        );
        let row: InvitationRow = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(new.id.as_str())
            .bind(new.organization.as_str())
            .bind(new.email)
            .bind(new.role.as_str())
            .bind(new.link_hash)
            .bind(new.link_sealed)
            .bind(i32::try_from(new.days).unwrap_or(i32::MAX))
            .fetch_one(&mut **tx)
            .await?;
        row.try_into()
    }

    /// Whether an invitation is pending; none when there is none. It can't
    /// change until the transaction ends.
    pub async fn invitation_lock_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        id: &InvitationId,
    ) -> Result<Option<bool>> {
        Ok(sqlx::query_scalar(
            "select expires_at > now() from invitations where organization_id = $1 and id = $2 for update",
        )
        .bind(organization.as_str())
        .bind(id.as_str())
        .fetch_optional(&mut **tx)
        .await?)
    }

    /// Gives an invitation another link and `days` more from now.
    pub async fn invitation_renew_in_tx(
        &self,
        tx: &mut Tx,
        id: &InvitationId,
        link_hash: &str,
        link_sealed: &[u8],
        days: u32,
    ) -> Result<()> {
        sqlx::query(
            // Counted from now, not from when the transaction began: it may have waited for another one.
            "update invitations set link_hash = $2, link_sealed = $3,
                    expires_at = clock_timestamp() + make_interval(days => $4) where id = $1",
        )
        .bind(id.as_str())
        .bind(link_hash)
        .bind(link_sealed)
        .bind(i32::try_from(days).unwrap_or(i32::MAX))
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Deletes an invitation; false when there was none.
    pub async fn invitation_delete(&self, organization: &OrganizationId, id: &InvitationId) -> Result<bool> {
        let done = sqlx::query("delete from invitations where organization_id = $1 and id = $2")
            .bind(organization.as_str())
            .bind(id.as_str())
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Takes away the invitation with this link, because it is accepted; none
    /// when there is no such invitation any more.
    pub async fn invitation_take_in_tx(&self, tx: &mut Tx, link_hash: &str) -> Result<Option<Invitation>> {
        let sql = format!("delete from invitations i where i.link_hash = $1 returning {COLUMNS}");
        let row: Option<InvitationRow> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(link_hash).fetch_optional(&mut **tx).await?;
        Ok(row.map(InvitationRecord::try_from).transpose()?.map(|record| record.invitation))
    }
}
