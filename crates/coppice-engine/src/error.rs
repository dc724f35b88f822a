//! What can go wrong while making a branch real.

use std::io::ErrorKind;

use coppice_core::{Error, InstanceId, VolumeId};
use tokio_postgres::error::SqlState;

/// A result of the engine.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Characters of an error that anybody reads.
const CHAIN_LENGTH_MAX: usize = 1000;

/// Why the engine could not do a step.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A newer claim has acted on the volume: the caller must stop.
    #[error("a newer claim acts on volume {0}")]
    Fenced(VolumeId),
    /// No image of this release is installed.
    #[error("PostgreSQL {0} is not installed on this machine")]
    NoImage(coppice_core::image::PostgresVersion),
    /// The volume is not there.
    #[error("volume {0} is missing")]
    NoVolume(VolumeId),
    /// The data is laid out in a way that can't be copied as one piece.
    #[error("volume {volume} can't be copied: {reason}")]
    NotCopyable {
        /// The volume.
        volume: VolumeId,
        /// For example: it has tablespaces.
        reason: String,
    },
    /// Its server starts, stops or has just died: what is on disk changes, and
    /// nobody can be asked about it.
    #[error("the server of volume {0} is neither up nor down: it can't be copied now")]
    SourceUnsettled(VolumeId),
    /// No server of this instance answers.
    #[error("instance {0} is not running")]
    NotRunning(InstanceId),
    /// The server said nothing for as long as it may take; what was being done.
    #[error("{0}: the server does not answer in time")]
    NoAnswer(String),
    /// The server did not come up; `log` holds the last lines it wrote.
    #[error("instance {instance} did not start: {reason}")]
    StartFailed {
        /// The instance.
        instance: InstanceId,
        /// The most telling line of its log, or how it ended.
        reason: String,
    },
    /// Something that can't be ended while the server runs keeps the platform
    /// waiting.
    #[error("something on instance {instance} can't be ended while it runs")]
    Held {
        /// The instance.
        instance: InstanceId,
        /// Prepared transactions, by their ids; none when it is a session.
        transactions: Vec<u32>,
    },
    /// The data can't be taken to another major version as it is: why, for its owner.
    #[error("{0}")]
    NotUpgradable(String),
    /// What was kept is not what was written: which of it, and what is wrong.
    #[error("{0}")]
    Damaged(String),
    /// The log of a volume has gone on without being kept, again and again.
    #[error("its write-ahead log went on without being kept: its history begins anew in a minute")]
    HistoryLost,
    /// There is no room left.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// A system call, command or file operation failed.
    #[error("{action}")]
    Io {
        /// What was being done, for example `mounting the pool`.
        action: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A statement on a platform session failed.
    #[error("{action}")]
    Sql {
        /// What was being done.
        action: String,
        /// Why it failed.
        #[source]
        source: tokio_postgres::Error,
    },
    /// Anything else, in a sentence.
    #[error("{0}")]
    Other(String),
}

/// Whoever asked is told of a fault of the platform's, and its log why.
impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::internal(error.chain())
    }
}

impl EngineError {
    /// A server said nothing in time to what it was asked.
    pub(crate) fn no_answer() -> Self {
        Self::NoAnswer("asking a server".to_owned())
    }

    /// For `map_err`: says what was being done, and tells a full disk from other trouble.
    pub fn io<E: Into<std::io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| {
            let (action, source) = (action.into(), source.into());
            match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::NoSpace(action),
                _ => Self::Io { action, source },
            }
        }
    }

    /// For `map_err`: wraps an SQL error with what was being done.
    pub fn sql(action: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Self {
        move |source| Self::Sql { action: action.into(), source }
    }

    /// Whether a server had no room for one more lock, or no memory.
    pub(crate) fn is_want_of_locks(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if source.code() == Some(&SqlState::OUT_OF_MEMORY))
    }

    /// Whether somebody else had a lock for too long.
    pub(crate) fn is_wait_for_lock(&self) -> bool {
        matches!(self, Self::Sql { source, .. } if source.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// What has all locks of a server holds up the platform as what has one that it needs does.
    pub(crate) fn or_held(self, instance: &InstanceId) -> Self {
        match self.is_want_of_locks() {
            true => Self::Held { instance: instance.clone(), transactions: vec![] },
            false => self,
        }
    }

    /// The chain of causes in one line of a bounded length. What a server said
    /// is among them: it can't begin a line of its own, or colour a terminal.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        let one_line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut short: String = one_line.clone().take(CHAIN_LENGTH_MAX).collect();
        if one_line.count() > CHAIN_LENGTH_MAX {
            short.push('…');
        }
        short
    }
}
