//! `coppice branch create`

use std::collections::BTreeMap;

use anyhow::bail;
use chrono::{DateTime, Utc};
use clap::Args;
use clap_complete::ArgValueCandidates;
use coppice_core::ErrorCode;
use coppice_core::lsn::Lsn;
use coppice_wire::{
    Branch, BranchDetails, BranchStatusType, CreateBranch, CustomBranch, CustomConfiguration, ImageList,
    InheritBranch, InheritedConfiguration, InstanceTypeList, Timestamp, UpdateBranch,
};

use super::show;
use crate::client::http::Client;
use crate::client::lookup::{Named, Place};
use crate::client::settings::{Backups, End, Sleep, end, label, parameter};
use crate::client::times::since;
use crate::client::waiting::wait_for;
use crate::client::{ProjectChoice, complete, output};
use crate::refusal::Refused;

/// A new branch.
#[derive(Args, Clone, Debug)]
pub(crate) struct CreateArgs {
    /// Its name
    name: String,
    /// The branch to copy, by name or id
    #[arg(long, add = ArgValueCandidates::new(complete::branches),
          conflicts_with_all = ["region", "replicas"])]
    parent: Option<String>,
    /// Copy what it was before it was reset or upgraded, by the id in `coppice branch history`
    #[arg(long, value_name = "ID", requires = "parent")]
    version: Option<String>,
    /// Copy it as it was at this time, or so long ago: 2026-01-02T03:04:05Z, 90s, 10m, 2h or 1d
    #[arg(long, value_name = "TIME", requires = "parent", conflicts_with = "lsn", value_parser = since)]
    at: Option<DateTime<Utc>>,
    /// Copy it as it was when its write-ahead log was here, like 0/3000060
    #[arg(long, requires = "parent")]
    lsn: Option<Lsn>,
    #[command(flatten)]
    parts: Parts,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// What it is told apart by, for example in what is used; repeat for more
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    sleep: Sleep,
    #[command(flatten)]
    backups: Backups,
    #[command(flatten)]
    project: ProjectChoice,
    /// When it is deleted: 12h, 7d, a day like 2027-01-31, an RFC 3339 time, or never
    /// [default: of a copy, as the project says, else never]
    #[arg(long, alias = "ttl", value_name = "WHEN", value_parser = end)]
    expires: Option<End>,
    /// All is well when there is a branch of this name; it stays as it is, but for `--expires`
    #[arg(long)]
    if_not_exists: bool,
}

/// What a branch is made of.
#[derive(Args, Clone, Debug)]
pub(crate) struct Parts {
    /// PostgreSQL, for example postgres:17; of a copy, a later release than its parent's [default: that of its parent, or the newest]
    #[arg(long, add = ArgValueCandidates::new(complete::images))]
    image: Option<String>,
    /// Its size [default: that of its parent, or the smallest]
    #[arg(long, alias = "size", add = ArgValueCandidates::new(complete::instance_types))]
    instance_type: Option<String>,
    /// Where an empty branch runs [default: the first region]
    #[arg(long)]
    region: Option<String>,
    /// Most storage [default: that of its parent, or 10]
    #[arg(long, value_name = "GIB")]
    storage: Option<u32>,
    /// Instances of an empty branch besides the primary
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// A PostgreSQL parameter; repeat for more
    #[arg(long = "parameter", alias = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, String)>,
    /// A library that every session has, instead of its parent's or the usual ones; repeat for more
    #[arg(long = "preload", value_name = "LIBRARY")]
    preload_libraries: Vec<String>,
}

