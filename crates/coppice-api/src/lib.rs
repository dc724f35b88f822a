//! The HTTP API.
//!
//! **Owns** routes, extraction, validation of bodies, and how errors look.
//! **Must not know** SQL, processes or paths; it asks [`coppice_app::App`].
//! **Start reading** at [`router`], which lists every route.
//!
//! A request passes, in this order: request id, CORS, compression, time limit,
//! then the handler, which authenticates, authorizes, reads its body, calls
//! the app once and answers.

mod body;
mod branches;
mod error;
mod projects;
mod regions;
mod request;

use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use coppice_app::App;
use coppice_core::Error;
use tower::Layer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};
use tower_http::normalize_path::NormalizePathLayer;

use error::ApiError;

/// Longest time a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest body of a request.
const BODY_LIMIT_BYTES: usize = 1 << 20;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    /// The id of the request this task answers.
    static CURRENT_REQUEST: String;
}

/// The id of the request being answered.
pub(crate) fn current_request_id() -> String {
    CURRENT_REQUEST.try_with(Clone::clone).unwrap_or_default()
}

/// All routes.
pub fn router(app: App) -> Router {
    const ORGANIZATION: &str = "/organizations/{organizationID}";
    let in_organization = |path: &str| format!("{ORGANIZATION}{path}");
    let routes = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route(&in_organization("/regions"), get(regions::list_regions))
        .route(&in_organization("/instanceTypes"), get(regions::list_instance_types))
        .route(&in_organization("/images"), get(regions::list_images))
        .route(&in_organization("/projects"), get(projects::list_projects).post(projects::create_project))
        .route(
            &in_organization("/projects/{projectID}"),
            get(projects::get_project).delete(projects::delete_project),
        )
        .route(
            &in_organization("/projects/{projectID}/branches"),
            get(branches::list_branches).post(branches::create_branch),
        )
        .route(
            &in_organization("/projects/{projectID}/branches/{branchID}"),
            get(branches::describe_branch).delete(branches::delete_branch),
        )
        .route(
            &in_organization("/projects/{projectID}/branches/{branchID}/credentials"),
            get(branches::get_branch_credentials),
        )
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_LIMIT_BYTES))
        .layer(from_fn(limit_time))
        .layer(CatchPanicLayer::custom(|_| ApiError(Error::internal("a handler panicked")).into_response()))
        .layer(CompressionLayer::new())
        .layer(cors())
        .layer(from_fn(identify))
        .with_state(app);
    // One trailing slash is ignored; routes must be matched after that.
    Router::new().fallback_service(NormalizePathLayer::trim_trailing_slash().layer(routes))
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
        .expose_headers([REQUEST_ID.clone(), header::RETRY_AFTER])
        .max_age(Duration::from_secs(7200))
}

/// Gives the request an id, keeps it for the log and sends it back.
async fn identify(request: Request, next: Next) -> Response {
    let sent = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_usable =
        |id: &&str| (1..=100).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    let id = match sent.filter(is_usable) {
        Some(id) => id.to_owned(),
        None => format!("req_{}", coppice_core::BranchId::generate()),
    };
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = CURRENT_REQUEST.scope(id.clone(), next.run(request)).await;
    if is_preflight && response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    if response.status() == StatusCode::NO_CONTENT {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID.clone(), value);
    }
    response
}

async fn limit_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            ApiError(Error::Timeout { private: "the request took too long".to_owned() }).into_response()
        }
    }
}

async fn unknown_route(_uri: Uri) -> ApiError {
    ApiError(Error::NotFound { code: "route_not_found", public: "no such path".to_owned() })
}

async fn wrong_method() -> Response {
    error::with_status(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "method not allowed")
}

async fn healthz() -> axum::Json<serde_json::Value> {
    axum::Json(serde_json::json!({ "status": "ok" }))
}

async fn readyz(State(app): State<App>) -> Result<axum::Json<serde_json::Value>, ApiError> {
    app.check_ready().await?;
    Ok(axum::Json(serde_json::json!({ "status": "ok" })))
}
