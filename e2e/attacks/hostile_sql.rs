//! Whatever an owner did by SQL, in whatever order, on whatever sessions: its
//! branch still gets a new password, sleeps, wakes, has children and replicas, is restarted,
//! reset and upgraded, or says why not, and goes.
//!
//! What is done depends on a seed alone, so a failure can be replayed; it says
//! how. `make hostile` goes on for as long as it is told to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coppice_test_support::{Platform, psql, wait_for};
use rand::rngs::ChaCha8Rng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::blocked_sessions::{MAKE_SQL_ASCII, at, oldest_and_newest};
use super::open_session::OpenSession;
use crate::branches::{change, describe, hibernate, path};
use crate::credentials::{rotate, url};

/// Longest time that one operation may take.
const SOON: Duration = Duration::from_secs(60);
/// As long as what copies all data.
const SLOWLY: Duration = Duration::from_secs(300);
/// A statement that takes longer waits for another one, and goes on.
const STATEMENT_PATIENCE: Duration = Duration::from_millis(500);
/// Rounds where nobody says for how long.
const ROUNDS: u64 = 4;
/// Statements of one round.
const STATEMENTS: usize = 18;

/// Who acts: a role and the database of its session.
const ACTORS: [(&str, &str); 8] = [
    ("app", "app"),
    ("app", "app"),
    ("app", "postgres"),
    ("app", "template1"),
    ("app", "x"),
    ("helper", "x"),
    ("app", SQL_ASCII),
    ("helper", SQL_ASCII),
];

/// A database in which any bytes are a name.
const SQL_ASCII: &str = "l";

/// What is there before anything else is done, so that most of the rest means
/// something.
const BEGINNING: &str = "CREATE ROLE helper LOGIN CREATEROLE CREATEDB PASSWORD 'helper'; GRANT helper TO app; \
    CREATE DATABASE x; CREATE SCHEMA evil; CREATE TABLE evil.t (i int)";

const STATEMENTS_OF_OWNERS: &[&str] = &[
    "ALTER ROLE app PASSWORD 'x'",
    "ALTER ROLE app PASSWORD NULL",
    "ALTER ROLE app NOLOGIN",
    "ALTER ROLE app CONNECTION LIMIT 0",
    "ALTER ROLE app VALID UNTIL '2001-01-01'",
    "ALTER ROLE app NOCREATEROLE NOCREATEDB NOINHERIT",
    "ALTER ROLE app SET local_preload_libraries = 'gone'",
    "ALTER ROLE app IN DATABASE postgres SET local_preload_libraries = 'gone'",
    "ALTER ROLE app SET role = 'helper'",
    "ALTER ROLE app SET default_transaction_read_only = on",
    "ALTER ROLE app SET search_path = evil",
    "ALTER ROLE app RENAME TO old",
    "ALTER ROLE helper RENAME TO app",
    "CREATE ROLE app LOGIN PASSWORD 'app'",
    "CREATE ROLE old",
    "DROP ROLE app",
    "REASSIGN OWNED BY app TO helper",
    "DROP OWNED BY app",
    "GRANT app TO helper",
    "GRANT app TO pg_monitor",
    "GRANT app TO old",
    "REVOKE pg_monitor, pg_signal_backend FROM app",
    "SET ROLE helper",
    "ALTER DATABASE app OWNER TO helper",
    "ALTER DATABASE app OWNER TO pg_database_owner",
    "ALTER DATABASE app OWNER TO pg_monitor",
    "ALTER DATABASE app ALLOW_CONNECTIONS false",
    "ALTER DATABASE app CONNECTION LIMIT 0",
    "ALTER DATABASE app IS_TEMPLATE true",
    "ALTER DATABASE app RENAME TO elsewhere",
    "ALTER DATABASE app SET local_preload_libraries = 'gone'",
    "ALTER DATABASE app SET role = 'helper'",
    "ALTER DATABASE app SET search_path = evil, pg_catalog",
    "ALTER DATABASE x ALLOW_CONNECTIONS false",
    "ALTER DATABASE x CONNECTION LIMIT 0",
    "ALTER DATABASE x RENAME TO y",
    "ALTER DATABASE x OWNER TO helper",
    "ALTER DATABASE x SET session_authorization = 'app'",
    "ALTER DATABASE x SET default_transaction_read_only = on",
    "ALTER DATABASE x SET statement_timeout = 1",
    "ALTER DATABASE x SET transaction_timeout = 1",
    "ALTER DATABASE x SET local_preload_libraries = 'gone'",
    "ALTER DATABASE x SET standard_conforming_strings = off",
    "DROP DATABASE x",
    "REVOKE ALL ON DATABASE app FROM PUBLIC, app",
    "REVOKE ALL ON DATABASE x FROM PUBLIC, app",
    "COMMENT ON DATABASE app IS 'mine'",
    "COMMENT ON ROLE app IS 'mine'",
    "DO $$BEGIN FOR i IN 1..300 LOOP EXECUTE format('CREATE ROLE %I LOGIN', i || clock_timestamp()::text); END LOOP; END$$",
    "CREATE FUNCTION evil.quote_ident(text) RETURNS text LANGUAGE sql AS 'SELECT 1 / 0'",
    "ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM app",
    "LOCK TABLE pg_catalog.pg_database IN ACCESS SHARE MODE",
    "INSERT INTO evil.t VALUES (1)",
    "SELECT pg_advisory_lock_shared(1)",
    "SELECT lo_create(0)",
];

