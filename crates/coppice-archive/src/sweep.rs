//! Removing what nobody needs.

use std::collections::{HashMap, HashSet};
use std::iter::repeat;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use crate::manifest::PackId;
use crate::{Archive, ArchiveError, BaseName, Result, StoreFailure};

/// Packs that bases need. What a base consists of never changes, and there may be very many: each is read once.
#[derive(Debug, Default)]
pub(crate) struct Needs(Mutex<HashMap<BaseName, Arc<[PackId]>>>);

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
        self.needs.0.lock().retain(|base, _| listed.binary_search(base).is_ok() || unlisted.contains(base));
        for (base, is_listed) in listed.iter().zip(repeat(true)).chain(unlisted.iter().zip(repeat(false))) {
            if removable.is_empty() {
                return Ok(0);
            }
            let needs = match self.needs_of(base).await {
                // Removed: a listing may lag behind that.
                Err(ArchiveError::Store { source: StoreFailure::NotFound { .. }, .. }) if is_listed => {
                    continue;
                }
                found => found?,
            };
            for pack in needs.iter() {
                removable.remove(pack);
            }
        }
        self.check_owner().await?;
        for pack in &removable {
            self.delete(&pack.object()).await?;
        }
        Ok(removable.len())
    }

    async fn needs_of(&self, base: &BaseName) -> Result<Arc<[PackId]>> {
        let known = self.needs.0.lock().get(base).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let needs: Arc<[PackId]> = self.manifest(base).await?.packs.into();
        self.needs.0.lock().insert(base.clone(), needs.clone());
        Ok(needs)
    }
}
