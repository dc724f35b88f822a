//! Branches get another major version, with everything that is in them.

mod failures;
mod hostile;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coppice_test_support::{Leftovers, Platform, psql, wait_for};
use serde_json::{Value, json};

use crate::branches::{path, status};
use crate::http::text_of;
use crate::replicas::{read_url, replica_roles, wait_read, wait_whole};
use crate::setup::every_release;

/// A busy machine upgrades slowly.
const PATIENCE: Duration = Duration::from_secs(300);

/// Everything that a dump could lose, by roles and in a database that its owner made.
const ROLES: &str = "
    CREATE ROLE team NOLOGIN; CREATE ROLE ann LOGIN PASSWORD 'of-ann' CONNECTION LIMIT 7 VALID UNTIL '2099-01-01';
    GRANT team TO ann; CREATE ROLE \"odd \"\"name\" LOGIN; COMMENT ON ROLE team IS 'a team''s';
    ALTER ROLE ann SET statement_timeout = '77s'; ALTER ROLE ann IN DATABASE app SET search_path = \"$user\", sales, public;
    ALTER DATABASE app SET work_mem = '9MB'; GRANT team TO app";
const OBJECTS: &str = "
    CREATE EXTENSION pg_trgm; CREATE EXTENSION hstore; CREATE EXTENSION citext;
    CREATE SCHEMA sales; GRANT USAGE, CREATE ON SCHEMA sales TO team;
    CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TABLE sales.orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name citext, tags hstore, how mood,
        amount positive, twice int GENERATED ALWAYS AS (amount * 2) STORED);
    INSERT INTO sales.orders (name, tags, how, amount) SELECT 'Name ' || i, hstore('k', i::text), 'ok', i
        FROM generate_series(1, 5000) i;
    CREATE INDEX orders_name ON sales.orders USING gin ((name::text) gin_trgm_ops);
    CREATE TABLE events (at date, what text) PARTITION BY RANGE (at);
    CREATE TABLE events_a PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2026-07-01');
    CREATE TABLE events_b PARTITION OF events DEFAULT;
    INSERT INTO events SELECT date '2026-01-01' + i, 'e' || i FROM generate_series(0, 364) i;
    CREATE MATERIALIZED VIEW sums AS SELECT how, sum(amount) FROM sales.orders GROUP BY how;
    CREATE VIEW sales.big AS SELECT * FROM sales.orders WHERE amount > 4990;
    CREATE SEQUENCE counter START 5; SELECT nextval('counter'); SELECT nextval('counter');
    CREATE TABLE serials (id serial, t text); INSERT INTO serials (t) VALUES ('a'), ('b');
    CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
        $$BEGIN NEW.t := NEW.t || '!'; RETURN NEW; END$$;
    CREATE TRIGGER stamps BEFORE INSERT ON serials FOR EACH ROW EXECUTE FUNCTION stamp();
    CREATE AGGREGATE product(int) (sfunc = int4mul, stype = int, initcond = '1');
    COMMENT ON TABLE serials IS 'it''s commented';
    ALTER TABLE serials ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON serials TO team USING (id > 0);
    SELECT lo_from_bytea(4711, '\\x00ff10'::bytea); GRANT SELECT ON LARGE OBJECT 4711 TO team;
    GRANT SELECT (id), UPDATE (t) ON serials TO ann; GRANT SELECT ON sales.orders TO team WITH GRANT OPTION;
    REVOKE EXECUTE ON FUNCTION stamp() FROM PUBLIC; ALTER DEFAULT PRIVILEGES IN SCHEMA sales GRANT SELECT ON TABLES TO team;
    SET ROLE team; CREATE TABLE sales.of_team (i int); INSERT INTO sales.of_team VALUES (1); RESET ROLE;
    GRANT CONNECT ON DATABASE app TO ann; REVOKE TEMP ON DATABASE app FROM PUBLIC;
    COMMENT ON DATABASE app IS 'the app'; CREATE STATISTICS stats (dependencies) ON id, amount FROM sales.orders;
    CREATE PUBLICATION told FOR TABLE serials; CREATE TYPE pair AS (a int, b text);
    CREATE TEXT SEARCH DICTIONARY plain (TEMPLATE = simple); CREATE COLLATION own_order (PROVIDER = icu, LOCALE = 'sv');
    CREATE PROCEDURE nothing(i int) LANGUAGE sql AS 'SELECT 1'; GRANT EXECUTE ON PROCEDURE nothing TO ann";

