//! Drills: a base is restored for proof.
//!
//! What comes out of the store is put where no volume is, and a server of no
//! branch is started on it, as confined as any other, for the platform's sessions
//! alone. Nobody finds it: it has no row, and lets no role of an owner in. What an
//! owner made is looked at, never run with more rights than theirs: amcheck acts as
//! the owner of what it looks at.

use std::time::{Duration, Instant};

use coppice_core::InstanceId;
use coppice_core::backup::{DrillReport, DrillResult};
use coppice_core::lsn::Lsn;
use coppice_core::storage::Fullness;
use coppice_failpoint::failpoint;
use tokio::runtime::Handle;
use tokio_postgres::types::Type;

use super::bases::StoredBase;
use super::blocking::blocking;
use super::config::processes_max;
use super::connecting::Address;
use super::pace::GivesUp;
use super::process::controllers::Limits;
use super::server::ServerPlan;
use super::session::{Parameter, Patience, Session, column, named};
use super::{LocalEngine, control_file, first_start, limits};
use crate::{DrillPlan, EngineError, Result, StopMode};

/// The only one; no branch has such an instance.
const DRILL: &str = "drill";
/// Clear of the accounts of volumes, and of those that make templates.
const ACCOUNT: u32 = 65_200;
/// A drill that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(3600);
/// For so long, what was restored is looked at; what was not by then is not.
const LOOKING: Duration = Duration::from_secs(600);
/// What the server may have, and a tenth of the machine's stays free beside it.
const MEMORY: u64 = 512 << 20;
/// Of a hundred parts of the room for volumes, these stay free.
const FREE_SHARE: u64 = 15;
/// Beside this, whatever else runs comes first.
const CPU_WEIGHT: u32 = 10;
/// The same for what restores (nice(2)).
const NICE: i32 = 19;
/// Databases, and tables and indexes of each, of which is known what was looked at.
const LISTED_MAX: i64 = 100_000;
/// What the server has otherwise than its branch's: little memory.
const SETTINGS: [(&str, &str); 3] =
    [("shared_buffers", "64MB"), ("maintenance_work_mem", "64MB"), ("work_mem", "4MB")];

/// Tables, and indexes that amcheck knows. What is not logged is empty after recovery.
const RELATIONS: &str = "SELECT c.oid, c.relkind = 'i', c.relname FROM pg_class c
     LEFT JOIN pg_index x ON x.indexrelid = c.oid
     WHERE c.relpersistence = 'p'
       AND (c.relkind IN ('r', 'm', 't') AND c.relam = 2
            OR c.relkind = 'i' AND c.relam = 403 AND x.indisvalid AND x.indisready)
     ORDER BY random() LIMIT $1";

/// What was looked at.
#[derive(Default)]
struct Looked {
    databases: u64,
    /// Of those, which there was time for.
    opened: u64,
    relations: u64,
    sound: u64,
}

impl Looked {
    /// What came of it where all is sound, and the log goes so far.
    fn told(&self, end: Option<Lsn>) -> String {
        let Self { databases, opened, relations, sound } = self;
        let of_how_many = match opened < databases {
            true => format!("{opened} of {databases} databases"),
            false => format!("{databases} databases"),
        };
        let log = end.map(|end| format!("; its log goes to {end}")).unwrap_or_default();
        format!(
            "its server answers; of {relations} tables and indexes in {of_how_many}, {sound} were looked at and are \
             sound{log}"
        )
    }
}

fn instance() -> InstanceId {
    InstanceId::from_trusted(DRILL)
}

/// Whether the server says that its data is not what it wrote (SQLSTATE classes
/// `XX`, internal errors and corruption, and `58`, errors of files).
fn is_damage(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|state| ["XX", "58"].iter().any(|class| state.code().starts_with(class)))
}

fn report_of(error: &EngineError) -> DrillReport {
    let result = match error {
        EngineError::Damaged(_) | EngineError::StartFailed { .. } => DrillResult::Failed,
        EngineError::Sql { source, .. } if is_damage(source) => DrillResult::Failed,
        _ => DrillResult::Skipped,
    };
    DrillReport::new(result, error.chain())
}

