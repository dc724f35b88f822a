//! What requests bring, in their bodies and queries; what can't be read is
//! refused in the words of who sent it.

use axum::extract::{FromRef, FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use coppice_app::App;
use coppice_oauth::OAuthError;
use coppice_oauth::params::Params;
use zeroize::Zeroizing;

use super::browser::Browser;
use super::error;
use crate::arrival::{Received, STRANGERS, Senders, Unread, no_room};
use crate::pages::{self, Message};

/// What a client sends.
#[derive(Debug)]
pub(super) struct ClientBody(pub(super) Received<'static>);

impl<S: Send + Sync> FromRequest<S> for ClientBody {
    type Rejection = Response;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Self::Rejection> {
        let (parts, body) = request.into_parts();
        STRANGERS.read(body, Senders::of(&parts)).await.map(Self).map_err(|unread| match unread {
            Unread::NoRoom => error::failed(no_room()),
            Unread::Slow => error::impossible(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            Unread::TooLarge => error::refused(&OAuthError::invalid_request("the body is too large")),
            Unread::Broken => {
                error::refused(&OAuthError::invalid_request("the body did not come to its end"))
            }
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

/// The form that a page sends, and the browser that sends it. Who is signed in there is asked when all of the form is
/// here, for it comes when its sender likes, and meanwhile their session may have ended.
#[derive(Debug)]
pub(super) struct Posted(pub(super) Browser, pub(super) Params);

impl<S: Send + Sync> FromRequest<S> for Posted
where
    App: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Self::Rejection> {
        let (mut parts, body) = request.into_parts();
        let body = STRANGERS.read(body, Senders::of(&parts)).await.map_err(|unread| {
            let (status, what) = match unread {
                Unread::NoRoom => return error::page(&no_room()),
                Unread::TooLarge => {
                    (StatusCode::PAYLOAD_TOO_LARGE, "Nothing was changed: what you sent is too large.")
                }
                Unread::Slow => (
                    StatusCode::REQUEST_TIMEOUT,
                    "Nothing was changed: what you sent did not arrive in time.",
                ),
                Unread::Broken => {
                    (StatusCode::BAD_REQUEST, "Nothing was changed: what you sent did not arrive whole.")
                }
            };
            let next = "Go back, load the page again, and try once more.";
            pages::error(status, &Message { title: "That did not work", what, next, ..Message::default() })
        })?;
        let form = Params::parse(&body).map_err(|refusal| error::wrong_request(&refusal))?;
        Ok(Self(Browser::from_request_parts(&mut parts, state).await?, form))
    }
}

/// A field of a form that is a secret.
pub(super) fn secret(form: &Params, name: &str) -> Zeroizing<String> {
    Zeroizing::new(form.get(name).unwrap_or_default().to_owned())
}
