//! Databases of a server of the tests' own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coppice_schema::{SETTINGS, Schema, diff, queries};
use coppice_test_support::Postgres;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Roles: the owner of databases, somebody else, one with a name that has to be quoted,
/// and the one that looks.
const ROLES: &str = r#"CREATE ROLE ops; CREATE ROLE "odd "" role"; CREATE ROLE app LOGIN CREATEROLE; GRANT ops TO app;
    CREATE ROLE reader LOGIN BYPASSRLS; GRANT pg_read_all_data TO reader;"#;

/// Where the programs of the oldest and the newest release are.
pub(crate) fn releases() -> Vec<PathBuf> {
    let more = std::env::var_os("COPPICE_POSTGRES_DIRS").unwrap_or_default();
    let newest = std::env::split_paths(&more)
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten())
        .filter_map(Result::ok)
        .map(|entry| entry.path().join("bin"))
        .filter(|bin| bin.join("initdb").exists())
        .max();
    [Some(PathBuf::from("/usr/lib/postgresql/15/bin")), newest].into_iter().flatten().collect()
}

pub(crate) struct Server(Postgres);

impl Server {
    pub(crate) fn start(bin: &Path) -> Self {
        let server = Self(Postgres::of_release(bin, "local all all trust\n"));
        server.run("postgres", "postgres", ROLES).expect("roles");
        server
    }

    /// A file that is not there.
    pub(crate) fn mark(&self) -> PathBuf {
        self.0.socket_dir().join("mark")
    }

    fn connection(&self, user: &str, database: &str) -> String {
        format!("host={} user={user} dbname={database}", self.0.socket_dir().display())
    }

    /// Runs a script as psql does: what it says when it fails.
    pub(crate) fn run(&self, user: &str, database: &str, sql: &str) -> Result<(), String> {
        self.run_with(user, database, sql, |_| {})
    }

    /// As [`Self::run`], by a psql that begins in another way.
    pub(crate) fn run_with(
        &self,
        user: &str,
        database: &str,
        sql: &str,
        begin: impl FnOnce(&mut Command),
    ) -> Result<(), String> {
        let mut psql = Command::new("psql");
        psql.args([
            &self.connection(user, database),
            "--no-psqlrc",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-f",
            "-",
        ])
        .env("PGOPTIONS", "-c client_min_messages=error")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
        begin(&mut psql);
        let mut psql = psql.spawn().expect("psql runs");
        psql.stdin.take().expect("a pipe").write_all(sql.as_bytes()).expect("psql reads");
        let output = psql.wait_with_output().expect("psql ends");
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    pub(crate) fn create(&self, database: &str) {
        let sql = format!("CREATE DATABASE {database} OWNER app");
        self.run("postgres", "postgres", &sql).expect("a database");
    }

    pub(crate) async fn client(&self, user: &str, database: &str) -> Client {
        let (client, connection) =
            tokio_postgres::connect(&self.connection(user, database), NoTls).await.expect("a session");
        tokio::spawn(connection);
        client
    }

    /// Reads a schema as a role that may only look.
    pub(crate) async fn read(&self, database: &str) -> Rows {
        let client = self.client("reader", database).await;
        for (name, value) in SETTINGS {
            let value = value.replace(',', "', '");
            client.batch_execute(&format!("SET {name} = '{value}'")).await.expect("a setting");
        }
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.expect("a transaction");
        let mut rows = vec![];
        for query in queries() {
            let answer =
                client.simple_query(&query).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
            rows.extend(answer.into_iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            }));
        }
        client.batch_execute("ROLLBACK").await.expect("its end");
        Rows(rows)
    }

    /// Makes a database what another one is, and looks whether it is.
    pub(crate) async fn sync(&self, target: &str, wanted: Rows, story: &str) {
        let found = diff(self.read(target).await.schema(), wanted.schema());
        let script = found.script("A test");
        assert!(found.statements.iter().all(|statement| !statement.manual), "{story}\n{script}");
        if let Err(error) = self.run("app", target, &script) {
            panic!("{story}\n{script}\n{error}");
        }
        let left = diff(self.read(target).await.schema(), wanted.schema());
        assert!(
            left.objects.is_empty() && left.statements.is_empty(),
            "{story}\n{script}\nleft: {:#?}\n{}",
            left.objects,
            left.script("left")
        );
    }
}

/// What a catalogue says.
pub(crate) struct Rows(Vec<String>);

impl Rows {
    pub(crate) fn schema(&self) -> Schema {
        Schema::read(self.0.iter().map(String::as_str)).expect("rows that make sense")
    }
}
