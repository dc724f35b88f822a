//! `coppice github …`

use anyhow::bail;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use coppice_wire::{
    GithubInstallation, GithubInstallationList, GithubMapping, GithubRepository, LinkGithubInstallation,
    MapGithubRepository,
};
use reqwest::Method;

use super::http::Client;
use super::lookup::Place;
use super::output::{self, day};
use super::people::in_query;
use super::{ProjectChoice, complete};
use crate::refusal::Refused;

/// What to do with a GitHub App.
#[derive(Subcommand, Debug)]
pub(crate) enum GithubCommand {
    /// Link an installation of the GitHub App to the organization
    #[command(after_help = "Example: coppice github link 12345 --code 4f9d8a1c2b3e")]
    Link(LinkArgs),
    /// List the installations that are linked
    #[command(alias = "ls", after_help = "Example: coppice github list")]
    List,
    /// Give every pull request of a repository a branch
    #[command(after_help = "Example: coppice github map 1296269 --root main")]
    Map(MapArgs),
    /// Show the repository of a project
    #[command(alias = "get", after_help = "Example: coppice github show --project shop")]
    Show {
        #[command(flatten)]
        project: ProjectChoice,
    },
    /// Give pull requests no branches any more; those that are there stay until their time is over
    #[command(alias = "unlink", after_help = "Example: coppice github unmap --yes")]
    Unmap {
        #[command(flatten)]
        project: ProjectChoice,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
}

/// An installation to link.
#[derive(Args, Debug)]
pub(crate) struct LinkArgs {
    /// Its number, as the page behind the installation shows it
    installation: i64,
    /// The code that the same page shows: it proves that the installation is yours, once
    #[arg(long)]
    code: String,
    /// The link that shall lead there, by its id [default: a new one]
    #[arg(long, value_name = "ID")]
    replace: Option<String>,
}

/// A repository to map a project to.
#[derive(Args, Debug)]
pub(crate) struct MapArgs {
    /// Its number at GitHub: `gh api repos/OWNER/NAME --jq .id`
    repository: i64,
    /// The branch that pull requests get copies of, by name or id
    #[arg(long, value_name = "BRANCH", add = ArgValueCandidates::new(complete::branches))]
    root: String,
    /// Whether pull requests get branches [default: as before, at first on]
    #[arg(long, value_name = "on|off")]
    previews: Option<output::Switch>,
    /// Whether those from forks do, too, whoever opens them [default: as before, at first off]
    #[arg(long, value_name = "on|off")]
    forks: Option<output::Switch>,
    #[command(flatten)]
    project: ProjectChoice,
}

/// The API's path of the mapping of a project, by any of its branches.
fn path_by(client: &Client, place: &Place) -> String {
    format!("{}/githubapp/repository", client.path_of(place))
}

async fn path(client: &Client, project: &ProjectChoice) -> anyhow::Result<String> {
    let project = client.project(project.project.as_deref()).await?;
    match client.branches_in(&project).await?.into_iter().next() {
        Some(branch) => Ok(path_by(client, &Place { project, branch })),
        None => {
            bail!(Refused::not_found(format!("project {} has no branch, and so no repository", project.name)))
        }
    }
}

/// Runs one of the commands.
pub(super) async fn run(command: GithubCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        GithubCommand::Link(asked) => {
            let body = LinkGithubInstallation { installation_id: asked.installation, code: Some(asked.code) };
            let all = client.here("/githubapp/installations");
            let linked: GithubInstallation = match &asked.replace {
                None => client.post(&all, &body).await?,
                Some(id) => client.call(Method::PUT, &format!("{all}/{}", in_query(id)), &body).await?,
            };
            if as_json {
                return output::json(&linked);
            }
            output::done(as_json, format!("linked installation {}", linked.installation_id));
            Ok(())
        }
        GithubCommand::List => list(client, as_json).await,
        GithubCommand::Map(asked) => map(client, &asked, as_json).await,
        GithubCommand::Show { project } => {
            let found: GithubMapping = client.get(&path(client, &project).await?).await?;
            match found.mapping {
                Some(mapping) => show(&mapping, as_json),
                None if as_json => output::json(&found),
                None => bail!(Refused::not_found(
                    "the project has no repository: `coppice github map`".to_owned()
                )),
            }
        }
        GithubCommand::Unmap { project, yes } => {
            let path = path(client, &project).await?;
            output::confirm("Give pull requests no branches any more?", yes)?;
            client.delete(&path).await?;
            output::done(as_json, "the project has no repository any more".to_owned());
            Ok(())
        }
    }
}

async fn map(client: &Client, asked: &MapArgs, as_json: bool) -> anyhow::Result<()> {
    let project = client.project(asked.project.project.as_deref()).await?;
    let branch = client.branch_in(&project, &asked.root).await?;
    let path = path_by(client, &Place { project, branch });
    let body = MapGithubRepository {
        github_repository_id: asked.repository,
        previews: asked.previews.map(output::Switch::is_on),
        forks: asked.forks.map(output::Switch::is_on),
    };
    let known: GithubMapping = client.get(&path).await?;
    let method = if known.mapping.is_some() { Method::PUT } else { Method::POST };
    show(&client.call::<GithubRepository>(method, &path, &body).await?, as_json)
}

fn show(mapping: &GithubRepository, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(mapping);
    }
    let switch = |is_on| if is_on { "on" } else { "off" }.to_owned();
    output::properties(&[
        ("repository", mapping.github_repository_id.to_string()),
        ("project", mapping.project.clone()),
        ("root branch", mapping.root_branch_id.clone()),
        ("previews", switch(mapping.previews)),
        ("of forks", switch(mapping.forks)),
        ("since", day(&mapping.created_at)),
    ]);
    Ok(())
}

async fn list(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let list: GithubInstallationList = client.get(&client.here("/githubapp/installations")).await?;
    if as_json {
        return output::json(&list);
    }
    let row = |one: &GithubInstallation| {
        vec![one.installation_id.to_string(), day(&one.created_at), one.id.clone()]
    };
    output::table(&["INSTALLATION", "LINKED", "ID"], list.installations.iter().map(row).collect());
    Ok(())
}
