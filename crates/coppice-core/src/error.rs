//! The one error every layer above the engine speaks.
//!
//! The public sentence and the private context live in different fields: the
//! first reaches the client, the second only the log. Two edges translate it:
//! the API to a status and a stable `id`, the gateway to a SQLSTATE.

use std::borrow::Cow;

use crate::ErrorCode;

/// A result with the platform's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with its causes, in one line. A cause that stands in the text
/// already is not repeated: some errors tell theirs themselves.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// When to come again to a platform that can't work now, in seconds.
pub const UNAVAILABLE_SECONDS: u32 = 30;
/// When to come again to a branch that is being changed, in seconds; most
/// changes take less.
const CHANGE_SECONDS: u32 = 1;

/// Most characters of what a caller sent that a refusal says again.
const EXCERPT_LENGTH_MAX: usize = 64;

/// What a caller sent, as far as a refusal says it again.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(EXCERPT_LENGTH_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Why an operation was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The request can never work as it stands. `code` is the stable id of
    /// the API's error catalogue, for example `invalid_field`.
    #[error("{public}")]
    Invalid {
        /// Stable id of the error catalogue.
        code: ErrorCode,
        /// What is wrong, for the caller.
        public: String,
    },
    /// We know the caller, and the answer is no.
    #[error("{public}")]
    Forbidden {
        /// Stable id of the error catalogue.
        code: ErrorCode,
        /// What is missing, for the caller.
        public: String,
    },
    /// We know the caller, and its credential was not made for this.
    #[error("access denied: this credential lacks the scope {needed}")]
    InsufficientScope {
        /// The scope that is missing.
        needed: &'static str,
    },
    /// The caller may look here, and there is nothing.
    #[error("{public}")]
    NotFound {
        /// Stable id of the error catalogue.
        code: ErrorCode,
        /// What was not found, for the caller.
        public: String,
    },
    /// It may work later: another state is needed first.
    #[error("{public}")]
    Conflict {
        /// Stable id of the error catalogue.
        code: ErrorCode,
        /// What stands in the way, for the caller.
        public: String,
    },
    /// Something this one depends on is not ready yet.
    #[error("{public}")]
    NotReady {
        /// Stable id of the error catalogue.
        code: ErrorCode,
        /// What is not ready, for the caller.
        public: String,
    },
    /// More was asked for than is allowed in this span of time.
    #[error("{public}")]
    TooMany {
        /// Stable id of the error catalogue.
        code: ErrorCode,
        /// Which rate was exceeded, for the caller.
        public: String,
        /// Whole seconds until a retry makes sense.
        retry_after_seconds: u32,
    },
    /// No credential, or one that we don't accept.
    #[error("invalid API key")]
    Unauthenticated {
        /// `missing_token`, `invalid_token` or `expired_token`.
        code: ErrorCode,
    },
    /// Nothing is wrong with the request; it is safe to try again.
    #[error("service unavailable, try again later")]
    Unavailable {
        /// The cause, for the log.
        private: String,
    },
    /// An internal call took longer than its deadline.
    #[error("internal call took too long")]
    Timeout {
        /// The cause, for the log.
        private: String,
    },
    /// Somebody else whom this needs did not do what was asked.
    #[error("{provider} request failed")]
    ProviderFailed {
        /// Who, for the caller.
        provider: &'static str,
        /// The cause, for the log.
        private: String,
    },
    /// Our fault, or a broken disk.
    #[error("internal error")]
    Internal {
        /// The cause, for the log.
        private: String,
    },
}

/// Of which kind an error is, without what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// [`Error::Invalid`]
    Invalid,
    /// [`Error::Unauthenticated`]
    Unauthenticated,
    /// [`Error::Forbidden`] and [`Error::InsufficientScope`]
    Forbidden,
    /// [`Error::NotFound`]
    NotFound,
    /// [`Error::Conflict`]
    Conflict,
    /// [`Error::NotReady`]
    NotReady,
    /// [`Error::TooMany`]
    TooMany,
    /// [`Error::Internal`]
    Internal,
    /// [`Error::ProviderFailed`]
    ProviderFailed,
    /// [`Error::Unavailable`]
    Unavailable,
    /// [`Error::Timeout`]
    Timeout,
}

names!(ErrorKind {
    Invalid = "invalid",
    Unauthenticated = "unauthenticated",
    Forbidden = "forbidden",
    NotFound = "not_found",
    Conflict = "conflict",
    NotReady = "not_ready",
    TooMany = "too_many",
    Internal = "internal",
    ProviderFailed = "provider_failed",
    Unavailable = "unavailable",
    Timeout = "timeout",
});

impl Error {
    /// An [`Error::Invalid`] about one field: `invalid <field>: <why>`.
    pub fn invalid_field(field: &str, why: impl std::fmt::Display) -> Self {
        Self::Invalid { code: ErrorCode::InvalidField, public: format!("invalid {field}: {why}") }
    }

    /// An [`Error::Invalid`] about one parameter of the query.
    pub fn invalid_query(name: &str, why: impl std::fmt::Display) -> Self {
        Self::Invalid {
            code: ErrorCode::InvalidQueryParameter,
            public: format!("invalid query parameter {name}: {why}"),
        }
    }

