//! Metering what branches use: saying that somebody is there, reading what the
//! machine and the gateway know, sealing hours.
//!
//! A turn that fails loses at most what there was to read in it: nothing is
//! written twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use coppice_core::usage::{LastTurn, Witness};
use coppice_core::{BranchId, Result};
use coppice_store::{UsageReading, UsageTurn};
use parking_lot::Mutex;

use crate::App;

/// What the clients of a branch were sent is remembered for so long after the
/// branch was last up.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);

/// What is known between two turns.
#[derive(Debug, Default)]
pub(crate) struct Metering {
    last: Mutex<Option<(DateTime<Utc>, Instant)>>,
    /// How many bytes clients of a branch had been sent, and when that was read.
    sent: Mutex<BTreeMap<BranchId, (u64, Instant)>>,
}

impl App {
    /// A turn of the meter: time counts until now, what branches use is read,
    /// and hours that are over are sealed.
    pub(crate) async fn meter_usage(&self, metering: &Metering) -> Result<()> {
        // Read first: then it is not later than the metastore's time.
        let begun = Instant::now();
        let last = *metering.last.lock();
        let last = last.map(|(at, seen)| LastTurn { at, ago: begun - seen });
        let turn = self.store.usage_turn(last).await?;
        *metering.last.lock() = Some((turn.now, begun));
        report(&turn);
        let readings = self.read_usage(metering).await?;
        if !readings.is_empty() {
            self.store.usage_note(&readings).await?;
        }
        while let Some(hour) = self.store.usage_seal().await? {
            tracing::info!("the usage of the hour {hour} is sealed");
        }
        Ok(())
    }

    /// Shortens what hours were made of.
    pub(crate) async fn purge_usage(&self) -> Result<()> {
        self.store.usage_purge().await?;
        Ok(())
    }

    async fn read_usage(&self, metering: &Metering) -> Result<Vec<UsageReading>> {
        let instances = self.store.metric_instances(&self.config.host).await?;
        let mut sent = metering.sent.lock();
        let now = Instant::now();
        // Replicas are metered as instances; what they store is the branch's own.
        let primaries = instances.into_iter().filter(|instance| instance.id.is_primary());
        let readings = primaries.map(|instance| {
            let bytes = self.clients.traffic(&instance.branch).to_clients;
            // What was sent before it is first seen may have been counted by an earlier process.
            let before =
                sent.insert(instance.branch.clone(), (bytes, now)).map_or(bytes, |(before, _)| before);
            UsageReading {
                storage_bytes: self.engine.known_disk_bytes(&instance.volume),
                egress_bytes: bytes.saturating_sub(before),
                branch: instance.branch,
            }
        });
        let readings = readings.collect();
        sent.retain(|_, (_, read)| now.duration_since(*read) < REMEMBERED);
        Ok(readings)
    }
}

/// Says which time does not count.
fn report(turn: &UsageTurn) {
    let UsageTurn { now, counted_until, witness } = turn;
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
