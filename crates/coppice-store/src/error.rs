//! What can go wrong with the metastore.

use coppice_core::Error;
use coppice_pgwire::sqlstate;

/// Why a statement was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The metastore was migrated by a newer program.
    #[error(
        "the metastore has migration {version}, which this version of coppice does not know: \
         install the version that was last used with it"
    )]
    NewerSchema {
        /// The unknown migration.
        version: i64,
    },
    /// A migration failed.
    #[error("migrating the metastore")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// A statement failed.
    #[error("metastore: {0}")]
    Sql(#[source] sqlx::Error),
    /// An export was made by a newer program.
    #[error(
        "the export has schema {version}, which this version of coppice does not know: \
         import it with the version that made it, or a newer one (nothing was changed)"
    )]
    NewerExport {
        /// The unknown migration.
        version: i64,
    },
    /// An import needs a metastore without tables.
    #[error("the metastore is not empty: import into a new database (nothing was changed)")]
    NotEmpty,
    /// A file is no export, or not a whole one.
    #[error("the export can't be used: {why} (nothing was changed)")]
    UnusableExport {
        /// What is wrong with it.
        why: String,
    },
    /// An export could not be read or written.
    #[error("reading or writing an export: {0}")]
    ExportFile(#[from] std::io::Error),
    /// A row holds a value this program does not know.
    #[error("the metastore holds an unknown {what}: {value}")]
    UnknownValue {
        /// Which column.
        what: &'static str,
        /// Its value.
        value: String,
    },
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        crate::metrics::failed(&error);
        Self::Sql(error)
    }
}

impl StoreError {
    /// Whether a unique index refused the row.
    pub fn is_unique_violation(&self, constraint: &str) -> bool {
        match self {
            Self::Sql(sqlx::Error::Database(error)) => {
                error.is_unique_violation() && error.constraint() == Some(constraint)
            }
            Self::Sql(_)
            | Self::NewerSchema { .. }
            | Self::Migration(_)
            | Self::NewerExport { .. }
            | Self::NotEmpty
            | Self::UnusableExport { .. }
            | Self::ExportFile(_)
            | Self::UnknownValue { .. } => false,
        }
    }
}

/// What a metastore says that can't serve now: it is being stopped, has crashed
/// or is not up yet, or has no connection left.
const AWAY: [&str; 4] = [
    sqlstate::ADMIN_SHUTDOWN,
    sqlstate::CRASH_SHUTDOWN,
    sqlstate::CANNOT_CONNECT_NOW,
    sqlstate::TOO_MANY_CONNECTIONS,
];

/// Whether the metastore said that it can't serve now.
fn is_away(error: &dyn sqlx::error::DatabaseError) -> bool {
    error.code().is_some_and(|code| AWAY.contains(&&*code))
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Sql(sqlx::Error::Database(said)) if is_away(&**said) => Self::unavailable(&error),
            StoreError::Sql(
                sqlx::Error::Io(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::Tls(_),
            ) => Self::unavailable(&error),
            StoreError::Sql(_)
            | StoreError::NewerSchema { .. }
            | StoreError::Migration(_)
            | StoreError::NewerExport { .. }
            | StoreError::NotEmpty
            | StoreError::UnusableExport { .. }
            | StoreError::ExportFile(_)
            | StoreError::UnknownValue { .. } => Self::internal(&error),
        }
    }
}
