//! How an answer looks that no handler makes: the request took too long, had
//! another method, or its handler failed.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coppice_core::{Error, ErrorCode};

use crate::error::{ApiError, with_status};
use crate::oauth::error as oauth;
use crate::vercel::Refused;

/// Who reads the answers of some routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Programs that use the API.
    Api,
    /// Clients of the authorization server, which know its errors (RFC 6749, 5.2).
    Clients,
    /// Vercel, which has a shape of its own for errors.
    Vercel,
    /// People, who are shown a page.
    People,
}

impl Audience {
    /// The answer to a request that failed.
    pub(crate) fn told(self, error: Error) -> Response {
        match self {
            Self::Api => ApiError::from(error).into_response(),
            Self::Clients => oauth::failed(error),
            Self::Vercel => Refused::from(error).into_response(),
            Self::People => oauth::page(&error),
        }
    }

    /// The answer to a request with a method that its path does not have.
    pub(crate) fn wrong_method(self) -> Response {
        match self {
            Self::Api => {
                with_status(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed, "method not allowed")
            }
            Self::Clients => oauth::impossible(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
            Self::Vercel => Refused::wrong_method().into_response(),
            Self::People => oauth::wrong_method_page(),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use serde_json::Value;

    use super::*;

    async fn read(response: Response) -> (u16, String, Value) {
        let status = response.status().as_u16();
        let kind = response.headers()[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        (status, kind, serde_json::from_slice(&body).unwrap_or_default())
    }

    #[tokio::test]
    async fn each_audience_is_told_in_words_it_knows() {
        let late = || Error::Timeout { private: "a test".to_owned() };
        let broken = || Error::internal("a test");
        let kinds: [(fn() -> Error, _, _, _); 2] = [
            (late, (504, "upstream_timeout"), (504, "temporarily_unavailable"), 503),
            (broken, (500, "internal_error"), (500, "server_error"), 500),
        ];
        for (error, api, oauth, page) in kinds {
            let (status, kind, body) = read(Audience::Clients.told(error())).await;
            assert_eq!((status, body["error"].as_str().unwrap_or_default()), oauth);
            assert!(kind == "application/json" && body["error_description"].is_string(), "{body}");
            let (status, kind, body) = read(Audience::Api.told(error())).await;
            assert_eq!((status, body["id"].as_str().unwrap_or_default()), api);
            assert!(kind == "application/json" && body["message"].is_string(), "{body}");
            let (status, kind, _) = read(Audience::People.told(error())).await;
            assert_eq!((status, kind.as_str()), (page, "text/html; charset=utf-8"));
        }
    }
}
