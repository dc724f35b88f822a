//! An owner who holds what the platform needs on the server: locks, prepared
//! transactions, databases without connections, roles in each other's place.

use std::time::Duration;

use coppice_test_support::{Options, Platform, Signal, psql, signal, wait_for};
use serde_json::json;

use super::open_session::OpenSession;
use crate::branches::{change, hibernate, path, status};
use crate::credentials::{is_refused, rotate, url, wait_for_new};
use crate::setup::{PROGRAM, postgres_dir};

/// How long a story waits for what takes moments on a machine that does nothing else.
const SOON: Duration = Duration::from_secs(60);
const MAJORS: [&str; 2] = ["15", "18"];

/// A platform with the oldest and the newest release.
pub(super) fn oldest_and_newest() -> Platform {
    let newest = postgres_dir().join("18.4").display().to_string();
    let environment = vec![("COPPICE_POSTGRES_DIRS".to_owned(), newest)];
    // Stories knock with old passwords until a new one is there.
    let flags = ["--gateway-failures-per-minute", "100000"].map(str::to_owned).into();
    Platform::start(PROGRAM, Options { environment, flags, ..Options::default() })
}

/// Changes the managed role for some seconds without a pause.
const BUSY: &str = "DO $$BEGIN
    FOR i IN 1..1000000 LOOP
        BEGIN ALTER ROLE app CONNECTION LIMIT 50; EXCEPTION WHEN OTHERS THEN NULL; END;
        COMMIT;
        EXIT WHEN clock_timestamp() > statement_timestamp() + interval '8 s';
    END LOOP;
END$$";

fn make_branch(coppice: &Platform, major: &str) -> (String, String) {
    let name = format!("v{major}");
    coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
    let path = path(coppice, &name);
    change(coppice, &path, &json!({ "scaleToZero": { "enabled": true } }));
    (name, path)
}

/// In another database of the same server.
pub(super) fn at(url: &str, database: &str) -> String {
    let (server, query) = url.split_once('?').unwrap_or((url, ""));
    let (server, _) = server.rsplit_once('/').expect("a database");
    format!("{server}/{database}?{query}")
}

fn must(url: &str, sql: &str) -> String {
    let said = psql(url, sql);
    assert!(said.is_ok, "{sql}: {}", said.err);
    said.out
}

/// Rotates, and returns the new connection string, which works; the old one
/// does not.
fn rotates_soon(coppice: &Platform, path: &str, before: &str) -> String {
    let began = std::time::Instant::now();
    rotate(coppice, path);
    let after = wait_for_new(coppice, path, before);
    let works = || Some(psql(&after, "SELECT 1")).filter(|said| said.is_ok);
    wait_for("the new password works", SOON, works);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert!(is_refused(before));
    after
}

fn makes_a_child(coppice: &Platform, parent: &str, child: &str) {
    coppice.cli(&["branch", "create", child, "--parent", parent]);
    let answers =
        || Some(coppice.psql(child, "SELECT count(*) FROM pg_prepared_xacts")).filter(|said| said.is_ok);
    assert_eq!(wait_for("the child answers", SOON, answers).out, "0", "{}", coppice.log());
    coppice.cli(&["branch", "delete", child, "--yes"]);
}

fn platform_sessions(coppice: &Platform, branch: &str) -> usize {
    let count =
        "SELECT count(*) FROM pg_stat_activity WHERE usename = 'platform' AND pid <> pg_backend_pid()";
    must(&coppice.superuser_url(branch), count).parse().expect("a number")
}

/// Processes of the sessions of a branch's users that are in this state.
fn processes(coppice: &Platform, branch: &str, state: &str) -> Vec<u32> {
    let find = format!("SELECT pid FROM pg_stat_activity WHERE usename <> 'platform' AND state = '{state}'");
    let pids = must(&coppice.superuser_url(branch), &find);
    let id = coppice.branch_id(branch);
    let process = |pid: &str| coppice.process(&id, pid.parse().expect("a pid")).expect("its process");
    pids.lines().map(process).collect()
}

