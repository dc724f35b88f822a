//! `coppice branch …`

mod create;
mod delete;
mod diff;
mod history;
mod list;
mod reset;
mod update;
mod upgrade;

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use coppice_wire::{
    Branch, BranchActivity, BranchDetails, BranchStatusType, Expiry, Timestamp, UpdateBranch,
};

use super::http::Client;
use super::lookup::Place;
use super::output::{self, day};
use super::settings::labels_in_words;
use super::waiting::wait_for;
use super::words::{count, quoted};
use super::{BranchTarget, ProjectChoice, activity, complete};

pub(super) use delete::is_missing;
pub(super) use history::show_gaps;

/// What to do with branches.
#[derive(Subcommand, Debug)]
pub(crate) enum BranchCommand {
    /// List branches: what they do, their size, who used them last, what keeps them awake
    #[command(alias = "ls", after_help = "Example: coppice branch list --tree")]
    List {
        /// Draw who was made from whom
        #[arg(long)]
        tree: bool,
        #[command(flatten)]
        project: ProjectChoice,
    },
    /// Make a branch: a copy of another one, as it is or was, or an empty one
    #[command(
        alias = "new",
        after_help = "Example: coppice branch create preview --parent main\n         coppice branch create undo --parent main --at 10m\n         coppice branch create before --parent main --version vol_0d3q8v1c5k2m4n6p8r0s2t4u6g"
    )]
    Create(Box<create::CreateArgs>),
    /// Show a branch
    #[command(aliases = ["get", "view", "describe"], after_help = "Example: coppice branch show main")]
    Show {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Change a branch; what is not named stays
    #[command(
        aliases = ["edit", "set"],
        after_help = "Example: coppice branch update main --scale-to-zero on --inactivity-minutes 30\n         coppice branch set main --instance-type small --storage 20 --parameter work_mem=16MB\n         coppice branch set main --image postgres:17 --yes\n         coppice branch set main --replicas 2\n         coppice branch set main --label team=shop --label env=prod"
    )]
    Update(Box<update::UpdateArgs>),
    /// Let nobody delete a branch, nor its project
    #[command(after_help = "Example: coppice branch protect main")]
    Protect {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Let a protected branch be deleted again
    #[command(after_help = "Example: coppice branch unprotect main")]
    Unprotect {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Put a branch to sleep: its server stops, its sessions end, its data stays
    #[command(after_help = "Example: coppice branch hibernate preview --yes")]
    Hibernate {
        #[command(flatten)]
        target: BranchTarget,
        /// Don't ask, also when sessions are open
        #[arg(long)]
        yes: bool,
    },
    /// Wake a sleeping branch
    #[command(after_help = "Example: coppice branch wake preview")]
    Wake {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Show why a branch is awake, when and why it was, and when its server crashed
    #[command(after_help = "Example: coppice branch activity main")]
    Activity {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Give a branch the data of its parent or another branch, or data that it had; its URL and password stay
    #[command(
        after_help = "Example: coppice branch reset preview\n         coppice branch reset main --at 10m --yes\n         coppice branch reset preview --from main --yes"
    )]
    Reset(Box<reset::ResetArgs>),
    /// Give a branch a later major version of PostgreSQL; its data, URL and password stay
    #[command(
        after_help = "Example: coppice branch upgrade main --to 18 --check\n         coppice branch upgrade main --to 18 --yes"
    )]
    Upgrade(upgrade::UpgradeArgs),
    /// Put a branch in the place of its parent, which becomes its child; data and URLs stay
    #[command(after_help = "Example: coppice branch promote preview")]
    Promote {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Make a branch a base branch, nobody's child; its data and URL stay
    #[command(after_help = "Example: coppice branch detach preview")]
    Detach {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Show what a branch can be taken back to
    #[command(after_help = "Example: coppice branch history main")]
    History {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Show in which tables, views, functions, … a branch is not the same as its parent or another one; wakes both
    #[command(
        after_help = "Example: coppice branch diff preview\n         coppice branch diff preview --against staging --sql"
    )]
    Diff(Box<diff::DiffArgs>),
    /// Delete branches: for some days `coppice trash restore` brings them back; their copies stay
    #[command(aliases = ["rm", "remove"], after_help = "Example: coppice branch delete preview old --yes")]
    Delete {
        /// Names or ids
        #[arg(required = true, add = ArgValueCandidates::new(complete::branches))]
        branches: Vec<String>,
        #[command(flatten)]
        project: ProjectChoice,
        /// Remove their data at once: nothing brings them back
        #[arg(long)]
        purge: bool,
        /// Don't ask, not even for the name of a branch that is no copy
        #[arg(long)]
        yes: bool,
        /// All is well when there is no such branch
        #[arg(long)]
        if_exists: bool,
    },
}

