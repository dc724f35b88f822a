//! Clients that register themselves.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use coppice_app::App;
use coppice_oauth::{ErrorCode, OAuthError};

use super::body::ClientBody;
use super::{Address, error};

/// `POST /oauth/register`
pub(super) async fn register(
    State(app): State<App>,
    address: Address,
    ClientBody(body): ClientBody,
) -> Response {
    if !app.has_registration() {
        let description = "clients can't register themselves here; ask the operator";
        return error::refused(&OAuthError::new(ErrorCode::InvalidClientMetadata, description));
    }
    let Ok(metadata) = serde_json::from_slice(&body) else {
        let description = "the metadata is a JSON object";
        return error::refused(&OAuthError::new(ErrorCode::InvalidClientMetadata, description));
    };
    match app.register_client(&metadata, address.0).await {
        Ok(answer) => error::uncached(StatusCode::CREATED, &answer),
        Err(refused) => error::answer(refused),
    }
}
