//! What is kept in the store, away from this machine.

mod making;
mod uses;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use coppice_archive::{
    Archive, ArchiveError, BaseName, Connection, Manifest, PIECE_BYTES_MAX, Records, StoreFailure,
};
use coppice_core::lsn::Lsn;
use coppice_core::organization::Holder;
use coppice_core::{Error, ErrorCode, HostId, Result, VolumeId};
use coppice_engine::SharedEngine;
use coppice_store::{BaseMoment, Store, StoredLog};
use coppice_turns::Turns;
use futures_util::future::join_all;
use parking_lot::Mutex;

pub(crate) use making::Making;
use uses::Uses;

use crate::metrics;
use crate::secrets::MasterKey;

/// A pack that no base names may belong to one in the making, of another process, too.
const PACK_GRACE: chrono::Duration = chrono::Duration::hours(48);
/// Exports of the metastore that are kept.
const RECORDS_KEPT: usize = 100;
/// Making an export takes at most this part of the time.
const EXPORT_SHARE: u32 = 20;
/// How often the newest base of each branch is read through.
const VERIFY_EVERY: Duration = Duration::from_secs(7 * 24 * 3600);
/// Pieces of logs that are written to the store at a time, …
const LOGS_AT_ONCE: usize = 8;
/// … and of one holder: one is free for others.
const LOGS_OF_HOLDER: usize = LOGS_AT_ONCE - 1;

/// What the tasks that write to the store remember from turn to turn.
#[derive(Debug, Default)]
struct Upkeep {
    /// Held while what nobody needs is removed, and what is there compared.
    bases: tokio::sync::Mutex<()>,
    /// Bases that are made, and read. They begin while nothing is removed, and what they need stays.
    uses: Uses,
    /// Once the records of bases are those of the store that this process has.
    compared: tokio::sync::OnceCell<()>,
    /// Objects with names of bases that can't be read, so are none.
    unreadable: Mutex<HashSet<BaseName>>,
    /// Until when branches rest that could not be backed up.
    resting: Mutex<HashMap<VolumeId, Instant>>,
    /// A mark of the newest export, and until when none is made.
    exported: Mutex<Option<(String, Instant)>>,
    /// Volumes that rest, with all of their logs in the store.
    complete: Mutex<HashSet<VolumeId>>,
    /// For the other volumes: when all of their logs was in the store.
    sent: Mutex<HashMap<VolumeId, Instant>>,
}

impl Upkeep {
    /// Volumes whose logs are to be in the store, those that are furthest behind first; one that is new here is
    /// behind from now on.
    fn begin_turn(&self, logs: Vec<StoredLog>) -> Vec<(StoredLog, Lsn)> {
        let (mut complete, mut sent, now) = (self.complete.lock(), self.sent.lock(), Instant::now());
        let resting: HashSet<_> =
            logs.iter().filter(|log| !log.is_up).map(|log| log.volume.clone()).collect();
        complete.retain(|volume| resting.contains(volume));
        let mut due: Vec<_> = logs.into_iter().filter(|log| !complete.contains(&log.volume)).collect();
        let before = std::mem::take(&mut *sent);
        sent.extend(
            due.iter()
                .map(|StoredLog { volume, .. }| (volume.clone(), before.get(volume).copied().unwrap_or(now))),
        );
        due.sort_by_key(|log| sent.get(&log.volume).copied());
        due.into_iter().filter_map(|log| log.stored.map(|stored| (log, stored))).collect()
    }

    /// Everything that a volume's log had at a time is in the store.
    fn reached(&self, log: &StoredLog, at: Instant) {
        if log.is_up {
            self.sent.lock().insert(log.volume.clone(), at);
        } else {
            self.sent.lock().remove(&log.volume);
            self.complete.lock().insert(log.volume.clone());
        }
    }

    /// For how long what a volume wrote may not be in the store; none when its log is
    /// not written there.
    fn lag(&self, volume: &VolumeId) -> Option<Duration> {
        if self.complete.lock().contains(volume) {
            return Some(Duration::ZERO);
        }
        self.sent.lock().get(volume).map(Instant::elapsed)
    }
}

/// What there is of bases.
struct Bases {
    listed: Vec<BaseName>,
    /// Recorded, and there, though the listing lacks them.
    unlisted: Vec<BaseName>,
    /// What keeps one of them from being recorded.
    problem: Result<()>,
}

fn failed(error: ArchiveError) -> Error {
    Error::internal(error.chain())
}

/// Reads a base and throws it away.
async fn read_base(archive: &Arc<Archive>, manifest: Manifest) -> Result<(), ArchiveError> {
    let reader = archive.clone();
    let read = tokio::task::spawn_blocking(move || reader.verify(&manifest)).await;
    read.map_err(|error| ArchiveError::Refused(error.to_string()))?
}

