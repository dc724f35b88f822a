//! `coppice project …`

use clap::{Args, Subcommand};
use coppice_wire::{
    CreateProject, EffectiveProjectLimits, IpFilteringChange, NewCidrEntry, Project,
    ProjectConfigurationChange, ProjectList, ScaleToZeroChange, ScaleToZeroConfigurationChange,
    ScaleToZeroSetting, UpdateProject,
};

use super::http::Client;
use super::output::{self, Switch, day};

/// What to do with projects.
#[derive(Subcommand, Debug)]
pub(crate) enum ProjectCommand {
    /// List projects
    List,
    /// Make a project
    Create {
        /// Its name
        name: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Show a project
    Show {
        /// Name or id
        project: String,
    },
    /// Change a project; what is not named stays
    Update {
        /// Name or id
        project: String,
        /// Its new name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Show the quotas of a project
    Limits {
        /// Name or id
        project: String,
    },
    /// Delete a project with its branches and their data
    Delete {
        /// Name or id
        project: String,
        /// Don't ask
        #[arg(long)]
        yes: bool,
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

fn print(projects: &[Project]) {
    let rows = projects
        .iter()
        .map(|project| vec![project.id.clone(), project.name.clone(), day(&project.created_at)]);
    output::table(&["ID", "NAME", "CREATED"], rows.collect());
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
            print(&list.projects);
            Ok(())
        }
        ProjectCommand::Create { name, settings } => {
            let body = CreateProject { name, configuration: Some(settings.change()) };
            show(&client.post(&client.here("/projects"), &body).await?, as_json)
        }
        ProjectCommand::Show { project } => show(&client.project(Some(&project)).await?, as_json),
        ProjectCommand::Update { project, name, settings } => {
            let project = client.project(Some(&project)).await?;
            let body = UpdateProject { name, configuration: Some(settings.change()) };
            show(&client.patch(&client.here(&format!("/projects/{}", project.id)), &body).await?, as_json)
        }
        ProjectCommand::Limits { project } => {
            let project = client.project(Some(&project)).await?;
            limits(&client.get(&client.here(&format!("/projects/{}/limits", project.id))).await?, as_json)
        }
        ProjectCommand::Delete { project, yes } => {
            let project = client.project(Some(&project)).await?;
            let question = format!("Delete project {} with all its branches and data?", project.name);
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
