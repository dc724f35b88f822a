//! Clients that others wrote, by every way that leads to a branch. What comes of it is a table of
//! `docs/clients.md`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use coppice_test_support::{Options, Platform};
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::setup::{PROGRAM, options, postgres_dir};

const DOMAIN: &str = "db.example.com";
/// Encryption, by the head of its column.
const TLS: [(&str, &str); 5] = [
    ("plain", "without TLS"),
    ("encrypted", "TLS"),
    ("verified", "certificate checked"),
    ("at once", "TLS at once"),
    ("bound", "channel binding"),
];
const ROUTES: [&str; 3] = ["user", "option", "name"];
/// Who the server thinks it is, and whether the gateway was reached with TLS.
const SQL: &str = "SELECT concat_ws(' ', current_user, nullif(current_setting('coppice.tls_version'), ''))";

/// One way to a branch.
#[derive(Clone, Copy)]
struct Way {
    tls: &'static str,
    route: &'static str,
    pool: &'static str,
}

impl Way {
    /// All that there are: a server name takes TLS.
    fn all() -> impl Iterator<Item = Self> {
        let by_route = |tls| ROUTES.into_iter().map(move |route| (tls, route));
        let ways = TLS.into_iter().flat_map(move |(tls, _)| by_route(tls));
        ways.filter(|(tls, route)| (*tls, *route) != ("plain", "name"))
            .flat_map(|(tls, route)| ["direct", "pooled"].map(|pool| Self { tls, route, pool }))
    }

    /// Host, user and options that lead to this branch.
    fn place(&self, branch: &str) -> [String; 3] {
        let branch = format!("{branch}{}", if self.pool == "pooled" { "-pooler" } else { "" });
        let (host, user) = ("localhost".to_owned(), "app".to_owned());
        match self.route {
            "user" => [host, format!("app.{branch}"), String::new()],
            "option" => [host, user, format!("endpoint={branch}")],
            _ => [format!("{branch}.{DOMAIN}"), user, String::new()],
        }
    }

    fn described(&self, branch: &str) -> Value {
        let [host, user, options] = self.place(branch);
        let Self { tls, route, pool } = self;
        json!({ "tls": tls, "route": route, "pool": pool, "host": host, "user": user, "options": options })
    }

    /// What came of it with this client, as the programs of others print it.
    fn told(&self, client: &str, answer: Result<String, impl std::fmt::Display>) -> Value {
        let Self { tls, route, pool } = self;
        let mut line = json!({ "client": client, "tls": tls, "route": route, "pool": pool });
        match answer {
            Ok(answer) => line["answer"] = answer.into(),
            Err(error) => line["error"] = error.to_string().into(),
        }
        line
    }

    /// What [`SQL`] says there: a session that others share knows nothing of its clients.
    fn expected(tls: &str, pool: &str) -> &'static str {
        if tls == "plain" || pool == "pooled" { "app" } else { "app TLSv1.3" }
    }
}

/// A certificate for the gateway by all its names, which is its own authority.
fn certificate(directory: &Path) -> [PathBuf; 2] {
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned(), format!("*.{DOMAIN}")];
    let signed = rcgen::CertificateParams::new(names).and_then(|params| params.self_signed(&key));
    let pems = [signed.expect("a certificate").pem(), key.serialize_pem()];
    let paths = ["gateway.crt", "gateway.key"].map(|name| directory.join(name));
    paths.iter().zip(pems).for_each(|(path, pem)| std::fs::write(path, pem).expect("written"));
    paths
}

