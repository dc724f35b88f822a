//! `coppice admin recover`: a platform whose machine is lost, from its store.
//!
//! The records come first: a metastore is made from the newest export. Each
//! volume is then to be made from its newest base, which is what the platform
//! does when it is started. Until the last step the data directory is no
//! installation, so an interrupted recovery is begun again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use coppice_archive::{Archive, ArchiveError, BaseName};
use coppice_core::{HostId, VolumeId};
use coppice_engine::local::HostEngine;
use coppice_engine::local::durable::write_durably;
use coppice_engine::local::installation::{ControlLock, Installation};
use coppice_failpoint::failpoint;
use coppice_store::{Store, check_export};

use super::audit::{Change, recorded};
use super::connect;
use super::store_args::StoreArgs;
use crate::chain::chain;
use crate::client::words::quoted;
use crate::serve::{LAUNCHER, metastore_options};

/// Flags of `coppice admin recover`.
#[derive(Args, Debug)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// Directories searched for PostgreSQL besides /usr/lib/postgresql
    #[arg(long, env = "COPPICE_POSTGRES_DIRS", value_name = "DIRS", value_delimiter = ':')]
    postgres_dirs: Vec<PathBuf>,
}

/// Makes `data_dir`, where no installation is, the installation of a store.
pub(super) async fn recover(data_dir: &Path, args: RecoverArgs) -> anyhow::Result<()> {
    if data_dir.join("metastore.bound").exists() {
        bail!("{} is an installation already: name an empty directory with --data-dir", data_dir.display());
    }
    let (place, key, archive) = args.store.open(data_dir).await?;
    let (records, host) = newest_records(&archive).await?;

    crate::serve::prepare_data_dir(data_dir)?;
    let Some(_lock) = ControlLock::try_take(data_dir).map_err(|error| chain(&error))? else {
        bail!("a platform works on {}", data_dir.display());
    };
    Installation::recover(data_dir, archive.installation(), &host).map_err(|error| chain(&error))?;
    let engine =
        HostEngine::open(data_dir, LAUNCHER.into(), &args.postgres_dirs).map_err(|error| chain(&error))?;
    // What an interrupted recovery left never held anything else.
    engine.stop_metastore().await.map_err(|error| chain(&error))?;
    let metastore = engine.layout().metastore();
    if metastore.exists() {
        std::fs::remove_dir_all(&metastore).context("removing a half-made metastore")?;
    }
    say!("making a metastore");
    let address = engine.start_metastore().await.map_err(|error| chain(&error))?;
    let done = fill(&archive, metastore_options(&address), &records).await;
    engine.stop_metastore().await.map_err(|error| chain(&error))?;
    done?;
    failpoint!("recover.filled");
    let written = write_durably(&data_dir.join("secret.key"), &key.content(), 0o600);
    written.map_err(|error| chain(&error))?;
    let bound = archive.installation().as_str().as_bytes();
    write_durably(&data_dir.join("metastore.bound"), bound, 0o600).map_err(|error| chain(&error))?;
    let start = crate::suggest::command(&format!("coppice serve --store {}", quoted(&place.to_string())));
    say!("recovered; `{start}` makes the branches from the store, as long as that takes");
    Ok(())
}

/// The newest export that is whole, and the host that it is of.
async fn newest_records(archive: &Archive) -> anyhow::Result<(Vec<u8>, HostId)> {
    for name in archive.records().await?.iter().rev() {
        let taken = name.taken_at().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        match archive.get_records(name).await {
            Ok(found) => {
                let checked = check_export(found.export.as_slice()).await?;
                check_owner(archive, checked.header.installation.as_deref())?;
                say!("records of {taken}");
                return Ok((found.export, found.host));
            }
            Err(error) => note!("the records of {taken} can't be used: {}", error.chain()),
        }
    }
    bail!("there are no records in the store: did `coppice serve` ever run with it?")
}

/// The records are sealed, and what the store says of itself is not.
fn check_owner(archive: &Archive, recorded: Option<&str>) -> anyhow::Result<()> {
    let told = archive.installation().as_str();
    match recorded {
        Some(recorded) if recorded != told => bail!(
            "coppice.json says that the store is of installation {told:?}, and its records are of {recorded}: \
             somebody changed it; set it right there if you trust the rest"
        ),
        _ => Ok(()),
    }
}

/// Bases by their volumes: those that are listed, and those that the records name and are there
/// though a listing lags behind.
async fn known_bases(archive: &Archive, store: &Store) -> anyhow::Result<BTreeMap<VolumeId, Vec<BaseName>>> {
    let listed = archive.all_bases().await?;
    let names: Vec<_> = listed.iter().map(ToString::to_string).collect();
    let recorded = store.base_recorded_besides(&names).await?;
    let recorded = recorded.into_iter().map(BaseName::from_trusted).collect();
    let unlisted = archive.bases_that_are_there(recorded).await?;
    let mut known: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for base in listed.into_iter().chain(unlisted) {
        known.entry(base.volume()).or_default().push(base);
    }
    Ok(known)
}

async fn fill(
    archive: &Archive,
    options: coppice_store::ConnectOptions,
    records: &[u8],
) -> anyhow::Result<()> {
    let store: Store = connect(options).await?;
    let transferred = store.import(records).await.context("importing the records")?;
    say!("imported {} rows", transferred.rows_total());
    let mut found = vec![];
    for (volume, mut bases) in known_bases(archive, &store).await? {
        bases.sort();
        let passed_over = |error: &ArchiveError| note!("passed over: {error}");
        if let Some((base, _)) = archive.newest_among(bases, passed_over).await? {
            found.push((volume, base.to_string()));
        }
    }
    let recovered = store.volumes_from_bases(&found).await?;
    say!("{} branches have a base; their data is as of then", recovered.found);
    for (branch, name) in &recovered.lost {
        note!("branch {branch} ({name}) has no base yet: its data is lost");
    }
    let change = Change { action: "admin.recover", organization: None, target: None };
    recorded(&store, change, async { Ok(()) }).await
}
