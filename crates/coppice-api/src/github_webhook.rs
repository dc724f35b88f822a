//! What GitHub calls and leads people to: deliveries, and the page behind an installation of the App.

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use coppice_app::{App, GithubDelivery};
use coppice_core::shell::quoted;
use coppice_core::{Error, ErrorCode, Result};
use coppice_oauth::params::Params;

use crate::arrival::{DELIVERIES, Senders};
use crate::client_address::client_address;
use crate::delivered::{answered, did_not_arrive};
use crate::error::ApiError;
use crate::pages::{self, Message};
use crate::rates::Rates;

/// What GitHub calls.
pub(crate) fn routes() -> Router<App> {
    Router::new().route("/webhooks/github", post(take)).layer(DefaultBodyLimit::disable())
}

/// What people are led to.
pub(crate) fn pages() -> Router<App> {
    Router::new().route("/github/setup", get(set_up))
}

/// `POST /webhooks/github`: what follows is done later, for GitHub waits ten seconds and sends nothing twice.
async fn take(
    State(app): State<App>,
    Extension(rates): Extension<std::sync::Arc<Rates>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    if !app.github.is_there() {
        // Whatever it is, nothing here could have signed it.
        let refused = Error::invalid(ErrorCode::InvalidSignature, "invalid signature");
        return answered(Err(refused), &rates, &parts);
    }
    let _stranger = rates.progress.stranger(client_address(&parts)).await?;
    let received = match DELIVERIES.read(body, Senders::of(&parts)).await {
        Ok(received) => received,
        Err(unread) => return Ok(did_not_arrive(unread, "25 MiB")),
    };
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let delivery = GithubDelivery {
        id: header("x-github-delivery"),
        event: header("x-github-event").unwrap_or_default(),
        signature: header("x-hub-signature-256"),
        body: &received,
    };
    answered(app.github.take_delivery(&delivery).await, &rates, &parts)
}

/// `GET /github/setup`: GitHub leads here whoever has installed the App, with a code that says who they are.
async fn set_up(State(app): State<App>, request: Request) -> Response {
    let query = Params::parse(request.uri().query().unwrap_or_default().as_bytes()).unwrap_or_default();
    let of = |name: &str, allowed: fn(u8) -> bool| {
        let text = query.get(name).filter(|text| (1..=200).contains(&text.len()));
        text.filter(|text| text.bytes().all(allowed)).map(str::to_owned)
    };
    let installation = of("installation_id", |byte| byte.is_ascii_digit());
    let code = of("code", |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let (title, what, next) = match (app.github.is_there(), installation, code) {
        (false, ..) => ("No GitHub App", "This platform has no GitHub App.", String::new()),
        (true, Some(installation), Some(code)) => (
            "The GitHub App is installed",
            "Link it to your organization within ten minutes: paste this at Integrations in the console, or run it.",
            format!("coppice github link {} --code {}", quoted(&installation), quoted(&code)),
        ),
        (true, ..) => (
            "GitHub did not say who you are",
            "The address lacks what proves that the installation is yours. Install the App again; its settings \
             must have \u{201c}Request user authorization (OAuth) during installation\u{201d}.",
            String::new(),
        ),
    };
    pages::message(&Message { title, what, next: &next, ..Message::default() })
}
