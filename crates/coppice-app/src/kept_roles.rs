//! Verifiers that are kept for the sleep of branches.

use coppice_core::{BranchId, Result};
use coppice_engine::SleepingRoles;
use coppice_store::SealedRole;

use crate::rotation::seal_verifier;
use crate::{App, MasterKey};

/// Seals what an engine said of a server's roles, each for itself.
pub(crate) fn seal_roles(key: &MasterKey, branch: &BranchId, roles: SleepingRoles) -> Vec<SealedRole> {
    let seal = |(role, verifier): (String, String)| {
        let sealed = seal_verifier(key, branch, &role, &verifier);
        (role, sealed)
    };
    roles.verifiers.into_iter().map(seal).collect()
}

impl App {
    /// Gives every verifier a row of its own that was kept together with the
    /// others of its branch, as older versions did. Where what was kept is more
    /// than is kept now, or can't be opened, it is forgotten: the branch will be
    /// woken to ask who its clients are. Repeatable.
    pub async fn spread_kept_verifiers(&self) -> Result<()> {
        while let Some((branch, sealed)) = self.store.verifiers_together().await? {
            let opened = self.key.open(branch.as_str(), &sealed).ok();
            let roles = opened.and_then(|text| serde_json::from_str::<SleepingRoles>(&text).ok());
            let roles = roles.filter(SleepingRoles::is_within_bounds);
            if roles.is_none() {
                tracing::warn!(%branch, "what was kept for the sleep of branch {branch} is of no use");
            }
            let rows = roles.map(|roles| seal_roles(&self.key, &branch, roles));
            self.store.verifiers_spread(&branch, rows.as_deref()).await?;
        }
        Ok(())
    }
}
