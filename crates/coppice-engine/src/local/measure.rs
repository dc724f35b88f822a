//! What a server has done so far: one statement on a platform session, and a
//! look at its processes and its directory from outside.
//!
//! Releases count in different places; each has a statement of its own. What
//! the numbers mean is in `docs/metrics.md`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use coppice_core::statistics::{InstanceStatistics, Operations, ServerStatistics};
use coppice_core::{InstanceId, VolumeId};
use coppice_turns::{Behalf, Busy, Name, Turns, do_holding};
use parking_lot::Mutex;
use tokio_postgres::Row;

use super::own_relations::LOCKS_OWN_RELATION;
use super::server::Servers;
use super::session::Session;
use super::taken::{Inherited, Taken};
use super::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// How long a server, or a disk, may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// What was found longer ago than this, is not known any more: what was written
/// since may be anything. The sampler looks twice in it.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// For how long it counts that nothing was written since: of what is written among
/// the logs nobody tells.
const SURE_FOR: Duration = Duration::from_secs(300);
/// Directories that are measured at a time, and of one holder.
const PLACES: usize = 8;
const PLACES_OF_HOLDER: usize = 4;
/// Of them, places for those that took long the last time: however many there are of
/// them, all others find a place.
const SLOW_PLACES: usize = 4;
const SLOW_PLACES_OF_HOLDER: usize = 2;
/// What is long.
const SLOW: Duration = Duration::from_secs(1);

/// How often a directory is measured, so that one with many files takes nobody's
/// processor.
#[derive(Clone, Copy)]
struct Pace {
    /// For at most one part in so many of the time, as long as that makes the
    /// pauses no longer than `pause_max`: how long measuring takes is up to
    /// whoever makes the files.
    share: u32,
    pause_max: Duration,
}

const PACE: Pace = Pace { share: 100, pause_max: KNOWN_FOR };
/// The pace for a volume that may be near its limit.
const PACE_NEAR: Pace = Pace { share: 10, pause_max: Duration::from_secs(2) };

impl Pace {
    fn pause(&self, took: Duration) -> Duration {
        took.saturating_mul(self.share).min(self.pause_max)
    }
}

/// Sessions of clients: all but the platform's own, which is the first superuser. `%epoch%`, `%io%` and
/// `%wal%` are what differs between releases. A session that is open goes on being answered where
/// somebody has locked the roles.
const STATEMENT: &str = "
    SELECT sessions.*, io.*, wal.*, (SELECT %epoch%) AS epoch,
           CASE WHEN sessions.active + sessions.idle > 0 OR EXISTS (SELECT FROM pg_prepared_xact())
                THEN EXISTS (SELECT FROM pg_lock_status() WHERE %locks_own_relation%) ELSE false END AS is_held,
           CASE WHEN pg_is_in_recovery() THEN 0 ELSE (pg_current_wal_insert_lsn() - '0/0')::float8 END
               AS wal_position,
           CASE WHEN NOT pg_is_in_recovery() THEN NULL
                WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
                ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8 END
               AS replication_lag
    FROM (SELECT count(*) FILTER (WHERE state IN ('active', 'fastpath function call')) AS active,
                 count(*) FILTER (WHERE state LIKE 'idle%') AS idle
          FROM pg_stat_get_activity(NULL)
          WHERE backend_type = 'client backend'
            AND usesysid <> 10) sessions,
         (SELECT %io%) io, (SELECT %wal%) wal";

/// Before there is `pg_stat_io`: databases count reads, and the background
/// writer counts writes, of which only those of sessions are timed.
const IO_15: &str = "sum(blks_read)::float8 AS reads, sum(blks_read)::float8 * 8192 AS read_bytes,
    sum(blk_read_time) AS read_time, max(written) AS writes, max(written) * 8192 AS write_bytes,
    sum(blk_write_time) AS write_time, max(by_sessions) AS timed_writes
    FROM pg_stat_database, (SELECT (buffers_checkpoint + buffers_clean + buffers_backend)::float8 AS written,
                                   buffers_backend::float8 AS by_sessions FROM pg_stat_bgwriter) written";
