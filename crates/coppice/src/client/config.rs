//! `coppice config …`

use anyhow::bail;
use clap::Subcommand;
use coppice_wire::{PostgresConfig, PostgresParameter};

use super::BranchTarget;
use super::http::Client;
use super::output;

/// What to do with the PostgreSQL parameters of a branch.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// List the parameters that can be set
    List {
        #[command(flatten)]
        target: BranchTarget,
        /// Only those that are not at their default
        #[arg(long)]
        changed: bool,
    },
    /// Show all about one parameter
    Get {
        #[command(flatten)]
        target: BranchTarget,
        /// Its name
        name: String,
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
            let parameter = find(&config, &name)?;
            if as_json { output::json(parameter) } else { show(parameter) }
        }
    }
}

/// The API's path of a branch.
async fn path(client: &Client, target: &BranchTarget) -> anyhow::Result<String> {
    let (project, branch) = client.branch(target).await?;
    Ok(client.here(&format!("/projects/{}/branches/{}", project.id, branch.id)))
}

async fn read(client: &Client, branch: &str) -> anyhow::Result<PostgresConfig> {
    client.get(&format!("{branch}/postgres-config")).await
}

fn find<'a>(config: &'a PostgresConfig, name: &str) -> anyhow::Result<&'a PostgresParameter> {
    match config.parameters.iter().find(|one| one.name == name) {
        Some(parameter) => Ok(parameter),
        None => bail!("{name} can't be set on this branch: see `coppice config list`"),
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
    println!("\n{}", parameter.description);
    Ok(())
}
