//! The write-ahead log of volumes, in pieces as it was written.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use coppice_core::VolumeId;
use coppice_core::lsn::Lsn;
use futures_util::TryStreamExt as _;
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::manifest::Manifest;
use crate::whole::{Names, listed, soon};
use crate::{Archive, ArchiveError, BaseFacts, BaseName, Result};

/// Longest piece of a log.
pub const PIECE_BYTES_MAX: usize = 32 << 20;
/// The same, sealed: compressing may have made it a little longer.
const SEALED_PIECE_BYTES_MAX: usize = PIECE_BYTES_MAX + (1 << 20);

/// Listings that have to lack something before it is believed to be missing, and the pause between.
const LISTINGS: u32 = 3;
const LISTING_LAG: Duration = Duration::from_secs(5);

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
    /// When it was written, by the store's clock; later where the store is a copy.
    written_at: DateTime<Utc>,
}

impl LogPiece {
    fn of(found: ObjectMeta) -> Option<Self> {
        let (object, written_at) = (found.location.to_string(), found.last_modified);
        let mut parts = object.rsplit('/').next()?.split('-');
        let seen_at = DateTime::from_timestamp_millis(parts.next()?.parse().ok()?)?;
        let mut place = || u64::from_str_radix(parts.next()?, 16).ok().map(Lsn);
        let (start, end) = (place()?, place()?);
        // Another name than any that was written says nothing.
        let length = end.0.checked_sub(start.0)?;
        (length <= PIECE_BYTES_MAX as u64).then_some(Self { object, seen_at, start, end, written_at })
    }

    /// Whether it was seen after a time. A name whose time stands still, since one of before is ahead, does not
    /// tell; such a piece was written no earlier than it was seen.
    fn is_after(&self, time: DateTime<Utc>) -> bool {
        self.seen_at.min(self.written_at) > time
    }
}

/// See [`Archive::log_reaches`].
fn reached_by(base: &Manifest, pieces: &[LogPiece]) -> Result<Option<Lsn>> {
    let Some(mut reached) = base.facts().log_end else { return Ok(None) };
    for piece in pieces {
        if piece.start > reached {
            let why = format!("the store does not have the log from {reached} to {}", piece.start);
            return Err(ArchiveError::damaged(piece.object.as_str(), why));
        }
        reached = piece.end;
    }
    Ok(Some(reached))
}

fn no_log(reached: Lsn, until: DateTime<Utc>) -> ArchiveError {
    let time = until.to_rfc3339_opts(SecondsFormat::Millis, true);
    ArchiveError::OutOfReach(format!(
        "the store does not have what was written behind {reached} until {time}"
    ))
}

impl Archive {
    /// Writes a piece of a volume's log that begins at `start`, behind all that is there
    /// also where `seen_at` is not. The caller has seen that this process
    /// [owns](Self::check_owner) the store.
    ///
    /// # Errors
    /// When the store can't be written, or the piece is longer than [`PIECE_BYTES_MAX`].
    pub async fn put_log(
        &self,
        volume: &VolumeId,
        seen_at: DateTime<Utc>,
        start: Lsn,
        bytes: &[u8],
    ) -> Result<()> {
        if bytes.len() > PIECE_BYTES_MAX {
            return Err(ArchiveError::Refused(format!("a piece of a log with {} bytes", bytes.len())));
        }
        let time = self.next_time(volume, seen_at).await?.timestamp_millis();
        let end = start.0 + bytes.len() as u64;
        let name = format!("wal/{volume}/{time:015}-{:016X}-{end:016X}", start.0);
        let sealed = self.keys.seal(&name, bytes)?;
        let (action, bytes) = (format!("writing {name}"), sealed.len());
        soon(&action, bytes, self.put(&name, sealed)).await
    }

