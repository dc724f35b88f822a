//! Errors of the authorization server: JSON for programs, a page for people.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coppice_app::IdentityError;
use coppice_core::Error;
use coppice_core::error::UNAVAILABLE_SECONDS;
use coppice_oauth::{OAuthError, OAuthErrorCode};
use serde_json::json;

use crate::pages::{self, Message};

/// JSON that no cache keeps.
pub(super) fn uncached(status: StatusCode, body: &impl serde::Serialize) -> Response {
    let headers = [(header::CACHE_CONTROL, "no-store"), (header::PRAGMA, "no-cache")];
    (status, headers, Json(body)).into_response()
}

fn body(code: &str, description: &str) -> serde_json::Value {
    json!({ "error": code, "error_description": description })
}

/// What a program is told that did something wrong.
pub(super) fn refused(error: &OAuthError) -> Response {
    let status = match error.code {
        OAuthErrorCode::InvalidClient => StatusCode::UNAUTHORIZED,
        OAuthErrorCode::TemporarilyUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        OAuthErrorCode::ServerError => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    let mut response = uncached(status, &body(error.code.as_str(), &error.description));
    match status {
        StatusCode::UNAUTHORIZED => {
            let challenge = HeaderValue::from_static("Basic realm=\"platform\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        StatusCode::SERVICE_UNAVAILABLE => come_again(&mut response, UNAVAILABLE_SECONDS),
        _ => {}
    }
    response
}

/// What a program is told that asked for something that can't be answered.
pub(crate) fn impossible(status: StatusCode, description: &str) -> Response {
    uncached(status, &body(OAuthErrorCode::InvalidRequest.as_str(), description))
}

/// What a program is told when it did nothing wrong.
pub(crate) fn failed(error: Error) -> Response {
    if let Some(cause) = error.private() {
        tracing::error!("{error}: {cause}");
    }
    let (status, code) = match &error {
        Error::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "temporarily_unavailable"),
        Error::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable"),
        Error::Timeout { .. } => (StatusCode::GATEWAY_TIMEOUT, "temporarily_unavailable"),
        Error::Unauthenticated { .. } => (StatusCode::BAD_REQUEST, "invalid_grant"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "server_error"),
    };
    let mut response = uncached(status, &body(code, &error.to_string()));
    if let Some(seconds) = error.retry_after_seconds() {
        come_again(&mut response, seconds);
    }
    response
}

fn come_again(response: &mut Response, seconds: u32) {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
}

/// What a program is told.
pub(super) fn answer(error: IdentityError) -> Response {
    match error {
        IdentityError::Refused(error) => refused(&error),
        IdentityError::Failed(error) => failed(error),
    }
}

/// What a person sees when something failed.
pub(crate) fn page(error: &Error) -> Response {
    if let Some(cause) = error.private() {
        tracing::error!("{error}: {cause}");
    }
    let (status, what, next) = match error {
        Error::TooMany { retry_after_seconds, .. } => {
            return pages::too_many_attempts(u64::from(*retry_after_seconds));
        }
        Error::NotFound { .. } => {
            (StatusCode::NOT_FOUND, "There is no such page here.", "Check the address.")
        }
        Error::Unauthenticated { .. } => (
            StatusCode::UNAUTHORIZED,
            "You are not signed in here any more.",
            "Load the page again, and sign in.",
        ),
        Error::Unavailable { .. } | Error::Timeout { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "The platform can't work now.",
            "Wait a moment, then load the page again.",
        ),
        _ => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "Something went wrong on our side.",
            "Load the page again. If that does not help, tell the operator of this installation.",
        ),
    };
    let content = Message { title: "That did not work", what, next, ..Message::default() };
    let mut response = pages::error(status, &content);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        come_again(&mut response, UNAVAILABLE_SECONDS);
    }
    response
}

/// What a person sees who came with a request that can't be answered, and must
/// not be sent anywhere.
pub(super) fn wrong_request(error: &OAuthError) -> Response {
    let what =
        format!("The program that sent you here asked for something impossible: {}.", error.description);
    pages::error(
        StatusCode::BAD_REQUEST,
        &Message {
            title: "That did not work",
            what: &what,
            next: "Tell the people who make that program. You were not sent back, as the way back can't be trusted.",
            ..Message::default()
        },
    )
}

/// What a person sees whose browser sent something with a method that the page
/// does not have.
pub(crate) fn wrong_method_page() -> Response {
    pages::error(
        StatusCode::METHOD_NOT_ALLOWED,
        &Message {
            title: "That did not work",
            what: "This page can't be asked for in that way.",
            next: "Check the address.",
            ..Message::default()
        },
    )
}

/// What a person sees whose form is not one that we gave this browser.
pub(super) fn stale_form() -> Response {
    pages::error(
        StatusCode::BAD_REQUEST,
        &Message {
            title: "That page is out of date",
            what: "Nothing was changed: the form you sent was not made for this browser as it is signed in now.",
            next: "Go back, load the page again, and try once more. Cookies have to be allowed.",
            ..Message::default()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_session_has_ended_is_told_so_and_not_that_the_platform_failed() {
        let ended = Error::Unauthenticated { code: coppice_core::ErrorCode::InvalidToken };
        assert_eq!(page(&ended).status(), StatusCode::UNAUTHORIZED);
    }

    #[test]
    fn who_finds_the_platform_unable_to_work_is_told_when_to_come_again() {
        let full = OAuthError::new(OAuthErrorCode::TemporarilyUnavailable, "full");
        for response in
            [refused(&full), failed(Error::unavailable("down")), page(&Error::unavailable("down"))]
        {
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[header::RETRY_AFTER], "30");
        }
    }
}
