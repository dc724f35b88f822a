//! Logins of keys: a database is handed to somebody with a key, and taken away
//! with it, whatever they or the owner of the branch did meanwhile.

mod keys;
mod owners;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::{Value, json};

use crate::branches::{change, hibernate, path, status};
use crate::credentials::is_refused;
use crate::http::{Http, text_of};
use crate::replicas::{wait_read, wait_whole};
use crate::setup::{PROGRAM, arm, every_release, fixed_gateway, options, platform};

const PATIENCE: Duration = Duration::from_secs(120);
const MAJORS: [&str; 4] = ["15", "16", "17", "18"];

/// A key of the first user with a login, and what it is called.
struct Key {
    id: String,
    token: String,
}

fn key(http: &Http, role: &str, more: &Value) -> Key {
    let mut body = json!({ "database_role": role });
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let made = http.new_key("/api-keys", body);
    assert_eq!(made["database_role"], role);
    Key { id: text_of(&made["id"]), token: text_of(&made["token"]) }
}

/// The connection string that a key is shown for a branch.
fn url(http: &Http, key: &Key, branch: &str) -> String {
    let credentials = http.as_key(&key.token, "GET", &format!("{branch}/credentials"), None).expect(200);
    let username = text_of(&credentials["username"]);
    assert!(username.starts_with(&format!("{}.", key.id)), "{username}");
    text_of(&credentials["connectionString"])
}

fn delete(http: &Http, key: &Key) {
    let body = json!({ "ids": [key.id] });
    http.send(http.request("DELETE", "/api-keys").json(&body)).expect(204);
}

/// As if the key's time were over.
fn let_end(http: &Http, key: &Key) {
    let sql = format!("UPDATE api_keys SET expiry = now() WHERE id = '{}'", key.id);
    let done = psql(&http.platform.metastore_url(), &sql);
    assert!(done.is_ok, "{}", done.err);
}

fn refuses(url: &str, sql: &str, why: &str) {
    let said = psql(url, sql);
    assert!(!said.is_ok && said.err.contains(why), "{sql}: {} {}", said.out, said.err);
}

fn does(url: &str, sql: &str) -> String {
    let said = psql(url, sql);
    assert!(said.is_ok, "{sql}: {}", said.err);
    said.out
}

/// Whether there is a role on a branch, and whether it may sign in.
fn wait_for_role(coppice: &Platform, branch: &str, key: &Key, wanted: &str) {
    wait_for_role_at(&coppice.superuser_url(branch), key, wanted);
}

fn wait_for_role_at(superuser: &str, key: &Key, wanted: &str) {
    let sql = format!("SELECT rolcanlogin FROM pg_roles WHERE rolname = '{}'", key.id);
    wait_for("the role ends", PATIENCE, || {
        let said = psql(superuser, &sql);
        (said.is_ok && said.out == wanted).then_some(())
    });
}

/// A session that waits for ever, by itself.
struct Waiting(Child);

impl Waiting {
    fn begin(coppice: &Platform, branch: &str, url: &str, key: &Key) -> Self {
        Self::begin_at(&coppice.superuser_url(branch), url, key)
    }

