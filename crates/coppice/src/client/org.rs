//! `coppice org …` and `coppice user …`

use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use coppice_wire::{
    CreateOrganization, Organization, OrganizationDetails, OrganizationLimits, OrganizationList,
    OrganizationMembershipLimits, OrganizationState, UpdateOrganization, UpdateUser, User,
};
use reqwest::Method;

use super::branch::is_missing;
use super::http::Client;
use super::output::{self, Switch, day};
use super::{complete, people};

/// What to do with organizations.
#[derive(Subcommand, Debug)]
pub(crate) enum OrgCommand {
    /// List the organizations you belong to
    #[command(alias = "ls", after_help = "Example: coppice org list")]
    List,
    /// Make an organization
    #[command(alias = "new", after_help = "Example: coppice org create Acme")]
    Create {
        /// Its name
        name: String,
        /// All is well when you belong to one of this name
        #[arg(long)]
        if_not_exists: bool,
    },
    /// Show an organization
    #[command(aliases = ["get", "view", "describe"], after_help = "Example: coppice org show")]
    Show {
        /// Name or id [default: the chosen one]
        org: Option<String>,
    },
    /// Rename an organization
    #[command(after_help = "Example: coppice org rename Acme 'Acme Ltd'")]
    Rename {
        /// Name or id
        #[arg(add = ArgValueCandidates::new(complete::organizations))]
        org: String,
        /// The new name
        name: String,
    },
    /// Say whether members of an organization have to sign in with a second factor
    #[command(after_help = "Example: coppice org second-factor Acme on")]
    SecondFactor {
        /// Name or id
        #[arg(add = ArgValueCandidates::new(complete::organizations))]
        org: String,
        /// on: who signed in without one is refused, and so are keys of members made without one
        setting: Switch,
    },
    /// Show the quotas of an organization
    #[command(after_help = "Example: coppice org limits")]
    Limits {
        /// Name or id [default: the chosen one]
        org: Option<String>,
    },
    /// Delete an organization without projects
    #[command(aliases = ["rm", "remove"], after_help = "Example: coppice org delete Acme --yes")]
    Delete {
        /// Name or id
        #[arg(add = ArgValueCandidates::new(complete::organizations))]
        org: String,
        /// Don't ask
        #[arg(long)]
        yes: bool,
        /// All is well when you belong to no such organization
        #[arg(long)]
        if_exists: bool,
    },
    #[command(flatten)]
    People(people::PeopleCommand),
}

/// What to do with your own account.
#[derive(Subcommand, Debug)]
pub(crate) enum UserCommand {
    /// Show who you are
    #[command(aliases = ["get", "view"], after_help = "Example: coppice user show")]
    Show,
    /// Change what you are called
    #[command(after_help = "Example: coppice user rename 'Ada Lovelace'")]
    Rename {
        /// The new name
        name: String,
    },
}

fn print(organizations: &[Organization]) {
    let rows = organizations.iter().map(|organization| {
        let state = match organization.status.status {
            OrganizationState::Enabled => "enabled",
            OrganizationState::Disabled => "disabled",
        };
        let created = day(&organization.status.created_at);
        vec![organization.id.clone(), organization.name.clone(), state.to_owned(), created]
    });
    output::table(&["ID", "NAME", "STATUS", "CREATED"], rows.collect());
}

async fn chosen(client: &Client, named: Option<&str>) -> anyhow::Result<Organization> {
    match named {
        Some(named) => client.organization_named(named).await,
        None => client.get(&client.here("")).await,
    }
}

/// Runs one of the commands.
pub(super) async fn run(command: OrgCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let one = |organization: Organization| {
        if as_json {
            return output::json(&organization);
        }
        print(&[organization]);
        Ok(())
    };
    match command {
        OrgCommand::List => {
            let list: OrganizationList = client.get("/organizations").await?;
            if as_json {
                return output::json(&list);
            }
            print(&list.organizations);
            Ok(())
        }
        OrgCommand::Create { name, if_not_exists } => {
            if if_not_exists {
                match client.organization_named(&name).await {
                    Ok(found) => {
                        output::done(as_json, format!("you belong to an organization {name} already"));
                        return one(found);
                    }
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            one(client.post("/organizations", &CreateOrganization { name }).await?)
        }
        OrgCommand::Show { org } => one(chosen(client, org.as_deref()).await?),
        OrgCommand::Rename { org, name } => {
            let organization = client.organization_named(&org).await?;
            let change = UpdateOrganization { name: Some(name), ..UpdateOrganization::default() };
            one(client.call(Method::PUT, &format!("/organizations/{}", organization.id), &change).await?)
        }
        OrgCommand::SecondFactor { org, setting } => {
            let organization = client.organization_named(&org).await?;
            let requires = setting.is_on();
            let change = UpdateOrganization {
                requires_second_factor: Some(requires),
                ..UpdateOrganization::default()
            };
            let path = format!("/organizations/{}", organization.id);
            let updated: OrganizationDetails = client.call(Method::PUT, &path, &change).await?;
            let said = match updated.requires_second_factor {
                true => "asks its members for a second factor",
                false => "asks nobody for a second factor",
            };
            output::done(as_json, format!("organization {} {said}", updated.organization.name));
            Ok(())
        }
        OrgCommand::People(command) => people::run(command, client, as_json).await,
        OrgCommand::Limits { org } => limits(&chosen(client, org.as_deref()).await?, client, as_json).await,
        OrgCommand::Delete { org, yes, if_exists } => {
            let organization = match client.organization_named(&org).await {
                Err(error) if if_exists && is_missing(&error) => {
                    output::done(as_json, format!("there is no organization {org}"));
                    return Ok(());
                }
                found => found?,
            };
            output::confirm(&format!("Delete organization {} and its keys?", organization.name), yes)?;
            client.delete(&format!("/organizations/{}", organization.id)).await?;
            output::done(as_json, format!("deleted organization {}", organization.name));
            Ok(())
        }
    }
}

async fn limits(organization: &Organization, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let path = format!("/organizations/{}", organization.id);
    let limits: OrganizationLimits = client.get(&format!("{path}/limits")).await?;
    let members: OrganizationMembershipLimits = client.get(&format!("{path}/membership-limits")).await?;
    if as_json {
        return output::json(&serde_json::json!({ "limits": limits, "membershipLimits": members }));
    }
    output::properties(&[
        ("projects", limits.max_projects.to_string()),
        ("projects made in an hour", limits.max_projects_per_hour.to_string()),
        ("branches", limits.max_branches_per_org.to_string()),
        ("branches of a project", limits.project.max_branches_per_project.to_string()),
        ("branches made in an hour", limits.project.max_branches_per_hour.to_string()),
        ("storage of a branch, GiB", limits.project.max_storage_gb_per_branch.to_string()),
        ("members", members.max_members.to_string()),
        ("pending invitations", members.max_invites.to_string()),
    ]);
    Ok(())
}

/// Runs one of the commands on your own account.
pub(super) async fn run_user(command: UserCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let user: User = match command {
        UserCommand::Show => client.get("/user").await?,
        UserCommand::Rename { name } => client.patch("/user", &UpdateUser { name: Some(name) }).await?,
    };
    if as_json {
        return output::json(&user);
    }
    output::properties(&[
        ("id", user.id),
        ("email", user.email),
        ("name", user.name),
        ("since", day(&user.created_at)),
    ]);
    Ok(())
}
