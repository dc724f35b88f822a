//! Branches.

use coppice_app::{
    Access, App, BranchChange, BranchDetails, BranchOrigin, CustomBranch, InstanceStatus, NewBranchRequest,
    SpecChange,
};
use coppice_core::access::AskedExpiry;
use coppice_core::branch::{Branch, BranchState};
use coppice_core::image::image_name;
use coppice_core::operation::{CREATE_BRANCH, DELETE_BRANCH, DESCRIBE_BRANCH, LIST_BRANCHES, UPDATE_BRANCH};
use coppice_core::target::{InBranch, InProject};
use coppice_core::{BranchId, Result, VolumeId};
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::activity::summary;
use crate::backup_settings;
use crate::endpoint::{Body, BodyAs, Done, Endpoint, Made, Query, Shown, delete, get, patch, post};
use crate::history::moment_from;
use crate::keys::asked_expiry;
use crate::projects::{scale_to_zero, scale_to_zero_change};

/// How to delete a branch.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DeleteBranch {
    /// Whether its data is removed for good, instead of being kept in the trash.
    #[param(default = false)]
    purge: Option<bool>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/branches", &LIST_BRANCHES)
            .says(AREA, "List the branches of a project", "A key that is limited to branches sees only those.")
            .answers("Branches the caller may see.")
            .runs(list_branches),
        post("/branches", &CREATE_BRANCH)
            .says(AREA, "Make a branch", "A copy of another branch as it is now, or was at a moment (`targetTime` or `targetLsn`, within the window that\ngetBranchHistory tells, or of before it was reset), or a version that it had (`versionID`); or an empty database. Answers as soon as the branch accepts\nconnections, or after a few seconds while the work goes on.")
            .answers("The new branch.")
            .refuses(409, "The name is taken.")
            .refuses(412, "The parent is not ready; `Retry-After` says when to look again.")
            .refuses_bodies_by(backup_settings::refused)
            .runs(create_branch),
        get("", &DESCRIBE_BRANCH)
            .says(AREA, "Show a branch", "With what it is doing; made to be asked once a second.")
            .answers("The branch.")
            .runs(describe_branch),
        patch("", &UPDATE_BRANCH)
            .says(AREA, "Change a branch", "Its name, description, labels, when it may sleep, whether it is protected, and when it expires, in any state; for how\nlong what it was is kept; whether it sleeps; its storage, which may only grow; its size, which its parameters follow as far as they were not chosen; its\nrelease of PostgreSQL, by itself; its preload libraries; and PostgreSQL parameters, over those it has: a default takes\nits place back. Size, release, libraries and some parameters (`restartRequired` of getBranchPostgresConfig) restart the\nserver; a sleeping branch has them when it wakes. If the server does not start with them, the branch has what it had\nbefore again, and its `message` says why. Falling asleep, waking and restarting go on in the background.")
            .answers("The branch as it is now.")
            .refuses(409, "The name is taken; a protected branch would expire; or the server is being changed, then `Retry-After` says when to try again.")
            .refuses_bodies_by(backup_settings::refused)
            .runs(update_branch),
        delete("", &DELETE_BRANCH)
            .says(AREA, "Delete a branch", "It is gone at once, for every operation but those of the trash; its name is free, its sessions end, its children stay.\nIts data waits in the trash for some days (listTrash says until when), unless `purge` says that it be removed at once.\nA branch whose data was never there has none. Where it can't be brought back, a person in a browser has to have shown\njust now who they are.")
            .answers("Deleted.")
            .refuses(409, "It is protected.")
            .runs(delete_branch),
    ]
}

async fn list_branches(app: App, access: Access<InProject>) -> Result<Shown<wire::BranchList>> {
    let found = app.branches.list(&access).await?;
    let branches = found.into_iter().map(|branch| wire::ListedBranch {
        public_access: is_public(&app, &branch),
        id: branch.id.to_string(),
        name: branch.name,
        created_at: wire::Timestamp(branch.created_at),
        updated_at: wire::Timestamp(branch.updated_at),
        region: branch.spec.region.to_string(),
        backups_enabled: app.branches.makes_backups(),
        description: branch.description,
        parent_id: branch.parent.map(|parent| parent.to_string()),
        labels: branch.labels,
        protected: branch.is_protected,
        expires_at: branch.expires_at.map(wire::Expiry),
    });
    Ok(Shown(wire::BranchList { branches: branches.collect() }))
}