/// For how long a branch stays, in words.
fn kept(is_protected: bool, expires_at: Option<Expiry>) -> String {
    match expires_at {
        _ if is_protected => "protected".to_owned(),
        Some(end) => format!("until {}", day(&Timestamp(end.0))),
        None => "-".to_owned(),
    }
}

/// The API's path of a branch.
fn path(client: &Client, project: &str, branch: &str) -> String {
    client.here(&format!("/projects/{project}/branches/{branch}"))
}

/// Runs one of the commands.
pub(super) async fn run(command: BranchCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        BranchCommand::List { tree, project } => list::list(client, &project, tree, as_json).await,
        BranchCommand::Show { target } => {
            let place = client.branch(&target).await?;
            let branch: BranchDetails = client.get(&client.path_of(&place)).await?;
            show(client, &place, &branch, as_json).await
        }
        BranchCommand::Activity { target } => {
            let place = client.branch(&target).await?;
            activity::show(&client.get(&format!("{}/activity", client.path_of(&place))).await?, as_json)
        }
        BranchCommand::History { target } => {
            let place = client.branch(&target).await?;
            history::show(&client.get(&format!("{}/history", client.path_of(&place))).await?, as_json)
        }
        BranchCommand::Diff(arguments) => diff::diff(client, *arguments, as_json).await,
        BranchCommand::Delete { branches: named, project, purge, yes: is_confirmed, if_exists } => {
            let deletion = delete::Deletion { named, project, purge, is_confirmed, if_exists };
            delete::delete(client, deletion, as_json).await
        }
        BranchCommand::Promote { target } => move_to(client, &target, "promote", as_json).await,
        BranchCommand::Detach { target } => move_to(client, &target, "detach", as_json).await,
        BranchCommand::Reset(arguments) => reset::reset(client, *arguments, as_json).await,
        BranchCommand::Upgrade(arguments) => upgrade::upgrade(client, arguments, as_json).await,
        BranchCommand::Update(arguments) => update::update(client, *arguments, as_json).await,
        BranchCommand::Protect { target } => protect(client, &target, true, as_json).await,
        BranchCommand::Unprotect { target } => protect(client, &target, false, as_json).await,
        BranchCommand::Hibernate { target, yes } => {
            let place = client.branch(&target).await?;
            let open = sessions_of(client, &place).await;
            if open > 0 {
                let sessions = count(open, "open session", "open sessions");
                let question = format!("Put {} to sleep, and end its {sessions}?", place.branch.name);
                output::confirm(&question, yes)?;
            }
            let change = UpdateBranch { hibernate: Some(true), ..UpdateBranch::default() };
            let then = ("falling asleep", BranchStatusType::Hibernated);
            change_to(client, &place, &change, Some(then), as_json).await
        }
        BranchCommand::Wake { target } => {
            let place = client.branch(&target).await?;
            let change = UpdateBranch { hibernate: Some(false), ..UpdateBranch::default() };
            change_to(client, &place, &change, Some(("waking", BranchStatusType::Healthy)), as_json).await
        }
        BranchCommand::Create(arguments) => create::create(client, *arguments, as_json).await,
    }
}

