//! A server on which somebody keeps others from what belongs to PostgreSQL itself.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use chrono::Utc;
use coppice_core::{ApiKeyId, VolumeId};
use coppice_engine::{Answer, Engine};

use crate::server::Running;
use crate::storage::run;

impl Running {
    fn prepare(&self, database: &str, name: &str, sql: &str) {
        let sql = format!("BEGIN; {sql}; PREPARE TRANSACTION '{name}'");
        let mut psql = self.program("psql");
        run(psql.args(["--username=writer", "-Xq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", &sql]));
    }

    fn prepared(&self) -> String {
        self.value("SELECT string_agg(gid, ' ' ORDER BY gid) FROM pg_prepared_xacts")
    }

    /// A session that locks a view, and what is below it, for as long as it lives.
    fn hold(&self, role: &str, database: &str, view: &str) -> Holder {
        let sql = format!("BEGIN; LOCK TABLE {view}; SELECT pg_sleep(100000)");
        let mut psql = self.program("psql");
        psql.arg(format!("--username={role}")).args(["-Xq", "-d", database, "-c", &sql]);
        Holder(psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Measures until there is reason to look closer.
    async fn wait_for_doubt(&self) {
        let volume = VolumeId::generate(Utc::now());
        let deadline = Instant::now() + PATIENCE;
        while self.engine.has_answered(&self.instance) {
            assert!(Instant::now() < deadline, "it is noticed");
            self.engine.measure(&self.instance, &volume).await;
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

struct Holder(Child);

impl Holder {
    fn wait_for_end(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it ends");
            std::thread::yield_now();
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_others_from_a_view_of_postgres_is_noticed_and_rolled_back_and_nothing_else() {
    let running = Running::start();
    let (engine, instance) = (&running.engine, &running.instance);
    let volume = VolumeId::generate(Utc::now());
    running.sql("CREATE ROLE writer LOGIN");
    running.sql("CREATE DATABASE shut");
    running.sql("CREATE TABLE t (i int); ALTER TABLE t OWNER TO writer");
    running.prepare(
        "postgres",
        "innocent",
        "LOCK TABLE t; INSERT INTO t VALUES (1); ALTER TABLE t ADD j int",
    );
    assert!(engine.measure(instance, &volume).await.server.is_some());
    assert!(engine.has_answered(instance));

    running.prepare("postgres", "own", "LOCK TABLE pg_settings");
    assert!(engine.measure(instance, &volume).await.server.is_some());
    assert!(!engine.has_answered(instance), "it is looked at");
    assert_eq!(engine.ask_whether_it_answers(instance).await, Answer::Answers);
    assert_eq!(running.prepared(), "innocent");
    engine.measure(instance, &volume).await;
    assert!(engine.has_answered(instance));

    running.prepare("shut", "own", "LOCK TABLE pg_settings IN SHARE MODE");
    running.sql("ALTER DATABASE shut ALLOW_CONNECTIONS false");
    assert_eq!(engine.ask_whether_it_answers(instance).await, Answer::IsHeld);
    assert_eq!(running.prepared(), "innocent own");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_keeps_everybody_from_the_roles_is_noticed_on_a_session_that_is_open() {
    let running = Running::start();
    let (engine, instance) = (&running.engine, &running.instance);
    let volume = VolumeId::generate(Utc::now());
    running.sql("CREATE ROLE writer LOGIN; GRANT pg_write_all_data TO writer");
    assert!(engine.measure(instance, &volume).await.server.is_some());
    running.prepare("postgres", "own", "LOCK TABLE pg_group");
    assert!(engine.measure(instance, &volume).await.server.is_some());
    assert!(!engine.has_answered(instance), "it is looked at");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_keeps_everybody_out_is_ended_and_who_builds_catalogues_anew_is_not() {
    let running = Running::start();
    let (engine, instance) = (&running.engine, &running.instance);
    let volume = VolumeId::generate(Utc::now());
    let key = ApiKeyId::generate(Utc::now());
    for role in ["writer", key.as_str()] {
        running.sql(&format!("CREATE ROLE {role} LOGIN; GRANT pg_write_all_data TO {role}"));
    }
    running.sql("CREATE DATABASE other");
    // What every sign-in reads; and a catalogue of the platform's own database.
    for view in ["pg_group", "pg_shadow", "pg_stat_database_conflicts", "pg_stat_user_functions"] {
        engine.measure(instance, &volume).await;
        assert!(engine.has_answered(instance), "{view}");
        let mut holder = running.hold("writer", "postgres", view);
        running.wait_for_doubt().await;
        assert_eq!(engine.ask_whether_it_answers(instance).await, Answer::Answers, "{view}");
        holder.wait_for_end();
        running.sql("SELECT 1");
    }

    // In another database a login is ended, and nobody else.
    let mut other = running.hold("writer", "other", "pg_settings");
    let mut login = running.hold(key.as_str(), "other", "pg_timezone_names");
    let deadline = Instant::now() + PATIENCE;
    let locks = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation < 16384";
    while running.value(locks) != "2" {
        assert!(Instant::now() < deadline, "both hold one");
    }
    running.wait_for_doubt().await;
    assert_eq!(engine.ask_whether_it_answers(instance).await, Answer::Answers);
    login.wait_for_end();
    assert!(other.0.try_wait().unwrap().is_none(), "it goes on");
    running.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'writer'");
    other.wait_for_end();

    // A login ends with its key whatever it holds.
    assert_eq!(engine.ask_whether_it_answers(instance).await, Answer::Answers);
    assert!(engine.has_answered(instance));
    let mut login = running.hold(key.as_str(), "other", "pg_group");
    running.wait_for_doubt().await;
    engine.end_login(instance, &key).await.unwrap();
    login.wait_for_end();
    assert_eq!(running.value(&format!("SELECT count(*) FROM pg_roles WHERE rolname = '{key}'")), "0");
}