    /// On the server where the superuser is.
    fn begin_at(superuser: &str, url: &str, key: &Key) -> Self {
        let mut command = Command::new("psql");
        command.args([url, "-XAtqc", "SELECT pg_sleep(100000)"]);
        let session = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let session = Self(session.spawn().expect("psql runs"));
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = '{}' AND query LIKE '%100000%'",
            key.id
        );
        wait_for("the session waits", PATIENCE, || {
            let said = psql(superuser, &sql);
            (said.is_ok && said.out != "0").then_some(())
        });
        session
    }

    fn wait_for_end(mut self) {
        wait_for("the session ends", PATIENCE, || self.0.try_wait().expect("it is ours"));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pooled(url: &str, branch: &str) -> String {
    url.replacen(branch, &format!("{branch}-pooler"), 1)
}

/// What each role may do, and what is left when its key is gone.
fn roles_do_what_they_say(http: &Http, name: &str) {
    let coppice = &http.platform;
    let branch = path(coppice, name);
    coppice.sql(name, "CREATE TABLE t (id serial, text text); INSERT INTO t (text) VALUES ('one')");
    let [reader, writer, owner] = ["reader", "writer", "owner"].map(|role| key(http, role, &json!({})));
    let [reads, writes, owns] = [&reader, &writer, &owner].map(|key| url(http, key, &branch));
    for (key, url) in [(&reader, &reads), (&writer, &writes), (&owner, &owns)] {
        assert_eq!(does(url, "SELECT session_user, text FROM t"), format!("{}|one", key.id));
        refuses(url, "CREATE TABLE public.u ()", "permission denied");
        refuses(url, "ALTER TABLE t ADD COLUMN more text", "must be owner");
        refuses(url, "SET ROLE app", "permission denied");
        refuses(url, "ALTER ROLE app PASSWORD 'x'", "permission denied");
        refuses(url, "CREATE ROLE friend LOGIN PASSWORD 'x'", "permission denied");
        refuses(url, "SET SESSION AUTHORIZATION platform", "permission denied");
    }
    row_level_security_holds_for_statements_too(http, name, &branch, [&reader, &writer, &owner]);
    refuses(&reads, "INSERT INTO t (text) VALUES ('two')", "permission denied");
    does(&writes, "INSERT INTO t (text) VALUES ('two')");
    for url in [&reads, &writes, &owns] {
        // It would be the first that app looks through.
        refuses(url, "CREATE SCHEMA app", "permission denied");
    }
    refuses(&writes, "CREATE TABLE u ()", "permission denied");
    does(&owns, "CREATE TABLE u AS SELECT * FROM t");
    gives_its_rights_to_nobody(&owns, &owner, name);
    let made = format!("SELECT count(*) FROM {}.u", owner.id);
    assert_eq!(coppice.sql(name, &made), "2", "it is the branch's");
    let idle = key(http, "owner", &json!({}));
    does(&url(http, &idle, &branch), "SELECT 1");

    for key in [&reader, &writer, &owner, &idle] {
        delete(http, key);
    }
    for url in [&reads, &writes, &owns] {
        assert!(is_refused(url), "at once");
    }
    wait_for_role(coppice, name, &reader, "");
    wait_for_role(coppice, name, &writer, "");
    // A schema without anything in it goes with its login.
    wait_for_role(coppice, name, &idle, "");
    // What it owns is there, and nobody signs in as it.
    wait_for_role(coppice, name, &owner, "f");
    wait_for("its rights go", PATIENCE, || {
        let sql = format!(
            "SELECT pg_has_role('{0}', 'pg_read_all_data', 'MEMBER'), pg_has_role('app', '{0}', 'MEMBER')",
            owner.id
        );
        (psql(&coppice.superuser_url(name), &sql).out == "f|t").then_some(())
    });
    wait_for("its rights are nobody's", PATIENCE, || {
        let left = "SELECT (SELECT count(*) FROM pg_proc WHERE proowner = 'pg_write_all_data'::regrole)
            + (SELECT count(*) FROM pg_class WHERE relowner = 'pg_write_all_data'::regrole)";
        (psql(&coppice.superuser_url(name), left).out == "0").then_some(())
    });
    let id = &owner.id;
    coppice.sql(name, &format!("REASSIGN OWNED BY {id} TO app; DROP OWNED BY {id}; DROP ROLE {id}"));
    assert_eq!(coppice.sql(name, &made), "2");
}

/// Whoever may become a role can give it functions, which do what it may for whoever calls them.
fn gives_its_rights_to_nobody(owns: &str, owner: &Key, name: &str) {
    let id = &owner.id;
    does(owns, &format!("GRANT USAGE, CREATE ON SCHEMA {id} TO pg_write_all_data"));
    does(
        owns,
        "CREATE FUNCTION w() RETURNS text SECURITY DEFINER LANGUAGE sql AS 'SELECT current_user::text'",
    );
    let give = "ALTER FUNCTION w() OWNER TO pg_write_all_data";
    match name {
        "v15" => {
            does(owns, give);
            // As that role it can hold what is to be taken back, for ever.
            does(
                owns,
                &format!("CREATE TABLE {id}.held (); ALTER TABLE {id}.held OWNER TO pg_write_all_data"),
            );
            let hold = format!("LOCK {id}.held IN ACCESS SHARE MODE");
            does(owns, &format!("SET ROLE pg_write_all_data; BEGIN; {hold}; PREPARE TRANSACTION 'held'"));
        }
        _ => refuses(owns, give, "must be able to SET ROLE"),
    }
}

/// A statement by the API is no way around what a connection of one's own may see.
fn row_level_security_holds_for_statements_too(http: &Http, name: &str, branch: &str, keys: [&Key; 3]) {
    let hidden = "CREATE TABLE hidden AS SELECT 1; ALTER TABLE hidden ENABLE ROW LEVEL SECURITY";
    http.platform.sql(name, hidden);
    let ask = |key: &Key, sql: &str| {
        http.as_key(&key.token, "POST", &format!("{branch}/query"), Some(&json!({ "query": sql })))
    };
    for key in keys {
        let seen = ask(key, "SELECT session_user, count(*)::text FROM hidden").expect(200);
        assert_eq!(seen["rows"], json!([[key.id, "0"]]));
        let write = ask(key, "INSERT INTO t (text) VALUES ('two')").expect(400).to_string();
        assert!(write.contains("read-only transaction"), "{write}");
    }
    http.platform.sql(name, "DROP TABLE hidden");
}

#[test]
fn a_key_has_a_role_of_its_own_that_ends_with_it() {
    let http = Http::new(every_release());
    for major in MAJORS {
        let name = format!("v{major}");
        http.platform.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        roles_do_what_they_say(&http, &name);
    }
    let log = http.platform.log();
    assert!(!log.contains("SCRAM-SHA-256$"), "{log}");
}

#[test]
fn sessions_end_with_their_key() {
    let http = Http::new(platform());
    let coppice = &http.platform;
    let (main, id) = (path(coppice, "main"), coppice.branch_id("main"));
    let untouched = key(&http, "reader", &json!({}));
    let stays = Waiting::begin(coppice, "main", &url(&http, &untouched, &main), &untouched);
    for end in [delete, let_end] {
        let one = key(&http, "writer", &json!({}));
        let direct = url(&http, &one, &main);
        let shared = pooled(&direct, &id);
        assert_eq!(does(&shared, "SELECT 1"), "1");
        let sessions = [&direct, &shared].map(|url| Waiting::begin(coppice, "main", url, &one));
        end(&http, &one);
        for session in sessions {
            session.wait_for_end();
        }
        assert!(is_refused(&direct) && is_refused(&shared));
        wait_for_role(coppice, "main", &one, "");
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'key\\_%' AND usename <> $$";
        let others = format!("{sql}{}$$", untouched.id);
        wait_for("none is left", PATIENCE, || {
            (psql(&coppice.superuser_url("main"), &others).out == "0").then_some(())
        });
    }
    let count =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%100000%' AND pid <> pg_backend_pid()";
    assert_eq!(does(&coppice.superuser_url("main"), count), "1", "that of another key goes on");
    assert!(does(&coppice.connection_string("main"), "SELECT 1") == "1");

    // Who may not read credentials any more has no sessions by a key either.
    let superuser = coppice.superuser_url("main");
    assert!(psql(&coppice.metastore_url(), "UPDATE users SET disabled = true").is_ok);
    stays.wait_for_end();
    wait_for_role_at(&superuser, &untouched, "");
}

#[test]
fn a_login_reads_from_replicas_for_as_long_as_it_may() {
    let http = Http::new(platform());
    let coppice = &http.platform;
    coppice.sql("main", "CREATE TABLE t AS SELECT 'one' AS text");
    let (main, id) = (path(coppice, "main"), coppice.branch_id("main"));
    change(coppice, &main, &json!({ "replicas": 1 }));
    wait_whole(coppice, &main, 2);
    let replica = coppice.superuser_url("main").replace("-1/socket", "-2/socket");
    let one = key(&http, "owner", &json!({}));
    let direct = url(&http, &one, &main);
    let reads = direct.replacen(&id, &format!("{id}-ro"), 1);
    wait_read(&reads, "SELECT session_user, text FROM t", &format!("{}|one", one.id));
    refuses(&reads, "CREATE TABLE u ()", "read-only transaction");
    refuses(&reads, "SELECT pg_promote()", "permission denied");
    refuses(&reads, "SELECT pg_read_file('postgresql.conf')", "permission denied");

    // Whoever may not connect to the one may not connect to the others.
    let (project, _) = main.split_once("/branches").expect("a path");
    let filter = |enabled: bool| json!({ "configuration": { "ipFiltering": { "enabled": enabled, "cidr": [{ "cidr": "192.0.2.0/24" }] } } });
    change(coppice, project, &filter(true));
    refuses(&reads, "SELECT 1", "are not allowed");
    change(coppice, project, &filter(false));
    assert_eq!(does(&reads, "SELECT 1"), "1");

    let session = Waiting::begin_at(&replica, &reads, &one);
    delete(&http, &one);
    session.wait_for_end();
    assert!(is_refused(&reads));
    let left = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{}'", one.id);
    wait_for("none is left", PATIENCE, || (psql(&replica, &left).out == "0").then_some(()));
    wait_for_role(coppice, "main", &one, "");
    wait_for_role_at(&replica, &one, "");
}

#[test]
fn a_login_is_made_and_ended_without_waking_its_branch() {
    let http = Http::new(platform());
    let coppice = &http.platform;
    let main = path(coppice, "main");
    change(coppice, &main, &json!({ "scaleToZero": { "enabled": true } }));
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    hibernate(coppice, &main);
    let one = key(&http, "reader", &json!({}));
    let reads = url(&http, &one, &main);
    assert!(is_refused(&reads.replacen(reads.split([':', '@']).nth(2).unwrap_or_default(), "wrong", 1)));
    assert_eq!(status(coppice, &main), "STATUS_TYPE_HIBERNATED");
    assert_eq!(does(&reads, "SELECT i FROM t"), "7", "it wakes the branch as any client does");
    hibernate(coppice, &main);
    delete(&http, &one);
    assert!(is_refused(&reads));
    assert_eq!(status(coppice, &main), "STATUS_TYPE_HIBERNATED", "nothing is done about it now");
    let there = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{}'", one.id);
    assert_eq!(coppice.sql("main", &there), "0", "it is gone before anybody is let in");
    assert!(is_refused(&reads));
}

#[test]
fn a_login_is_for_one_branch_and_not_for_its_copies() {
    let http = Http::new(platform());
    let coppice = &http.platform;
    let (main, id) = (path(coppice, "main"), coppice.branch_id("main"));
    let one = key(&http, "owner", &json!({ "branches": [id] }));
    let owns = url(&http, &one, &main);
    does(&owns, "CREATE TABLE t AS SELECT 7 AS i");
    let look = format!("SELECT i FROM {}.t", one.id);
    coppice.cli(&["branch", "create", "child", "--parent", "main"]);
    let (child, child_id) = (path(coppice, "child"), coppice.branch_id("child"));
    let refused = http.as_key(&one.token, "GET", &format!("{child}/credentials"), None);
    refused.expect_error(403, "branch_access_denied");
    let there = owns.replacen(&id, &child_id, 1);
    assert!(is_refused(&there), "the copy has the role");
    wait_for_role(coppice, "child", &one, "f");
    assert_eq!(coppice.sql("child", &look), "7");
    assert_eq!(does(&owns, "SELECT i FROM t"), "7", "and the branch goes on having it");

    // One for both has another password on each.
    let both = key(&http, "reader", &json!({}));
    let urls = [&main, &child].map(|branch| url(&http, &both, branch));
    for url in &urls {
        assert_eq!(does(url, &look), "7");
    }
    assert!(is_refused(&urls[0].replacen(&id, &child_id, 1)));
    // What a reset brings back knows nothing of it, and it signs in all the same.
    http.post(&format!("{child}/reset"), &json!({})).expect(200);
    http.wait_healthy(&child);
    wait_for("it signs in", PATIENCE, || (psql(&urls[1], &look).out == "7").then_some(()));
}

#[test]
fn a_platform_that_ends_while_it_ends_a_login_goes_on_with_it() {
    let [flag, gateway] = fixed_gateway();
    let start = coppice_test_support::Options { flags: vec![flag, gateway], ..options() };
    let mut http = Http::new(Platform::start(PROGRAM, start));
    let main = path(&http.platform, "main");
    arm(&mut http.platform, "logins.ended");
    http.platform.restart();
    let one = key(&http, "reader", &json!({}));
    let reads = url(&http, &one, &main);
    does(&reads, "SELECT 1");
    delete(&http, &one);
    wait_for("it ends", PATIENCE, || http.platform.has_ended().then_some(()));
    arm(&mut http.platform, "");
    http.platform.restart();
    assert!(is_refused(&reads));
    wait_for("it is forgotten", PATIENCE, || {
        (psql(&http.platform.metastore_url(), "SELECT count(*) FROM logins").out == "0").then_some(())
    });
    wait_for_role(&http.platform, "main", &one, "");
}
