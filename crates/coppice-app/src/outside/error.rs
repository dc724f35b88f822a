//! Why somebody could not sign in at the provider.

/// Each is a page of its own; the causes are for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutsideError {
    /// It does not answer, or not in time.
    #[error("the provider does not answer: {0}")]
    Unreachable(String),
    /// It answers with something that can't be accepted; most often either side is set up wrongly.
    #[error("the provider's answer can't be accepted: {0}")]
    Broken(String),
    /// It said no, or the person did, there; with its error code.
    #[error("the provider refused: {0}")]
    Refused(String),
    /// The answer belongs to no attempt of this browser, or comes too late.
    #[error("the answer belongs to no attempt of this browser: {0}")]
    Foreign(String),
    /// It does not vouch for the person's email address.
    #[error("the provider does not vouch for an email address")]
    Unverified,
}

/// A result of this module.
pub(crate) type Result<T> = std::result::Result<T, OutsideError>;

/// What can't be accepted, with the cause.
pub(crate) fn broken(cause: impl std::fmt::Display) -> OutsideError {
    OutsideError::Broken(cause.to_string())
}