impl LocalEngine {
    /// [`crate::Engine::drill`]
    pub(super) async fn hold_drill(&self, plan: &DrillPlan) -> DrillReport {
        let Ok(_alone) = self.drill_lock.try_lock() else {
            return DrillReport::new(DrillResult::Skipped, "another drill goes on");
        };
        let held = async {
            self.remove_drill().await?;
            self.restore_and_look(plan).await
        };
        let done = tokio::time::timeout(PATIENCE, held).await;
        if let Err(error) = self.remove_drill().await {
            tracing::warn!("removing what a drill restored: {}", error.chain());
        }
        match done {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => report_of(&error),
            Err(_) => {
                let minutes = PATIENCE.as_secs() / 60;
                DrillReport::new(DrillResult::Skipped, format!("it took longer than {minutes} minutes"))
            }
        }
    }

    /// Removes what a drill left that nobody waits for any more: one of an earlier
    /// process, or one whose task was ended.
    ///
    /// # Errors
    /// When a process does not end, or something can't be deleted.
    pub async fn end_drill(&self) -> Result<()> {
        let _alone = self.drill_lock.lock().await;
        self.remove_drill().await
    }

    async fn remove_drill(&self) -> Result<()> {
        self.host.servers.stop(&instance(), Some(&self.volumes.drill_data()), StopMode::Immediate).await?;
        let (host, volumes) = (self.host.clone(), self.volumes.clone());
        blocking(move || {
            host.servers.remove(&instance())?;
            volumes.remove_drill()
        })
        .await
    }

    async fn restore_and_look(&self, plan: &DrillPlan) -> Result<DrillReport> {
        let mut base = self.find_base(&plan.base, plan.version, None).await?;
        if let Some(stored) = plan.log_stored {
            base.require_log(stored).await?;
        }
        if let Some(why) = self.want_of_room(base.bytes()).await? {
            return Ok(DrillReport::new(DrillResult::Skipped, why));
        }
        let end = self.restore_for_drill(base).await?;
        failpoint!("drill.restored");
        self.start_drill(plan).await?;
        failpoint!("drill.started");
        if let Some(end) = end {
            let data = self.volumes.drill_data();
            let reached = blocking(move || control_file::checkpoint(&data)).await?.at;
            if reached < end {
                return Err(EngineError::Damaged(format!("recovery ended at {reached}, before {end}")));
            }
        }
        let looked = self.look_around(plan.version.major, Instant::now() + LOOKING).await?;
        failpoint!("drill.looked");
        Ok(DrillReport::new(DrillResult::Passed, looked.told(end)))
    }

    /// Why there is no room for so much, or no memory; none when there is.
    async fn want_of_room(&self, bytes: u64) -> Result<Option<String>> {
        let needed = MEMORY + self.host.capacity().memory_bytes / 10;
        let available = self.host.available_memory();
        if available < needed {
            let [available, needed] = [available, needed].map(|bytes| bytes >> 20);
            return Ok(Some(format!("{available} MiB of memory are free, and {needed} should be")));
        }
        let volumes = self.volumes.clone();
        let usage = blocking(move || volumes.usage()).await?;
        let rest = usage.total_bytes / 100 * FREE_SHARE;
        if usage.free_bytes < bytes.saturating_add(rest) {
            let [free, bytes] = [usage.free_bytes, bytes].map(|bytes| bytes >> 20);
            return Ok(Some(format!(
                "{free} MiB are free for volumes: with {bytes} MiB more, less than {FREE_SHARE} percent would be"
            )));
        }
        Ok(None)
    }

    /// Restores on a thread of its own, which everything else goes before. Tells where
    /// the log ends.
    async fn restore_for_drill(&self, base: StoredBase) -> Result<Option<Lsn>> {
        let gives_up = GivesUp::default();
        let pace = gives_up.gentle();
        let (volumes, runtime) = (self.volumes.clone(), Handle::current());
        let (tell, told) = tokio::sync::oneshot::channel();
        let work = move || {
            let _within = runtime.enter();
            // Of this thread alone, on Linux.
            let _ = rustix::process::nice(NICE);
            let restored = volumes.fill_drill(|data| {
                base.restore_into(data, &pace)?;
                base.append_log_to(data, &pace)
            });
            let _ = tell.send(restored);
        };
        let thread = std::thread::Builder::new().name(DRILL.to_owned());
        thread.spawn(work).map_err(EngineError::io("beginning a drill"))?;
        told.await.map_err(|_| EngineError::Other("restoring for a drill panicked".to_owned()))?
    }

