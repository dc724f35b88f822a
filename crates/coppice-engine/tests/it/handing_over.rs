//! A server that was handed over knows nobody who had it.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use coppice_engine::{Engine, EngineError};

use crate::server::{PATIENCE, Running};

/// A password as a server keeps it, which takes no time to make.
const VERIFIER: &str = "SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$\
    TWJVSlpjb2xscGJaYm1sUWJ0RkZnVGZ0Q2xYbVpnPT0=:TWJVSlpjb2xscGJaYm1sUWJ0RkZnVGZ0Q2xYbVpnPT0=";

/// A session of a role.
struct Session(Child);

impl Session {
    fn start(running: &Running, user: &str, statement: &str) -> Self {
        let mut psql = running.program("psql");
        psql.arg(format!("--username={user}")).args(["-X", "-d", "postgres", "-c", statement]);
        let session = Self(psql.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let asks =
            format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}' AND state = 'active'");
        wait_until("the session is there", || running.value(&asks) != "0");
        session
    }

    /// One that gives a role a password again and again.
    fn giving(running: &Running, user: &str) -> Self {
        let giving = format!(
            "DO $$BEGIN
                 LOOP
                     BEGIN
                         ALTER ROLE given PASSWORD '{VERIFIER}';
                     EXCEPTION WHEN OTHERS THEN
                         -- The engine was there at the same time.
                     END;
                     COMMIT;
                     PERFORM pg_sleep(0.001);
                 END LOOP;
             END$$"
        );
        let session = Self::start(running, user, &giving);
        let count = "SELECT count(rolpassword) FROM pg_authid WHERE rolname = 'given'";
        wait_until("a password is given", || running.value(count) == "1");
        session
    }

    fn wait_end(&mut self) {
        wait_until("the session ends", || self.0.try_wait().unwrap().is_some());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn more_roles_than_are_taken_at_once_have_no_password_after_a_session_that_gives_them_is_ended() {
    let running = Running::start();
    running.sql("CREATE ROLE former LOGIN CREATEROLE");
    running.sql("CREATE ROLE given LOGIN");
    running.sql(&format!(
        "DO $$BEGIN
             FOR number IN 1..10001 LOOP
                 EXECUTE format('CREATE ROLE role_%s PASSWORD %L', number, '{VERIFIER}');
             END LOOP;
         END$$"
    ));
    let mut giver = Session::giving(&running, "former");
    running.engine.lock_out(&running.instance).await.unwrap();
    giver.wait_end();
    assert_eq!(running.value("SELECT count(rolpassword) FROM pg_authid"), "0");
}

#[tokio::test]
async fn what_a_former_owner_prepared_or_hid_is_gone_with_them() {
    let running = Running::start();
    running.sql("CREATE ROLE former LOGIN CREATEROLE");
    running.sql("CREATE ROLE given LOGIN");
    running.sql("CREATE ROLE hidden LOGIN");
    let mut hidden = Session::start(&running, "hidden", "SELECT pg_sleep(1000)");
    running.sql("DROP ROLE hidden");
    let prepare = format!("BEGIN; ALTER ROLE given PASSWORD '{VERIFIER}'; PREPARE TRANSACTION 'later'");
    running.sql(&prepare);
    running.engine.lock_out(&running.instance).await.unwrap();
    hidden.wait_end();
    assert_eq!(running.value("SELECT count(*) FROM pg_prepared_xacts"), "0");
    assert_eq!(running.value("SELECT count(rolpassword) FROM pg_authid"), "0");
}

/// Names that roles of the platform's have.
const PLATFORMS: [&str; 2] = ["coppice_replica_99", "key_0123456789abcdefghijklmnop"];

#[tokio::test]
async fn a_session_whose_role_is_called_as_the_platforms_are_by_now_ends() {
    for (number, name) in PLATFORMS.into_iter().enumerate() {
        let running = Running::start();
        let former = format!("former_{number}");
        running.sql(&format!("CREATE ROLE {former} LOGIN"));
        for is_full in [true, false] {
            let mut session = Session::start(&running, &former, "SELECT pg_sleep(1000)");
            running.sql(&format!("ALTER ROLE {former} RENAME TO {name}"));
            match is_full {
                true => running.engine.end_sessions(&running.instance, false).await.unwrap(),
                false => running.engine.lock_out(&running.instance).await.unwrap(),
            }
            session.wait_end();
            running.sql(&format!("ALTER ROLE {name} RENAME TO {former}"));
        }
    }
}

#[tokio::test]
async fn what_analyzes_a_table_by_itself_and_writes_is_ended_as_sessions_are() {
    let running = Running::start();
    running.sql(
        "CREATE TABLE written (n int); CREATE TABLE analyzed (n int) WITH (autovacuum_analyze_threshold = 1)",
    );
    running.sql(
        "CREATE FUNCTION endless(n int) RETURNS int LANGUAGE plpgsql AS $$BEGIN
             IF NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
                            WHERE pid = pg_catalog.pg_backend_pid() AND backend_type = 'client backend') THEN
                 INSERT INTO public.written VALUES (n);
                 PERFORM pg_catalog.pg_sleep(1000);
             END IF;
             RETURN n;
         END$$ IMMUTABLE",
    );
    running.sql("CREATE INDEX ON analyzed (endless(n)); ALTER FUNCTION endless VOLATILE");
    running.sql("INSERT INTO analyzed SELECT generate_series(1, 100)");
    running.sql("ALTER SYSTEM SET autovacuum_naptime = '1s'");
    running.sql("SELECT pg_reload_conf()");
    let writing = "SELECT count(*) FROM pg_stat_activity
                   WHERE backend_type = 'autovacuum worker' AND backend_xid IS NOT NULL";
    wait_until("it writes", || running.value(writing) == "1");
    running.sql("ALTER SYSTEM SET autovacuum = 'off'");
    running.sql("SELECT pg_reload_conf()");
    running.engine.end_sessions(&running.instance, true).await.unwrap();
    wait_until("it is ended", || running.value(writing) == "0");
}

#[tokio::test]
async fn a_session_that_begins_while_the_lock_is_waited_for_ends_whatever_its_role_is_called() {
    let running = Running::start();
    running.sql("CREATE ROLE former LOGIN CREATEROLE");
    running.sql("CREATE ROLE late LOGIN");
    // Holds the lock up, and gives the role another name as soon as it has a session.
    let renaming = format!(
        "DO $$BEGIN
             CREATE ROLE other;
             LOOP
                 PERFORM pg_stat_clear_snapshot();
                 EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'late');
             END LOOP;
             ALTER ROLE late RENAME TO {};
         END$$",
        PLATFORMS[1]
    );
    let mut holder = Session::start(&running, "former", &renaming);
    let waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'pg_authid'::regclass AND NOT granted";
    let begin = async {
        while running.value(waiting) == "0" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut psql = running.program("psql");
        psql.args(["--username=late", "-X", "-d", "postgres", "-c", "SELECT pg_sleep(1000)"]);
        Session(psql.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let (mut late, done) = tokio::join!(begin, running.engine.lock_out(&running.instance));
    done.unwrap();
    holder.wait_end();
    late.wait_end();
}

#[tokio::test]
async fn a_server_on_which_passwords_are_given_without_an_end_is_held() {
    let running = Running::start();
    running.sql("CREATE ROLE given LOGIN");
    // What runs as the platform is not ended.
    let _giver = Session::giving(&running, "platform");
    let done = running.engine.lock_out(&running.instance).await;
    assert!(
        matches!(&done, Err(EngineError::Held { transactions, .. }) if transactions.is_empty()),
        "{done:?}"
    );
}
