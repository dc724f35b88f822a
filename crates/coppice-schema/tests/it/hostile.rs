//! Schemas by which psql would do something else than was looked at.

use coppice_schema::diff;

use crate::server::{Server, releases};

/// What both databases have. Whoever looks up `upper` in another schema first finds another one.
const BEGINNING: &str = "CREATE TABLE t (i int); INSERT INTO t VALUES (1);
    CREATE FUNCTION public.upper(text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'mine'::text $$";

/// A setting, what it is set to by the default of a column, and what a view has that comes next; `MARK` is a file
/// that is not to be there.
const SET_BY_DEFAULTS: [(&str, &str, &str); 4] = [
    ("standard_conforming_strings", "off", "'\\'::text AS a, '\n\\! touch MARK\n-- '::text AS b"),
    ("client_encoding", "SJIS", "'あ'::text AS a, '\n\\! touch MARK\n'::text AS b"),
    ("search_path", "public, pg_catalog", "pg_catalog.upper(t.c) AS a"),
    ("role", "ops", "1 AS a"),
];

fn beginning(server: &Server, databases: [&str; 2]) {
    for database in databases {
        server.create(database);
        server.run("app", database, BEGINNING).expect("a schema");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_statement_sets_the_next_one_is_read_as_it_was_looked_at() {
    for bin in releases() {
        let server = Server::start(&bin);
        let mark = server.mark();
        let place = mark.display().to_string();
        for (number, (setting, value, columns)) in SET_BY_DEFAULTS.into_iter().enumerate() {
            let (old, new) = (format!("old_{number}"), format!("new_{number}"));
            beginning(&server, [&old, &new]);
            for sql in [
                format!("ALTER TABLE t ADD COLUMN c text DEFAULT set_config('{setting}', '{value}', false)"),
                format!("CREATE VIEW v AS SELECT t.c, {} FROM t", columns.replace("MARK", &place)),
            ] {
                server.run("app", &new, &sql).expect("a schema");
            }
            let wanted = server.read(&new).await;
            server.sync(&old, wanted, setting).await;
            assert!(!mark.exists(), "{}: {setting}", bin.display());
        }

        // The constraint of a domain is evaluated as soon as the text of a view is read: it needs no rows.
        beginning(&server, ["old", "new"]);
        for sql in [
            "CREATE DOMAIN d AS int CHECK (set_config('standard_conforming_strings', 'off', false) IS NOT NULL);
             CREATE TYPE of_d AS (a d); CREATE VIEW v AS SELECT '(1)'::of_d AS x",
            &format!("CREATE VIEW w AS SELECT v.x, {} FROM v", SET_BY_DEFAULTS[0].2.replace("MARK", &place)),
        ] {
            server.run("app", "new", sql).expect("a schema");
        }
        let wanted = server.read("new").await;
        server.sync("old", wanted, "a domain").await;
        assert!(!mark.exists(), "{}", bin.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_psql_begins_with_a_script_is_read_as_it_was_looked_at() {
    let Some(bin) = releases().into_iter().next() else { return };
    let server = Server::start(&bin);
    beginning(&server, ["old", "new"]);
    let mark = server.mark();
    let view = format!(
        "CREATE VIEW v AS SELECT 'あ'::text AS a, '\n\\! touch {}\n'::text AS b, t.i::text ~ '^\\d+$' AS c,
             (ARRAY[1, 2, 3])[1:t.i] AS d, '\\x00ff'::bytea AS e FROM t",
        mark.display()
    );
    server.run("app", "new", &view).expect("a schema");
    let wanted = server.read("new").await;
    let script = diff(server.read("old").await.schema(), wanted.schema()).script("A test");
    let done = server.run_with("app", "old", &script, |psql| {
        psql.env("PGCLIENTENCODING", "SJIS").env("PGOPTIONS", "-c standard_conforming_strings=off");
        psql.args(["-v", "t=0", "-v", "i=0"]);
    });
    done.unwrap_or_else(|error| panic!("{script}\n{error}"));
    assert!(!mark.exists(), "{script}");
    let left = diff(server.read("old").await.schema(), wanted.schema());
    assert!(left.objects.is_empty(), "{script}\nleft: {:#?}", left.objects);
}
