//! `coppice admin backup export`: a branch from the store, for servers that are not
//! ours.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use clap::Args;
use coppice_archive::{Archive, ArchiveError, BarmanBackup, BarmanServer, BaseName, StorePlace};
use coppice_core::BranchId;
use coppice_core::volume::VolumeLabel;
use coppice_engine::local::{BarmanPlan, export_to_barman};
use nix::unistd::User;
use rustix::process::geteuid;
use serde_json::json;

use super::store_args::StoreArgs;
use crate::chain::chain;
use crate::client::since;

/// What to export, and where to.
#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// Id of the branch
    branch: String,
    #[command(flatten)]
    store: StoreArgs,
    /// Where to, s3://BUCKET/PREFIX or file:///DIRECTORY; nothing there is encrypted
    #[arg(long, value_name = "URL")]
    to: StorePlace,
    /// How barman calls the server [default: the id of the branch]
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// As of this time: 2026-01-02T03:04:05Z, or how long ago: 30s, 15m, 1h, 2d [default: all there is]
    #[arg(long, value_name = "TIME", value_parser = since)]
    at: Option<DateTime<Utc>>,
    /// A directory with room for all of the data meanwhile [default: the one for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// The account that recovers the data, when this is root [default: postgres]
    #[arg(long, value_name = "ACCOUNT")]
    owner: Option<String>,
    /// Directories searched for PostgreSQL besides /usr/lib/postgresql
    #[arg(long, env = "COPPICE_POSTGRES_DIRS", value_name = "DIRS", value_delimiter = ':')]
    postgres_dirs: Vec<PathBuf>,
}

/// Exports a branch, and says how to restore it.
pub(super) async fn export(data_dir: &Path, args: ExportArgs, as_json: bool) -> anyhow::Result<()> {
    let (_, _, archive) = args.store.open(data_dir).await?;
    let branch = BranchId::from_trusted(&args.branch);
    let (base, label) = newest_base(&archive, &branch, args.at).await?;
    let server = args.server.unwrap_or_else(|| args.branch.clone());
    let server = BarmanServer::begin(&args.to, &server).await;
    let server = server.map_err(|error| anyhow::anyhow!("{}", error.chain()))?;
    let scratch = Scratch::make(args.scratch.unwrap_or_else(std::env::temp_dir))?;
    let plan = BarmanPlan {
        archive: Arc::new(archive),
        base,
        until: args.at,
        version: label.version,
        postgres_dirs: args.postgres_dirs,
        account: account(args.owner.as_deref())?,
        launcher: std::env::current_exe().context("finding this program")?,
        scratch: scratch.0.clone(),
    };
    note!("recovering the branch in {}", scratch.0.display());
    let backup = tokio::select! {
        biased;
        done = export_to_barman(plan, &server) => done.map_err(|error| chain(&error))?,
        // So that nothing of the branch stays in the scratch directory.
        _ = tokio::signal::ctrl_c() => bail!("interrupted: what is at {} already has no backup.info", args.to),
    };
    let (id, server) = (BarmanBackup::id(backup.made_at), server.name());
    if as_json {
        say!("{}", json!({ "server": server, "backup": id, "version": backup.version.to_string() }));
        return Ok(());
    }
    say!("exported PostgreSQL {} as backup {id} of server {server}", backup.version);
    if matches!(args.to, StorePlace::S3 { .. }) {
        note!("restore it with: barman-cloud-restore {} {server} {id} DIRECTORY", args.to);
    }
    Ok(())
}

/// The base of a branch that an export begins with: its newest one, or the newest
/// that was complete by a time.
async fn newest_base(
    archive: &Archive,
    branch: &BranchId,
    at: Option<DateTime<Utc>>,
) -> anyhow::Result<(BaseName, VolumeLabel)> {
    let mut bases = archive.all_bases().await?;
    bases.sort_by_key(BaseName::taken_at);
    let mut is_known = false;
    for base in bases.into_iter().rev() {
        let passed_over = |error: &ArchiveError| note!("passed over: {error}");
        let Some(manifest) = archive.manifest_or_pass(&base, passed_over).await? else { continue };
        let label = manifest.facts().label.clone();
        let Ok(label) = serde_json::from_str::<VolumeLabel>(&label) else { continue };
        if label.branch.as_ref() != Some(branch) {
            continue;
        }
        is_known = true;
        match at {
            Some(at) if archive.completed_at(&base).await?.is_none_or(|complete| complete > at) => {}
            _ => return Ok((base, label)),
        }
    }
    match is_known {
        true => bail!("the store has no base of branch {branch} that is older: choose a later time"),
        false => {
            bail!("the store has no base of branch {branch}: see `coppice admin backup list` for ids")
        }
    }
}

/// The account that runs a server; none where this process may.
fn account(named: Option<&str>) -> anyhow::Result<Option<u32>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let name = named.unwrap_or("postgres");
    let user = User::from_name(name)?;
    let user = user.with_context(|| {
        format!(
            "there is no account {name}: name one that is not root with --owner, PostgreSQL runs under it"
        )
    })?;
    Ok(Some(user.uid.as_raw()))
}

/// A directory of our own, which goes with this.
struct Scratch(PathBuf);

impl Scratch {
    fn make(within: PathBuf) -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let name = format!("coppice-export-{}", coppice_core::id::random_text());
        let path = std::path::absolute(within)?.join(name);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            note!("removing {}: {error}", self.0.display());
        }
    }
}
