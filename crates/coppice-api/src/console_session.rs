//! What only the console asks, behind its door: who is signed in and what they may do, and where the GitHub App is
//! installed.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json};
use coppice_app::App;
use coppice_core::Error;
use coppice_core::access::Scope;
use coppice_core::operation::GET_USER;
use serde_json::json;

use crate::endpoint::{Answer as _, Done};
use crate::error::ApiError;
use crate::oauth::signed_out;
use crate::origin::ClientOrigin;
use crate::proof::ByDoor;
use crate::request::Call;
use crate::wishes::Wishes;

pub(crate) fn routes() -> Router<App> {
    Router::new().route("/session", get(show).delete(end)).route("/github-app", get(github_app))
}

/// `GET /console/api/session`: null for whoever is not signed in. Everybody may
/// ask, and a page that does has done nothing wrong, so it is not refused.
async fn show(State(app): State<App>, origin: ClientOrigin, call: Call) -> Result<Response, ApiError> {
    let access = match call.authorize_person(&app, &GET_USER).await {
        Err(Error::Unauthenticated { .. }) => return Ok(Json(json!(null)).into_response()),
        outcome => outcome?,
    };
    let is_fresh = !access.caller.is_stale;
    let user = app.users.get(&access).await?;
    let organizations = app.organizations.memberships(&access).await?;
    let organizations = organizations.into_iter().map(|(organization, role)| {
        let scopes = Scope::ALL.into_iter().filter(|scope| role.carries(*scope)).map(Scope::as_str);
        json!({
            "id": organization.id.as_str(),
            "name": organization.name,
            "isEnabled": organization.is_enabled(),
            "role": role.as_str(),
            "scopes": scopes.collect::<Vec<_>>(),
        })
    });
    let config = app.config();
    Ok(Json(json!({
        "user": { "id": user.id.as_str(), "email": user.email, "name": user.name },
        "isFresh": is_fresh,
        // People add it to the address filter, so that they can still connect.
        "address": origin.0.address,
        "organizations": organizations.collect::<Vec<_>>(),
        // Open pages compare it with what they began with.
        "console": crate::console::build(),
        "capabilities": {
            "mail": config.mailer.is_some(),
            "passwords": config.has_passwords,
            "backups": app.branches.makes_backups(),
            "invoices": app.billing.has_invoices(),
            "cards": app.stripe.is_there(),
        },
    }))
    .into_response())
}

/// `GET /console/api/github-app`: where people install the App of this platform; null if it has none.
async fn github_app(State(app): State<App>, call: Call) -> Result<Response, ApiError> {
    call.authorize_person(&app, &GET_USER).await?;
    let page = if app.github.is_there() { Some(app.github.install_page().await?) } else { None };
    Ok(Json(json!({ "installUrl": page })).into_response())
}

/// `DELETE /console/api/session`: signs out. Every tab of the browser has the
/// same cookie, so all of them are out.
async fn end(
    State(app): State<App>,
    Extension(ByDoor(cookie)): Extension<ByDoor>,
    origin: ClientOrigin,
) -> Result<Response, ApiError> {
    let session = match &cookie {
        Some(secret) => app.identity.browser_session(secret).await?,
        None => None,
    };
    if let Some(session) = session {
        app.identity.sign_out(&session, &origin.0).await?;
    }
    Ok::<_, Error>(signed_out(&app, Done.send(&Wishes::default()).await)).map_err(ApiError::from)
}