/// Makes a branch, and waits until it is ready.
pub(super) async fn create(client: &Client, arguments: CreateArgs, as_json: bool) -> anyhow::Result<()> {
    let CreateArgs {
        name,
        parent,
        version,
        at,
        lsn,
        parts,
        description,
        labels,
        sleep,
        backups,
        project,
        expires,
        if_not_exists,
    } = arguments;
    let project = client.project(project.project.as_deref()).await?;
    let (scale_to_zero, backup_configuration) = (sleep.change(), backups.change());
    let (expires_at, labels) = (expires.map(|end| end.0), Some(labels.into_iter().collect()));
    let body = match parent {
        Some(parent) => {
            let parent_id = client.branch_in(&project, &parent).await?.id;
            let (name, configuration) = (name.clone(), Some(inherited(parts)));
            let (target_time, target_lsn) = (at.map(Timestamp), lsn.map(|lsn| lsn.to_string()));
            CreateBranch::Inherit(InheritBranch {
                name,
                parent_id,
                configuration,
                version_id: version,
                target_time,
                target_lsn,
                description,
                labels,
                scale_to_zero,
                backup_configuration,
                expires_at,
            })
        }
        None => {
            let (name, configuration) = (name.clone(), configuration(client, parts).await?);
            let expires_at = expires_at.flatten();
            CreateBranch::Custom(CustomBranch {
                name,
                configuration,
                description,
                labels,
                scale_to_zero,
                backup_configuration,
                expires_at,
            })
        }
    };
    let waiting = output::spinner(format!("creating the branch {name}"));
    let branches = client.here(&format!("/projects/{}/branches", project.id));
    let branch = match client.post::<Branch>(&branches, &body).await {
        Ok(made) => Named { id: made.id, name: made.name },
        Err(error) if if_not_exists && is_taken(&error) => {
            output::done(as_json, format!("there is a branch {name} already"));
            let branch = client.branch_in(&project, &name).await?;
            if expires_at.is_some() {
                let change = UpdateBranch { expires_at, ..UpdateBranch::default() };
                let _: Branch = client.patch(&super::path(client, &project.id, &branch.id), &change).await?;
            }
            branch
        }
        Err(error) => return Err(error),
    };
    let place = Place { project, branch };
    let branch = match if_not_exists {
        // A branch that sleeps exists, too.
        true => wait_until_there(client, &place).await?,
        false => wait_for(client, &place, BranchStatusType::Healthy).await?,
    };
    waiting.finish_and_clear();
    show(client, &place, &branch, as_json).await
}

async fn wait_until_there(client: &Client, place: &Place) -> anyhow::Result<BranchDetails> {
    let details: BranchDetails = client.get(&client.path_of(place)).await?;
    match details.status.status_type {
        BranchStatusType::Hibernated => Ok(details),
        _ => wait_for(client, place, BranchStatusType::Healthy).await,
    }
}

fn is_taken(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refused>().is_some_and(|refused| refused.is(ErrorCode::BranchNameTaken))
}

/// What a copy has otherwise than its parent.
fn inherited(chosen: Parts) -> InheritedConfiguration {
    let preload = chosen.preload_libraries;
    InheritedConfiguration {
        instance_type: chosen.instance_type,
        image: chosen.image,
        storage: chosen.storage,
        postgres_configuration_parameters: Some(chosen.parameters.into_iter().collect()),
        preload_libraries: (!preload.is_empty()).then_some(preload),
    }
}

/// What an empty branch is made of; what was not chosen is the newest and smallest.
async fn configuration(client: &Client, chosen: Parts) -> anyhow::Result<CustomConfiguration> {
    let (region, instance_type) = match (chosen.region, chosen.instance_type) {
        (Some(region), Some(instance_type)) => (region, instance_type),
        (region, instance_type) => {
            let types: InstanceTypeList = client.get(&client.here("/instanceTypes")).await?;
            let fits =
                |kind: &&coppice_wire::InstanceType| region.as_ref().is_none_or(|id| *id == kind.region);
            let Some(smallest) = types.instance_types.iter().find(fits) else {
                bail!(Refused::not_found(
                    "there is no instance type in that region: see `coppice region list`".to_owned()
                ))
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
        postgres_configuration_parameters: Some(chosen.parameters.into_iter().collect::<BTreeMap<_, _>>()),
        preload_libraries: (!preload.is_empty()).then_some(preload),
    })
}
