//! Projects and their limits.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coppice_app::{App, NewProject, ProjectChange};
use coppice_core::error::excerpt;
use coppice_core::limits::{DESCRIPTION_LENGTH_MAX, INSTANCES_PER_BRANCH_MAX};
use coppice_core::operation::{
    CREATE_PROJECT, DELETE_PROJECT, GET_DEFAULT_PROJECT_LIMITS, GET_PROJECT, GET_PROJECT_LIMITS,
    LIST_PROJECTS, UPDATE_PROJECT,
};
use coppice_core::project::{
    AllowedRange, ConfigurationChange, Project, ProjectConfiguration, ScaleToZero, parse_address_range,
};
use coppice_core::{Error, ErrorCode, Result};
use coppice_wire as wire;

use crate::body::{BodyError, Fields, RawBody};
use crate::error::ApiError;
use crate::organizations::effective_limits;
use crate::request::{Call, InOrganization, InProject};

/// List projects
///
/// A key that is limited to projects or branches sees only those projects.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/projects", operation_id = "listProjects", tag = "Projects",
    params(InOrganization),
    responses((status = 200, description = "Projects the caller may see.", body = wire::ProjectList))
)]
pub(crate) async fn list_projects(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::ProjectList>, ApiError> {
    let access = call.authorize(&app, &LIST_PROJECTS).await?;
    let projects = app.list_projects(&access).await?;
    Ok(Json(wire::ProjectList { projects: projects.into_iter().map(to_wire).collect() }))
}

/// Make a project
///
/// It has no branches yet. Settings that are not given have their defaults.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/projects", operation_id = "createProject",
    tag = "Projects", params(InOrganization), request_body = wire::CreateProject,
    responses((status = 201, description = "The new project.", body = wire::Project))
)]
pub(crate) async fn create_project(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Response, BodyError> {
    let access = call.authorize(&app, &CREATE_PROJECT).await?;
    let new = |fields: &Fields| {
        let name = fields.name_of("name", 128)?;
        let configuration = ProjectConfiguration::default().with(configuration_change(fields)?);
        Ok(NewProject { name, configuration })
    };
    let project = app.create_project(&access, &body.read(new).await?).await?;
    Ok((StatusCode::CREATED, Json(to_wire(project))).into_response())
}

/// Show a project
///
/// With what its branches get unless they are told otherwise, and who may connect to them.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/projects/{projectID}", operation_id = "getProject",
    tag = "Projects", params(InProject),
    responses((status = 200, description = "The project.", body = wire::Project))
)]
pub(crate) async fn get_project(State(app): State<App>, call: Call) -> Result<Json<wire::Project>, ApiError> {
    let access = call.authorize(&app, &GET_PROJECT).await?;
    Ok(Json(to_wire(app.get_project(&access).await?)))
}

/// Change a project
///
/// Settings are merged member by member; the list of address ranges is replaced as a whole.
/// Scale-to-zero defaults apply to branches that are made later.
#[utoipa::path(
    patch, path = "/organizations/{organizationID}/projects/{projectID}", operation_id = "updateProject",
    tag = "Projects", params(InProject), request_body = wire::UpdateProject,
    responses((status = 200, description = "The project as it is now.", body = wire::Project))
)]
pub(crate) async fn update_project(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Json<wire::Project>, BodyError> {
    let access = call.authorize(&app, &UPDATE_PROJECT).await?;
    let change = |fields: &Fields| {
        let name = fields.optional_name("name", 128)?;
        Ok(ProjectChange { name, configuration: configuration_change(fields)? })
    };
    Ok(Json(to_wire(app.update_project(&access, body.read(change).await?).await?)))
}

/// Delete a project
///
/// With its branches and their databases; this can't be undone. The data is removed in the background.
#[utoipa::path(
    delete, path = "/organizations/{organizationID}/projects/{projectID}", operation_id = "deleteProject",
    tag = "Projects", params(InProject),
    responses((status = 204, description = "Deleted."))
)]
pub(crate) async fn delete_project(State(app): State<App>, call: Call) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &DELETE_PROJECT).await?;
    app.delete_project(&access).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Show the quotas that projects have unless told otherwise
