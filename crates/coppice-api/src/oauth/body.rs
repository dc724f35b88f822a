//! What requests bring, in their bodies and queries; what can't be read is
//! refused in the words of who sent it.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use coppice_oauth::OAuthError;
use coppice_oauth::params::Params;
use zeroize::Zeroizing;

use super::error;
use crate::arrival::{Received, STRANGERS, Unread};
use crate::pages::{self, Message};

/// What a client sends.
#[derive(Debug)]
pub(super) struct ClientBody(pub(super) Received<'static>);

impl<S: Send + Sync> FromRequest<S> for ClientBody {
    type Rejection = Response;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Self::Rejection> {
        STRANGERS.read(request.into_body()).await.map(Self).map_err(|unread| {
            if let Some(error) = unread.error() {
                return error::failed(error);
            }
            let description = match unread {
                Unread::TooLarge => "the body is too large",
                _ => "the body did not come to its end",
            };
            error::refused(&OAuthError::invalid_request(description))
        })
    }
}

/// The query of a page's address.
#[derive(Debug)]
pub(super) struct PageQuery(pub(super) Params);

impl<S: Send + Sync> FromRequestParts<S> for PageQuery {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let query = parts.uri.query().unwrap_or_default();
        Params::parse(query.as_bytes()).map(Self).map_err(|refusal| error::wrong_request(&refusal))
    }
}

/// The form that a page sends.
#[derive(Debug)]
pub(super) struct PageForm(pub(super) Params);

impl<S: Send + Sync> FromRequest<S> for PageForm {
    type Rejection = Response;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Self::Rejection> {
        let body = STRANGERS.read(request.into_body()).await.map_err(|unread| {
            if let Some(error) = unread.error() {
                return error::page(&error);
            }
            let (status, what) = match unread {
                Unread::TooLarge => {
                    (StatusCode::PAYLOAD_TOO_LARGE, "Nothing was changed: what you sent is too large.")
                }
                _ => (StatusCode::BAD_REQUEST, "Nothing was changed: what you sent did not arrive whole."),
            };
            let next = "Go back, load the page again, and try once more.";
            pages::error(status, &Message { title: "That did not work", what, next, ..Message::default() })
        })?;
        Params::parse(&body).map(Self).map_err(|refusal| error::wrong_request(&refusal))
    }
}

/// A field of a form that is a secret.
pub(super) fn secret(form: &Params, name: &str) -> Zeroizing<String> {
    Zeroizing::new(form.get(name).unwrap_or_default().to_owned())
}