async fn create_branch(
    app: App,
    access: Access<InProject>,
    Body(asked): Body<wire::CreateBranch>,
) -> Result<Made<wire::Branch>> {
    let branch = app.branches.create(&access, &request_from(asked)?).await?;
    Ok(Made(short(&app, &access, &branch).await?))
}

async fn describe_branch(app: App, access: Access<InBranch>) -> Result<Shown<wire::BranchDetails>> {
    let details = app.branches.describe(&access).await?;
    let branch = &details.branch;
    Ok(Shown(wire::BranchDetails {
        labels: branch.labels.clone(),
        protected: branch.is_protected,
        expires_at: branch.expires_at.map(wire::Expiry),
        backups_enabled: app.branches.makes_backups(),
        backup_configuration: app
            .branches
            .makes_backups()
            .then(|| backup_settings::configuration(branch.backups)),
        status: status(&access, &details),
        scale_to_zero: scale_to_zero(branch.scale_to_zero),
        configuration: configuration(branch),
        branch: short(&app, &access, branch).await?,
    }))
}

async fn update_branch(
    app: App,
    access: Access<InBranch>,
    BodyAs(asked, _): BodyAs<wire::UpdateBranch, wire::UpdateBranch>,
) -> Result<Shown<wire::Branch>> {
    let branch = app.branches.update(&access, change_from(asked)?).await?;
    Ok(Shown(short(&app, &access, &branch).await?))
}

async fn delete_branch(
    app: App,
    access: Access<InBranch>,
    Query(asked): Query<DeleteBranch>,
) -> Result<Done> {
    app.branches.delete(&access, asked.purge.unwrap_or(false)).await?;
    Ok(Done)
}

fn is_public(app: &App, branch: &Branch) -> bool {
    let region = app.offers.regions().into_iter().find(|region| region.id == branch.spec.region);
    region.is_some_and(|region| region.is_public)
}

pub(crate) async fn short<T>(app: &App, access: &Access<T>, branch: &Branch) -> Result<wire::Branch> {
    Ok(wire::Branch {
        id: branch.id.to_string(),
        name: branch.name.clone(),
        created_at: wire::Timestamp(branch.created_at),
        updated_at: wire::Timestamp(branch.updated_at),
        region: branch.spec.region.to_string(),
        public_access: is_public(app, branch),
        description: branch.description.clone(),
        parent_id: branch.parent.as_ref().map(ToString::to_string),
        connection_string: app
            .credentials
            .connection_string(access, branch)
            .await?
            .map(|text| text.to_string()),
    })
}

fn status<T>(access: &Access<T>, details: &BranchDetails) -> wire::BranchStatus {
    let branch = &details.branch;
    let title = branch.title().to_owned();
    let reason = match branch.message.as_str() {
        "" if branch.state == BranchState::Hibernated && !access.organization.is_enabled() => {
            Some("its organization is disabled".to_owned())
        }
        "" if details.used_up.is_some() => {
            details.used_up.as_ref().map(|used_up| format!("{}. {}", used_up.reason(), used_up.remedy()))
        }
        "" => details.activity.as_ref().and_then(summary),
        reason => Some(reason.to_owned()),
    };
    let message = reason.map_or_else(|| title.clone(), |reason| format!("{title}: {reason}"));
    let instances = details.instances.iter().map(|(id, status)| wire::InstanceStatus {
        id: id.to_string(),
        status: match *status {
            InstanceStatus::Healthy => wire::InstanceState::Healthy,
            InstanceStatus::Starting => wire::InstanceState::Starting,
            InstanceStatus::Stopped => wire::InstanceState::Stopped,
            InstanceStatus::Failed => wire::InstanceState::Failed,
        },
        primary: id.is_primary(),
        target_primary: id.is_primary(),
    });
    let (status_type, state) = public_state(branch);
    let reason = Some(branch.message.clone()).filter(|reason| !reason.is_empty());
    wire::BranchStatus {
        status: title.clone(),
        status_type,
        message,
        lifecycle: wire::Lifecycle { state, reason, phase: title },
        instance_count: branch.spec.replicas + 1,
        instance_ready_count: branch.ready_instances(),
        instances: instances.collect(),
    }
}

