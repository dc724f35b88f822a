//! The client commands: a client of the public API and nothing else.

mod activity;
mod audit;
mod backup;
mod billing;
mod branch;
mod budget;
mod catalogue;
mod complete;
mod config;
mod connection;
mod credentials;
mod event;
mod github;
mod http;
mod invoice;
mod key;
mod listeners;
mod login;
mod logs;
mod lookup;
mod mcp;
mod metrics;
mod org;
mod output;
mod people;
mod pgdata;
mod profiles;
mod programs;
mod project;
mod server;
mod settings;
mod times;
mod tokens;
mod transfer;
mod transport;
mod trash;
mod usage;
mod verification;
mod waiting;
mod webhook;
pub(crate) mod words;

use anyhow::bail;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;

use crate::config::DataDir;
use crate::refusal::Refused;
pub(crate) use complete::{Shell, print_completions};
use http::Client;
pub(crate) use times::{moment, since};

/// Where the server is, and who asks.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientOptions {
    /// URL of the API [default: where the server of the data directory is]
    #[arg(long, env = "COPPICE_URL", value_parser = server::url, global = true)]
    url: Option<String>,
    /// The API key [default: from DIR/admin.env]
    #[arg(long, env = "COPPICE_API_KEY", value_parser = server::filled, hide_env_values = true, global = true)]
    api_key: Option<String>,
    /// The organization, by name or id [default: the one of the key or sign-in]
    #[arg(long, env = "COPPICE_ORGANIZATION", value_parser = server::filled, global = true,
          add = ArgValueCandidates::new(complete::organizations))]
    organization: Option<String>,
    /// A sign-in by its name [default: the current one; see `coppice profile list`]
    #[arg(long, env = "COPPICE_PROFILE", value_parser = server::filled, global = true,
          add = ArgValueCandidates::new(complete::profiles))]
    profile: Option<String>,
    #[command(flatten)]
    data_dir: DataDir,
}

/// Which project a command is about.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ProjectChoice {
    /// Name or id of the project [default: that of `coppice project use`, else the only one]
    #[arg(long, env = "COPPICE_PROJECT", value_parser = server::filled,
          add = ArgValueCandidates::new(complete::projects))]
    project: Option<String>,
}

/// What a branch command is about.
#[derive(Args, Clone, Debug)]
pub(crate) struct BranchTarget {
    /// Name or id of the branch
    #[arg(add = ArgValueCandidates::new(complete::branches))]
    branch: String,
    #[command(flatten)]
    project: ProjectChoice,
}

/// A command with where the server is, and who asks.
#[derive(Args, Debug)]
pub(crate) struct Call<C: Subcommand> {
    #[command(subcommand)]
    command: C,
    #[command(flatten)]
    options: ClientOptions,
}

/// The same of a command that stands alone.
#[derive(Args, Debug)]
pub(crate) struct Plain<A: Args> {
    #[command(flatten)]
    arguments: A,
    #[command(flatten)]
    options: ClientOptions,
}

/// Who commands act as.
#[derive(Subcommand, Debug)]
pub(crate) enum SignIn {
    /// Sign in with a browser
    #[command(after_help = "Example: coppice login https://db.example.com")]
    Login(login::LoginArgs),
    /// Sign out
    #[command(after_help = "Example: coppice logout --all")]
    Logout(login::LogoutArgs),
    /// Sign-ins to several servers
    #[command(subcommand, alias = "profiles", after_help = "Example: coppice profile use work")]
    Profile(login::ProfileCommand),
}

