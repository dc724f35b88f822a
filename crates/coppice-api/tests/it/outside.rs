//! Coming back from an outside provider with a code that it does not take.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use coppice_app::OutsideConfig;
use serde_json::{Value, json};

use crate::browser::{Browser, HOST};
use crate::http::{Http, Paying};

/// How many codes it was shown.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

async fn takes_none() -> (StatusCode, Json<Value>) {
    SHOWN.fetch_add(1, Ordering::Relaxed);
    (StatusCode::BAD_REQUEST, Json(json!({ "error": "invalid_grant" })))
}

/// A provider that knows nobody.
pub(crate) fn provider() -> OutsideConfig {
    static ISSUER: LazyLock<String> = LazyLock::new(|| {
        let described = async |headers: axum::http::HeaderMap| {
            let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
            let at = |path: &str| format!("http://{host}{path}");
            Json(json!({
                "issuer": at(""), "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
                "jwks_uri": at("/keys"),
            }))
        };
        let router = Router::new().route("/.well-known/openid-configuration", get(described));
        crate::double::serve(router.route("/token", post(takes_none)))
    });
    OutsideConfig {
        issuer: ISSUER.clone(),
        client_id: "ours".to_owned(),
        client_secret: Some("planted-secret-of-the-provider".to_owned().into()),
        name: "Example ID".to_owned(),
    }
}

#[test]
fn an_attempt_brings_one_answer_to_the_provider_and_an_address_thirty() {
    // Its own, for whoever comes from Vercel is counted with them.
    let http = Http::start(Paying::default());
    let begin = || {
        let mut browser = Browser::default();
        let begun = browser.get(&http, "/oauth/outside?next=/");
        let (_, state) = begun.header("location").split_once("state=").expect("a state");
        (browser.cookies(), state.split('&').next().expect("its end").to_owned())
    };
    // The cookie is told to go, and may be sent all the same.
    let answer = |(cookies, state): &(String, String), code: usize| {
        let path = format!("/oauth/outside/callback?code=made-up-{code}&state={state}");
        http.anonymous("GET", &path, &[HOST, ("cookie", cookies)]).status
    };
    let first = begin();
    assert_eq!([0, 1, 2].map(|code| answer(&first, code)), [400; 3]);
    assert_eq!(SHOWN.load(Ordering::Relaxed), 1);
    let others: Vec<_> = (3..32).map(|code| answer(&begin(), code)).collect();
    assert!(others[..27].iter().all(|status| *status == 400), "{others:?}");
    assert_eq!(others[27..], [429, 429]);
    assert_eq!(SHOWN.load(Ordering::Relaxed), 28);
}
