//! What a drill needs to know.

use coppice_core::image::PostgresVersion;
use coppice_core::lsn::Lsn;

/// A base that is to be restored for proof, and what its server is to have.
#[derive(Clone, Debug)]
pub struct DrillPlan {
    /// The base, by its name.
    pub base: String,
    /// How far the log behind it is in the store, as far as is known.
    pub log_stored: Option<Lsn>,
    /// The PostgreSQL release to run.
    pub version: PostgresVersion,
    /// PostgreSQL parameters of the branch; a later one wins. Those of memory are
    /// the drill's own.
    pub settings: Vec<(String, String)>,
    /// Libraries that every session of the branch has, by name.
    pub preload_libraries: Vec<String>,
    /// Most that the branch's data may take, in bytes.
    pub storage_bytes: u64,
}
