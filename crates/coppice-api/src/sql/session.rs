//! A session that belongs to a request.

use std::sync::Arc;
use std::time::Duration;

use coppice_core::network;
use coppice_core::organization::Holder;
use coppice_gateway::{Gateway, Reason, Visitor};
use coppice_sql::{Failure, Login, Session};
use tokio::io::DuplexStream;
use tokio::sync::SetOnce;
use tokio::time::timeout;

use super::refused::Refused;

/// How long a session may take to begin: as long as the gateway lets a client
/// wait for a branch, and what it takes to sign in.
const CONNECT_PATIENCE: Duration = Duration::from_secs(70);
/// How long it may take to pass a cancel request on, and how long others wait for the share of a
/// session then: a function can keep itself from being cancelled.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

/// The session. Where its request ends before it, what it does is cancelled.
pub(crate) struct Owned {
    gateway: Arc<Gateway>,
    session: Option<Session<DuplexStream>>,
    /// A share of what others want as well, which it has until it is over.
    share: Option<Box<dyn Send>>,
    signed_in: Arc<SetOnce<Holder>>,
}

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum NoSession {
    /// The server says so; or the gateway, which has a reason.
    Refused(Failure, Option<Reason>),
    /// It takes too long.
    TooLate,
}

impl From<NoSession> for Refused {
    fn from(none: NoSession) -> Self {
        match none {
            NoSession::Refused(failure, reason) => Self::without_session(failure, reason),
            NoSession::TooLate => Self::too_late(),
        }
    }
}

impl Owned {
    /// A statement of it may take `statement_patience`.
    pub(crate) async fn begin(
        gateway: &Arc<Gateway>,
        login: &Login,
        visitor: Visitor,
        statement_patience: Duration,
    ) -> Result<Self, NoSession> {
        let source = network::source(visitor.address);
        let entrance = gateway.enter(visitor);
        let (refused, signed_in) = (entrance.refused(), entrance.signed_in());
        if refused.get() == Some(&Reason::TooMany) {
            // What it says of that may be gone before anything is sent there.
            let lost = Failure::Lost(std::io::ErrorKind::ConnectionRefused.into());
            return Err(NoSession::Refused(lost, Some(Reason::TooMany)));
        }
        let begun = Session::begin(entrance.stream, login, source, statement_patience);
        match timeout(CONNECT_PATIENCE, begun).await {
            Ok(Ok(session)) => {
                Ok(Self { gateway: gateway.clone(), session: Some(session), share: None, signed_in })
            }
            Ok(Err(failure)) => Err(NoSession::Refused(failure, refused.get().copied())),
            Err(_) => Err(NoSession::TooLate),
        }
    }

    /// Has it keep a share until it is over, also where its request ends before it.
    pub(crate) fn keep(&mut self, share: impl Send + 'static) {
        self.share = Some(Box::new(share));
    }

    /// Who answers for its branch.
    pub(crate) fn holder(&self) -> Option<&Holder> {
        self.signed_in.get()
    }

    /// To be used until it is ended.
    pub(crate) fn session(&mut self) -> &mut Session<DuplexStream> {
        self.session.as_mut().expect("it is there until it is ended")
    }

    /// Ends a session that does nothing any more.
    pub(crate) async fn end(mut self) {
        if let Some(session) = self.session.take() {
            session.end().await;
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (gateway, share) = (self.gateway.clone(), self.share.take());
        runtime.spawn(async move {
            // The session is there until then, or nobody would know whom to tell.
            if timeout(CANCEL_PATIENCE, gateway.cancel(session.cancel_key())).await.is_err() {
                tracing::warn!("a statement whose client is gone could not be cancelled in time");
            }
            if let Some(_share) = share {
                let _ = timeout(CANCEL_PATIENCE, session.end_and_wait()).await;
            }
        });
    }
}

/// Whether a session that failed so does nothing any more.
pub(crate) fn is_at_rest(failure: &Failure) -> bool {
    match failure {
        Failure::Server(_) | Failure::TransactionEnded => true,
        Failure::TooLarge(_)
        | Failure::NoRoom
        | Failure::TooLong
        | Failure::Copy
        | Failure::Iterations(_)
        | Failure::Lost(_)
        | Failure::Protocol(_) => false,
    }
}
