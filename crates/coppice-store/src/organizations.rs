//! Organizations, users and who belongs to what.

use chrono::{DateTime, Utc};
use coppice_core::access::{Grant, Principal};
use coppice_core::organization::{BillingStatus, Organization, Role};
use coppice_core::{OrganizationId, ProjectId, UserId};
use sqlx::FromRow;

use crate::{Result, Store, StoreError, Tx};

/// What a caller is to an organization.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The organization.
    pub organization: Organization,
    /// The member's role; none for the organization's own key.
    pub role: Option<Role>,
    /// For a key limited to branches: whether the project that was asked about
    /// owns one of them. False when nothing was asked.
    pub owns_allowed_branch: bool,
}

#[derive(FromRow)]
struct MembershipRow {
    id: String,
    name: String,
    disabled_by_admin: bool,
    billing_status: String,
    created_at: DateTime<Utc>,
    role: Option<String>,
    owns_allowed_branch: bool,
}

impl Store {
    /// What the caller is to an organization, and whether `project` owns one of
    /// the branches its key is limited to; none when it is no member or there is
    /// no such organization. Served by primary keys.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn membership_find(
        &self,
        principal: &Principal,
        organization: &OrganizationId,
        grant: &Grant,
        project: Option<&ProjectId>,
    ) -> Result<Option<Membership>> {
        let (user, own) = match principal {
            Principal::User(id) => (Some(id.as_str()), None),
            Principal::Organization(id) => (None, Some(id.as_str())),
        };
        let row: Option<MembershipRow> = sqlx::query_as(
            "select o.id, o.name, o.disabled_by_admin, o.billing_status, o.created_at, m.role,
                    exists (select from branches b where b.project_id = $4 and b.id = any($5)
                            and b.deleted_at is null) as owns_allowed_branch
             from organizations o
             left join members m on m.organization_id = o.id and m.user_id = $2
             where o.id = $1 and o.deleted_at is null and (m.role is not null or o.id = $3)",
        )
        .bind(organization.as_str())
        .bind(user)
        .bind(own)
        .bind(project.map(ProjectId::as_str))
        .bind(grant.branch_limit().unwrap_or_default())
        .fetch_optional(&self.pool)
        .await?;
        row.map(Membership::try_from).transpose()
    }

    /// The installation's first user, if there is one yet.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn user_first(&self) -> Result<Option<UserId>> {
        let id: Option<String> = sqlx::query_scalar("select id from users order by created_at, id limit 1")
            .fetch_optional(&self.pool)
            .await?;
        Ok(id.map(UserId::from_trusted))
    }

    /// Inserts a user.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn user_insert_in_tx(&self, tx: &mut Tx, id: &UserId, email: &str) -> Result<()> {
        sqlx::query("insert into users (id, email) values ($1, $2)")
            .bind(id.as_str())
            .bind(email)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Inserts an organization with its owner.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_insert_in_tx(
        &self,
        tx: &mut Tx,
        id: &OrganizationId,
        name: &str,
        owner: &UserId,
    ) -> Result<()> {
        sqlx::query("insert into organizations (id, name) values ($1, $2)")
            .bind(id.as_str())
            .bind(name)
            .execute(&mut **tx)
            .await?;
        sqlx::query("insert into members (organization_id, user_id, role) values ($1, $2, 'owner')")
            .bind(id.as_str())
            .bind(owner.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Makes creations in one organization wait for each other, so that quotas
    /// are counted right, until the transaction ends.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn organization_lock_in_tx(&self, tx: &mut Tx, id: &OrganizationId) -> Result<()> {
        sqlx::query("select from organizations where id = $1 for no key update")
            .bind(id.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}

impl TryFrom<MembershipRow> for Membership {
    type Error = StoreError;

    fn try_from(row: MembershipRow) -> Result<Self> {
        let billing_status = match row.billing_status.as_str() {
            "ok" => BillingStatus::Ok,
            "no_payment_method" => BillingStatus::NoPaymentMethod,
            "invoice_overdue" => BillingStatus::InvoiceOverdue,
            "deletion_requested" => BillingStatus::DeletionRequested,
            _ => BillingStatus::Unknown,
        };
        let role = row
            .role
            .map(|text| Role::parse(&text).ok_or(StoreError::UnknownValue { what: "role", value: text }))
            .transpose()?;
        Ok(Self {
            organization: Organization {
                id: OrganizationId::from_trusted(row.id),
                name: row.name,
                disabled_by_admin: row.disabled_by_admin,
                billing_status,
                created_at: row.created_at,
            },
            role,
            owns_allowed_branch: row.owns_allowed_branch,
        })
    }
}