/// What clients wait on, and its deprecated form.
pub(crate) fn public_state(branch: &Branch) -> (wire::BranchStatusType, wire::LifecycleState) {
    use wire::{BranchStatusType as Type, LifecycleState as Lifecycle};
    match branch.state {
        BranchState::Ready if branch.is_degraded() => (Type::Transient, Lifecycle::Updating),
        BranchState::Ready => (Type::Healthy, Lifecycle::Ready),
        BranchState::Creating | BranchState::Waking => (Type::Transient, Lifecycle::Creating),
        BranchState::Hibernating | BranchState::Updating => (Type::Transient, Lifecycle::Updating),
        BranchState::Upgrading => (Type::Transient, Lifecycle::Upgrading),
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

fn request_from(asked: wire::CreateBranch) -> Result<NewBranchRequest> {
    let (name, description, labels, scale_to_zero, expiry, backups, origin) = match asked {
        wire::CreateBranch::Inherit(asked) => {
            let origin = BranchOrigin::Inherit {
                parent: BranchId::from_trusted(asked.parent_id),
                change: inherited_from(asked.configuration.unwrap_or_default()),
                version: asked.version_id.map(VolumeId::from_trusted),
                moment: moment_from(asked.target_time, asked.target_lsn)?,
            };
            let (expiry, backups) = (asked_expiry(asked.expires_at), asked.backup_configuration);
            (asked.name, asked.description, asked.labels, asked.scale_to_zero, expiry, backups, origin)
        }
        wire::CreateBranch::Custom(asked) => {
            let origin = BranchOrigin::Custom(custom_from(asked.configuration));
            let expiry = asked.expires_at.map_or(AskedExpiry::Never, |end| AskedExpiry::At(end.0));
            let backups = asked.backup_configuration;
            (asked.name, asked.description, asked.labels, asked.scale_to_zero, expiry, backups, origin)
        }
    };
    Ok(NewBranchRequest {
        name,
        description: description.unwrap_or_default(),
        labels: labels.unwrap_or_default(),
        scale_to_zero: scale_to_zero_change(scale_to_zero),
        expiry,
        backups: backup_settings::change_from(backups)?,
        origin,
    })
}

fn change_from(asked: wire::UpdateBranch) -> Result<BranchChange> {
    Ok(BranchChange {
        name: asked.name,
        description: asked.description,
        labels: asked.labels.unwrap_or_default(),
        scale_to_zero: scale_to_zero_change(asked.scale_to_zero),
        is_protected: asked.protected,
        expiry: asked_expiry(asked.expires_at),
        backups: backup_settings::change_from(asked.backup_configuration)?,
        hibernate: asked.hibernate,
        spec: SpecChange {
            instance_type: asked.instance_type,
            image: asked.image,
            replicas: asked.replicas,
            storage_gib: asked.storage,
            parameters: asked.postgres_configuration_parameters.unwrap_or_default(),
            preload_libraries: asked.preload_libraries,
        },
    })
}

pub(crate) fn inherited_from(asked: wire::InheritedConfiguration) -> SpecChange {
    SpecChange {
        instance_type: asked.instance_type,
        image: asked.image,
        replicas: None,
        storage_gib: asked.storage,
        parameters: asked.postgres_configuration_parameters.unwrap_or_default(),
        preload_libraries: asked.preload_libraries,
    }
}

fn custom_from(asked: wire::CustomConfiguration) -> CustomBranch {
    CustomBranch {
        region: asked.region,
        instance_type: asked.instance_type,
        image: asked.image,
        replicas: asked.replicas.unwrap_or(0),
        storage_gib: asked.storage.unwrap_or(10),
        parameters: asked.postgres_configuration_parameters.unwrap_or_default(),
        preload_libraries: asked.preload_libraries,
    }
}
