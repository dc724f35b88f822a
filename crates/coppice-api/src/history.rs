//! What branches can be taken back to.

use coppice_app::{Access, App};
use coppice_core::branch::BranchVersion;
use coppice_core::history::Moment;
use coppice_core::lsn::Lsn;
use coppice_core::operation::GET_BRANCH_HISTORY;
use coppice_core::target::InBranch;
use coppice_core::{Error, Result};
use coppice_wire as wire;

use crate::endpoint::{Endpoint, Shown, Waiting, get};

/// Gaps and snapshots in one answer.
const LISTED_MAX: usize = 100;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Branches";
    vec![
        get("/history", &GET_BRANCH_HISTORY)
            .says(
                AREA,
                "Show what a branch can be taken back to",
                "createBranch makes a copy as of any second within the window, but for its gaps. Kept on the host that holds the\nbranch, for as many days as its `backupConfiguration` says; it is gone with the branch's data, and with the host's disk. `versions` are\nwhat it was before it was reset or upgraded, and have histories of their own: a time of before is looked for there.",
            )
            .answers("The window, and what is kept for it.")
            .runs(get_branch_history),
    ]
}

async fn get_branch_history(
    app: App,
    access: Access<InBranch>,
    Waiting((), call): Waiting<()>,
) -> Result<Shown<wire::BranchHistory>> {
    let history = app.histories.of_branch(&access).await?;
    let versions = app.branches.versions(&access).await?;
    // It may have waited for its turn.
    let _: Access<InBranch> = call.authorize(&app, &GET_BRANCH_HISTORY).await?;
    let stamp = wire::Timestamp;
    let window = history.window().map(|window| wire::HistoryWindow {
        from: stamp(window.from),
        to: stamp(window.to),
        from_lsn: window.from_lsn.to_string(),
        to_lsn: window.to_lsn.to_string(),
    });
    let gaps = history.gaps().into_iter().rev().take(LISTED_MAX);
    let snapshots = history.snapshots.iter().rev().take(LISTED_MAX);
    let time = |ms: i64| stamp(chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default());
    Ok(Shown(wire::BranchHistory {
        window,
        gaps: gaps.map(|(from, to)| wire::HistoryGap { from: stamp(from), to: stamp(to) }).collect(),
        snapshots: snapshots
            .map(|taken| wire::HistorySnapshot { taken_at: time(taken.taken_ms), lsn: taken.lsn.to_string() })
            .collect(),
        marks: u32::try_from(history.marks.len()).unwrap_or(u32::MAX),
        wal_bytes: history.wal_bytes,
        versions: versions.into_iter().map(version).collect(),
    }))
}

fn version(found: BranchVersion) -> wire::BranchVersion {
    wire::BranchVersion {
        id: found.volume.to_string(),
        since: wire::Timestamp(found.since),
        until: wire::Timestamp(found.until),
        reason: found.reason,
        kept_until: wire::Timestamp(found.kept_until),
    }
}

/// The moment that a request names, in one way or the other.
pub(crate) fn moment_from(time: Option<wire::Timestamp>, lsn: Option<String>) -> Result<Option<Moment>> {
    match (time, lsn) {
        (None, None) => Ok(None),
        (Some(time), None) => Ok(Some(Moment::Time(time.0))),
        (None, Some(lsn)) => {
            let lsn: Lsn = lsn.parse().map_err(|why| Error::invalid_field("targetLsn", why))?;
            Ok(Some(Moment::Lsn(lsn)))
        }
        (Some(_), Some(_)) => {
            Err(Error::invalid_field("targetLsn", "name a time or a place in the log, not both"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_or_a_place_in_the_log_and_not_both() {
        let time = || Some(wire::Timestamp(chrono::DateTime::UNIX_EPOCH));
        let place = |text: &str| Some(text.to_owned());
        let found = |time, lsn| moment_from(time, lsn).map_err(|error| error.to_string());
        assert_eq!(found(None, None), Ok(None));
        assert_eq!(found(time(), None), Ok(Some(Moment::Time(chrono::DateTime::UNIX_EPOCH))));
        assert_eq!(found(None, place("0/3000060")), Ok(Some(Moment::Lsn(Lsn(0x300_0060)))));
        assert!(found(time(), place("0/3000060")).is_err());
        assert!(found(None, place("yesterday")).is_err());
    }
}