/// Answers that have to be the same before and after.
const SAME: [&str; 17] = [
    "SELECT md5(string_agg(o::text, ',' ORDER BY id)) FROM sales.orders o",
    "SELECT count(*), md5(string_agg(e::text, ',' ORDER BY at)), count(DISTINCT tableoid) FROM events e",
    "SELECT how, sum FROM sums",
    "SELECT last_value, is_called FROM counter",
    "SELECT id, t, obj_description('serials'::regclass) FROM serials ORDER BY id",
    "SELECT encode(lo_get(4711), 'hex'), lomacl::text, lomowner::regrole FROM pg_largeobject_metadata",
    "SELECT n.nspname, c.relname, c.relkind, c.relowner::regrole, c.relacl::text, c.relrowsecurity FROM pg_class c
     JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname IN ('public', 'sales') AND c.relkind <> 'c' ORDER BY 1, 2",
    "SELECT attrelid::regclass, attname, attacl::text FROM pg_attribute WHERE attacl IS NOT NULL AND attrelid >= 16384 ORDER BY 1, 2",
    "SELECT proname, proowner::regrole, proacl::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
     AND proowner <> 10 ORDER BY 1",
    "SELECT nspname, nspowner::regrole, nspacl::text FROM pg_namespace WHERE nspname IN ('public', 'sales') ORDER BY 1",
    "SELECT extname, extowner::regrole, extnamespace::regnamespace FROM pg_extension ORDER BY 1",
    "SELECT typname, typowner::regrole FROM pg_type WHERE typname IN ('mood', 'positive', 'pair') ORDER BY 1",
    "SELECT dictname, dictowner::regrole, collname, collowner::regrole FROM pg_ts_dict, pg_collation
     WHERE dictname = 'plain' AND collname = 'own_order'",
    "SELECT defaclrole::regrole, defaclobjtype, defaclacl::text FROM pg_default_acl",
    "SELECT datname, datdba::regrole, datacl::text, datconnlimit, shobj_description(oid, 'pg_database') FROM pg_database
     WHERE datname IN ('app', 'other db') ORDER BY 1",
    "SELECT datname, setrole::regrole, setconfig FROM pg_db_role_setting
     LEFT JOIN pg_database d ON d.oid = setdatabase ORDER BY 1, 2, 3",
    "SELECT rolname, rolcanlogin, rolinherit, rolcreaterole, rolcreatedb, rolsuper, rolbypassrls, rolconnlimit,
     rolreplication AND rolname <> 'app',
     rolvaliduntil, shobj_description(oid, 'pg_authid') FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY 1",
];

fn answers(url: &str) -> Vec<String> {
    SAME.iter().map(|query| psql(url, query).out).collect()
}

fn inside(url: &str, database: &str) -> String {
    format!("{}/{database}", url.strip_suffix("/app").expect("the database app"))
}

pub(crate) fn as_role(url: &str, role: &str, password: &str) -> String {
    let (_, rest) = url.split_once("//app.").expect("a connection string");
    let (branch, _) = rest.split_once(':').expect("a password");
    let (_, place) = rest.split_once('@').expect("a host");
    format!("postgresql://{role}.{branch}:{password}@{place}")
}

fn image(coppice: &Platform, branch: &str) -> String {
    text_of(&coppice.cli(&["branch", "show", branch])["configuration"]["image"])
}

fn message(coppice: &Platform, branch: &str) -> String {
    text_of(&coppice.cli(&["branch", "show", branch])["status"]["message"])
}

/// Asks for it by the API, and waits until it is over.
fn upgrade(coppice: &Platform, branch: &str, body: &Value) {
    let place = path(coppice, branch);
    let (code, answer) = coppice.call("POST", &format!("{place}/upgrade"), Some(body));
    assert_eq!(code, 200, "{answer}");
    wait_until_over(coppice, &place);
}

