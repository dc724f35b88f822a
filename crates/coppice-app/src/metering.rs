//! Metering what branches use: saying that somebody is there, reading what the
//! machine and the gateway know, sealing hours.
//!
//! A turn that fails loses at most what there was to read in it: nothing is
//! written twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};
use coppice_core::storage::VolumeBytes;
use coppice_core::usage::Witness;
use coppice_core::{BranchId, Error, HostId, Result, VolumeId};
use coppice_engine::SharedEngine;
use coppice_store::{MeteredVolume, Store, StoredBytes, UsageReading, UsageTurn};
use parking_lot::Mutex;

use crate::sleep::Clients;

/// What is known since the last turn.
#[derive(Debug, Default)]
struct SinceTurn {
    last: Mutex<Option<(DateTime<Utc>, Instant)>>,
    /// How many of the bytes that clients of a branch were sent are written down.
    /// Held while more are.
    sent: tokio::sync::Mutex<BTreeMap<BranchId, u64>>,
}

/// The meter of what branches use.
#[derive(Clone)]
pub struct Metering {
    store: Store,
    engine: SharedEngine,
    clients: Arc<dyn Clients>,
    /// Whose volumes are measured.
    host: HostId,
    since_turn: Arc<SinceTurn>,
}

impl Metering {
    pub(crate) fn new(store: Store, engine: SharedEngine, clients: Arc<dyn Clients>, host: HostId) -> Self {
        Self { store, engine, clients, host, since_turn: Arc::default() }
    }

    /// A turn of the meter: time counts until now, what branches use is read,
    /// and hours that are over are sealed.
    pub(crate) async fn take_turn(&self) -> Result<()> {
        let last = *self.since_turn.last.lock();
        let turn = self.store.usage_turn(last, Instant::now).await?;
        *self.since_turn.last.lock() = Some((turn.now, turn.seen));
        report(&turn);
        self.write_egress().await?;
        let stored = self.read_storage().await?;
        if !stored.is_empty() {
            self.store.usage_note(&stored).await?;
        }
        while let Some(hour) = self.store.usage_seal().await? {
            tracing::info!("the usage of the hour {hour} is sealed");
        }
        Ok(())
    }

    /// Writes down what clients were sent since the last time. What can't be
    /// written is lost, and the log says so.
    pub async fn note_egress(&self) {
        if let Err(error) = self.write_egress().await {
            tracing::warn!("noting what clients were sent: {}", error.for_log());
        }
    }

    /// Goes on to its end, also when nobody waits for that any more.
    async fn write_egress(&self) -> Result<()> {
        let metering = self.clone();
        let writing = tokio::spawn(async move {
            let mut written = metering.since_turn.sent.lock().await;
            let now = metering.clients.sent();
            let readings = now.iter().filter_map(|(branch, bytes)| {
                let egress_bytes = bytes - written.get(branch).copied().unwrap_or_default().min(*bytes);
                let branch = branch.clone();
                (egress_bytes > 0).then_some(UsageReading { branch, stored: None, egress_bytes })
            });
            let readings: Vec<_> = readings.collect();
            // Before it is written: whether it was can't always be told, and nothing is to count twice.
            *written = now;
            match readings.is_empty() {
                true => Ok(()),
                false => metering.store.usage_note(&readings).await,
            }
        });
        Ok(writing.await.map_err(Error::internal)??)
    }

    /// Shortens what hours were made of, and what others were told of them.
    pub(crate) async fn purge(&self) -> Result<()> {
        self.store.usage_purge().await?;
        let untold = self.store.usage_purge_billed().await?;
        if untold > 0 {
            tracing::warn!("{untold} rows of usage that nobody ever took are too old to be kept for others");
        }
        Ok(())
    }

    /// What the files of branches on this host take, asleep or not.
    async fn read_storage(&self) -> Result<Vec<UsageReading>> {
        let volumes = self.store.usage_volumes(&self.host).await?;
        // Until its turn to be measured has come, a branch would pay for all that it shares.
        let known = |volume: &VolumeId| {
            self.engine.known_volume_bytes(volume).and_then(|_| known_bytes(&self.engine, volume))
        };
        let readings = stored(&volumes, known).into_iter();
        let reading = |(branch, stored)| UsageReading { branch, stored: Some(stored), egress_bytes: 0 };
        Ok(readings.map(reading).collect())
    }
}

