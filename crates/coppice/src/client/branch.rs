//! `coppice branch …`

use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Subcommand;
use coppice_wire::{Branch, BranchDetails, BranchList, BranchStatusType, Image, ImageList, InstanceTypeList};
use serde_json::{Value, json};

use super::http::Client;
use super::{BranchTarget, output};

/// How long `create` waits for a branch that takes longer than the API does.
const CREATE_PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(250);

/// What to do with branches.
#[derive(Subcommand, Debug)]
pub(crate) enum BranchCommand {
    /// List branches
    List {
        /// Name or id of the project [default: the only one]
        #[arg(long)]
        project: Option<String>,
    },
    /// Make a branch: a copy of another one, or an empty one
    Create {
        /// Its name
        name: String,
        /// The branch to copy, by name or id
        #[arg(long, conflicts_with_all = ["image", "instance_type"])]
        parent: Option<String>,
        /// PostgreSQL of an empty branch, for example postgres:17 [default: the newest]
        #[arg(long)]
        image: Option<String>,
        /// Size of an empty branch [default: the smallest]
        #[arg(long)]
        instance_type: Option<String>,
        /// What it is for
        #[arg(long)]
        description: Option<String>,
        /// Name or id of the project [default: the only one]
        #[arg(long)]
        project: Option<String>,
    },
    /// Show a branch
    Show {
        #[command(flatten)]
        target: BranchTarget,
    },
    /// Delete a branch and its data
    Delete {
        #[command(flatten)]
        target: BranchTarget,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
}

fn path(project: &str, branch: &str) -> String {
    format!("/projects/{project}/branches/{branch}")
}

/// Runs one of the commands.
pub(super) async fn run(command: BranchCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        BranchCommand::List { project } => list(client, project.as_deref(), as_json).await,
        BranchCommand::Show { target } => {
            let (project, branch) = client.branch(&target).await?;
            let branch: BranchDetails = client.get(&path(&project.id, &branch.id)).await?;
            show(&branch, as_json)
        }
        BranchCommand::Delete { target, yes } => {
            let (project, branch) = client.branch(&target).await?;
            output::confirm(&format!("Delete branch {} and its data?", branch.name), yes)?;
            client.delete(&path(&project.id, &branch.id)).await?;
            if !as_json {
                println!("deleted branch {}", branch.name);
            }
            Ok(())
        }
        BranchCommand::Create { name, parent, image, instance_type, description, project } => {
            let project = client.project(project.as_deref()).await?;
            let mut body = match parent {
                Some(parent) => {
                    let target = BranchTarget { branch: parent, project: Some(project.id.clone()) };
                    let (_, parent) = client.branch(&target).await?;
                    json!({ "name": name, "mode": "inherit", "parentID": parent.id })
                }
                None => custom(client, &name, image, instance_type).await?,
            };
            if let Some(description) = description {
                body["description"] = Value::from(description);
            }
            show(&create(client, &project.id, &body).await?, as_json)
        }
    }
}

async fn list(client: &Client, project: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    let project = client.project(project).await?;
    let list: BranchList = client.get(&format!("/projects/{}/branches", project.id)).await?;
    if as_json {
        return output::json(&list);
    }
    let parent_name = |id: &Option<String>| {
        let parent = list.branches.iter().find(|branch| Some(&branch.id) == id.as_ref());
        parent.map_or_else(|| "-".to_owned(), |parent| parent.name.clone())
    };
    let rows = list.branches.iter().map(|branch| {
        let created = branch.created_at.0.format("%Y-%m-%d %H:%M").to_string();
        vec![branch.id.clone(), branch.name.clone(), parent_name(&branch.parent_id), created]
    });
    output::table(&["ID", "NAME", "PARENT", "CREATED"], rows.collect());
    Ok(())
}

/// The body for an empty branch; what was not chosen is the newest and smallest.
async fn custom(
    client: &Client,
    name: &str,
    image: Option<String>,
    instance_type: Option<String>,
) -> anyhow::Result<Value> {
    let types: InstanceTypeList = client.get("/instanceTypes").await?;
    let Some(smallest) = types.instance_types.first() else { bail!("the server offers no instance type") };
    let image = match image {
        Some(image) => image,
        None => {
            let images: ImageList = client.get("/images").await?;
            let newest: Option<&Image> = images.images.first();
            let Some(newest) = newest else { bail!("the server has no PostgreSQL: see `coppice doctor`") };
            newest.name.clone()
        }
    };
    Ok(json!({
        "name": name,
        "mode": "custom",
        "configuration": {
            "region": smallest.region,
            "instanceType": instance_type.unwrap_or_else(|| smallest.name.clone()),
            "image": image,
        },
    }))
}

/// Makes a branch and waits until it is ready or can't become so.
async fn create(client: &Client, project: &str, body: &Value) -> anyhow::Result<BranchDetails> {
    let spinner = output::spinner(format!("creating branch {}", body["name"].as_str().unwrap_or_default()));
    let made: Branch = client.post(&format!("/projects/{project}/branches"), body).await?;
    let started = Instant::now();
    loop {
        let branch: BranchDetails = client.get(&path(project, &made.id)).await?;
        match branch.status.status_type {
            BranchStatusType::Healthy => {
                spinner.finish_and_clear();
                return Ok(branch);
            }
            BranchStatusType::Fault => {
                bail!("branch {} could not be started: {}", made.name, branch.status.message);
            }
            _ if started.elapsed() > CREATE_PATIENCE => {
                bail!("branch {} is not ready yet: see `coppice branch show {}`", made.name, made.id)
            }
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

fn show(details: &BranchDetails, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(details);
    }
    let (branch, configuration) = (&details.branch, &details.configuration);
    let rows = [
        ("id", branch.id.clone()),
        ("name", branch.name.clone()),
        ("description", branch.description.clone()),
        ("parent", branch.parent_id.clone().unwrap_or_else(|| "-".to_owned())),
        ("status", details.status.message.clone()),
        ("image", configuration.image.clone()),
        ("instance type", configuration.instance_type.clone()),
        ("connect", format!("coppice psql {}", branch.name)),
    ];
    output::table(&[], rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect());
    Ok(())
}
