//! `coppice config …`

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use coppice_wire::{
    Branch, BranchDetails, BranchStatusType, PostgresConfig, PostgresParameter, UpdateBranch,
};

use super::BranchTarget;
use super::http::Client;
use super::settings::parameter;
use super::waiting::wait_until_taken;
use super::words::quoted;
use super::{complete, output};
use crate::refusal::Refused;

/// What to do with the PostgreSQL parameters of a branch.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// List the parameters that can be set
    #[command(alias = "ls", after_help = "Example: coppice config list main --changed")]
    List {
        #[command(flatten)]
        target: BranchTarget,
        /// Only those that are not at their default
        #[arg(long)]
        changed: bool,
    },
    /// Show all about one parameter
    #[command(aliases = ["show", "describe"], after_help = "Example: coppice config get main work_mem")]
    Get {
        #[command(flatten)]
        target: BranchTarget,
        /// Its name
        #[arg(add = ArgValueCandidates::new(complete::parameters))]
        name: String,
    },
    /// Set parameters; those that need it restart the server
    #[command(after_help = "Example: coppice config set main work_mem=16MB statement_timeout=30s")]
    Set {
        #[command(flatten)]
        target: BranchTarget,
        /// Values, like work_mem=16MB
        #[arg(required = true, value_name = "NAME=VALUE", value_parser = parameter,
              add = ArgValueCandidates::new(complete::assignments))]
        values: Vec<(String, String)>,
        /// Don't ask before a restart
        #[arg(long)]
        yes: bool,
    },
    /// Take defaults again; those that need it restart the server
    #[command(alias = "unset", after_help = "Example: coppice config reset main work_mem")]
    Reset {
        #[command(flatten)]
        target: BranchTarget,
        /// Names
        #[arg(required_unless_present = "all", add = ArgValueCandidates::new(complete::parameters))]
        names: Vec<String>,
        /// Every parameter that was set
        #[arg(long, conflicts_with = "names")]
        all: bool,
        /// Don't ask before a restart
        #[arg(long)]
        yes: bool,
    },
}

/// Runs one of the commands.
pub(super) async fn run(command: ConfigCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        ConfigCommand::List { target, changed } => {
            let mut config = read(client, &path(client, &target).await?).await?;
            config.parameters.retain(|one| !changed || is_changed(one));
            if as_json { output::json(&config) } else { list(&config.parameters) }
        }
        ConfigCommand::Get { target, name } => {
            let config = read(client, &path(client, &target).await?).await?;
            let parameter = find(&config, &name, &target.branch)?;
            if as_json { output::json(parameter) } else { show(parameter) }
        }
        ConfigCommand::Set { target, values, yes } => {
            change(client, &target, |_| Ok(values.into_iter().collect()), yes, as_json).await
        }
        ConfigCommand::Reset { target, names, all, yes } => {
            let defaults = |config: &PostgresConfig| {
                let is_meant = |one: &&PostgresParameter| all && is_changed(one);
                let found: anyhow::Result<Vec<_>> =
                    names.iter().map(|name| find(config, name, &target.branch)).collect();
                let found = found?.into_iter().chain(config.parameters.iter().filter(is_meant));
                Ok(found.map(|one| (one.name.clone(), one.default_value.clone())).collect())
            };
            change(client, &target, defaults, yes, as_json).await
        }
    }
}

