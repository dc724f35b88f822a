//! What can be said of a branch on the command line, by several commands alike.

use std::collections::BTreeMap;

use clap::Args;
use coppice_core::backup::BackupTime;
use coppice_wire::{BackupConfigurationChange, Expiry, ScaleToZeroChange};

use super::output::Switch;
use super::times;

/// When a branch sleeps.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// Whether it sleeps when nobody uses it
    #[arg(long, value_name = "on|off")]
    scale_to_zero: Option<Switch>,
    /// After how many minutes it does
    #[arg(long, value_name = "MINUTES")]
    inactivity_minutes: Option<u32>,
}

impl Sleep {
    pub(super) fn change(self) -> Option<ScaleToZeroChange> {
        let change = ScaleToZeroChange {
            enabled: self.scale_to_zero.map(Switch::is_on),
            inactivity_period_minutes: self.inactivity_minutes,
        };
        (change.enabled.is_some() || change.inactivity_period_minutes.is_some()).then_some(change)
    }
}

/// For how long a branch can be gone back to.
#[derive(Args, Clone, Debug)]
pub(crate) struct Backups {
    /// For how many days it can be restored, from 2 to 35
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(2..=35))]
    retention: Option<u32>,
    /// When a full copy is made, where there is a store: day of the week (0 is Sunday, * every day), hour and minute, UTC
    #[arg(long, value_name = "DAY:HH:MM")]
    backup_time: Option<BackupTime>,
}

impl Backups {
    pub(super) fn change(&self) -> Option<BackupConfigurationChange> {
        let change = BackupConfigurationChange {
            retention_period: self.retention,
            backup_time: self.backup_time.map(|time| time.to_string()),
        };
        (change != BackupConfigurationChange::default()).then_some(change)
    }
}

/// When a branch is deleted; none is never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End(pub(super) Option<Expiry>);

pub(super) fn end(text: &str) -> Result<End, String> {
    if text == "never" {
        return Ok(End(None));
    }
    times::expiry(text).map(|end| End(Some(Expiry(end))))
}

/// Reads a PostgreSQL parameter as it is typed.
pub(super) fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, like work_mem=16MB")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// Reads a label as it is typed.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let why = "write KEY=VALUE, like team=shop";
    let (key, value) = text.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or(why)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Labels in a line, as they are typed.
pub(super) fn labels_in_words(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_a_name_and_a_value() {
        assert_eq!(parameter("work_mem=16MB"), Ok(("work_mem".to_owned(), "16MB".to_owned())));
        assert!(parameter("work_mem").is_err());
    }
}