/// What gives things names that are no UTF-8, in [`SQL_ASCII`].
const STATEMENTS_WITH_OTHER_NAMES: &[&str] = &[
    "DO $$BEGIN EXECUTE format('CREATE ROLE %I LOGIN PASSWORD %L', E'z\\xe2', 'z'); END$$",
    "DO $$BEGIN EXECUTE format('GRANT %I TO app', E'z\\xe2'); END$$",
    "DO $$BEGIN EXECUTE format('GRANT app TO %I', E'z\\xe2'); END$$",
    "DO $$BEGIN EXECUTE format('ALTER DATABASE app OWNER TO %I', E'z\\xe2'); END$$",
    "DO $$BEGIN EXECUTE format('ALTER DATABASE x RENAME TO %I', E'x\\xff'); END$$",
    "DO $$BEGIN EXECUTE format('ALTER DATABASE app RENAME TO %I', E'app\\xff'); END$$",
    "DO $$BEGIN EXECUTE format('ALTER ROLE app RENAME TO %I', E'app\\xff'); END$$",
    "DO $$BEGIN EXECUTE format('ALTER ROLE app IN DATABASE %I SET local_preload_libraries = %L', E'x\\xff', 'gone'); END$$",
];

/// How a statement ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Committed,
    LeftOpen,
    Prepared,
}

const ENDINGS: [Ending; 4] = [Ending::Committed, Ending::Committed, Ending::LeftOpen, Ending::Prepared];

#[derive(Clone, Copy, Debug)]
enum Operation {
    Rotate,
    MakeChild,
    SleepAndWake,
    Restart,
    Reset,
    Replicate,
    Upgrade,
}

const OPERATIONS: [Operation; 7] = [
    Operation::Rotate,
    Operation::MakeChild,
    Operation::SleepAndWake,
    Operation::Restart,
    Operation::Reset,
    Operation::Replicate,
    Operation::Upgrade,
];

#[test]
fn no_statements_of_an_owner_keep_its_branch_from_the_platform() {
    let set = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let number = |name: &str| set(name).map(|text| text.parse::<u64>().expect("a whole number"));
    let seconds = number("COPPICE_SOAK_SECONDS");
    let now = || u64::from(std::time::UNIX_EPOCH.elapsed().expect("a clock").subsec_nanos());
    let seed = number("COPPICE_SOAK_SEED").unwrap_or_else(|| if seconds.is_some() { now() } else { 1 });
    let coppice = oldest_and_newest();
    let started = Instant::now();
    for round in 0.. {
        let is_over = match seconds {
            Some(seconds) => started.elapsed() >= Duration::from_secs(seconds),
            None => round >= ROUNDS,
        };
        if is_over {
            break;
        }
        let replay = Replay(seed + round);
        Round::new(&coppice, seed + round).play();
        drop(replay);
    }
}

/// Says how to have the same again.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- to replay: make hostile SEED={} SECONDS=60", self.0);
        }
    }
}

struct Round<'a> {
    coppice: &'a Platform,
    random: ChaCha8Rng,
    branch: String,
    path: String,
    first_url: String,
    sessions: BTreeMap<(&'static str, &'static str), OpenSession>,
}

impl<'a> Round<'a> {
    fn new(coppice: &'a Platform, seed: u64) -> Self {
        let major = if seed.is_multiple_of(2) { "18" } else { "15" };
        println!("hostile: seed {seed}, PostgreSQL {major}");
        let branch = format!("round-{seed}");
        coppice.cli(&["branch", "create", &branch, "--image", &format!("postgres:{major}")]);
        let path = path(coppice, &branch);
        change(coppice, &path, &json!({ "scaleToZero": { "enabled": true } }));
        let first_url = url(coppice, &path).expect("a password");
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self { coppice, random, branch, path, first_url, sessions: BTreeMap::new() }
    }

    fn play(mut self) {
        let mut session = OpenSession::new(&self.first_url);
        session.run(BEGINNING);
        session.run(MAKE_SQL_ASCII);
        for number in 0..STATEMENTS {
            self.act(number);
        }
        let mut operations = OPERATIONS;
        operations.shuffle(&mut self.random);
        for operation in operations {
            let began = Instant::now();
            match operation {
                Operation::Rotate => self.rotate(),
                Operation::MakeChild => self.make_child(),
                Operation::SleepAndWake => {
                    hibernate(self.coppice, &self.path);
                    self.rotate();
                }
                Operation::Restart => {
                    let connections = json!({ "max_connections": "70" });
                    change(
                        self.coppice,
                        &self.path,
                        &json!({ "postgresConfigurationParameters": connections }),
                    );
                    self.rotate();
                }
                Operation::Reset => self.reset(),
                Operation::Replicate => {
                    for replicas in [1, 0] {
                        change(self.coppice, &self.path, &json!({ "replicas": replicas }));
                        self.wait_healthy(replicas + 1);
                    }
                }
                Operation::Upgrade => self.upgrade(),
            }
            println!("hostile:   {operation:?} took {:?}", began.elapsed());
        }
        self.delete(&self.branch);
    }

