//! `coppice project …`

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use coppice_wire::{
    CreateProject, EffectiveProjectLimits, IpFilteringChange, NewCidrEntry, Project,
    ProjectConfigurationChange, ProjectList, ScaleToZeroChange, ScaleToZeroConfigurationChange,
    ScaleToZeroSetting, UpdateProject,
};

use super::branch::is_missing;
use super::complete;
use super::http::Client;
use super::output::{self, Switch, day};
use super::profiles::ProfileFile;
use super::words::count;

/// What to do with projects.
#[derive(Subcommand, Debug)]
pub(crate) enum ProjectCommand {
    /// List projects
    #[command(alias = "ls", after_help = "Example: coppice project list")]
    List,
    /// Make a project
    #[command(alias = "new", after_help = "Example: coppice project create shop")]
    Create {
        /// Its name
        name: String,
        /// All is well when there is a project of this name; it stays as it is
        #[arg(long)]
        if_not_exists: bool,
        #[command(flatten)]
        settings: Settings,
    },
    /// Show a project
    #[command(aliases = ["get", "view", "describe"], after_help = "Example: coppice project show shop")]
    Show {
        /// Name or id
        #[arg(add = ArgValueCandidates::new(complete::projects))]
        project: String,
    },
    /// Make a project the one that commands are about unless told otherwise
    #[command(alias = "switch", after_help = "Example: coppice project use shop")]
    Use {
        /// Name or id
        #[arg(required_unless_present = "none", add = ArgValueCandidates::new(complete::projects))]
        project: Option<String>,
        /// None in particular again
        #[arg(long, conflicts_with = "project")]
        none: bool,
    },
    /// Change a project; what is not named stays
    #[command(alias = "edit", after_help = "Example: coppice project update shop --child-scale-to-zero on")]
    Update {
        /// Name or id
        #[arg(add = ArgValueCandidates::new(complete::projects))]
        project: String,
        /// Its new name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Show the quotas of a project
    #[command(after_help = "Example: coppice project limits shop")]
    Limits {
        /// Name or id
        #[arg(add = ArgValueCandidates::new(complete::projects))]
        project: String,
    },
    /// Delete a project with its branches and their data
    #[command(aliases = ["rm", "remove"], after_help = "Example: coppice project delete shop --yes")]
    Delete {
        /// Name or id
        #[arg(add = ArgValueCandidates::new(complete::projects))]
        project: String,
        /// Don't ask
        #[arg(long)]
        yes: bool,
        /// All is well when there is no such project
        #[arg(long)]
        if_exists: bool,
    },
}

/// Settings of a project.
#[derive(Args, Clone, Debug)]
pub(crate) struct Settings {
    /// Whether new branches without a parent sleep when nobody uses them
    #[arg(long, value_name = "on|off")]
    base_scale_to_zero: Option<Switch>,
    /// After how many minutes those do
    #[arg(long, value_name = "MINUTES")]
    base_inactivity_minutes: Option<u32>,
    /// Whether new branches with a parent sleep when nobody uses them
    #[arg(long, value_name = "on|off")]
    child_scale_to_zero: Option<Switch>,
    /// After how many minutes those do
    #[arg(long, value_name = "MINUTES")]
    child_inactivity_minutes: Option<u32>,
    /// Hours after which new branches with a parent are deleted, unless told otherwise; 0 is never
    #[arg(long, value_name = "HOURS")]
    child_expiry_hours: Option<u32>,
    /// Whether only allowed addresses may connect to its branches
    #[arg(long, value_name = "on|off")]
    ip_filtering: Option<Switch>,
    /// An allowed address or block, with a remark if you like; repeat for more; replaces all
    #[arg(long = "allow", value_name = "CIDR[=REMARK]")]
    allowed: Vec<String>,
    /// Take every allowed address away
    #[arg(long, conflicts_with = "allowed")]
    allow_none: bool,
}

impl Settings {
    fn change(self) -> ProjectConfigurationChange {
        let scale = |enabled: Option<Switch>, minutes| ScaleToZeroChange {
            enabled: enabled.map(Switch::is_on),
            inactivity_period_minutes: minutes,
        };
        let cidr: Vec<_> = self.allowed.iter().map(|text| allowed_range(text)).collect();
        ProjectConfigurationChange {
            scale_to_zero: Some(ScaleToZeroConfigurationChange {
                base_branches: Some(scale(self.base_scale_to_zero, self.base_inactivity_minutes)),
                child_branches: Some(scale(self.child_scale_to_zero, self.child_inactivity_minutes)),
            }),
            child_expiry_hours: self.child_expiry_hours,
            ip_filtering: Some(IpFilteringChange {
                enabled: self.ip_filtering.map(Switch::is_on),
                cidr: (self.allow_none || !cidr.is_empty()).then_some(cidr),
            }),
        }
    }
}

/// Reads `<cidr>` or `<cidr>=<remark>`; the server says whether it is one.
fn allowed_range(text: &str) -> NewCidrEntry {
    let (cidr, description) = match text.split_once('=') {
        Some((cidr, remark)) => (cidr, Some(remark.trim().to_owned())),
        None => (text, None),
    };
    NewCidrEntry { cidr: cidr.trim().to_owned(), description }
}

fn print(projects: &[Project], remembered: Option<&str>) {
    let row = |project: &Project| {
        let is_remembered = [Some(project.id.as_str()), Some(project.name.as_str())].contains(&remembered);
        let mark = if is_remembered { "*" } else { "" };
        vec![mark.to_owned(), project.id.clone(), project.name.clone(), day(&project.created_at)]
    };
    output::table(&["", "ID", "NAME", "CREATED"], projects.iter().map(row).collect());
}

/// Remembers a project for the commands to come; none forgets it.
async fn remember(client: &Client, named: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    let Some(organization) = client.organization().map(str::to_owned) else { return Ok(()) };
    let chosen = match named {
        Some(named) => Some(details(client, named).await?),
        None => None,
    };
    let id = chosen.as_ref().map(|project| project.id.clone());
    let file = ProfileFile::locate()?;
    file.lock().await?.change(|profiles| match id {
        Some(id) => profiles.projects.insert(organization, id),
        None => profiles.projects.remove(&organization),
    })?;
    output::done(
        as_json,
        match chosen {
            Some(project) => format!("commands are about the project {} now ({})", project.name, project.id),
            None => "commands are about no project in particular".to_owned(),
        },
    );
    Ok(())
}

async fn details(client: &Client, named: &str) -> anyhow::Result<Project> {
    let id = client.project(Some(named)).await?.id;
    client.get(&client.here(&format!("/projects/{id}"))).await
}

fn expiry(hours: Option<u32>) -> String {
    hours.map_or_else(
        || "never".to_owned(),
        |hours| format!("after {}", count(hours as usize, "hour", "hours")),
    )
}

fn show(project: &Project, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(project);
    }
    let sleep = |setting: &ScaleToZeroSetting| match setting.enabled {
        true => format!("after {} minutes without clients", setting.inactivity_period_minutes),
        false => "never".to_owned(),
    };
    let filter = &project.configuration.ip_filtering;
    let ranges: Vec<_> = filter.cidr.iter().map(|range| range.cidr.clone()).collect();
    let allowed = match (filter.enabled, ranges.is_empty()) {
        (false, _) => "every address".to_owned(),
        (true, true) => "no address".to_owned(),
        (true, false) => ranges.join(", "),
    };
    output::properties(&[
        ("id", project.id.clone()),
        ("name", project.name.clone()),
        ("created", day(&project.created_at)),
        ("changed", day(&project.updated_at)),
        ("base branches sleep", sleep(&project.configuration.scale_to_zero.base_branches)),
        ("child branches sleep", sleep(&project.configuration.scale_to_zero.child_branches)),
        ("child branches expire", expiry(project.configuration.child_expiry_hours)),
        ("who may connect", allowed),
    ]);
    Ok(())
}

