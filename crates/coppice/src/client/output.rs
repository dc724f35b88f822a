//! What commands print: tables for people, JSON for programs, progress for
//! whoever waits.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::bail;
use comfy_table::{Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;

/// Prints a table without frames.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    println!("{table}");
}

/// Prints JSON for programs.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Shows that something goes on, to a person only.
pub(super) fn spinner(message: String) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.set_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Asks before something is lost.
pub(super) fn confirm(question: &str, is_confirmed: bool) -> anyhow::Result<()> {
    if is_confirmed {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("{question} Say --yes to confirm.");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if !answer.trim().eq_ignore_ascii_case("y") {
        bail!("nothing was deleted");
    }
    Ok(())
}
