//! What a server that follows another one is told.

use super::process::launch::Neighbour;
use super::untrusted::UntrustedPath;

/// Begins the name of each replica's role and slot; its ordinal ends it.
pub(super) const NAME: &str = "coppice_replica_";
/// Which roles and slots are replicas', as a regular expression.
pub(super) const NAMES: &str = "^coppice_replica_[0-9]+$";

/// What only a start of a server that follows needs.
#[derive(Debug)]
pub(super) struct Door {
    /// Its role's password.
    pub(super) password: String,
    /// The primary's server, and where its socket is; none where every server
    /// sees the whole machine.
    pub(super) neighbour: Option<Neighbour>,
}

/// How a server follows another one.
#[derive(Debug)]
pub(super) struct Following {
    /// Its role and its slot there.
    pub(super) name: String,
    /// The directory of the primary's socket, on the host.
    pub(super) socket: UntrustedPath,
    pub(super) door: Option<Door>,
}

/// Roles and slots of all replicas that there can be, with commas, as in `pg_hba.conf`.
pub(super) fn all_names() -> String {
    let ordinals = 2..=coppice_core::limits::INSTANCES_PER_BRANCH_MAX;
    ordinals.map(|ordinal| format!("{NAME}{ordinal}")).collect::<Vec<_>>().join(",")
}
