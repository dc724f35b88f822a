//! Members of an organization and their roles.

use coppice_core::access::Principal;
use coppice_core::api_key::{MakerStanding, ReviewReason};
use coppice_core::limits::MEMBER_CHANGES_PER_HOUR_MAX;
use coppice_core::organization::{Member, Role};
use coppice_core::target::OnMember;
use coppice_core::{ApiKeyId, Error, ErrorCode, OrganizationId, Result, UserId};
use coppice_store::{OrganizationChange, Store, Tx};

use crate::Access;
use crate::rows::lock_in_tx;

/// Members of organizations.
#[derive(Clone)]
pub struct Members {
    store: Store,
}

impl Members {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    /// Members of the organization.
    pub async fn list(&self, access: &Access) -> Result<Vec<Member>> {
        Ok(self.store.member_list(&access.organization.id).await?)
    }

    /// Ends a membership. The keys and projects that the member made for the
    /// organization stay; the keys are returned, because the member may know
    /// them.
    ///
    /// # Errors
    /// `cannot_remove_self`, `cannot_remove_owner`, `member_not_found`,
    /// `rate_limited`
    pub async fn remove(&self, access: &Access<OnMember>) -> Result<Vec<ApiKeyId>> {
        let (organization, user) = (&access.organization.id, &access.target.user);
        if access.caller.principal == Principal::User(user.clone()) {
            return Err(Error::Forbidden {
                code: ErrorCode::CannotRemoveSelf,
                public: "you cannot remove yourself".to_owned(),
            });
        }
        let mut tx = self.store.begin().await?;
        if self.role_in_tx(&mut tx, access).await? == Role::Owner {
            return Err(Error::Forbidden {
                code: ErrorCode::CannotRemoveOwner,
                public: "the owner cannot be removed".to_owned(),
            });
        }
        self.store.member_delete_in_tx(&mut tx, organization, user).await?;
        let keys = self.keys_to_review_in_tx(&mut tx, organization, user, None).await?;
        tx.commit().await?;
        Ok(keys)
    }

    /// Gives a member another role; the same one again changes nothing.
    /// Returns the keys that the member made for the organization and could
    /// not make with that role.
    ///
    /// # Errors
    /// `member_not_found`, `owner_role_fixed`, `scope_not_grantable`,
    /// `rate_limited`
    pub async fn set_role(&self, access: &Access<OnMember>, role: Role) -> Result<Vec<ApiKeyId>> {
        let (organization, user) = (&access.organization.id, &access.target.user);
        let mut tx = self.store.begin().await?;
        match self.role_in_tx(&mut tx, access).await? {
            Role::Owner => {
                return Err(Error::Conflict {
                    code: ErrorCode::OwnerRoleFixed,
                    public: "the owner keeps the owner role".to_owned(),
                });
            }
            present if present == role => return Ok(vec![]),
            // Whoever takes rights away is never told to wait.
            present if present.carries_all_of(role) => {}
            Role::Admin | Role::Editor | Role::Viewer => {
                access.caller.check_grantable(role)?;
                let (change, max) = (OrganizationChange::Member, MEMBER_CHANGES_PER_HOUR_MAX);
                count_change_in_tx(&self.store, &mut tx, organization, change, max).await?;
            }
        }
        self.store.member_set_role_in_tx(&mut tx, organization, user, role).await?;
        let keys = self.keys_to_review_in_tx(&mut tx, organization, user, Some(role)).await?;
        tx.commit().await?;
        Ok(keys)
    }

    /// Keys of the organization to look at again, now that their maker has
    /// this role, or none.
    async fn keys_to_review_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        maker: &UserId,
        role: Option<Role>,
    ) -> Result<Vec<ApiKeyId>> {
        let made = self.store.key_list_by_maker_in_tx(tx, organization, maker).await?;
        let standing = MakerStanding { role, is_disabled: false };
        let stand_out = made.into_iter().filter(|key| ReviewReason::of(&key.grant, standing).is_some());
        Ok(stand_out.map(|key| key.id).collect())
    }

    /// Locks an organization and one of its memberships, which the caller may still change.
    async fn role_in_tx(&self, tx: &mut Tx, access: &Access<OnMember>) -> Result<Role> {
        let (organization, user) = (&access.organization.id, &access.target.user);
        lock_in_tx(&self.store, tx, access).await?;
        let role = self.store.member_role_in_tx(tx, organization, user).await?;
        role.ok_or_else(|| Error::NotFound {
            code: ErrorCode::MemberNotFound,
            public: format!("member {user} not found"),
        })
    }
}

/// Counts a change of an organization, which the transaction has locked.
pub(crate) async fn count_change_in_tx(
    store: &Store,
    tx: &mut Tx,
    organization: &OrganizationId,
    change: OrganizationChange,
    max: u32,
) -> Result<()> {
    match store.organization_change_in_tx(tx, organization, change, max).await? {
        None => Ok(()),
        Some(seconds) => Err(too_many_changes(seconds)),
    }
}

/// What is refused for so long because there were many of its kind.
pub(crate) fn too_many_changes(retry_after_seconds: u32) -> Error {
    let public = "too many requests".to_owned();
    Error::TooMany { code: ErrorCode::RateLimited, public, retry_after_seconds }
}
