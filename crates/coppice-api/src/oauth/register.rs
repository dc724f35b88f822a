//! Clients that register themselves.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use coppice_app::App;
use coppice_oauth::{OAuthError, OAuthErrorCode};

use super::body::ClientBody;
use super::{Address, error};
use crate::json;

/// Most values of a client's metadata.
const VALUES_MAX: usize = 1000;

/// `POST /oauth/register`
pub(super) async fn register(
    State(app): State<App>,
    address: Address,
    ClientBody(body): ClientBody,
) -> Response {
    if !app.identity.has_registration() {
        let description = "clients can't register themselves here; ask the operator";
        return error::refused(&OAuthError::new(OAuthErrorCode::InvalidClientMetadata, description));
    }
    let Ok(metadata) = json::read(&body, VALUES_MAX) else {
        let description = format!("the metadata is a JSON object with at most {VALUES_MAX} values");
        return error::refused(&OAuthError::new(OAuthErrorCode::InvalidClientMetadata, description));
    };
    match app.identity.register_client(&metadata, address.0).await {
        Ok(answer) => error::uncached(StatusCode::CREATED, &answer),
        Err(refused) => error::answer(refused),
    }
}
