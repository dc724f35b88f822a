//! Branches.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use coppice_app::{
    Access, App, BranchChange, BranchDetails, CustomBranch, Fixed, InstanceStatus, NewBranchRequest, Origin,
};
use coppice_core::branch::{Branch, BranchState};
use coppice_core::image::image_name;
use coppice_core::operation::{CREATE_BRANCH, DELETE_BRANCH, DESCRIBE_BRANCH, LIST_BRANCHES, UPDATE_BRANCH};
use coppice_core::{BranchId, Error, ErrorCode, Result};
use coppice_wire as wire;

use crate::activity::summary;
use crate::body::{BodyError, Fields, RawBody};
use crate::error::ApiError;
use crate::projects::scale_to_zero;
use crate::request::{Call, InBranch, InProject};

/// Parameters of one request; there are far fewer that can be set. A refusal
/// names every one that is wrong.
const PARAMETERS_MAX: usize = 200;

/// Instances of a branch besides its primary.
const REPLICAS_MAX: u32 = 4;
/// Libraries of one request.
const LIBRARIES_MAX: usize = 50;

/// More than any file system of a branch has, in GiB.
const STORAGE_GIB_MAX: u32 = 65_536;

/// List the branches of a project
///
/// A key that is limited to branches sees only those.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/projects/{projectID}/branches",
    operation_id = "listBranches", tag = "Branches", params(InProject),
    responses((status = 200, description = "Branches the caller may see.", body = wire::BranchList))
)]
pub(crate) async fn list_branches(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::BranchList>, ApiError> {
    let access = call.authorize(&app, &LIST_BRANCHES).await?;
    let found = app.list_branches(&access).await?;
    let branches = found.into_iter().map(|branch| wire::ListedBranch {
        public_access: is_public(&app, &branch),
        id: branch.id.to_string(),
        name: branch.name,
        created_at: wire::Timestamp(branch.created_at),
        updated_at: wire::Timestamp(branch.updated_at),
        region: branch.spec.region.to_string(),
        backups_enabled: false,
        description: branch.description,
        parent_id: branch.parent.map(|parent| parent.to_string()),
    });
    Ok(Json(wire::BranchList { branches: branches.collect() }))
}

/// Make a branch
///
/// A copy of another branch as it is now, or an empty database. Answers as soon as the branch accepts
/// connections, or after a few seconds while the work goes on.
#[utoipa::path(
    post, path = "/organizations/{organizationID}/projects/{projectID}/branches",
    operation_id = "createBranch", tag = "Branches", params(InProject), request_body = wire::CreateBranch,
    responses((status = 201, description = "The new branch.", body = wire::Branch))
)]
pub(crate) async fn create_branch(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Response, BodyError> {
    let access = call.authorize(&app, &CREATE_BRANCH).await?;
    let request = body.read(request_from).await?;
    let branch = app.create_branch(&access, &request).await?;
    Ok((StatusCode::CREATED, Json(short(&app, &access, &branch).await?)).into_response())
}

/// Show a branch
///
/// With what it is doing; made to be asked once a second.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}",
    operation_id = "describeBranch", tag = "Branches", params(InBranch),
    responses((status = 200, description = "The branch.", body = wire::BranchDetails))
)]
pub(crate) async fn describe_branch(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::BranchDetails>, ApiError> {
    let access = call.authorize(&app, &DESCRIBE_BRANCH).await?;
    let details = app.describe_branch(&access).await?;
    let branch = &details.branch;
    Ok(Json(wire::BranchDetails {
        backups_enabled: false,
        status: status(&access, &details),
        scale_to_zero: scale_to_zero(branch.scale_to_zero),
        configuration: configuration(branch),
        branch: short(&app, &access, branch).await?,
    }))
}

/// Change a branch
///
/// Its name, description and when it may sleep, in any state; whether it sleeps; its storage, which may only grow; and
/// PostgreSQL parameters, over those it has: a default takes its place back. Some of them restart the server
/// (`restartRequired` of getBranchPostgresConfig); a sleeping branch has them when it wakes. Falling asleep, waking and
/// restarting go on in the background. What else touches a server can't be changed yet, and may be named as it is.
#[utoipa::path(
    patch, path = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}",
    operation_id = "updateBranch", tag = "Branches", params(InBranch), request_body = wire::UpdateBranch,
    responses((status = 200, description = "The branch as it is now.", body = wire::Branch))
)]
pub(crate) async fn update_branch(
    State(app): State<App>,
    call: Call,
    body: RawBody,
) -> Result<Json<wire::Branch>, BodyError> {
    let access = call.authorize(&app, &UPDATE_BRANCH).await?;
    let change = body.read(change_from).await?;
    let branch = app.update_branch(&access, change).await?;
    Ok(Json(short(&app, &access, &branch).await?))
}

