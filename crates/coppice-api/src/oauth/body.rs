//! Bodies of requests; one that can't be read is refused in the words of who
//! sent it.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::Response;
use coppice_oauth::OAuthError;

use super::error;
use crate::pages::{self, Message};

/// What a client sends.
#[derive(Debug)]
pub(super) struct ClientBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for ClientBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let read = Bytes::from_request(request, state).await;
        read.map(Self).map_err(|unread| {
            let description = match unread.status() {
                StatusCode::PAYLOAD_TOO_LARGE => "the body is too large",
                _ => "the body did not come to its end",
            };
            error::refused(&OAuthError::invalid_request(description))
        })
    }
}

/// What a page sends.
#[derive(Debug)]
pub(super) struct PageBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for PageBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let read = Bytes::from_request(request, state).await;
        read.map(Self).map_err(|unread| {
            let what = match unread.status() {
                StatusCode::PAYLOAD_TOO_LARGE => "Nothing was changed: what you sent is too large.",
                _ => "Nothing was changed: what you sent did not arrive whole.",
            };
            let next = "Go back, load the page again, and try once more.";
            pages::error(
                unread.status(),
                &Message { title: "That did not work", what, next, ..Message::default() },
            )
        })
    }
}
