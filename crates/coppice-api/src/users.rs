//! The caller's own account.

use axum::Json;
use axum::extract::State;
use coppice_app::App;
use coppice_core::operation::{GET_USER, UPDATE_USER};
use coppice_core::organization::User;
use coppice_wire as wire;

use crate::body::{BodyError, RawBody};
use crate::error::ApiError;
use crate::request::Call;

/// Show the calling user
///
/// Whose key or token it is.
#[utoipa::path(
    get, path = "/user", operation_id = "getUser", tag = "Users",
    responses((status = 200, description = "The caller's account.", body = wire::User))
)]
pub(crate) async fn get_user(State(app): State<App>, call: Call) -> Result<Json<wire::User>, ApiError> {
    let access = call.authorize_person(&app, &GET_USER).await?;
    Ok(Json(to_wire(app.get_user(&access).await?)))
}

/// Rename the calling user
///
/// Everywhere; the address stays.
#[utoipa::path(
    patch, path = "/user", operation_id = "updateUser", tag = "Users",
    request_body = wire::UpdateUser,
    responses((status = 200, description = "The account as it is now.", body = wire::User))
)]
pub(crate) async fn update_user(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Json<wire::User>, BodyError> {
    let access = call.authorize_person(&app, &UPDATE_USER).await?;
    let name = body.read(|fields| fields.display_name("name", 128)).await?;
    Ok(Json(to_wire(app.update_user(&access, name.as_deref()).await?)))
}

fn to_wire(user: User) -> wire::User {
    wire::User {
        id: user.id.to_string(),
        email: user.email,
        name: user.name,
        created_at: wire::Timestamp(user.created_at),
    }
}
