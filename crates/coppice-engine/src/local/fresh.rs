//! What `initdb` made for the metastore, kept for the template of the same release: that
//! one begins with the same.
//!
//! Nothing of it is flushed, so it counts until the machine starts again.

use std::fs;
use std::path::PathBuf;

use coppice_core::image::PostgresVersion;

use super::images::copy_tree;
use super::layout::Layout;
use super::process::identity::boot_id;
use super::untrusted::{self, UntrustedPath};
use super::volumes::give_to;
use crate::{EngineError, Result};

/// Where it is kept.
fn place(layout: &Layout, version: PostgresVersion) -> PathBuf {
    layout.fresh_clusters().join(boot_id()).join(version.to_string())
}

/// Copies it into `data`, an empty directory, whose files belong to `owner` if to
/// anybody else than this process; false where nothing is kept.
pub(super) fn take(
    layout: &Layout,
    version: PostgresVersion,
    data: &UntrustedPath,
    owner: Option<u32>,
) -> Result<bool> {
    let kept = place(layout, version);
    if !kept.exists() {
        return Ok(false);
    }
    copy_tree(&kept, data.host_path()).map_err(EngineError::io("copying a fresh cluster"))?;
    if let Some(account) = owner {
        give_to(data.host_path(), account).map_err(EngineError::io("giving a fresh cluster away"))?;
    }
    Ok(true)
}

/// Keeps what `initdb` made in `data`, which no server has seen yet.
pub(super) fn keep(layout: &Layout, version: PostgresVersion, data: &UntrustedPath) -> Result<()> {
    let kept = place(layout, version);
    let staging = kept.with_file_name("making");
    let keep = || {
        untrusted::delete_tree(&staging)?;
        copy_tree(data.host_path(), &staging)?;
        fs::rename(&staging, &kept)
    };
    keep().map_err(EngineError::io("keeping a fresh cluster"))
}

/// Removes all that is kept.
pub(super) fn forget(layout: &Layout) -> Result<()> {
    untrusted::delete_tree(&layout.fresh_clusters()).map_err(EngineError::io("removing a fresh cluster"))
}
