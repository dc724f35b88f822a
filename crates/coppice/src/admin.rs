//! `coppice admin`: what an operator does to the platform's own records, with
//! the rights of whoever may read the data directory.
//!
//! An import moves the present metastore aside, makes a new one with the newest
//! PostgreSQL, and fills it in one transaction. A crash in between leaves an
//! empty metastore, with which `serve` refuses to start; the import can then be
//! repeated, and what was moved aside stays until somebody deletes it.

mod audit;
mod backup;
mod export;
mod organizations;
mod recover;
mod sign_in;
mod sign_in_link;
mod store_args;
mod usage;
mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use coppice_app::operator;
use coppice_core::Error;
use coppice_engine::local::HostEngine;
use coppice_engine::local::installation::ControlLock;
use coppice_store::{ConnectOptions, Store, check_export};
use tokio::io::BufReader;

use audit::{Change, recorded};
use backup::BackupCommand;

use crate::chain::chain;
use crate::config::{DataDir, exports};
use crate::secret_key;
use crate::serve::{LAUNCHER, METASTORE_PATIENCE, metastore_options};

/// Flags of `coppice admin`.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// A metastore of your own instead of the embedded one
    #[arg(long, env = "COPPICE_METASTORE_URL", value_name = "URL", hide_env_values = true, global = true)]
    metastore_url: Option<String>,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand, Debug)]
enum AdminCommand {
    /// The platform's own records
    #[command(subcommand, after_help = "Example: coppice admin metastore export")]
    Metastore(MetastoreCommand),
    /// Make a new secret.key and seal every secret anew; the platform must not run
    ///
    /// API keys and passwords stay. Repeat it when it was interrupted.
    #[command(after_help = "Example: coppice admin rekey")]
    Rekey,
    /// Bring a platform back whose machine is lost, from its store, into an empty data directory
    ///
    /// Accounts, keys, projects and branches are as of the newest records there, the data of each
    /// branch as of its newest base. Whatever still runs of the old platform writes to the store no
    /// more as soon as this one is started.
    #[command(after_help = "Example: coppice admin recover --store s3://backups/prod --key-file secret.key")]
    Recover(recover::RecoverArgs),
    /// What is in a store, and whether it is whole; from any machine, also while the platform runs
    #[command(subcommand, after_help = "Example: coppice admin backup verify --store s3://backups/prod")]
    Backup(BackupCommand),
    /// Organizations
    #[command(subcommand, after_help = "Example: coppice admin org list")]
    Org(organizations::OrganizationCommand),
    /// People's accounts
    #[command(subcommand, after_help = "Example: coppice admin user list")]
    User(users::UserCommand),
    /// Show who changed what, in every organization and in the platform itself
    #[command(after_help = "Example: coppice admin audit --since 1d")]
    Audit(audit::AuditArgs),
    /// Put right what was metered of a branch in an hour that is sealed
    #[command(
        after_help = "Example: coppice admin correct-usage kq7m… --hour 2026-01-02T03:00:00Z --meter awake \
                            --type small --by -60000000 --reason 'the machine stood still'"
    )]
    CorrectUsage(usage::CorrectionArgs),
    /// Set the password of a user, read from the terminal or from standard input
    ///
    /// Every session of theirs ends, and what let in whoever made an account that
    /// nobody had verified. Whoever may read the data directory may do this, also
    /// when nobody knows a password any more.
    #[command(after_help = "Example: coppice admin set-password ada@example.com")]
    SetPassword {
        /// Email address of the user
        email: String,
    },
    /// Print a link that signs somebody in, once and within 15 minutes
    ///
    /// Who has a second factor is asked for it. What let in whoever made an account
    /// that nobody had verified is gone. Whoever may read the data directory may do
    /// this.
    #[command(after_help = "Example: coppice admin sign-in-link ada@example.com")]
    SignInLink(sign_in_link::SignInLinkArgs),
    /// Make a new key to sign tokens with
    ///
    /// It is used five minutes later, when every client knows it; the keys
    /// before it stay valid for another day.
    #[command(after_help = "Example: coppice admin rotate-signing-key")]
    RotateSigningKey {
        /// Distrust every earlier key, for example because it leaked: the new
        /// one is used at once, and who is signed in signs in again or refreshes
        #[arg(long)]
        forget_old: bool,
    },
}

