//! Exports of the metastore.

use chrono::{DateTime, Utc};
use coppice_core::HostId;
use serde::{Deserialize, Serialize};

use crate::archive::SEALED_BYTES_MAX;
use crate::times::{stamp, time_of};
use crate::{Archive, ArchiveError, Result};

/// An export of the metastore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The host that wrote it.
    pub host: HostId,
    /// What the metastore exported.
    pub export: Vec<u8>,
}

/// The name of an export in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsName(String);

impl RecordsName {
    /// When it was made.
    pub fn taken_at(&self) -> DateTime<Utc> {
        time_of(&self.0)
    }
}

impl Archive {
    /// Writes an export of the metastore: the newest one, also where `taken_at` is not.
    ///
    /// # Errors
    /// When the store can't be written, or is another process's by now.
    pub async fn put_records(&self, records: &Records, taken_at: DateTime<Utc>) -> Result<RecordsName> {
        let content = postcard::to_stdvec(records);
        let content = content.map_err(|error| ArchiveError::Refused(error.to_string()))?;
        let time = self.next_among("records", &["records".to_owned()], taken_at).await?;
        let name = RecordsName(format!("records/{}", stamp(time.timestamp_millis())));
        self.put_sealed(&name.0, &content).await?;
        Ok(name)
    }

    /// Exports that are there, oldest first.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn records(&self) -> Result<Vec<RecordsName>> {
        let found = self.list("records").await?.into_iter();
        Ok(found.map(|object| RecordsName(object.location.to_string())).collect())
    }

    /// Reads an export.
    ///
    /// # Errors
    /// When it is not there, damaged, or can't be read.
    pub async fn get_records(&self, name: &RecordsName) -> Result<Records> {
        let content = self.get_sealed(&name.0, SEALED_BYTES_MAX).await?;
        postcard::from_bytes(&content).map_err(|error| ArchiveError::damaged(&name.0, error.to_string()))
    }

    /// Removes exports from before the newest, but for as many of them as that. What has a later name was written
    /// by somebody else, and takes no other's place.
    ///
    /// # Errors
    /// When the store can't be written, or is another process's by now.
    pub async fn thin_records(&self, newest: &RecordsName, kept: usize) -> Result<()> {
        let mut found = self.records().await?;
        found.retain(|name| name.0 < newest.0);
        let Some(surplus) = found.len().checked_sub(kept).filter(|surplus| *surplus > 0) else {
            return Ok(());
        };
        self.check_owner().await?;
        for name in &found[..surplus] {
            self.delete(&name.0).await?;
        }
        Ok(())
    }
}