    /// One statement of somebody; what comes of it is theirs.
    fn act(&mut self, number: usize) {
        let actor = *ACTORS.choose(&mut self.random).expect("actors");
        let (role, database) = actor;
        let statements = match database {
            SQL_ASCII if self.random.random_bool(0.5) => STATEMENTS_WITH_OTHER_NAMES,
            _ => STATEMENTS_OF_OWNERS,
        };
        let statement = statements.choose(&mut self.random).expect("statements");
        let ending = *ENDINGS.choose(&mut self.random).expect("endings");
        let is_new = self.random.random_bool(0.35);
        let identifier = match database {
            SQL_ASCII => format!(r"E'held {number} \xff'"),
            _ => format!("'held {number}'"),
        };
        let sql = match ending {
            Ending::Committed => (*statement).to_owned(),
            Ending::LeftOpen => format!("BEGIN; {statement}"),
            Ending::Prepared => format!("BEGIN; {statement}; PREPARE TRANSACTION {identifier}"),
        };
        if is_new {
            self.sessions.remove(&actor);
        }
        let url = at(&self.url_of(role), database);
        let session = self.sessions.entry(actor).or_insert_with(|| OpenSession::new(&url));
        let said = session.run_within(&sql, STATEMENT_PATIENCE);
        println!("hostile:   {role} in {database}: {sql}");
        println!("hostile:     {}", said.unwrap_or_else(|| "(waits)".to_owned()));
    }

    fn url_of(&self, role: &str) -> String {
        if role == "app" {
            return self.first_url.clone();
        }
        let password = self.first_url.split([':', '@']).nth(2).expect("a password");
        self.first_url.replacen(password, role, 1).replacen("app.", &format!("{role}."), 1)
    }

    /// What its owner had begun may undo one; then it is asked for another.
    fn rotate(&self) {
        wait_for("a new password that works", SOON, || {
            rotate(self.coppice, &self.path);
            let now = url(self.coppice, &self.path).filter(|now| *now != self.first_url)?;
            signs_in(&now).then_some(())
        });
        assert!(!signs_in(&self.first_url), "the first password still works");
    }

    fn make_child(&self) {
        let child = format!("{}-child", self.branch);
        self.coppice.cli(&["branch", "create", &child, "--parent", &self.branch]);
        let child_path = path(self.coppice, &child);
        wait_for("the child lets its owner in", SOON, || {
            url(self.coppice, &child_path).filter(|url| signs_in(url))
        });
        self.delete(&child);
    }

    /// To what a child has, which is all the same.
    fn reset(&self) {
        let child = format!("{}-source", self.branch);
        self.coppice.cli(&["branch", "create", &child, "--parent", &self.branch]);
        self.coppice.cli(&["branch", "reset", &self.branch, "--from", &child, "--yes"]);
        self.wait_healthy(1);
        self.rotate();
        self.delete(&child);
    }

    /// What an owner did can be in its way; then the branch goes on as it was.
    fn upgrade(&self) {
        let body = json!({ "image": "postgres:18" });
        let (code, answer) = self.coppice.call("POST", &format!("{}/upgrade", self.path), Some(&body));
        match answer["id"].as_str() {
            Some("invalid_image") => return,
            _ => assert_eq!(code, 200, "{answer}"),
        }
        self.wait_healthy(1);
        println!("hostile:     {}", describe(self.coppice, &self.path)["status"]["message"]);
        self.rotate();
    }

    /// With so many instances.
    fn wait_healthy(&self, instances: usize) {
        wait_for("it is healthy", SLOWLY, || {
            let status = describe(self.coppice, &self.path)["status"].take();
            let is_whole = status["instanceReadyCount"] == instances && status["instanceCount"] == instances;
            (status["statusType"] == "STATUS_TYPE_HEALTHY" && is_whole).then_some(())
        });
    }

    fn delete(&self, branch: &str) {
        let path = path(self.coppice, branch);
        self.coppice.cli(&["branch", "delete", branch, "--purge", "--yes"]);
        let instances = self.coppice.data_dir().join("instances");
        let id = path.rsplit('/').next().expect("an id").to_owned();
        wait_for("nothing is left of it", SOON, || {
            (!instances.join(format!("{id}-1")).exists()).then_some(())
        });
    }
}

/// Whether the managed role gets in, also to its database if that still is there.
fn signs_in(url: &str) -> bool {
    let found = psql(&at(url, "postgres"), "SELECT count(*) FROM pg_database WHERE datname = 'app'");
    found.is_ok && (found.out == "0" || psql(url, "SELECT 1").is_ok)
}