/// Changes parameters, and waits for what that brings about.
async fn change(
    client: &Client,
    target: &BranchTarget,
    asked: impl FnOnce(&PostgresConfig) -> anyhow::Result<BTreeMap<String, String>>,
    is_confirmed: bool,
    as_json: bool,
) -> anyhow::Result<()> {
    let place = client.branch(target).await?;
    let (path, branch) = (client.path_of(&place), &place.branch);
    let before = read(client, &path).await?;
    let asked = asked(&before)?;
    let details: BranchDetails = client.get(&path).await?;
    let is_asleep = details.status.status_type == BranchStatusType::Hibernated;
    let restarting = restarting(&before, &asked);
    let restarts = !is_asleep && !restarting.is_empty();
    if restarts {
        let what = restarting.join(", ");
        let question = format!("Changing {what} restarts {} and ends its sessions. Go on?", branch.name);
        output::confirm(&question, is_confirmed)?;
    }
    let body = UpdateBranch { postgres_configuration_parameters: Some(asked), ..UpdateBranch::default() };
    let waiting = output::spinner(format!("{} takes its parameters", branch.name));
    let _: Branch = client.patch(&path, &body).await?;
    if restarts {
        wait_until_taken(client, &place).await?;
    }
    let mut after = read(client, &path).await?;
    waiting.finish_and_clear();
    let was =
        |name: &str| before.parameters.iter().find(|one| one.name == name).map(|one| &one.current_value);
    after.parameters.retain(|one| was(&one.name) != Some(&one.current_value));
    if as_json {
        return output::json(&after);
    }
    if after.parameters.is_empty() {
        note!("nothing changed");
        return Ok(());
    }
    let rows = after.parameters.iter().map(|one| {
        let before = was(&one.name).cloned().unwrap_or_default();
        vec![one.name.clone(), before, one.current_value.clone()]
    });
    output::table(&["NAME", "BEFORE", "NOW"], rows.collect());
    note!(
        "{}",
        match (is_asleep, restarts) {
            (true, _) => format!("{} has them when it wakes", branch.name),
            (false, true) => format!("{} was restarted", branch.name),
            (false, false) => "no restart was needed".to_owned(),
        }
    );
    Ok(())
}

/// Which of these values restart a server that is up.
pub(super) fn restarting(config: &PostgresConfig, asked: &BTreeMap<String, String>) -> Vec<String> {
    let is_other = |one: &&PostgresParameter| {
        one.restart_required && asked.get(&one.name).is_some_and(|value| *value != one.current_value)
    };
    config.parameters.iter().filter(is_other).map(|one| one.name.clone()).collect()
}

/// The API's path of a branch.
async fn path(client: &Client, target: &BranchTarget) -> anyhow::Result<String> {
    Ok(client.path_of(&client.branch(target).await?))
}

pub(super) async fn read(client: &Client, branch: &str) -> anyhow::Result<PostgresConfig> {
    client.get(&format!("{branch}/postgres-config")).await
}

fn find<'a>(config: &'a PostgresConfig, name: &str, branch: &str) -> anyhow::Result<&'a PostgresParameter> {
    match config.parameters.iter().find(|one| one.name == name) {
        Some(parameter) => Ok(parameter),
        None => bail!(Refused::not_found(format!(
            "{name} can't be set on this branch: see `coppice config list {}`",
            quoted(branch)
        ))),
    }
}

fn is_changed(parameter: &PostgresParameter) -> bool {
    parameter.current_value != parameter.default_value
}

fn list(parameters: &[PostgresParameter]) -> anyhow::Result<()> {
    let rows = parameters.iter().map(|one| {
        let default = if is_changed(one) { one.default_value.clone() } else { String::new() };
        let restart = if one.restart_required { "yes" } else { "" };
        vec![
            one.name.clone(),
            one.current_value.clone(),
            default,
            restart.to_owned(),
            one.recommendation.clone(),
        ]
    });
    output::table(&["NAME", "VALUE", "DEFAULT", "RESTART", "RECOMMENDED"], rows.collect());
    Ok(())
}

fn show(parameter: &PostgresParameter) -> anyhow::Result<()> {
    let range = &parameter.acceptable_range;
    let takes = match (&range.min_value, &range.max_value) {
        (Some(low), Some(high)) => format!("{low} to {high}"),
        _ if range.enum_values.is_empty() => "on or off".to_owned(),
        _ => range.enum_values.join(", "),
    };
    let recommendation = match parameter.recommendation.as_str() {
        "" => "-".to_owned(),
        text => text.to_owned(),
    };
    output::properties(&[
        ("name", parameter.name.clone()),
        ("value", parameter.current_value.clone()),
        ("default", parameter.default_value.clone()),
        ("takes", takes),
        ("restart", if parameter.restart_required { "a change restarts the server" } else { "-" }.to_owned()),
        ("recommended", recommendation),
        ("manual", parameter.documentation_link.clone()),
    ]);
    say!("\n{}", parameter.description);
    Ok(())
}
