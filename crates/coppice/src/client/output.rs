//! What commands print: tables for people, JSON for programs, progress for
//! whoever waits.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::bail;
use comfy_table::{Cell, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, WeakProgressBar};
use parking_lot::Mutex;
use serde::Serialize;

use super::words::harmless;
use crate::refusal::Refused;

/// The progress that has the last line of the terminal.
static SHOWN: Mutex<Option<WeakProgressBar>> = Mutex::new(None);
/// Blanks around the cells of a table.
const PADDING: usize = 2;

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

/// Prints a table without frames. What others wrote in it is on its line, and harmless.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) {
    table_sparing(&[], header, rows);
}

/// As [`table`]. A terminal that is too narrow does without the columns of
/// `spare`, as many as it has to, in this order.
pub(super) fn table_sparing(spare: &[&str], header: &[&str], rows: Vec<Vec<String>>) {
    let row_of = |row: Vec<String>| row.iter().map(|text| on_one_line(text)).collect::<Vec<_>>();
    let rows = rows.into_iter().map(row_of).collect::<Vec<_>>();
    let (header, rows) = match width() {
        Some(width) => narrowed(spare, header, rows, width),
        None => (header.to_vec(), rows),
    };
    cells(&header, rows.into_iter().map(|row| row.into_iter().map(Cell::new).collect()).collect());
}

fn on_one_line(text: &str) -> String {
    harmless(text).replace('\n', " ")
}

/// As [`table`], of cells that may be coloured, in which others wrote nothing. In a terminal
/// it is no wider than that; programs get each row on one line.
pub(super) fn cells(header: &[&str], rows: Vec<Vec<Cell>>) {
    crate::say::piece(&drawn(header, rows, width()));
}

/// Columns of the terminal; none where programs read.
pub(super) fn width() -> Option<usize> {
    let width = if is_terminal() { Table::new().width() } else { None };
    width.map(usize::from)
}

/// How wide a column of a table is, with what stands between it and the next.
pub(super) fn column_width<'a>(cells: impl IntoIterator<Item = &'a str>) -> usize {
    cells.into_iter().map(|cell| cell.chars().count()).max().unwrap_or_default() + PADDING
}

fn narrowed<'a>(
    spare: &[&str],
    header: &[&'a str],
    mut rows: Vec<Vec<String>>,
    width: usize,
) -> (Vec<&'a str>, Vec<Vec<String>>) {
    let mut header = header.to_vec();
    for name in spare {
        let column = |index: usize| rows.iter().map(move |row| row[index].as_str());
        let widths =
            header.iter().enumerate().map(|(index, name)| column_width(column(index).chain([*name])));
        if widths.sum::<usize>() <= width {
            break;
        }
        let Some(index) = header.iter().position(|other| other == name) else { continue };
        header.remove(index);
        rows.iter_mut().for_each(|row| drop(row.remove(index)));
    }
    (header, rows)
}

fn drawn(header: &[&str], rows: Vec<Vec<Cell>>, width: Option<usize>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header);
    }
    table.add_rows(rows);
    if let Some(width) = width {
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    if !has_colour() {
        table.force_no_tty();
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Whether people read what is printed.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether data may be coloured (<https://no-color.org>).
pub(super) fn has_colour() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints what is known of one thing. Values are in one piece, however narrow
/// the terminal is: connection strings are taken from there.
pub(super) fn properties(rows: &[(&str, String)]) {
    let cells = rows.iter().map(|(name, value)| vec![Cell::new(name), Cell::new(harmless(value))]);
    crate::say::piece(&drawn(&[], cells.collect(), None));
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
    take_line(&bar);
    show_on(&bar, &message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Has a progress say something else.
pub(super) fn show_on(bar: &ProgressBar, message: &str) {
    bar.set_message(harmless(message));
}

fn take_line(bar: &ProgressBar) {
    *SHOWN.lock() = Some(bar.downgrade());
}

fn is_line_taken() -> bool {
    let shown = SHOWN.lock();
    shown.as_ref().and_then(WeakProgressBar::upgrade).is_some_and(|bar| !bar.is_finished())
}

/// Waits for work, and shows so when it takes more than a second and nothing
/// else is shown to go on.
pub(super) async fn patiently<T>(message: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    if is_line_taken() {
        return work.await;
    }
    let waiting = spinner(message.to_owned());
    let done = work.await;
    waiting.finish_and_clear();
    done
}

/// Asks before something is lost.
pub(super) fn confirm(question: &str, is_confirmed: bool) -> anyhow::Result<()> {
    ask(question, "[y/N]", is_confirmed, |answer| answer.eq_ignore_ascii_case("y"))
}

/// As [`confirm`], for what is worth typing its name.
pub(super) fn confirm_by_name(question: &str, name: &str, is_confirmed: bool) -> anyhow::Result<()> {
    let prompt = format!("Type {name} to go on:");
    ask(question, &prompt, is_confirmed, |answer| answer == name)
}

fn ask(
    question: &str,
    prompt: &str,
    is_confirmed: bool,
    is_yes: impl FnOnce(&str) -> bool,
) -> anyhow::Result<()> {
    if is_confirmed {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!(Refused::mistake(format!("{question} There is no terminal to ask at: say --yes to confirm.")));
    }
    write!(std::io::stderr(), "{} ", harmless(&format!("{question} {prompt}")))?;
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if !is_yes(answer.trim()) {
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

    #[test]
    fn a_narrow_terminal_does_without_what_can_be_spared() {
        let rows = || vec![vec!["main".to_owned(), "2026-01-02 03:04 UTC".to_owned(), "brn_".repeat(7)]];
        let header = ["NAME", "CREATED", "ID"];
        let shown = |width| narrowed(&["CREATED", "ID"], &header, rows(), width);
        assert_eq!(shown(80).0, header);
        assert_eq!(shown(58).0, header, "it just fits");
        assert_eq!(shown(57), (vec!["NAME", "ID"], vec![vec!["main".to_owned(), "brn_".repeat(7)]]));
        assert_eq!(shown(20).0, ["NAME"]);
        let whole = drawn(&header, vec![rows().remove(0).into_iter().map(Cell::new).collect()], Some(58));
        assert_eq!(whole.lines().count(), 2, "{whole}");
    }

    #[test]
    fn what_is_known_of_one_thing_begins_at_once_and_stays_in_one_piece() {
        let url = "postgresql://app.main:secret@127.0.0.1:7432/app".repeat(3);
        let known = drawn(&[], vec![vec![Cell::new("url"), Cell::new(&url)]], None);
        assert_eq!(known, format!(" url  {url}\n"));
    }

    #[test]
    fn a_cell_that_others_wrote_is_on_its_line_and_commands_no_terminal() {
        assert_eq!(on_one_line("r\u{1b}[31m\nmain  owner\u{202e}"), "r\u{fffd}[31m main  owner\u{fffd}");
    }

    #[test]
    fn one_progress_is_shown_at_a_time() {
        let bar = ProgressBar::hidden();
        take_line(&bar);
        assert!(is_line_taken());
        bar.finish_and_clear();
        assert!(!is_line_taken());
        let dropped = ProgressBar::hidden();
        take_line(&dropped);
        drop(dropped);
        assert!(!is_line_taken());
    }
}
