//! What an operator does to organizations.

use clap::{Subcommand, ValueEnum};
use coppice_app::operator;
use coppice_core::OrganizationId;
use coppice_core::organization::UsageTier;
use coppice_store::Store;

use super::audit::{Change, recorded};
use super::told;

#[derive(Subcommand, Debug)]
pub(super) enum OrganizationCommand {
    /// List every organization
    #[command(alias = "ls", after_help = "Example: coppice admin org list")]
    List,
    /// Put all branches of an organization to sleep, and allow only reading and deleting
    #[command(after_help = "Example: coppice admin org disable org_… --reason 'unpaid'")]
    Disable {
        /// Its id
        organization: String,
        /// Why; its members are shown it
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Undo that: the branches that it put to sleep are woken
    #[command(after_help = "Example: coppice admin org enable org_…")]
    Enable {
        /// Its id
        organization: String,
    },
    /// Say how much an organization is trusted
    #[command(after_help = "Example: coppice admin org tier org_… t2")]
    Tier {
        /// Its id
        organization: String,
        /// t1: new; t2: known to pay
        tier: Tier,
    },
    /// Take back a deletion that its owner asked for and that is not done yet
    #[command(after_help = "Example: coppice admin org cancel-deletion org_…")]
    CancelDeletion {
        /// Its id
        organization: String,
    },
}

/// How much an organization is trusted.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Tier {
    T1,
    T2,
}

impl OrganizationCommand {
    /// What it changes, and of which organization.
    fn change(&self) -> Option<(&'static str, String)> {
        let (action, organization) = match self {
            Self::List => return None,
            Self::Disable { organization, .. } => ("admin.org.disable", organization),
            Self::Enable { organization } => ("admin.org.enable", organization),
            Self::Tier { organization, .. } => ("admin.org.tier", organization),
            Self::CancelDeletion { organization } => ("admin.org.cancelDeletion", organization),
        };
        Some((action, organization.clone()))
    }
}

/// Carries out a command.
pub(super) async fn carry_out(store: &Store, command: OrganizationCommand) -> anyhow::Result<()> {
    let Some((action, organization)) = command.change() else { return list(store).await };
    let id = OrganizationId::from_trusted(organization.as_str());
    let change = Change { action, organization: Some(&organization), target: None };
    recorded(store, change, change_one(store, command, &id)).await
}

async fn list(store: &Store) -> anyhow::Result<()> {
    for found in store.organization_list_all().await? {
        let status = if found.is_enabled() { "enabled" } else { "disabled" };
        let why = [found.admin_reason, found.billing_reason].join(" ");
        say!("{}  {status}  {}  {}", found.id, found.name, why.trim());
    }
    Ok(())
}

async fn change_one(store: &Store, command: OrganizationCommand, id: &OrganizationId) -> anyhow::Result<()> {
    match command {
        OrganizationCommand::List => {}
        OrganizationCommand::Disable { reason, .. } => {
            let branches =
                operator::set_organization_disabled(store, id, true, &reason).await.map_err(told)?;
            say!("organization {id} is disabled; {branches} branches are put to sleep");
        }
        OrganizationCommand::Enable { .. } => {
            let branches = operator::set_organization_disabled(store, id, false, "").await.map_err(told)?;
            say!("organization {id} is enabled; {branches} branches are woken");
        }
        OrganizationCommand::Tier { tier, .. } => {
            let tier = match tier {
                Tier::T1 => UsageTier::T1,
                Tier::T2 => UsageTier::T2,
            };
            operator::set_organization_tier(store, id, tier).await.map_err(told)?;
            say!("organization {id} has tier {}", tier.as_str());
        }
        OrganizationCommand::CancelDeletion { .. } => {
            operator::cancel_deletion(store, id).await.map_err(told)?;
            say!("organization {id} is not going to be deleted");
        }
    }
    Ok(())
}
