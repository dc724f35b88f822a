//! What commands print: tables for people, JSON for programs, progress for
//! whoever waits.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::bail;
use comfy_table::{Cell, ContentArrangement, Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::refusal::Refused;

/// On or off, as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// Turned on.
    On,
    /// Turned off.
    Off,
}

impl Switch {
    /// Whether it is on.
    pub(super) fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Prints a table without frames.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) {
    cells(header, rows.into_iter().map(|row| row.into_iter().map(Cell::new).collect()).collect());
}

/// As [`table`], of cells that may be coloured. In a terminal it is no wider
/// than that; programs get each row on one line.
pub(super) fn cells(header: &[&str], rows: Vec<Vec<Cell>>) {
    let width = if is_terminal() { Table::new().width() } else { None };
    crate::say::piece(&drawn(header, rows, width));
}

fn drawn(header: &[&str], rows: Vec<Vec<Cell>>, width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    if !has_colour() {
        table.force_no_tty();
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether data may be coloured (<https://no-color.org>).
pub(super) fn has_colour() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints what is known of one thing.
pub(super) fn properties(rows: &[(&str, String)]) {
    table(&[], rows.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]).collect());
}

/// A time for people, to the minute.
pub(super) fn day(time: &coppice_wire::Timestamp) -> String {
    time.0.format("%Y-%m-%d %H:%M UTC").to_string()
}

/// Says that something was done, to people.
pub(super) fn done(as_json: bool, what: String) {
    if !as_json {
        note!("{what}");
    }
}

/// A number of bytes for people.
pub(super) fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// Prints JSON for programs.
pub(super) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    say!("{}", serde_json::to_string_pretty(value)?);
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

/// Waits for work, and shows so when it takes more than a second.
pub(super) async fn patiently<T>(message: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    let waiting = spinner(message.to_owned());
    let done = work.await;
    waiting.finish_and_clear();
    done
}

/// Asks before something is lost.
pub(super) fn confirm(question: &str, is_confirmed: bool) -> anyhow::Result<()> {
    if is_confirmed {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!(Refused::mistake(format!("{question} There is no terminal to ask at: say --yes to confirm.")));
    }
    write!(std::io::stderr(), "{question} [y/N] ")?;
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if !answer.trim().eq_ignore_ascii_case("y") {
        bail!("nothing was done");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal_and_is_one_line_a_row_elsewhere() {
        let row = || vec![vec![Cell::new("main"), Cell::new("a long story ".repeat(20).trim())]];
        let narrow = drawn(&["NAME", "WHAT"], row(), Some(60));
        assert!(
            narrow.lines().count() > 3 && narrow.lines().all(|line| line.chars().count() <= 60),
            "{narrow}"
        );
        let wide = drawn(&["NAME", "WHAT"], row(), None);
        assert_eq!(wide.lines().count(), 2, "{wide}");
        assert!(wide.lines().all(|line| line == line.trim_end()), "{wide}");
    }
}
