//! What can go wrong with a store.

use coppice_core::name::is_unseen;

/// A result of the archive.
pub type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// Why something could not be written to a store, or read from it.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The setting names no store.
    #[error("{0}")]
    Place(String),
    /// The bucket or directory does not do what it is asked.
    #[error("{action} in the store: {}", said(source))]
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

/// Most characters that count of what a store's server says.
const SAID_MAX: usize = 500;

/// What a store says, of which its server may have written any part: a line that moves no terminal's cursor.
fn said(error: &object_store::Error) -> String {
    let text = error.to_string();
    let plain = text.chars().map(|c| if is_unseen(c) { ' ' } else { c });
    plain.take(SAID_MAX).collect()
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

    /// What tenants may be told: what failed, without what the store's server says, which names the place and may name
    /// its credentials.
    pub fn for_tenants(&self) -> String {
        match self {
            Self::Store { action, source: object_store::Error::NotFound { .. } } => {
                format!("{action} in the store: it is not there")
            }
            Self::Store { action, .. } => format!("{action} in the store failed"),
            other => other.chain(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_one_short_line_and_tenants_are_told_none_of_it() {
        let source = format!("<Error>\u{1b}[31mAKIA\nforged {}", "x".repeat(9000));
        let source = object_store::Error::Generic { store: "S3", source: source.into() };
        let error = ArchiveError::store("reading packs/0a")(source);
        let told = error.chain();
        assert!(
            told.starts_with("reading packs/0a in the store: ") && told.contains("AKIA forged"),
            "{told}"
        );
        assert!(!told.contains(is_unseen) && told.chars().count() < SAID_MAX + 50, "{told}");
        assert_eq!(error.for_tenants(), "reading packs/0a in the store failed");
        let source = object_store::Error::NotFound { path: "pre/packs/0a".to_owned(), source: "AKIA".into() };
        let error = ArchiveError::store("reading packs/0a")(source);
        assert_eq!(error.for_tenants(), "reading packs/0a in the store: it is not there");
    }
}