/// What a command that calls the API is about.
#[derive(Subcommand, Debug)]
pub(crate) enum Noun {
    /// Say who commands act as
    #[command(after_help = "Example: coppice whoami --json")]
    Whoami {
        #[command(flatten)]
        options: ClientOptions,
    },
    /// Organizations
    #[command(aliases = ["orgs", "organization", "organizations"],
              after_help = "Example: coppice org invite ada@example.com --role viewer")]
    Org(Call<org::OrgCommand>),
    /// Your account
    #[command(after_help = "Example: coppice user show")]
    User(Call<org::UserCommand>),
    /// Projects
    #[command(alias = "projects", after_help = "Example: coppice project create shop")]
    Project(Call<project::ProjectCommand>),
    /// Branches
    #[command(alias = "branches", after_help = "Example: coppice branch create preview --parent main")]
    Branch(Call<branch::BranchCommand>),
    /// Deleted branches that can be brought back
    #[command(after_help = "Example: coppice trash restore main")]
    Trash(Call<trash::TrashCommand>),
    /// What branches can be restored to
    #[command(alias = "backups", after_help = "Example: coppice backup restore main --name undo --at 10m")]
    Backup(Call<backup::BackupCommand>),
    /// PostgreSQL parameters of a branch
    #[command(aliases = ["configuration", "parameter", "parameters"],
              after_help = "Example: coppice config set main work_mem=16MB")]
    Config(Call<config::ConfigCommand>),
    /// How to connect to a branch
    #[command(aliases = ["credential", "creds"], after_help = "Example: coppice credentials show main")]
    Credentials(Call<credentials::CredentialsCommand>),
    /// API keys
    #[command(aliases = ["keys", "api-key", "api-keys"],
              after_help = "Example: coppice key create ci --scope branch:write --project shop --expires 90d")]
    Key(Call<key::KeyCommand>),
    /// Regions
    #[command(alias = "regions", after_help = "Example: coppice region list")]
    Region(Call<catalogue::RegionCommand>),
    /// Sizes of instances
    #[command(alias = "instance-types", after_help = "Example: coppice instance-type list")]
    InstanceType(Call<catalogue::InstanceTypeCommand>),
    /// Releases of PostgreSQL
    #[command(alias = "images", after_help = "Example: coppice image list")]
    Image(Call<catalogue::ImageCommand>),
    /// Extensions of PostgreSQL
    #[command(alias = "extensions", after_help = "Example: coppice extension list postgres:17")]
    Extension(Call<catalogue::ExtensionCommand>),
    /// Show what a branch's server has logged
    #[command(alias = "log", after_help = "Example: coppice logs main --since 1h --level warning --follow")]
    Logs(Plain<logs::LogsArgs>),
    /// Show who changed what in the organization
    #[command(after_help = "Example: coppice audit --since 1d --action deleteBranch")]
    Audit(Plain<audit::AuditArgs>),
    /// What happens in the organization
    #[command(alias = "events", after_help = "Example: coppice event list --follow")]
    Event(Call<event::EventCommand>),
    /// Show what the organization used: instances, storage, traffic
    #[command(after_help = "Example: coppice usage --from 30d --by branch,day --format csv")]
    Usage(Plain<usage::UsageArgs>),
    /// Where events of the organization are sent to
    #[command(alias = "webhooks", after_help = "Example: coppice webhook create https://example.com/hook")]
    Webhook(Call<webhook::WebhookCommand>),
    /// What may be used in a month before branches are put to sleep
    #[command(alias = "budgets", after_help = "Example: coppice budget set 20.00 --project shop")]
    Budget(Call<budget::BudgetCommand>),
    /// Give pull requests on GitHub branches
    #[command(after_help = "Example: coppice github map 1296269 --root main")]
    Github(Call<github::GithubCommand>),
    /// Where invoices go, and what is paid with
    #[command(after_help = "Example: coppice billing add-card")]
    Billing(Call<billing::BillingCommand>),
    /// Invoices
    #[command(alias = "invoices", after_help = "Example: coppice invoice show bil_… --html > invoice.html")]
    Invoice(Call<invoice::InvoiceCommand>),
    /// Show what a branch does: CPU, memory, disk, sessions, network, I/O
    #[command(alias = "metric", after_help = "Example: coppice metrics main --since 6h --metric cpu,disk")]
    Metrics(Plain<metrics::MetricsArgs>),
    /// Run psql on a branch; what follows its name is psql's
    #[command(after_help = "Example: coppice psql main -c 'SELECT 1'\n\n\
                            Options of this command stand before the first one of psql's, or before a `--`.")]
    Psql(Plain<connection::PsqlArgs>),
    /// Print what a program connects to a branch with
    #[command(after_help = "Example: coppice connection-string main --format jdbc")]
    ConnectionString(Plain<connection::ConnectionArgs>),
    /// Print what connects an agent to the tools of the platform
    #[command(after_help = "Example: coppice mcp --client cursor")]
    Mcp(Plain<mcp::McpArgs>),
    /// Write the database of a branch to a file, with pg_dump of the branch's own version
    #[command(after_help = "Example: coppice dump main --file main.dump")]
    Dump(Plain<transfer::DumpArgs>),
    /// Put a dump into a branch, with pg_restore or psql of the branch's own version
    #[command(after_help = "Example: coppice restore preview main.dump")]
    Restore(Plain<transfer::RestoreArgs>),
    /// Copy the data directory of a branch, to be started by a plain postgres
    #[command(after_help = "Example: coppice pgdata main /srv/pgdata")]
    Pgdata(Plain<pgdata::PgdataArgs>),
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
            Self::Trash(call) => &call.options,
            Self::Backup(call) => &call.options,
            Self::Credentials(call) => &call.options,
            Self::Key(call) => &call.options,
            Self::Region(call) => &call.options,
            Self::InstanceType(call) => &call.options,
            Self::Image(call) => &call.options,
            Self::Extension(call) => &call.options,
            Self::Logs(plain) => &plain.options,
            Self::Audit(plain) => &plain.options,
            Self::Event(call) => &call.options,
            Self::Usage(plain) => &plain.options,
            Self::Webhook(call) => &call.options,
            Self::Budget(call) => &call.options,
            Self::Github(call) => &call.options,
            Self::Billing(call) => &call.options,
            Self::Invoice(call) => &call.options,
            Self::Metrics(plain) => &plain.options,
            Self::Psql(plain) => &plain.options,
            Self::ConnectionString(plain) => &plain.options,
            Self::Mcp(plain) => &plain.options,
            Self::Dump(plain) => &plain.options,
            Self::Restore(plain) => &plain.options,
            Self::Pgdata(plain) => &plain.options,
        }
    }

    /// Whether it is about what an organization has.
    fn needs_organization(&self) -> bool {
        !matches!(self, Self::Whoami { .. } | Self::Org(_) | Self::User(_) | Self::Mcp(_))
    }
}

