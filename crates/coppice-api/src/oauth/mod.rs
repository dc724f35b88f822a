//! The authorization server over HTTP.
//!
//! **Owns** cookies, forms, and how OAuth's errors look.
//! Each endpoint has a path of ours and one below the issuer, where clients
//! look that know only the issuer. Pages are for people and answer no other
//! origin; endpoints are for programs, also in browsers.

mod account;
mod allowed_clients;
mod authorize;
mod body;
mod browser;
mod client_auth;
mod cookies;
mod device;
pub(crate) mod error;
mod link;
mod logout;
mod marketplace;
mod metadata;
mod outside;
mod passkeys;
mod places;
mod register;
mod second_factor;
mod second_step;
mod showing;
mod sign_in;
mod token;
mod vercel;

pub(crate) use browser::{session_cookie, signed_out};
pub use link::sign_in_link;
pub(crate) use places::sign_in_path;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use coppice_app::App;
use coppice_core::{Error, ErrorCode};
use coppice_oauth::issuer::Realm;

use crate::audience::Audience;
use crate::client_address::client_address;
use crate::context;
use crate::rates::Rates;

/// Where endpoints are below an issuer.
const BELOW_ISSUER: &str = "/realms/{realm}/protocol/openid-connect";

/// What programs call.
pub(crate) fn endpoints(app: &App) -> Router<App> {
    let below = |path: &str| format!("{BELOW_ISSUER}/{path}");
    Router::new()
        .route("/oauth/token", post(token::token))
        .route(&below("token"), post(token::token))
        .route("/oauth/device_authorization", post(token::device_authorization))
        .route(&below("auth/device"), post(token::device_authorization))
        .route("/oauth/revoke", post(token::revoke))
        .route(&below("revoke"), post(token::revoke))
        .route("/oauth/introspect", post(token::introspect))
        .route(&below("token/introspect"), post(token::introspect))
        .route("/oauth/userinfo", get(token::user_info).post(token::user_info))
        .route(&below("userinfo"), get(token::user_info).post(token::user_info))
        .route("/oauth/jwks", get(metadata::jwks))
        .route(&below("certs"), get(metadata::jwks))
        .route("/oauth/register", post(register::register))
        .merge(metadata::routes())
        .route_layer(from_fn_with_state((app.clone(), Audience::Clients), only_known_realms))
        .route_layer(from_fn(limit_programs))
}

/// What people see.
pub(crate) fn pages(app: &App) -> Router<App> {
    let below = |path: &str| format!("{BELOW_ISSUER}/{path}");
    Router::new()
        .route("/oauth/authorize", get(authorize::authorize).post(authorize::authorize_posted))
        .route(&below("auth"), get(authorize::authorize).post(authorize::authorize_posted))
        .route("/oauth/consent", post(authorize::consent))
        .route(places::SIGN_IN, get(sign_in::sign_in).post(sign_in::sign_in_posted))
        .route(places::LINK, get(link::show_link).post(link::follow_link))
        .route(places::VERCEL, get(vercel::show_arrival).post(vercel::arrive))
        .route("/oauth/device", get(device::device).post(device::device_posted))
        .route("/realms/{realm}/device", get(device::device).post(device::device_posted))
        .route("/oauth/logout", get(logout::logout).post(logout::logout_posted))
        .route(&below("logout"), get(logout::logout).post(logout::logout_posted))
        .merge(account::routes())
        .merge(allowed_clients::routes())
        .merge(marketplace::routes())
        .merge(second_factor::routes())
        .merge(second_step::routes())
        .merge(passkeys::routes())
        .merge(outside::routes())
        .route_layer(from_fn_with_state((app.clone(), Audience::People), only_known_realms))
        .route_layer(from_fn(limit_people))
}

/// The realm whose path was called.
#[derive(Clone, Debug)]
pub(crate) struct KnownRealm {
    realm: Realm,
    /// As the path has it; none in a path of ours.
    name: Option<String>,
}

