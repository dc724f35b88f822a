//! The files of the console, and what only it asks: who is signed in.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coppice_app::App;
use coppice_console::File;

use crate::coding::takes;
use crate::departure;
use crate::oauth::{redirect, session_cookie, sign_in_path};
use crate::pages::{self, Message};

/// What the console may do: load what is here, ask this site, and nothing that
/// makes code of a text (Trusted Types).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; \
                      img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'self'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// What its page says as long as nobody knows where it is.
const BASE: &str = "<base href=\"/console/\"";

/// Where the console is.
pub(crate) fn routes() -> Router<App> {
    let files = Router::new().route("/console", get(index)).route("/console/{*path}", get(page_or_asset));
    files.route_layer(from_fn(departure::leave_in_time))
}

async fn page_or_asset(
    State(app): State<App>,
    Path(path): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    match path.strip_prefix("assets/") {
        Some(_) => asset(&path, &headers),
        None => index(State(app), uri, headers).await,
    }
}

/// Other content has another name, so browsers may keep it for ever.
fn asset(path: &str, headers: &HeaderMap) -> Response {
    let Some(File { plain, brotli, gzip }) = coppice_console::file(path) else {
        return (StatusCode::NOT_FOUND, safe(header_map([(header::CACHE_CONTROL, "no-store")])))
            .into_response();
    };
    let kind = match path.rsplit_once('.').map(|(_, ending)| ending) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let (coding, body) = match (brotli, gzip) {
        (Some(packed), _) if takes(headers, "br") => (Some("br"), packed),
        (_, Some(packed)) if takes(headers, "gzip") => (Some("gzip"), packed),
        _ => (None, plain),
    };
    let mut sent = safe(header_map([
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::VARY, "accept-encoding"),
    ]));
    if let Some(coding) = coding {
        sent.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    (sent, body).into_response()
}

/// The page as it was built.
static PAGE: LazyLock<Option<&'static str>> =
    LazyLock::new(|| std::str::from_utf8(coppice_console::file("index.html")?.plain).ok());

/// Tells builds of the console apart; none where there is none. The page names all
/// that it is made of by its content.
pub(crate) fn build() -> Option<String> {
    PAGE.map(tag_of)
}

fn tag_of(page: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, page.as_bytes()))
}

/// The one page, whatever its path: its script shows what the path names. It
/// begins to ask for that before it knows who asks, so whoever is not signed in
/// is led there first.
async fn index(State(app): State<App>, uri: Uri, headers: HeaderMap) -> Response {
    let Some(page) = *PAGE else { return not_built() };
    if !is_signed_in(&app, &headers).await {
        return redirect(&sign_in_path(&app, uri.path_and_query().map_or("/console/", PathAndQuery::as_str)));
    }
    let page =
        page.replacen(BASE, &format!("<base href=\"{}/console/\"", app.identity.issuers().base_path()), 1);
    let tag = format!("\"{}\"", tag_of(&page));
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag));
    let mut sent = safe(header_map([
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
    ]));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        sent.insert(header::ETAG, tag);
    }
    match is_known {
        true => (StatusCode::NOT_MODIFIED, sent).into_response(),
        false => (sent, page).into_response(),
    }
}

/// Whether the page finds who asks; the page says what is wrong if that can't be known.
async fn is_signed_in(app: &App, headers: &HeaderMap) -> bool {
    match session_cookie(app, headers) {
        Some(secret) => app.identity.browser_session(secret).await.map_or(true, |session| session.is_some()),
        None => false,
    }
}

fn not_built() -> Response {
    pages::error(
        StatusCode::NOT_FOUND,
        &Message {
            title: "The console is not built",
            what: "This program was made without its console. Everything else works: the command line and the API.",
            next: "Run `make build` in a checkout of Coppice and start that program, or set COPPICE_CONSOLE_DIST to a \
                   build of the console when you run cargo.",
            link: Some(pages::Link { href: &pages::public("/docs"), text: "Browse the API" }),
            ..Message::default()
        },
    )
}

fn header_map<const N: usize>(headers: [(HeaderName, &'static str); N]) -> HeaderMap {
    headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
}

/// With what every file of it says to browsers.
fn safe(mut headers: HeaderMap) -> HeaderMap {
    headers.extend(header_map([
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ]));
    headers
}
