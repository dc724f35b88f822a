//! What is done now and then, so that nothing is left lying about. A chore that
//! fails keeps no other from being done.

use coppice_core::{Error, Result};

use crate::App;

impl App {
    /// Finishes what was asked for, and forgets what is not needed any more; to
    /// be called every few minutes. Returns whether all of it was done; the log
    /// says what was not.
    pub async fn tidy(&self) -> bool {
        let organizations = self.delete_requested_organizations().await;
        let answers = self.store.idempotency_purge().await.map_err(Error::from);
        let deleted = self.store.organization_purge().await.map_err(Error::from);
        let lines = self.purge_audit_log().await;
        let done = [
            organizations,
            is_done("forgetting answers to earlier requests", answers),
            is_done("forgetting deleted organizations", deleted),
            is_done("forgetting old lines of the audit log", lines),
        ];
        done.iter().all(|is_done| *is_done)
    }
}

/// Whether something was done; the log says why not.
pub(crate) fn is_done<T>(what: &str, done: Result<T>) -> bool {
    if let Err(error) = &done {
        tracing::warn!("{what}: {}", error.for_log());
    }
    done.is_ok()
}
