//! `coppice branch history`

use coppice_wire::{BranchHistory, BranchVersion, HistoryGap, HistoryWindow};

use crate::client::output::{self, day};
use crate::client::times::moment;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Shows what a branch can be taken back to.
pub(super) fn show(history: &BranchHistory, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(history);
    }
    match &history.window {
        Some(window) => show_window(history, window),
        None => say!(
            "No history of this branch is kept now: that needs btrfs for the server's storage, and room. Where a branch \
             wrote faster than its log could be kept, it begins anew in a minute or two."
        ),
    }
    if !history.versions.is_empty() {
        say!("");
        let rows = history.versions.iter().map(|version| {
            let BranchVersion { id, since, until, reason, kept_until } = version;
            vec![id.clone(), moment(since.0), moment(until.0), reason.clone(), day(kept_until)]
        });
        output::table(&["VERSION", "FROM", "TO", "THEN", "KEPT UNTIL"], rows.collect());
    }
    Ok(())
}

fn show_window(history: &BranchHistory, window: &HistoryWindow) {
    output::properties(&[
        ("from", format!("{} ({})", moment(window.from.0), window.from_lsn)),
        ("to", format!("{} ({})", moment(window.to.0), window.to_lsn)),
        ("log kept", format!("{} MiB", history.wal_bytes / MIB)),
        ("snapshots", history.snapshots.len().to_string()),
    ]);
    show_gaps(&history.gaps);
}

/// Shows times that can't be gone back to, if there are any.
pub(in crate::client) fn show_gaps(gaps: &[HistoryGap]) {
    if !gaps.is_empty() {
        say!("");
        let rows = gaps.iter().map(|gap| vec![moment(gap.from.0), moment(gap.to.0)]);
        output::table(&["NOT BETWEEN", "AND"], rows.collect());
    }
}
