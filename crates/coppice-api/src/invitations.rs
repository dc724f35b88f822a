//! Invitations to an organization.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coppice_app::{App, InvitationFilter, VisibleInvitation};
use coppice_core::operation::{
    ACCEPT_INVITATION, CREATE_ORGANIZATION_INVITATION, DELETE_ORGANIZATION_INVITATION,
    GET_ORGANIZATION_INVITATION, LIST_ORGANIZATION_INVITATIONS, RESEND_ORGANIZATION_INVITATION,
};
use coppice_core::organization::Role;
use coppice_core::{Error, Result, email};
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::body::{BodyError, Fields, RawBody};
use crate::context;
use crate::error::{ApiError, as_invalid_key};
use crate::members::{assignable, role_of, role_to_wire};
use crate::request::{Call, InOrganization, OnInvitation};

/// Invitations of one answer.
const COUNT_MAX: u32 = 100;

/// Which invitations to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "says what queries look like; `Call` reads them")]
pub(crate) struct ListInvitations {
    /// Only these.
    #[param(inline)]
    status: Option<wire::InvitationStatus>,
    /// Only for this address, without regard to case.
    #[param(max_length = 254)]
    email: Option<String>,
    /// Only for first names that contain this, without regard to case.
    #[param(max_length = 254)]
    first_name: Option<String>,
    /// Only for last names that contain this, without regard to case.
    #[param(max_length = 254)]
    last_name: Option<String>,
    /// Only for addresses and names that contain this, without regard to case.
    #[param(max_length = 254)]
    search: Option<String>,
    /// Index of the first one, from 0.
    #[param(minimum = 0, maximum = 4_294_967_295_u32, default = 0)]
    first: Option<u32>,
    /// Most of them in this answer.
    #[param(minimum = 1, maximum = 100, default = 100)]
    max: Option<u32>,
}

/// List the invitations of an organization
///
/// Pending and expired ones, the newest first, in pages of up to 100.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/invitations",
    operation_id = "listOrganizationInvitations", tag = "Organizations",
    params(InOrganization, ListInvitations),
    responses((status = 200, description = "Its invitations, also expired ones.", body = wire::InvitationList))
)]
pub(crate) async fn list_organization_invitations(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::InvitationList>, ApiError> {
    let access = call.authorize(&app, &LIST_ORGANIZATION_INVITATIONS).await?;
    let filter = filter_of(&call)?;
    let first = call.query_number("first", 0, u32::MAX)?.unwrap_or(0);
    let max = call.query_number("max", 1, COUNT_MAX)?.unwrap_or(COUNT_MAX);
    let found = app.list_invitations(&access, &filter, first, max).await?;
    let invitations = found.into_iter().map(to_wire).collect::<Result<_>>()?;
    Ok(Json(wire::InvitationList { invitations }))
}

/// Invite somebody to an organization
///
/// They get the link by mail where that is set up; it is in this answer too. An expired invitation of the
/// same address is replaced.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/invitations",
    operation_id = "createOrganizationInvitation", tag = "Organizations",
    params(InOrganization), request_body = wire::CreateInvitation,
    responses((status = 201, description = "The invitation.", body = wire::Invitation))
)]
pub(crate) async fn create_organization_invitation(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Response, BodyError> {
    let access = call.authorize(&app, &CREATE_ORGANIZATION_INVITATION).await?;
    let invited =
        |fields: &Fields| Ok((email_of(fields, "email")?, role_of(fields, "role")?.unwrap_or(Role::Editor)));
    let (email, role) = body.read(invited).await?;
    let made = app.create_invitation(&access, &email, role).await?;
    Ok((StatusCode::CREATED, Json(to_wire(made)?)).into_response())
}

/// Show an invitation
///
/// With its link, while it is pending, for those who may invite.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/invitations/{invitationID}",
    operation_id = "getOrganizationInvitation", tag = "Organizations", params(OnInvitation),
    responses((status = 200, description = "The invitation.", body = wire::Invitation))
)]
pub(crate) async fn get_organization_invitation(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::Invitation>, ApiError> {
    let access = call.authorize(&app, &GET_ORGANIZATION_INVITATION).await?;
    Ok(Json(to_wire(app.get_invitation(&access).await?)?))
}

/// Withdraw an invitation
///
/// Its link stops working.
#[utoipa::path(
    delete, path = "/organizations/{organizationID}/invitations/{invitationID}",
    operation_id = "deleteOrganizationInvitation", tag = "Organizations", params(OnInvitation),
    responses((status = 204, description = "Withdrawn."))
)]
pub(crate) async fn delete_organization_invitation(
    State(app): State<App>,
    call: Call,
) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &DELETE_ORGANIZATION_INVITATION).await?;
    app.delete_invitation(&access).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a pending invitation again
///
/// It gets a new link, which makes the old one useless, and its whole time again.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/invitations/{invitationID}/resend",
    operation_id = "resendOrganizationInvitation", tag = "Organizations", params(OnInvitation),
    responses((status = 204, description = "Sent again."))
)]
pub(crate) async fn resend_organization_invitation(
    State(app): State<App>,
    call: Call,
) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &RESEND_ORGANIZATION_INVITATION).await.map_err(as_invalid_key)?;
    app.resend_invitation(&access).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Accept an invitation as the calling user
///
/// It must be for the user's own address. Whoever is a member already keeps their role.
#[utoipa::path(
    post, path = "/invitations/accept", operation_id = "acceptInvitation", tag = "Organizations",
    request_body = wire::AcceptInvitation,
    responses((status = 200, description = "The caller is a member.", body = wire::AcceptedInvitation))
)]
pub(crate) async fn accept_invitation(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Json<wire::AcceptedInvitation>, BodyError> {
    let access = call.authorize_person(&app, &ACCEPT_INVITATION).await?;
    let token = body.read(|fields| Ok(fields.required_text("token")?.to_owned())).await?;
    let accepted = app.accept_invitation(&access, &token).await?;
    context::audit_notes(|notes| notes.organization(accepted.organization.to_string()));
    Ok(Json(wire::AcceptedInvitation {
        organization_id: accepted.organization.to_string(),
        role: role_to_wire(accepted.role),
    }))
}

fn email_of(fields: &Fields, field: &str) -> Result<String> {
    let text = fields.required_text(field)?;
    email::normalised(text).ok_or_else(|| {
        Error::invalid_field(field, "must be an address of at most 254 characters, like ada@example.com")
    })
}

fn filter_of(call: &Call) -> Result<InvitationFilter> {
    let is_pending = match call.query("status") {
        None => None,
        Some("pending") => Some(true),
        Some("expired") => Some(false),
        Some(_) => return Err(Error::invalid_query("status", "must be pending or expired")),
    };
    Ok(InvitationFilter {
        is_pending,
        email: call.query_text("email")?,
        first_name: call.query_text("first_name")?,
        last_name: call.query_text("last_name")?,
        search: call.query_text("search")?,
    })
}

fn to_wire(visible: VisibleInvitation) -> Result<wire::Invitation> {
    let VisibleInvitation { invitation, link } = visible;
    Ok(wire::Invitation {
        id: invitation.id.to_string(),
        organization_id: invitation.organization.to_string(),
        email: invitation.email,
        first_name: invitation.first_name,
        last_name: invitation.last_name,
        role: assignable(invitation.role)?,
        created_at: wire::Timestamp(invitation.created_at),
        expires_at: wire::Timestamp(invitation.expires_at),
        status: match invitation.is_pending {
            true => wire::InvitationStatus::Pending,
            false => wire::InvitationStatus::Expired,
        },
        invite_link: link.map(|link| link.to_string()),
    })
}
