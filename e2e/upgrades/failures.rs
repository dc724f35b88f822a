//! Upgrades that are refused, fail, or are cut off.

use coppice_test_support::{psql, wait_for};
use serde_json::{Value, json};

use super::{PATIENCE, image, inside, make, message, upgrade, versions};
use crate::branches::{path, status};
use crate::setup::{environment_with, every_release, postgres_dir, some_of};

/// Of a role that could change nothing of `app`'s; everything would belong to one role while it is restored.
const OF_A_GUEST: &str = "
    CREATE TABLE pay (amount int); INSERT INTO pay VALUES (1);
    CREATE ROLE guest; GRANT guest TO app; CREATE SCHEMA guest AUTHORIZATION guest; SET ROLE guest;
    CREATE TABLE guest.plain (i int CHECK (i > 0), at date CHECK (at <= now()), t text, n int GENERATED ALWAYS AS (i * 2) STORED);
    CREATE INDEX ON guest.plain (lower(t)) WHERE t ~ '^a';
    CREATE FUNCTION guest.act(i int) RETURNS void LANGUAGE plpgsql AS $$
        BEGIN UPDATE public.pay SET amount = amount + 1000; EXCEPTION WHEN OTHERS THEN NULL; END$$;
    CREATE FUNCTION guest.is_even(i int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
        $$BEGIN PERFORM guest.act(i); RETURN i % 2 = 0; END$$;
    CREATE TABLE guest.t (i int); INSERT INTO guest.t VALUES (1); CREATE INDEX even ON guest.t (guest.is_even(i))";
/// What is called by what is `app`'s, and has the rights of the guest alone until it is restored.
const FOR_OTHERS: &str = r#"
    SET ROLE guest; DROP INDEX guest.even;
    CREATE FUNCTION guest."va""lid"(i int) RETURNS boolean SECURITY DEFINER LANGUAGE plpgsql AS
        $$BEGIN PERFORM guest.act(i); RETURN true; END$$;
    RESET ROLE; CREATE FUNCTION checked(i int) RETURNS boolean LANGUAGE plpgsql AS
        $$BEGIN RETURN guest."va""lid"(i); END$$;
    CREATE TABLE orders (i int CHECK (checked(i))); INSERT INTO orders VALUES (1)"#;
/// What reaches no more than the guest may, but for one view.
const BY_VIEWS: &str = r#"
    SET ROLE guest; ALTER FUNCTION guest."va""lid"(int) SECURITY INVOKER;
    CREATE VIEW guest.own AS SELECT * FROM guest.plain; CREATE VIEW guest.catalogue AS SELECT * FROM pg_catalog.pg_class;
    CREATE VIEW guest.as_reader WITH (security_invoker = on) AS SELECT * FROM public.pay;
    CREATE VIEW guest.pays AS SELECT * FROM public.pay"#;

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
    coppice.sql("stuck", "DROP EXTENSION citext");
    let postgres = inside(&url, "postgres");
    assert_eq!(psql(&postgres, "SELECT lo_from_bytea(4242, 'x')").out, "4242");
    failing("the database postgres is made anew");
    assert_eq!(psql(&postgres, "SELECT lo_unlink(4242)").out, "1");
    // What only computes would do no harm, and is not what is refused.
    coppice.sql("stuck", OF_A_GUEST);
    failing("index guest.even of the role guest runs code");
    coppice.sql("stuck", FOR_OTHERS);
    failing(r#"function guest."va""lid"(integer) of the role guest runs code"#);
    coppice.sql("stuck", BY_VIEWS);
    failing("view guest.pays of the role guest runs code");
    assert_eq!(coppice.connection_string("stuck"), url);
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
    for step in some_of(steps) {
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