#[derive(Subcommand, Debug)]
enum MetastoreCommand {
    /// Write all records to a file, also while the platform runs
    #[command(after_help = "Example: coppice admin metastore export")]
    Export {
        /// A new file, or - for standard output [default: a dated one in the data directory]
        file: Option<PathBuf>,
    },
    /// Replace all records by those of an export; the platform must not run
    ///
    /// The present ones are moved aside. The new metastore runs on the newest
    /// PostgreSQL there is, so this is also the way to a new major version.
    #[command(after_help = "Example: coppice admin metastore import metastore.coppice")]
    Import {
        /// What `export` wrote
        file: PathBuf,
    },
}

/// Carries out an operator's command.
pub(crate) async fn admin(args: AdminArgs, as_json: bool) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(args.data_dir.path()?).context("finding the data directory")?;
    let metastore_url = args.metastore_url;
    match args.command {
        AdminCommand::Metastore(MetastoreCommand::Export { file }) => {
            let file = file.unwrap_or_else(|| exports(&data_dir).join(format!("{}.coppice", now())));
            if file.exists() {
                bail!("{} exists already: name another file", file.display());
            }
            with_metastore(&data_dir, metastore_url, async |store| export(&store, &file).await).await
        }
        AdminCommand::Metastore(MetastoreCommand::Import { file }) => {
            import_into(&data_dir, metastore_url, &file).await
        }
        AdminCommand::Recover(_) if metastore_url.is_some() => {
            bail!(
                "a recovery makes an embedded metastore: leave --metastore-url and COPPICE_METASTORE_URL out"
            )
        }
        AdminCommand::Recover(args) => recover::recover(&data_dir, args).await,
        AdminCommand::Backup(BackupCommand::List(args)) => {
            backup::list(&args.open(&data_dir).await?.2, as_json).await
        }
        AdminCommand::Backup(BackupCommand::Verify(args)) => {
            backup::verify(Arc::new(args.open(&data_dir).await?.2)).await
        }
        AdminCommand::Backup(BackupCommand::Export(args)) => export::export(&data_dir, args, as_json).await,
        AdminCommand::Backup(BackupCommand::Drill { branch }) => {
            if ControlLock::try_take(&data_dir).map_err(|error| chain(&error))?.is_some() {
                bail!("no platform runs on {}: start it, it holds drills", data_dir.display());
            }
            with_metastore(&data_dir, metastore_url, async |store| backup::drill(&store, &branch).await).await
        }
        AdminCommand::SetPassword { email } => {
            let hash = sign_in::ask_password(&email)?;
            with_metastore(&data_dir, metastore_url, async |store| {
                let change = Change { action: "admin.setPassword", organization: None, target: Some(&email) };
                recorded(&store, change, sign_in::set_password(&store, &email, &hash)).await
            })
            .await
        }
        AdminCommand::SignInLink(arguments) => {
            let work = async |store| sign_in_link::make(&store, &data_dir, &arguments).await;
            with_metastore(&data_dir, metastore_url, work).await
        }
        AdminCommand::RotateSigningKey { forget_old } => {
            let work = async |store| {
                let change = Change { action: "admin.rotateSigningKey", organization: None, target: None };
                let work = sign_in::rotate_signing_key(&store, &data_dir, forget_old);
                recorded(&store, change, work).await
            };
            with_metastore(&data_dir, metastore_url, work).await
        }
        AdminCommand::Rekey => {
            let _lock = secret_key::lock_for_rekey(&data_dir)?;
            let change = Change { action: "admin.rekey", organization: None, target: None };
            let work = async |store| recorded(&store, change, secret_key::rekey(&data_dir, &store)).await;
            match metastore_url {
                Some(_) => with_metastore(&data_dir, metastore_url, work).await,
                None => with_own_metastore(&data_dir, work).await,
            }
        }
        AdminCommand::User(command) => {
            let hash = match &command {
                users::UserCommand::Create { email, .. } => {
                    Some(sign_in::ask_password(&operator::address(email).map_err(told)?)?)
                }
                _ => None,
            };
            let work = async |store| users::carry_out(&store, command, hash.as_deref()).await;
            with_metastore(&data_dir, metastore_url, work).await
        }
        AdminCommand::Org(command) => {
            with_metastore(&data_dir, metastore_url, async |store| {
                organizations::carry_out(&store, command).await
            })
            .await
        }
        AdminCommand::CorrectUsage(arguments) => {
            with_metastore(&data_dir, metastore_url, async |store| usage::correct(&store, arguments).await)
                .await
        }
        AdminCommand::Audit(arguments) => {
            let work = async |store| audit::show(&store, arguments, as_json).await;
            with_metastore(&data_dir, metastore_url, work).await
        }
    }
}

/// A refusal, or what a log would say.
fn told(error: Error) -> anyhow::Error {
    anyhow::anyhow!(error.for_log())
}

