//! What commands print: tables for people, JSON for programs, progress for
//! whoever waits.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::bail;
use comfy_table::{Table, presets};
use indicatif::ProgressBar;
use serde::Serialize;

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
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    table.add_rows(rows);
    println!("{table}");
}

/// Prints what is known of one thing.
pub(super) fn properties(rows: &[(&str, String)]) {
    table(&[], rows.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]).collect());
}

/// A time for people, to the minute.
pub(super) fn day(time: &coppice_wire::Timestamp) -> String {
    time.0.format("%Y-%m-%d %H:%M").to_string()
}

/// Says that something was done, to people.
pub(super) fn done(as_json: bool, what: String) {
    if !as_json {
        println!("{what}");
    }
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
        bail!("{question} Say --yes to confirm.");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if !answer.trim().eq_ignore_ascii_case("y") {
        bail!("nothing was done");
    }
    Ok(())
}
