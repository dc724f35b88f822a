//! A server on which something prepared keeps others from what belongs to PostgreSQL itself.

use coppice_core::VolumeId;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_others_from_a_view_of_postgres_is_noticed_and_rolled_back_and_nothing_else() {
    let running = Running::start();
    let (engine, instance) = (&running.engine, &running.instance);
    let volume = VolumeId::generate(chrono::Utc::now());
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
    let volume = VolumeId::generate(chrono::Utc::now());
    running.sql("CREATE ROLE writer LOGIN; GRANT pg_write_all_data TO writer");
    assert!(engine.measure(instance, &volume).await.server.is_some());
    running.prepare("postgres", "own", "LOCK TABLE pg_group");
    assert!(engine.measure(instance, &volume).await.server.is_some());
    assert!(!engine.has_answered(instance), "it is looked at");
}
