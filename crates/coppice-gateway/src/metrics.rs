//! What is counted of clients.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, histogram};
use tokio::time::Instant;

use crate::refusal::End;

const CONNECTIONS: &str = "coppice_gateway_connections_total";
const REFUSED: &str = "coppice_gateway_refused_total";
const STARTUP: &str = "coppice_gateway_startup_duration_seconds";
const WAKE: &str = "coppice_gateway_wake_duration_seconds";
const CANCELS: &str = "coppice_gateway_cancel_requests_total";

/// Why a client got no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
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
    const ALL: [Self; 14] = [
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

    fn label(self) -> &'static str {
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

/// Says what the gateway counts, and begins with zero.
pub(crate) fn describe() {
    describe_counter!(CONNECTIONS, "Connections that clients opened.");
    describe_counter!(REFUSED, "Connections that got no session, by reason.");
    describe_histogram!(STARTUP, "Seconds from a connection to its session, wakes included.");
    describe_histogram!(WAKE, "Seconds from the moment a client woke a branch to the client's session.");
    describe_counter!(CANCELS, "Cancel requests by outcome.");
    counter!(CONNECTIONS).absolute(0);
    for reason in Reason::ALL {
        counter!(REFUSED, "reason" => reason.label()).absolute(0);
    }
    for outcome in ["passed_on", "unknown", "throttled", "timeout"] {
        counter!(CANCELS, "outcome" => outcome).absolute(0);
    }
    // Histograms are there as soon as somebody has asked for them.
    let _ = (histogram!(STARTUP), histogram!(WAKE));
}

pub(crate) fn connected() {
    counter!(CONNECTIONS).increment(1);
}

pub(crate) fn refused(reason: Reason) {
    counter!(REFUSED, "reason" => reason.label()).increment(1);
}

pub(crate) fn ended(end: &End) {
    refused(match end {
        End::Gone(_) => Reason::Gone,
        End::Refused(refusal) => refusal.reason,
        End::RefusedByServer(_) => Reason::Server,
    });
}

/// A client has its session, `took` after it connected; if it woke the branch,
/// that was at `woken`.
pub(crate) fn begun(took: Duration, woken: Option<Instant>) {
    histogram!(STARTUP).record(took);
    if let Some(woken) = woken {
        histogram!(WAKE).record(woken.elapsed());
    }
}

pub(crate) fn cancelled(outcome: &'static str) {
    counter!(CANCELS, "outcome" => outcome).increment(1);
}
