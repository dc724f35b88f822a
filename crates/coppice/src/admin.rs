//! `coppice admin`: what an operator does to the platform's own records.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use coppice_engine::local::HostEngine;
use coppice_engine::local::installation::ControlLock;
use coppice_store::{ConnectOptions, Store};

use crate::config::DataDir;
use crate::serve::{METASTORE_PATIENCE, chain, metastore_options};

/// Flags of `coppice admin`.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    data_dir: DataDir,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand, Debug)]
enum AdminCommand {
    /// The platform's own records
    Metastore {
        /// A metastore of your own instead of the embedded one
        #[arg(
            long,
            env = "COPPICE_METASTORE_URL",
            value_name = "URL",
            hide_env_values = true,
            global = true
        )]
        metastore_url: Option<String>,
        #[command(subcommand)]
        command: MetastoreCommand,
    },
}

#[derive(Subcommand, Debug)]
enum MetastoreCommand {
    /// Write all records to a file, also while the platform runs
    Export {
        /// A new file, or - for standard output [default: a dated one in the data directory]
        file: Option<PathBuf>,
    },
}

/// Carries out an operator's command.
pub(crate) async fn admin(args: AdminArgs) -> anyhow::Result<()> {
    let data_dir = std::path::absolute(args.data_dir.path()).context("finding the data directory")?;
    let AdminCommand::Metastore { metastore_url, command } = args.command;
    let MetastoreCommand::Export { file } = command;
    let file = file.unwrap_or_else(|| {
        let time = chrono::Utc::now().format("%Y%m%dT%H%M%S%.3fZ");
        data_dir.join(format!("metastore/exports/{time}.coppice"))
    });
    if let Some(url) = metastore_url {
        let options = url.parse::<ConnectOptions>().context("understanding the metastore's URL")?;
        return export(options, &file).await;
    }
    let address = HostEngine::metastore_address(&data_dir).map_err(|error| chain(&error))?;
    let Some(_lock) = ControlLock::try_take(&data_dir).map_err(|error| chain(&error))? else {
        // A running platform has started it.
        return export(metastore_options(&address), &file).await;
    };
    let launcher = std::env::current_exe().context("finding this program")?;
    let host = HostEngine::open(&data_dir, launcher, &[]).map_err(|error| chain(&error))?;
    if !host.layout().metastore().join("data").exists() {
        bail!("{} has no metastore: there is nothing to export", data_dir.display());
    }
    let was_running = host.metastore_is_running();
    let address = host.start_metastore().await.map_err(|error| chain(&error))?;
    let exported = export(metastore_options(&address), &file).await;
    if !was_running {
        host.stop_metastore().await.map_err(|error| chain(&error))?;
    }
    exported
}

async fn export(options: ConnectOptions, file: &Path) -> anyhow::Result<()> {
    let store = Store::connect(options, METASTORE_PATIENCE).await.context("connecting to the metastore")?;
    if file == Path::new("-") {
        let transferred = store.export(tokio::io::stdout()).await?;
        eprintln!("exported {} rows", transferred.rows_total());
        return Ok(());
    }
    let exported = store.export_to_file(file).await;
    let transferred = exported.with_context(|| format!("exporting to {}", file.display()))?;
    println!("exported {} rows to {}", transferred.rows_total(), file.display());
    Ok(())
}