    async fn start_drill(&self, plan: &DrillPlan) -> Result<()> {
        let (image, data) = (self.host.image(plan.version)?, self.volumes.drill_data());
        let inherited = data.clone();
        blocking(move || first_start::remove_inherited_files(&inherited)).await?;
        let own = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings: Vec<_> = plan.settings.iter().cloned().chain(own).collect();
        let (instance, cpu_millis) = (instance(), 1000);
        let server = ServerPlan {
            instance: &instance,
            image: &image,
            data: &data,
            account: ACCOUNT,
            limits: Limits {
                cpu_millis,
                cpu_weight: CPU_WEIGHT,
                memory_bytes: MEMORY,
                processes_max: processes_max(&settings),
            },
            storage_bytes: Some(plan.storage_bytes),
            // So it lets nobody in but the platform, and does nothing by itself.
            fullness: Fullness::Shut,
            settings: &settings,
            preload_libraries: &plan.preload_libraries,
            is_first_start: true,
            follows: None,
        };
        self.host.servers.start(&server).await?;
        limits::limit_soon(&self.host, &instance);
        Ok(())
    }

    /// Looks at what is in every database that can be connected to, in no order, until a time.
    async fn look_around(&self, major: u32, until: Instant) -> Result<Looked> {
        let address = self.address(&instance());
        let session = address.open(Patience::QUESTION).await?;
        let query = "SELECT datname FROM pg_database WHERE datallowconn ORDER BY random() LIMIT $1";
        let rows = session.query("listing databases", query, &[(&LISTED_MAX, Type::INT8)]).await?;
        let mut looked = Looked::default();
        for row in &rows {
            let Some(database) = named(row, 0)? else { continue };
            looked.databases += 1;
            // To open one takes time, too, and its owner may have made very many.
            if Instant::now() >= until {
                continue;
            }
            looked.opened += 1;
            match look_inside(&address, &database, major, until, &mut looked).await {
                // One table may be too large for it.
                Err(EngineError::NoAnswer(_)) => {}
                done => done?,
            }
        }
        Ok(looked)
    }
}

/// Looks at tables and indexes of a database, in no order, so that each has its turn
/// in some drill.
async fn look_inside(
    address: &Address,
    database: &str,
    major: u32,
    until: Instant,
    looked: &mut Looked,
) -> Result<()> {
    let session = address.open_inside(database, major, Patience::LOOK).await?;
    let relations = session.query("listing tables", RELATIONS, &[(&LISTED_MAX, Type::INT8)]).await?;
    looked.relations += relations.len() as u64;
    let available = "SELECT FROM pg_available_extensions WHERE name = 'amcheck'";
    if session.query_opt("looking for amcheck", available, &[]).await?.is_none() {
        return Ok(());
    }
    // The server itself can't load libraries; in this schema nobody else can make functions.
    let take =
        "SET dynamic_library_path = '$libdir'; CREATE EXTENSION IF NOT EXISTS amcheck SCHEMA pg_catalog";
    session.execute("taking amcheck", take).await?;
    for relation in &relations {
        if Instant::now() >= until {
            break;
        }
        let oid: u32 = column(relation, 0)?;
        let name = named(relation, 2)?.unwrap_or_else(|| oid.to_string());
        let what = format!("looking at {name} in database {database}");
        look_at(&session, &what, oid, column(relation, 1)?).await?;
        looked.sound += 1;
    }
    Ok(())
}

async fn look_at(session: &Session, what: &str, oid: u32, is_index: bool) -> Result<()> {
    let parameters: [Parameter<'_>; 1] = [(&oid, Type::OID)];
    if is_index {
        return session.query(what, "SELECT bt_index_check($1::regclass)", &parameters).await.map(drop);
    }
    let query =
        "SELECT coalesce(blkno, 0), msg FROM verify_heapam($1::regclass, on_error_stop => true) LIMIT 1";
    let Some(row) = session.query_opt(what, query, &parameters).await? else { return Ok(()) };
    let (block, message): (i64, _) = (column(&row, 0)?, named(&row, 1)?.unwrap_or_default());
    Err(EngineError::Damaged(format!("{what}: block {block}: {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_was_no_time_for_is_told() {
        let all = Looked { databases: 3, opened: 3, relations: 382, sound: 382 };
        let told =
            "its server answers; of 382 tables and indexes in 3 databases, 382 were looked at and are sound";
        assert_eq!(all.told(None), told);
        let some = Looked { databases: 5000, opened: 12, relations: 400, sound: 380 };
        assert_eq!(
            some.told(Some(Lsn(0x300_0060))),
            "its server answers; of 400 tables and indexes in 12 of 5000 databases, 380 were looked at and are sound; \
             its log goes to 0/3000060"
        );
    }
}
