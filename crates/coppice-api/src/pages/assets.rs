//! The stylesheet, the script and the icon, under names that change with what is in them.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const STYLE: &str = include_str!("../../templates/style.css");
/// The one script, on the pages where a passkey can be used.
const SCRIPT: &str = include_str!("../../templates/passkey.js");
const ICON: &str = include_str!("../../templates/icon.svg");

static STYLE_PATH: LazyLock<String> = LazyLock::new(|| format!("/assets/pages-{:016x}.css", digest(STYLE)));
static ICON_PATH: LazyLock<String> = LazyLock::new(|| format!("/assets/icon-{:016x}.svg", digest(ICON)));

static SCRIPT_PATH: LazyLock<String> =
    LazyLock::new(|| format!("/assets/passkey-{:016x}.js", digest(SCRIPT)));

tokio::task_local! {
    /// What the public URL has after its host: others take it away before a
    /// request reaches us.
    static BASE_PATH: String;
}

/// Answers a request whose pages refer to paths below `base_path`.
pub(crate) async fn below(base_path: String, request: Request, next: Next) -> Response {
    BASE_PATH.scope(base_path, next.run(request)).await
}

/// Work that goes on in another task: its pages refer to the same paths.
pub(crate) fn below_the_same<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    BASE_PATH.scope(public(""), work)
}

/// A path of this site as browsers have to ask for it.
pub(crate) fn public(path: &str) -> String {
    BASE_PATH.try_with(|base| format!("{base}{path}")).unwrap_or_else(|_| path.to_owned())
}

/// Where browsers find the stylesheet.
pub(crate) fn style_path() -> String {
    public(&STYLE_PATH)
}

/// Where browsers find the script.
pub(crate) fn script_path() -> String {
    public(&SCRIPT_PATH)
}

/// Where browsers find the icon.
pub(crate) fn icon_path() -> String {
    public(&ICON_PATH)
}

/// FNV-1a: tells one version of a file from the next, and protects nothing.
const fn digest(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// The routes of these files. Another version has another path, so browsers may keep them.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route(&STYLE_PATH, get(async || file("text/css; charset=utf-8", STYLE)))
        .route(&SCRIPT_PATH, get(async || file("text/javascript; charset=utf-8", SCRIPT)))
        .route(&ICON_PATH, get(async || file("image/svg+xml", ICON)))
}

fn file(kind: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'"),
    ];
    (headers, text)
}