/// Every operation is of one block.
const IO_16: &str = "sum(reads)::float8 AS reads, sum(reads * op_bytes)::float8 AS read_bytes,
    sum(read_time) AS read_time, sum(coalesce(writes, 0) + coalesce(extends, 0))::float8 AS writes,
    sum((coalesce(writes, 0) + coalesce(extends, 0)) * op_bytes)::float8 AS write_bytes,
    sum(coalesce(write_time, 0) + coalesce(extend_time, 0)) AS write_time,
    sum(coalesce(writes, 0) + coalesce(extends, 0))::float8 AS timed_writes FROM pg_stat_io";
/// Operations have any size, and the WAL is among them.
const IO_18: &str = "sum(reads)::float8 AS reads, sum(read_bytes)::float8 AS read_bytes,
    sum(read_time) AS read_time, sum(coalesce(writes, 0) + coalesce(extends, 0))::float8 AS writes,
    sum(coalesce(write_bytes, 0) + coalesce(extend_bytes, 0))::float8 AS write_bytes,
    sum(coalesce(write_time, 0) + coalesce(extend_time, 0)) AS write_time,
    sum(coalesce(writes, 0) + coalesce(extends, 0))::float8 AS timed_writes FROM pg_stat_io";
const WAL_15: &str = "wal_write::float8 AS wal_writes, wal_bytes::float8 AS wal_bytes,
    wal_write_time AS wal_write_time, wal_sync::float8 AS wal_syncs, wal_sync_time AS wal_sync_time
    FROM pg_stat_wal";
const WAL_18: &str = "0::float8 AS wal_writes, 0::float8 AS wal_bytes, 0::float8 AS wal_write_time,
    sum(fsyncs)::float8 AS wal_syncs, sum(fsync_time) AS wal_sync_time
    FROM pg_stat_io WHERE object = 'wal' AND context = 'normal'";
const EPOCH_15: &str =
    "concat_ws(' ', (SELECT stats_reset FROM pg_stat_wal), (SELECT stats_reset FROM pg_stat_bgwriter))";
const EPOCH_16: &str =
    "concat_ws(' ', (SELECT stats_reset FROM pg_stat_wal), (SELECT max(stats_reset) FROM pg_stat_io))";

/// No server has counted more, whatever it says.
const COUNT_MAX: f64 = 1e18;

/// Name of the statement in sessions: planning it takes longer than answering.
const PREPARED: &str = "statistics";

fn statement(major: u32) -> String {
    let (io, wal, epoch) = match major {
        ..16 => (IO_15, WAL_15, EPOCH_15),
        16 | 17 => (IO_16, WAL_15, EPOCH_16),
        18.. => (IO_18, WAL_18, EPOCH_16),
    };
    let statement = STATEMENT.replace("%io%", io).replace("%wal%", wal).replace("%epoch%", epoch);
    statement.replace("%locks_own_relation%", LOCKS_OWN_RELATION)
}

/// What has been written to a directory, as far as that is told without looking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Written {
    /// Place in the WAL and number of writes, by the server.
    pub(super) by_server: (f64, f64),
    /// The volume's last change, by the file system, where it keeps that: code
    /// inside a server writes without telling. It may be half a minute late.
    pub(super) generation: Option<u64>,
}

/// The size of a directory as it was measured last.
struct DiskSize {
    bytes: u64,
    /// By then: where nothing was written since, nothing has changed.
    written: Option<Written>,
    inherited: Option<Inherited>,
    measured: Instant,
    took: Duration,
    /// When it was last known to be this.
    known: Instant,
}

/// Remembers what makes the next look cheap.
pub(super) struct Measuring {
    /// Sessions in which the statement is prepared, as [`PREPARED`].
    prepared: Mutex<HashMap<InstanceId, Weak<Session>>>,
    disks: Arc<Mutex<HashMap<VolumeId, DiskSize>>>,
    /// Volumes that are being measured, some of them perhaps for ever.
    measuring: Busy<VolumeId>,
    places: Turns<Name>,
    slow_places: Turns<Name>,
}

impl Default for Measuring {
    fn default() -> Self {
        Self {
            prepared: Mutex::default(),
            disks: Arc::default(),
            measuring: Busy::default(),
            places: Turns::new(PLACES, PLACES_OF_HOLDER),
            slow_places: Turns::new(SLOW_PLACES, SLOW_PLACES_OF_HOLDER),
        }
    }
}

