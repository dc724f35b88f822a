//! Errors as clients are told them.

/// The codes of RFC 6749, 7009, 7591, 8628, 8707 and OpenID Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name that clients see says it all")]
pub enum OAuthErrorCode {
    InvalidRequest,
    InvalidClient,
    InvalidGrant,
    UnauthorizedClient,
    UnsupportedGrantType,
    UnsupportedResponseType,
    UnsupportedTokenType,
    AccessDenied,
    LoginRequired,
    ConsentRequired,
    RequestNotSupported,
    RequestUriNotSupported,
    AuthorizationPending,
    SlowDown,
    ExpiredToken,
    InvalidRedirectUri,
    InvalidClientMetadata,
    TemporarilyUnavailable,
    ServerError,
    InvalidScope,
    InvalidTarget,
}

impl OAuthErrorCode {
    /// The name that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidClient => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::UnauthorizedClient => "unauthorized_client",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::UnsupportedTokenType => "unsupported_token_type",
            Self::AccessDenied => "access_denied",
            Self::LoginRequired => "login_required",
            Self::ConsentRequired => "consent_required",
            Self::RequestNotSupported => "request_not_supported",
            Self::RequestUriNotSupported => "request_uri_not_supported",
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown => "slow_down",
            Self::ExpiredToken => "expired_token",
            Self::InvalidRedirectUri => "invalid_redirect_uri",
            Self::InvalidClientMetadata => "invalid_client_metadata",
            Self::TemporarilyUnavailable => "temporarily_unavailable",
            Self::ServerError => "server_error",
            Self::InvalidScope => "invalid_scope",
            Self::InvalidTarget => "invalid_target",
        }
    }
}

/// Why a client does not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {description}", code.as_str())]
pub struct OAuthError {
    /// For programs.
    pub code: OAuthErrorCode,
    /// For the people who write them; ASCII without quotes.
    pub description: String,
}

impl OAuthError {
    /// An error with its description.
    pub fn new(code: OAuthErrorCode, description: impl Into<String>) -> Self {
        Self { code, description: description.into() }
    }

    /// `invalid_request`
    pub fn invalid_request(description: impl Into<String>) -> Self {
        Self::new(OAuthErrorCode::InvalidRequest, description)
    }

    /// `invalid_grant`
    pub fn invalid_grant(description: impl Into<String>) -> Self {
        Self::new(OAuthErrorCode::InvalidGrant, description)
    }

    /// `invalid_client`, which never says what was wrong.
    pub fn invalid_client() -> Self {
        Self::new(OAuthErrorCode::InvalidClient, "the client is unknown, or did not prove who it is")
    }
}
