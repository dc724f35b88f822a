//! Records that are exported, lost, and imported again.

use std::time::Duration;

use coppice_test_support::{Platform, psql, wait_for};

use crate::setup::platform;

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Every row that a platform has written down, as JSON.
pub(crate) fn all_rows(platform: &Platform) -> String {
    let ask = |sql: &str| {
        let said = psql(&platform.metastore_url(), sql);
        assert!(said.is_ok, "{sql}: {}", said.err);
        said.out
    };
    let tables = ask(
        "SELECT string_agg(format('SELECT row_to_json(t) FROM %I.%I t', schemaname, tablename), ' UNION ALL ')
         FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    );
    ask(&tables)
}

/// How a text looks among [`all_rows`] that was written down as bytes.
pub(crate) fn as_bytes(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_lost_metastore_comes_back_from_an_export() {
    let mut coppice = platform();
    coppice.sql("main", "CREATE TABLE t AS SELECT 7 AS i");
    let directory = coppice_test_support::directory("coppice-files-");
    let file = directory.path().join("records.coppice").display().to_string();
    let export = ["admin", "metastore", "export", &file];
    let import = ["admin", "metastore", "import", &file];
    let exported = coppice.run(&export);
    assert!(exported.status.success(), "{}", said(&exported));
    assert!(said(&coppice.run(&export)).contains("exists already"));
    assert!(said(&coppice.run(&import)).contains("a platform runs on"));

    // The control plane goes; the branches stay, and so does the metastore's server.
    assert_eq!(coppice.terminate(), Some(0));
    std::fs::remove_dir_all(coppice.data_dir().join("metastore/data/base")).expect("wrecked");
    let imported = coppice.run(&import);
    assert!(imported.status.success(), "{}", said(&imported));
    coppice.spawn();
    coppice.wait_ready();
    let seven = || Some(coppice.psql("main", "SELECT i FROM t")).filter(|said| said.is_ok);
    assert_eq!(wait_for("main is back", Duration::from_secs(60), seven).out, "7");
    assert_eq!(coppice.cli(&["branch", "list"])["branches"].as_array().expect("a list").len(), 1);
}

#[test]
fn an_export_of_another_installation_is_refused_before_anything_is_touched() {
    let (one, mut other) = (platform(), platform());
    let directory = coppice_test_support::directory("coppice-files-");
    let file = directory.path().join("records.coppice").display().to_string();
    assert!(one.run(&["admin", "metastore", "export", &file]).status.success());
    assert_eq!(other.terminate(), Some(0));
    let refused = other.run(&["admin", "metastore", "import", &file]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("nothing was changed"), "{}", said(&refused));
    other.spawn();
    other.wait_ready();
    assert_eq!(other.sql("main", "SELECT 1"), "1");
}
