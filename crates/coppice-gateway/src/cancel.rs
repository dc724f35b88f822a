//! Cancel requests, which come on a connection of their own.

use std::io;
use std::net::IpAddr;

use coppice_pgwire::encode;
use coppice_pgwire::startup::CancelKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};

use crate::gateway::Gateway;
use crate::metrics;

impl Gateway {
    /// Passes a cancel request on. As in PostgreSQL, the client gets no answer,
    /// only the end of its connection when all is done.
    pub(crate) async fn pass_cancel_on(&self, key: &CancelKey, address: IpAddr, deadline: Instant) {
        if !self.failures.may_cancel(address, Instant::now().into_std()) {
            metrics::cancelled("throttled");
            return tracing::debug!(client = %address, "too many cancel requests without a session");
        }
        let pass_on = async { self.cancel(key).await || self.branches.cancel_elsewhere(key).await };
        match timeout_at(deadline, pass_on).await {
            Ok(true) => metrics::cancelled("passed_on"),
            Ok(false) => {
                metrics::cancelled("unknown");
                self.failures.count_cancel(address, Instant::now().into_std());
                tracing::debug!(client = %address, "a cancel request has no session");
            }
            Err(_) => {
                metrics::cancelled("timeout");
                tracing::warn!("a cancel request could not be passed on in time");
            }
        }
    }

    /// Cancels what the session with this key does; false when there is none.
    pub async fn cancel(&self, key: &CancelKey) -> bool {
        let Some(target) = self.sessions.keys.target(key) else { return false };
        let session = target.lock().await;
        // A client of a pool that does nothing has nothing to cancel.
        let Some(session) = &*session else { return true };
        let forward = async {
            let mut stream = self.branches.open(&session.route).await.map_err(io::Error::other)?;
            let mut request = bytes::BytesMut::new();
            encode::cancel_request(&mut request, &session.key);
            stream.write_all(&request).await?;
            stream.flush().await?;
            stream.read(&mut [0]).await
        };
        if let Err(error) = forward.await {
            tracing::warn!("a cancel request could not be passed on: {error}");
        }
        true
    }
}
