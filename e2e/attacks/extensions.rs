//! A tenant makes an extension's script, which runs as a superuser, use objects
//! of the tenant's.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coppice_test_support::{Platform, Psql, psql, wait_for};

use crate::setup::{every_release, postgres_dir};

const PATIENCE: Duration = Duration::from_secs(60);
/// Whether the role `app` is what it should not be.
const IS_SUPERUSER: &str = "SELECT rolsuper FROM pg_roles WHERE rolname = 'app'";

/// A type `cube` whose values are checked by a function that makes `app` a
/// superuser when a superuser calls it, and what else a script wants of a cube.
const FAKE_CUBE: &str = "
    CREATE FUNCTION evil.take() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
            ALTER ROLE app SUPERUSER;
        END IF;
        RETURN true;
    END $$;
    CREATE DOMAIN evil.trap AS integer CHECK (evil.take());
    CREATE TYPE evil.cube AS (x evil.trap);
    CREATE FUNCTION evil.cube_is_point(evil.cube) RETURNS boolean LANGUAGE sql AS 'SELECT true';
    CREATE FUNCTION evil.cube_dim(evil.cube) RETURNS integer LANGUAGE sql AS 'SELECT 1';
    CREATE FUNCTION evil.cube_distance(evil.cube, evil.cube) RETURNS float8 LANGUAGE sql AS 'SELECT 1::float8';";

/// A statement of the tenant's that waits for another one of theirs.
struct Held {
    session: Child,
    waiting: std::thread::JoinHandle<Psql>,
}