fn now() -> impl std::fmt::Display {
    chrono::Utc::now().format("%Y%m%dT%H%M%S%.3fZ")
}

/// Does something with the metastore, which is started for that if it does not
/// run.
async fn with_metastore(
    data_dir: &Path,
    metastore_url: Option<String>,
    work: impl AsyncFnOnce(Store) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let Some(url) = metastore_url {
        let options = url.parse::<ConnectOptions>().context("understanding the metastore's URL")?;
        return work(connect(options).await?).await;
    }
    let address = HostEngine::metastore_address(data_dir).map_err(|error| chain(&error))?;
    let Some(_lock) = ControlLock::try_take(data_dir).map_err(|error| chain(&error))? else {
        // A running platform has started it.
        return work(connect(metastore_options(&address)).await?).await;
    };
    with_own_metastore(data_dir, work).await
}

async fn connect(options: ConnectOptions) -> anyhow::Result<Store> {
    Store::connect(options, METASTORE_PATIENCE).await.context("connecting to the metastore")
}

/// As [`with_metastore`], for whoever holds the control lock.
async fn with_own_metastore(
    data_dir: &Path,
    work: impl AsyncFnOnce(Store) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let host = HostEngine::open(data_dir, LAUNCHER.into(), &[]).map_err(|error| chain(&error))?;
    if !host.has_metastore() {
        bail!("{} has no metastore: has `coppice serve` ever run on it?", data_dir.display());
    }
    let was_running = host.metastore_is_running();
    let address = host.start_metastore().await.map_err(|error| chain(&error))?;
    let done = match connect(metastore_options(&address)).await {
        Ok(store) => work(store).await,
        Err(error) => Err(error),
    };
    if !was_running {
        host.stop_metastore().await.map_err(|error| chain(&error))?;
    }
    done
}

async fn export(store: &Store, file: &Path) -> anyhow::Result<()> {
    if file == Path::new("-") {
        let transferred = store.export(tokio::io::stdout()).await?;
        note!("exported {} rows", transferred.rows_total());
        return Ok(());
    }
    let exported = store.export_to_file(file).await;
    let transferred = exported.with_context(|| format!("exporting to {}", file.display()))?;
    say!("exported {} rows to {}", transferred.rows_total(), file.display());
    Ok(())
}

async fn import_into(data_dir: &Path, metastore_url: Option<String>, file: &Path) -> anyhow::Result<()> {
    let read = async || tokio::fs::File::open(file).await.map(BufReader::new);
    let opening = || format!("opening {}", file.display());
    let header = check_export(read().await.with_context(opening)?).await?.header;
    let Some(_lock) = ControlLock::try_take(data_dir).map_err(|error| chain(&error))? else {
        bail!("a platform runs on {}: stop it first (`coppice stop`)", data_dir.display());
    };
    let host = HostEngine::open(data_dir, LAUNCHER.into(), &[]).map_err(|error| chain(&error))?;
    let own = &host.installation().installation;
    if header.installation.as_deref() != Some(own.as_str()) {
        let other = header.installation.as_deref().unwrap_or("none");
        bail!(
            "{} is of installation {other}, {} is of {own}: import it where it belongs (nothing was changed)",
            file.display(),
            data_dir.display()
        );
    }
    // Kept open from before anything is moved: it may be anywhere in the data directory.
    let input = read().await.with_context(opening)?;
    if let Some(url) = metastore_url {
        let options = url.parse::<ConnectOptions>().context("understanding the metastore's URL")?;
        return import(options, input).await;
    }
    host.stop_metastore().await.map_err(|error| chain(&error))?;
    let metastore = host.layout().metastore();
    if metastore.exists() {
        let aside = metastore.with_file_name(format!("metastore.before-import-{}", now()));
        std::fs::rename(&metastore, &aside).context("moving the present metastore aside")?;
        say!("moved the present metastore to {}", aside.display());
    }
    say!("making a new metastore");
    let address = host.start_metastore().await.map_err(|error| chain(&error))?;
    let imported = import(metastore_options(&address), input).await;
    host.stop_metastore().await.map_err(|error| chain(&error))?;
    imported
}

async fn import(options: ConnectOptions, input: BufReader<tokio::fs::File>) -> anyhow::Result<()> {
    let store = Store::connect(options, METASTORE_PATIENCE).await.context("connecting to the metastore")?;
    let transferred = store.import(input).await.context("importing (nothing was imported)")?;
    let change = Change { action: "admin.importMetastore", organization: None, target: None };
    recorded(&store, change, async { Ok(()) }).await?;
    say!("imported {} rows; start the platform with `coppice serve`", transferred.rows_total());
    Ok(())
}
