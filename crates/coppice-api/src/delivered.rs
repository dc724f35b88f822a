//! What services are told of their deliveries, whoever sends them.

use axum::Json;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use coppice_core::{ErrorCode, Result};
use serde_json::json;

use crate::arrival::{Unread, no_room};
use crate::client_address::client_address;
use crate::error::{ApiError, with_status};
use crate::rates::Rates;

/// Answers a delivery whose body did not come, or is larger than it may be.
pub(crate) fn did_not_arrive(unread: Unread, most: &str) -> Response {
    match unread {
        Unread::TooLarge => {
            let said = format!("request body is larger than {most}");
            with_status(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::BodyTooLarge, &said)
        }
        Unread::NoRoom => ApiError::from(no_room()).into_response(),
        Unread::Broken | Unread::Slow => {
            let said = "request body did not arrive whole";
            with_status(StatusCode::BAD_REQUEST, ErrorCode::InvalidJson, said)
        }
    }
}

/// Answers a delivery that came.
pub(crate) fn answered(taken: Result<()>, rates: &Rates, parts: &Parts) -> Result<Response, ApiError> {
    let Err(refused) = taken else { return Ok(Json(json!({})).into_response()) };
    // A sender without the key guesses, so wrong signatures count for the rate of their address; right ones don't.
    if refused.code() == ErrorCode::InvalidSignature {
        rates.admit_address(client_address(parts))?;
    }
    Err(refused.into())
}
