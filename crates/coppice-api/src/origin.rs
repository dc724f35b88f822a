//! Where a request comes from, for the audit log.

use axum::extract::FromRequestParts;
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;
use coppice_core::audit::RequestOrigin;

use crate::client_address::client_address;
use crate::context;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ClientOrigin(pub(crate) RequestOrigin);

impl ClientOrigin {
    /// What the parts of a request tell.
    pub(crate) fn of(parts: &Parts) -> Self {
        let user_agent = parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
        Self(RequestOrigin {
            address: Some(client_address(parts)),
            user_agent: user_agent.map(str::to_owned),
            request_id: Some(context::request_id()),
        })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ClientOrigin {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self::of(parts))
    }
}