/// Delete a branch
///
/// With its data; this can't be undone. Its children stay. The data is removed in the background.
#[utoipa::path(
    delete, path = "/organizations/{organizationID}/projects/{projectID}/branches/{branchID}",
    operation_id = "deleteBranch", tag = "Branches", params(InBranch),
    responses((status = 204, description = "Deleted."))
)]
pub(crate) async fn delete_branch(State(app): State<App>, call: Call) -> Result<StatusCode, ApiError> {
    let access = call.authorize(&app, &DELETE_BRANCH).await?;
    app.delete_branch(&access).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn is_public(app: &App, branch: &Branch) -> bool {
    let region = app.list_regions().into_iter().find(|region| region.id == branch.spec.region);
    region.is_some_and(|region| region.is_public)
}

async fn short(app: &App, access: &Access, branch: &Branch) -> Result<wire::Branch> {
    Ok(wire::Branch {
        id: branch.id.to_string(),
        name: branch.name.clone(),
        created_at: wire::Timestamp(branch.created_at),
        updated_at: wire::Timestamp(branch.updated_at),
        region: branch.spec.region.to_string(),
        public_access: is_public(app, branch),
        description: branch.description.clone(),
        parent_id: branch.parent.as_ref().map(ToString::to_string),
        connection_string: app.connection_string(access, branch).await?.map(|text| text.to_string()),
    })
}

fn status(access: &Access, details: &BranchDetails) -> wire::BranchStatus {
    let branch = &details.branch;
    let title = branch.state.title().to_owned();
    let reason = match branch.message.as_str() {
        "" if branch.state == BranchState::Hibernated && !access.organization.is_enabled() => {
            Some("its organization is disabled".to_owned())
        }
        "" => details.activity.as_ref().and_then(summary),
        reason => Some(reason.to_owned()),
    };
    let message = reason.map_or_else(|| title.clone(), |reason| format!("{title}: {reason}"));
    let ready = if branch.state == BranchState::Ready { 1 } else { 0 };
    let instances = details.instances.iter().map(|(id, status)| wire::InstanceStatus {
        id: id.to_string(),
        status: match *status {
            InstanceStatus::Healthy => wire::InstanceState::Healthy,
            InstanceStatus::Starting => wire::InstanceState::Starting,
            InstanceStatus::Stopped => wire::InstanceState::Stopped,
            InstanceStatus::Failed => wire::InstanceState::Failed,
        },
        primary: true,
        target_primary: true,
    });
    let (status_type, state) = public_state(branch.state);
    let reason = Some(branch.message.clone()).filter(|reason| !reason.is_empty());
    wire::BranchStatus {
        status: title.clone(),
        status_type,
        message,
        lifecycle: wire::Lifecycle { state, reason, phase: title },
        instance_count: branch.spec.replicas + 1,
        instance_ready_count: ready,
        instances: instances.collect(),
    }
}

/// What clients wait on, and its deprecated form.
fn public_state(state: BranchState) -> (wire::BranchStatusType, wire::LifecycleState) {
    use wire::{BranchStatusType as Type, LifecycleState as Lifecycle};
    match state {
        BranchState::Ready => (Type::Healthy, Lifecycle::Ready),
        BranchState::Creating | BranchState::Waking => (Type::Transient, Lifecycle::Creating),
        BranchState::Hibernating | BranchState::Updating => (Type::Transient, Lifecycle::Updating),
        BranchState::Hibernated => (Type::Hibernated, Lifecycle::Ready),
        BranchState::Failed => (Type::Fault, Lifecycle::Unknown),
        BranchState::Unknown | BranchState::Deleted => (Type::Unspecified, Lifecycle::Unknown),
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
            let parent = fields.required_id("parentID")?;
            Origin::Inherit { parent: BranchId::from_trusted(parent) }
        }
        "custom" => {
            let configuration = fields.object("configuration")?;
            Origin::Custom(custom_from(&configuration.ok_or_else(|| fields.missing("configuration"))?)?)
        }
        _ => return Err(Error::invalid_field("mode", "must be inherit or custom")),
    };
    refuse_backups(fields)?;
    Ok(NewBranchRequest {
        name,
        description: fields.description("description")?.unwrap_or_default(),
        scale_to_zero: fields.scale_to_zero("scaleToZero")?,
        origin,
    })
}

fn change_from(fields: &Fields) -> Result<BranchChange> {
    refuse_backups(fields)?;
    Ok(BranchChange {
        name: fields.optional_name("name", 255)?,
        description: fields.description("description")?,
        scale_to_zero: fields.scale_to_zero("scaleToZero")?,
        hibernate: fields.flag("hibernate")?,
        storage_gib: fields.integer("storage", 1, STORAGE_GIB_MAX)?,
        parameters: fields.text_map("postgresConfigurationParameters", PARAMETERS_MAX)?,
        fixed: Fixed {
            replicas: fields.integer("replicas", 0, REPLICAS_MAX)?,
            instance_type: fields.text("instanceType")?.map(str::to_owned),
            image: fields.text("image")?.map(str::to_owned),
            preload_libraries: fields.texts("preloadLibraries", LIBRARIES_MAX)?,
        },
    })
}

/// Refuses settings of backups where there are none; to say nothing of them is
/// to change nothing.
fn refuse_backups(fields: &Fields) -> Result<()> {
    if fields.object("backupConfiguration")?.is_none_or(|settings| settings.is_empty()) {
        return Ok(());
    }
    let public = "invalid backup configuration: this region makes no backups";
    Err(Error::invalid(ErrorCode::InvalidBackupConfiguration, public))
}

fn custom_from(fields: &Fields) -> Result<CustomBranch> {
    Ok(CustomBranch {
        region: fields.required_text("region")?.to_owned(),
        instance_type: fields.required_text("instanceType")?.to_owned(),
        image: fields.required_text("image")?.to_owned(),
        replicas: fields.integer("replicas", 0, REPLICAS_MAX)?.unwrap_or(0),
        storage_gib: fields.integer("storage", 1, STORAGE_GIB_MAX)?.unwrap_or(10),
        parameters: fields.text_map("postgresConfigurationParameters", PARAMETERS_MAX)?,
        preload_libraries: fields.texts("preloadLibraries", LIBRARIES_MAX)?,
    })
}
