//! What clients can find out by themselves.

use axum::Json;
use axum::Router;
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use coppice_app::App;
use coppice_oauth::metadata::{self, Offers};

use super::{KnownRealm, error};

/// Metadata is where OpenID Connect puts it, below the issuer, and where RFC
/// 8414 does, between host and path of it.
pub(super) fn routes() -> Router<App> {
    let mut routes = Router::new()
        .route("/.well-known/oauth-protected-resource", get(resource))
        .route("/.well-known/oauth-protected-resource/{*path}", get(resource_at));
    for name in ["openid-configuration", "oauth-authorization-server"] {
        routes = routes
            .route(&format!("/.well-known/{name}"), get(server))
            .route(&format!("/.well-known/{name}/realms/{{realm}}"), get(server))
            .route(&format!("/realms/{{realm}}/.well-known/{name}"), get(server));
    }
    routes
}

/// `GET /.well-known/openid-configuration`
async fn server(State(app): State<App>, Extension(realm): Extension<KnownRealm>) -> Response {
    let offers = Offers { registration: app.identity.has_registration(), job_keys: app.github.is_there() };
    let found =
        metadata::of_server(app.identity.issuers(), &realm.realm, app.identity.signing_algorithm(), offers);
    Json(found).into_response()
}

/// `GET /.well-known/oauth-protected-resource`
async fn resource(State(app): State<App>) -> Response {
    Json(metadata::of_resource(app.identity.issuers(), "")).into_response()
}

/// The same for a part of the platform.
async fn resource_at(State(app): State<App>, Path(path): Path<String>) -> Response {
    if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte)) {
        return error::impossible(StatusCode::NOT_FOUND, "no such path");
    }
    Json(metadata::of_resource(app.identity.issuers(), &format!("/{path}"))).into_response()
}

/// `GET /oauth/jwks`. A new key is published for as long as this may be kept
/// before it signs.
pub(super) async fn jwks(State(app): State<App>) -> Response {
    match app.identity.jwks().await {
        Ok(keys) => ([(header::CACHE_CONTROL, "public, max-age=240")], Json(keys)).into_response(),
        Err(failed) => error::failed(failed),
    }
}
