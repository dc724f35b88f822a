//! Work that blocks on a disk, away from the threads that serve everybody.

use crate::{EngineError, Result};

/// Does it on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| EngineError::Other(error.to_string()))?
}
