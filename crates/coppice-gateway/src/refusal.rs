//! Why a client is sent away, and how it is told.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use coppice_core::branch::BranchState;
use coppice_core::{BranchId, Error};
use coppice_engine::ROLE_LENGTH_MAX;
use coppice_pgwire::encode::ErrorReport;
use coppice_pgwire::frame::Frame;
use coppice_pgwire::scram::ScramError;
use coppice_pgwire::{WireError, session, sqlstate};

use crate::Route;
use crate::reason::Reason;

/// An error that the gateway reports itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What it counts as.
    pub(crate) reason: Reason,
    /// What the client is told: an SQLSTATE, of which several reasons may share one.
    pub(crate) code: &'static str,
    pub(crate) message: Cow<'static, str>,
    pub(crate) hint: Option<Cow<'static, str>>,
}

/// Why a connection ended before it became a session.
#[derive(Debug)]
pub(crate) enum End {
    /// The client is gone, or speaks something that can't be answered.
    Gone(io::Error),
    /// The gateway says no.
    Refused(Refusal),
    /// The server says no; the client gets its words unchanged.
    RefusedByServer(Frame),
}

impl End {
    /// What it counts as.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Gone(_) => Reason::Gone,
            Self::Refused(refusal) => refusal.reason,
            Self::RefusedByServer(_) => Reason::Server,
        }
    }

    /// Whether a server was just going away, or is not there yet.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Refused(refusal) => match refusal.reason {
                Reason::NotReady => true,
                Reason::Authentication
                | Reason::Throttled
                | Reason::NotAllowed
                | Reason::TooMany
                | Reason::Timeout
                | Reason::Asleep
                | Reason::Protocol
                | Reason::NoBranch
                | Reason::Unsupported
                | Reason::Internal
                | Reason::Server
                | Reason::Gone
                | Reason::NoStartup => false,
            },
            // A PostgreSQL that starts or stops.
            Self::RefusedByServer(message) => {
                let code = session::error_field(&message.body, b'C');
                [sqlstate::CANNOT_CONNECT_NOW, sqlstate::ADMIN_SHUTDOWN]
                    .iter()
                    .any(|passing| code == Some(passing.as_bytes()))
            }
            Self::Gone(_) => false,
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        let (reason, code) = match error {
            WireError::Length { .. } | WireError::Malformed(_) => {
                (Reason::Protocol, sqlstate::PROTOCOL_VIOLATION)
            }
            WireError::Version { .. } => (Reason::Unsupported, sqlstate::FEATURE_NOT_SUPPORTED),
        };
        Refusal::new(reason, code, error.to_string()).into()
    }
}

impl Refusal {
    pub(crate) fn new(reason: Reason, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, code, message: message.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub(crate) fn report(&self) -> ErrorReport<'_> {
        ErrorReport { code: self.code, message: &self.message, hint: self.hint.as_deref(), routine: None }
    }

    /// The one answer to a wrong password, an unknown role and an unknown branch.
    pub(crate) fn wrong_password(user_as_sent: &str) -> Self {
        Self::new(
            Reason::Authentication,
            sqlstate::INVALID_PASSWORD,
            format!("password authentication failed for user \"{user_as_sent}\""),
        )
    }

    pub(crate) fn no_replica(branch: &BranchId) -> Self {
        Self::new(
            Reason::Unsupported,
            sqlstate::CANNOT_CONNECT_NOW,
            format!("branch {branch} has no replica"),
        )
        .with_hint("Connect to the primary: leave out -ro. Or give the branch replicas.")
    }

    pub(crate) fn replica_not_ready(branch: &BranchId) -> Self {
        Self::new(
            Reason::NotReady,
            sqlstate::CANNOT_CONNECT_NOW,
            format!("no replica of branch {branch} is ready"),
        )
        .with_hint("Try again in a moment, or connect to the primary: leave out -ro.")
    }

    pub(crate) fn tls_required() -> Self {
        Self::new(Reason::NotAllowed, sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, "TLS is required")
            .with_hint("Connect with sslmode=require.")
    }

    pub(crate) fn address_not_allowed(address: IpAddr) -> Self {
        Self::new(
            Reason::NotAllowed,
            sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
            format!("connections from {address} are not allowed"),
        )
        .with_hint("Add the address to the project's allowed ranges.")
    }