impl Measuring {
    /// Forgets a volume that is gone.
    pub(super) fn forget(&self, volume: &VolumeId) {
        self.disks.lock().remove(volume);
    }

    /// Asks a server; one round trip, another one on a new session. Where somebody keeps others from
    /// PostgreSQL's own relations, the session is in doubt from then on.
    pub(super) async fn ask(
        &self,
        instance: &InstanceId,
        session: &Arc<Session>,
    ) -> Result<ServerStatistics> {
        let action = "reading statistics";
        let is_in = |known: &Weak<Session>| known.as_ptr() == Arc::as_ptr(session);
        let is_prepared = self.prepared.lock().get(instance).is_some_and(is_in);
        if !is_prepared {
            let prepare = format!("PREPARE {PREPARED} AS {}", statement(session.major()));
            session.execute(action, &prepare).await?;
            let mut prepared = self.prepared.lock();
            prepared.retain(|_, session| session.strong_count() > 0);
            prepared.insert(instance.clone(), Arc::downgrade(session));
        }
        let row = session.query_one(action, &format!("EXECUTE {PREPARED}"), &[]).await?;
        if row.try_get("is_held").map_err(EngineError::sql(action))? {
            session.doubt(true);
        }
        read(&row).map_err(EngineError::sql(action))
    }

    /// Looks at a server from outside. `server` is what it said itself.
    pub(super) async fn look(
        &self,
        servers: &Servers,
        instance: &InstanceId,
        (volume, data): (&VolumeId, UntrustedPath),
        generation: Option<u64>,
        server: Option<ServerStatistics>,
    ) -> InstanceStatistics {
        let Some(process) = servers.living(instance) else { return InstanceStatistics::default() };
        let (cpu_used, memory_bytes) = servers.usage(instance, process.pid);
        let by_server = server.as_ref().map(|server| (server.wal_position, server.writes.count));
        let written = by_server.map(|by_server| Written { by_server, generation });
        InstanceStatistics {
            process: format!("{}-{}", process.pid, process.start_time),
            cpu_used,
            memory_bytes,
            disk_bytes: self.disk_size(volume, servers.taken(instance, data), written, PACE).await,
            server,
        }
    }

    /// The size of a volume, unless what is known of it is old.
    pub(super) fn known_disk_size(&self, volume: &VolumeId) -> Option<u64> {
        let disks = self.disks.lock();
        disks.get(volume).filter(|size| size.known.elapsed() < KNOWN_FOR).map(|size| size.bytes)
    }

    /// The size of a volume that may be near its limit.
    pub(super) async fn disk_size_near_limit(&self, volume: &VolumeId, taken: Taken) -> Option<u64> {
        self.disk_size(volume, taken, None, PACE_NEAR).await
    }

    /// The size of a volume's directory, as it was before when measuring it does
    /// not end in time.
    async fn disk_size(
        &self,
        volume: &VolumeId,
        taken: Taken,
        written: Option<Written>,
        pace: Pace,
    ) -> Option<u64> {
        if let Some(known) = self.disks.lock().get_mut(volume) {
            if written.is_some() && known.written == written && known.measured.elapsed() < SURE_FOR {
                known.known = Instant::now();
                return Some(known.bytes);
            }
            if known.measured.elapsed() < pace.pause(known.took) {
                return Some(known.bytes);
            }
        }
        // What takes longer than anybody waits is known the next time.
        let measured = tokio::time::timeout(PATIENCE, self.size_now(volume, taken, written)).await;
        measured.ok().flatten().or_else(|| self.disks.lock().get(volume).map(|known| known.bytes))
    }

    /// The size of a volume's directory, by a turn of whoever it is measured for; none while that
    /// is under way already.
    async fn size_now(&self, volume: &VolumeId, taken: Taken, written: Option<Written>) -> Option<u64> {
        let work = self.measuring.begin(volume)?;
        let is_slow = self.disks.lock().get(volume).is_some_and(|known| known.took >= SLOW);
        let (disks, id) = (self.disks.clone(), volume.clone());
        let measure = move || {
            let started = Instant::now();
            let mut inherited = disks.lock().get(&id).and_then(|known| known.inherited);
            let bytes = taken.bytes_knowing(&mut inherited);
            let (measured, took) = (Instant::now(), started.elapsed());
            let size = DiskSize { bytes, written, inherited, measured, took, known: measured };
            disks.lock().insert(id, size);
            bytes
        };
        let (places, slow_places) = (self.places.clone(), self.slow_places.clone());
        let of = Behalf::current_name();
        // It keeps its place in the line when nobody waits for it any more.
        let look = tokio::spawn(async move {
            let slow_place = if is_slow { Some(slow_places.take(&of).await) } else { None };
            let place = places.take(&of).await;
            do_holding((slow_place, place, work), measure).await
        });
        look.await.ok()?.ok()
    }
}

