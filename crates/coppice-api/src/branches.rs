//! Branches.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coppice_app::{Access, App, BranchDetails, CustomBranch, NewBranchRequest, Origin};
use coppice_core::branch::{Branch, BranchState};
use coppice_core::image::image_name;
use coppice_core::operation::{
    CREATE_BRANCH, DELETE_BRANCH, DESCRIBE_BRANCH, GET_BRANCH_CREDENTIALS, LIST_BRANCHES,
};
use coppice_core::project::ScaleToZero;
use coppice_core::{BranchId, Error, Result};
use coppice_wire as wire;

use crate::body::{BodyError, Fields, RawBody};
use crate::error::ApiError;
use crate::projects::scale_to_zero;
use crate::request::Call;

/// `GET …/branches`
pub(crate) async fn list_branches(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::BranchList>, ApiError> {
    let access = call.authorize(&app, &LIST_BRANCHES).await?;
    let found = app.list_branches(&access).await?;
    let branches =
        found.iter().map(|branch| wire::Branch { backups_enabled: Some(false), ..common(&app, branch) });
    Ok(Json(wire::BranchList { branches: branches.collect() }))
}

/// `POST …/branches`
pub(crate) async fn create_branch(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Response, BodyError> {
    let access = call.authorize(&app, &CREATE_BRANCH).await?;
    let request = request_from(&body.object()?)?;
    let branch = app.create_branch(&access, &request).await?;
    Ok((StatusCode::CREATED, Json(short(&app, &access, &branch).await?)).into_response())
}

/// `GET …/branches/{branchID}`
pub(crate) async fn describe_branch(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::Branch>, ApiError> {
    let access = call.authorize(&app, &DESCRIBE_BRANCH).await?;
    let details = app.describe_branch(&access).await?;
    let branch = &details.branch;
    Ok(Json(wire::Branch {
        backups_enabled: Some(false),
        status: Some(status(&details)),
        scale_to_zero: Some(scale_to_zero(branch.scale_to_zero)),
        configuration: Some(configuration(branch)),
        ..short(&app, &access, branch).await?
    }))
}

/// `DELETE …/branches/{branchID}`
pub(crate) async fn delete_branch(State(app): State<App>, call: Call) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &DELETE_BRANCH).await?;
    app.delete_branch(&access).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET …/branches/{branchID}/credentials`
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

/// The fields that every view has.
fn common(app: &App, branch: &Branch) -> wire::Branch {
    let region = app.list_regions().into_iter().find(|region| region.id == branch.spec.region);
    wire::Branch {
        id: branch.id.to_string(),
        name: branch.name.clone(),
        created_at: wire::Timestamp(branch.created_at),
        updated_at: wire::Timestamp(branch.updated_at),
        region: branch.spec.region.to_string(),
        public_access: region.is_some_and(|region| region.is_public),
        description: branch.description.clone(),
        parent_id: branch.parent.as_ref().map(ToString::to_string),
        backups_enabled: None,
        connection_string: None,
        status: None,
        scale_to_zero: None,
        configuration: None,
    }
}

async fn short(app: &App, access: &Access, branch: &Branch) -> Result<wire::Branch> {
    let connection_string = app.connection_string(access, branch).await?.map(|text| text.to_string());
    Ok(wire::Branch { connection_string: Some(connection_string), ..common(app, branch) })
}

fn status(details: &BranchDetails) -> wire::BranchStatus {
    let branch = &details.branch;
    let title = branch.state.title().to_owned();
    let message = match branch.message.as_str() {
        "" => title.clone(),
        reason => format!("{title}: {reason}"),
    };
    let ready = if branch.state == BranchState::Ready { 1 } else { 0 };
    let instances = details.instances.iter().map(|(id, status)| wire::InstanceStatus {
        id: id.to_string(),
        status: (*status).to_owned(),
        primary: true,
        target_primary: true,
    });
    let state = branch.state.lifecycle().to_owned();
    wire::BranchStatus {
        status: title.clone(),
        status_type: branch.state.status_type().to_owned(),
        message,
        lifecycle: wire::Lifecycle { state, phase: title },
        instance_count: branch.spec.replicas + 1,
        instance_ready_count: ready,
        instances: instances.collect(),
    }
}

fn configuration(branch: &Branch) -> wire::ClusterConfiguration {
    let spec = &branch.spec;
    wire::ClusterConfiguration {
        region: spec.region.to_string(),
        instance_type: spec.instance_type.clone(),
        image: image_name(spec.version),
        replicas: spec.replicas,
        storage: spec.storage_gib,
        postgres_configuration_parameters: spec.parameters.clone(),
        preload_libraries: spec.preload_libraries.clone(),
    }
}

fn request_from(fields: &Fields) -> Result<NewBranchRequest> {
    let name = fields.name_of("name", 255)?;
    let origin = match fields.required_text("mode")? {
        "inherit" => {
            let parent = fields.required_text("parentID")?;
            let parent = BranchId::parse(parent).ok_or_else(|| Error::branch_not_found(parent))?;
            Origin::Inherit { parent }
        }
        "custom" => {
            let configuration = fields.object("configuration")?;
            Origin::Custom(custom_from(&configuration.ok_or_else(|| fields.missing("configuration"))?)?)
        }
        _ => return Err(Error::invalid_field("mode", "must be inherit or custom")),
    };
    if fields.object("backupConfiguration")?.is_some() {
        let public = "invalid backup configuration: this region makes no backups";
        return Err(Error::invalid("invalid_backup_configuration", public));
    }
    Ok(NewBranchRequest {
        name,
        description: fields.description("description")?,
        scale_to_zero: fields.scale_to_zero("scaleToZero", ScaleToZero::default())?,
        origin,
    })
}

fn custom_from(fields: &Fields) -> Result<CustomBranch> {
    Ok(CustomBranch {
        region: fields.required_text("region")?.to_owned(),
        instance_type: fields.required_text("instanceType")?.to_owned(),
        image: fields.required_text("image")?.to_owned(),
        replicas: fields.integer("replicas", 0, 4)?.unwrap_or(0),
        storage_gib: fields.integer("storage", 1, 65_536)?.unwrap_or(10),
        parameters: fields.text_map("postgresConfigurationParameters")?,
        preload_libraries: fields.texts("preloadLibraries", 50)?.unwrap_or_default(),
    })
}
