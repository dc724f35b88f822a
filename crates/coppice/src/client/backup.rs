//! `coppice backup …`

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use coppice_wire::{
    BackupList, BackupMetadata, Branch, BranchStatusType, Drill, DrillResult, RestoreBranch, Timestamp,
};

use super::branch::{show, show_gaps};
use super::http::Client;
use super::lookup::{Named, Place};
use super::output;
use super::settings::{Backups, Sleep};
use super::times::{moment, since};
use super::waiting::wait_for;
use super::{BranchTarget, ProjectChoice};

/// What to do with what is kept of what branches were.
#[derive(Subcommand, Debug)]
pub(crate) enum BackupCommand {
    /// List from when to when each branch can be restored
    #[command(alias = "ls", after_help = "Example: coppice backup list")]
    List {
        #[command(flatten)]
        project: ProjectChoice,
    },
    /// Show from when to when a branch can be restored
    #[command(aliases = ["get", "describe"], after_help = "Example: coppice backup show main")]
    Show {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Make a branch out of what another one was, also of one that does not start
    #[command(
        after_help = "Example: coppice backup restore main --name undo --at 10m\n         coppice backup restore main --name undo --at 2026-11-22T09:30:00Z --retention 7\n\n\
                      To take the branch itself back, use `coppice branch reset`."
    )]
    Restore(Box<RestoreArgs>),
}

/// A branch to be made out of what another one was.
#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// What the new branch is called
    #[arg(long)]
    name: String,
    /// The time to restore, or how long ago: 2026-01-02T03:04:05Z, 90s, 10m, 2h or 1d [default: the latest there is]
    #[arg(long, value_name = "TIME", value_parser = since)]
    at: Option<DateTime<Utc>>,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    #[command(flatten)]
    sleep: Sleep,
    #[command(flatten)]
    backups: Backups,
}

/// Runs one of the commands.
pub(super) async fn run(command: BackupCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        BackupCommand::List { project } => list(client, &project, as_json).await,
        BackupCommand::Show { target } => {
            let Place { project, branch } = client.branch(&target).await?;
            let path = client.here(&format!("/projects/{}/backups/{}", project.id, branch.id));
            let backup: BackupMetadata = client.get(&path).await?;
            if as_json {
                return output::json(&backup);
            }
            output::properties(&[
                ("branch", branch.name),
                ("from", time(backup.earliest_restore)),
                ("to", time(backup.latest_restore)),
                ("store lacks", backup.lag_seconds.map_or_else(String::new, |lag| format!("{lag} s"))),
                ("verified", verified(&backup)),
                ("drill", backup.last_drill.map_or_else(String::new, told)),
                ("is", backup.description),
            ]);
            show_gaps(&backup.gaps);
            Ok(())
        }
        BackupCommand::Restore(arguments) => restore(client, *arguments, as_json).await,
    }
}

async fn list(client: &Client, project: &ProjectChoice, as_json: bool) -> anyhow::Result<()> {
    let project = client.project(project.project.as_deref()).await?;
    let list: BackupList = client.get(&client.here(&format!("/projects/{}/backups", project.id))).await?;
    if as_json {
        return output::json(&list);
    }
    // Without a right to see branches, they have ids only.
    let branches = client.listed_branches(&project).await.unwrap_or_default();
    let name_of =
        |id: &String| branches.iter().find(|branch| branch.id == *id).map(|branch| branch.name.clone());
    let row = |backup: BackupMetadata| {
        let name = name_of(&backup.branch_id).unwrap_or_else(|| "-".to_owned());
        let verified = verified(&backup);
        vec![name, time(backup.earliest_restore), time(backup.latest_restore), verified, backup.id]
    };
    output::table(&["BRANCH", "FROM", "TO", "VERIFIED", "ID"], list.backups.into_iter().map(row).collect());
    Ok(())
}

fn time(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "nothing yet".to_owned(), |time| moment(time.0))
}

/// When it was last restored for proof and sound, and whether it is not by now.
fn verified(backup: &BackupMetadata) -> String {
    let has_failed = backup.last_drill.as_ref().is_some_and(|drill| drill.result == DrillResult::Failed);
    match &backup.last_verified {
        _ if has_failed => "FAILED".to_owned(),
        Some(time) => moment(time.0),
        None => "not yet".to_owned(),
    }
}

fn told(drill: Drill) -> String {
    let result = match drill.result {
        DrillResult::Passed => "passed",
        DrillResult::Failed => "failed",
        DrillResult::Skipped => "skipped",
    };
    format!("{result} at {}: {}", moment(drill.at.0), drill.message)
}

async fn restore(client: &Client, arguments: RestoreArgs, as_json: bool) -> anyhow::Result<()> {
    let RestoreArgs { target, name, at, description, sleep, backups } = arguments;
    let place = client.branch(&target).await?;
    let body = RestoreBranch {
        name: name.clone(),
        target_time: at.map(Timestamp),
        description,
        scale_to_zero: sleep.change(),
        backup_configuration: backups.change(),
        configuration: None,
    };
    let waiting = output::spinner(format!("restoring {} as {name}", place.branch.name));
    let made: Branch = client.post(&format!("{}/restore", client.path_of(&place)), &body).await?;
    let place = Place { project: place.project, branch: Named { id: made.id, name: made.name } };
    let branch = wait_for(client, &place, BranchStatusType::Healthy).await?;
    waiting.finish_and_clear();
    show(client, &place, &branch, as_json).await
}
