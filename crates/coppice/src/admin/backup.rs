//! `coppice admin backup`: what is in a store, and whether it is whole. Reads the
//! store alone, so it works on any machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use coppice_archive::{Archive, ArchiveError, BaseName, LogPiece};
use coppice_core::backup::DrillResult;
use coppice_core::volume::VolumeLabel;
use coppice_core::{BranchId, VolumeId};
use coppice_store::{Store, check_export};
use serde_json::json;

use super::audit::{Change, recorded};
use super::export::ExportArgs;
use super::store_args::StoreArgs;

/// How often is looked whether a drill has ended.
const POLL: Duration = Duration::from_millis(200);

#[derive(Subcommand, Debug)]
pub(super) enum BackupCommand {
    /// List what is in a store
    #[command(alias = "ls", after_help = "Example: coppice admin backup list --store s3://backups/prod")]
    List(StoreArgs),
    /// Read everything in a store, and say what is damaged
    #[command(after_help = "Example: coppice admin backup verify --store s3://backups/prod")]
    Verify(StoreArgs),
    /// Write a branch where barman-cloud and CloudNativePG restore it from
    ///
    /// It is read from the store, so it may be anybody's on this or another machine. PostgreSQL of the
    /// same major version recovers it here first.
    #[command(
        after_help = "Example: coppice admin backup export kq7m2kj8fr3cjdr0h2qkv5s4c0 --store s3://backups/prod \
                            --to s3://exports/shop --server shop"
    )]
    Export(ExportArgs),
    /// Have the platform restore the newest base of a branch for proof, now, and wait for what comes of it
    ///
    /// That happens beside the branch, on a server that is removed again. Each branch has its turn by itself, too.
    #[command(after_help = "Example: coppice admin backup drill kq7m2kj8fr3cjdr0h2qkv5s4c0")]
    Drill {
        /// Id of the branch
        branch: String,
    },
}

/// Has a drill be held, and waits for it.
pub(super) async fn drill(store: &Store, branch: &str) -> anyhow::Result<()> {
    let id = BranchId::from_trusted(branch);
    let change = Change { action: "admin.backup.drill", organization: None, target: Some(branch) };
    let wanted = recorded(store, change, async { Ok(store.drill_want(&id).await?) }).await?;
    let wanted = wanted.with_context(|| {
        format!(
            "there is no branch {branch} with a base in the store: see `coppice admin backup list` for ids"
        )
    })?;
    note!("waiting for the drill; it goes on when you don't");
    let report = loop {
        let drills = store.drill_list(std::slice::from_ref(&id)).await?.pop();
        let last = drills.context("the branch was deleted")?.1.last;
        if let Some((_, report)) = last.filter(|(at, _)| *at >= wanted) {
            break report;
        }
        tokio::time::sleep(POLL).await;
    };
    match report.result {
        DrillResult::Passed => say!("passed: {}", report.message),
        result => bail!("the drill {}: {}", words(result), report.message),
    }
    Ok(())
}

fn words(result: DrillResult) -> &'static str {
    match result {
        DrillResult::Passed => "passed",
        DrillResult::Failed => "failed",
        DrillResult::Skipped => "was skipped",
    }
}

/// What there is of one volume.
pub(super) async fn list(archive: &Archive, as_json: bool) -> anyhow::Result<()> {
    let mut volumes: BTreeMap<VolumeId, Vec<BaseName>> = BTreeMap::new();
    for base in archive.all_bases().await? {
        volumes.entry(base.volume()).or_default().push(base);
    }
    let mut found = vec![];
    for (volume, bases) in &volumes {
        let noting = |error: &ArchiveError| note!("passed over: {error}");
        let newest = archive.newest_base(volume, noting).await?;
        let (Some(oldest), Some((newest, manifest))) = (bases.first(), newest) else { continue };
        let label: Option<VolumeLabel> = serde_json::from_str(&manifest.facts().label).ok();
        let branch = label.and_then(|label| label.branch).map(|branch| branch.to_string());
        let logs = archive.log_pieces(volume).await?;
        let until = logs.last().map_or(newest.taken_at(), |piece| piece.seen_at.max(newest.taken_at()));
        found.push(json!({
            "branch": branch,
            "volume": volume.as_str(),
            "bases": bases.len(),
            "bytes": manifest.bytes(),
            "from": oldest.taken_at(),
            "to": until,
        }));
    }
    if as_json {
        say!("{}", json!({ "backups": found }));
        return Ok(());
    }
    for one in found {
        let text = |name: &str| one[name].as_str().unwrap_or("-").to_owned();
        let (branch, bases, bytes) = (text("branch"), &one["bases"], &one["bytes"]);
        say!("{branch}  bases: {bases}  bytes: {bytes}  {} to {}", text("from"), text("to"));
    }
    Ok(())
}

pub(super) async fn verify(archive: Arc<Archive>) -> anyhow::Result<()> {
    let mut problems = vec![];
    let records = archive.records().await?;
    for name in &records {
        match archive.get_records(name).await {
            Ok(found) => {
                let checked = check_export(found.export.as_slice()).await;
                problems
                    .extend(checked.err().map(|error| format!("the export of {}: {error}", name.taken_at())));
            }
            Err(error) => problems.push(error.chain()),
        }
    }
    let bases = archive.all_bases().await?;
    for base in &bases {
        let (archive, name) = (archive.clone(), base.clone());
        let manifest = match archive.manifest(&name).await {
            Ok(manifest) => manifest,
            Err(error) => {
                problems.push(error.chain());
                continue;
            }
        };
        let read = tokio::task::spawn_blocking(move || archive.verify(&manifest)).await?;
        problems.extend(read.err().map(|error| format!("{base}: {}", error.chain())));
    }
    let mut pieces = 0;
    for volume in archive.logs().await? {
        if let Some((_, newest)) = archive.newest_base(&volume, |_| {}).await? {
            problems.extend(archive.log_reaches(&newest).await.err().map(|error| error.chain()));
        }
        for piece in archive.log_pieces(&volume).await? {
            pieces += 1;
            problems.extend(check_piece(&archive, &piece).await.err().map(|error| error.chain()));
        }
    }
    for problem in &problems {
        note!("{problem}");
    }
    let bases = bases.len();
    match problems.len() {
        0 => say!("{} exports, {bases} bases and {pieces} pieces of logs are whole", records.len()),
        count => bail!("{count} of them are damaged"),
    }
    Ok(())
}

async fn check_piece(archive: &Archive, piece: &LogPiece) -> Result<(), ArchiveError> {
    archive.get_log(piece).await.map(drop)
}
