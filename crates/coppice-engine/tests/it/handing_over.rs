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
