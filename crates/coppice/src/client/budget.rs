//! `coppice budget`

use anyhow::Context as _;
use clap::{Args, Subcommand};
use coppice_wire::{ApiKeyList, Budget, BudgetCovers, BudgetList, SetBudget};
use reqwest::Method;

use super::http::Client;
use super::lookup::choose;
use super::people::in_query;
use super::{output, times};

/// Budgets.
#[derive(Subcommand, Debug)]
pub(crate) enum BudgetCommand {
    /// List them with what is used of each this month
    #[command(alias = "ls", after_help = "Example: coppice budget list")]
    List,
    /// Say how much may be used in a month before branches are put to sleep
    #[command(after_help = "Example: coppice budget set 20.00 --project shop")]
    Set {
        /// How much
        limit: String,
        /// Of what: the currency of the price list, or instance-hours [default: the currency, where there is a price list]
        unit: Option<String>,
        #[command(flatten)]
        subject: SubjectArgs,
    },
    /// Remove a budget; branches that slept for it may wake
    #[command(aliases = ["rm", "delete"], after_help = "Example: coppice budget remove --project shop")]
    Remove {
        #[command(flatten)]
        subject: SubjectArgs,
    },
}

/// What a budget is of; the organization when nothing is named.
#[derive(Args, Debug)]
pub(crate) struct SubjectArgs {
    /// This project, by name or id
    #[arg(long)]
    project: Option<String>,
    /// This branch, by name or id, of the project
    #[arg(long)]
    branch: Option<String>,
    /// The branches that are made with this key of the organization, by name or id
    #[arg(long, conflicts_with_all = ["project", "branch"])]
    key: Option<String>,
}

impl SubjectArgs {
    async fn id(&self, client: &Client) -> anyhow::Result<String> {
        match self {
            Self { key: Some(key), .. } => key_of_organization(client, key).await,
            Self { branch: Some(branch), project, .. } => {
                let project = client.project(project.as_deref()).await?;
                Ok(client.branch_in(&project, branch).await?.id)
            }
            Self { project: Some(project), .. } => Ok(client.project(Some(project)).await?.id),
            Self { .. } => client.organization().map(str::to_owned).context("no organization is chosen"),
        }
    }
}

async fn key_of_organization(client: &Client, named: &str) -> anyhow::Result<String> {
    let list: ApiKeyList = client.get(&client.here("/api-keys")).await?;
    Ok(choose(list.keys, "key", named, |key| (&key.id, &key.name))?.id)
}

fn path(client: &Client, subject: &str) -> String {
    client.here(&format!("/budgets/{}", in_query(subject)))
}

/// Carries out a command on budgets.
pub(super) async fn run(command: BudgetCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        BudgetCommand::List => {
            let list: BudgetList = client.get(&client.here("/budgets")).await?;
            if as_json {
                return output::json(&list);
            }
            table(list.budgets);
        }
        BudgetCommand::Set { limit, unit, subject } => {
            let subject = subject.id(client).await?;
            let asked = SetBudget { limit, unit };
            let budget: Budget = client.call(Method::PUT, &path(client, &subject), &asked).await?;
            if as_json {
                return output::json(&budget);
            }
            table(vec![budget]);
        }
        BudgetCommand::Remove { subject } => {
            let subject = subject.id(client).await?;
            client.delete(&path(client, &subject)).await?;
            output::done(as_json, format!("removed the budget of {subject}"));
        }
    }
    Ok(())
}

fn table(budgets: Vec<Budget>) {
    let rows = budgets.into_iter().map(|budget| {
        let covers = match budget.covers {
            BudgetCovers::Organization => "organization",
            BudgetCovers::Project => "project",
            BudgetCovers::Branch => "branch",
            BudgetCovers::Key => "key",
        };
        let state = match budget.reached {
            0 => String::new(),
            100 => "used up: its branches sleep".to_owned(),
            part => format!("{part} % reached"),
        };
        let name = budget.name.unwrap_or(budget.subject_id);
        let used = budget.used.unwrap_or_else(|| "unknown".to_owned());
        let renews = times::moment(budget.renews_at.0);
        vec![covers.to_owned(), name, used, budget.limit, budget.unit, state, renews]
    });
    output::table(&["OF", "NAME", "USED", "LIMIT", "UNIT", "STATE", "BEGINS ANEW"], rows.collect());
}
