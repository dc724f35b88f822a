//! Who calls: a key, who it acts as, and what that is to an organization, in
//! one statement, because every request begins with it.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::access::{Caller, CredentialId, Grant, Principal};
use coppice_core::authentication::Methods;
use coppice_core::key_limits::Standing;
use coppice_core::organization::{Holder, Organization, Role};
use coppice_core::target::AnyTarget;
use coppice_core::{ApiKeyId, BranchId, OrganizationId, ProjectId, SessionId, UserId};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};

use crate::logins::database_role_from;
use crate::members::role_from;
use crate::organizations::organization_from;
use crate::{Result, Store, StoreError};

/// What a caller is to an organization.
#[derive(Clone, Debug)]
pub struct Membership {
    /// The organization.
    pub organization: Organization,
    /// The member's role; none for the organization's own key.
    pub role: Option<Role>,
    /// What is known of a key and what was asked about.
    pub standing: Standing,
    /// Whether the caller signed in with a second factor; for a key of a
    /// person, whether whoever made it had. True for the organization's own key.
    pub has_second_factor: bool,
}

/// A session that goes on.
#[derive(Clone, Debug)]
pub struct LivingSession {
    /// Who answers for what its user does.
    pub holder: Holder,
    /// When it ends in any case.
    pub expires_at: DateTime<Utc>,
    /// See [`crate::NewSession::is_stale`].
    pub is_stale: bool,
    /// What its user is to the organization that was asked about.
    pub membership: Option<Membership>,
}

/// A browser session that goes on.
#[derive(Clone, Debug)]
pub struct LivingBrowser {
    /// Who is signed in there.
    pub user: UserId,
    /// Who answers for what they do.
    pub holder: Holder,
    /// When that was last seen to be used.
    pub last_seen_at: DateTime<Utc>,
    /// When they were asked who they are; none when a provider knew them from earlier.
    pub asked_at: Option<DateTime<Utc>>,
    /// What they are to the organization that was asked about.
    pub membership: Option<Membership>,
}

/// A key that was found.
#[derive(Clone, Debug)]
pub struct CredentialMatch {
    /// Who calls, with what.
    pub caller: Caller,
    /// Who answers for what the caller does.
    pub holder: Holder,
    /// Who owns the organization whose key it is.
    pub owner: Option<UserId>,
    /// Whether the user behind a user key is disabled.
    pub is_user_disabled: bool,
    /// What the caller is to the organization that was asked about; none when
    /// it is no member, there is no such organization, or none was asked about.
    pub membership: Option<Membership>,
}

#[derive(FromRow)]
struct KeyRow {
    key_id: String,
    user_id: Option<String>,
    key_organization: Option<String>,
    holder: String,
    owner_id: Option<String>,
    scopes: Vec<String>,
    projects: Vec<String>,
    branches: Vec<String>,
    own_branches: bool,
    branches_max: Option<i32>,
    database_role: Option<String>,
    expiry: Option<DateTime<Utc>>,
    disabled: bool,
}

impl Store {
    /// Finds a key by its hash (index `api_keys_hash_key`), with what its
    /// caller is to `target`. Served by primary keys.
    pub async fn credential_find(
        &self,
        hash: &str,
        target: Option<&AnyTarget>,
    ) -> Result<Option<CredentialMatch>> {
        let query = sqlx::query(
            "select k.id as key_id, k.user_id, k.organization_id as key_organization,
                    coalesce(u.holder, holder_of(k.organization_id)) as holder,
                    (select user_id from members where organization_id = k.organization_id and role = 'owner') as owner_id,
                    k.scopes, k.projects, k.branches, k.own_branches, k.branches_max, k.database_role, k.expiry,
                    coalesce(u.disabled, false) as disabled, o.id, o.name,
                    o.disabled_by_admin, o.billing_status, o.usage_tier, o.admin_reason, o.billing_reason,
                    o.requires_second_factor, o.last_updated, o.created_at, m.role,
                    k.user_id is null or k.with_second_factor as has_second_factor,
                    exists (select from branches b where b.project_id = $3 and b.id = any(k.branches)
                            and b.deleted_at is null) as owns_allowed_branch,
                    exists (select from branches b where b.id = $4 and b.project_id = $3
                            and b.made_with = k.id) as made_branch
             from api_keys k
             left join users u on u.id = k.user_id
             left join organizations own on own.id = k.organization_id
             left join members m on m.organization_id = $2 and m.user_id = k.user_id
             left join organizations o on o.id = $2 and o.deleted_at is null
                  and (m.role is not null or o.id = k.organization_id)
             where k.hash = $1 and own.deleted_at is null",
        )
        .bind(hash)
        .bind(target.map(|target| target.organization.as_str()))
        .bind(target.and_then(|target| target.project.as_ref()).map(ProjectId::as_str))
        .bind(target.and_then(|target| target.branch.as_ref()).map(BranchId::as_str));
        self.reads.row(query).await?.map(|row| credential_from(&row)).transpose()
    }