#[test]
fn whoever_holds_the_managed_role_does_not_keep_its_password() {
    let coppice = oldest_and_newest();
    for major in MAJORS {
        let (name, path) = make_branch(&coppice, major);
        let first = url(&coppice, &path).expect("a password");
        let mut holder = OpenSession::new(&first);
        holder.run("BEGIN; ALTER ROLE app PASSWORD 'x'");
        let mut queued = OpenSession::new(&first);
        queued.run_within("ALTER ROLE app PASSWORD 'y'", Duration::from_millis(200));
        let mut bystander = OpenSession::new(&first);
        bystander.run("BEGIN; CREATE TABLE t (i int)");
        let second = rotates_soon(&coppice, &path, &first);
        assert!(holder.run("SELECT 'goes on'").contains("terminating connection"), "{major}");
        bystander.run("COMMIT");
        assert_eq!(must(&second, "SELECT count(*) FROM t"), "0", "others go on");
        assert!(platform_sessions(&coppice, &name) <= 3, "none hangs");
        let filters = json!([{ "value": "which kept it from setting the password", "op": "contains" }]);
        let body =
            json!({ "start": "2020-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z", "filters": filters });
        wait_for("its owner is told", SOON, || {
            let (_, page) = coppice.call("POST", &format!("{path}/logs"), Some(&body));
            page["logs"].as_array().is_some_and(|logs| !logs.is_empty()).then_some(())
        });

        // One that does not end when it is told to.
        let mut holder = OpenSession::new(&second);
        holder.run("BEGIN; ALTER ROLE app PASSWORD 'x'");
        let stopped = processes(&coppice, &name, "idle in transaction");
        assert_eq!(stopped.len(), 1, "{major}");
        signal(stopped[0], Signal::STOP).expect("a signal");
        let third = rotates_soon(&coppice, &path, &second);
        assert_eq!(must(&third, "SELECT count(*) FROM t"), "0");

        // Somebody who does nothing else than to change the role.
        let busy: Vec<_> = (0..4)
            .map(|_| {
                let mut session = OpenSession::new(&third);
                session.run_within(BUSY, Duration::ZERO);
                session
            })
            .collect();
        rotates_soon(&coppice, &path, &third);
        drop(busy);
    }
}

/// Makes a database in which any bytes are a name.
pub(super) const MAKE_SQL_ASCII: &str =
    "CREATE DATABASE l TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE_PROVIDER 'libc' LOCALE 'C'";

/// Done there: a role that gets the managed one's database, another one that
/// may sign in, and a database, whose names are no UTF-8.
const NAME_OTHERWISE: &str = r"CREATE DATABASE x;
    DO $$DECLARE heir name := E'heir\xff'; BEGIN
        EXECUTE format('CREATE ROLE %I LOGIN PASSWORD %L', E'z\xe2', 'z');
        EXECUTE format('ALTER DATABASE x RENAME TO %I', E'x\xff');
        EXECUTE format('CREATE ROLE %I', heir);
        EXECUTE format('GRANT %I TO app', heir);
        EXECUTE format('ALTER DATABASE app OWNER TO %I', heir);
    END$$";

#[test]
fn a_prepared_transaction_does_not_keep_a_branch_asleep_or_without_children() {
    let coppice = oldest_and_newest();
    for major in MAJORS {
        let (name, path) = make_branch(&coppice, major);
        let first = url(&coppice, &path).expect("a password");
        // No UTF-8, like other names on this server.
        let hold = r"BEGIN; ALTER ROLE app PASSWORD 'x'; PREPARE TRANSACTION E'it''s held \xff'";
        must(&first, MAKE_SQL_ASCII);
        let mut inside = OpenSession::new(&at(&first, "l"));
        let said = inside.run(NAME_OTHERWISE);
        assert!(!said.contains("ERROR"), "{major}: {said}");
        let mut session = OpenSession::new(&first);
        session
            .run("CREATE TABLE t (i int); BEGIN; INSERT INTO t VALUES (7); PREPARE TRANSACTION 'innocent'");
        inside.run(hold);
        assert_eq!(must(&first, "SELECT count(*) FROM pg_prepared_xacts"), "2", "{major}");
        hibernate(&coppice, &path);
        let password = first.split([':', '@']).nth(2).expect("a password");
        assert!(is_refused(&first.replacen(password, "x", 1)));
        assert_eq!(status(&coppice, &path), "STATUS_TYPE_HIBERNATED", "who may come in is known");
        rotate(&coppice, &path);
        let second = wait_for_new(&coppice, &path, &first);
        let wakes = || Some(psql(&second, "SELECT gid FROM pg_prepared_xacts")).filter(|said| said.is_ok);
        assert_eq!(wait_for("it wakes", SOON, wakes).out, "innocent", "only what was in the way is gone");
        assert!(is_refused(&first));

        let owner =
            "SELECT rolname FROM pg_database d JOIN pg_roles r ON r.oid = datdba WHERE datname = 'app'";
        assert_eq!(must(&second, owner), "app", "{major}");
        OpenSession::new(&at(&second, "l")).run(hold);
        makes_a_child(&coppice, &name, &format!("child-{major}"));
        let third = rotates_soon(&coppice, &path, &second);
        must(&third, "COMMIT PREPARED 'innocent'");
        assert_eq!(must(&third, "SELECT i FROM t"), "7");
    }
}