/// What a program printed, a line for each way.
fn lines(program: &Path, arguments: &[impl AsRef<OsStr>], ways: &str) -> Vec<Value> {
    let run = Command::new(program)
        .args(arguments)
        .env("WAYS", ways)
        .stdin(Stdio::null())
        .output()
        .expect("it runs: `make setup` installs it");
    assert!(run.status.success(), "{program:?}: {}", String::from_utf8_lossy(&run.stderr));
    let lines = String::from_utf8(run.stdout).expect("text");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// pgjdbc, which is given the names of all ways, as a wildcard record would have them.
fn by_pgjdbc(directory: &Path, ways: &Value) -> Vec<Value> {
    let described = || ways["ways"].as_array().expect("ways").iter();
    let fields = |way: &Value| {
        let fields = ["tls", "route", "pool", "host", "user", "options"];
        fields.map(|name| way[name].as_str().expect("text").to_owned()).join("\t")
    };
    let common = ["port", "password", "certificate", "sql"].map(|name| match &ways[name] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let all = [common.join("\t")].into_iter().chain(described().map(fields));
    let names: String =
        described().map(|way| format!("127.0.0.1 {}\n", way["host"].as_str().expect("text"))).collect();
    let hosts = directory.join("hosts");
    std::fs::write(&hosts, names).expect("a file of hosts");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/clients/Ways.java");
    let arguments = [
        format!("-Djdk.net.hosts.file={}", hosts.display()),
        "--class-path".to_owned(),
        "/usr/share/java/postgresql.jar".to_owned(),
        here.display().to_string(),
    ];
    lines(Path::new("java"), &arguments, &all.collect::<Vec<_>>().join("\n"))
}

/// tokio-postgres, which brings no TLS of its own.
async fn by_tokio_postgres(ways: &Value) -> Vec<Value> {
    let mut told = vec![];
    for way in Way::all().filter(|way| way.tls == "plain") {
        let [host, user, options] = way.place(ways["branch"].as_str().expect("text"));
        let mut place = tokio_postgres::Config::new();
        let port = ways["port"].as_u64().and_then(|port| port.try_into().ok()).expect("a port");
        place.host(host).port(port).user(user).dbname("app").options(options);
        place.password(ways["password"].as_str().expect("text"));
        let asked = async {
            let (client, connection) = place.connect(tokio_postgres::NoTls).await?;
            let ended = tokio::spawn(connection);
            let answer = client.query_one(SQL, &[]).await.map(|row| row.get::<_, String>(0));
            drop(client);
            ended.await.expect("the connection doesn't panic")?;
            answer
        };
        told.push(way.told("tokio-postgres 0.7", asked.await));
    }
    told
}

/// sqlx, which finds its server by its name only, and binds no sign-in to its channel.
async fn by_sqlx(ways: &Value) -> Vec<Value> {
    let text = |name: &str| ways[name].as_str().expect("text");
    let mut told = vec![];
    for way in
        Way::all().filter(|way| !matches!((way.tls, way.route), ("at once" | "bound", _) | (_, "name")))
    {
        let [host, user, options] = way.place(text("branch"));
        let mode = match way.tls {
            "plain" => PgSslMode::Disable,
            "encrypted" => PgSslMode::Require,
            _ => PgSslMode::VerifyFull,
        };
        let url = format!("postgres://{host}:{}/app?options={options}", ways["port"]);
        let place: PgConnectOptions = url.parse().expect("a URL");
        let place = place.username(&user).password(text("password")).ssl_mode(mode);
        let asked = async {
            let mut session = place.ssl_root_cert(text("certificate")).connect().await?;
            sqlx::query_scalar::<_, String>(SQL).fetch_one(&mut session).await
        };
        told.push(way.told("sqlx 0.9", asked.await));
    }
    told
}

/// The routes that worked, of each client and encryption, directly and by the pool.
fn table(told: &[Value]) -> String {
    let mut routes: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for line in told {
        let text = |name: &str| line[name].as_str().unwrap_or_default();
        let expected = Way::expected(text("tls"), text("pool"));
        assert!(line["error"].is_null() && text("answer") == expected, "{line}");
        let found = routes.entry((text("client"), text("tls"))).or_default();
        if !found.contains(&text("route")) {
            found.push(text("route"));
        }
    }
    let mut table = "| client |".to_owned();
    TLS.iter().for_each(|(_, head)| write!(table, " {head} |").expect("memory"));
    table.push_str("\n|---|---|---|---|---|---|\n");
    let clients: std::collections::BTreeSet<_> = routes.keys().map(|(client, _)| *client).collect();
    for client in clients {
        let cells =
            TLS.map(|(tls, _)| routes.get(&(client, tls)).map_or("–".into(), |found| found.join(", ")));
        writeln!(table, "| {client} | {} |", cells.join(" | ")).expect("memory");
    }
    table
}

#[test]
fn clients_come_in_by_every_way_that_they_know() {
    let directory = coppice_test_support::directory("coppice-files-");
    let paths = certificate(directory.path());
    let flags = ["--gateway-certificate", "--gateway-key"].into_iter().zip(&paths);
    let mut flags: Vec<_> =
        flags.flat_map(|(flag, path)| [flag.to_owned(), path.display().to_string()]).collect();
    flags.extend(["--gateway-domain".to_owned(), DOMAIN.to_owned()]);
    let coppice = Platform::start(PROGRAM, Options { flags, ..options() });
    let branch = coppice.cli(&["branch", "describe", "main"]);
    let branch = branch["id"].as_str().expect("an id");
    let url = coppice.connection_string("main").parse::<url::Url>().expect("a URL");
    let ways: Vec<_> = Way::all().map(|way| way.described(branch)).collect();
    let ways = json!({
        "branch": branch, "port": url.port(), "password": url.password(),
        "certificate": paths[0], "sql": SQL, "ways": ways,
    });

    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let releases = ["16.14", "18.4"].map(|release| postgres_dir().join(release).join("bin/psql"));
    let scripts = ["py", "mjs"].map(|kind| here.join(format!("e2e/clients/ways.{kind}")));
    let [python, node] = &scripts;
    let psqls = [vec![python.clone(), "psql".into()], releases.to_vec()].concat();
    let text = ways.to_string();
    let mut told = lines(&here.join("target/python/bin/python3"), &psqls, &text);
    told.extend(lines(Path::new("node"), std::slice::from_ref(node), &text));
    told.extend(by_pgjdbc(directory.path(), &ways));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    told.extend(runtime.block_on(by_sqlx(&ways)));
    told.extend(runtime.block_on(by_tokio_postgres(&ways)));

    let table = table(&told);
    let document = std::fs::read_to_string(here.join("docs/clients.md")).expect("the document");
    assert!(document.contains(&table), "docs/clients.md says something else than this:\n{table}");
}