/// Reads the log behind a base, which goes as far as `stored` or further; where that is none, a gap
/// is known, and another base is due.
async fn read_log(archive: &Archive, manifest: &Manifest, stored: Option<Lsn>) -> Result<(), ArchiveError> {
    let pieces = match stored {
        Some(stored) => archive.whole_log(manifest, stored).await?,
        None => archive.log_behind(manifest, None).await?,
    };
    for piece in pieces {
        archive.get_log(&piece).await?;
    }
    Ok(())
}

/// What is wrong with what was read, for people; nothing when all is well.
fn damage_of(name: &str, read: Result<(), ArchiveError>) -> Result<String> {
    match read {
        Ok(()) => Ok(String::new()),
        Err(error @ ArchiveError::Damaged { .. }) => Ok(error.chain()),
        Err(error @ ArchiveError::Store { source: StoreFailure::NotFound { .. }, .. }) => {
            Ok(format!("{name} has lost something: {}", error.for_tenants()))
        }
        Err(error) => Err(failed(error)),
    }
}

/// What is kept away from this machine.
#[derive(Clone)]
pub struct Backups {
    store: Store,
    engine: SharedEngine,
    key: Arc<MasterKey>,
    /// Where, if anywhere.
    archive: Option<Arc<Connection>>,
    /// Whose branches are written there.
    host: HostId,
    /// How often what has changed is.
    interval: Duration,
    upkeep: Arc<Upkeep>,
    /// Pieces of logs, by whose they are.
    pieces: Turns<Holder>,
}

impl Backups {
    pub(crate) fn new(
        store: Store,
        engine: SharedEngine,
        key: Arc<MasterKey>,
        archive: Option<Arc<Connection>>,
        host: HostId,
        interval: Duration,
    ) -> Self {
        let pieces = Turns::new(LOGS_AT_ONCE, LOGS_OF_HOLDER);
        Self { store, engine, key, archive, host, interval, upkeep: Arc::default(), pieces }
    }

    /// For how long what a volume wrote may not be in the store, by its log or else by
    /// its newest base, which was last seen to have all at `base_seen_at`; none when
    /// nothing of it is there.
    pub(crate) fn lag_of(&self, volume: &VolumeId, base_seen_at: Option<DateTime<Utc>>) -> Option<Duration> {
        let since_base = || (Utc::now() - base_seen_at?).to_std().ok();
        self.archive.as_ref()?;
        self.upkeep.lag(volume).or_else(since_base)
    }

    /// The same of the volume that is furthest behind, among those whose logs are written
    /// there.
    pub fn lag(&self) -> Duration {
        self.upkeep.sent.lock().values().map(Instant::elapsed).max().unwrap_or_default()
    }

    /// Writes what is new of the logs of all branches into the store.
    pub(crate) async fn send_logs(&self) -> Result<()> {
        let Some(store) = &self.archive else { return Ok(()) };
        let due = self.upkeep.begin_turn(self.store.log_stored(&self.host).await?);
        if due.is_empty() {
            return Ok(());
        }
        let archive = store.archive().await.map_err(failed)?;
        archive.check_owner().await.map_err(failed)?;
        let (archive, end) = (&archive, Instant::now() + self.interval);
        let sent = due
            .into_iter()
            .map(|(log, stored)| async move { self.send_log(archive, &log, stored, end).await });
        join_all(sent).await.into_iter().collect()
    }

