//! Branches get another major version, with everything that is in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coppice_test_support::{Leftovers, Platform, psql, wait_for};
use serde_json::{Value, json};

use crate::branches::{path, status};
use crate::http::text_of;
use crate::replicas::{read_url, replica_roles, wait_read, wait_whole};
use crate::setup::{environment_with, every_release, postgres_dir};

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
fn what_can_not_be_upgraded_goes_on_as_it_was_and_says_why() {
    let coppice = every_release();
    let url = make(&coppice, "stuck", 15);
    let place = path(&coppice, "stuck");
    let ask = |body: Value| coppice.call("POST", &format!("{place}/upgrade"), Some(&body));
    for (body, id) in [
        (json!({ "image": "postgres:15", "check": null }), "invalid_image"),
        (json!({ "image": "postgres:14" }), "invalid_image"),
        (json!({ "image": "18" }), "invalid_image"),
    ] {
        let (code, answer) = ask(body.clone());
        assert_eq!((code, &answer["id"]), (400, &json!(id)), "{body}");
    }
    let failing = |what: &str| {
        upgrade(&coppice, "stuck", &json!({ "image": "postgres:18" }));
        let said = message(&coppice, "stuck");
        assert!(said.contains("it was not upgraded") && said.contains(what), "{said}");
        assert!(image(&coppice, "stuck").starts_with("postgres:15"));
        assert_eq!(coppice.sql("stuck", "SELECT count(*) FROM t"), "3");
        assert_eq!(versions(&coppice, "stuck").len(), 0);
    };
    // An index on a function that does not do any more what it did.
    coppice.sql(
        "stuck",
        "CREATE TABLE t (i int); INSERT INTO t VALUES (1), (2), (0);
         CREATE FUNCTION half(i int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1';
         CREATE INDEX t_half ON t (half(i));
         CREATE OR REPLACE FUNCTION half(i int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 10 / i'",
    );
    failing("t_half");
    let tried = coppice.run(&["branch", "upgrade", "stuck", "--to", "18", "--check"]);
    let said = String::from_utf8_lossy(&tried.stderr).into_owned();
    assert!(!tried.status.success() && said.contains("t_half"), "{said}");
    coppice.sql("stuck", "DROP INDEX t_half");
    coppice.sql("stuck", "BEGIN; INSERT INTO t VALUES (5); PREPARE TRANSACTION 'kept'");
    failing("prepared transactions");
    coppice.sql("stuck", "ROLLBACK PREPARED 'kept'");
    // No dump has what is an extension's.
    coppice.sql("stuck", "CREATE EXTENSION citext; ALTER EXTENSION citext ADD TABLE t");
    failing("ALTER EXTENSION \"citext\" DROP TABLE public.t first");
    coppice.sql("stuck", "ALTER EXTENSION citext DROP TABLE t; CREATE TYPE own AS (i int)");
    coppice
        .sql("stuck", "CREATE CAST (own AS text) WITH INOUT; ALTER EXTENSION citext ADD CAST (own AS text)");
    failing("DROP CAST (public.own AS pg_catalog.text) first");
    assert_eq!(coppice.connection_string("stuck"), url);
}

/// Functions that somebody who restores as a superuser would run as one: of a constraint
/// of a domain, of a table, of what an aggregate begins with, of an index and of a view,
/// and of a default in a schema that has the name of what grants are in a dump. What may
/// change nothing by itself calls what may. They also put an extension's functions where
/// the owner's were.
const TRAPS: &str = "
    CREATE TABLE proofs (who text, is_super boolean, how text);
    CREATE SCHEMA ext; CREATE EXTENSION pg_trgm SCHEMA ext; CREATE SCHEMA bait;
    CREATE FUNCTION bait.similarity(text, text) RETURNS real LANGUAGE sql AS 'SELECT 1.0::real';
    CREATE FUNCTION act(how text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        BEGIN RESET SESSION AUTHORIZATION; RESET ROLE; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN EXECUTE 'ALTER ROLE app SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN EXECUTE 'CREATE ROLE boss SUPERUSER LOGIN PASSWORD ''x'''; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN EXECUTE 'COPY (SELECT 1) TO PROGRAM ''id'''; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN
            IF session_user LIKE 'coppice_restorer%' THEN
                DROP FUNCTION bait.similarity(text, text);
                DROP EXTENSION pg_trgm;
                CREATE EXTENSION pg_trgm SCHEMA bait;
            END IF;
        EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN
            INSERT INTO public.proofs SELECT session_user, rolsuper, how FROM pg_roles WHERE rolname = current_user;
        EXCEPTION WHEN OTHERS THEN NULL; END;
    END$$;
    CREATE FUNCTION spring(i int, how text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
        $$BEGIN PERFORM public.act(how); RETURN true; END$$;
    CREATE DOMAIN trap AS int CHECK (public.spring(VALUE, 'domain'));
    CREATE FUNCTION next(trap, int) RETURNS trap LANGUAGE sql AS 'SELECT $1';
    CREATE AGGREGATE begun(int) (sfunc = next, stype = trap, initcond = '1');
    CREATE TABLE baits (i int CHECK (public.spring(i, 'table')), d trap,
        g boolean GENERATED ALWAYS AS (public.spring(i, 'generated')) STORED);
    INSERT INTO baits VALUES (1, 1);
    CREATE INDEX baits_i ON baits (public.spring(i, 'index'));
    CREATE MATERIALIZED VIEW seen AS SELECT public.spring(i, 'view') FROM baits;
    CREATE TABLE \"weird\n\\! id\" (i int); COMMENT ON TABLE \"weird\n\\! id\" IS E'\\n\\\\! id';
    CREATE ROLE \"a\nb\"; ALTER DATABASE app SET search_path = public;
    GRANT SELECT ON \"weird\n\\! id\" TO \"a\nb\";
    CREATE SCHEMA \"ACL\"; CREATE VIEW \"ACL\".v AS SELECT NULL::trap[] AS x;
    ALTER VIEW \"ACL\".v ALTER COLUMN x SET DEFAULT '{1}'::trap[]";

/// While it is restored a function decides how texts in statements are read from then on, and the name of a role is
/// one that says something else then.
const OTHER_READING: &str = r#"
    CREATE ROLE "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--";
    GRANT "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--" TO app;
    GRANT CREATE ON DATABASE app TO "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--";
    GRANT CREATE ON SCHEMA public TO "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--";
    SET ROLE "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--"; CREATE EXTENSION hstore; RESET ROLE;
    CREATE FUNCTION read_otherwise(i int) RETURNS boolean LANGUAGE plpgsql AS $f$BEGIN
        IF current_user LIKE 'coppice_restorer%' THEN
            EXECUTE 'ALTER DATABASE app SET standard_conforming_strings TO off';
            INSERT INTO public.proofs VALUES (current_user, false, 'read otherwise');
        END IF; RETURN true; END$f$;
    CREATE TABLE read_otherwise (i int CHECK (public.read_otherwise(i))); INSERT INTO read_otherwise VALUES (1)"#;

#[test]
fn nothing_of_an_owner_runs_as_a_superuser_while_it_is_upgraded() {
    let coppice = every_release();
    let url = make(&coppice, "trap", 15);
    coppice.sql("trap", TRAPS);
    coppice.sql("trap", OTHER_READING);
    coppice.sql("trap", "CREATE DATABASE \"host=/tmp dbname=x\"");
    coppice.sql("trap", "TRUNCATE proofs");
    upgrade(&coppice, "trap", &json!({ "image": "postgres:18" }));
    assert!(image(&coppice, "trap").starts_with("postgres:18"), "{}", message(&coppice, "trap"));
    let supers = "SELECT string_agg(rolname, ' ') FROM pg_roles
         WHERE rolsuper OR rolreplication AND rolname <> 'app' OR rolname = 'boss'";
    assert_eq!(psql(&url, supers).out, "platform");
    let read = psql(
        &url,
        "SELECT current_setting('standard_conforming_strings'), count(*) FROM pg_extension
         WHERE extname = 'hstore' AND extowner::regrole::text LIKE '%SUPERUSER%'",
    );
    assert_eq!(read.out, "on|1", "text is read as before, and the extension is its owner's");
    let ran = psql(&url, "SELECT count(*) > 0 FROM proofs WHERE who LIKE 'coppice_restorer%'");
    assert_eq!(ran.out, "t", "the traps were sprung");
    let as_superuser = psql(&url, "SELECT string_agg(who || ' ' || how, ', ') FROM proofs WHERE is_super");
    assert_eq!((as_superuser.is_ok, as_superuser.out.as_str()), (true, ""));
    assert_eq!(
        psql(&url, "SELECT count(*) FROM pg_proc WHERE proname = 'similarity'").out,
        "1",
        "it was swapped"
    );
    let members = "SELECT count(*) FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
         WHERE d.deptype = 'e' AND p.proowner <> (SELECT oid FROM pg_roles WHERE rolname = 'platform')";
    assert_eq!(psql(&url, members).out, "0", "what is an extension's is nobody's");
    assert_eq!(
        psql(&url, "SELECT count(*) FROM pg_class WHERE relowner::regrole::text LIKE 'coppice_restorer%'")
            .out,
        "0"
    );
    let databases = psql(&url, "SELECT count(*) FROM pg_database WHERE datname = 'host=/tmp dbname=x'");
    assert_eq!(databases.out, "1");
    let granted = "SELECT count(*) FROM pg_class WHERE relname LIKE 'weird%' AND has_table_privilege(E'a\nb', oid, 'SELECT')";
    assert_eq!(psql(&url, granted).out, "1", "what was granted is");
}

/// What whoever is superuser on the old server gives `app` there.
const GIVEN: &str = "GRANT EXECUTE ON FUNCTION lo_export(oid, text), lo_import(text) TO app;
    GRANT pg_write_server_files, pg_create_subscription TO app;
    ALTER ROLE app SET temp_file_limit = -1; ALTER ROLE app SET work_mem = '5MB';
    CREATE ROLE other; CREATE FUNCTION run(q text) RETURNS void SECURITY DEFINER LANGUAGE plpgsql AS
        $$BEGIN EXECUTE q; END$$; ALTER FUNCTION run(text) OWNER TO other; GRANT other TO app";

/// Has the old server call the role `other` that of the platform, wherever it is asked for a name.
const LIE: &str = "SET allow_system_table_mods = on;
    CREATE FUNCTION pg_catalog.lie(n name) RETURNS bytea LANGUAGE plpgsql AS
        $$BEGIN RETURN convert_to(CASE n::text WHEN 'pg_other' THEN 'platform' ELSE n::text END, 'UTF8'); END$$;
    UPDATE pg_type SET typsend = 'pg_catalog.lie'::regproc WHERE oid = 'name'::regtype";

#[test]
fn nothing_that_an_old_server_says_makes_its_owner_more_than_an_owner() {
    let coppice = every_release();
    let url = make(&coppice, "liar", 16);
    let superuser = coppice.superuser_url("liar");
    let told = |database: &str, sql: &str| {
        let done = psql(&superuser.replace("dbname=app", &format!("dbname={database}")), sql);
        assert!(done.is_ok, "{}", done.err);
    };
    told("app", GIVEN);
    told(
        "app",
        "SET allow_system_table_mods = on; UPDATE pg_authid SET rolname = 'pg_other' WHERE rolname = 'other'",
    );
    told("app", LIE);
    told("postgres", LIE);
    upgrade(&coppice, "liar", &json!({ "image": "postgres:18" }));
    assert!(image(&coppice, "liar").starts_with("postgres:18"), "{}", message(&coppice, "liar"));
    let has = "SELECT pg_has_role('platform', 'MEMBER'), pg_has_role('pg_write_server_files', 'MEMBER'),
        pg_has_role('pg_create_subscription', 'MEMBER'), has_function_privilege('lo_export(oid, text)', 'EXECUTE'),
        current_setting('temp_file_limit') = '-1'";
    assert_eq!(psql(&url, has).out, "f|f|f|f|f");
    let owner = "SELECT proowner::regrole FROM pg_proc WHERE oid = 'run(text)'::regprocedure";
    assert_eq!(psql(&url, owner).out, "app", "of whom nobody knows is the managed role's");
    assert_eq!(psql(&url, "SHOW work_mem").out, "5MB", "what an owner may set is");
}

#[test]
fn an_abort_while_a_branch_is_upgraded_is_made_up_for() {
    let postgres = postgres_dir().display().to_string();
    let mut coppice = every_release();
    let steps = [
        "upgrade.copied",
        "upgrade.filled",
        "reconciler.upgrade_tried",
        "reconciler.stopped_to_upgrade",
        "upgrade.restored",
        "reconciler.upgraded",
    ];
    for step in steps {
        let branch = step.replace(['.', '_'], "-");
        make(&coppice, &branch, 16);
        coppice.sql(&branch, "CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 10)");
        let place = path(&coppice, &branch);
        let rule = format!("{step}=abort");
        coppice.set_environment(&environment_with(&postgres, &[("COPPICE_FAILPOINTS", &rule)]));
        coppice.restart();
        wait_for("it is up", PATIENCE, || (status(&coppice, &place) == "STATUS_TYPE_HEALTHY").then_some(()));
        let _ = coppice.client().call(
            "POST",
            &format!("{place}/upgrade"),
            Some(&json!({ "image": "postgres:18" })),
        );
        wait_for(step, PATIENCE, || coppice.has_ended().then_some(()));
        coppice.set_environment(&environment_with(&postgres, &[]));
        coppice.restart();
        wait_for("it is upgraded", PATIENCE, || {
            let is_up = status(&coppice, &place) == "STATUS_TYPE_HEALTHY";
            (is_up && !versions(&coppice, &branch).is_empty()).then_some(())
        });
        assert!(image(&coppice, &branch).starts_with("postgres:18"), "{step}");
        assert_eq!(coppice.sql(&branch, "SELECT sum(i) FROM t"), "55", "{step}");
        coppice.cli(&["branch", "delete", &branch, "--purge", "--yes"]);
    }
    // Nothing of any attempt is left.
    let staged = || std::fs::read_dir(coppice.data_dir().join("pool/staging")).expect("a directory").count();
    wait_for("staging is empty", PATIENCE, || (staged() == 0).then_some(()));
}

#[test]
fn an_upgrade_that_fails_after_its_trial_leaves_the_branch_as_it_was() {
    let mut coppice = every_release();
    let postgres = postgres_dir().display().to_string();
    make(&coppice, "kept", 16);
    coppice.sql("kept", "CREATE TABLE t (i int); INSERT INTO t VALUES (1)");
    // Nothing of a trial comes as far as this.
    let rule = "upgrade.restored=error";
    coppice.set_environment(&environment_with(&postgres, &[("COPPICE_FAILPOINTS", rule)]));
    coppice.restart();
    let place = path(&coppice, "kept");
    wait_for("it is up", PATIENCE, || (status(&coppice, &place) == "STATUS_TYPE_HEALTHY").then_some(()));
    upgrade(&coppice, "kept", &json!({ "image": "postgres:18" }));
    let said = message(&coppice, "kept");
    assert!(
        said.contains("it was not upgraded to PostgreSQL 18") && said.contains("a test wants it so"),
        "{said}"
    );
    let major = "SELECT current_setting('server_version_num')::int / 10000";
    assert_eq!(coppice.sql("kept", &format!("INSERT INTO t VALUES (2); {major}")).lines().last(), Some("16"));
    assert_eq!(
        (image(&coppice, "kept").starts_with("postgres:16"), versions(&coppice, "kept").len()),
        (true, 0)
    );
    // The next one goes well.
    upgrade(&coppice, "kept", &json!({ "image": "postgres:18" }));
    assert!(image(&coppice, "kept").starts_with("postgres:18"), "{}", message(&coppice, "kept"));
    assert_eq!(coppice.sql("kept", "SELECT sum(i) FROM t"), "3");
    let left = || std::fs::read_dir(coppice.data_dir().join("pool/staging")).expect("a directory").count();
    wait_for("staging is empty", PATIENCE, || (left() == 0).then_some(()));
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