/// Most characters of what tells one epoch of counters from another; a few times are.
const EPOCH_MAX: usize = 256;

/// What a server says to have counted, which may be no number; sums and differences of it are numbers.
fn counted(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, COUNT_MAX) }
}

fn read(row: &Row) -> std::result::Result<ServerStatistics, tokio_postgres::Error> {
    let number = |name: &str| Ok(row.try_get::<_, Option<f64>>(name)?.map_or(0.0, counted));
    let sessions = |name: &str| Ok(u32::try_from(row.try_get::<_, i64>(name)?).unwrap_or(u32::MAX));
    let [reads, wal_writes, wal_syncs] = [number("reads")?, number("wal_writes")?, number("wal_syncs")?];
    let lag: Option<f64> = row.try_get("replication_lag")?;
    Ok(ServerStatistics {
        epoch: row.try_get::<_, String>("epoch")?.chars().take(EPOCH_MAX).collect(),
        sessions_active: sessions("active")?,
        sessions_idle: sessions("idle")?,
        reads: Operations {
            count: reads,
            bytes: number("read_bytes")?,
            timed: reads,
            milliseconds: number("read_time")?,
        },
        writes: Operations {
            count: number("writes")? + wal_writes,
            bytes: number("write_bytes")? + number("wal_bytes")?,
            timed: number("timed_writes")? + wal_writes,
            milliseconds: number("write_time")? + number("wal_write_time")?,
        },
        wal_syncs: Operations {
            count: wal_syncs,
            bytes: 0.0,
            timed: wal_syncs,
            milliseconds: number("wal_sync_time")?,
        },
        replication_lag: lag.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok()),
        wal_position: number("wal_position")?,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// By a server that is not there.
    fn alone(data: &UntrustedPath) -> Taken {
        Taken::new(data.clone(), data.clone(), vec![])
    }

    #[test]
    fn what_is_no_number_is_none_of_what_is_shown() {
        let said = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 7.5];
        assert_eq!(said.map(counted), [0.0, COUNT_MAX, 0.0, 0.0, 7.5]);
    }

    #[tokio::test]
    async fn a_directory_whose_server_wrote_nothing_is_not_measured_again() {
        let home = tempfile::tempdir().expect("a directory");
        let data = UntrustedPath::new(home.path(), "data");
        fs::create_dir(data.host_path()).expect("a directory");
        let (measuring, volume) = (Measuring::default(), VolumeId::from_trusted("vol_1"));
        let size = async |by_server, generation| {
            let written = Written { by_server, generation: Some(generation) };
            measuring.disk_size(&volume, alone(&data), Some(written), PACE).await
        };
        assert_eq!(size((1.0, 1.0), 7).await, Some(0));
        fs::write(data.host_path().join("file"), [0; 8192]).expect("a file");
        assert_eq!(size((1.0, 1.0), 7).await, Some(0));
        let deadline = Instant::now() + Duration::from_secs(60);
        while size((2.0, 1.0), 7).await != Some(8192) {
            assert!(Instant::now() < deadline, "it is measured again after a while");
        }
        fs::write(data.host_path().join("secret"), [0; 8192]).expect("a file");
        while size((2.0, 1.0), 8).await != Some(16384) {
            assert!(Instant::now() < deadline, "also when its server does not tell that it wrote");
        }
    }

    /// What an hour of measuring found so many seconds ago: 5 bytes.
    fn found(seconds: u64) -> DiskSize {
        let known = Instant::now().checked_sub(Duration::from_secs(seconds)).expect("a time");
        let took = Duration::from_secs(3600);
        DiskSize { bytes: 5, written: None, inherited: None, measured: known, took, known }
    }

    #[test]
    fn what_was_found_long_ago_is_not_known() {
        let (measuring, volume) = (Measuring::default(), VolumeId::from_trusted("vol_1"));
        let known = |seconds| {
            measuring.disks.lock().insert(volume.clone(), found(seconds));
            measuring.known_disk_size(&volume)
        };
        assert_eq!((known(1), known(40)), (Some(5), None));
    }

    #[tokio::test]
    async fn also_a_directory_of_which_nobody_tells_is_measured_now_and_then() {
        let home = tempfile::tempdir().expect("a directory");
        let data = UntrustedPath::new(home.path(), "data");
        fs::create_dir(data.host_path()).expect("a directory");
        let (measuring, volume) = (Measuring::default(), VolumeId::from_trusted("vol_1"));
        let written = Some(Written { by_server: (1.0, 1.0), generation: None });
        let size = async |seconds| {
            measuring.disks.lock().insert(volume.clone(), DiskSize { written, ..found(seconds) });
            measuring.disk_size(&volume, alone(&data), written, PACE).await
        };
        assert_eq!((size(299).await, size(300).await), (Some(5), Some(0)));
    }

    #[tokio::test]
    async fn however_long_a_directory_takes_it_is_measured_again_soon() {
        let home = tempfile::tempdir().expect("a directory");
        let data = UntrustedPath::new(home.path(), "data");
        fs::create_dir(data.host_path()).expect("a directory");
        let (measuring, volume) = (Measuring::default(), VolumeId::from_trusted("vol_1"));
        let size = async |seconds, pace| {
            measuring.disks.lock().insert(volume.clone(), found(seconds));
            measuring.disk_size(&volume, alone(&data), None, pace).await
        };
        assert_eq!(size(0, PACE_NEAR).await, Some(5));
        assert_eq!(size(2, PACE_NEAR).await, Some(0));
        assert_eq!(size(2, PACE).await, Some(5));
        assert_eq!(size(30, PACE).await, Some(0));
    }

    #[tokio::test]
    async fn whoever_has_much_to_measure_leaves_places_for_others() {
        let home = tempfile::tempdir().expect("a directory");
        let data = UntrustedPath::new(home.path(), "data");
        fs::create_dir(data.host_path()).expect("a directory");
        let (measuring, volume) = (Measuring::default(), VolumeId::from_trusted("vol_1"));
        let size =
            |of: &'static str| Behalf::new(of).within(measuring.disk_size_near_limit(&volume, alone(&data)));
        let one: Name = "one".into();
        // Those that took long have their own.
        for (places, each, seconds) in [
            (&measuring.places, PLACES_OF_HOLDER, None),
            (&measuring.slow_places, SLOW_PLACES_OF_HOLDER, Some(60)),
        ] {
            let before =
                || seconds.map(|ago| (volume.clone(), found(ago))).into_iter().collect::<HashMap<_, _>>();
            let mut taken = vec![];
            for _ in 0..each {
                taken.push(places.take(&one).await);
            }
            *measuring.disks.lock() = before();
            assert_eq!(size("other").await, Some(0));
            *measuring.disks.lock() = before();
            assert!(tokio::time::timeout(Duration::from_millis(20), size("one")).await.is_err());
            assert!(measuring.measuring.has(&volume));
            drop(taken);
            let deadline = Instant::now() + Duration::from_secs(60);
            while measuring.measuring.has(&volume) {
                assert!(Instant::now() < deadline, "it is measured, though nobody waits");
                tokio::task::yield_now().await;
            }
            assert_eq!(measuring.known_disk_size(&volume), Some(0));
        }
    }

    #[tokio::test]
    async fn a_directory_whose_measuring_does_not_end_is_left_alone() {
        let (measuring, volume) = (Measuring::default(), VolumeId::from_trusted("vol_1"));
        let _work = measuring.measuring.begin(&volume).expect("nobody measures it");
        let tmp = alone(&UntrustedPath::new("/".as_ref(), "tmp"));
        let size = async || measuring.disk_size_near_limit(&volume, tmp.clone()).await;
        assert_eq!(size().await, None);
        measuring.disks.lock().insert(volume.clone(), found(60));
        assert_eq!(size().await, Some(5), "as it was before");
    }
}
