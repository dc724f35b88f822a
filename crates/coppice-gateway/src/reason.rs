//! Why clients get no session, as it is counted.

/// Why a client got no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Wrong password, unknown role or unknown branch.
    Authentication,
    /// Too many failed sign-ins came from its address.
    Throttled,
    /// The way it came: without TLS, or from an address that may not connect.
    NotAllowed,
    /// There is no place left.
    TooMany,
    /// The branch is not ready, or its server was lost.
    NotReady,
    /// Its startup took too long.
    Timeout,
    /// The branch sleeps, and a connection may not wake it.
    Asleep,
    /// Bytes that are not the protocol.
    Protocol,
    /// It does not say which branch it wants.
    NoBranch,
    /// It wants what there is not.
    Unsupported,
    /// A fault of the platform.
    Internal,
    /// The branch's own server said no.
    Server,
    /// The client went away.
    Gone,
    /// It never said what it wants.
    NoStartup,
}

impl Reason {
    /// Those for which a client of a pool stays connected.
    pub(crate) const PASSING: [Self; 4] = [Self::TooMany, Self::NotReady, Self::Timeout, Self::Asleep];

    pub(crate) const ALL: [Self; 14] = [
        Self::Authentication,
        Self::Throttled,
        Self::NotAllowed,
        Self::TooMany,
        Self::NotReady,
        Self::Timeout,
        Self::Asleep,
        Self::Protocol,
        Self::NoBranch,
        Self::Unsupported,
        Self::Internal,
        Self::Server,
        Self::Gone,
        Self::NoStartup,
    ];

    /// Whether it may be otherwise soon, for a client that is let in.
    pub(crate) fn may_change(self) -> bool {
        Self::PASSING.contains(&self)
    }

    /// How it is called in `/metrics`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::Throttled => "throttled",
            Self::NotAllowed => "not_allowed",
            Self::TooMany => "too_many",
            Self::NotReady => "not_ready",
            Self::Timeout => "timeout",
            Self::Asleep => "asleep",
            Self::Protocol => "protocol",
            Self::NoBranch => "no_branch",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
            Self::Server => "server",
            Self::Gone => "gone",
            Self::NoStartup => "no_startup",
        }
    }
}
