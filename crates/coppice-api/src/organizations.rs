//! Organizations and their limits.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coppice_app::App;
use coppice_core::Error;
use coppice_core::limits::OrganizationLimits;
use coppice_core::limits::{DESCRIPTION_LENGTH_MAX, INSTANCE_TYPE_MAX_MILLIS, INSTANCES_PER_BRANCH_MAX};
use coppice_core::operation::{
    CREATE_ORGANIZATION, DELETE_ORGANIZATION, GET_ORGANIZATION, GET_ORGANIZATION_LIMITS,
    GET_ORGANIZATION_MEMBERSHIP_LIMITS, GET_ORGANIZATIONS_LIST, REQUEST_ORGANIZATION_DELETION,
    UPDATE_ORGANIZATION,
};
use coppice_core::organization::{BillingStatus, Organization, UsageTier};
use coppice_wire as wire;

use crate::body::{BodyError, Fields, RawBody};
use crate::error::{ApiError, as_invalid_key};
use crate::request::{Call, InOrganization};

/// List the organizations the caller belongs to
///
/// Cheap, so that clients can use it to test a key.
#[utoipa::path(
    get, path = "/organizations", operation_id = "getOrganizationsList", tag = "Organizations",
    responses((status = 200, description = "The caller's organizations.", body = wire::OrganizationList))
)]
pub(crate) async fn get_organizations_list(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::OrganizationList>, ApiError> {
    let caller = call.authorize_anywhere(&app, &GET_ORGANIZATIONS_LIST).await.map_err(as_invalid_key)?;
    let organizations = app.list_organizations(&caller).await?;
    Ok(Json(wire::OrganizationList { organizations: organizations.into_iter().map(to_wire).collect() }))
}

/// Make an organization
///
/// The caller becomes its owner. Names may repeat, so a repeated call makes a second one.
#[utoipa::path(
    post, path = "/organizations", operation_id = "createOrganization", tag = "Organizations",
    request_body = wire::CreateOrganization,
    responses((status = 201, description = "The new organization.", body = wire::Organization))
)]
pub(crate) async fn create_organization(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Response, BodyError> {
    let access = call.authorize_person(&app, &CREATE_ORGANIZATION).await.map_err(as_invalid_key)?;
    let name = body.read(|fields| fields.name_of("name", 128)).await?;
    let organization = app.create_organization(&access, &name).await?;
    Ok((StatusCode::CREATED, Json(to_wire(organization))).into_response())
}

/// Show an organization
///
/// Its name, and whether it may write and run branches.
#[utoipa::path(
    get, path = "/organizations/{organizationID}", operation_id = "getOrganization", tag = "Organizations",
    params(InOrganization),
    responses((status = 200, description = "The organization.", body = wire::OrganizationDetails))
)]
pub(crate) async fn get_organization(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::OrganizationDetails>, ApiError> {
    let access = call.authorize(&app, &GET_ORGANIZATION).await?;
    Ok(Json(details(access.organization)))
}

/// Change an organization
///
/// Its name, and whether it asks its members for a second factor. With `requires_second_factor`, who signed in
/// without one is refused with 403 and the id `second_factor_required`, and so are keys that members made without one.
#[utoipa::path(
    put, path = "/organizations/{organizationID}", operation_id = "updateOrganization", tag = "Organizations",
    params(InOrganization), request_body = wire::UpdateOrganization,
    responses((status = 200, description = "The organization as it is now.", body = wire::OrganizationDetails))
)]
pub(crate) async fn update_organization(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Json<wire::OrganizationDetails>, BodyError> {
    let access = call.authorize(&app, &UPDATE_ORGANIZATION).await?;
    let change = |fields: &Fields| {
        if fields.text("id")?.is_some_and(|id| id != access.organization.id.as_str()) {
            return Err(Error::invalid_field("id", "must be the id in the path"));
        }
        Ok((fields.optional_name("name", 128)?, fields.flag("requires_second_factor")?))
    };
    let (name, requires_second_factor) = body.read(change).await?;
    let updated = app.update_organization(&access, name.as_deref(), requires_second_factor).await?;
    Ok(Json(details(updated)))
}

/// Delete an organization
///
/// Only its owner can, and only without projects. Its keys end at once.
#[utoipa::path(
    delete, path = "/organizations/{organizationID}", operation_id = "deleteOrganization",
    tag = "Organizations", params(InOrganization),
    responses((status = 204, description = "Deleted."))
)]
pub(crate) async fn delete_organization(State(app): State<App>, call: Call) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &DELETE_ORGANIZATION).await?;
    app.delete_organization(&access).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ask for the deletion of an organization
