//! Endpoints where clients get tokens, and ask about them.

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coppice_app::{App, Github, IdentityError};
use coppice_core::Error;
use coppice_oauth::OAuthError;
use coppice_oauth::client::Client;
use coppice_oauth::params::Params;
use serde_json::json;

use super::body::ClientBody;
use super::{Address, KnownRealm, client_auth, error};
use crate::error::ApiError;
use crate::origin::ClientOrigin;
use crate::proof::bearer_of;

async fn understand(app: &App, headers: &HeaderMap, body: &[u8]) -> Result<(Client, Params), IdentityError> {
    let form = client_auth::form(headers, body)?;
    Ok((client_auth::client(app, headers, &form).await?, form))
}

/// `POST /oauth/token`
pub(super) async fn token(
    State(app): State<App>,
    Extension(realm): Extension<KnownRealm>,
    origin: ClientOrigin,
    headers: HeaderMap,
    ClientBody(body): ClientBody,
) -> Response {
    let work = async {
        let form = client_auth::form(&headers, &body)?;
        // A job is no client: what it shows says all.
        if Github::is_of_job(&form) {
            let answer = app.github.exchange_job_token(&form, &origin.0).await?;
            return Ok(error::uncached(StatusCode::OK, &answer));
        }
        let client = client_auth::client(&app, &headers, &form).await?;
        let answer = app.identity.token(&realm.realm, &client, &form).await?;
        Ok(error::uncached(StatusCode::OK, &answer))
    };
    work.await.unwrap_or_else(error::answer)
}

/// `POST /oauth/device_authorization`
pub(super) async fn device_authorization(
    State(app): State<App>,
    address: Address,
    headers: HeaderMap,
    ClientBody(body): ClientBody,
) -> Response {
    let work = async {
        let (client, form) = understand(&app, &headers, &body).await?;
        app.identity.start_device(&client, &form, address.0).await
    };
    match work.await {
        Ok(answer) => error::uncached(StatusCode::OK, &answer),
        Err(refused) => error::answer(refused),
    }
}

/// `POST /oauth/revoke`: 200 also for what is no token.
pub(super) async fn revoke(
    State(app): State<App>,
    origin: ClientOrigin,
    headers: HeaderMap,
    ClientBody(body): ClientBody,
) -> Response {
    let work = async {
        let (client, form) = understand(&app, &headers, &body).await?;
        let token = form.get("token").ok_or_else(|| OAuthError::invalid_request("token is missing"))?;
        app.identity.revoke(&client, token, &origin.0).await.map_err(IdentityError::from)
    };
    match work.await {
        Ok(()) => error::uncached(StatusCode::OK, &json!({})),
        Err(refused) => error::answer(refused),
    }
}

/// `POST /oauth/introspect`
pub(super) async fn introspect(
    State(app): State<App>,
    headers: HeaderMap,
    ClientBody(body): ClientBody,
) -> Response {
    let work = async {
        let (client, form) = understand(&app, &headers, &body).await?;
        let token = form.get("token").ok_or_else(|| OAuthError::invalid_request("token is missing"))?;
        app.identity.introspect(&client, token).await
    };
    match work.await {
        Ok(answer) => error::uncached(StatusCode::OK, &answer),
        Err(refused) => error::answer(refused),
    }
}

/// `GET /oauth/userinfo`
pub(super) async fn user_info(State(app): State<App>, headers: HeaderMap) -> Response {
    match app.identity.user_info(bearer_of(&headers)).await {
        Ok(info) => error::uncached(StatusCode::OK, &info),
        Err(refused @ (Error::Unauthenticated { .. } | Error::InsufficientScope { .. })) => {
            let code = match &refused {
                Error::InsufficientScope { .. } => "insufficient_scope",
                _ => "invalid_token",
            };
            // The same challenge as everywhere, with a body as OAuth has them.
            let said = ApiError::from(refused).into_response();
            let body = json!({ "error": code, "error_description": "the access token is not good for this" });
            let mut response = error::uncached(said.status(), &body);
            if let Some(challenge) = said.headers().get(header::WWW_AUTHENTICATE) {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.clone());
            }
            response
        }
        Err(failed) => error::failed(failed),
    }
}