/// Runs one of the commands.
pub(super) async fn run(command: ProjectCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        ProjectCommand::List => {
            let list: ProjectList = client.get(&client.here("/projects")).await?;
            if as_json {
                return output::json(&list);
            }
            print(&list.projects, client.remembered_project().as_deref());
            Ok(())
        }
        ProjectCommand::Create { name, if_not_exists, settings } => {
            if if_not_exists {
                match details(client, &name).await {
                    Ok(found) => {
                        output::done(as_json, format!("there is a project {name} already"));
                        return show(&found, as_json);
                    }
                    Err(error) if is_missing(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            let body = CreateProject { name, configuration: Some(settings.change()) };
            show(&client.post(&client.here("/projects"), &body).await?, as_json)
        }
        ProjectCommand::Show { project } => show(&details(client, &project).await?, as_json),
        ProjectCommand::Use { project, .. } => remember(client, project.as_deref(), as_json).await,
        ProjectCommand::Update { project, name, settings } => {
            let project = client.project(Some(&project)).await?;
            let body = UpdateProject { name, configuration: Some(settings.change()) };
            show(&client.patch(&client.here(&format!("/projects/{}", project.id)), &body).await?, as_json)
        }
        ProjectCommand::Limits { project } => {
            let project = client.project(Some(&project)).await?;
            limits(&client.get(&client.here(&format!("/projects/{}/limits", project.id))).await?, as_json)
        }
        ProjectCommand::Delete { project: named, yes, if_exists } => {
            let project = match client.project(Some(&named)).await {
                Err(error) if if_exists && is_missing(&error) => {
                    output::done(as_json, format!("there is no project {named}"));
                    return Ok(());
                }
                found => found?,
            };
            // Whoever may not list can delete all the same.
            let branches = client.listed_branches(&project).await.unwrap_or_default();
            let names: Vec<_> = branches.iter().map(|branch| branch.name.as_str()).collect();
            let what = match names.as_slice() {
                [] => "all its branches".to_owned(),
                names => format!("{} ({})", count(names.len(), "branch", "branches"), names.join(", ")),
            };
            let question = format!("Delete project {} with {what} and all data?", project.name);
            output::confirm(&question, yes)?;
            client.delete(&client.here(&format!("/projects/{}", project.id))).await?;
            output::done(as_json, format!("deleted project {}", project.name));
            Ok(())
        }
    }
}

fn limits(limits: &EffectiveProjectLimits, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(limits);
    }
    output::properties(&[
        ("branches", limits.max_branches_per_project.to_string()),
        ("branches made in an hour", limits.max_branches_per_hour.to_string()),
        ("instances of a branch", limits.max_instances_per_branch.to_string()),
        ("storage of a branch, GiB", limits.max_storage_gb_per_branch.to_string()),
    ]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowed_range_may_have_a_remark() {
        let entry = allowed_range("192.0.2.0/24 = office");
        assert_eq!(
            serde_json::to_string(&entry).expect("JSON"),
            r#"{"cidr":"192.0.2.0/24","description":"office"}"#
        );
        assert_eq!(allowed_range("::1").cidr, "::1");
    }
}