    /// A session with what its user is to `organization`; none when the session
    /// has ended, is not theirs, or they are disabled. Served by primary keys.
    pub async fn session_living(
        &self,
        session: &SessionId,
        user: &UserId,
        organization: Option<&OrganizationId>,
    ) -> Result<Option<LivingSession>> {
        let query = sqlx::query(
            "select o.id, o.name, o.disabled_by_admin, o.billing_status, o.usage_tier, o.admin_reason,
                    o.billing_reason, o.requires_second_factor, o.last_updated, o.created_at, m.role,
                    $4 = any(s.methods) as has_second_factor, false as owns_allowed_branch, false as made_branch,
                    s.expires_at, s.is_stale, u.holder
             from sessions s
             join users u on u.id = s.user_id and not u.disabled
             left join members m on m.organization_id = $3 and m.user_id = u.id
             left join organizations o on o.id = $3 and o.deleted_at is null and m.role is not null
             where s.id = $1 and s.user_id = $2 and s.expires_at > now()",
        )
        .bind(session.as_str())
        .bind(user.as_str())
        .bind(organization.map(OrganizationId::as_str))
        .bind(Methods::SECOND_FACTOR);
        let Some(row) = self.reads.row(query).await? else { return Ok(None) };
        let membership = member_from(&row)?;
        let holder = Holder::from_trusted(row.try_get::<String, _>("holder")?);
        let (expires_at, is_stale) = (row.try_get("expires_at")?, row.try_get("is_stale")?);
        Ok(Some(LivingSession { holder, expires_at, is_stale, membership }))
    }

    /// A browser session with what its user is to `organization`; none when it
    /// has ended, was not used for `idle`, or they are disabled. Being looked
    /// for is no use. Served by primary keys.
    pub async fn browser_session_living(
        &self,
        id_hash: &str,
        idle: TimeDelta,
        organization: Option<&OrganizationId>,
    ) -> Result<Option<LivingBrowser>> {
        let query = sqlx::query(
            "select o.id, o.name, o.disabled_by_admin, o.billing_status, o.usage_tier, o.admin_reason,
                    o.billing_reason, o.requires_second_factor, o.last_updated, o.created_at, m.role,
                    $4 = any(b.methods) as has_second_factor, false as owns_allowed_branch,
                    false as made_branch, b.user_id, u.holder,
                    b.last_seen_at, case when b.was_asked then b.signed_in_at end as asked_at
             from browser_sessions b
             join users u on u.id = b.user_id and not u.disabled
             left join members m on m.organization_id = $3 and m.user_id = u.id
             left join organizations o on o.id = $3 and o.deleted_at is null and m.role is not null
             where b.id_hash = $1 and b.expires_at > now()
               and b.last_seen_at > now() - make_interval(secs => $2)",
        )
        .bind(id_hash)
        .bind(idle.num_seconds() as f64)
        .bind(organization.map(OrganizationId::as_str))
        .bind(Methods::SECOND_FACTOR);
        let Some(row) = self.reads.row(query).await? else { return Ok(None) };
        let user = UserId::from_trusted(row.try_get::<String, _>("user_id")?);
        let holder = Holder::from_trusted(row.try_get::<String, _>("holder")?);
        let membership = member_from(&row)?;
        let (last_seen_at, asked_at) = (row.try_get("last_seen_at")?, row.try_get("asked_at")?);
        Ok(Some(LivingBrowser { user, holder, last_seen_at, asked_at, membership }))
    }
}

fn credential_from(row: &PgRow) -> Result<CredentialMatch> {
    let key = KeyRow::from_row(row)?;
    let holder = Holder::from_trusted(key.holder);
    let principal = match (key.user_id, key.key_organization) {
        (Some(user), _) => Principal::User(UserId::from_trusted(user)),
        (None, Some(organization)) => Principal::Organization(OrganizationId::from_trusted(organization)),
        (None, None) => return Err(StoreError::UnknownValue { what: "owner of a key", value: key.key_id }),
    };
    let grant = Grant {
        scopes: key.scopes,
        projects: key.projects,
        branches: key.branches,
        own_branches: key.own_branches,
        branches_max: key.branches_max.map(i32::unsigned_abs),
        database_role: key.database_role.map(database_role_from).transpose()?,
    };
    let credential = CredentialId::Key(ApiKeyId::from_trusted(key.key_id));
    let caller = Caller { principal, credential, grant, expiry: key.expiry, is_stale: false };
    let membership = member_from(row)?;
    let owner = key.owner_id.map(UserId::from_trusted);
    Ok(CredentialMatch { caller, holder, owner, is_user_disabled: key.disabled, membership })
}

/// The membership in a row; none for a caller who is no member.
fn member_from(row: &PgRow) -> Result<Option<Membership>> {
    let is_member = row.try_get::<Option<String>, _>("id")?.is_some();
    is_member.then(|| membership_from(row)).transpose()
}

fn membership_from(row: &PgRow) -> Result<Membership> {
    let role: Option<String> = row.try_get("role")?;
    let role = role.map(role_from).transpose()?;
    let standing = Standing {
        owns_allowed_branch: row.try_get("owns_allowed_branch")?,
        made_branch: row.try_get("made_branch")?,
    };
    let has_second_factor = row.try_get("has_second_factor")?;
    Ok(Membership { organization: organization_from(row)?, role, standing, has_second_factor })
}
