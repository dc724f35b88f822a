//! The metastore of histories: a real PostgreSQL whose clock is the
//! simulation's.
//!
//! The platform's statements ask `now()` for the time, and the meter asks
//! `clock_timestamp()`. Here these names find functions of the database's own,
//! which read a file that the simulation writes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use coppice_store::{ConnectOptions, Store};
use coppice_test_support::Postgres;
use tempfile::TempDir;

use crate::backend::Backend;

/// Only the owner of the directory reaches the socket.
const HBA: &str = "local all all trust\n";
/// Nothing of it has to outlive the run, and nothing comes at a time of its own.
const SETTINGS: &str = "alter system set fsync = off;
    alter system set synchronous_commit = off;
    alter system set full_page_writes = off;
    alter system set autovacuum = off;
    alter system set deadlock_timeout = '20ms';
    select pg_reload_conf()";
/// After so many histories, what they left is cleared away.
const VACUUM_EVERY: u32 = 50;

/// See the module.
pub struct Metastore {
    server: Arc<Postgres>,
    database: String,
    clock: File,
    /// Where sockets of histories can be. Not beside the server's: it is removed with the server, by whom that runs as.
    links: TempDir,
    histories: u32,
    pub(crate) admin: Backend,
    /// Sessions that no history uses now.
    pub(crate) spare: Vec<Backend>,
}

impl Metastore {
    /// A database of its own on the server of this run.
    ///
    /// # Panics
    /// When the server can't be started.
    pub fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = Postgres::shared(HBA);
        let socket = server.socket_dir().join(".s.PGSQL.5432");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let database = format!("simulation_{number}");
        let mut first = Backend::of_superuser(&socket, "postgres");
        for statement in SETTINGS.split(';') {
            first.query(statement);
        }
        first.query(&format!("create database {database}"));
        let clock_path = server.socket_dir().join(format!("clock-{number}"));
        let clock = File::create(&clock_path).expect("a writable directory");
        let mut admin = Backend::of_superuser(&socket, &database);
        admin.query(&format!(
            "create function public.now() returns timestamptz language sql stable
                 as $$ select pg_read_file('{}')::timestamptz $$;
             create function public.clock_timestamp() returns timestamptz language sql stable
                 as $$ select public.now() $$;
             alter database {database} set search_path = public, pg_catalog;
             alter database {database} set plan_cache_mode = force_generic_plan",
            clock_path.display()
        ));
        let links = coppice_test_support::directory("coppice-links-");
        let mut new = Self { server, database, clock, links, histories: 0, admin, spare: vec![] };
        new.set_clock(start_of_time());
        new.migrate();
        new.admin = Backend::of_superuser(&socket, &new.database);
        new
    }

    /// How the platform connects to a server in this directory.
    pub(crate) fn options(&self, socket_dir: &Path) -> ConnectOptions {
        let url = format!("postgres://postgres@localhost/{}?sslmode=disable", self.database);
        let options: ConnectOptions = url.parse().expect("a URL");
        options.socket(socket_dir)
    }

    /// Where sockets of histories can be.
    pub(crate) fn link_directory(&self) -> PathBuf {
        self.links.path().to_owned()
    }

    fn migrate(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let options = self.options(self.server.socket_dir());
            let store = Store::connect(options, Duration::from_secs(30)).await.expect("a connection");
            store.migrate().await.expect("the schema");
        });
    }

    /// Where the server's own socket is.
    pub(crate) fn socket(&self) -> PathBuf {
        self.server.socket_dir().join(".s.PGSQL.5432")
    }

    /// Makes it this time for every statement.
    pub(crate) fn set_clock(&self, time: DateTime<Utc>) {
        let text = time.format("%Y-%m-%d %H:%M:%S%.6f+00").to_string();
        self.clock.write_all_at(text.as_bytes(), 0).expect("a writable file");
    }

    /// Forgets what an earlier history left.
    pub(crate) fn clear(&mut self) {
        self.admin.query(
            "delete from organizations; delete from users; delete from branches; delete from projects; delete from instances;
             delete from volumes; delete from tombstones; delete from hosts; delete from installation;
             delete from awake_crashes; delete from awake_periods;
             delete from events; delete from event_feeds;
             delete from usage_periods; delete from usage_branches;
             alter sequence volume_accounts restart",
        );
        self.histories += 1;
        if self.histories.is_multiple_of(VACUUM_EVERY) {
            self.admin.query("vacuum");
        }
    }
}

/// The time at which every history begins.
pub(crate) fn start_of_time() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::days(24_000)
}