    /// An [`Error::Invalid`] with another id of the catalogue.
    pub fn invalid(code: ErrorCode, public: impl Into<String>) -> Self {
        Self::Invalid { code, public: public.into() }
    }

    /// An [`Error::Forbidden`]; `reason` completes `access denied: `.
    pub fn access_denied(code: ErrorCode, reason: impl std::fmt::Display) -> Self {
        Self::Forbidden { code, public: format!("access denied: {reason}") }
    }

    /// An [`Error::NotFound`] for a record, `<kind> <id> not found`, with the
    /// id `<kind>_not_found`.
    pub fn project_not_found(id: impl std::fmt::Display) -> Self {
        Self::NotFound { code: ErrorCode::ProjectNotFound, public: format!("project {id} not found") }
    }

    /// As [`Error::project_not_found`], for a branch.
    pub fn branch_not_found(id: impl std::fmt::Display) -> Self {
        Self::NotFound { code: ErrorCode::BranchNotFound, public: format!("branch {id} not found") }
    }

    /// As [`Error::branch_not_found`], for what is kept of a branch.
    pub fn backup_not_found(id: impl std::fmt::Display) -> Self {
        Self::NotFound { code: ErrorCode::BackupNotFound, public: format!("backup {id} not found") }
    }

    /// An [`Error::Internal`] that keeps the whole chain of causes for the log.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        Self::Internal { private: cause.to_string() }
    }

    /// An [`Error::Unavailable`] with its cause for the log.
    pub fn unavailable(cause: impl std::fmt::Display) -> Self {
        Self::Unavailable { private: cause.to_string() }
    }

    /// What kind of error it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Unauthenticated { .. } => ErrorKind::Unauthenticated,
            Self::Forbidden { .. } | Self::InsufficientScope { .. } => ErrorKind::Forbidden,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::NotReady { .. } => ErrorKind::NotReady,
            Self::TooMany { .. } => ErrorKind::TooMany,
            Self::Internal { .. } => ErrorKind::Internal,
            Self::ProviderFailed { .. } => ErrorKind::ProviderFailed,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Timeout { .. } => ErrorKind::Timeout,
        }
    }

    /// The stable id of the API's error catalogue.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { code, .. }
            | Self::Forbidden { code, .. }
            | Self::NotFound { code, .. }
            | Self::Conflict { code, .. }
            | Self::NotReady { code, .. }
            | Self::TooMany { code, .. }
            | Self::Unauthenticated { code } => *code,
            Self::InsufficientScope { .. } => ErrorCode::InsufficientScope,
            Self::Unavailable { .. } => ErrorCode::Unavailable,
            Self::Timeout { .. } => ErrorCode::UpstreamTimeout,
            Self::ProviderFailed { .. } => ErrorCode::ProviderFailed,
            Self::Internal { .. } => ErrorCode::InternalError,
        }
    }

    /// Whole seconds until a retry makes sense, where that is known.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Self::TooMany { retry_after_seconds, .. } => Some(*retry_after_seconds),
            Self::Unavailable { .. } => Some(UNAVAILABLE_SECONDS),
            Self::Conflict { code: ErrorCode::BranchBusy, .. }
            | Self::NotReady { code: ErrorCode::ParentNotReady, .. } => Some(CHANGE_SECONDS),
            Self::Invalid { .. }
            | Self::Unauthenticated { .. }
            | Self::Forbidden { .. }
            | Self::InsufficientScope { .. }
            | Self::NotFound { .. }
            | Self::Conflict { .. }
            | Self::NotReady { .. }
            | Self::Timeout { .. }
            | Self::ProviderFailed { .. }
            | Self::Internal { .. } => None,
        }
    }

    /// What a log says of it: the cause where callers are not told one, else
    /// what callers are told.
    pub fn for_log(&self) -> String {
        self.private().map_or_else(|| self.to_string(), str::to_owned)
    }

    /// The cause, for the log only.
    pub fn private(&self) -> Option<&str> {
        match self {
            Self::Unavailable { private }
            | Self::Timeout { private }
            | Self::ProviderFailed { private, .. }
            | Self::Internal { private } => Some(private),
            Self::Invalid { .. }
            | Self::Forbidden { .. }
            | Self::InsufficientScope { .. }
            | Self::NotFound { .. }
            | Self::Conflict { .. }
            | Self::NotReady { .. }
            | Self::TooMany { .. }
            | Self::Unauthenticated { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    #[test]
    fn causes_follow_in_one_line_and_none_is_told_twice() {
        let link = |text, source: Option<Link>| Link { text, source: source.map(Box::new) };
        let error = link("sending: refused", Some(link("refused", Some(link("port closed", None)))));
        assert_eq!(chain(&error), "sending: refused: port closed");
        assert_eq!(chain(&link("alone", None)), "alone");
    }

    #[test]
    fn a_refusal_says_again_no_more_than_an_excerpt() {
        assert_eq!(excerpt("postgres:17"), "postgres:17");
        assert_eq!(excerpt(&"é".repeat(64)), "é".repeat(64));
        assert_eq!(excerpt(&"é".repeat(900_000)), format!("{}…", "é".repeat(64)));
    }
}
