//! What is there, by asking for each: a listing may lag behind what was written and deleted.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _};

use crate::manifest::{Manifest, PackId};
use crate::{Archive, ArchiveError, BaseName, Result};

/// Objects that are asked for at a time.
const REQUESTS_AT_ONCE: usize = 16;

impl Archive {
    /// When a base was complete, by the store's clock; later where the store is a copy.
    /// None when it is not there.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn completed_at(&self, base: &BaseName) -> Result<Option<DateTime<Utc>>> {
        Ok(self.head(base.as_str()).await?.map(|found| found.last_modified))
    }

    /// The bases among these that are there.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn bases_that_are_there(&self, bases: Vec<BaseName>) -> Result<Vec<BaseName>> {
        self.that_are_there(bases, |base| base.as_str().to_owned()).await
    }

    /// A manifest without the blocks that are lost with their packs.
    pub(crate) async fn without_lost_packs(&self, mut manifest: Manifest) -> Result<Manifest> {
        let there = self.that_are_there(manifest.packs.clone(), PackId::object).await?;
        let there: HashSet<_> = there.into_iter().collect();
        manifest.blocks.retain(|block| there.contains(&manifest.packs[block.pack as usize]));
        Ok(manifest)
    }

    /// Of these objects, those that are there.
    async fn that_are_there<T>(&self, found: Vec<T>, name: impl Fn(&T) -> String) -> Result<Vec<T>> {
        let asked = found.into_iter().map(|one| {
            let name = name(&one);
            async move { Ok(self.head(&name).await?.map(|_| one)) }
        });
        let there = stream::iter(asked).buffer_unordered(REQUESTS_AT_ONCE);
        there.try_filter_map(|one| async move { Ok(one) }).try_collect().await
    }

    async fn head(&self, name: &str) -> Result<Option<ObjectMeta>> {
        match self.place.objects.head(&Path::from(name)).await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(ArchiveError::store(format!("looking for {name}"))(error)),
        }
    }
}
