//! What is counted of clients.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, histogram};
use tokio::time::Instant;

use crate::reason::Reason;

const CONNECTIONS: &str = "coppice_gateway_connections_total";
const REFUSED: &str = "coppice_gateway_refused_total";
const STARTUP: &str = "coppice_gateway_startup_duration_seconds";
const WAKE: &str = "coppice_gateway_wake_duration_seconds";
const EXCUSED: &str = "coppice_gateway_pool_refused_total";
const CANCELS: &str = "coppice_gateway_cancel_requests_total";

/// Says what the gateway counts, and begins with zero.
pub(crate) fn describe() {
    describe_counter!(CONNECTIONS, "Connections that clients opened.");
    describe_counter!(REFUSED, "Connections that got no session, by reason.");
    describe_histogram!(STARTUP, "Seconds from a connection to its session, wakes included.");
    describe_histogram!(WAKE, "Seconds from the moment a client woke a branch to the client's session.");
    describe_counter!(EXCUSED, "Transactions of pooled clients that got no session, by reason.");
    describe_counter!(CANCELS, "Cancel requests by outcome.");
    counter!(CONNECTIONS).absolute(0);
    for reason in Reason::ALL {
        counter!(REFUSED, "reason" => reason.label()).absolute(0);
    }
    for reason in Reason::PASSING {
        counter!(EXCUSED, "reason" => reason.label()).absolute(0);
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

/// A pooled client that stays got no session for what it asked.
pub(crate) fn excused(reason: Reason) {
    counter!(EXCUSED, "reason" => reason.label()).increment(1);
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