///
/// As the operator of this installation set them.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/projects/limits", operation_id = "getDefaultProjectLimits",
    tag = "Projects", params(InOrganization),
    responses((status = 200, description = "The quotas.", body = wire::ProjectLimits))
)]
pub(crate) async fn get_default_project_limits(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::ProjectLimits>, ApiError> {
    call.authorize(&app, &GET_DEFAULT_PROJECT_LIMITS).await?;
    Ok(Json(wire::ProjectLimits {
        max_instances: INSTANCES_PER_BRANCH_MAX,
        min_instances: 1,
        max_description_length: DESCRIPTION_LENGTH_MAX,
        max_branches: app.organization_limits().branches_per_project_max,
    }))
}

/// Show the quotas of a project
///
/// How many branches it may have, and how large they may be.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/projects/{projectID}/limits",
    operation_id = "getProjectLimits", tag = "Projects", params(InProject),
    responses((status = 200, description = "Its quotas.", body = wire::EffectiveProjectLimits))
)]
pub(crate) async fn get_project_limits(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::EffectiveProjectLimits>, ApiError> {
    let access = call.authorize(&app, &GET_PROJECT_LIMITS).await?;
    app.get_project(&access).await?;
    Ok(Json(effective_limits(&app.organization_limits())))
}

/// A scale-to-zero setting on the wire.
pub(crate) fn scale_to_zero(setting: ScaleToZero) -> wire::ScaleToZeroSetting {
    wire::ScaleToZeroSetting {
        enabled: setting.enabled,
        inactivity_period_minutes: setting.inactivity_period_minutes,
    }
}

fn to_wire(project: Project) -> wire::Project {
    let ProjectConfiguration { base_branches, child_branches, ip_filtering } = project.configuration;
    let cidr = ip_filtering
        .ranges
        .into_iter()
        .map(|range| wire::CidrEntry { cidr: range.cidr, description: range.description });
    wire::Project {
        id: project.id.to_string(),
        name: project.name,
        created_at: wire::Timestamp(project.created_at),
        updated_at: wire::Timestamp(project.updated_at),
        configuration: wire::ProjectConfiguration {
            scale_to_zero: wire::ScaleToZeroConfiguration {
                base_branches: scale_to_zero(base_branches),
                child_branches: scale_to_zero(child_branches),
            },
            ip_filtering: wire::IpFiltering { enabled: ip_filtering.enabled, cidr: cidr.collect() },
        },
    }
}

/// Settings as far as the body gives them.
fn configuration_change(fields: &Fields) -> Result<ConfigurationChange> {
    let mut change = ConfigurationChange::default();
    let Some(configuration) = fields.object("configuration")? else { return Ok(change) };
    if let Some(defaults) = configuration.object("scaleToZero")? {
        change.base_branches = defaults.scale_to_zero("baseBranches")?;
        change.child_branches = defaults.scale_to_zero("childBranches")?;
    }
    if let Some(filter) = configuration.object("ipFiltering")? {
        change.ip_filtering_enabled = filter.flag("enabled")?;
        change.ip_ranges = ranges_from(&filter)?;
    }
    Ok(change)
}

fn ranges_from(filter: &Fields) -> Result<Option<Vec<AllowedRange>>> {
    let Some(items) = filter.list("cidr", 64)? else { return Ok(None) };
    let ranges = items.iter().enumerate().map(|(index, item)| {
        let entry = filter.item("cidr", index, item)?;
        let cidr = entry.required_text("cidr")?;
        if cidr.len() > 64 || parse_address_range(cidr).is_none() {
            return Err(Error::invalid(
                ErrorCode::InvalidCidr,
                format!("invalid address range {}", excerpt(cidr)),
            ));
        }
        Ok(AllowedRange { cidr: cidr.to_owned(), description: entry.remark("description", 100)? })
    });
    ranges.collect::<Result<_>>().map(Some)
}