/// Gives a branch another place in the tree.
async fn move_to(client: &Client, target: &BranchTarget, how: &str, as_json: bool) -> anyhow::Result<()> {
    let place = client.branch(target).await?;
    let path = client.path_of(&place);
    let _: Branch = client.post_nothing(&format!("{path}/{how}")).await?;
    show(client, &place, &client.get(&path).await?, as_json).await
}

async fn protect(client: &Client, target: &BranchTarget, on: bool, as_json: bool) -> anyhow::Result<()> {
    let place = client.branch(target).await?;
    let change = UpdateBranch { protected: Some(on), ..UpdateBranch::default() };
    change_to(client, &place, &change, None, as_json).await
}

/// How many sessions are open on a branch; none where that may not be seen.
pub(super) async fn sessions_of(client: &Client, place: &Place) -> usize {
    let activity = client.get::<BranchActivity>(&format!("{}/activity", client.path_of(place))).await;
    activity.map(|activity| activity.sessions.len()).unwrap_or_default()
}

/// Changes a branch, and waits until it is what it shall become by that.
async fn change_to(
    client: &Client,
    place: &Place,
    change: &UpdateBranch,
    then: Option<(&str, BranchStatusType)>,
    as_json: bool,
) -> anyhow::Result<()> {
    let path = client.path_of(place);
    let _: Branch = client.patch(&path, change).await?;
    let branch = match then {
        Some((what, wanted)) => {
            let waiting = output::spinner(format!("{} is {what}", place.branch.name));
            let branch = wait_for(client, place, wanted).await?;
            waiting.finish_and_clear();
            branch
        }
        None => client.get(&path).await?,
    };
    show(client, place, &branch, as_json).await
}

/// Shows a branch; its parent by name where that may be seen.
pub(super) async fn show(
    client: &Client,
    place: &Place,
    details: &BranchDetails,
    as_json: bool,
) -> anyhow::Result<()> {
    if as_json {
        return output::json(details);
    }
    let (branch, configuration) = (&details.branch, &details.configuration);
    let sleep = match details.scale_to_zero.enabled {
        true => format!("after {} minutes without clients", details.scale_to_zero.inactivity_period_minutes),
        false => "never by itself".to_owned(),
    };
    let parent = match &branch.parent_id {
        None => "-".to_owned(),
        Some(id) => {
            let listed = client.listed_branches(&place.project).await.unwrap_or_default();
            let found = listed.into_iter().find(|other| other.id == *id);
            found.map_or_else(|| id.clone(), |parent| parent.name)
        }
    };
    let parameters = &configuration.postgres_configuration_parameters;
    let parameters: Vec<_> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut rows = vec![
        ("id", branch.id.clone()),
        ("name", branch.name.clone()),
        ("created", day(&branch.created_at)),
        ("description", branch.description.clone()),
        ("labels", labels_in_words(&details.labels)),
        ("parent", parent),
        ("status", details.status.message.clone()),
        ("sleeps", sleep),
        ("kept", kept(details.protected, details.expires_at)),
        ("image", configuration.image.clone()),
        ("instance type", configuration.instance_type.clone()),
        ("preloaded", configuration.preload_libraries.join(", ")),
        ("connect", crate::suggest::command(&format!("coppice psql {}", quoted(&branch.name)))),
    ];
    if details.status.instance_count > 1 {
        let (ready, all) = (details.status.instance_ready_count, details.status.instance_count);
        rows.push((
            "instances",
            format!("{ready} of {all} ready, {} of them only read", configuration.replicas),
        ));
    }
    if let Some(backups) = &details.backup_configuration {
        rows.push(("backups", format!("{} days, full at {}", backups.retention_period, backups.backup_time)));
    }
    if !parameters.is_empty() {
        rows.push(("parameters", parameters.join(", ")));
    }
    output::properties(&rows);
    Ok(())
}