    /// Writes what a log has by now, piece by piece: others wait for their turn. What is
    /// left at `end` comes with the next one.
    async fn send_log(&self, archive: &Archive, log: &StoredLog, stored: Lsn, end: Instant) -> Result<()> {
        let StoredLog { branch, volume, .. } = log;
        let mut at = stored;
        loop {
            let _turn = self.pieces.take(&log.holder).await;
            let looked = Instant::now();
            if looked > end {
                return Ok(());
            }
            let bytes = match self.engine.log_from(volume, at).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    tracing::warn!(%branch, "the log of branch {branch} has a gap behind {at}: it gets a new base");
                    return Ok(self.store.log_lose(volume).await?);
                }
                Err(error) => {
                    tracing::warn!(%branch, "the log of branch {branch} can't be backed up: {}", error.chain());
                    return Ok(());
                }
            };
            if !bytes.is_empty() {
                archive.put_log(volume, Utc::now(), at, &bytes).await.map_err(failed)?;
                metrics::log_sent(bytes.len());
                let end = Lsn(at.0 + bytes.len() as u64);
                // Or what comes next was found to be lost meanwhile.
                if !self.store.log_advance(volume, at, end).await? {
                    return Ok(());
                }
                at = end;
            }
            // A full piece: there is more.
            if bytes.len() < PIECE_BYTES_MAX {
                self.upkeep.reached(log, looked);
                return Ok(());
            }
        }
    }

    /// Writes an export of the metastore into the store, unless nothing has changed.
    pub(crate) async fn send_records(&self) -> Result<()> {
        let Some(store) = &self.archive else { return Ok(()) };
        let (began, now) = (Instant::now(), Utc::now());
        let before = self.upkeep.exported.lock().clone();
        if before.as_ref().is_some_and(|(_, until)| *until > began) {
            return Ok(());
        }
        let mut export = vec![];
        self.store.export(&mut export).await?;
        // The first line says when it was made.
        let rows = export.iter().position(|byte| *byte == b'\n').map_or(&export[..], |end| &export[end..]);
        let mark = self.key.hash_bytes(rows);
        let mut thinned = Ok(());
        if before.is_none_or(|(before, _)| before != mark) {
            let archive = store.archive().await.map_err(failed)?;
            let records = Records { host: self.host.clone(), export };
            let newest = archive.put_records(&records, now).await.map_err(failed)?;
            // It is written, also where no older one may be removed.
            thinned = archive.thin_records(&newest, RECORDS_KEPT).await.map_err(failed);
        }
        *self.upkeep.exported.lock() = Some((mark, Instant::now() + began.elapsed() * EXPORT_SHARE));
        thinned
    }

    /// Reads through bases whose turn it is, and the log behind them. Fails as long as
    /// anything is known to be damaged.
    pub(crate) async fn verify_bases(&self) -> Result<()> {
        let Some(store) = &self.archive else { return Ok(()) };
        let archive = store.archive().await.map_err(failed)?;
        let alone = self.upkeep.bases.lock().await;
        let mut problem = self.compare_bases(&archive).await?.problem;
        drop(alone);
        let (mut lost, mut unread) = (vec![], vec![]);
        while let Some(name) = self.store.base_to_verify(VERIFY_EVERY, &unread).await? {
            match self.verify_base(&archive, &name).await {
                Ok(of_log) => lost.extend(of_log),
                Err(error) => {
                    // One object that can't be read keeps no other base from being verified.
                    archive.check_owner().await.map_err(failed)?;
                    problem = problem.and(Err(error));
                    unread.push(name);
                }
            }
        }
        let damage = match lost.pop() {
            Some(lost) => Some(lost),
            None => self.store.base_damage().await?,
        };
        damage.map_or(problem, |damage| Err(Error::internal(damage)))
    }

    /// Reads through a base, and the log behind it; returns what is wrong with that.
    async fn verify_base(&self, archive: &Arc<Archive>, name: &str) -> Result<Option<String>> {
        let base = BaseName::from_trusted(name);
        // Else it might be removed meanwhile.
        let _use = self.begin_use(None, vec![base.volume()]).await;
        // By now, so the store has it: what is noted was written before.
        let stored = self.store.log_stored_of(&base.volume()).await?;
        let mut lost = None;
        let read = match archive.manifest(&base).await {
            Ok(manifest) => {
                let of_log = damage_of(name, read_log(archive, &manifest, stored).await)?;
                if !of_log.is_empty() {
                    // It goes on behind the next base, which is due then.
                    self.store.log_lose(&base.volume()).await?;
                    tracing::error!("the log of volume {} gets a new base: {of_log}", base.volume());
                    lost = Some(of_log);
                }
                read_base(archive, manifest).await
            }
            Err(error) => Err(error),
        };
        self.store.base_verified(name, &damage_of(name, read)?).await?;
        Ok(lost)
    }

    /// Records what bases are there, and forgets those that are not: whoever made one may have
    /// ended before it said so, and a store may be another one than before, or have lost some.
    /// A listing that lacks one is not believed by itself, and nothing of a store that this process
    /// does not own: it may be away.
    async fn compare_bases(&self, archive: &Archive) -> Result<Bases> {
        archive.check_owner().await.map_err(failed)?;
        let (in_use, mut problem) = (self.upkeep.uses.now(), Ok(()));
        let listed = archive.all_bases().await.map_err(failed)?;
        let names: Vec<_> = listed.iter().map(ToString::to_string).collect();
        self.upkeep.unreadable.lock().retain(|base| listed.binary_search(base).is_ok());
        // Whoever is making one says so themselves.
        let made = listed.iter().filter(|base| !in_use.volumes.contains(&base.volume()));
        let (made, volumes): (Vec<_>, Vec<_>) =
            made.map(|base| (base.to_string(), base.volume().to_string())).unzip();
        for name in self.store.base_unrecorded(&made, &volumes).await? {
            let base = BaseName::from_trusted(name.as_str());
            // What is nobody's is told of once.
            if self.upkeep.unreadable.lock().contains(&base) {
                continue;
            }
            if let Err(error) = self.adopt_base(archive, base).await {
                // One object that can't be read keeps nothing else back, if the store can be.
                archive.check_owner().await.map_err(failed)?;
                tracing::warn!("the base {name} can't be looked at: {}", error.for_log());
                problem = problem.and(Err(error));
            }
        }
        let recorded = self.store.base_recorded_besides(&names).await?;
        let unlisted = recorded.iter().map(|name| BaseName::from_trusted(name.as_str())).collect();
        let unlisted = archive.bases_that_are_there(unlisted).await.map_err(failed)?;
        let there: HashSet<_> = unlisted.iter().map(BaseName::as_str).collect();
        let gone: Vec<_> = recorded.into_iter().filter(|name| !there.contains(name.as_str())).collect();
        if !gone.is_empty() {
            archive.check_owner().await.map_err(failed)?;
            let count = gone.len();
            tracing::warn!("{count} bases are not in the store any more: their branches get new ones");
            self.store.base_forget(&gone).await?;
            self.upkeep.complete.lock().clear();
        }
        Ok(Bases { listed, unlisted, problem })
    }

    /// Records a base that is there, if it can be read.
    async fn adopt_base(&self, archive: &Archive, base: BaseName) -> Result<()> {
        // A listing may lag behind a deletion, too.
        let Some(complete_at) = archive.completed_at(&base).await.map_err(failed)? else { return Ok(()) };
        let passed_over = |error: &ArchiveError| tracing::warn!("passed over: {}", error.chain());
        match archive.manifest_or_pass(&base, passed_over).await.map_err(failed)? {
            Some(_) => {
                let (volume, taken_at) = (base.volume(), base.taken_at());
                self.store.base_adopt(base.as_str(), &volume, taken_at, complete_at).await?;
            }
            None => drop(self.upkeep.unreadable.lock().insert(base)),
        }
        Ok(())
    }

    /// What the store has of a volume as it was at a time; none when that is nothing.
    ///
    /// # Errors
    /// `invalid_restore_target` when it lacks what was written by then
    pub(crate) async fn find_base(
        &self,
        volume: &VolumeId,
        until: DateTime<Utc>,
    ) -> Result<Option<BaseMoment>> {
        let Some(store) = &self.archive else { return Ok(None) };
        let Some(base) = self.store.base_before(volume, until).await? else { return Ok(None) };
        let archive = store.archive_for_requests().await.map_err(failed)?;
        let manifest = archive.manifest(&BaseName::from_trusted(base.as_str())).await.map_err(failed)?;
        match archive.log_behind(&manifest, Some(until)).await {
            Ok(_) => Ok(Some(BaseMoment { base, until })),
            Err(ArchiveError::OutOfReach(why)) => Err(Error::invalid(
                ErrorCode::InvalidRestoreTarget,
                format!("can't go back to {}: {why}; choose another time", until.to_rfc3339()),
            )),
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes from the store what nobody needs.
    pub(crate) async fn sweep(&self) -> Result<()> {
        let Some(store) = &self.archive else { return Ok(()) };
        let _alone = self.upkeep.bases.lock().await;
        // Nothing begins to be used until this is over; what ends meanwhile counts.
        let in_use = self.upkeep.uses.now();
        let archive = store.archive().await.map_err(failed)?;
        let mut found = self.compare_bases(&archive).await?;
        for name in self.store.base_surplus().await? {
            let base = BaseName::from_trusted(name.as_str());
            if in_use.volumes.contains(&base.volume()) {
                continue;
            }
            archive.remove_base(&base).await.map_err(failed)?;
            found.unlisted.retain(|base| base.as_str() != name);
            self.store.base_forget(&[name]).await?;
        }
        let oldest: HashMap<_, _> = self.store.base_oldest().await?.into_iter().collect();
        let has_base: HashSet<_> = found.listed.iter().map(BaseName::volume).collect();
        let logs = archive.logs().await.map_err(failed)?;
        for volume in logs.into_iter().filter(|volume| !in_use.volumes.contains(volume)) {
            let before = match oldest.get(&volume) {
                Some(oldest) => *oldest,
                // A base of a volume that no record knows.
                None if has_base.contains(&volume) => continue,
                None => Utc::now(),
            };
            archive.remove_log(&volume, before).await.map_err(failed)?;
        }
        let now = Utc::now();
        let since = in_use.since.unwrap_or(now).min(now);
        archive.sweep(&found.unlisted, since - PACK_GRACE).await.map_err(failed)?;
        Ok(())
    }
}
