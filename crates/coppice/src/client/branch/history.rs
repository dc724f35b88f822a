//! `coppice branch history`

use coppice_wire::BranchHistory;

use crate::client::output;
use crate::client::times::moment;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Shows what a branch can be taken back to.
pub(super) fn show(history: &BranchHistory, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(history);
    }
    let Some(window) = &history.window else {
        say!("No history is kept of this branch: its server's storage needs btrfs for that.");
        return Ok(());
    };
    output::properties(&[
        ("from", format!("{} ({})", moment(window.from.0), window.from_lsn)),
        ("to", format!("{} ({})", moment(window.to.0), window.to_lsn)),
        ("log kept", format!("{} MiB", history.wal_bytes / MIB)),
        ("snapshots", history.snapshots.len().to_string()),
    ]);
    if !history.gaps.is_empty() {
        say!("");
        let rows = history.gaps.iter().map(|gap| vec![moment(gap.from.0), moment(gap.to.0)]);
        output::table(&["NOT BETWEEN", "AND"], rows.collect());
    }
    Ok(())
}
