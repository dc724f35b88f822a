//! The way out: a branch is exported, and restored by programs that are not ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use coppice_test_support::{S3_SECRET, S3Server, directory, python_program, wait_for};
use serde_json::Value;

use crate::setup::{PROGRAM, postgres_dir};
use crate::store::{count, platform_with_store, said, wait_for_log};

const PATIENCE: Duration = Duration::from_secs(120);
const BUCKET: &str = "bucket";

/// A program of barman, in the bucket, on the server that was exported.
fn barman(s3: &S3Server, program: &str, server: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(python_program(program));
    command.args(["--endpoint-url", &s3.endpoint(), &format!("s3://{BUCKET}/exports"), server]);
    command.args(arguments).envs(s3.environment()).output().expect("the program runs")
}

/// Exports from the store alone.
fn export(s3: &S3Server, branch: &str, store: &Path, key: &Path, further: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["admin", "backup", "export", branch, "--json", "--store"]);
    command.arg(format!("file://{}", store.display())).arg("--key-file").arg(key);
    command.args(further).env("COPPICE_POSTGRES_DIRS", postgres_dir()).envs(s3.environment());
    command.output().expect("the executable runs")
}

/// The only backup of a server, as barman knows it.
fn listed(s3: &S3Server, server: &str) -> Value {
    let said_of = barman(s3, "barman-cloud-backup-list", server, &["--format", "json"]);
    let list: Value =
        serde_json::from_slice(&said_of.stdout).unwrap_or_else(|_| panic!("{}", said(&said_of)));
    let backups = list["backups_list"].as_array().expect("a list");
    assert_eq!(backups.len(), 1, "{list}");
    backups[0].clone()
}

/// Restores an export into an empty directory, as its manual says, and starts a plain
/// server on it.
struct Restored {
    home: tempfile::TempDir,
    programs: PathBuf,
}

impl Restored {
    fn start(s3: &S3Server, server: &str, version: &str) -> Self {
        let home = directory("coppice-restored-");
        let (data, socket) = (home.path().join("pgdata"), home.path().display().to_string());
        let backup = listed(s3, server);
        let fetch = |program: &str, what: &str, to: &Path| {
            let done = barman(s3, program, server, &[what, &to.display().to_string()]);
            assert!(done.status.success(), "{program}: {}", said(&done));
        };
        fetch("barman-cloud-restore", text(&backup, "backup_id"), &data);
        // The account of the server may not be let through to the Python of whoever runs this.
        let archive = home.path().join("archive");
        fs::create_dir(&archive).expect("a directory");
        for name in ["begin_wal", "end_wal"] {
            let file = text(&backup, name);
            fetch("barman-cloud-wal-restore", file, &archive.join(file));
        }
        let settings = format!(
            "restore_command = 'cp {}/%f %p'\nlisten_addresses = ''\nunix_socket_directories = '{socket}'\n",
            archive.display()
        );
        fs::write(data.join("postgresql.auto.conf"), settings).expect("a file");
        fs::write(data.join("recovery.signal"), "").expect("a file");
        let programs = postgres_dir().join(version).join("bin");
        let restored = Self { home, programs };
        let chown = Command::new("chown").args(["-R", "postgres:"]).arg(restored.home.path()).status();
        assert!(chown.expect("chown runs").success());
        let started = restored
            .as_postgres("pg_ctl", &["start", "--wait", "--timeout", "300", "--log", "../log"])
            .output()
            .expect("pg_ctl runs");
        assert!(started.status.success(), "{}\n{}", said(&started), restored.log());
        restored
    }

    fn as_postgres(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
        command.arg(self.programs.join(program)).args(arguments);
        let data = self.home.path().join("pgdata");
        command.env("PGDATA", &data).env("PGHOST", self.home.path()).current_dir(&data);
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// As the superuser that others' tools are.
    fn sql(&self, sql: &str) -> String {
        let asked = || {
            let asked = self.as_postgres("psql", &["-XAtq", "-U", "postgres", "-c", sql, "app"]).output();
            let asked = asked.expect("psql runs");
            asked.status.success().then(|| String::from_utf8_lossy(&asked.stdout).trim().to_owned())
        };
        wait_for(sql, PATIENCE, asked)
    }
}

impl Restored {
    /// As the role of the branch, if that is let in.
    fn sql_as_app(&self, password: &str, sql: &str) -> String {
        let mut command = self.as_postgres("psql", &["-XAtq", "-U", "app", "-c", sql, "app"]);
        let asked = command.env("PGPASSWORD", password).output().expect("psql runs");
        let refused = String::from_utf8_lossy(&asked.stderr).contains("password authentication failed");
        if refused { "refused".to_owned() } else { String::from_utf8_lossy(&asked.stdout).trim().to_owned() }
    }
}

impl Drop for Restored {
    fn drop(&mut self) {
        let _ = self.as_postgres("pg_ctl", &["stop", "--wait", "--mode", "immediate"]).output();
    }
}

fn text<'a>(exported: &'a Value, name: &str) -> &'a str {
    exported[name].as_str().unwrap_or_else(|| panic!("{name} in {exported}"))
}