fn wait_until_over(coppice: &Platform, place: &str) {
    wait_for("it is over", PATIENCE, || (status(coppice, place) != "STATUS_TYPE_TRANSIENT").then_some(()));
}

fn make(coppice: &Platform, branch: &str, major: u32) -> String {
    coppice.cli(&["branch", "create", branch, "--image", &format!("postgres:{major}")]);
    coppice.connection_string(branch)
}

fn versions(coppice: &Platform, branch: &str) -> Vec<Value> {
    coppice.cli(&["branch", "history", branch])["versions"].as_array().expect("versions").clone()
}

#[test]
fn a_branch_gets_a_later_major_version_with_everything_in_it_and_can_go_back() {
    let mut coppice = every_release();
    let url = make(&coppice, "old", 15);
    coppice.sql("old", ROLES);
    coppice.sql("old", "CREATE DATABASE \"other db\" CONNECTION LIMIT 50");
    coppice.sql("old", "ALTER DATABASE \"other db\" SET role = app");
    coppice.sql("old", OBJECTS);
    let other = inside(&url, "other%20db");
    assert!(psql(&other, "CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 100)").is_ok);
    coppice.cli(&["branch", "create", "kid", "--parent", "old"]);
    let before = answers(&url);
    assert!(before.iter().all(|answer| !answer.is_empty()), "{before:#?}");

    let tried = coppice.cli(&["branch", "upgrade", "old", "--to", "18", "--check"]);
    assert_eq!(text_of(&tried["configuration"]["image"]).split('.').next(), Some("postgres:15"));
    assert!(message(&coppice, "old").contains("a trial upgrade passed"), "{tried}");

    coppice.cli(&["branch", "upgrade", "old", "--to", "18", "--yes"]);
    assert_eq!(coppice.sql("old", "SELECT current_setting('server_version_num')::int / 10000"), "18");
    assert_eq!(coppice.connection_string("old"), url, "its password and URL are what they were");
    // Since 17 an owner also has MAINTAIN.
    let after: Vec<_> = answers(&url).iter().map(|answer| answer.replace("arwdDxtm", "arwdDxt")).collect();
    for (query, (before, after)) in SAME.iter().zip(before.iter().zip(&after)) {
        assert_eq!(after, before, "{query}");
    }
    assert_eq!(psql(&other, "SELECT sum(i) FROM t").out, "5050");
    it_goes_on_working(&coppice, &url);

    // A copy is what it was, and so can the branch be.
    assert_eq!(coppice.sql("kid", "SELECT current_setting('server_version_num')::int / 10000"), "15");
    let version = versions(&coppice, "old").remove(0);
    assert!(text_of(&version["reason"]).starts_with("upgraded from PostgreSQL 15"), "{version}");
    let version = text_of(&version["id"]);
    coppice.cli(&["branch", "create", "then", "--parent", "old", "--version", &version]);
    assert!(image(&coppice, "then").starts_with("postgres:15"), "{}", image(&coppice, "then"));
    assert_eq!(
        coppice.sql("then", SAME[0]),
        before[0],
        "what it was before is copied with the old PostgreSQL"
    );
    coppice.cli(&["branch", "reset", "old", "--version", &version, "--yes"]);
    assert!(image(&coppice, "old").starts_with("postgres:15"), "{}", image(&coppice, "old"));
    assert_eq!(coppice.sql("old", "SELECT current_setting('server_version_num')::int / 10000"), "15");
    assert_eq!(answers(&url), before);
    assert_eq!(coppice.stop_all(), Leftovers::default());
}

