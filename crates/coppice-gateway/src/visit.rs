//! What one client wants, and how long its startup may take.

use std::sync::OnceLock;
use std::time::Duration;

use coppice_pgwire::sqlstate;
use tokio::time::{Instant, timeout_at};

use crate::destination::Destination;
use crate::failures::Attempt;
use crate::reason::Reason;
use crate::refusal::{End, Refusal};
use crate::sessions::Look;
use crate::{ClientInfo, Route};

/// Pause after a server that was just going away, or recovers from a crash;
/// doubled each time. The client's deadline ends it.
pub(crate) const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);
const ATTEMPT_PAUSE_MAX: Duration = Duration::from_millis(320);

/// See the module.
pub(crate) struct Visit {
    pub(crate) client: ClientInfo,
    pub(crate) attempt: Attempt,
    pub(crate) deadline: Instant,
    pub(crate) secret_length: usize,
    pub(crate) destination: Destination,
    /// When this client first woke the branch, if it had to.
    pub(crate) woken: OnceLock<Instant>,
}

/// A branch as it was seen.
pub(crate) struct Found {
    pub(crate) route: Route,
    /// Which look that was.
    pub(crate) look: Look,
}

impl Visit {
    /// Whether the client's address may connect to the branch.
    pub(crate) fn is_admitted(&self, found: &Found) -> bool {
        found.route.ip_filtering.admits(self.client.address)
    }

    /// The same, for a client that has proved who it is.
    pub(crate) fn check_address(&self, found: &Found) -> Result<(), Refusal> {
        let address = self.client.address;
        if self.is_admitted(found) { Ok(()) } else { Err(Refusal::address_not_allowed(address)) }
    }
}

/// Waits before another attempt, where that makes sense and the deadline
/// leaves time for it; returns the pause after that one.
pub(crate) async fn next_pause(end: End, pause: Duration, deadline: Instant) -> Result<Duration, End> {
    if !end.is_passing() || Instant::now() + pause >= deadline {
        return Err(end);
    }
    tokio::time::sleep(pause).await;
    Ok((pause * 2).min(ATTEMPT_PAUSE_MAX))
}

/// Ends a startup that takes too long.
pub(crate) async fn within<T>(
    deadline: Instant,
    work: impl Future<Output = Result<T, End>>,
) -> Result<T, End> {
    match timeout_at(deadline, work).await {
        Ok(result) => result,
        Err(_) => {
            // A client in the middle of its sign-in understands this too.
            Err(Refusal::new(Reason::Timeout, sqlstate::CANNOT_CONNECT_NOW, "the startup took too long")
                .with_hint("Try again.")
                .into())
        }
    }
}