/// Prepares transactions until no lock is left on the server.
fn takes_every_lock(session: &mut OpenSession, round: u32) {
    let (mut count, mut number) = (8192, round * 1000);
    while count > 0 {
        let said = session.run(&format!(
            "BEGIN; SELECT count(pg_advisory_xact_lock({number}, i)) FROM generate_series(1, {count}) i;
             PREPARE TRANSACTION 'lock {number}'"
        ));
        number += 1;
        if said.contains("ERROR") {
            count /= 2;
        }
    }
}

#[test]
fn prepared_transactions_that_have_every_lock_keep_nobody_out_for_good() {
    for major in MAJORS {
        let coppice = oldest_and_newest();
        let (_, path) = make_branch(&coppice, major);
        let url = url(&coppice, &path).expect("a password");
        must(&url, "CREATE TABLE t AS SELECT 7 AS i");
        must(&url, "BEGIN; UPDATE t SET i = 8; PREPARE TRANSACTION 'innocent'");
        // A server that was just started has some more locks to give.
        for round in 0..4 {
            takes_every_lock(&mut OpenSession::new(&url), round);
            hibernate(&coppice, &path);
            let is_let_in = || psql(&url, "SELECT 1").is_ok.then_some(());
            wait_for("it lets its owner in", SOON, is_let_in);
            if coppice.log().contains("a prepared transaction is rolled back") {
                break;
            }
        }
        // The one that had most is, and no other.
        must(&url, "COMMIT PREPARED 'innocent'");
        assert_eq!(must(&url, "SELECT i FROM t"), "8", "{major}: {}", coppice.log());
    }
}

#[test]
fn whoever_leaves_hardly_a_lock_to_others_does_not_keep_the_password() {
    let coppice = oldest_and_newest();
    for major in MAJORS {
        let (_, path) = make_branch(&coppice, major);
        let before = url(&coppice, &path).expect("a password");
        must(&before, "CREATE TABLE t AS SELECT 7 AS i");
        must(&before, "BEGIN; UPDATE t SET i = 8; PREPARE TRANSACTION 'innocent'");
        let mut session = OpenSession::new(&before);
        // So many are enough to sign in.
        session.run("BEGIN; SELECT pg_advisory_xact_lock(-1, i) FROM generate_series(1, 4) i; PREPARE TRANSACTION 'few'");
        takes_every_lock(&mut session, 0);
        session.run("ROLLBACK; ROLLBACK PREPARED 'few'");
        let after = rotates_soon(&coppice, &path, &before);
        must(&after, "COMMIT PREPARED 'innocent'");
        assert_eq!(must(&after, "SELECT i FROM t"), "8");
    }
}

#[test]
fn a_prepared_transaction_in_a_database_without_connections_holds_nothing_up() {
    let coppice = oldest_and_newest();
    for major in MAJORS {
        let (name, path) = make_branch(&coppice, major);
        let first = url(&coppice, &path).expect("a password");
        for database in ["x", "\"y ' z\""] {
            must(&first, &format!("CREATE DATABASE {database}"));
        }
        must(&first, "CREATE TABLE t AS SELECT 7 AS i");
        let mut inside = OpenSession::new(&at(&first, "x"));
        inside.run("BEGIN; CREATE TABLE t (i int); PREPARE TRANSACTION 'plain'");
        must(&first, "ALTER DATABASE x ALLOW_CONNECTIONS false");
        // What would allow connections again waits for this.
        inside.run("BEGIN; ALTER DATABASE x CONNECTION LIMIT 5; PREPARE TRANSACTION 'circle'");
        let mut other = OpenSession::new(&at(&first, "y%20%27%20z"));
        other.run("BEGIN; ALTER ROLE app PASSWORD 'x'; PREPARE TRANSACTION 'p'");
        must(&first, "ALTER DATABASE \"y ' z\" ALLOW_CONNECTIONS false");
        assert_eq!(must(&first, "SELECT count(*) FROM pg_prepared_xacts"), "3", "{major}");
        drop((inside, other));

        makes_a_child(&coppice, &name, &format!("child-{major}"));
        let second = rotates_soon(&coppice, &path, &first);
        assert_eq!(must(&second, "SELECT i FROM t"), "7");
        let left = must(&second, "SELECT string_agg(gid, ' ' ORDER BY gid) FROM pg_prepared_xacts");
        assert_eq!(left, "circle plain", "what is in nobody's way stays");
        let allowed = must(
            &second,
            "SELECT count(*) FROM pg_database WHERE datname IN ('x', 'y '' z') AND datallowconn",
        );
        assert_eq!(allowed, "0", "as its owner wants it");
        assert_eq!(status(&coppice, &path), "STATUS_TYPE_HEALTHY");

        // Whoever may write to everything can lock what is below a view: what is read when a session in
        // this database begins, or in any.
        must(&coppice.superuser_url(&name), "GRANT pg_write_all_data TO app");
        let view = if major == "15" { "pg_tables" } else { "pg_group" };
        must(&second, &format!("BEGIN; LOCK TABLE {view}; PREPARE TRANSACTION 'own'"));
        let left = "SELECT string_agg(gid, ' ' ORDER BY gid) FROM pg_prepared_xacts";
        let is_over = || Some(psql(&second, left)).filter(|said| said.is_ok && !said.out.contains("own"));
        let said = wait_for("everybody is let in again", SOON * 2, is_over);
        assert_eq!(said.out, "circle plain", "{major}: {view}");

        // A session that is open is ended, so that the password is set all the same.
        let mut holder = OpenSession::new(&second);
        assert_eq!(holder.run("BEGIN; LOCK TABLE pg_group"), "", "{major}");
        rotates_soon(&coppice, &path, &second);
        assert!(holder.run("SELECT 'goes on'").contains("terminating connection"), "{major}");
    }
}