fn it_goes_on_working(coppice: &Platform, url: &str) {
    let ann = as_role(url, "ann", "of-ann");
    assert_eq!(psql(&ann, "SHOW statement_timeout").out, "77s", "she signs in with her password");
    assert_eq!(psql(&ann, "SELECT i FROM sales.of_team").out, "1", "as a member of the team");
    assert!(!psql(&ann, "SELECT t FROM public.serials").is_ok, "and has no more than she had");
    let sql = |sql: &str| coppice.sql("old", sql);
    assert_eq!(
        sql("INSERT INTO sales.orders (name, amount) VALUES ('x', 1) RETURNING id").lines().next(),
        Some("5001")
    );
    assert_eq!(sql("INSERT INTO serials (t) VALUES ('c') RETURNING id, t").lines().next(), Some("3|c!"));
    assert_eq!(sql("SELECT nextval('counter')"), "7");
    assert_eq!(sql("SELECT product(amount) FROM sales.orders WHERE id < 4"), "6");
    // Who made roles still administers them.
    sql(
        "ALTER ROLE ann CONNECTION LIMIT 9; CREATE ROLE more; GRANT team TO more; REVOKE team FROM ann; DROP ROLE more",
    );
    assert_ne!(sql("SELECT count(*) FROM pg_stats WHERE tablename = 'orders'"), "0", "it is analyzed");
    let restorer = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'coppice\\_restorer%'";
    assert_eq!(sql(restorer), "0");
    sql("DELETE FROM sales.orders WHERE id = 5001");
}

#[test]
fn nothing_that_is_written_before_clients_are_shut_out_is_lost() {
    let coppice = every_release();
    let url = make(&coppice, "busy", 16);
    coppice.sql("busy", "CREATE TABLE t (i int)");
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = vec![];
            for row in 1.. {
                if psql(&url, &format!("INSERT INTO t VALUES ({row})")).is_ok {
                    written.push(row);
                }
                if is_over.load(Ordering::Relaxed) {
                    return written;
                }
            }
            written
        });
        wait_for("it writes", PATIENCE, || {
            (coppice.sql("busy", "SELECT count(*) > 3 FROM t") == "t").then_some(())
        });
        upgrade(&coppice, "busy", &json!({ "image": "postgres:17" }));
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("a writer")
    });
    assert_eq!(coppice.sql("busy", "SELECT current_setting('server_version_num')::int / 10000"), "17");
    let rows: Vec<u32> =
        coppice.sql("busy", "SELECT i FROM t").lines().map(|row| row.parse().expect("a number")).collect();
    let lost: Vec<_> = written.iter().filter(|row| !rows.contains(row)).collect();
    assert_eq!(lost, Vec::<&u32>::new());
    assert!(written.len() > 3);

    // One that sleeps is not woken.
    coppice.cli(&["branch", "hibernate", "busy", "--yes"]);
    coppice.cli(&["branch", "upgrade", "busy", "--to", "18", "--yes"]);
    assert_eq!(status(&coppice, &path(&coppice, "busy")), "STATUS_TYPE_HIBERNATED");
    assert!(image(&coppice, "busy").starts_with("postgres:18"));
    coppice.cli(&["branch", "wake", "busy"]);
    assert_eq!(coppice.sql("busy", "SELECT count(*) FROM t"), rows.len().to_string());
}

#[test]
fn the_replica_of_an_upgraded_branch_is_made_anew_and_serves_reads() {
    let mut coppice = every_release();
    coppice.cli(&["branch", "create", "read", "--image", "postgres:15", "--replicas", "1"]);
    let place = path(&coppice, "read");
    wait_whole(&coppice, &place, 2);
    // 17 knows the one, and not the other.
    coppice.sql(
        "read",
        "CREATE TABLE t (i int); INSERT INTO t VALUES (1); ALTER ROLE app SET work_mem = '5MB';
         ALTER ROLE app SET force_parallel_mode = on",
    );
    let url = read_url(&coppice, "read");
    wait_read(&url, "SELECT sum(i) FROM t", "1");
    upgrade(&coppice, "read", &json!({ "image": "postgres:17" }));
    wait_whole(&coppice, &place, 2);
    let said = message(&coppice, "read");
    assert!(said.ends_with("goes without them: force_parallel_mode"), "{said}");
    let seen = "SELECT sum(i), pg_is_in_recovery(), current_setting('server_version_num')::int / 10000, \
                current_setting('work_mem') FROM t";
    wait_read(&url, seen, "1|t|17|5MB");
    coppice.sql("read", "INSERT INTO t VALUES (2)");
    wait_read(&url, "SELECT sum(i) FROM t", "3");
    assert_eq!(replica_roles(&coppice, "read"), "1", "nothing is left of the one that it had");
    assert_eq!(coppice.stop_all(), Leftovers::default());
}