fn exported(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(output)))
}

#[test]
#[ignore = "takes long, see `make long`"]
fn a_branch_leaves_for_a_plain_server_through_barman() {
    let home = directory("coppice-files-");
    let (store, key) = (home.path().join("store"), home.path().join("secret.key"));
    let s3 = S3Server::swift();
    s3.make_bucket(BUCKET);
    let coppice = platform_with_store(&store);
    let main = coppice.branch_id("main");
    coppice.sql("main", "CREATE TABLE kept AS SELECT i, repeat('x', 100) FROM generate_series(1, 100000) i");
    wait_for("there is a base", PATIENCE, || (count(&store.join("bases")) == 1).then_some(()));
    // Of this the base has nothing.
    coppice.sql("main", "INSERT INTO kept SELECT i FROM generate_series(100001, 100100) i");
    wait_for_log(&coppice, "main", &store);
    let before = Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true);
    coppice.sql("main", "DELETE FROM kept");
    wait_for_log(&coppice, "main", &store);
    let address = url::Url::parse(&coppice.connection_string("main")).expect("a URL");
    let password = address.password().expect("a password").to_owned();
    fs::copy(coppice.data_dir().join("secret.key"), &key).expect("a copy of the key");
    let to = ["--to", "s3://bucket/exports", "--server"];
    // The superuser would be its.
    coppice.sql("main", "CREATE ROLE postgres");
    wait_for_log(&coppice, "main", &store);
    let refused = export(&s3, &main, &store, &key, &[&to[..], &["refused"]].concat());
    assert!(said(&refused).contains("already exists"), "{}", said(&refused));
    coppice.sql("main", "DROP ROLE postgres");
    wait_for_log(&coppice, "main", &store);
    drop(coppice);

    let refused = export(&s3, "nobody", &store, &key, &[&to[..], &["shop"]].concat());
    assert!(!refused.status.success() && said(&refused).contains("no base of branch nobody"));
    let early = ["shop", "--at", "2020-01-01T00:00:00Z"];
    let refused = export(&s3, &main, &store, &key, &[&to[..], &early].concat());
    assert!(
        !refused.status.success() && said(&refused).contains("choose a later time"),
        "{}",
        said(&refused)
    );
    let done = export(&s3, &main, &store, &key, &[&to[..], &["shop", "--at", &before]].concat());
    assert!(!said(&done).contains(S3_SECRET));
    let done = exported(&done);
    let again = export(&s3, &main, &store, &key, &[&to[..], &["shop"]].concat());
    assert!(!again.status.success() && said(&again).contains("name another server"), "{}", said(&again));

    let listed = listed(&s3, "shop");
    assert_eq!((&listed["backup_id"], &listed["status"]), (&done["backup"], &"DONE".into()), "{listed}");
    let restored = Restored::start(&s3, "shop", text(&done, "version"));
    assert_eq!(restored.sql("SELECT count(*), sum(i) FROM kept"), "100100|5010055050", "as of the moment");
    let log = restored.log();
    assert!(
        log.contains("restored log file \"") && log.contains("from archive"),
        "it is in the archive: {log}"
    );
    let in_recovery = "SELECT NOT pg_is_in_recovery() OR NULL";
    wait_for("it is on its own", PATIENCE, || (restored.sql(in_recovery) == "t").then_some(()));
    restored.sql("CREATE TABLE later ()");
    let roles =
        "SELECT string_agg(rolname, ' ' ORDER BY rolname) FROM pg_roles WHERE rolsuper AND rolcanlogin";
    assert_eq!(restored.sql(roles), "postgres", "nobody else gets in as a superuser");
    assert_eq!(restored.sql_as_app(&password, "SELECT count(*) FROM kept"), "100100");
    assert_eq!(restored.sql_as_app("another one", "SELECT 1"), "refused");

    let latest = exported(&export(&s3, &main, &store, &key, &[&to[..], &["later"]].concat()));
    let restored = Restored::start(&s3, "later", text(&latest, "version"));
    assert_eq!(restored.sql("SELECT count(*) FROM kept"), "0", "all there is");
}
