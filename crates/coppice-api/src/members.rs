//! Members of an organization and the roles they can have.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use coppice_app::App;
use coppice_core::operation::{
    LIST_ORGANIZATION_MEMBERS, LIST_ORGANIZATION_ROLES, REMOVE_ORGANIZATION_MEMBER,
    SET_ORGANIZATION_MEMBER_ROLE,
};
use coppice_core::organization::{Member, Role};
use coppice_core::{ApiKeyId, Error, Result};
use coppice_wire as wire;

use crate::body::{BodyError, Fields, RawBody};
use crate::context;
use crate::error::ApiError;
use crate::request::{Call, InOrganization, OnMember};

/// List the members of an organization
///
/// With their roles; who joined first comes first.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/members", operation_id = "listOrganizationMembers",
    tag = "Organizations", params(InOrganization),
    responses((status = 200, description = "Its members.", body = wire::MemberList))
)]
pub(crate) async fn list_organization_members(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::MemberList>, ApiError> {
    let access = call.authorize(&app, &LIST_ORGANIZATION_MEMBERS).await?;
    let members = app.list_members(&access).await?;
    Ok(Json(wire::MemberList { members: members.into_iter().map(to_wire).collect() }))
}

/// Remove a member from an organization
///
/// Their access ends with the next request. Keys and projects they made for the organization stay; the list of keys
/// marks those, and the line in the audit log names them.
#[utoipa::path(
    delete, path = "/organizations/{organizationID}/members/{userID}",
    operation_id = "removeOrganizationMember", tag = "Organizations", params(OnMember),
    responses((status = 204, description = "Removed."))
)]
pub(crate) async fn remove_organization_member(
    State(app): State<App>,
    call: Call,
) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &REMOVE_ORGANIZATION_MEMBER).await?;
    note_keys(&app.remove_member(&access).await?);
    Ok(StatusCode::NO_CONTENT)
}

/// Give a member another role
///
/// Keys that they made for the organization stay. The list of keys marks those that allow more than the role does now,
/// and the line in the audit log names them.
#[utoipa::path(
    put, path = "/organizations/{organizationID}/members/{userID}/role",
    operation_id = "setOrganizationMemberRole", tag = "Organizations", params(OnMember),
    request_body = wire::SetMemberRole,
    responses((status = 204, description = "The member has the role."))
)]
pub(crate) async fn set_organization_member_role(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<StatusCode, BodyError> {
    let access = call.authorize(&app, &SET_ORGANIZATION_MEMBER_ROLE).await?;
    let role = |fields: &Fields| role_of(fields, "role")?.ok_or_else(|| fields.missing("role"));
    let role = body.read(role).await?;
    note_keys(&app.set_member_role(&access, role).await?);
    Ok(StatusCode::NO_CONTENT)
}

/// Names keys in the line of the audit log.
fn note_keys(keys: &[ApiKeyId]) {
    context::audit_notes(|notes| notes.targets(keys.iter().map(ToString::to_string).collect()));
}

/// List the roles that can be given to members
///
/// The mightiest first. The owner's is not among them: nobody can be given it.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/roles", operation_id = "listOrganizationRoles",
    tag = "Organizations", params(InOrganization),
    responses((status = 200, description = "The roles.", body = wire::RoleList))
)]
pub(crate) async fn list_organization_roles(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::RoleList>, ApiError> {
    call.authorize(&app, &LIST_ORGANIZATION_ROLES).await?;
    let describe = |role: Role| {
        let (name, description) = (role.title().to_owned(), role.description().to_owned());
        Ok(wire::Role { id: assignable(role)?, name, description })
    };
    let roles = Role::ASSIGNABLE.into_iter().map(describe).collect::<Result<_>>()?;
    Ok(Json(wire::RoleList { roles }))
}

/// A role that can be given to somebody, if it is there.
pub(crate) fn role_of(fields: &Fields, field: &str) -> Result<Option<Role>> {
    let Some(text) = fields.text(field)? else { return Ok(None) };
    match Role::parse_assignable(text) {
        Some(role) => Ok(Some(role)),
        None => Err(Error::invalid_field(field, "must be admin, editor or viewer")),
    }
}

pub(crate) fn assignable(role: Role) -> Result<wire::AssignableRole> {
    match role {
        Role::Admin => Ok(wire::AssignableRole::Admin),
        Role::Editor => Ok(wire::AssignableRole::Editor),
        Role::Viewer => Ok(wire::AssignableRole::Viewer),
        Role::Owner => Err(Error::internal("nobody can be made an owner")),
    }
}

pub(crate) fn role_to_wire(role: Role) -> wire::MemberRole {
    match role {
        Role::Owner => wire::MemberRole::Owner,
        Role::Admin => wire::MemberRole::Admin,
        Role::Editor => wire::MemberRole::Editor,
        Role::Viewer => wire::MemberRole::Viewer,
    }
}

fn to_wire(member: Member) -> wire::Member {
    wire::Member {
        id: member.id.to_string(),
        email: member.email,
        name: member.name,
        role: role_to_wire(member.role),
        joined_at: wire::Timestamp(member.joined_at),
    }
}