/// Runs `statement` while a session holds `obstacle`, uncommitted; returns when
/// the statement waits for it, or has ended.
fn hold(coppice: &Platform, branch: &str, obstacle: &str, statement: &str) -> Held {
    let url = coppice.connection_string(branch);
    let mut session = Command::new("psql")
        .args([&url, "-XAtq", "-v", "ON_ERROR_STOP=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("psql runs");
    let input = session.stdin.as_mut().expect("a pipe");
    writeln!(input, "BEGIN; {obstacle};\n\\echo held").expect("it listens");
    let mut said = String::new();
    BufReader::new(session.stdout.as_mut().expect("a pipe")).read_line(&mut said).expect("an answer");
    assert_eq!(said.trim(), "held");
    let statement = statement.to_owned();
    let waiting = std::thread::spawn(move || psql(&url, &statement));
    let superuser = coppice.superuser_url(branch);
    let blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    wait_for("the statement waits or has ended", PATIENCE, || {
        (waiting.is_finished() || psql(&superuser, blocked).out == "1").then_some(())
    });
    Held { session, waiting }
}

impl Held {
    /// Takes the obstacle away; what the statement said.
    fn let_go(mut self) -> Psql {
        drop(self.session.stdin.take());
        self.session.wait().expect("psql ends");
        self.waiting.join().expect("an answer")
    }
}

/// PostgreSQL 15: the target schema has another `cube` than the real one.
fn take_by_a_type_in_the_target_schema(coppice: &Platform, branch: &str) -> Psql {
    coppice.sql(branch, "CREATE EXTENSION cube SCHEMA public; CREATE SCHEMA evil;");
    coppice.sql(branch, FAKE_CUBE);
    coppice.psql(branch, "CREATE EXTENSION earthdistance SCHEMA evil")
}

/// From 16 on a script names the schema of `cube`: it is swapped meanwhile.
fn take_by_a_renamed_schema(coppice: &Platform, branch: &str) -> Psql {
    coppice.sql(branch, "CREATE SCHEMA evil; CREATE EXTENSION cube SCHEMA evil; CREATE SCHEMA tgt");
    let obstacle = "CREATE FUNCTION tgt.earth() RETURNS float8 LANGUAGE sql AS 'SELECT 1::float8'";
    let held = hold(coppice, branch, obstacle, "CREATE EXTENSION earthdistance SCHEMA tgt VERSION '1.1'");
    coppice.sql(branch, &format!("ALTER SCHEMA evil RENAME TO real_cube; CREATE SCHEMA evil; {FAKE_CUBE}"));
    held.let_go()
}

/// A schema swapped while a script puts its functions there.
fn split_over_two_schemas(coppice: &Platform, branch: &str) -> Psql {
    coppice.sql(branch, "CREATE SCHEMA half");
    let obstacle = "CREATE FUNCTION half.pgstatindex(text) RETURNS integer LANGUAGE sql AS 'SELECT 1'";
    let held = hold(coppice, branch, obstacle, "CREATE EXTENSION pgstattuple SCHEMA half VERSION '1.4'");
    coppice.sql(branch, "ALTER SCHEMA half RENAME TO other_half; CREATE SCHEMA half");
    held.let_go()
}

/// Where the platform's images keep their extensions, by major release.
fn extension_directories(coppice: &Platform) -> Vec<(String, PathBuf)> {
    let images = fs::read_dir(coppice.data_dir().join("images")).expect("images");
    images
        .map(|image| {
            let image = image.expect("an image").path();
            let version = image.file_name().and_then(|name| name.to_str()).expect("a version").to_owned();
            let major = version.split('.').next().expect("a major release").to_owned();
            let debian = image.join("share/postgresql").join(&major).join("extension");
            let share = image.join("share/postgresql/extension");
            (major, [debian, share].into_iter().find(|dir| dir.is_dir()).expect("extensions"))
        })
        .collect()
}

/// Makes the images what an earlier release left.
fn mark_as_it_was(coppice: &Platform) {
    for (_, directory) in extension_directories(coppice) {
        let control = directory.join("earthdistance.control");
        let text = fs::read_to_string(&control).expect("a control file");
        fs::write(&control, text + "trusted = true\n").expect("a writable file");
        let script = directory.join("pgstattuple--1.4.sql");
        let text = fs::read_to_string(&script).expect("a script");
        let (own, _) = text.split_once("\n-- Coppice: ").expect("a guard");
        fs::write(&script, own).expect("a writable file");
    }
}

#[test]
fn no_script_of_an_extension_makes_its_creator_a_superuser() {
    let mut coppice = every_release();
    for major in ["15", "18"] {
        for time in ["before", "after"] {
            let image = format!("postgres:{major}");
            coppice.cli(&["branch", "create", &format!("{time}{major}"), "--image", &image]);
        }
    }
    // That the attacks are real: they succeed on the images of an earlier release.
    mark_as_it_was(&coppice);
    for branch in ["before15", "before18"] {
        assert!(split_over_two_schemas(&coppice, branch).is_ok);
        let schemas =
            "SELECT count(DISTINCT pronamespace) FROM pg_proc WHERE proname ~ '^pgstat(tuple|index)'";
        assert_eq!(coppice.sql(branch, schemas), "2", "{branch}");
    }
    take_by_a_type_in_the_target_schema(&coppice, "before15");
    take_by_a_renamed_schema(&coppice, "before18");
    for branch in ["before15", "before18"] {
        assert_eq!(coppice.sql(branch, IS_SUPERUSER), "t", "{branch}: the attack has lost its point");
    }

    let servers = ["after15", "after18"].map(|branch| coppice.postmaster(&coppice.branch_id(branch)));
    coppice.restart();
    for (branch, server) in ["after15", "after18"].into_iter().zip(servers) {
        let said = match branch {
            "after15" => take_by_a_type_in_the_target_schema(&coppice, branch),
            _ => take_by_a_renamed_schema(&coppice, branch),
        };
        assert!(said.err.contains("permission denied to create extension \"earthdistance\""), "{}", said.err);
        let said = split_over_two_schemas(&coppice, branch);
        assert!(said.err.contains("which is not its own"), "{branch}: {} {}", said.out, said.err);
        assert_eq!(coppice.sql(branch, IS_SUPERUSER), "f", "{branch}");
        assert_eq!(
            coppice.sql(branch, "SELECT count(*) FROM pg_extension WHERE extname ~ '^(pgst|ea)'"),
            "0"
        );
        assert_eq!(coppice.postmaster(&coppice.branch_id(branch)), server, "it went on running");
    }
}

/// Names in the first column of a table of the document; only the rows that say
/// `word` in the second.
fn documented(heading: &str, word: Option<&str>) -> BTreeSet<String> {
    let text = include_str!("../../docs/extensions.md");
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).expect("the heading");
    let rows =
        section.split("\n## ").next().expect("a section").lines().filter(|line| line.starts_with("| "));
    let cells = rows.skip(1).map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells.filter(|row| word.is_none_or(|word| row[2] == word)).map(|row| row[1].to_owned()).collect()
}

/// Extensions of a directory: all, and those that are marked as trusted.
fn extensions(directory: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut all, mut trusted) = (BTreeSet::new(), BTreeSet::new());
    for file in fs::read_dir(directory).expect("a directory") {
        let path = file.expect("a file").path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".control")) else {
            continue;
        };
        all.insert(name.to_owned());
        if fs::read_to_string(&path).expect("text").lines().any(|line| line == "trusted = true") {
            trusted.insert(name.to_owned());
        }
    }
    (all, trusted)
}

