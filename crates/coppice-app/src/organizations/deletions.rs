//! Deletions that were asked for, and wait until nothing is owed.

use coppice_core::organization::BillingStatus;
use coppice_core::{OrganizationId, Result};
use coppice_store::Store;

/// Deletes organizations as their owners asked.
#[derive(Clone)]
pub(crate) struct Deletions {
    store: Store,
    /// Whether Orb makes the invoices, and the last ones are to be paid first.
    has_orb: bool,
}

impl Deletions {
    pub(crate) fn new(store: Store, has_orb: bool) -> Self {
        Self { store, has_orb }
    }

    /// Deletes organizations whose deletion was asked for; one that can't be
    /// keeps no other from it.
    pub(crate) async fn do_all(&self) -> Result<()> {
        let mut done = Ok(());
        for id in self.store.organization_list_deletable().await? {
            done = self.do_one(&id).await.and(done);
        }
        done
    }

    pub(crate) async fn do_one(&self, id: &OrganizationId) -> Result<()> {
        self.delete(id).await.inspect_err(|error| {
            tracing::warn!("deleting organization {id}, as its owner asked: {}", error.for_log());
        })
    }

    /// Deletes an organization if its deletion is still asked for, it has no
    /// projects and owes nothing.
    async fn delete(&self, id: &OrganizationId) -> Result<()> {
        if !self.is_settled(id).await? {
            return Ok(());
        }
        let mut tx = self.store.begin().await?;
        let status = self.store.organization_billing_in_tx(&mut tx, id).await?;
        if status != Some(BillingStatus::DeletionRequested)
            || self.store.project_exists_in_tx(&mut tx, id).await?
        {
            return Ok(());
        }
        self.store.organization_delete_in_tx(&mut tx, id).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Whether Orb has nothing left to do for an organization that is to end.
    pub(crate) async fn is_settled(&self, organization: &OrganizationId) -> Result<bool> {
        match self.has_orb {
            false => Ok(true),
            true => Ok(self.store.orb_is_settled(organization).await?),
        }
    }
}