    /// Pieces of a volume's log, oldest first.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn log_pieces(&self, volume: &VolumeId) -> Result<Vec<LogPiece>> {
        let found = self.list(&format!("wal/{volume}")).await?.into_iter();
        Ok(found.filter_map(LogPiece::of).collect())
    }

    /// Pieces of the log that go on where a base ends, oldest first; with a time, only
    /// as far as what was committed by then can be in them.
    ///
    /// # Errors
    /// When the store can't be read, and when it does not have the log up to the time.
    pub async fn log_behind(&self, base: &Manifest, until: Option<DateTime<Utc>>) -> Result<Vec<LogPiece>> {
        let BaseFacts { volume, log_end, taken_ms, .. } = base.facts();
        let Some(base_end) = log_end else { return Ok(vec![]) };
        let behind = self.pieces_behind(base, *base_end, until);
        let (mut pieces, beyond) = listed(&format!("wal/{volume}"), behind).await?;
        let Some(until) = until else { return Ok(pieces) };
        let mut reached = *base_end;
        for piece in &pieces {
            if piece.start > reached {
                return Err(no_log(reached, until));
            }
            reached = piece.end;
        }
        let is_next =
            |base: &BaseName| base.taken_at().timestamp_millis() > *taken_ms && base.taken_at() > until;
        let next = self.bases(volume).await?.into_iter().find(is_next);
        let Some(beyond) = beyond else {
            // Nothing was written any more, if the next base begins there.
            return match next {
                Some(next) if self.manifest(&next).await?.facts().log_end.is_none_or(|end| end > reached) => {
                    Err(no_log(reached, until))
                }
                _ => Ok(pieces),
            };
        };
        // Behind another base, the log may be another one.
        let goes_on = match next.is_some_and(|next| next.taken_at() <= beyond.seen_at) {
            true => beyond.start == reached,
            false => beyond.start <= reached,
        };
        if !goes_on {
            return Err(no_log(reached, until));
        }
        pieces.push(beyond);
        Ok(pieces)
    }

    /// Pieces that go on behind a place where a base ends, oldest first, up to a time; and the first one that was
    /// seen after it: what was committed before is seen a moment later. No others are kept, however many there are.
    async fn pieces_behind(
        &self,
        base: &Manifest,
        base_end: Lsn,
        until: Option<DateTime<Utc>>,
    ) -> Result<(Vec<LogPiece>, Option<LogPiece>)> {
        let BaseFacts { volume, taken_ms, .. } = base.facts();
        let prefix = format!("wal/{volume}");
        let listing = || ArchiveError::store(format!("listing {prefix}"));
        let offset = Path::from(format!("{prefix}/{taken_ms:015}"));
        let mut found = self.place.objects.list_with_offset(Some(&Path::from(prefix.as_str())), &offset);
        let (mut pieces, mut beyond, mut names) = (vec![], None::<LogPiece>, Names::below(&prefix));
        while let Some(object) = found.try_next().await.map_err(listing())? {
            if !names.is_ours(&object)? {
                continue;
            }
            let Some(piece) = LogPiece::of(object) else { continue };
            if piece.seen_at.timestamp_millis() < *taken_ms
                || piece.end <= base_end
                || beyond.as_ref().is_some_and(|beyond| beyond.object < piece.object)
            {
                continue;
            }
            if !until.is_some_and(|until| piece.is_after(until)) {
                pieces.push(piece);
                continue;
            }
            beyond = Some(piece);
            if self.place.is_sorted {
                break;
            }
        }
        pieces.sort_by(|one, other| one.object.cmp(&other.object));
        if let Some(beyond) = &beyond {
            pieces.retain(|piece| piece.object < beyond.object);
        }
        Ok((pieces, beyond))
    }

    /// How far the log behind a base goes; none when it has none.
    ///
    /// # Errors
    /// When the store can't be read, and [`ArchiveError::Damaged`] when a piece is missing in between.
    pub async fn log_reaches(&self, base: &Manifest) -> Result<Option<Lsn>> {
        reached_by(base, &self.log_behind(base, None).await?)
    }

    /// The pieces of the log behind a base, oldest first, which go without a gap as far as it was written, or
    /// further. What a listing lacks is looked for again: it may lag behind.
    ///
    /// # Errors
    /// When the store can't be read, and [`ArchiveError::Damaged`] when something is missing.
    pub async fn whole_log(&self, base: &Manifest, written: Lsn) -> Result<Vec<LogPiece>> {
        let mut tries = 1..LISTINGS;
        loop {
            let pieces = self.log_behind(base, None).await?;
            let missing = match reached_by(base, &pieces) {
                Ok(reached) => match reached.filter(|reached| *reached < written) {
                    None => return Ok(pieces),
                    Some(reached) => ArchiveError::damaged(
                        format!("wal/{}", base.facts().volume),
                        format!(
                            "the store has the log up to {reached}, and it was written there up to {written}"
                        ),
                    ),
                },
                Err(error) => error,
            };
            if tries.next().is_none() {
                return Err(missing);
            }
            tokio::time::sleep(LISTING_LAG).await;
        }
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
        self.get_sealed(&piece.object, SEALED_PIECE_BYTES_MAX).await
    }

    /// Removes pieces of a volume's log that were seen before a time.
    ///
    /// # Errors
    /// When the store can't be written, or is another process's by now.
    pub async fn remove_log(&self, volume: &VolumeId, before: DateTime<Utc>) -> Result<()> {
        let pieces = self.log_pieces(volume).await?;
        let count = pieces.len();
        let old: Vec<_> = pieces.into_iter().filter(|piece| piece.seen_at < before).collect();
        if !old.is_empty() {
            self.check_owner().await?;
        }
        if old.len() == count {
            self.forget_times(volume);
        }
        for piece in old {
            self.delete(&piece.object).await?;
        }
        Ok(())
    }
}
