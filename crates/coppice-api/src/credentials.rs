//! How to connect to a branch.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use coppice_app::App;
use coppice_core::Result;
use coppice_core::operation::{GET_BRANCH_CREDENTIALS, ROTATE_BRANCH_CREDENTIALS};
use coppice_wire as wire;

use crate::body::{BodyError, RawBody};
use crate::error::ApiError;
use crate::request::{Call, InBranch};

/// Show how to connect to a branch
///
/// With the password that its server accepts, also while it sleeps. 404 after somebody else set one by SQL.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}/credentials",
    operation_id = "getBranchCredentials", tag = "Branches",
    params(
        InBranch,
        ("username" = Option<String>, Query, description = "The managed role, in either of its forms.",
            example = "app")
    ),
    responses((status = 200, description = "Role, password and place.", body = wire::BranchCredentials))
)]
pub(crate) async fn get_branch_credentials(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::BranchCredentials>, ApiError> {
    let access = call.authorize(&app, &GET_BRANCH_CREDENTIALS).await?;
    let found = app.get_branch_credentials(&access, call.query("username")).await?;
    Ok(Json(wire::BranchCredentials {
        username: found.username,
        password: found.password.to_string(),
        hostname: found.host,
        port: found.port,
        dbname: found.database,
        connection_string: found.connection_string.to_string(),
    }))
}

/// Give the managed role of a branch a new password
///
/// Answers when the new one is in force, or after a moment while the work goes on; a rotation that is going on is
/// joined. Ask for the credentials to read it. Open sessions stay; new ones need the new password. A sleeping branch
/// is not woken. A role that was locked out, renamed or dropped is there again afterwards.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}/credentials/rotate",
    operation_id = "rotateBranchCredentials", tag = "Branches", params(InBranch),
    request_body = wire::RotateCredentials,
    responses((status = 204, description = "The rotation was begun, and is usually done."))
)]
pub(crate) async fn rotate_branch_credentials(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<StatusCode, BodyError> {
    let access = call.authorize(&app, &ROTATE_BRANCH_CREDENTIALS).await?;
    let username = body.read(|fields| Ok(fields.required_text("username")?.to_owned())).await?;
    app.rotate_branch_credentials(&access, &username).await?;
    Ok(StatusCode::NO_CONTENT)
}
