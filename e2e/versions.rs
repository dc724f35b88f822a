//! The same on every PostgreSQL release.

use coppice_test_support::{Platform, psql};

use crate::setup::every_release;

const MAJORS: [&str; 4] = ["15", "16", "17", "18"];

/// Ways to reach the server's files, programs or its platform.
const ATTACKS: [&str; 12] = [
    "COPY (SELECT 1) TO PROGRAM 'id'",
    "COPY (SELECT 1) TO '/tmp/coppice-attack'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT lo_import('/etc/passwd')",
    "GRANT pg_execute_server_program TO app",
    "GRANT pg_read_server_files TO app",
    "GRANT pg_write_server_files TO app",
    "GRANT platform TO app",
    "ALTER ROLE platform PASSWORD 'x'",
    "SET ROLE platform",
    "ALTER SYSTEM SET listen_addresses = '*'",
    "CREATE ROLE boss SUPERUSER",
];

#[test]
fn every_release_makes_branches_and_keeps_its_owner_inside() {
    let coppice = every_release();
    for major in MAJORS {
        let name = format!("v{major}");
        coppice.cli(&["branch", "create", &name, "--image", &format!("postgres:{major}")]);
        let version = coppice.sql(&name, "SELECT current_setting('server_version_num')::int / 10000");
        assert_eq!(version, major);
        coppice.sql(&name, "CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 1000)");
        let settings = "SELECT current_setting('fsync') || current_setting('data_checksums')
            || current_setting('server_encoding') || current_setting('password_encryption')";
        assert_eq!(coppice.sql(&name, settings), "ononUTF8scram-sha-256");
        // As distributions have it, in databases that the owner makes as well.
        coppice.sql(&name, "CREATE DATABASE library");
        let url = coppice.connection_string(&name);
        let library = format!("{}/library", url.strip_suffix("/app").expect("the database app"));
        assert_eq!(psql(&library, "SELECT to_tsvector('the trees')").out, "'tree':2");

        // A role that the owner makes is no stronger than its maker.
        coppice.sql(&name, "CREATE ROLE helper LOGIN PASSWORD 'helper' CREATEROLE");
        let owner = coppice.connection_string(&name);
        let helper = helper_url(&owner);
        for attack in ATTACKS {
            for url in [&owner, &helper] {
                let said = psql(url, attack);
                assert!(!said.is_ok, "{major}: {attack}: {}", said.out);
            }
        }

        nobody_writes_through_a_view(&coppice, &name);

        let child = format!("{name}-child");
        coppice.cli(&["branch", "create", &child, "--parent", &name]);
        assert_eq!(coppice.sql(&child, "SELECT sum(i) FROM t"), "500500");
        // Each branch has a password of its own.
        assert_ne!(owner, coppice.connection_string(&child));
    }
}

/// Who may write to everything, as logins of keys do, may not write to catalogues through the views
/// that a superuser has of them, in whatever database.
fn nobody_writes_through_a_view(coppice: &Platform, name: &str) {
    let superuser = psql(&coppice.superuser_url(name), "GRANT pg_write_all_data TO app");
    assert!(superuser.is_ok, "{}", superuser.err);
    coppice.sql(name, "CREATE DATABASE plain TEMPLATE template0");
    let owner = coppice.connection_string(name);
    let owner = owner.strip_suffix("/app").expect("the database app");
    for database in ["app", "postgres", "plain"] {
        for view in ["pg_group", "pg_stat_database_conflicts", "information_schema.enabled_roles"] {
            let said = psql(&format!("{owner}/{database}"), &format!("DELETE FROM {view} WHERE false"));
            assert!(!said.is_ok && said.err.contains("cannot delete from view"), "{database}: {}", said.err);
        }
        // `pg_settings` does for whoever writes to it what `SET` does.
        let written = "SELECT string_agg(oid::regclass::text, ' ') FROM pg_class
            WHERE relkind = 'v' AND relowner = 10 AND pg_relation_is_updatable(oid, true) <> 0";
        assert_eq!(psql(&format!("{owner}/{database}"), written).out, "pg_settings");
    }
}

fn helper_url(owner: &str) -> String {
    let (_, rest) = owner.split_once("//app.").expect("a connection string");
    let (branch, rest) = rest.split_once(':').expect("a password");
    let (_, rest) = rest.split_once('@').expect("a host");
    format!("postgresql://helper.{branch}:helper@{rest}")
}
