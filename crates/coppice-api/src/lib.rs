//! The HTTP API.
//!
//! **Owns** routes, extraction, validation of bodies, the OpenAPI document,
//! and how errors look.
//! **Must not know** SQL, processes or paths; it asks [`coppice_app::App`].
//! **Start reading** at [`router`], then `endpoint/mod.rs`, which says what an
//! operation is.
//!
//! A request passes, in this order: the rest of its body, request id, CORS, a place for its answer,
//! compression, time limit, `Idempotency-Key`, the audit log, then the operation: it authenticates,
//! authorizes, reads the body, and gives all that to the handler, which calls the app once and answers.

// An optimized build computes the layout of a whole request at once, which is
// async functions in each other from the handler to the metastore's socket.
#![recursion_limit = "512"]

mod activity;
mod arrival;
mod audience;
mod audit;
mod audit_log;
mod backup_settings;
mod backups;
mod beside;
mod billing;
mod billing_webhooks;
mod body;
mod branch_metrics;
mod branches;
mod budgets;
mod client_address;
mod coding;
mod configuration;
mod connections;
mod console;
mod console_session;
mod context;
mod credential;
mod credentials;
mod delivered;
mod departure;
mod diff;
mod door;
mod endpoint;
mod entry;
mod error;
mod events;
mod github;
mod github_webhook;
mod history;
mod hosts;
mod idempotency;
mod identify;
mod invitations;
mod invoice_pdf;
mod json;
mod keys;
mod logs;
mod marketplace;
mod members;
mod metrics;
mod metrics_page;
mod oauth;
mod openapi;
mod organizations;
mod origin;
mod pace;
mod pages;
mod progress;
mod projects;
mod proof;
mod rates;
mod regions;
mod remainder;
mod request;
mod reset;
mod route;
mod serve;
mod sql;
mod statements;
mod time;
mod trash;
mod tree;
mod unreadable;
mod usage;
mod users;
mod vercel;
mod waited;
mod webhooks;
mod wishes;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_request, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use coppice_app::App;
use coppice_app::tasks::Tasks;
use coppice_core::proxies::TrustedProxies;
use coppice_core::{Error, ErrorCode};
use coppice_gateway::Gateway;
use tower::Layer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

pub use crate::audit_log::shown_outcome;
pub use crate::error::status_of;
pub use crate::metrics_page::{Exposition, MetricsToken};
pub use crate::route::RequestRoute;
pub use beside::{beside, note_sender, read_json};
pub use connections::ConnectionLimits;
pub use hosts::Hosts;
pub use oauth::sign_in_link;
pub use openapi::document;
pub use proof::ByAgent;
pub use serve::serve;
pub use sql::gateway_routes;

use crate::audience::Audience;
use crate::metrics_page::MetricsPage;
use context::REQUEST_ID;
use door::Door;
use error::ApiError;
use identify::{identify, note_route};
use rates::Rates;
use route::RequestRoutes;

/// Longest time a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest body of a request.
const BODY_LIMIT_BYTES: usize = 1 << 20;
/// How often rates of those who went away are forgotten.
const RATES_CLEANING: Duration = Duration::from_secs(60);

/// Settings of the API.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// Requests a second of one credential; five times as many may come at once.
    pub requests_per_second: NonZeroU32,
    /// Requests a second of one address without a credential; five times as many may come at once.
    pub address_requests_per_second: NonZeroU32,
    /// Who may say by `X-Forwarded-For` where a client is.
    pub trusted_proxies: TrustedProxies,
    /// The token that allows reading `/metrics`; without one only this machine may.
    pub metrics_token: Option<MetricsToken>,
    /// Names of this site.
    pub hosts: Hosts,
}

