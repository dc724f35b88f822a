//! The console's own entrance to the operations of the API.
//!
//! A page of this site, in the browser of somebody who signed in, asks here. It
//! shows nothing but the cookie that it can't read; so what asks has to be such
//! a page. Browsers let no page of another origin send the header that is asked
//! for, as nothing here answers to CORS, and most say themselves where a request
//! comes from. What the person may do is decided by the same table as for a token.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coppice_app::App;
use coppice_core::{Error, ErrorCode, Result};
use tower::ServiceExt;
use zeroize::Zeroizing;

use crate::error::ApiError;
use crate::hosts::{Hosts, called};
use crate::oauth::session_cookie;
use crate::proof::ByDoor;

/// What paths of the door begin with.
const PREFIX: &str = "/console/api/";
/// The header that only a page of this site can send.
const HEADER: &str = "x-coppice-console";

/// See the module.
#[derive(Clone)]
pub(crate) struct Door {
    /// The router behind it, without CORS, and without compression, so that the
    /// length of an answer tells nothing of the secrets in it.
    pub(crate) behind: Router,
    pub(crate) app: App,
    pub(crate) hosts: Arc<Hosts>,
}

/// Answers what comes by the door, and lets the rest go on.
pub(crate) async fn door(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let Some(path) = path_behind(request.uri()) else { return next.run(request).await };
    if let Err(refused) = check(request.uri(), request.headers(), &door) {
        return ApiError::from(refused).into_response();
    }
    let cookie = session_cookie(&door.app, request.headers()).map(|secret| Zeroizing::new(secret.to_owned()));
    *request.uri_mut() = path;
    request.extensions_mut().insert(ByDoor(cookie));
    match door.behind.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// The operation's own path, of a path of the door.
fn path_behind(uri: &Uri) -> Option<Uri> {
    let rest = uri.path().strip_prefix(PREFIX)?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{rest}{query}").parse().ok()
}

/// Whether a page of this site asks.
fn check(uri: &Uri, headers: &HeaderMap, door: &Door) -> Result<()> {
    let says = |name: &str, value: &str| headers.get(name).is_none_or(|sent| sent == value);
    let is_marked = headers.get(HEADER).is_some_and(|sent| sent == "1");
    let is_own = door.hosts.are_called(uri, headers)
        && says("sec-fetch-site", "same-origin")
        && is_own_origin(uri, headers, door.app.identity.issuers().public_url());
    if is_marked && is_own {
        return Ok(());
    }
    Err(Error::Forbidden {
        code: ErrorCode::CrossOriginRequest,
        public: "only the pages of the console may ask here; programs use the API with a key".to_owned(),
    })
}

/// Whether the origin that is named, if one is, is that of the public URL, or
/// the one that was called: many names may lead here.
fn is_own_origin(uri: &Uri, headers: &HeaderMap, public_url: &str) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let Some(origin) = origin.to_str().ok().and_then(|text| text.parse::<Uri>().ok()) else { return false };
    let called = called(uri, headers);
    let public = public_url.parse::<Uri>().ok();
    let is_public = public.is_some_and(|public| {
        (public.scheme_str(), public.authority()) == (origin.scheme_str(), origin.authority())
    });
    is_public || (called.is_some() && called.as_ref() == origin.authority())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_pages_of_this_origin_come_by_the_door() {
        let own = |origin: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("db.example.com:7070"));
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            is_own_origin(&Uri::from_static("/x"), &headers, "https://public.example.com/coppice")
        };
        assert!(own("https://public.example.com") && own("http://db.example.com:7070"));
        for other in [
            "http://db.example.com:7071",
            "https://evil.example",
            "null",
            "https://public.example.com:444",
            "x y",
        ] {
            assert!(!own(other), "{other}");
        }
    }

    #[test]
    fn behind_the_door_paths_are_those_of_the_api() {
        let behind = |path: &'static str| path_behind(&Uri::from_static(path)).map(|uri| uri.to_string());
        assert_eq!(behind("/console/api/organizations?x=%2F").as_deref(), Some("/organizations?x=%2F"));
        assert_eq!(behind("/console/api"), None);
        assert_eq!(behind("/console/orgs"), None);
        // It stays a path, whatever is behind the prefix.
        assert_eq!(behind("/console/api//evil.example/x").as_deref(), Some("//evil.example/x"));
    }
}