///
/// Only its owner can, and only without projects. It is disabled at once, and deleted as soon as nothing is
/// owed.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/deletion-request",
    operation_id = "requestOrganizationDeletion", tag = "Organizations", params(InOrganization),
    responses((status = 202, description = "It will be deleted."))
)]
pub(crate) async fn request_organization_deletion(
    State(app): State<App>,
    call: Call,
) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &REQUEST_ORGANIZATION_DELETION).await?;
    app.request_organization_deletion(&access).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Show the quotas of an organization
///
/// How many projects and branches it may have and make, and how large they may be.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/limits", operation_id = "getOrganizationLimits",
    tag = "Organizations", params(InOrganization),
    responses((status = 200, description = "Its quotas.", body = wire::OrganizationLimits))
)]
pub(crate) async fn get_organization_limits(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::OrganizationLimits>, ApiError> {
    call.authorize(&app, &GET_ORGANIZATION_LIMITS).await?;
    let limits = app.organization_limits();
    Ok(Json(wire::OrganizationLimits {
        project: effective_limits(&limits),
        max_projects: limits.projects_max,
        max_projects_per_hour: limits.projects_per_hour_max,
        max_branches_per_org: limits.branches_max,
    }))
}

/// Show how many members an organization may have
///
/// And how many invitations may be pending at once.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/membership-limits",
    operation_id = "getOrganizationMembershipLimits", tag = "Organizations", params(InOrganization),
    responses((status = 200, description = "The quotas.", body = wire::OrganizationMembershipLimits))
)]
pub(crate) async fn get_organization_membership_limits(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::OrganizationMembershipLimits>, ApiError> {
    call.authorize(&app, &GET_ORGANIZATION_MEMBERSHIP_LIMITS).await?;
    let limits = app.organization_limits();
    Ok(Json(wire::OrganizationMembershipLimits {
        max_members: limits.members_max,
        max_invites: limits.invitations_max,
    }))
}

/// What holds for each project of an organization.
pub(crate) fn effective_limits(limits: &OrganizationLimits) -> wire::EffectiveProjectLimits {
    wire::EffectiveProjectLimits {
        max_description_length: DESCRIPTION_LENGTH_MAX,
        max_branches_per_project: limits.branches_per_project_max,
        max_instances_per_branch: INSTANCES_PER_BRANCH_MAX,
        min_instances_per_branch: 1,
        max_allowed_instance_type: INSTANCE_TYPE_MAX_MILLIS,
        max_branches_per_hour: limits.branches_per_hour_max,
        max_storage_gb_per_branch: limits.storage_gib_max,
    }
}

fn details(organization: Organization) -> wire::OrganizationDetails {
    let requires_second_factor = organization.requires_second_factor;
    wire::OrganizationDetails { organization: to_wire(organization), requires_second_factor }
}

fn to_wire(organization: Organization) -> wire::Organization {
    let is_enabled = organization.is_enabled();
    wire::Organization {
        id: organization.id.to_string(),
        name: organization.name,
        status: wire::OrganizationStatus {
            status: if is_enabled {
                wire::OrganizationState::Enabled
            } else {
                wire::OrganizationState::Disabled
            },
            disabled_by_admin: organization.disabled_by_admin,
            billing_status: match organization.billing_status {
                BillingStatus::Ok => wire::BillingStatus::Ok,
                BillingStatus::NoPaymentMethod => wire::BillingStatus::NoPaymentMethod,
                BillingStatus::InvoiceOverdue => wire::BillingStatus::InvoiceOverdue,
                BillingStatus::Unknown => wire::BillingStatus::Unknown,
                BillingStatus::DeletionRequested => wire::BillingStatus::DeletionRequested,
            },
            usage_tier: match organization.usage_tier {
                UsageTier::T1 => wire::UsageTier::T1,
                UsageTier::T2 => wire::UsageTier::T2,
            },
            last_updated: wire::Timestamp(organization.last_updated),
            admin_reason: organization.admin_reason,
            billing_reason: organization.billing_reason,
            created_at: wire::Timestamp(organization.created_at),
        },
    }
}
