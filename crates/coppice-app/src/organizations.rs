//! Organizations.

use chrono::Utc;
use coppice_core::access::Caller;
use coppice_core::limits::{ORGANIZATIONS_OWNED_MAX, OrganizationLimits};
use coppice_core::organization::Organization;
use coppice_core::{Error, OrganizationId, Result};
use coppice_store::StoreError;

use crate::{Access, App, PersonalAccess};

impl App {
    /// Organizations the caller belongs to.
    ///
    /// # Errors
    /// When the metastore fails.
    pub async fn list_organizations(&self, caller: &Caller) -> Result<Vec<Organization>> {
        Ok(self.store.organization_list(&caller.principal).await?)
    }

    /// Makes an organization that the caller owns.
    ///
    /// # Errors
    /// `organization_limit_reached`
    pub async fn create_organization(&self, access: &PersonalAccess, name: &str) -> Result<Organization> {
        let mut tx = self.store.begin().await?;
        self.store.user_lock_in_tx(&mut tx, &access.user).await?;
        if self.store.organization_count_owned_in_tx(&mut tx, &access.user).await? >= ORGANIZATIONS_OWNED_MAX
        {
            return Err(Error::invalid(
                "organization_limit_reached",
                format!("organization limit of {ORGANIZATIONS_OWNED_MAX} reached"),
            ));
        }
        let id = OrganizationId::generate(Utc::now());
        let organization = self.store.organization_insert_in_tx(&mut tx, &id, name, &access.user).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(organization)
    }

    /// Renames an organization; without a name it stays as it is.
    ///
    /// # Errors
    /// `organization_access_denied` when it was deleted meanwhile.
    pub async fn update_organization(&self, access: &Access, name: Option<&str>) -> Result<Organization> {
        let current = &access.organization;
        match name.filter(|name| *name != current.name) {
            None => Ok(current.clone()),
            Some(name) => {
                let renamed = self.store.organization_rename(&current.id, name).await?;
                renamed.ok_or_else(|| organization_gone(&current.id))
            }
        }
    }

    /// Deletes an organization without projects: its keys and memberships end
    /// at once.
    ///
    /// # Errors
    /// `org_has_projects`
    pub async fn delete_organization(&self, access: &Access) -> Result<()> {
        let id = &access.organization.id;
        let mut tx = self.store.begin().await?;
        if !self.store.organization_lock_in_tx(&mut tx, id).await? {
            return Err(organization_gone(id));
        }
        if self.store.project_exists_in_tx(&mut tx, id).await? {
            return Err(Error::Conflict {
                code: "org_has_projects",
                public: "the organization still has projects".to_owned(),
            });
        }
        self.store.organization_delete_in_tx(&mut tx, id).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(())
    }

    /// Quotas of an organization.
    pub fn organization_limits(&self) -> OrganizationLimits {
        self.config.limits
    }
}

/// Deleted between the check of the caller and the operation.
pub(crate) fn organization_gone(id: &OrganizationId) -> Error {
    Error::access_denied(
        "organization_access_denied",
        format_args!("you are not a member of organization {id}"),
    )
}
