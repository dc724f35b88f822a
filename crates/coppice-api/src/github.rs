//! The GitHub App: installations that are linked, and the repositories of projects.

use coppice_app::{Access, App, LinkRequest, MappingRequest};
use coppice_core::Result;
use coppice_core::github::{GithubInstallation, GithubRepository};
use coppice_core::operation::{
    CREATE_GITHUB_APP_INSTALLATION, CREATE_GITHUB_REPOSITORY, DELETE_GITHUB_REPOSITORY,
    GET_GITHUB_REPOSITORY, LIST_GITHUB_APP_INSTALLATIONS, UPDATE_GITHUB_APP_INSTALLATION,
    UPDATE_GITHUB_REPOSITORY,
};
use coppice_core::target::{InBranch, OnGithubInstallation};
use coppice_wire as wire;
use zeroize::Zeroizing;

use crate::endpoint::{Body, Done, Endpoint, Made, Shown, delete, get, post, put};

/// Where the mapping of a project is, below any of its branches.
const MAPPING: &str = "/githubapp/repository";

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "GitHub App";
    const TAKEN: &str = "The organization has linked that installation already.";
    const MAPPED: &str = "The project has a repository, or the repository another project.";
    vec![
        get("/githubapp/installations", &LIST_GITHUB_APP_INSTALLATIONS)
            .says(AREA, "List the installations of the GitHub App that an organization has linked", "Those of its repositories can be mapped to projects that who linked it administers at GitHub.")
            .answers("Its installations.")
            .runs(list_installations),
        post("/githubapp/installations", &CREATE_GITHUB_APP_INSTALLATION)
            .says(AREA, "Link an installation of the GitHub App", "Whoever installs the App is shown a code at the end, by which GitHub says which of its repositories they administer:\nthese can be mapped.")
            .answers("The link.")
            .refuses(409, TAKEN)
            .runs(link_installation),
        put("", &UPDATE_GITHUB_APP_INSTALLATION)
            .says(AREA, "Have a link lead to another installation", "It needs a code, as the first one did, and says anew which repositories can be mapped.")
            .answers("The link as it is now.")
            .refuses(409, TAKEN)
            .runs(relink_installation),
        get(MAPPING, &GET_GITHUB_REPOSITORY)
            .says(AREA, "Show the repository that a project is mapped to", "Whichever of its branches is in the path.")
            .answers("The mapping, or null.")
            .runs(get_mapping),
        post(MAPPING, &CREATE_GITHUB_REPOSITORY)
            .says(AREA, "Map a project to a repository", "A pull request there has a copy of the branch of the path, `pr-` and its number, for as long as it is open.")
            .answers("The mapping.")
            .refuses(409, MAPPED)
            .runs(create_mapping),
        put(MAPPING, &UPDATE_GITHUB_REPOSITORY)
            .says(AREA, "Change the repository that a project is mapped to", "And what pull requests get a copy of: the branch of the path.")
            .answers("The mapping as it is now.")
            .refuses(409, MAPPED)
            .runs(update_mapping),
        delete(MAPPING, &DELETE_GITHUB_REPOSITORY)
            .says(AREA, "End the mapping of a project", "Branches that were made for pull requests stay until their time is over.")
            .answers("Ended.")
            .runs(delete_mapping),
    ]
}

async fn list_installations(app: App, access: Access) -> Result<Shown<wire::GithubInstallationList>> {
    let linked = app.github.installations(&access).await?;
    Ok(Shown(wire::GithubInstallationList { installations: linked.into_iter().map(installation).collect() }))
}

async fn link_installation(
    app: App,
    access: Access,
    Body(asked): Body<wire::LinkGithubInstallation>,
) -> Result<Made<wire::GithubInstallation>> {
    Ok(Made(installation(app.github.link(&access, &link(asked)).await?)))
}

async fn relink_installation(
    app: App,
    access: Access<OnGithubInstallation>,
    Body(asked): Body<wire::LinkGithubInstallation>,
) -> Result<Shown<wire::GithubInstallation>> {
    Ok(Shown(installation(app.github.relink(&access, &link(asked)).await?)))
}

async fn get_mapping(app: App, access: Access<InBranch>) -> Result<Shown<wire::GithubMapping>> {
    let mapping = app.github.mapping(&access).await?.map(repository);
    Ok(Shown(wire::GithubMapping { mapping }))
}

async fn create_mapping(
    app: App,
    access: Access<InBranch>,
    Body(asked): Body<wire::MapGithubRepository>,
) -> Result<Made<wire::GithubRepository>> {
    Ok(Made(repository(app.github.create_mapping(&access, &request(&asked)).await?)))
}

async fn update_mapping(
    app: App,
    access: Access<InBranch>,
    Body(asked): Body<wire::MapGithubRepository>,
) -> Result<Shown<wire::GithubRepository>> {
    Ok(Shown(repository(app.github.update_mapping(&access, &request(&asked)).await?)))
}

async fn delete_mapping(app: App, access: Access<InBranch>) -> Result<Done> {
    app.github.delete_mapping(&access).await?;
    Ok(Done)
}

fn link(asked: wire::LinkGithubInstallation) -> LinkRequest {
    LinkRequest { installation: asked.installation_id, code: asked.code.map(Zeroizing::new) }
}

fn request(asked: &wire::MapGithubRepository) -> MappingRequest {
    MappingRequest {
        repository: asked.github_repository_id,
        has_previews: asked.previews,
        takes_forks: asked.forks,
    }
}

fn installation(linked: GithubInstallation) -> wire::GithubInstallation {
    wire::GithubInstallation {
        id: linked.id.to_string(),
        installation_id: linked.installation,
        organization: linked.organization.to_string(),
        created_at: wire::Timestamp(linked.created_at),
        updated_at: wire::Timestamp(linked.updated_at),
    }
}

fn repository(mapping: GithubRepository) -> wire::GithubRepository {
    wire::GithubRepository {
        id: mapping.id.to_string(),
        github_repository_id: mapping.repository,
        project: mapping.project.to_string(),
        root_branch_id: mapping.root.to_string(),
        previews: mapping.has_previews,
        forks: mapping.takes_forks,
        created_at: wire::Timestamp(mapping.created_at),
        updated_at: wire::Timestamp(mapping.updated_at),
    }
}