#[test]
fn what_is_documented_is_what_can_be_created() {
    let coppice = every_release();
    let (offered, ours) = (documented("Offered", None), documented("Offered", Some("ours")));
    let refused = documented("Refused", None);
    for (major, directory) in extension_directories(&coppice) {
        let (all, trusted) = extensions(&directory);
        assert_eq!(all.difference(&refused).cloned().collect::<BTreeSet<_>>(), trusted, "{major}");
        assert_eq!(all.intersection(&offered).cloned().collect::<BTreeSet<_>>(), trusted, "{major}");
        let source = match major.as_str() {
            "15" => PathBuf::from("/usr/share/postgresql/15/extension"),
            _ => postgres_dir()
                .join(directory.ancestors().nth(3).and_then(Path::file_name).expect("a version"))
                .join("share/postgresql/extension"),
        };
        let (_, trusted_by_postgresql) = extensions(&source);
        let marked: BTreeSet<_> = trusted.difference(&trusted_by_postgresql).cloned().collect();
        assert_eq!(marked, ours.intersection(&all).cloned().collect(), "{major}");

        let path = format!("/organizations/{{org}}/extensions?image=postgres:{major}");
        let (_, list) = coppice.call("GET", &path, None);
        let list = list["extensions"].as_array().expect("extensions");
        let created = list.iter().filter(|extension| extension["type"] == "extension");
        let told: BTreeSet<_> = created.map(|one| one["name"].as_str().expect("a name").to_owned()).collect();
        assert_eq!(told, trusted, "{major}");
    }
    for major in ["15", "18"] {
        let (branch, image) = (format!("all{major}"), format!("postgres:{major}"));
        coppice.cli(&["branch", "create", &branch, "--image", &image]);
        every_one_can_be_created(&coppice, &branch, &offered, &refused);
    }
    nearest_neighbours_are_found(&coppice, "all18");
}

/// Creates each extension in each version that can be installed, updates it to
/// the newest and drops it; all in one session, which tells what failed.
const TRY_ALL: &str = "
    CREATE TABLE tried (name text, version text, error text);
    DO $$
    DECLARE
        one record;
        views text;
    BEGIN
        FOR one IN SELECT name, version FROM pg_available_extension_versions WHERE name <> 'plpgsql' LOOP
            BEGIN
                EXECUTE format('CREATE EXTENSION %I VERSION %L', one.name, one.version);
                EXECUTE format('ALTER EXTENSION %I UPDATE', one.name);
                SELECT string_agg(oid::regclass::text, ' ') INTO STRICT views FROM pg_class
                WHERE relkind = 'v' AND relowner = 10 AND pg_relation_is_updatable(oid, true) <> 0;
                IF views <> 'pg_settings' THEN
                    RAISE 'whoever has pg_write_all_data writes as a superuser through %', views;
                END IF;
                EXECUTE format('DROP EXTENSION %I', one.name);
                INSERT INTO tried VALUES (one.name, one.version, NULL);
            EXCEPTION WHEN OTHERS THEN
                INSERT INTO tried VALUES (one.name, one.version, SQLERRM);
            END;
        END LOOP;
    END $$";

fn every_one_can_be_created(
    coppice: &Platform,
    branch: &str,
    offered: &BTreeSet<String>,
    refused: &BTreeSet<String>,
) {
    coppice.sql(branch, TRY_ALL);
    let tried = coppice.sql(branch, "SELECT name, version, coalesce(error, '') FROM tried ORDER BY 1, 2");
    assert!(tried.lines().count() > 50, "{tried}");
    for line in tried.lines() {
        let cells: Vec<_> = line.splitn(3, '|').collect();
        let (name, error) = (cells[0], cells[2]);
        assert_eq!(error.is_empty(), offered.contains(name), "{branch}: {line}");
        assert_eq!(error.is_empty(), !refused.contains(name), "{branch}: {line}");
    }
}

fn nearest_neighbours_are_found(coppice: &Platform, branch: &str) {
    let plan = coppice.sql(
        branch,
        "CREATE EXTENSION vector;
         CREATE TABLE items (id int, place vector(2));
         INSERT INTO items SELECT i, ARRAY[i % 100, i / 100]::vector FROM generate_series(0, 9999) AS i;
         CREATE INDEX ON items USING hnsw (place vector_l2_ops);
         SET enable_seqscan = off;
         EXPLAIN (COSTS off) SELECT id FROM items ORDER BY place <-> '[42, 17]' LIMIT 3",
    );
    assert!(plan.contains("Index Scan using items_place_idx"), "{plan}");
    let nearest = coppice.sql(
        branch,
        "SET enable_seqscan = off; SELECT id FROM items ORDER BY place <-> '[42.1, 17.2]' LIMIT 3",
    );
    assert_eq!(nearest, "SET\n1742\n1842\n1743");
}
