//! A tenant who became superuser and lets his server answer the platform with
//! what it did not ask for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::json;

use super::open_session::OpenSession;
use crate::branches::{path, status};
use crate::setup::{every_release, platform};

const PATIENCE: Duration = Duration::from_secs(60);

fn as_superuser(coppice: &Platform, branch: &str, sql: &str) {
    let url = coppice.superuser_url(branch).replace("dbname=app", "dbname=postgres");
    let said = psql(&url, sql);
    assert!(said.is_ok, "{}", said.err);
}

/// A type that is made of itself, and functions that the platform uses return it.
const TYPE_OF_ITSELF: &str = "SET allow_system_table_mods = on;
    CREATE TYPE public.evil AS (a int);
    UPDATE pg_type SET typtype = 'b', typcategory = 'U', typrelid = 0, typelem = oid, typarray = 0, typlen = -1,
        typinput = 'textin', typoutput = 'textout', typreceive = 'textrecv', typsend = 'textsend'
    WHERE typname = 'evil';
    UPDATE pg_proc SET prorettype = 'public.evil'::regtype
    WHERE proname IN ('left', 'concat_ws') AND pronamespace = 'pg_catalog'::regnamespace";

/// Values that look like those of another type.
const OTHER_BYTES: &str = "SET allow_system_table_mods = on;
    UPDATE pg_type SET typsend = 'int4send' WHERE oid IN ('bool'::regtype, 'int8'::regtype)";

#[test]
fn answers_that_nobody_asked_for_cost_their_own_branch_at_most() {
    let coppice = every_release();
    for major in [15, 18] {
        for (kind, trap) in [("type", TYPE_OF_ITSELF), ("bytes", OTHER_BYTES)] {
            let name = format!("{kind}{major}");
            coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
            as_superuser(&coppice, &name, trap);
            let of_branch = path(&coppice, &name);
            let rotation = json!({ "username": "app" });
            coppice.call("POST", &format!("{of_branch}/credentials/rotate"), Some(&rotation));
            coppice.call("PATCH", &of_branch, Some(&json!({ "hibernate": true })));
            assert_eq!(coppice.sql("main", "SELECT 1"), "1", "{name}: the neighbour notices nothing");
            wait_for("it sleeps, or says why not", PATIENCE, || {
                (status(&coppice, &of_branch) != "STATUS_TYPE_HIBERNATING").then_some(())
            });
            let server = coppice.postmaster(&coppice.branch_id(&name));
            coppice.cli(&["branch", "delete", &name, "--yes"]);
            let process = std::path::PathBuf::from(format!("/proc/{server}"));
            wait_for("its server is gone", PATIENCE, || (!process.exists()).then_some(()));
        }
    }
    assert!(!coppice.log().contains("panicked"), "{}", coppice.log());
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}

/// What whoever signs in is told first, 1 MB of it.
const NOTICES: &str = "CREATE FUNCTION public.tell() RETURNS event_trigger LANGUAGE plpgsql AS $$
        BEGIN FOR i IN 1..1000 LOOP RAISE WARNING 'told by a tenant: %', repeat('x', 1000); END LOOP; END $$;
    CREATE EVENT TRIGGER tell ON login EXECUTE FUNCTION public.tell();
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE usename = 'platform' AND backend_type = 'client backend' AND pid <> pg_backend_pid()";

#[test]
fn what_a_server_tells_beside_its_answers_is_not_in_the_log_of_the_platform() {
    let coppice = every_release();
    coppice.cli(&["branch", "create", "talkative", "--image", "postgres:18"]);
    let url = coppice.connection_string("talkative");
    as_superuser(&coppice, "talkative", NOTICES);
    // The gateway asks on a new session who the client is.
    wait_for("a client was let in", PATIENCE, || psql(&url, "SELECT 1").is_ok.then_some(()));
    let log = coppice.log();
    assert!(!log.contains("told by a tenant"), "{} bytes", log.len());
}

/// What the gateway asks of a session that goes to another client, answered with
/// 600 MB.
const LONG_ANSWER: &str = "SET allow_system_table_mods = on;
    ALTER VIEW pg_catalog.pg_settings RENAME TO pg_settings_before;
    CREATE VIEW pg_catalog.pg_settings AS
        SELECT 'a.b' AS name, repeat('x', 100000) AS setting, 'session' AS source FROM generate_series(1, 3000);
    GRANT SELECT ON pg_catalog.pg_settings TO PUBLIC";
const GROWTH_MAX_KIB: u64 = 200 << 10;

/// The most memory that a process had at once, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_long_answer_to_the_gateway_is_not_kept() {
    let coppice = platform();
    let id = coppice.branch_id("main");
    let said = psql(&coppice.superuser_url("main"), LONG_ANSWER);
    assert!(said.is_ok, "{}", said.err);
    let pooled = coppice.connection_string("main").replace(&format!("{id}:"), &format!("{id}-pooler:"));
    let mut session = OpenSession::new(&pooled);
    assert_eq!(session.run("SELECT 1"), "1");
    let before = peak(coppice.pid());
    assert_eq!(session.run("SET work_mem = '5MB'"), "");
    // It is answered when the gateway knows what was set.
    assert_eq!(session.run_within("SHOW work_mem", PATIENCE).as_deref(), Some("5MB"));
    let grown = peak(coppice.pid()) - before;
    assert!(grown < GROWTH_MAX_KIB, "{grown} KiB for an answer of 600 MB");
    assert_eq!(coppice.sql("main", "SELECT 1"), "1");
}

#[test]
fn an_error_takes_little_memory_until_its_reader_has_come() {
    let coppice = platform();
    let url = coppice.connection_string("main");
    let raised = "DO $$ BEGIN RAISE EXCEPTION '%', repeat(chr(1), 9000000); END $$";
    let body = json!({ "query": raised }).to_string();
    let mut stream = TcpStream::connect(coppice.api().trim_start_matches("http://")).expect("it listens");
    let length = body.len();
    write!(
        stream,
        "POST /sql HTTP/1.1\r\nhost: localhost\r\nneon-connection-string: {url}\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 400") && body.len() < 1 << 20, "{head}: {} bytes", body.len());
    let error: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let message = error["message"].as_str().expect("a message");
    assert!(error["code"] == "P0001" && message.starts_with('\u{1}') && message.len() < 64 << 10);
}
