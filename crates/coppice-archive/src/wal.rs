//! The write-ahead log of volumes, in pieces as it was written.

use chrono::{DateTime, Utc};
use coppice_core::VolumeId;
use coppice_core::lsn::Lsn;

use crate::{Archive, Result};

/// The name of a piece of a volume's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    object: String,
    /// By when it was there.
    pub seen_at: DateTime<Utc>,
    /// Where it begins.
    pub start: Lsn,
    /// Where the log ended by then: what an earlier piece has behind that is gone.
    pub end: Lsn,
}

impl LogPiece {
    fn of(object: String) -> Option<Self> {
        let mut parts = object.rsplit('/').next()?.split('-');
        let seen_at = DateTime::from_timestamp_millis(parts.next()?.parse().ok()?)?;
        let mut place = || u64::from_str_radix(parts.next()?, 16).ok().map(Lsn);
        let (start, end) = (place()?, place()?);
        Some(Self { object, seen_at, start, end })
    }
}

impl Archive {
    /// Writes a piece of a volume's log that begins at `start`. The caller has seen
    /// that this process [owns](Self::check_owner) the store.
    ///
    /// # Errors
    /// When the store can't be written.
    pub async fn put_log(
        &self,
        volume: &VolumeId,
        seen_at: DateTime<Utc>,
        start: Lsn,
        bytes: &[u8],
    ) -> Result<()> {
        let (time, end) = (seen_at.timestamp_millis(), start.0 + bytes.len() as u64);
        let name = format!("wal/{volume}/{time:015}-{:016X}-{end:016X}", start.0);
        let sealed = self.keys.seal(&name, bytes)?;
        self.put(&name, sealed).await
    }

    /// Pieces of a volume's log, oldest first.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn log_pieces(&self, volume: &VolumeId) -> Result<Vec<LogPiece>> {
        let found = self.list(&format!("wal/{volume}")).await?.into_iter();
        Ok(found.filter_map(|object| LogPiece::of(object.location.to_string())).collect())
    }

    /// Volumes of whose logs there is something.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn logs(&self) -> Result<Vec<VolumeId>> {
        let names = self.list_directories("wal").await?.into_iter();
        Ok(names.map(VolumeId::from_trusted).collect())
    }

    /// Reads a piece.
    ///
    /// # Errors
    /// When it is not there, damaged, or can't be read.
    pub async fn get_log(&self, piece: &LogPiece) -> Result<Vec<u8>> {
        self.get_sealed(&piece.object).await
    }

    /// Removes pieces of a volume's log that were seen before a time.
    ///
    /// # Errors
    /// When the store can't be written, or is another process's by now.
    pub async fn remove_log(&self, volume: &VolumeId, before: DateTime<Utc>) -> Result<()> {
        let pieces = self.log_pieces(volume).await?.into_iter();
        let old: Vec<_> = pieces.filter(|piece| piece.seen_at < before).collect();
        if !old.is_empty() {
            self.check_owner().await?;
        }
        for piece in old {
            self.delete(&piece.object).await?;
        }
        Ok(())
    }
}
