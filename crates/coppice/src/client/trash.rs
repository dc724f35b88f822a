//! `coppice trash …`

use anyhow::bail;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use coppice_wire::{Branch, TrashList, TrashedBranch, UndeleteBranch};

use super::http::Client;
use super::lookup::{Named, choose};
use super::output::{self, day};
use super::words::quoted;
use super::{ProjectChoice, complete};
use crate::refusal::Refused;

/// What to do with deleted branches.
#[derive(Subcommand, Debug)]
pub(crate) enum TrashCommand {
    /// List deleted branches that can be brought back
    #[command(alias = "ls", after_help = "Example: coppice trash list")]
    List {
        #[command(flatten)]
        project: ProjectChoice,
    },
    /// Bring a deleted branch back, with its data and its passwords
    #[command(alias = "undelete", after_help = "Example: coppice trash restore main")]
    Restore {
        /// Name or id
        #[arg(add = ArgValueCandidates::new(complete::trash))]
        branch: String,
        /// What it shall be called [default: as before]
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        project: ProjectChoice,
    },
    /// Remove deleted branches for good
    #[command(alias = "empty", after_help = "Example: coppice trash purge preview --yes")]
    Purge(PurgeArgs),
}

/// What to remove for good.
#[derive(Args, Debug)]
pub(crate) struct PurgeArgs {
    /// Names or ids
    #[arg(required_unless_present = "all", add = ArgValueCandidates::new(complete::trash))]
    branches: Vec<String>,
    /// Everything in the trash
    #[arg(long, conflicts_with = "branches")]
    all: bool,
    #[command(flatten)]
    project: ProjectChoice,
    /// Don't ask
    #[arg(long)]
    yes: bool,
}

/// The API's path of the trash of a project.
fn path(client: &Client, project: &Named) -> String {
    client.here(&format!("/projects/{}/trash", project.id))
}

/// What is in the trash of a project.
pub(super) async fn listed(client: &Client, project: &Named) -> anyhow::Result<Vec<TrashedBranch>> {
    let list: TrashList = client.get(&path(client, project)).await?;
    Ok(list.branches)
}

/// Runs one of the commands.
pub(super) async fn run(command: TrashCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        TrashCommand::List { project } => {
            let project = client.project(project.project.as_deref()).await?;
            let branches = listed(client, &project).await?;
            if as_json {
                return output::json(&TrashList { branches });
            }
            let row = |one: &TrashedBranch| {
                vec![one.name.clone(), day(&one.deleted_at), day(&one.purge_at), one.id.clone()]
            };
            output::table(&["NAME", "DELETED", "KEPT UNTIL", "ID"], branches.iter().map(row).collect());
            Ok(())
        }
        TrashCommand::Restore { branch, name, project } => {
            let project = client.project(project.project.as_deref()).await?;
            let found = find(listed(client, &project).await?, &branch)?;
            let undelete = format!("{}/{}/undelete", path(client, &project), found.id);
            let back: Branch = client.post(&undelete, &UndeleteBranch { name }).await?;
            if as_json {
                return output::json(&back);
            }
            let command = crate::suggest::command(&format!("coppice psql {}", quoted(&back.name)));
            note!("branch {} is back: {command}", back.name);
            Ok(())
        }
        TrashCommand::Purge(arguments) => purge(client, arguments, as_json).await,
    }
}

async fn purge(client: &Client, arguments: PurgeArgs, as_json: bool) -> anyhow::Result<()> {
    let project = client.project(arguments.project.project.as_deref()).await?;
    let trash = listed(client, &project).await?;
    let chosen: Vec<_> = match arguments.all {
        true => trash,
        false => arguments
            .branches
            .iter()
            .map(|named| find(trash.clone(), named))
            .collect::<anyhow::Result<_>>()?,
    };
    if chosen.is_empty() {
        output::done(as_json, "the trash is empty".to_owned());
        return Ok(());
    }
    let names: Vec<_> = chosen.iter().map(|one| one.name.as_str()).collect();
    let question = format!("Remove {} for good? This can't be undone.", names.join(", "));
    output::confirm(&question, arguments.yes)?;
    for one in &chosen {
        client.delete(&format!("{}/{}", path(client, &project), one.id)).await?;
        output::done(as_json, format!("removed branch {} for good", one.name));
    }
    Ok(())
}

/// What is meant by a name or an id; of several with one name, none.
fn find(trash: Vec<TrashedBranch>, named: &str) -> anyhow::Result<TrashedBranch> {
    if !trash.iter().any(|one| one.id == named || one.name == named) {
        let told = format!("no branch {named} is in the trash: see `coppice trash list`");
        bail!(Refused::not_found(told))
    }
    choose(trash, "branch", named, |one| (&one.id, &one.name))
}
