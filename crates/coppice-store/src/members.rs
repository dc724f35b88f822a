//! Members of organizations, and how often an organization changes who it is.

use chrono::{DateTime, Utc};
use coppice_core::organization::{Member, Role};
use coppice_core::vercel::VERCEL_ADDRESSES;
use coppice_core::{OrganizationId, UserId};
use sqlx::FromRow;

use crate::{Result, Store, StoreError, Tx};

#[derive(FromRow)]
struct MemberRow {
    id: String,
    email: String,
    name: String,
    role: String,
    joined_at: DateTime<Utc>,
}

impl TryFrom<MemberRow> for Member {
    type Error = StoreError;

    fn try_from(row: MemberRow) -> Result<Self> {
        Ok(Self {
            id: UserId::from_trusted(row.id),
            email: row.email,
            name: row.name,
            role: role_from(row.role)?,
            joined_at: row.joined_at,
        })
    }
}

/// Reads a role.
pub(crate) fn role_from(text: String) -> Result<Role> {
    Role::parse(&text).ok_or(StoreError::UnknownValue { what: "role", value: text })
}

/// What an organization may do only so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrganizationChange {
    /// An invitation was made or sent again.
    Invitation,
    /// A member was removed or given another role.
    Member,
}

impl OrganizationChange {
    fn as_str(self) -> &'static str {
        match self {
            Self::Invitation => "invitation",
            Self::Member => "member",
        }
    }
}

impl Store {
    /// The role that a person has in each organization. Served by index `members_user`.
    pub async fn member_roles(&self, user: &UserId) -> Result<Vec<(OrganizationId, Role)>> {
        let query = sqlx::query("select organization_id, role from members where user_id = $1");
        let rows: Vec<(String, String)> = self.reads.all(query.bind(user.as_str())).await?;
        rows.into_iter()
            .map(|(organization, role)| Ok((OrganizationId::from_trusted(organization), role_from(role)?)))
            .collect()
    }

    /// Members of an organization, who joined first comes first.
    pub async fn member_list(&self, organization: &OrganizationId) -> Result<Vec<Member>> {
        let query = sqlx::query(
            "select u.id, u.email, u.name, m.role, m.joined_at from members m join users u on u.id = m.user_id
             where m.organization_id = $1 order by m.joined_at, u.id",
        )
        .bind(organization.as_str());
        let rows: Vec<MemberRow> = self.reads.all(query).await?;
        rows.into_iter().map(Member::try_from).collect()
    }

    /// The role of a member; none for others. The row can't change until the
    /// transaction ends.
    pub async fn member_role_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        user: &UserId,
    ) -> Result<Option<Role>> {
        let role: Option<String> = sqlx::query_scalar(
            "select role from members where organization_id = $1 and user_id = $2 for update",
        )
        .bind(organization.as_str())
        .bind(user.as_str())
        .fetch_optional(&mut **tx)
        .await?;
        role.map(role_from).transpose()
    }

    /// Members who may change the organization.
    pub async fn member_list_admins_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
    ) -> Result<Vec<UserId>> {
        let ids: Vec<String> = sqlx::query_scalar(
            "select user_id from members where organization_id = $1 and role in ('owner', 'admin') order by 1",
        )
        .bind(organization.as_str())
        .fetch_all(&mut **tx)
        .await?;
        Ok(ids.into_iter().map(UserId::from_trusted).collect())
    }

    /// Where letters to a member go who may change the organization; none when
    /// they may not, are disabled, or came from Vercel.
    pub async fn member_admin_address(
        &self,
        organization: &OrganizationId,
        user: &UserId,
    ) -> Result<Option<String>> {
        let query = sqlx::query_scalar(
            "select u.email from members m join users u on u.id = m.user_id and not u.disabled
             where m.organization_id = $1 and m.user_id = $2 and m.role in ('owner', 'admin')
               and right(u.email, length($3)) <> $3",
        );
        let query = query.bind(organization.as_str()).bind(user.as_str()).bind(VERCEL_ADDRESSES);
        Ok(query.fetch_optional(&self.pool).await?)
    }

    /// How many members an organization has.
    pub async fn member_count_in_tx(&self, tx: &mut Tx, organization: &OrganizationId) -> Result<u32> {
        let count: i64 = sqlx::query_scalar("select count(*) from members where organization_id = $1")
            .bind(organization.as_str())
            .fetch_one(&mut **tx)
            .await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Makes a user a member. To be called when they are none.
    pub async fn member_insert_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        user: &UserId,
        role: Role,
    ) -> Result<()> {
        sqlx::query("insert into members (organization_id, user_id, role) values ($1, $2, $3)")
            .bind(organization.as_str())
            .bind(user.as_str())
            .bind(role.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Gives a member another role.
    pub async fn member_set_role_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        user: &UserId,
        role: Role,
    ) -> Result<()> {
        sqlx::query("update members set role = $3 where organization_id = $1 and user_id = $2")
            .bind(organization.as_str())
            .bind(user.as_str())
            .bind(role.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Removes a member.
    pub async fn member_delete_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        user: &UserId,
    ) -> Result<()> {
        sqlx::query("delete from members where organization_id = $1 and user_id = $2")
            .bind(organization.as_str())
            .bind(user.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Counts a change, unless there were `max` of its kind within the last
    /// hour: then the seconds until the next one may come are returned. The
    /// organization must be locked by the transaction. Served by index
    /// `organization_changes_time`.
    pub async fn organization_change_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        change: OrganizationChange,
        max: u32,
    ) -> Result<Option<u32>> {
        sqlx::query(
            "delete from organization_changes
             where organization_id = $1 and kind = $2 and changed_at < now() - interval '1 hour'",
        )
        .bind(organization.as_str())
        .bind(change.as_str())
        .execute(&mut **tx)
        .await?;
        // The one whose end makes room: the `max`th from the newest.
        let wait: Option<f64> = sqlx::query_scalar(
            "select extract(epoch from changed_at + interval '1 hour' - now())::float8
             from organization_changes where organization_id = $1 and kind = $2
             order by changed_at desc offset greatest($3 - 1, 0) limit 1",
        )
        .bind(organization.as_str())
        .bind(change.as_str())
        .bind(i64::from(max))
        .fetch_optional(&mut **tx)
        .await?;
        if let Some(wait) = wait {
            return Ok(Some(wait.ceil().max(1.0) as u32));
        }
        sqlx::query("insert into organization_changes (organization_id, kind) values ($1, $2)")
            .bind(organization.as_str())
            .bind(change.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(None)
    }
}
