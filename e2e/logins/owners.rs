//! Owners of branches, and what they do to logins.

use std::process::{Command, Stdio};

use coppice_test_support::{psql, wait_for};
use serde_json::json;

use super::{PATIENCE, Waiting, delete, does, key, url, wait_for_role};
use crate::branches::path;
use crate::credentials::is_refused;
use crate::http::Http;
use crate::setup::every_release;

/// What the owner of a branch does to the role of a key.
fn meddles(http: &Http, name: &str) {
    let coppice = &http.platform;
    let branch = path(coppice, name);
    let one = key(http, "writer", &json!({}));
    let (writes, id) = (url(http, &one, &branch), &one.id);
    does(&writes, "SELECT 1");
    let app = coppice.connection_string(name);
    // From 16 on it may do none of it, and of its own password a role is always master.
    for sql in [
        format!("ALTER ROLE {id} NOLOGIN"),
        format!("ALTER ROLE {id} PASSWORD 'chosen'"),
        format!("ALTER ROLE {id} RENAME TO renamed"),
        format!("ALTER ROLE {id} VALID UNTIL '2001-01-01'"),
        format!("REVOKE pg_write_all_data FROM {id}"),
        format!("DROP ROLE {id}; CREATE ROLE {id} CREATEDB LOGIN PASSWORD 'chosen'"),
    ] {
        psql(&app, &sql);
        let may = format!("SELECT session_user, rolcreatedb FROM pg_roles WHERE rolname = '{id}'");
        assert_eq!(does(&writes, &may), format!("{id}|f"), "after {sql}");
    }
    does(&writes, &format!("ALTER ROLE {id} PASSWORD 'chosen'"));
    let password = writes.split([':', '@']).nth(2).unwrap_or_default().to_owned();
    assert!(is_refused(&writes.replacen(&password, "chosen", 1)), "nor does what it chooses itself count");
    does(&writes, "BEGIN; CREATE TEMP TABLE nothing (); ROLLBACK; SELECT lo_create(4711)");
    // Nobody signs in by a name of that kind whom the platform does not know.
    let made_up = "key_00000000000000000000000000";
    does(&app, &format!("CREATE ROLE {made_up} LOGIN PASSWORD 'chosen'"));
    assert!(is_refused(&writes.replacen(id, made_up, 1).replacen(&password, "chosen", 1)));

    // What it holds when it ends keeps nobody waiting.
    does(&app, "CREATE TABLE held (i int)");
    does(&writes, "BEGIN; INSERT INTO held VALUES (1); PREPARE TRANSACTION 'held'");
    does(&app, &format!("GRANT {made_up} TO {id}"));
    let mut holder = Command::new("psql");
    let hold = format!("BEGIN; GRANT SELECT ON held TO {id}; SELECT pg_sleep(100000)");
    holder.args([&app, "-XAtqc", &hold]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _holder = Waiting(holder.spawn().expect("psql runs"));
    delete(http, &one);
    assert!(is_refused(&writes));
    // It made a large object.
    wait_for_role(coppice, name, &one, "f");
    wait_for("its rights go", PATIENCE, || {
        let sql = format!(
            "SELECT count(*) FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member WHERE r.rolname = '{id}'"
        );
        (psql(&coppice.superuser_url(name), &sql).out == "0").then_some(())
    });
    wait_for("what it prepared goes", PATIENCE, || {
        (psql(&app, "SELECT count(*) FROM pg_prepared_xacts").out == "0").then_some(())
    });
    assert_eq!(does(&app, "SELECT count(*) FROM pg_largeobject_metadata WHERE oid = 4711"), "1");
}

#[test]
fn what_the_owner_of_a_branch_does_to_a_login_breaks_nothing() {
    let http = Http::new(every_release());
    for major in ["15", "18"] {
        let name = format!("v{major}");
        http.platform.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        meddles(&http, &name);
    }
}