    pub(crate) fn too_many_clients() -> Self {
        Self::new(Reason::TooMany, sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
    }

    /// For a client that was signed in and has nothing under way.
    pub(crate) fn gives_way() -> Self {
        let message = "all connections are taken, and this one waited: it made room for who has fewer";
        Self::new(Reason::TooMany, sqlstate::IDLE_SESSION_TIMEOUT, message)
            .with_hint("Connect again when you need to. Keep fewer connections open that wait.")
    }

    pub(crate) fn too_many_of_address() -> Self {
        Self::new(Reason::TooMany, sqlstate::TOO_MANY_CONNECTIONS, "too many connections from this address")
            .with_hint("Close some, or try again in a moment.")
    }

    pub(crate) fn too_many_failures(wait: Duration) -> Self {
        let seconds = wait.as_secs_f64().ceil().max(1.0);
        let message = format!("too many failed sign-ins from this address, wait {seconds} seconds");
        Self::new(Reason::Throttled, sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, message)
    }

    /// For a client that proved who it is.
    pub(crate) fn name_too_long() -> Self {
        Self::new(
            Reason::Unsupported,
            sqlstate::INVALID_CATALOG_NAME,
            format!("no database has a name of more than {ROLE_LENGTH_MAX} bytes"),
        )
    }

    pub(crate) fn server_lost() -> Self {
        Self::new(
            Reason::NotReady,
            sqlstate::CANNOT_CONNECT_NOW,
            "the connection to the branch's server was lost",
        )
        .with_hint("Try again in a moment.")
    }

    /// For a client whose session ended while it needed it.
    pub(crate) fn session_lost() -> Self {
        Self::new(
            Reason::NotReady,
            sqlstate::CONNECTION_FAILURE,
            "the session on the branch's server was lost, and with it what was not committed",
        )
        .with_hint("Connect again and repeat the transaction.")
    }

    /// For a client that has waited too long for a session of its branch's pool.
    pub(crate) fn pool_exhausted(taken: usize, kept: usize, waiting: usize) -> Self {
        let message = format!(
            "no session of the branch's pool became free in time: {taken} are in use, {kept} of them kept by their clients, and {waiting} more clients wait"
        );
        Self::new(Reason::TooMany, sqlstate::TOO_MANY_CONNECTIONS, message).with_hint(
            "Make transactions shorter, use fewer clients at once, or raise max_connections, of which a pool takes half.",
        )
    }

    /// For a client that proved who it is, so it may know the state.
    pub(crate) fn not_ready(branch: &BranchId, route: &Route) -> Self {
        let state = route.state.title().to_lowercase();
        let because = if route.message.is_empty() { String::new() } else { format!(": {}", route.message) };
        if let Some(used_up) = &route.used_up {
            let message = format!("branch {branch} has to sleep: {}", used_up.reason());
            return Self::new(Reason::Asleep, sqlstate::CONFIGURATION_LIMIT_EXCEEDED, message)
                .with_hint(used_up.remedy());
        }
        let (reason, code, hint) = match route.state {
            // Nothing that the client could do changes the reason.
            BranchState::Hibernated if !route.message.is_empty() => {
                (Reason::Asleep, sqlstate::ADMIN_SHUTDOWN, "Ask whoever runs this platform.")
            }
            BranchState::Hibernated => (
                Reason::Asleep,
                sqlstate::ADMIN_SHUTDOWN,
                "Wake the branch first, or turn its scale-to-zero on so that connections wake it.",
            ),
            BranchState::Creating
            | BranchState::Ready
            | BranchState::Hibernating
            | BranchState::Waking
            | BranchState::Updating
            | BranchState::Upgrading
            | BranchState::Failed
            | BranchState::Unknown
            | BranchState::Deleted => (Reason::NotReady, sqlstate::CANNOT_CONNECT_NOW, "Try again later."),
        };
        Self::new(reason, code, format!("branch {branch} is not ready ({state}){because}")).with_hint(hint)
    }

    /// For a client that nobody could be asked about.
    pub(crate) fn not_ready_for_strangers() -> Self {
        Self::new(Reason::NotReady, sqlstate::CANNOT_CONNECT_NOW, "the branch is not ready")
            .with_hint("Try again later; the state of the branch tells what is going on.")
    }

    /// An exchange that went wrong before the proof was looked at, so the same
    /// for those who exist and those who don't.
    pub(crate) fn scram(error: ScramError, user_as_sent: &str) -> Self {
        match error {
            ScramError::Malformed(_) => {
                Self::new(Reason::Protocol, sqlstate::PROTOCOL_VIOLATION, error.to_string())
            }
            ScramError::ChannelBinding => Self::new(
                Reason::NotAllowed,
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                error.to_string(),
            ),
            ScramError::WrongProof => Self::wrong_password(user_as_sent),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let (reason, code) = match &error {
            Error::Invalid { .. } | Error::NotFound { .. } => {
                (Reason::NoBranch, sqlstate::SQLSERVER_REJECTED_ESTABLISHMENT_OF_SQLCONNECTION)
            }
            Error::Forbidden { .. } | Error::InsufficientScope { .. } | Error::Unauthenticated { .. } => {
                (Reason::NotAllowed, sqlstate::INVALID_AUTHORIZATION_SPECIFICATION)
            }
            Error::Conflict { .. }
            | Error::NotReady { .. }
            | Error::Unavailable { .. }
            | Error::Timeout { .. } => (Reason::NotReady, sqlstate::CANNOT_CONNECT_NOW),
            Error::TooMany { .. } => (Reason::TooMany, sqlstate::TOO_MANY_CONNECTIONS),
            Error::ProviderFailed { .. } | Error::Internal { .. } => {
                (Reason::Internal, sqlstate::INTERNAL_ERROR)
            }
        };
        if let Some(cause) = error.private() {
            tracing::warn!(code, "the platform failed a client: {cause}");
        }
        Self::new(reason, code, error.to_string())
    }
}
