//! Projects.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coppice_app::{App, NewProject};
use coppice_core::operation::{CREATE_PROJECT, DELETE_PROJECT, GET_PROJECT, LIST_PROJECTS};
use coppice_core::project::{self, AllowedRange, IpFiltering, ProjectConfiguration, ScaleToZero};
use coppice_core::{Error, Result};
use coppice_wire as wire;

use crate::body::{BodyError, Fields, RawBody, is_address_range};
use crate::error::ApiError;
use crate::request::Call;

/// `GET /organizations/{organizationID}/projects`
pub(crate) async fn list_projects(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::ProjectList>, ApiError> {
    let access = call.authorize(&app, &LIST_PROJECTS).await?;
    let projects = app.list_projects(&access).await?;
    Ok(Json(wire::ProjectList { projects: projects.into_iter().map(to_wire).collect() }))
}

/// `POST /organizations/{organizationID}/projects`
pub(crate) async fn create_project(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Response, BodyError> {
    let access = call.authorize(&app, &CREATE_PROJECT).await?;
    let fields = body.object()?;
    let name = fields.name_of("name", 128)?;
    let configuration = fields.object("configuration")?;
    let configuration =
        configuration.map(|fields| configuration_from(&fields)).transpose()?.unwrap_or_default();
    let project = app.create_project(&access, &NewProject { name, configuration }).await?;
    Ok((StatusCode::CREATED, Json(to_wire(project))).into_response())
}

/// `GET /organizations/{organizationID}/projects/{projectID}`
pub(crate) async fn get_project(State(app): State<App>, call: Call) -> Result<Json<wire::Project>, ApiError> {
    let access = call.authorize(&app, &GET_PROJECT).await?;
    Ok(Json(to_wire(app.get_project(&access).await?)))
}

/// `DELETE /organizations/{organizationID}/projects/{projectID}`
pub(crate) async fn delete_project(State(app): State<App>, call: Call) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &DELETE_PROJECT).await?;
    app.delete_project(&access).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A scale-to-zero setting on the wire.
pub(crate) fn scale_to_zero(setting: ScaleToZero) -> wire::ScaleToZeroSetting {
    wire::ScaleToZeroSetting {
        enabled: setting.enabled,
        inactivity_period_minutes: setting.inactivity_period_minutes,
    }
}

fn to_wire(project: project::Project) -> wire::Project {
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

/// Settings as far as they are given, over the defaults.
fn configuration_from(fields: &Fields) -> Result<ProjectConfiguration> {
    let mut configuration = ProjectConfiguration::default();
    if let Some(defaults) = fields.object("scaleToZero")? {
        let base = ScaleToZero::default();
        configuration.base_branches = defaults.scale_to_zero("baseBranches", base)?.unwrap_or(base);
        configuration.child_branches = defaults.scale_to_zero("childBranches", base)?.unwrap_or(base);
    }
    if let Some(filter) = fields.object("ipFiltering")? {
        configuration.ip_filtering =
            IpFiltering { enabled: filter.flag("enabled")?.unwrap_or(false), ranges: ranges_from(&filter)? };
    }
    Ok(configuration)
}

fn ranges_from(filter: &Fields) -> Result<Vec<AllowedRange>> {
    let items = filter.list("cidr", 64)?.unwrap_or_default();
    items
        .iter()
        .enumerate()
        .map(|(index, item)| {
            let entry = filter.item("cidr", index, item)?;
            let cidr = entry.required_text("cidr")?;
            if cidr.len() > 64 || !is_address_range(cidr) {
                return Err(Error::invalid("invalid_cidr", format!("invalid address range {cidr}")));
            }
            let description = entry.text("description")?.unwrap_or_default();
            if description.chars().count() > 100 {
                let field = "configuration.ipFiltering.cidr.description";
                return Err(Error::invalid_field(field, "must have at most 100 characters"));
            }
            Ok(AllowedRange { cidr: cidr.to_owned(), description: description.to_owned() })
        })
        .collect()
}
