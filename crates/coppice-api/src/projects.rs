//! Projects and their limits.

use coppice_app::{Access, App, NewProject, ProjectChange};
use coppice_core::Result;
use coppice_core::limits::{DESCRIPTION_LENGTH_MAX, INSTANCES_PER_BRANCH_MAX};
use coppice_core::operation::{
    CREATE_PROJECT, DELETE_PROJECT, GET_DEFAULT_PROJECT_LIMITS, GET_PROJECT, GET_PROJECT_LIMITS,
    LIST_PROJECTS, UPDATE_PROJECT,
};
use coppice_core::project::{
    AllowedRange, ConfigurationChange, Project, ProjectConfiguration, ScaleToZero, ScaleToZeroChange,
};
use coppice_core::target::InProject;
use coppice_wire as wire;

use crate::endpoint::{Body, Done, Endpoint, Made, Shown, delete, get, patch, post};
use crate::organizations::effective_limits;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Projects";
    vec![
        get("/projects", &LIST_PROJECTS)
            .says(
                AREA,
                "List projects",
                "A key that is limited to projects or branches sees only those projects.",
            )
            .answers("Projects the caller may see.")
            .runs(list_projects),
        post("/projects", &CREATE_PROJECT)
            .says(
                AREA,
                "Make a project",
                "It has no branches yet. Settings that are not given have their defaults.",
            )
            .answers("The new project.")
            .runs(create_project),
        get("", &GET_PROJECT)
            .says(
                AREA,
                "Show a project",
                "With what its branches get unless they are told otherwise, and who may connect to them.",
            )
            .answers("The project.")
            .runs(get_project),
        patch("", &UPDATE_PROJECT)
            .says(
                AREA,
                "Change a project",
                "Settings are merged member by member; the list of address ranges is replaced as a whole.\n\
                 Scale-to-zero defaults apply to branches that are made later.",
            )
            .answers("The project as it is now.")
            .runs(update_project),
        delete("", &DELETE_PROJECT)
            .says(
                AREA,
                "Delete a project",
                "With its branches and their databases; this can't be undone. \
                 The data is removed in the background.",
            )
            .answers("Deleted.")
            .refuses(409, "One of its branches is protected.")
            .runs(delete_project),
        get("/projects/limits", &GET_DEFAULT_PROJECT_LIMITS)
            .says(
                AREA,
                "Show the quotas that projects have unless told otherwise",
                "As the operator of this installation set them.",
            )
            .answers("The quotas.")
            .runs(get_default_project_limits),
        get("/limits", &GET_PROJECT_LIMITS)
            .says(
                AREA,
                "Show the quotas of a project",
                "How many branches it may have, and how large they may be.",
            )
            .answers("Its quotas.")
            .runs(get_project_limits),
    ]
}

async fn list_projects(app: App, access: Access) -> Result<Shown<wire::ProjectList>> {
    let projects = app.projects.list(&access).await?;
    Ok(Shown(wire::ProjectList { projects: projects.into_iter().map(to_wire).collect() }))
}

async fn create_project(
    app: App,
    access: Access,
    Body(asked): Body<wire::CreateProject>,
) -> Result<Made<wire::Project>> {
    let configuration = ProjectConfiguration::default().with(configuration_change(asked.configuration));
    let project = app.projects.create(&access, &NewProject { name: asked.name, configuration }).await?;
    Ok(Made(to_wire(project)))
}

async fn get_project(app: App, access: Access<InProject>) -> Result<Shown<wire::Project>> {
    Ok(Shown(to_wire(app.projects.get(&access).await?)))
}

async fn update_project(
    app: App,
    access: Access<InProject>,
    Body(asked): Body<wire::UpdateProject>,
) -> Result<Shown<wire::Project>> {
    let change = ProjectChange { name: asked.name, configuration: configuration_change(asked.configuration) };
    Ok(Shown(to_wire(app.projects.update(&access, change).await?)))
}

async fn delete_project(app: App, access: Access<InProject>) -> Result<Done> {
    app.projects.delete(&access).await?;
    Ok(Done)
}

async fn get_default_project_limits(app: App, _: Access) -> Result<Shown<wire::ProjectLimits>> {
    Ok(Shown(wire::ProjectLimits {
        max_instances: INSTANCES_PER_BRANCH_MAX,
        min_instances: 1,
        max_description_length: DESCRIPTION_LENGTH_MAX,
        max_branches: app.organizations.limits().branches_per_project_max,
    }))
}

async fn get_project_limits(
    app: App,
    access: Access<InProject>,
) -> Result<Shown<wire::EffectiveProjectLimits>> {
    app.projects.get(&access).await?;
    Ok(Shown(effective_limits(&app.organizations.limits())))
}

/// A scale-to-zero setting on the wire.
pub(crate) fn scale_to_zero(setting: ScaleToZero) -> wire::ScaleToZeroSetting {
    wire::ScaleToZeroSetting {
        enabled: setting.enabled,
        inactivity_period_minutes: setting.inactivity_period_minutes,
    }
}

fn to_wire(project: Project) -> wire::Project {
    let ProjectConfiguration { base_branches, child_branches, child_expiry_hours, ip_filtering } =
        project.configuration;
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
            child_expiry_hours: (child_expiry_hours > 0).then_some(child_expiry_hours),
            ip_filtering: wire::IpFiltering { enabled: ip_filtering.enabled, cidr: cidr.collect() },
        },
    }
}

/// Settings as far as the body gives them.
fn configuration_change(asked: Option<wire::ProjectConfigurationChange>) -> ConfigurationChange {
    let asked = asked.unwrap_or_default();
    let scale_to_zero = asked.scale_to_zero.unwrap_or_default();
    let ip_filtering = asked.ip_filtering.unwrap_or_default();
    let range = |entry: wire::NewCidrEntry| AllowedRange {
        cidr: entry.cidr,
        description: entry.description.unwrap_or_default(),
    };
    ConfigurationChange {
        base_branches: scale_to_zero_change(scale_to_zero.base_branches),
        child_branches: scale_to_zero_change(scale_to_zero.child_branches),
        child_expiry_hours: asked.child_expiry_hours,
        ip_filtering_enabled: ip_filtering.enabled,
        ip_ranges: ip_filtering.cidr.map(|ranges| ranges.into_iter().map(range).collect()),
    }
}

/// A change of a scale-to-zero setting, as far as the body gives it.
pub(crate) fn scale_to_zero_change(asked: Option<wire::ScaleToZeroChange>) -> ScaleToZeroChange {
    let asked = asked.unwrap_or_default();
    ScaleToZeroChange { enabled: asked.enabled, inactivity_period_minutes: asked.inactivity_period_minutes }
}
