//! What an upgrade may take: time, and room, of which its branch has so much and the
//! machine has so much. What is evaluated while data is restored may write without end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::local::blocking::blocking;
use crate::local::taken::Taken;
use crate::local::untrusted::UntrustedPath;
use crate::local::volumes::Volumes;
use crate::{EngineError, Result};

/// What is restored and its dump may take so many times the storage of the branch: each
/// as much as that, and the log as much again. What the old server adds to its copy counts
/// as well.
const STORAGES: u64 = 3;
/// Files are counted for at most one part in so many of the time,
const SHARE: u32 = 50;
/// and not again within this.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// How often is looked whether there still is some of it.
const LOOK: Duration = Duration::from_millis(200);
/// Whatever is in a branch may take so long,
const PATIENCE_MIN: Duration = Duration::from_secs(30 * 60);
/// and each MiB of it so much longer,
const PATIENCE_PER_MIB: Duration = Duration::from_secs(2);
/// but no longer than this: others wait for their turn.
const PATIENCE_MAX: Duration = Duration::from_secs(4 * 3600);

/// How much there is of it.
pub(super) struct Room {
    volumes: Arc<Volumes>,
    /// The data that is restored, the dumps, and the copy that is dumped.
    places: [UntrustedPath; 3],
    most_bytes: u64,
    /// When it is given up.
    until: Instant,
    /// When files are counted again.
    next_count: Mutex<Instant>,
}

impl Room {
    /// For what an upgrade writes of a branch with so much storage, in which there are so
    /// many bytes of data.
    pub(super) fn of(
        volumes: Arc<Volumes>,
        places: [UntrustedPath; 3],
        storage_bytes: u64,
        data_bytes: u64,
    ) -> Self {
        let now = Instant::now();
        let most_bytes = storage_bytes.saturating_mul(STORAGES).saturating_add(data_bytes);
        let until = now + patience(data_bytes);
        Self { volumes, places, most_bytes, until, next_count: Mutex::new(now) }
    }

    /// Returns when there is no time or no room any more, and says which.
    pub(super) async fn excess(&self) -> EngineError {
        loop {
            tokio::time::sleep(LOOK).await;
            if let Err(error) = self.check().await {
                return error;
            }
        }
    }

    /// Whether there still is time and room.
    ///
    /// # Errors
    /// When there is not.
    pub(super) async fn check(&self) -> Result<()> {
        if Instant::now() >= self.until {
            return Err(EngineError::NotUpgradable("it takes too long".to_owned()));
        }
        if self.volumes.usage()?.is_short() {
            return Err(EngineError::NoSpace(
                "the machine has no room for a second copy of the data".to_owned(),
            ));
        }
        if Instant::now() < *self.next_count.lock() {
            return Ok(());
        }
        let (began, places) = (Instant::now(), self.places.clone());
        let count = move || {
            Ok(places.into_iter().map(|place| Taken::new(place.clone(), place, vec![]).bytes()).sum())
        };
        let taken: u64 = blocking(count).await?;
        *self.next_count.lock() = Instant::now() + PAUSE_MIN.max(began.elapsed().saturating_mul(SHARE));
        match taken > self.most_bytes {
            true => Err(EngineError::NotUpgradable(format!(
                "what is written by the servers and the dump takes more than {STORAGES} times the storage of the branch; \
                 with more storage it may take more"
            ))),
            false => Ok(()),
        }
    }
}

/// How long an upgrade of so much data may take before it is given up.
fn patience(data_bytes: u64) -> Duration {
    let mib = u32::try_from(data_bytes >> 20).unwrap_or(u32::MAX);
    PATIENCE_MIN.saturating_add(PATIENCE_PER_MIB.saturating_mul(mib)).min(PATIENCE_MAX)
}

/// Whether the machine has room for a second copy of data, before anything is made. A
/// dump is smaller than what it is of; together they may take more even so, which is
/// seen when it happens.
///
/// # Errors
/// When there is not.
pub(super) fn require(data_bytes: u64, copies: u64, free_bytes: u64) -> Result<()> {
    let needed = data_bytes.saturating_mul(copies);
    match needed > free_bytes {
        true => Err(EngineError::NoSpace(format!(
            "an upgrade takes about {:.1} GB of room on the machine, which has less than that",
            needed as f64 / 1e9
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_data_gets_little_time() {
        let minutes = |bytes: u64| patience(bytes).as_secs() / 60;
        assert_eq!([0, 100 << 20, 1 << 30, 1 << 40, u64::MAX].map(minutes), [30, 33, 64, 240, 240]);
    }

    #[test]
    fn an_upgrade_without_room_is_refused_before_it_begins() {
        assert!(require(10 << 30, 1, 10 << 30).is_ok());
        let refused = require(10 << 30, 2, 11 << 30).expect_err("a machine without room");
        assert_eq!(
            refused.to_string(),
            "no space left: an upgrade takes about 21.5 GB of room on the machine, which has less than that"
        );
    }
}
