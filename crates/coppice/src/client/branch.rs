//! `coppice branch …`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::{Args, Subcommand};
use coppice_wire::{
    Branch, BranchDetails, BranchList, BranchStatusType, CreateBranch, CustomBranch, CustomConfiguration,
    ImageList, InheritBranch, InstanceTypeList, ListedBranch, ScaleToZeroChange, UpdateBranch,
};

use super::http::Client;
use super::output::{self, Switch, day};
use super::{BranchTarget, activity};

/// How long a command waits for a branch.
const PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(250);

/// What to do with branches.
#[derive(Subcommand, Debug)]
pub(crate) enum BranchCommand {
    /// List branches
    List {
        /// Draw who was made from whom
        #[arg(long)]
        tree: bool,
        /// Name or id of the project [default: the only one]
        #[arg(long)]
        project: Option<String>,
    },
    /// Make a branch: a copy of another one, or an empty one
    Create {
        /// Its name
        name: String,
        /// The branch to copy, by name or id
        #[arg(long, conflicts_with_all = ["image", "instance_type", "region", "storage", "replicas",
                                          "parameters", "preload_libraries"])]
        parent: Option<String>,
        #[command(flatten)]
        empty: Empty,
        /// What it is for
        #[arg(long)]
        description: Option<String>,
        #[command(flatten)]
        sleep: Sleep,
        /// Name or id of the project [default: the only one]
        #[arg(long)]
        project: Option<String>,
    },
    /// Show a branch
    Show {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Change a branch; what is not named stays
    Update {
        #[command(flatten)]
        target: BranchTarget,
        /// Its new name
        #[arg(long)]
        name: Option<String>,
        /// What it is for
        #[arg(long)]
        description: Option<String>,
        /// Most storage, in GiB; may only grow
        #[arg(long, value_name = "GIB")]
        storage: Option<u32>,
        #[command(flatten)]
        sleep: Sleep,
    },
    /// Put a branch to sleep: its server stops, its data stays
    Hibernate {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Wake a sleeping branch
    Wake {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Show why a branch is awake, and when and why it was
    Activity {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Delete branches and their data
    Delete {
        /// Names or ids
        #[arg(required = true)]
        branches: Vec<String>,
        /// Name or id of their project [default: the only one]
        #[arg(long)]
        project: Option<String>,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
}

/// What an empty branch is made of.
#[derive(Args, Clone, Debug)]
pub(crate) struct Empty {
    /// PostgreSQL of an empty branch, for example postgres:17 [default: the newest]
    #[arg(long)]
    image: Option<String>,
    /// Size of an empty branch [default: the smallest]
    #[arg(long)]
    instance_type: Option<String>,
    /// Where an empty branch runs [default: the first region]
    #[arg(long)]
    region: Option<String>,
    /// Most storage of an empty branch
    #[arg(long, value_name = "GIB")]
    storage: Option<u32>,
    /// Instances of an empty branch besides the primary
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// A PostgreSQL parameter of an empty branch; repeat for more
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, String)>,
    /// A library that every session of an empty branch has; repeat for more
    #[arg(long = "preload", value_name = "LIBRARY")]
    preload_libraries: Vec<String>,
}

/// When a branch sleeps.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// Whether it sleeps when nobody uses it
    #[arg(long, value_name = "on|off")]
    scale_to_zero: Option<Switch>,
    /// After how many minutes it does
    #[arg(long, value_name = "MINUTES")]
    inactivity_minutes: Option<u32>,
}

impl Sleep {
    fn change(self) -> Option<ScaleToZeroChange> {
        let change = ScaleToZeroChange {
            enabled: self.scale_to_zero.map(Switch::is_on),
            inactivity_period_minutes: self.inactivity_minutes,
        };
        (change.enabled.is_some() || change.inactivity_period_minutes.is_some()).then_some(change)
    }
}

pub(super) fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, like work_mem=16MB")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn path(client: &Client, project: &str, branch: &str) -> String {
    client.here(&format!("/projects/{project}/branches/{branch}"))
}

/// Runs one of the commands.
pub(super) async fn run(command: BranchCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        BranchCommand::List { tree, project } => list(client, project.as_deref(), tree, as_json).await,
        BranchCommand::Show { target } => {
            let (project, branch) = client.branch(&target).await?;
            let branch: BranchDetails = client.get(&path(client, &project.id, &branch.id)).await?;
            show(&branch, as_json)
        }
        BranchCommand::Activity { target } => {
            let (project, branch) = client.branch(&target).await?;
            let path = format!("{}/activity", path(client, &project.id, &branch.id));
            activity::show(&client.get(&path).await?, as_json)
        }
        BranchCommand::Delete { branches, project, yes } => {
            delete(client, &branches, project.as_deref(), yes, as_json).await
        }
        BranchCommand::Update { target, name, description, storage, sleep } => {
            let scale_to_zero = sleep.change();
            let change =
                UpdateBranch { name, description, scale_to_zero, storage, ..UpdateBranch::default() };
            update(client, &target, &change, None, as_json).await
        }
        BranchCommand::Hibernate { target } => {
            let change = UpdateBranch { hibernate: Some(true), ..UpdateBranch::default() };
            update(client, &target, &change, Some(("falling asleep", BranchStatusType::Hibernated)), as_json)
                .await
        }
        BranchCommand::Wake { target } => {
            let change = UpdateBranch { hibernate: Some(false), ..UpdateBranch::default() };
            update(client, &target, &change, Some(("waking", BranchStatusType::Healthy)), as_json).await
        }
        BranchCommand::Create { name, parent, empty, description, sleep, project } => {
            let project = client.project(project.as_deref()).await?;
            let scale_to_zero = sleep.change();
            let body = match parent {
                Some(parent) => {
                    let target = BranchTarget { branch: parent, project: Some(project.id.clone()) };
                    let parent_id = client.branch(&target).await?.1.id;
                    CreateBranch::Inherit(InheritBranch { name, parent_id, description, scale_to_zero })
                }
                None => {
                    let configuration = configuration(client, empty).await?;
                    CreateBranch::Custom(CustomBranch { name, configuration, description, scale_to_zero })
                }
            };
            let waiting = output::spinner("creating the branch".to_owned());
            let branches = client.here(&format!("/projects/{}/branches", project.id));
            let made: Branch = client.post(&branches, &body).await?;
            let branch = wait_for(client, &project.id, &made.id, BranchStatusType::Healthy).await?;
            waiting.finish_and_clear();
            show(&branch, as_json)
        }
    }
}

