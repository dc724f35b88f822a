//! Verifiers that are kept for the sleep of branches.

use coppice_core::{BranchId, Result};
use coppice_engine::SleepingRoles;
use coppice_store::SealedRole;

use crate::secrets::MasterKey;

/// Seals what an engine said of a server's roles, each for itself.
pub(crate) fn seal_roles(key: &MasterKey, branch: &BranchId, roles: SleepingRoles) -> Vec<SealedRole> {
    let seal = |(role, verifier): (String, String)| {
        let sealed = seal_verifier(key, branch, &role, &verifier);
        (role, sealed)
    };
    roles.verifiers.into_iter().map(seal).collect()
}

/// The owner that a role's verifier is sealed for, as in the store's list of
/// sealed columns.
fn owner(branch: &BranchId, role: &str) -> String {
    format!("{branch} {role}")
}

/// Opens a verifier that was kept for a branch's sleep.
///
/// # Errors
/// When it was sealed with another key, or for another role.
pub(crate) fn open_verifier(key: &MasterKey, branch: &BranchId, role: &str, sealed: &[u8]) -> Result<String> {
    Ok(key.open(&owner(branch, role), sealed)?.to_string())
}

/// Seals a verifier that is kept for a branch's sleep.
pub(crate) fn seal_verifier(key: &MasterKey, branch: &BranchId, role: &str, verifier: &str) -> Vec<u8> {
    key.seal(&owner(branch, role), verifier)
}