/// What a volume takes, as far as that is known; of what it shares, only when its
/// turn to be measured has come.
pub(crate) fn known_bytes(engine: &SharedEngine, volume: &VolumeId) -> Option<VolumeBytes> {
    let measured = engine.known_volume_bytes(volume);
    // While a server runs on it, it is measured alone more often. What was written since is its own.
    let now = engine.known_disk_bytes(volume);
    let total = now.or(measured.map(|bytes| bytes.total))?;
    let shared = measured.and_then(|bytes| bytes.shared).map(|shared| shared.min(total));
    Some(VolumeBytes { total, shared })
}

/// What each branch pays for of its files, and what its parent does.
///
/// The parent pays for no more than it has itself: what it has removed or written
/// anew, and what is left of a parent that is gone, is the child's.
fn stored(
    volumes: &[MeteredVolume],
    known: impl Fn(&VolumeId) -> Option<VolumeBytes>,
) -> Vec<(BranchId, StoredBytes)> {
    let known: HashMap<_, _> =
        volumes.iter().map(|metered| (&metered.volume, known(&metered.volume))).collect();
    let of = |metered: &MeteredVolume| {
        let bytes = known.get(&metered.volume).copied().flatten()?;
        let of_parent = match metered.parent.as_ref().and_then(|parent| known.get(parent)) {
            None => 0,
            Some(parent) => (*parent)?.total,
        };
        let shared = bytes.shared.unwrap_or_default().min(of_parent);
        Some((metered.branch.clone(), StoredBytes { total: bytes.total, shared }))
    };
    volumes.iter().filter_map(of).collect()
}

/// Says which time does not count.
fn report(turn: &UsageTurn) {
    let UsageTurn { now, counted_until, witness, .. } = turn;
    match (witness, counted_until) {
        (Witness::Resumes { until }, Some(_)) if until < now => {
            tracing::warn!(
                "nobody was there to meter, or the clock leapt: from {until} to {now} nothing counts"
            );
        }
        (Witness::TurnsBack, Some(until)) => {
            tracing::warn!("the clock was set back from {until} to {now}: what comes again counts once");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metered(name: &str, parent: Option<&str>) -> MeteredVolume {
        MeteredVolume {
            branch: BranchId::from_trusted(name),
            volume: VolumeId::from_trusted(name),
            parent: parent.map(VolumeId::from_trusted),
        }
    }

    fn counted(volumes: &[MeteredVolume], known: &[(&str, u64, Option<u64>)]) -> Vec<(String, u64, u64)> {
        let known = |volume: &VolumeId| {
            let found = known.iter().find(|(name, ..)| *name == volume.as_str());
            found.map(|(_, total, shared)| VolumeBytes { total: *total, shared: *shared })
        };
        let counted = stored(volumes, known).into_iter();
        counted.map(|(branch, bytes)| (branch.to_string(), bytes.total, bytes.shared)).collect()
    }

    #[test]
    fn what_is_shared_is_paid_by_the_branch_it_belongs_to() {
        let family = [metered("main", None), metered("dev", Some("main")), metered("test", Some("dev"))];
        let known = [("main", 100, Some(0)), ("dev", 110, Some(95)), ("test", 111, Some(108))];
        let expected = [("main", 100, 0), ("dev", 110, 95), ("test", 111, 108)];
        assert_eq!(
            counted(&family, &known),
            expected.map(|(name, all, shared)| (name.to_owned(), all, shared))
        );
        let cloned = [("main", 100, Some(95)), ("dev", 110, Some(95)), ("test", 111, None)];
        let expected = [("main", 100, 0), ("dev", 110, 95), ("test", 111, 0)];
        assert_eq!(
            counted(&family, &cloned),
            expected.map(|(name, all, shared)| (name.to_owned(), all, shared))
        );
    }

    #[test]
    fn what_a_parent_has_no_more_is_its_childs() {
        let family = [metered("main", None), metered("dev", Some("main"))];
        let emptied = [("main", 8, Some(0)), ("dev", 110, Some(100))];
        assert_eq!(counted(&family, &emptied).pop(), Some(("dev".to_owned(), 110, 8)));
        let gone = [metered("dev", Some("main"))];
        assert_eq!(counted(&gone, &emptied), [("dev".to_owned(), 110, 0)]);
        let former = [metered("dev", None)];
        assert_eq!(counted(&former, &emptied), [("dev".to_owned(), 110, 0)]);
    }

    #[test]
    fn nothing_is_said_of_what_was_not_measured_yet() {
        let family = [metered("main", None), metered("dev", Some("main"))];
        assert_eq!(counted(&family, &[("dev", 110, Some(100))]), []);
    }
}