async fn list(client: &Client, project: Option<&str>, tree: bool, as_json: bool) -> anyhow::Result<()> {
    let project = client.project(project).await?;
    let list: BranchList = client.get(&client.here(&format!("/projects/{}/branches", project.id))).await?;
    if as_json {
        return output::json(&list);
    }
    if tree {
        draw(&list.branches).iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    let parent_name = |id: &Option<String>| {
        let parent = list.branches.iter().find(|branch| Some(&branch.id) == id.as_ref());
        parent.map_or_else(|| "-".to_owned(), |parent| parent.name.clone())
    };
    let rows = list.branches.iter().map(|branch| {
        vec![branch.id.clone(), branch.name.clone(), parent_name(&branch.parent_id), day(&branch.created_at)]
    });
    output::table(&["ID", "NAME", "PARENT", "CREATED"], rows.collect());
    Ok(())
}

/// Who was made from whom, one line a branch.
fn draw(branches: &[ListedBranch]) -> Vec<String> {
    let is_root = |branch: &&ListedBranch| {
        // A key may see a branch and not its parent.
        let parent = branch.parent_id.as_ref();
        parent.is_none_or(|id| branches.iter().all(|other| other.id != *id))
    };
    let mut lines = vec![];
    for root in branches.iter().filter(is_root) {
        lines.push(root.name.clone());
        draw_children(branches, &root.id, "", &mut lines);
    }
    lines
}

fn draw_children(branches: &[ListedBranch], parent: &str, indent: &str, lines: &mut Vec<String>) {
    let children: Vec<_> =
        branches.iter().filter(|branch| branch.parent_id.as_deref() == Some(parent)).collect();
    for (index, child) in children.iter().enumerate() {
        let is_last = index + 1 == children.len();
        let (branch, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        lines.push(format!("{indent}{branch}{}", child.name));
        draw_children(branches, &child.id, &format!("{indent}{below}"), lines);
    }
}

/// What an empty branch is made of; what was not chosen is the newest and smallest.
async fn configuration(client: &Client, chosen: Empty) -> anyhow::Result<CustomConfiguration> {
    let (region, instance_type) = match (chosen.region, chosen.instance_type) {
        (Some(region), Some(instance_type)) => (region, instance_type),
        (region, instance_type) => {
            let types: InstanceTypeList = client.get(&client.here("/instanceTypes")).await?;
            let fits =
                |kind: &&coppice_wire::InstanceType| region.as_ref().is_none_or(|id| *id == kind.region);
            let Some(smallest) = types.instance_types.iter().find(fits) else {
                bail!("there is no instance type in that region: see `coppice region list`")
            };
            let kind = instance_type.unwrap_or_else(|| smallest.name.clone());
            (smallest.region.clone(), kind)
        }
    };
    let image = match chosen.image {
        Some(image) => image,
        None => {
            let images: ImageList = client.get(&client.here("/images")).await?;
            let Some(newest) = images.images.into_iter().next() else {
                bail!("the server has no PostgreSQL: see `coppice doctor`")
            };
            newest.name
        }
    };
    let preload = chosen.preload_libraries;
    Ok(CustomConfiguration {
        region,
        instance_type,
        image,
        replicas: chosen.replicas,
        storage: chosen.storage,
        postgres_configuration_parameters: chosen.parameters.into_iter().collect::<BTreeMap<_, _>>(),
        preload_libraries: (!preload.is_empty()).then_some(preload),
    })
}

/// Changes a branch, and waits for what the change brings about.
async fn update(
    client: &Client,
    target: &BranchTarget,
    change: &UpdateBranch,
    then: Option<(&str, BranchStatusType)>,
    as_json: bool,
) -> anyhow::Result<()> {
    let (project, branch) = client.branch(target).await?;
    let path = path(client, &project.id, &branch.id);
    let _: Branch = client.patch(&path, change).await?;
    let branch = match then {
        Some((what, wanted)) => {
            let waiting = output::spinner(format!("{} is {what}", branch.name));
            let branch = wait_for(client, &project.id, &branch.id, wanted).await?;
            waiting.finish_and_clear();
            branch
        }
        None => client.get(&path).await?,
    };
    show(&branch, as_json)
}

/// Waits until a branch is what it shall be, or can't become so.
pub(super) async fn wait_for(
    client: &Client,
    project: &str,
    id: &str,
    wanted: BranchStatusType,
) -> anyhow::Result<BranchDetails> {
    let started = Instant::now();
    loop {
        let details: BranchDetails = client.get(&path(client, project, id)).await?;
        let name = &details.branch.name;
        match details.status.status_type {
            now if now == wanted => return Ok(details),
            BranchStatusType::Fault => {
                bail!("branch {name} could not be started: {}", details.status.message)
            }
            _ if started.elapsed() > PATIENCE => {
                bail!("branch {name} is not ready yet: see `coppice branch show {id}`")
            }
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

async fn delete(
    client: &Client,
    named: &[String],
    project: Option<&str>,
    is_confirmed: bool,
    as_json: bool,
) -> anyhow::Result<()> {
    let mut found = vec![];
    for name in named {
        let target = BranchTarget { branch: name.clone(), project: project.map(str::to_owned) };
        found.push(client.branch(&target).await?);
    }
    let names: Vec<_> = found.iter().map(|(_, branch)| branch.name.as_str()).collect();
    let what = if names.len() == 1 { "branch" } else { "branches" };
    output::confirm(&format!("Delete {what} {} with all data?", names.join(", ")), is_confirmed)?;
    for (project, branch) in &found {
        client.delete(&path(client, &project.id, &branch.id)).await?;
        output::done(as_json, format!("deleted branch {}", branch.name));
    }
    Ok(())
}

fn show(details: &BranchDetails, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(details);
    }
    let (branch, configuration) = (&details.branch, &details.configuration);
    let sleep = match details.scale_to_zero.enabled {
        true => format!("after {} minutes without clients", details.scale_to_zero.inactivity_period_minutes),
        false => "never by itself".to_owned(),
    };
    let parameters = &configuration.postgres_configuration_parameters;
    let parameters: Vec<_> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut rows = vec![
        ("id", branch.id.clone()),
        ("name", branch.name.clone()),
        ("description", branch.description.clone()),
        ("parent", branch.parent_id.clone().unwrap_or_else(|| "-".to_owned())),
        ("status", details.status.message.clone()),
        ("sleeps", sleep),
        ("image", configuration.image.clone()),
        ("instance type", configuration.instance_type.clone()),
        ("preloaded", configuration.preload_libraries.join(", ")),
        ("connect", format!("coppice psql {}", branch.name)),
    ];
    if !parameters.is_empty() {
        rows.push(("parameters", parameters.join(", ")));
    }
    output::properties(&rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(id: &str, parent: Option<&str>) -> ListedBranch {
        let time = coppice_wire::Timestamp(chrono::DateTime::UNIX_EPOCH);
        ListedBranch {
            id: id.to_owned(),
            name: format!("b{id}"),
            created_at: time,
            updated_at: time,
            region: "local".to_owned(),
            public_access: false,
            backups_enabled: false,
            description: String::new(),
            parent_id: parent.map(str::to_owned),
        }
    }

    #[test]
    fn the_tree_shows_who_was_made_from_whom() {
        let branches =
            [branch("1", None), branch("2", Some("1")), branch("3", Some("2")), branch("4", Some("1"))];
        assert_eq!(draw(&branches), ["b1", "├─ b2", "│  └─ b3", "└─ b4"]);
    }

    #[test]
    fn a_branch_whose_parent_is_not_to_be_seen_is_drawn_all_the_same() {
        assert_eq!(draw(&[branch("2", Some("1"))]), ["b2"]);
    }

    #[test]
    fn a_parameter_is_a_name_and_a_value() {
        assert_eq!(parameter("work_mem=16MB"), Ok(("work_mem".to_owned(), "16MB".to_owned())));
        assert!(parameter("work_mem").is_err());
    }
}
