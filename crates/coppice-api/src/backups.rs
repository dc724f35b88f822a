//! What is kept of what branches were, and branches made from it.

use chrono::{DateTime, Utc};
use coppice_app::{Access, App, Backup, BranchOrigin, NewBranchRequest, SpecChange};
use coppice_core::Result;
use coppice_core::access::AskedExpiry;
use coppice_core::backup::{DrillReport, DrillResult};
use coppice_core::operation::{GET_BACKUP, LIST_BACKUPS, RESTORE_FROM_BACKUP};
use coppice_core::target::{InBranch, InProject, OnBackup};
use coppice_wire as wire;

use crate::backup_settings::{change_from, refused};
use crate::branches::{inherited_from, short};
use crate::endpoint::{Body, Endpoint, Made, Shown, Waiting, get, post};
use crate::projects::scale_to_zero_change;

/// Gaps in one answer, of each branch.
const GAPS_MAX: usize = 100;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/backups", &LIST_BACKUPS)
            .says(AREA, "List what can be restored of the branches of a project", "Each branch has one backup, which goes on as long as the branch does, with the branch's id. A key that is limited to\nbranches sees only theirs.")
            .answers("One backup of each branch, the oldest branch first; none where no backups are made.")
            .runs(list_backups),
        get("", &GET_BACKUP)
            .says(AREA, "Show what can be restored of a branch", "From when to when, as it is now, and the gaps between; also what the branch was before it was reset or upgraded. How long that is is up to the branch's `backupConfiguration`.")
            .answers("The backup.")
            .runs(get_backup),
        post("/restore", &RESTORE_FROM_BACKUP)
            .says(AREA, "Make a branch out of what another one was", "At a time that getBackup names, or the latest. The new branch is a child of the other one, which stays as it is and\nmay be in any state; resetBranch takes a branch itself back. Answers as createBranch does.")
            .answers("The new branch.")
            .refuses(409, "The name is taken.")
            .refuses_bodies_by(refused)
            .runs(restore_from_backup),
    ]
}

async fn list_backups(
    app: App,
    access: Access<InProject>,
    Waiting((), call): Waiting<()>,
) -> Result<Shown<wire::BackupList>> {
    let found = app.branches.list_backups(&access).await?;
    let _: Access<InProject> = call.authorize(&app, &LIST_BACKUPS).await?;
    Ok(Shown(wire::BackupList { backups: found.into_iter().map(metadata).collect() }))
}

async fn get_backup(
    app: App,
    access: Access<OnBackup>,
    Waiting((), call): Waiting<()>,
) -> Result<Shown<wire::BackupMetadata>> {
    let found = app.branches.get_backup(&access).await?;
    let _: Access<OnBackup> = call.authorize(&app, &GET_BACKUP).await?;
    Ok(Shown(metadata(found)))
}

async fn restore_from_backup(
    app: App,
    access: Access<InBranch>,
    Body(asked): Body<wire::RestoreBranch>,
) -> Result<Made<wire::Branch>> {
    let wire::RestoredConfiguration { region, replicas, rest } = asked.configuration.unwrap_or_default();
    let new = NewBranchRequest {
        name: asked.name,
        description: asked.description.unwrap_or_default(),
        labels: Default::default(),
        scale_to_zero: scale_to_zero_change(asked.scale_to_zero),
        // A branch that somebody restored does not expire.
        expiry: AskedExpiry::Never,
        backups: change_from(asked.backup_configuration)?,
        origin: BranchOrigin::Restored {
            source: access.target.branch.clone(),
            region,
            change: SpecChange { replicas, ..inherited_from(rest) },
            time: asked.target_time.map(|time| time.0),
        },
    };
    let branch = app.branches.restore(&access, &new).await?;
    Ok(Made(short(&app, &access, &branch).await?))
}

fn metadata(backup: Backup) -> wire::BackupMetadata {
    let stamp = wire::Timestamp;
    let gaps = backup.span.iter().flat_map(|span| span.gaps.iter().rev()).take(GAPS_MAX);
    wire::BackupMetadata {
        id: backup.branch.to_string(),
        branch_id: backup.branch.to_string(),
        earliest_restore: backup.span.as_ref().map(|span| stamp(span.from)),
        latest_restore: backup.span.as_ref().map(|span| stamp(span.to)),
        gaps: gaps.map(|(from, to)| wire::HistoryGap { from: stamp(*from), to: stamp(*to) }).collect(),
        lag_seconds: backup.lag.map(|lag| lag.as_secs()),
        last_verified: backup.verified_at.map(wire::Timestamp),
        last_drill: backup.last_drill.map(|(at, report)| drill(at, report)),
        description: format!(
            "Branch {}, at any second of the last {} days as far as there is room",
            backup.branch_name, backup.retention_days
        ),
    }
}

fn drill(at: DateTime<Utc>, report: DrillReport) -> wire::Drill {
    let result = match report.result {
        DrillResult::Passed => wire::DrillResult::Passed,
        DrillResult::Failed => wire::DrillResult::Failed,
        DrillResult::Skipped => wire::DrillResult::Skipped,
    };
    wire::Drill { at: wire::Timestamp(at), result, message: report.message }
}