/// All routes. `exposition` makes the page of `/metrics`; by `gateway`, where there is one, the console
/// reaches branches. What has to be done beside requests is among `tasks` then. To be called within a
/// Tokio runtime.
pub fn router(
    tasks: &mut Tasks,
    app: App,
    config: ApiConfig,
    exposition: Arc<dyn Exposition>,
    gateway: Option<Arc<Gateway>>,
) -> Router {
    metrics::describe();
    connections::describe();
    let (trusted_proxies, hosts) = (Arc::new(config.trusted_proxies), Arc::new(config.hosts));
    let rates = Arc::new(Rates::new(config.requests_per_second, config.address_requests_per_second));
    tasks.every("rates_purge", RATES_CLEANING, &rates, |rates| async move {
        rates.forget_idle();
        Ok(())
    });
    let (operations, document) = openapi::operations();
    let limits = Limits {
        rates,
        trusted_proxies: trusted_proxies.clone(),
        names: Arc::new(RequestRoutes::new(&document)),
    };
    let page = MetricsPage { exposition, token: config.metrics_token };
    let operations = operations
        .route_layer(from_fn_with_state(app.clone(), idempotency::committed))
        .route_layer(from_fn_with_state(app.clone(), audit::recorded))
        .route_layer(from_fn_with_state(app.clone(), idempotency::idempotent))
        .route_layer(map_response(uncached))
        .fallback(unknown_route);
    let operations = match &gateway {
        Some(gateway) => operations.layer(Extension(gateway.clone())),
        None => operations,
    };
    let behind = operations.clone().merge(console_session::routes().route_layer(map_response(uncached)));
    let scripts = gateway.map(|gateway| sql::console_routes().layer(Extension(gateway)));
    let behind = limits
        .around(behind, Audience::Api)
        .layer(from_fn(departure::leave_in_turn))
        .merge(limits.around_long(scripts.unwrap_or_default(), Audience::Api))
        .layer(Extension(trusted_proxies.clone()))
        .with_state(app.clone());
    let door = Door { behind, app: app.clone(), hosts: hosts.clone() };
    let routes = operations
        .route("/healthz", get(healthz))
        .route("/.well-known/coppice", get(server))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page::metrics_page))
        .layer(Extension(page))
        .layer(Extension(hosts.clone()));
    let routes = limits
        .around(routes, Audience::Api)
        .merge(limits.around(github_webhook::routes(), Audience::Api))
        .merge(limits.around(vercel::routes().route_layer(map_response(uncached)), Audience::Vercel))
        .merge(limits.around(billing_webhooks::routes(), Audience::Api))
        .merge(limits.around(oauth::endpoints(&app), Audience::Clients))
        .layer(CompressionLayer::new())
        .layer(from_fn(departure::leave_in_turn))
        .layer(Extension(trusted_proxies))
        .merge(limits.around(openapi::documents(), Audience::Api));
    let routes = routes.layer(cors()).with_state(app.clone());
    // Pages answer no other origin. Compressed, the length of one would tell
    // something of the secrets in its forms.
    let base_path = app.identity.issuers().base_path().to_owned();
    let pages = limits
        .around(
            oauth::pages(&app)
                .merge(github_webhook::pages())
                .route_layer(from_fn(departure::leave_in_turn))
                .merge(console::routes())
                .route("/", any(home)),
            Audience::People,
        )
        .route_layer(from_fn_with_state(hosts.clone(), hosts::only_this_site))
        .layer(from_fn(move |request, next| pages::below(base_path.clone(), request, next)))
        .merge(pages::routes())
        .with_state(app)
        .fallback_service(routes);
    // Routes must be matched after that.
    openapi::pages()
        .layer(from_fn_with_state(hosts, hosts::only_this_site))
        .layer(from_fn_with_state(limits.names, note_route))
        .fallback_service(
            map_request(ignore_trailing_slash).layer(from_fn_with_state(door, door::door).layer(pages)),
        )
        .layer(from_fn(identify))
        .layer(from_fn(remainder::discard_remainder))
}

/// What every request of the API and of the pages meets.
struct Limits {
    rates: Arc<Rates>,
    trusted_proxies: Arc<TrustedProxies>,
    names: Arc<RequestRoutes>,
}

impl Limits {
    fn around(&self, routes: Router<App>, audience: Audience) -> Router<App> {
        self.around_long(
            routes.layer(from_fn(move |request, next| limit_time(audience, request, next))),
            audience,
        )
    }

    /// As [`Limits::around`], for what takes as long as it does.
    fn around_long(&self, routes: Router<App>, audience: Audience) -> Router<App> {
        routes
            .method_not_allowed_fallback(move || async move { audience.wrong_method() })
            .layer(from_fn(progress::on_behalf))
            .layer(Extension(self.rates.clone()))
            .layer(Extension(self.trusted_proxies.clone()))
            .layer(from_fn_with_state(self.names.clone(), note_route))
            .layer(CatchPanicLayer::custom(move |panic| panicked(audience, &panic)))
    }
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([
            Method::GET,
            Method::HEAD,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::OPTIONS,
        ])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([
            REQUEST_ID.clone(),
            header::RETRY_AFTER,
            HeaderName::from_static("ratelimit-limit"),
            HeaderName::from_static("ratelimit-remaining"),
            HeaderName::from_static("ratelimit-reset"),
            HeaderName::from_static("deprecation"),
            HeaderName::from_static("sunset"),
        ])
        .max_age(Duration::from_secs(7200))
}

async fn limit_time(audience: Audience, request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => audience.told(Error::Timeout { private: "the request took too long".to_owned() }),
    }
}

fn panicked(audience: Audience, panic: &Box<dyn std::any::Any + Send>) -> Response {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let cause = format!("a handler panicked: {}", words.unwrap_or("without words"));
    audience.told(Error::internal(cause))
}

/// One trailing slash is ignored, also where a query follows.
async fn ignore_trailing_slash(mut request: Request) -> Request {
    let uri = request.uri();
    let path = uri.path().strip_suffix('/').filter(|path| !path.is_empty() && !path.ends_with('/'));
    let shorter = path.map(|path| match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    });
    if let Some(path_and_query) = shorter.and_then(|text| text.parse().ok()) {
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(path_and_query);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// What an operation answers is for who asked, and may be a secret.
async fn uncached(mut response: Response) -> Response {
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn unknown_route(_uri: Uri) -> ApiError {
    not_found()
}

fn not_found() -> ApiError {
    Error::NotFound { code: ErrorCode::RouteNotFound, public: "no such path".to_owned() }.into()
}

/// Leads people somewhere; to programs it is no path of the API.
async fn home(State(app): State<App>, method: Method, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if matches!(method, Method::GET | Method::HEAD) && accepted.contains("text/html") {
        oauth::redirect(&format!("{}/console/", app.identity.issuers().base_path()))
    } else {
        not_found().into_response()
    }
}

async fn healthz() -> axum::Json<serde_json::Value> {
    axum::Json(serde_json::json!({ "status": "ok" }))
}

/// Which platform this is, and which process of it: whoever meant another one
/// can tell before it shows a credential.
async fn server(State(app): State<App>) -> axum::Json<serde_json::Value> {
    let server = &app.config().server;
    axum::Json(serde_json::json!({ "installation": server.installation, "process": server.process }))
}

async fn readyz(State(app): State<App>) -> Result<axum::Json<serde_json::Value>, ApiError> {
    app.check_ready().await?;
    Ok(axum::Json(serde_json::json!({ "status": "ok" })))
}
