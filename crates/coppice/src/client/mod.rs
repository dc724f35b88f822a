//! The client commands: a client of the public API and nothing else.

mod branch;
mod http;
mod output;
mod project;
mod psql;

use clap::{Args, Subcommand};

use crate::config::DataDir;
use http::Client;

/// Exit code for something that was not found.
const NOT_FOUND: i32 = 4;

/// Where the server is, and who asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientOptions {
    /// URL of the API [default: from DIR/admin.env]
    #[arg(long, env = "COPPICE_URL", global = true)]
    url: Option<String>,
    /// The API key [default: from DIR/admin.env]
    #[arg(long, env = "COPPICE_API_KEY", hide_env_values = true, global = true)]
    api_key: Option<String>,
    /// The organization [default: from DIR/admin.env]
    #[arg(long, env = "COPPICE_ORGANIZATION", global = true)]
    organization: Option<String>,
    #[command(flatten)]
    data_dir: DataDir,
    /// Print JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
}

/// What a branch command is about.
#[derive(Args, Clone, Debug)]
pub(crate) struct BranchTarget {
    /// Name or id of the branch
    branch: String,
    /// Name or id of its project [default: the only one]
    #[arg(long)]
    project: Option<String>,
}

/// Commands that call the API.
#[derive(Subcommand, Debug)]
pub(crate) enum ClientCommand {
    /// Projects
    Project {
        #[command(subcommand)]
        command: project::ProjectCommand,
        #[command(flatten)]
        options: ClientOptions,
    },
    /// Branches
    Branch {
        #[command(subcommand)]
        command: branch::BranchCommand,
        #[command(flatten)]
        options: ClientOptions,
    },
    /// Run psql on a branch
    Psql {
        #[command(flatten)]
        target: BranchTarget,
        #[command(flatten)]
        options: ClientOptions,
        /// Arguments for psql
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Print the connection string of a branch
    ConnectionString {
        #[command(flatten)]
        target: BranchTarget,
        #[command(flatten)]
        options: ClientOptions,
    },
}

/// Runs a command and returns its exit code.
pub(crate) async fn run(command: ClientCommand) -> anyhow::Result<i32> {
    let outcome = match command {
        ClientCommand::Project { command, options } => {
            project::run(command, &Client::connect(&options)?, options.json).await
        }
        ClientCommand::Branch { command, options } => {
            branch::run(command, &Client::connect(&options)?, options.json).await
        }
        ClientCommand::Psql { target, options, arguments } => {
            psql::run(&target, &Client::connect(&options)?, &arguments).await
        }
        ClientCommand::ConnectionString { target, options } => {
            psql::connection_string(&target, &Client::connect(&options)?, options.json).await
        }
    };
    match outcome {
        Ok(()) => Ok(0),
        Err(error) => match error.downcast_ref::<http::NotFound>() {
            Some(_) => {
                eprintln!("coppice: {error:#}");
                Ok(NOT_FOUND)
            }
            None => Err(error),
        },
    }
}
