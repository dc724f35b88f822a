//! Removing what nobody needs.

use std::collections::HashSet;
use std::iter::repeat;

use chrono::{DateTime, Utc};

use crate::manifest::PackId;
use crate::{Archive, ArchiveError, BaseName, Result, StoreFailure};

impl Archive {
    /// Removes a base; its packs go with a [`sweep`](Self::sweep).
    ///
    /// # Errors
    /// When the store can't be written, or is another process's by now.
    pub async fn remove_base(&self, base: &BaseName) -> Result<()> {
        self.check_owner().await?;
        self.delete(base.as_str()).await
    }

    /// Removes packs that no base needs and that were written before a time. No base
    /// may be in the making that began before it. Bases that are known to be there may be
    /// `unlisted`: a listing may lag behind. Tells how many packs.
    ///
    /// # Errors
    /// When a manifest can't be read: then it is not known what is needed. When the
    /// store can't be written, or is another process's by now.
    pub async fn sweep(&self, unlisted: &[BaseName], written_before: DateTime<Utc>) -> Result<usize> {
        let packs = self.list("packs").await?;
        let old = packs.iter().filter(|pack| pack.last_modified < written_before);
        let mut removable: HashSet<PackId> =
            old.filter_map(|pack| PackId::of_object(pack.location.as_ref())).collect();
        let listed = self.all_bases().await?;
        for (base, is_listed) in listed.iter().zip(repeat(true)).chain(unlisted.iter().zip(repeat(false))) {
            if removable.is_empty() {
                return Ok(0);
            }
            let manifest = match self.manifest(base).await {
                // Removed: a listing may lag behind that.
                Err(ArchiveError::Store { source: StoreFailure::NotFound { .. }, .. }) if is_listed => {
                    continue;
                }
                found => found?,
            };
            for pack in manifest.packs {
                removable.remove(&pack);
            }
        }
        self.check_owner().await?;
        for pack in &removable {
            self.delete(&pack.object()).await?;
        }
        Ok(removable.len())
    }
}