impl KnownRealm {
    /// The realm of a path with this name in it, if it exists.
    pub(crate) fn find(app: &App, name: Option<&str>) -> Result<Self, Error> {
        let unknown =
            || Error::NotFound { code: ErrorCode::RouteNotFound, public: "no such path".to_owned() };
        let realm = app.identity.realm(name).cloned().ok_or_else(unknown)?;
        Ok(Self { realm, name: name.map(str::to_owned) })
    }

    /// Where its authorization requests go; what follows the base of the public URL.
    pub(crate) fn authorize_path(&self) -> String {
        match &self.name {
            Some(realm) => format!("/realms/{realm}/protocol/openid-connect/auth"),
            None => "/oauth/authorize".to_owned(),
        }
    }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(pub(crate) IpAddr);

impl<S: Send + Sync> FromRequestParts<S> for Address {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(client_address(parts)))
    }
}

/// Finds the realm of the path for the handler, [`KnownRealm`].
async fn only_known_realms(
    State((app, audience)): State<(App, Audience)>,
    path: Result<Path<HashMap<String, String>>, PathRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    let name = match &path {
        Ok(path) => path.get("realm").map(String::as_str),
        // No UTF-8, so no realm's.
        Err(_) => Some(""),
    };
    match (KnownRealm::find(&app, name), audience) {
        (Ok(realm), _) => {
            request.extensions_mut().insert(realm);
            next.run(request).await
        }
        (Err(unknown), Audience::People) => error::page(&unknown),
        (Err(unknown), _) => error::impossible(StatusCode::NOT_FOUND, &unknown.to_string()),
    }
}

/// Counts a request, and carries it out to its end even when its sender goes
/// away: what it changed is written down after it was changed.
async fn limit_programs(
    Extension(rates): Extension<Arc<Rates>>,
    address: Address,
    request: Request,
    next: Next,
) -> Response {
    match rates.admit_address(address.0) {
        Ok(_) => match context::detached(next.run(request)).await {
            Ok(response) => response,
            Err(failed) => error::failed(Error::internal(failed)),
        },
        Err(error) => error::failed(error),
    }
}

/// As [`limit_programs`], for pages.
async fn limit_people(
    Extension(rates): Extension<Arc<Rates>>,
    address: Address,
    request: Request,
    next: Next,
) -> Response {
    match rates.admit_address(address.0) {
        Ok(_) => match context::detached(crate::pages::below_the_same(next.run(request))).await {
            Ok(response) => response,
            Err(failed) => error::page(&Error::internal(failed)),
        },
        Err(error) => error::page(&error),
    }
}

/// Sends a browser on. What it is sent to may be a secret.
pub(crate) fn redirect(url: &str) -> Response {
    let Ok(location) = HeaderValue::from_str(url) else {
        return error::page(&Error::internal("a redirect has odd characters"));
    };
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use axum::body::Body;
    use tokio::sync::{Notify, mpsc};
    use tokio::time::timeout;
    use tower::ServiceExt;

    use super::*;

    /// Whether a handler goes on to its end behind these layers when whoever
    /// asked has gone away.
    async fn is_carried_out(behind: impl FnOnce(Router) -> Router) -> bool {
        let (may_go_on, (done, mut is_done)) = (Arc::new(Notify::new()), mpsc::channel(1));
        let waits = may_go_on.clone();
        let handler = async move || {
            waits.notified().await;
            let _ = done.send(()).await;
        };
        let rates = Arc::new(Rates::new(NonZeroU32::MIN, NonZeroU32::MIN));
        let router = behind(Router::new().route("/", post(handler))).layer(Extension(rates));
        let asked = router.oneshot(Request::post("/").body(Body::empty()).expect("a request"));
        assert!(timeout(Duration::from_millis(20), asked).await.is_err(), "it waits");
        may_go_on.notify_one();
        timeout(Duration::from_secs(60), is_done.recv()).await.expect("it ends").is_some()
    }

    #[tokio::test]
    async fn what_was_begun_is_carried_out_although_its_sender_goes_away() {
        assert!(is_carried_out(|router| router.route_layer(from_fn(limit_people))).await);
        assert!(is_carried_out(|router| router.route_layer(from_fn(limit_programs))).await);
    }
}
