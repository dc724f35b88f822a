//! `coppice project …`

use clap::Subcommand;
use coppice_wire::{Project, ProjectList};
use serde_json::json;

use super::http::Client;
use super::output;

/// What to do with projects.
#[derive(Subcommand, Debug)]
pub(crate) enum ProjectCommand {
    /// List projects
    List,
    /// Make a project
    Create {
        /// Its name
        name: String,
    },
    /// Show a project
    Show {
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

fn print(projects: &[Project]) {
    let rows = projects.iter().map(|project| {
        vec![
            project.id.clone(),
            project.name.clone(),
            project.created_at.0.format("%Y-%m-%d %H:%M").to_string(),
        ]
    });
    output::table(&["ID", "NAME", "CREATED"], rows.collect());
}

/// Runs one of the commands.
pub(super) async fn run(command: ProjectCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        ProjectCommand::List => {
            let list: ProjectList = client.get("/projects").await?;
            if as_json {
                return output::json(&list);
            }
            print(&list.projects);
        }
        ProjectCommand::Create { name } => {
            let project: Project = client.post("/projects", &json!({ "name": name })).await?;
            if as_json {
                return output::json(&project);
            }
            print(&[project]);
        }
        ProjectCommand::Show { project } => {
            let project = client.project(Some(&project)).await?;
            if as_json {
                return output::json(&project);
            }
            print(&[project]);
        }
        ProjectCommand::Delete { project, yes } => {
            let project = client.project(Some(&project)).await?;
            let question = format!("Delete project {} with all its branches and data?", project.name);
            output::confirm(&question, yes)?;
            client.delete(&format!("/projects/{}", project.id)).await?;
            if !as_json {
                println!("deleted project {}", project.name);
            }
        }
    }
    Ok(())
}
