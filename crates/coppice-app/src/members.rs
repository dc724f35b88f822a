//! Members of an organization and their roles.

use coppice_core::access::Principal;
use coppice_core::limits::MEMBER_CHANGES_PER_HOUR_MAX;
use coppice_core::organization::{Member, Role};
use coppice_core::{Error, OrganizationId, Result, UserId};
use coppice_store::{OrganizationChange, StoreError, Tx};

use crate::{Access, App};

impl App {
    /// Members of the organization.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn list_members(&self, access: &Access) -> Result<Vec<Member>> {
        Ok(self.store.member_list(&access.organization.id).await?)
    }

    /// Ends a membership. The keys and projects that the member made for the
    /// organization stay.
    ///
    /// # Errors
    /// `cannot_remove_self`, `cannot_remove_owner`, `member_not_found`,
    /// `rate_limited`
    pub async fn remove_member(&self, access: &Access) -> Result<()> {
        let (organization, user) = (&access.organization.id, access.user()?);
        if access.caller.principal == Principal::User(user.clone()) {
            return Err(Error::Forbidden {
                code: "cannot_remove_self",
                public: "you cannot remove yourself".to_owned(),
            });
        }
        let mut tx = self.store.begin().await?;
        if self.member_role_in_tx(&mut tx, organization, user).await? == Role::Owner {
            return Err(Error::Forbidden {
                code: "cannot_remove_owner",
                public: "the owner cannot be removed".to_owned(),
            });
        }
        self.count_change_in_tx(
            &mut tx,
            organization,
            OrganizationChange::Member,
            MEMBER_CHANGES_PER_HOUR_MAX,
        )
        .await?;
        self.store.member_delete_in_tx(&mut tx, organization, user).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Gives a member another role; the same one again changes nothing.
    ///
    /// # Errors
    /// `member_not_found`, `owner_role_fixed`, `rate_limited`
    pub async fn set_member_role(&self, access: &Access, role: Role) -> Result<()> {
        let (organization, user) = (&access.organization.id, access.user()?);
        let mut tx = self.store.begin().await?;
        match self.member_role_in_tx(&mut tx, organization, user).await? {
            Role::Owner => {
                return Err(Error::Conflict {
                    code: "owner_role_fixed",
                    public: "the owner keeps the owner role".to_owned(),
                });
            }
            present if present == role => return Ok(()),
            Role::Admin | Role::Editor | Role::Viewer => {}
        }
        self.count_change_in_tx(
            &mut tx,
            organization,
            OrganizationChange::Member,
            MEMBER_CHANGES_PER_HOUR_MAX,
        )
        .await?;
        self.store.member_set_role_in_tx(&mut tx, organization, user, role).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Locks an organization and one of its memberships.
    async fn member_role_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        user: &UserId,
    ) -> Result<Role> {
        self.lock_organization_in_tx(tx, organization).await?;
        let role = self.store.member_role_in_tx(tx, organization, user).await?;
        role.ok_or_else(|| Error::NotFound {
            code: "member_not_found",
            public: format!("member {user} not found"),
        })
    }

    /// Counts a change of an organization, which the transaction has locked.
    pub(crate) async fn count_change_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        change: OrganizationChange,
        max: u32,
    ) -> Result<()> {
        match self.store.organization_change_in_tx(tx, organization, change, max).await? {
            None => Ok(()),
            Some(retry_after_seconds) => Err(Error::TooMany {
                code: "rate_limited",
                public: "too many requests".to_owned(),
                retry_after_seconds,
            }),
        }
    }
}
