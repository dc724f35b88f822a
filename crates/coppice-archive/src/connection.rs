//! A store that may be out of reach for a while.

use std::sync::Arc;

use coppice_core::InstallationId;
use tokio::sync::OnceCell;

use crate::{Archive, ArchiveKey, Result, StorePlace};

/// A store that is taken when it is first needed: nothing else waits for it.
#[derive(Debug)]
pub struct Connection {
    place: StorePlace,
    key: ArchiveKey,
    installation: InstallationId,
    taken: OnceCell<Arc<Archive>>,
}

impl Connection {
    /// To the store of an installation.
    pub fn new(place: StorePlace, key: ArchiveKey, installation: InstallationId) -> Self {
        Self { place, key, installation, taken: OnceCell::new() }
    }

    /// The store; takes it unless that is done.
    ///
    /// # Errors
    /// As [`Archive::take`]; the next call tries again.
    pub async fn archive(&self) -> Result<Arc<Archive>> {
        let take = async || Archive::take(&self.place, &self.key, &self.installation).await.map(Arc::new);
        self.taken.get_or_try_init(take).await.cloned()
    }
}

impl std::fmt::Display for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.place.fmt(f)
    }
}
