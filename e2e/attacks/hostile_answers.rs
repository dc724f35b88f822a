//! A tenant who became superuser and lets his server answer the platform with
//! what it did not ask for.

use std::time::Duration;

use coppice_test_support::{Platform, psql, wait_for};
use serde_json::json;

use crate::branches::{path, status};
use crate::setup::every_release;

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