/// Runs a command that signs in or out.
pub(crate) async fn run_sign_in(command: SignIn, as_json: bool) -> anyhow::Result<()> {
    match command {
        SignIn::Login(args) => login::login(args).await,
        SignIn::Logout(args) => login::logout(args).await,
        SignIn::Profile(command) => login::run_profile(command, as_json).await,
    }
}

/// Runs a command.
pub(crate) async fn run(noun: Noun, as_json: bool) -> anyhow::Result<()> {
    let client = Client::connect(noun.options()).await?;
    if noun.needs_organization() && client.organization().is_none() {
        bail!(Refused::mistake(
            "no organization is chosen: name one with --organization (`coppice org list` shows them), or make one \
             with `coppice org create NAME`"
                .to_owned()
        ));
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
        Noun::Backup(call) => backup::run(call.command, client, as_json).await,
        Noun::Trash(call) => trash::run(call.command, client, as_json).await,
        Noun::Config(call) => config::run(call.command, client, as_json).await,
        Noun::Credentials(call) => credentials::run(call.command, client, as_json).await,
        Noun::Key(call) => key::run(call.command, client, as_json).await,
        Noun::Region(_) => catalogue::regions(client, as_json).await,
        Noun::InstanceType(_) => catalogue::instance_types(client, as_json).await,
        Noun::Image(_) => catalogue::images(client, as_json).await,
        Noun::Extension(call) => catalogue::extensions(call.command, client, as_json).await,
        Noun::Logs(plain) => logs::run(plain.arguments, client, as_json).await,
        Noun::Audit(plain) => audit::run(plain.arguments, client, as_json).await,
        Noun::Event(call) => event::run(call.command, client, as_json).await,
        Noun::Usage(plain) => usage::run(plain.arguments, client, as_json).await,
        Noun::Webhook(call) => webhook::run(call.command, client, as_json).await,
        Noun::Budget(call) => budget::run(call.command, client, as_json).await,
        Noun::Github(call) => github::run(call.command, client, as_json).await,
        Noun::Billing(call) => billing::run(call.command, client, as_json).await,
        Noun::Invoice(call) => invoice::run(call.command, client, as_json).await,
        Noun::Metrics(plain) => metrics::run(&plain.arguments, client, as_json).await,
        Noun::Psql(plain) => connection::psql(&plain.arguments, client).await,
        Noun::ConnectionString(plain) => connection::show(&plain.arguments, client, as_json).await,
        Noun::Mcp(plain) => mcp::run(&plain.arguments, client, as_json),
        Noun::Dump(plain) => transfer::dump(&plain.arguments, &plain.options.data_dir, client).await,
        Noun::Restore(plain) => transfer::restore(&plain.arguments, &plain.options.data_dir, client).await,
        Noun::Pgdata(plain) => pgdata::run(&plain.arguments, &plain.options.data_dir, client).await,
    }
}
