//! Organizations and their limits.

use coppice_app::{Access, App, PersonalAccess};
use coppice_core::access::Caller;
use coppice_core::limits::OrganizationLimits;
use coppice_core::limits::{DESCRIPTION_LENGTH_MAX, INSTANCE_TYPE_MAX_MILLIS, INSTANCES_PER_BRANCH_MAX};
use coppice_core::operation::{
    CREATE_ORGANIZATION, DELETE_ORGANIZATION, GET_ORGANIZATION, GET_ORGANIZATION_LIMITS,
    GET_ORGANIZATION_MEMBERSHIP_LIMITS, GET_ORGANIZATIONS_LIST, REQUEST_ORGANIZATION_DELETION,
    UPDATE_ORGANIZATION,
};
use coppice_core::organization::{BillingStatus, Organization, UsageTier};
use coppice_core::{Error, Result};
use coppice_wire as wire;

use crate::endpoint::{Begun, Body, Done, Endpoint, Made, Shown, delete, get, post, put};
use crate::error::as_invalid_key;
use crate::marketplace;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Organizations";
    vec![
        get("/organizations", &GET_ORGANIZATIONS_LIST)
            .says(AREA, "List the organizations the caller belongs to", "Cheap, so that clients can use it to test a key.")
            .answers("The caller's organizations.")
            .forbids_by(as_invalid_key)
            .runs(get_organizations_list),
        post("/organizations", &CREATE_ORGANIZATION)
            .says(AREA, "Make an organization", "The caller becomes its owner. Names may repeat, so a repeated call makes a second one.")
            .answers("The new organization.")
            .forbids_by(as_invalid_key)
            .runs(create_organization),
        get("", &GET_ORGANIZATION)
            .says(AREA, "Show an organization", "Its name, and whether it may write and run branches.")
            .answers("The organization.")
            .runs(get_organization),
        put("", &UPDATE_ORGANIZATION)
            .says(AREA, "Change an organization", "Its name, and whether it asks its members for a second factor. With `requires_second_factor`, who signed in\nwithout one is refused with 403 and the id `second_factor_required`, and so are keys that members made without one. To take that back, a person\nin a browser has to have shown just now who they are.")
            .answers("The organization as it is now.")
            .runs(update_organization),
        delete("", &DELETE_ORGANIZATION)
            .says(AREA, "Delete an organization", "Only its owner can, and only without projects. Its keys end at once.")
            .answers("Deleted.")
            .refuses(409, "It still has projects.")
            .runs(delete_organization),
        post("/deletion-request", &REQUEST_ORGANIZATION_DELETION)
            .says(AREA, "Ask for the deletion of an organization", "Only its owner can, and only without projects. It is disabled at once, and deleted as soon as nothing is\nowed.")
            .answers("It will be deleted.")
            .refuses(409, "It still has projects.")
            .runs(request_organization_deletion),
        get("/limits", &GET_ORGANIZATION_LIMITS)
            .says(AREA, "Show the quotas of an organization", "How many projects and branches it may have and make, and how large they may be.")
            .answers("Its quotas.")
            .runs(get_organization_limits),
        get("/membership-limits", &GET_ORGANIZATION_MEMBERSHIP_LIMITS)
            .says(AREA, "Show how many members an organization may have", "And how many invitations may be pending at once.")
            .answers("The quotas.")
            .runs(get_organization_membership_limits),
    ]
}

async fn get_organizations_list(app: App, caller: Caller) -> Result<Shown<wire::OrganizationList>> {
    let organizations = app.organizations.list(&caller).await?;
    Ok(Shown(wire::OrganizationList { organizations: organizations.into_iter().map(to_wire).collect() }))
}

async fn create_organization(
    app: App,
    access: PersonalAccess,
    Body(asked): Body<wire::CreateOrganization>,
) -> Result<Made<wire::MadeOrganization>> {
    let (organization, marketplace) = app.organizations.create(&access, &asked.name).await?;
    let marketplace = marketplace.map(marketplace::to_wire);
    Ok(Made(wire::MadeOrganization { organization: to_wire(organization), marketplace }))
}

async fn get_organization(_: App, access: Access) -> Result<Shown<wire::OrganizationDetails>> {
    Ok(Shown(details(access.organization)))
}

async fn update_organization(
    app: App,
    access: Access,
    Body(asked): Body<wire::UpdateOrganization>,
) -> Result<Shown<wire::OrganizationDetails>> {
    if asked.id.is_some_and(|id| id != access.organization.id.as_str()) {
        return Err(Error::invalid_field("id", "must be the id in the path"));
    }
    let updated =
        app.organizations.update(&access, asked.name.as_deref(), asked.requires_second_factor).await?;
    Ok(Shown(details(updated)))
}

async fn delete_organization(app: App, access: Access) -> Result<Done> {
    app.organizations.delete(&access).await?;
    Ok(Done)
}

async fn request_organization_deletion(app: App, access: Access) -> Result<Begun> {
    app.organizations.request_deletion(&access).await?;
    Ok(Begun)
}

async fn get_organization_limits(app: App, _: Access) -> Result<Shown<wire::OrganizationLimits>> {
    let limits = app.organizations.limits();
    Ok(Shown(wire::OrganizationLimits {
        project: effective_limits(&limits),
        max_projects: limits.projects_max,
        max_projects_per_hour: limits.projects_per_hour_max,
        max_branches_per_org: limits.branches_max,
    }))
}

async fn get_organization_membership_limits(
    app: App,
    _: Access,
) -> Result<Shown<wire::OrganizationMembershipLimits>> {
    let limits = app.organizations.limits();
    Ok(Shown(wire::OrganizationMembershipLimits {
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
