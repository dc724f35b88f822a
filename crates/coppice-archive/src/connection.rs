//! A store that may be out of reach for a while.

use std::sync::Arc;

use coppice_core::InstallationId;
use tokio::sync::OnceCell;

use crate::{Archive, ArchiveKey, Result, StorePlace};

/// A store, and the same for what requests ask.
#[derive(Debug)]
struct Taken {
    own: Arc<Archive>,
    asked: Arc<Archive>,
}

/// A store that is taken when it is first needed: nothing else waits for it.
#[derive(Debug)]
pub struct Connection {
    place: StorePlace,
    key: ArchiveKey,
    installation: InstallationId,
    taken: OnceCell<Taken>,
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
        Ok(self.taken().await?.own.clone())
    }

    /// The same to read from, for what requests ask: of the few who may use a directory at a time they are half at
    /// most, so the platform's own work does not wait for all of them.
    ///
    /// # Errors
    /// As [`archive`](Self::archive).
    pub async fn archive_for_requests(&self) -> Result<Arc<Archive>> {
        Ok(self.taken().await?.asked.clone())
    }

    async fn taken(&self) -> Result<&Taken> {
        let take = async || {
            let own = Archive::take(&self.place, &self.key, &self.installation).await?;
            Ok(Taken { asked: Arc::new(own.for_requests()), own: Arc::new(own) })
        };
        self.taken.get_or_try_init(take).await
    }
}

impl std::fmt::Display for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.place.fmt(f)
    }
}
