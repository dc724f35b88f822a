//! The client commands: a client of the public API and nothing else.

mod activity;
mod audit;
mod branch;
mod catalogue;
mod config;
mod credentials;
mod http;
mod key;
mod login;
mod logs;
mod metrics;
mod org;
mod output;
mod people;
mod profiles;
mod project;
mod psql;
mod refusal;
mod times;
mod tokens;
mod transport;
mod verification;

use anyhow::bail;
use clap::{Args, Subcommand};

use crate::config::DataDir;
use http::Client;
pub(crate) use times::since;

/// Where the server is, and who asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientOptions {
    /// URL of the API [default: from DIR/admin.env]
    #[arg(long, env = "COPPICE_URL", global = true)]
    url: Option<String>,
    /// The API key [default: from DIR/admin.env]
    #[arg(long, env = "COPPICE_API_KEY", hide_env_values = true, global = true)]
    api_key: Option<String>,
    /// The organization, by name or id [default: from DIR/admin.env]
    #[arg(long, env = "COPPICE_ORGANIZATION", global = true)]
    organization: Option<String>,
    /// A sign-in by its name [default: the current one; see `coppice profile list`]
    #[arg(long, env = "COPPICE_PROFILE", global = true)]
    profile: Option<String>,
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

/// A command with where the server is, and who asks.
#[derive(Args, Debug)]
pub(crate) struct Call<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    options: ClientOptions,
}

/// Who commands act as.
#[derive(Subcommand, Debug)]
pub(crate) enum SignIn {
    /// Sign in with a browser
    Login(login::LoginArgs),
    /// Sign out
    Logout(login::LogoutArgs),
    /// Sign-ins to several servers
    #[command(subcommand)]
    Profile(login::ProfileCommand),
}

/// What a command that calls the API is about.
#[derive(Subcommand, Debug)]
pub(crate) enum Noun {
    /// Say who commands act as
    Whoami {
        #[command(flatten)]
        options: ClientOptions,
    },
    /// Organizations
    Org(Call<org::OrgCommand>),
    /// Your account
    User(Call<org::UserCommand>),
    /// Projects
    Project(Call<project::ProjectCommand>),
    /// Branches
    Branch(Call<branch::BranchCommand>),
    /// PostgreSQL parameters of a branch
    Config(Call<config::ConfigCommand>),
    /// How to connect to a branch
    Credentials(Call<credentials::CredentialsCommand>),
    /// API keys
    Key(Call<key::KeyCommand>),
    /// Regions
    Region(Call<catalogue::ListCommand>),
    /// Sizes of instances
    InstanceType(Call<catalogue::ListCommand>),
    /// Releases of PostgreSQL
    Image(Call<catalogue::ListCommand>),
    /// Extensions of PostgreSQL
    Extension(Call<catalogue::ExtensionCommand>),
    /// Show what a branch's server has logged
    Logs {
        #[command(flatten)]
        arguments: logs::LogsArgs,
        #[command(flatten)]
        options: ClientOptions,
    },
    /// Show who changed what in the organization
    Audit {
        #[command(flatten)]
        arguments: audit::AuditArgs,
        #[command(flatten)]
        options: ClientOptions,
    },
    /// Show what a branch does: CPU, memory, disk, sessions, network, I/O
    Metrics {
        #[command(flatten)]
        arguments: metrics::MetricsArgs,
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

impl Noun {
    fn options(&self) -> &ClientOptions {
        match self {
            Self::Whoami { options } => options,
            Self::Org(call) => &call.options,
            Self::User(call) => &call.options,
            Self::Project(call) => &call.options,
            Self::Branch(call) => &call.options,
            Self::Config(call) => &call.options,
            Self::Credentials(call) => &call.options,
            Self::Key(call) => &call.options,
            Self::Region(call) | Self::InstanceType(call) | Self::Image(call) => &call.options,
            Self::Extension(call) => &call.options,
            Self::Logs { options, .. } => options,
            Self::Audit { options, .. } => options,
            Self::Metrics { options, .. } => options,
            Self::Psql { options, .. } | Self::ConnectionString { options, .. } => options,
        }
    }

    /// Whether it is about what an organization has.
    fn needs_organization(&self) -> bool {
        !matches!(self, Self::Whoami { .. } | Self::Org(_) | Self::User(_))
    }
}

/// Runs a command that signs in or out, and returns its exit code.
pub(crate) async fn run_sign_in(command: SignIn) -> anyhow::Result<i32> {
    exit_code(match command {
        SignIn::Login(args) => login::login(args).await,
        SignIn::Logout(args) => login::logout(args).await,
        SignIn::Profile(command) => login::run_profile(command).await,
    })
}

/// Runs a command and returns its exit code.
pub(crate) async fn run(noun: Noun) -> anyhow::Result<i32> {
    exit_code(call(noun).await)
}

fn exit_code(outcome: anyhow::Result<()>) -> anyhow::Result<i32> {
    match outcome {
        Ok(()) => Ok(0),
        Err(error) => match error.downcast_ref::<refusal::Refused>() {
            Some(refused) => {
                eprintln!("coppice: {error:#}");
                Ok(refused.exit_code)
            }
            None => Err(error),
        },
    }
}

async fn call(noun: Noun) -> anyhow::Result<()> {
    let as_json = noun.options().json;
    let client = Client::connect(noun.options()).await?;
    if noun.needs_organization() && !client.has_organization() {
        bail!(
            "no organization is chosen: name one with --organization, or make one with \
             `coppice org create NAME`"
        );
    }
    dispatch(noun, &client, as_json).await
}

async fn dispatch(noun: Noun, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match noun {
        Noun::Whoami { .. } => login::whoami(client, as_json).await,
        Noun::Org(call) => org::run(call.command, client, as_json).await,
        Noun::User(call) => org::run_user(call.command, client, as_json).await,
        Noun::Project(call) => project::run(call.command, client, as_json).await,
        Noun::Branch(call) => branch::run(call.command, client, as_json).await,
        Noun::Config(call) => config::run(call.command, client, as_json).await,
        Noun::Credentials(call) => credentials::run(call.command, client, as_json).await,
        Noun::Key(call) => key::run(call.command, client, as_json).await,
        Noun::Region(_) => catalogue::regions(client, as_json).await,
        Noun::InstanceType(_) => catalogue::instance_types(client, as_json).await,
        Noun::Image(_) => catalogue::images(client, as_json).await,
        Noun::Extension(call) => catalogue::extensions(call.command, client, as_json).await,
        Noun::Logs { arguments, .. } => logs::run(arguments, client, as_json).await,
        Noun::Audit { arguments, .. } => audit::run(arguments, client, as_json).await,
        Noun::Metrics { arguments, .. } => metrics::run(&arguments, client, as_json).await,
        Noun::Psql { target, arguments, .. } => psql::run(&target, client, &arguments).await,
        Noun::ConnectionString { target, .. } => psql::connection_string(&target, client, as_json).await,
    }
}
