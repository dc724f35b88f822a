//! Times in names. What sorts last was written last, whatever the clock of the machine
//! does: it may go back by hours while a process runs, or between two of them.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use coppice_core::{VolumeId, random};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStore as _;
use object_store::path::Path;
use parking_lot::Mutex;

use crate::whole::{NAMES_MAX, listed, soon};
use crate::{Archive, ArchiveError, Result};

/// The last part of a name that sorts by time.
pub(crate) fn stamp(time_ms: i64) -> String {
    let mut unique = [0; 4];
    random::fill(&mut unique);
    format!("{time_ms:015}-{}", hex::encode(unique))
}

/// The time in a name that ends with a [`stamp`].
pub(crate) fn time_of(name: &str) -> DateTime<Utc> {
    let stamp = name.rsplit('/').next().unwrap_or_default();
    let ms = stamp.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or_default();
    DateTime::from_timestamp_millis(ms).unwrap_or_default()
}

/// The newest time in the names of some objects, by what they are of.
#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<HashMap<String, i64>>);

impl Archive {
    /// A time for the next object of a volume: the given one, or a moment after its newest
    /// object where the clock has gone back.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn next_time(&self, volume: &VolumeId, now: DateTime<Utc>) -> Result<DateTime<Utc>> {
        let places = [format!("wal/{volume}"), format!("bases/{volume}")];
        self.next_among(volume.as_str(), &places, now).await
    }

    /// The same for a name among those in these directories.
    pub(crate) async fn next_among(
        &self,
        what: &str,
        places: &[String],
        now: DateTime<Utc>,
    ) -> Result<DateTime<Utc>> {
        let is_known = self.times.0.lock().contains_key(what);
        let mut newest = i64::MIN;
        // Another process may have written them.
        for place in places.iter().filter(|_| !is_known) {
            newest = newest.max(self.newest_ahead(place, now).await?);
        }
        let mut times = self.times.0.lock();
        let newest = times.entry(what.to_owned()).or_insert(newest);
        *newest = now.timestamp_millis().max(newest.saturating_add(1));
        Ok(DateTime::from_timestamp_millis(*newest).unwrap_or(now))
    }

    /// The newest time in a directory, if that is ahead of the clock: the others, which may be very many, need not be
    /// listed. Everybody's logs wait for it.
    async fn newest_ahead(&self, place: &str, now: DateTime<Utc>) -> Result<i64> {
        let (prefix, offset) =
            (Path::from(place), Path::from(format!("{place}/{:015}", now.timestamp_millis())));
        let action = format!("listing {place}");
        let objects = self.place.objects.list_with_offset(Some(&prefix), &offset).take(NAMES_MAX);
        let newest = objects.try_fold(i64::MIN, async |newest, object| {
            Ok(newest.max(time_of(object.location.as_ref()).timestamp_millis()))
        });
        let newest = async { newest.await.map_err(ArchiveError::store(action.as_str())) };
        match self.place.is_sorted {
            true => soon(&action, 0, newest).await,
            // A directory is read as a whole.
            false => listed(place, newest).await,
        }
    }

    /// Forgets what is known of a volume of which nothing is left.
    pub(crate) fn forget_times(&self, volume: &VolumeId) {
        self.times.0.lock().remove(volume.as_str());
    }
}