/// What an owner does to the role and its database, as a script of its own for
/// each release that lets it.
const DEEDS: [(&str, &str); 9] = [
    ("", "ALTER DATABASE app OWNER TO pg_database_owner"),
    ("", "CREATE ROLE heir; GRANT heir TO app; ALTER DATABASE app OWNER TO heir"),
    (
        "",
        "ALTER ROLE app NOLOGIN NOCREATEDB NOCREATEROLE NOINHERIT CONNECTION LIMIT 0 VALID UNTIL '2001-01-01'",
    ),
    ("", "ALTER ROLE app SET local_preload_libraries = 'gone'"),
    ("", "ALTER DATABASE app SET local_preload_libraries = 'gone'"),
    ("", "DROP OWNED BY app"),
    ("", "ALTER DATABASE app CONNECTION LIMIT 0"),
    ("15", "CREATE ROLE helper LOGIN CREATEROLE PASSWORD 'helper'"),
    ("15", "REVOKE pg_monitor FROM app; GRANT app TO pg_monitor"),
];

#[test]
fn the_managed_role_has_its_database_whoever_was_put_in_its_place() {
    let coppice = oldest_and_newest();
    let owner = "SELECT rolname FROM pg_database d JOIN pg_roles r ON r.oid = datdba WHERE datname = 'app'";
    for major in MAJORS {
        let (name, path) = make_branch(&coppice, major);
        let mut now = url(&coppice, &path).expect("a password");
        let mine = |deed: &&(&str, &str)| deed.0.is_empty() || deed.0 == major;
        for (_, deed) in DEEDS.iter().filter(mine) {
            OpenSession::new(&now).run(deed);
            now = rotates_soon(&coppice, &path, &now);
            assert_eq!(must(&now, owner), "app", "{major} after {deed}");
            must(&now, "CREATE SCHEMA s; DROP SCHEMA s");
            let has = "SELECT bool_and(pg_has_role('app', r, 'usage')) FROM unnest('{pg_monitor,pg_signal_backend}'::name[]) r";
            assert_eq!(must(&now, has), "t", "{major} after {deed}");
        }
        for (round, given) in [owner, "ALTER DATABASE app OWNER TO pg_database_owner"].iter().enumerate() {
            must(&now, given);
            if major == "15" {
                let secret = now.split([':', '@']).nth(2).expect("a password");
                let helper = now.replacen(secret, "helper", 1).replacen("app.", "helper.", 1);
                let place =
                    format!("ALTER ROLE app RENAME TO old{round}; CREATE ROLE app; GRANT app TO old{round}");
                must(&helper, &place);
            }
            now = rotates_soon(&coppice, &path, &now);
            assert_eq!(must(&now, owner), "app", "{major}");
        }
        must(&now, "CREATE TABLE t (i int)");
        makes_a_child(&coppice, &name, &format!("child-{major}"));
    }
}

#[test]
fn an_owner_who_takes_every_connection_leaves_the_platform_its_own() {
    let coppice = oldest_and_newest();
    for major in MAJORS {
        let (name, path) = make_branch(&coppice, major);
        let first = url(&coppice, &path).expect("a password");
        let mut sessions = vec![];
        for _ in 0..400 {
            let mut session = OpenSession::new(&first);
            let said = session.run("SELECT 'in'");
            sessions.push(session);
            if said != "in" {
                assert!(said.contains("connection slots") || said.contains("too many"), "{said}");
                break;
            }
        }
        sessions[0].run("BEGIN; ALTER ROLE app PASSWORD 'x'");
        rotate(&coppice, &path);
        wait_for_new(&coppice, &path, &first);
        makes_a_child(&coppice, &name, &format!("child-{major}"));
        hibernate(&coppice, &path);
    }
}
