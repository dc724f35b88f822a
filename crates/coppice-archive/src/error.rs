//! What can go wrong with a store.

/// A result of the archive.
pub type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// Why something could not be written to a store, or read from it.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The setting names no store.
    #[error("{0}")]
    Place(String),
    /// The bucket or directory does not do what it is asked.
    #[error("{action} in the store: {source}")]
    Store {
        /// For example `reading packs/0a…`.
        action: String,
        /// Why. Names no credentials.
        #[source]
        source: object_store::Error,
    },
    /// The bucket or directory does not answer.
    #[error("{action} in the store: it did not answer within {seconds} seconds")]
    Silent {
        /// As above.
        action: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A file of the source or the target fails.
    #[error("{action}")]
    File {
        /// For example `reading base/5/1259`.
        action: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no store of ours.
    #[error("there is no coppice.json: this is no store of coppice, or its prefix is another one")]
    NoStore,
    /// Another key made the store.
    #[error(
        "the store was made with another key: name the secret.key of the installation {0}, or give each installation \
         a bucket or a prefix of its own"
    )]
    WrongKey(String),
    /// A later release made the store.
    #[error("the store has format {0}, which this program does not know: use a newer one")]
    UnknownFormat(u32),
    /// Somebody else's store.
    #[error("the store belongs to installation {0}: give each installation a bucket or a prefix of its own")]
    OtherInstallation(String),
    /// Another process took the store over.
    #[error("another process has taken the store over: this one writes to it no more")]
    TakenOver,
    /// What is there is not what was written.
    #[error("{object} is damaged: {why}")]
    Damaged {
        /// Which object; of a pack also which block, and of which file.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store does not have what a moment needs.
    #[error("{0}")]
    OutOfReach(String),
    /// The data is laid out in a way that no database is.
    #[error("{0}")]
    Refused(String),
}

impl ArchiveError {
    /// An object is not what was written, or lacks something that goes with it.
    pub(crate) fn damaged(object: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { object: object.into(), why: why.into() }
    }

    pub(crate) fn store(action: impl Into<String>) -> impl FnOnce(object_store::Error) -> Self {
        |source| Self::Store { action: action.into(), source }
    }

    pub(crate) fn file(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        |source| Self::File { action: action.into(), source }
    }

    /// The whole chain as one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        // The others have their source in their own words.
        if let Self::File { source, .. } = self {
            text = format!("{text}: {source}");
        }
        text
    }
}
