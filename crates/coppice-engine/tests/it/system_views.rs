//! Nobody writes through PostgreSQL's own views, or gets into `template1`, also not on a server that is older than that.

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use coppice_core::VolumeId;
use coppice_engine::Engine;

use crate::server::{PATIENCE, Running};

/// Those that are views on one table of the superuser's.
const WRITES: [&str; 3] = [
    "UPDATE pg_group SET groname = groname",
    "UPDATE pg_stat_database_conflicts SET datname = datname",
    "DELETE FROM information_schema.enabled_roles WHERE false",
];

impl Running {
    fn psql(&self, user: &str, database: &str, sql: &str) -> Command {
        let mut psql = self.program("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", user, "-d", database, "-c", sql]);
        psql.stdout(Stdio::null()).stderr(Stdio::null());
        psql
    }

    fn can(&self, user: &str, database: &str, sql: &str) -> bool {
        self.psql(user, database, sql).status().unwrap().success()
    }

    fn writer_can(&self, database: &str, sql: &str) -> bool {
        self.can("writer", database, sql)
    }

    /// A transaction that has looked at a view, and does not end.
    fn hold_a_view(&self) -> Child {
        let sql = "BEGIN; SELECT count(*) FROM pg_group; SELECT pg_sleep(100000)";
        let child = self.psql("writer", "postgres", sql).spawn().unwrap();
        let asks = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'writer' AND query LIKE '%100000%'";
        let deadline = Instant::now() + PATIENCE;
        while self.value(asks) == "0" {
            assert!(Instant::now() < deadline, "the session is not there");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        child
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_of_an_older_server_are_closed_in_every_database() {
    let running = Running::start();
    let volume = VolumeId::generate(chrono::Utc::now());
    let data = running.engine.storage().data_dir(&volume);
    std::fs::create_dir_all(data.host_path()).unwrap();
    std::fs::write(data.host_path().join("PG_VERSION"), "15").unwrap();
    running.sql("CREATE ROLE writer LOGIN; GRANT pg_write_all_data TO writer");
    running.sql("CREATE ROLE app LOGIN CREATEDB");
    running.sql("CREATE DATABASE shut");
    assert!(running.writer_can("template1", "SELECT 1"));
    assert!(WRITES.iter().all(|write| running.writer_can("shut", write)));
    running.sql("ALTER DATABASE shut ALLOW_CONNECTIONS false");
    // As a process leaves it that ends while it is about that.
    running.sql("ALTER DATABASE template0 ALLOW_CONNECTIONS true");
    let mut holder = running.hold_a_view();

    running.engine.close_system_views(&running.instance, &volume).await.unwrap();
    assert!(!holder.wait().unwrap().success(), "it is ended");
    for role in ["writer", "app"] {
        assert_eq!(running.can(role, "template1", "SELECT 1"), role == "app", "{role} in template1");
    }
    assert!(running.can("app", "postgres", "CREATE DATABASE young"));
    running.sql("CREATE DATABASE younger TEMPLATE template0");
    running.sql("CREATE DATABASE youngest TEMPLATE shut");
    for database in ["postgres", "young", "younger", "youngest"] {
        for write in WRITES {
            assert!(!running.writer_can(database, write), "{database}: {write}");
        }
        assert!(running.writer_can(database, "SELECT groname, grolist FROM pg_group"));
    }
    let shut = "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database WHERE NOT datallowconn";
    assert_eq!(running.value(shut), "shut template0");

    // A file among its data, which goes along with every copy, says that it is done.
    let mark = data.host_path().join("coppice.closed");
    let whose = |path| std::fs::metadata(path).unwrap().uid();
    assert_eq!(whose(mark), whose(data.host_path().join("PG_VERSION")));
    running.sql("UPDATE pg_authid SET rolname = 'gone' WHERE rolname = 'pg_monitor'");
    running.engine.close_system_views(&running.instance, &volume).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_written_through_one_is_noticed() {
    let running = Running::start();
    let volume = VolumeId::generate(chrono::Utc::now());
    running.sql("CREATE ROLE writer LOGIN; GRANT pg_write_all_data TO writer");
    let gives = "UPDATE pg_group SET groname = 'gone' WHERE groname = 'pg_write_server_files'";
    assert!(running.writer_can("postgres", gives));
    std::fs::create_dir_all(running.engine.storage().data_dir(&volume).host_path()).unwrap();
    let said = running.engine.close_system_views(&running.instance, &volume).await.unwrap_err();
    assert!(said.to_string().contains("PostgreSQL's own roles"), "{said}");
    assert!(!running.writer_can("postgres", gives), "they are closed all the same");
}
