//! `coppice branch update`

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use clap_complete::ArgValueCandidates;
use coppice_wire::{Branch, BranchDetails, BranchStatusType, UpdateBranch};

use super::show;
use crate::client::http::Client;
use crate::client::settings::{Backups, End, Sleep, end, label, parameter};
use crate::client::waiting::wait_until_taken;
use crate::client::{BranchTarget, complete, config, output};

/// A change of a branch.
#[derive(Args, Debug)]
pub(crate) struct UpdateArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// Its new name
    #[arg(long)]
    name: Option<String>,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// What it is told apart by, over what it has; repeat for more
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// A label that it has no more; repeat for more
    #[arg(long = "remove-label", value_name = "KEY")]
    removed_labels: Vec<String>,
    /// Servers besides the primary that only read, 0 to 4
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(0..=4))]
    replicas: Option<u32>,
    /// Most storage, in GiB; may only grow
    #[arg(long, value_name = "GIB")]
    storage: Option<u32>,
    /// Its size; restarts the server
    #[arg(long, alias = "size", value_name = "TYPE", add = ArgValueCandidates::new(complete::instance_types))]
    instance_type: Option<String>,
    /// A later release of its PostgreSQL, for example postgres:17 for the newest 17; restarts the server
    #[arg(long, add = ArgValueCandidates::new(complete::images))]
    image: Option<String>,
    /// A PostgreSQL parameter, over those it has; repeat for more
    #[arg(long = "parameter", alias = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, String)>,
    /// A library that every session has, instead of those it has now; repeat for more; restarts the server
    #[arg(long = "preload", value_name = "LIBRARY")]
    preload_libraries: Vec<String>,
    /// No library that every session has; restarts the server
    #[arg(long, conflicts_with = "preload_libraries")]
    no_preload: bool,
    /// When it is deleted: 12h, 7d, a day like 2027-01-31, an RFC 3339 time, or never
    #[arg(long, alias = "ttl", value_name = "WHEN", value_parser = end)]
    expires: Option<End>,
    #[command(flatten)]
    sleep: Sleep,
    #[command(flatten)]
    backups: Backups,
    /// Don't ask before a restart
    #[arg(long)]
    yes: bool,
}

impl UpdateArgs {
    fn change(self) -> UpdateBranch {
        let (parameters, preload) = (self.parameters, self.preload_libraries);
        let removed = self.removed_labels.into_iter().map(|key| (key, String::new()));
        let labels: BTreeMap<_, _> = self.labels.into_iter().chain(removed).collect();
        UpdateBranch {
            name: self.name,
            description: self.description,
            labels: (!labels.is_empty()).then_some(labels),
            scale_to_zero: self.sleep.change(),
            backup_configuration: self.backups.change(),
            replicas: self.replicas,
            storage: self.storage,
            instance_type: self.instance_type,
            image: self.image,
            postgres_configuration_parameters: (!parameters.is_empty())
                .then(|| parameters.into_iter().collect()),
            preload_libraries: (self.no_preload || !preload.is_empty()).then_some(preload),
            expires_at: self.expires.map(|end| end.0),
            ..UpdateBranch::default()
        }
    }
}

/// Changes a branch, and waits for what that brings about.
pub(super) async fn update(client: &Client, arguments: UpdateArgs, as_json: bool) -> anyhow::Result<()> {
    let place = client.branch(&arguments.target).await?;
    let (path, name) = (client.path_of(&place), &place.branch.name);
    let is_confirmed = arguments.yes;
    let change = arguments.change();
    let restarting = restarting(client, &path, &change).await?;
    if !restarting.is_empty() {
        let what = restarting.join(", ");
        let question = format!("Changing {what} restarts {name} and ends its sessions. Go on?");
        output::confirm(&question, is_confirmed)?;
    }
    let waiting = output::spinner(format!("{name} takes its settings"));
    let _: Branch = client.patch(&path, &change).await?;
    let branch = wait_until_taken(client, &place).await?;
    waiting.finish_and_clear();
    show(client, &place, &branch, as_json).await
}

/// What of a change restarts a server that is up.
async fn restarting(client: &Client, path: &str, change: &UpdateBranch) -> anyhow::Result<Vec<String>> {
    let parameters = change.postgres_configuration_parameters.clone().unwrap_or_default();
    let may_restart = change.instance_type.is_some()
        || change.image.is_some()
        || change.preload_libraries.is_some()
        || !parameters.is_empty();
    if !may_restart {
        return Ok(vec![]);
    }
    let details: BranchDetails = client.get(path).await?;
    if details.status.status_type == BranchStatusType::Hibernated {
        return Ok(vec![]);
    }
    let has = details.configuration;
    let is_other = |asked: &Option<String>, has: &str| asked.as_ref().is_some_and(|asked| asked != has);
    let is_other_set = change
        .preload_libraries
        .as_ref()
        .is_some_and(|asked| asked.iter().collect::<BTreeSet<_>>() != has.preload_libraries.iter().collect());
    let parts = [
        ("the instance type", is_other(&change.instance_type, &has.instance_type)),
        ("the image", is_other(&change.image, &has.image)),
        ("the preload libraries", is_other_set),
    ];
    let mut what: Vec<_> =
        parts.iter().filter(|(_, is_other)| *is_other).map(|(what, _)| (*what).to_owned()).collect();
    what.extend(restarting_parameters(client, path, &parameters).await?);
    Ok(what)
}

async fn restarting_parameters(
    client: &Client,
    path: &str,
    asked: &BTreeMap<String, String>,
) -> anyhow::Result<Vec<String>> {
    match asked.is_empty() {
        true => Ok(vec![]),
        false => Ok(config::restarting(&config::read(client, path).await?, asked)),
    }
}
