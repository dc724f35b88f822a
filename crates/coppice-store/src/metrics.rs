//! What is counted of the metastore.

use std::time::Instant;

use coppice_pgwire::sqlstate;
use metrics::{counter, describe_counter, describe_histogram, histogram};

const ERRORS: &str = "coppice_metastore_errors_total";
const READ_DURATION: &str = "coppice_metastore_read_duration_seconds";

/// Why a statement failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// There was no connection, or it broke.
    Connection,
    /// No connection became free in time.
    Busy,
    /// A rule of the schema said no, which callers expect of some statements.
    Constraint,
    /// The server refused it for another reason.
    Statement,
    /// An answer that is not understood.
    Other,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Connection, Self::Busy, Self::Constraint, Self::Statement, Self::Other];

    fn label(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Busy => "busy",
            Self::Constraint => "constraint",
            Self::Statement => "statement",
            Self::Other => "other",
        }
    }

    fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolClosed => Self::Connection,
            sqlx::Error::PoolTimedOut => Self::Busy,
            sqlx::Error::Database(said) => match said.code().as_deref() {
                // Classes of PostgreSQL's error codes (its manual, appendix A).
                Some(code) if code.starts_with("23") => Self::Constraint,
                Some(code) if code.starts_with("08") || code.starts_with("57P") => Self::Connection,
                Some(sqlstate::TOO_MANY_CONNECTIONS) => Self::Busy,
                Some(_) | None => Self::Statement,
            },
            _ => Self::Other,
        }
    }
}

/// Says what is counted here, and begins with zero.
pub(crate) fn describe() {
    describe_counter!(ERRORS, "Statements on the metastore that failed, by kind.");
    describe_histogram!(
        READ_DURATION,
        "Seconds that a single reading statement took, with its wait for a connection."
    );
    for kind in Kind::ALL {
        counter!(ERRORS, "kind" => kind.label()).absolute(0);
    }
    // Histograms are there as soon as somebody has asked for them.
    let _ = histogram!(READ_DURATION);
}

pub(crate) fn failed(error: &sqlx::Error) {
    counter!(ERRORS, "kind" => Kind::of(error).label()).increment(1);
}

pub(crate) fn read(began: Instant) {
    histogram!(READ_DURATION).record(began.elapsed());
}
