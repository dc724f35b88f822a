//! What branches say of their backups.

use coppice_core::backup::{BackupChange, BackupConfiguration, BackupTime};
use coppice_core::{Error, ErrorCode, Result};
use coppice_wire as wire;

pub(crate) fn configuration(backups: BackupConfiguration) -> wire::BackupConfiguration {
    wire::BackupConfiguration {
        retention_period: backups.retention_days,
        backup_time: backups.time.to_string(),
    }
}

pub(crate) fn change_from(asked: Option<wire::BackupConfigurationChange>) -> Result<BackupChange> {
    let wire::BackupConfigurationChange { retention_period, backup_time } = asked.unwrap_or_default();
    let time = backup_time.map(|text| text.parse::<BackupTime>()).transpose();
    let time = time.map_err(|why| Error::invalid(ErrorCode::InvalidBackupConfiguration, why))?;
    Ok(BackupChange { retention_days: retention_period, time })
}

/// The error for invalid settings of backups.
pub(crate) fn refused(error: Error) -> Error {
    let Error::Invalid { code: ErrorCode::InvalidField, public } = &error else { return error };
    match public.strip_prefix("invalid backupConfiguration.") {
        Some(why) => Error::invalid(
            ErrorCode::InvalidBackupConfiguration,
            format!("invalid backup configuration: {why}"),
        ),
        None => error,
    }
}
