//! `coppice psql` and `coppice connection-string`.

use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use coppice_wire::BranchCredentials;
use reqwest::Url;

use super::http::Client;
use super::lookup::Place;
use super::people::in_query;
use super::words::quoted;
use super::{BranchTarget, output};

/// What psql is run with.
#[derive(Args, Debug)]
pub(crate) struct PsqlArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// Arguments for psql
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// What a connection string looks like.
#[derive(Args, Debug)]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    target: BranchTarget,
    /// For which program
    #[arg(long, value_enum, default_value = "url")]
    format: Format,
    /// By the pool: many connections share few sessions
    #[arg(long)]
    pooled: bool,
    /// How TLS is used [default: require, unless the gateway is on this machine]
    #[arg(long)]
    sslmode: Option<SslMode>,
    /// The certificate that the gateway's has to be signed by, for --sslmode verify-full
    #[arg(long, value_name = "FILE")]
    sslrootcert: Option<PathBuf>,
}

/// What a program wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A URL: most drivers
    Url,
    /// A command line of psql
    Psql,
    /// Keywords and values: libpq, psycopg, pgx
    Libpq,
    /// Variables of the environment: every libpq program, and DATABASE_URL
    Env,
    /// Java
    Jdbc,
    /// Npgsql
    Dotnet,
    /// SQLAlchemy with psycopg
    Sqlalchemy,
    /// Prisma
    Prisma,
}

/// As libpq calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl SslMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }

    fn of_npgsql(self) -> &'static str {
        match self {
            Self::Disable => "Disable",
            Self::Prefer => "Prefer",
            Self::Require => "Require",
            Self::VerifyCa => "VerifyCA",
            Self::VerifyFull => "VerifyFull",
        }
    }
}

/// The credentials of a branch.
pub(super) async fn credentials(client: &Client, place: &Place) -> anyhow::Result<BranchCredentials> {
    client.get(&format!("{}/credentials", client.path_of(place))).await
}

/// Prints what a program connects with.
pub(super) async fn show(arguments: &ConnectionArgs, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let place = client.branch(&arguments.target).await?;
    let mut credentials = credentials(client, &place).await?;
    if arguments.pooled {
        credentials = pooled(credentials);
    }
    let written =
        Connection { sslmode: arguments.sslmode, ca: arguments.sslrootcert.as_deref(), credentials };
    let text = written.text(arguments.format);
    if as_json {
        let mut answer = serde_json::to_value(&written.credentials)?;
        answer["formatted"] = text.into();
        return output::json(&answer);
    }
    say!("{text}");
    Ok(())
}

/// The same, by the pool: its endpoint stands after the branch, which is named by
/// the host, else by the user name.
fn pooled(credentials: BranchCredentials) -> BranchCredentials {
    let BranchCredentials { username, hostname, connection_string, .. } = &credentials;
    if username.contains('.') {
        let pooled = format!("{username}-pooler");
        let connection_string =
            connection_string.replacen(&format!("//{username}:"), &format!("//{pooled}:"), 1);
        return BranchCredentials { username: pooled, connection_string, ..credentials };
    }
    let pooled = hostname.replacen('.', "-pooler.", 1);
    let connection_string = connection_string.replacen(&format!("@{hostname}"), &format!("@{pooled}"), 1);
    BranchCredentials { hostname: pooled, connection_string, ..credentials }
}

struct Connection<'a> {
    sslmode: Option<SslMode>,
    ca: Option<&'a std::path::Path>,
    credentials: BranchCredentials,
}

/// Whether nothing leaves this machine on the way to the gateway.
fn is_near(credentials: &BranchCredentials) -> bool {
    let host = credentials.hostname.as_str();
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl Connection<'_> {
    /// Whoever said nothing about TLS wants it, unless nothing leaves this machine.
    fn sslmode(&self) -> Option<SslMode> {
        match (self.sslmode, self.ca) {
            (Some(mode), _) => Some(mode),
            (None, Some(_)) => Some(SslMode::VerifyFull),
            (None, None) => (!is_near(&self.credentials)).then_some(SslMode::Require),
        }
    }

    fn ca(&self) -> Option<String> {
        self.ca.map(|path| path.display().to_string())
    }

    /// Names and values, as libpq calls them.
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let BranchCredentials { username, password, hostname, port, dbname, .. } = &self.credentials;
        let mut pairs = vec![
            ("host", hostname.clone()),
            ("port", port.to_string()),
            ("user", username.clone()),
            ("password", password.clone()),
            ("dbname", dbname.clone()),
        ];
        pairs.extend(self.sslmode().map(|mode| ("sslmode", mode.as_str().to_owned())));
        pairs.extend(self.ca().map(|path| ("sslrootcert", path)));
        pairs
    }

    /// The API's own string, with what TLS needs, and another scheme.
    fn url(&self, scheme: &str, more: &[(&str, &str)]) -> String {
        let plain = self.credentials.connection_string.as_str();
        let (_, rest) = plain.split_once("://").unwrap_or(("", plain));
        let mut url = format!("{scheme}://{rest}");
        let tls = self.pairs().into_iter().filter(|(name, _)| name.starts_with("ssl"));
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        for (name, value) in tls.chain(more) {
            let separator = if Url::parse(&url).is_ok_and(|url| url.query().is_some()) { '&' } else { '?' };
            let _ = write!(url, "{separator}{name}={}", in_query(&value));
        }
        url
    }

    fn text(&self, format: Format) -> String {
        let credentials = &self.credentials;
        match format {
            Format::Url => self.url("postgresql", &[]),
            Format::Psql => format!("psql {}", quoted(&self.url("postgresql", &[]))),
            Format::Sqlalchemy => self.url("postgresql+psycopg", &[]),
            Format::Prisma => self.url("postgresql", &[("schema", "public")]),
            Format::Libpq => {
                let pairs = self.pairs();
                let pairs: Vec<_> =
                    pairs.iter().map(|(name, value)| format!("{name}='{}'", escaped(value))).collect();
                pairs.join(" ")
            }
            Format::Env => {
                let mut lines: Vec<_> = self
                    .pairs()
                    .iter()
                    .map(|(name, value)| {
                        let name = if *name == "dbname" { "DATABASE" } else { name };
                        format!("PG{}={}", name.to_uppercase(), quoted(value))
                    })
                    .collect();
                lines.push(format!("DATABASE_URL={}", quoted(&self.url("postgresql", &[]))));
                lines.join("\n")
            }
            Format::Jdbc => {
                let mut url = format!(
                    "jdbc:postgresql://{}:{}/{}",
                    host(credentials),
                    credentials.port,
                    credentials.dbname
                );
                let pairs =
                    self.pairs().into_iter().filter(|(name, _)| !["host", "port", "dbname"].contains(name));
                for (index, (name, value)) in pairs.enumerate() {
                    let separator = if index == 0 { '?' } else { '&' };
                    let _ = write!(url, "{separator}{name}={}", in_query(&value));
                }
                url
            }
            Format::Dotnet => {
                // Connection strings of ADO.NET quote with doubled quotes.
                let value = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
                let mut text = format!(
                    "Host={};Port={};Username={};Password={};Database={}",
                    credentials.hostname,
                    credentials.port,
                    value(&credentials.username),
                    value(&credentials.password),
                    value(&credentials.dbname)
                );
                if let Some(mode) = self.sslmode() {
                    let _ = write!(text, ";SSL Mode={}", mode.of_npgsql());
                }
                if let Some(path) = self.ca() {
                    let _ = write!(text, ";Root Certificate={}", value(&path));
                }
                text
            }
        }
    }
}

/// An IPv6 address stands in brackets in a URL.
fn host(credentials: &BranchCredentials) -> String {
    let host = &credentials.hostname;
    if host.contains(':') { format!("[{host}]") } else { host.clone() }
}

/// Variables by which libpq's programs connect. The password goes by
/// environment, which only its owner and root can read, and not by arguments,
/// which everybody can. Left alone libpq does without TLS where whoever is in
/// between says that there is none; `PGSSLMODE` of the caller counts.
///
/// # Errors
/// When libpq would look for the place or the password elsewhere: at the sockets of this machine, or among the
/// passwords that its user keeps for other servers.
pub(super) fn connecting(command: &mut Command, credentials: &BranchCredentials) -> anyhow::Result<()> {
    let BranchCredentials { hostname, password, .. } = credentials;
    if hostname.is_empty()
        || hostname.starts_with(['/', '@'])
        || hostname.contains(',')
        || password.is_empty()
    {
        bail!("the platform names no host and password of a branch, so nothing was connected to");
    }
    if !is_near(credentials) && std::env::var_os("PGSSLMODE").is_none() {
        command.env("PGSSLMODE", SslMode::Require.as_str());
    }
    command
        .env("PGHOST", &credentials.hostname)
        .env("PGPORT", credentials.port.to_string())
        .env("PGUSER", &credentials.username)
        .env("PGPASSWORD", &credentials.password)
        .env("PGDATABASE", &credentials.dbname);
    Ok(())
}

/// A database as an argument, which libpq's programs take for a whole connection string where it looks like one.
pub(super) fn dbname(credentials: &BranchCredentials) -> String {
    format!("dbname='{}'", escaped(&credentials.dbname))
}

/// What stands in quotes in a connection string of libpq.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('\'', r"\'")
}

/// Becomes psql.
pub(super) async fn psql(arguments: &PsqlArgs, client: &Client) -> anyhow::Result<()> {
    let place = client.branch(&arguments.target).await?;
    let credentials = credentials(client, &place).await?;
    let mut command = Command::new("psql");
    connecting(&mut command, &credentials)?;
    let error = command.args(&arguments.arguments).exec();
    Err(error).context("running psql: install it first (Debian: apt install postgresql-client)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(hostname: &str, sslmode: Option<SslMode>) -> Connection<'static> {
        let credentials = BranchCredentials {
            username: "app.b1".to_owned(),
            password: "p'w".to_owned(),
            hostname: hostname.to_owned(),
            port: 7432,
            dbname: "app".to_owned(),
            connection_string: format!("postgresql://app.b1:p%27w@{hostname}:7432/app"),
        };
        Connection { sslmode, ca: None, credentials }
    }

    #[test]
    fn the_string_of_the_api_is_kept_on_this_machine() {
        let near = connection("127.0.0.1", None);
        assert_eq!(near.text(Format::Url), near.credentials.connection_string);
    }

    #[test]
    fn the_pool_is_named_where_the_branch_is() {
        let by_user = pooled(connection("127.0.0.1", None).credentials);
        assert_eq!(by_user.username, "app.b1-pooler");
        assert_eq!(by_user.connection_string, "postgresql://app.b1-pooler:p%27w@127.0.0.1:7432/app");
        let credentials = BranchCredentials {
            username: "app".to_owned(),
            connection_string: "postgresql://app:pw@b1.db.example.com/app".to_owned(),
            ..connection("b1.db.example.com", None).credentials
        };
        let by_host = pooled(credentials);
        assert_eq!(
            (by_host.username.as_str(), by_host.hostname.as_str()),
            ("app", "b1-pooler.db.example.com")
        );
        assert_eq!(by_host.connection_string, "postgresql://app:pw@b1-pooler.db.example.com/app");
    }

    #[test]
    fn whoever_connects_from_elsewhere_uses_tls() {
        let far = connection("db.example.com", None);
        for (format, expected) in [
            (Format::Url, "postgresql://app.b1:p%27w@db.example.com:7432/app?sslmode=require"),
            (
                Format::Prisma,
                "postgresql://app.b1:p%27w@db.example.com:7432/app?sslmode=require&schema=public",
            ),
            (Format::Sqlalchemy, "postgresql+psycopg://app.b1:p%27w@db.example.com:7432/app?sslmode=require"),
            (Format::Psql, "psql 'postgresql://app.b1:p%27w@db.example.com:7432/app?sslmode=require'"),
            (
                Format::Jdbc,
                "jdbc:postgresql://db.example.com:7432/app?user=app.b1&password=p%27w&sslmode=require",
            ),
            (
                Format::Dotnet,
                "Host=db.example.com;Port=7432;Username=\"app.b1\";Password=\"p'w\";Database=\"app\";SSL \
                 Mode=Require",
            ),
            (
                Format::Libpq,
                r"host='db.example.com' port='7432' user='app.b1' password='p\'w' dbname='app' sslmode='require'",
            ),
        ] {
            assert_eq!(far.text(format), expected);
        }
        let env = far.text(Format::Env);
        assert!(env.starts_with("PGHOST=db.example.com\nPGPORT=7432\nPGUSER=app.b1\n"), "{env}");
        assert!(env.contains(r"PGPASSWORD='p'\''w'") && env.contains("PGDATABASE=app"), "{env}");
    }

    #[test]
    fn programs_that_are_run_speak_no_plain_text_to_another_machine() {
        let sslmode = |hostname: &str| {
            let mut command = Command::new("psql");
            connecting(&mut command, &connection(hostname, None).credentials).expect("a place");
            let set = command.get_envs().find(|(name, _)| *name == "PGSSLMODE");
            set.and_then(|(_, value)| value?.to_str().map(str::to_owned))
        };
        assert_eq!(sslmode("db.example.com").as_deref(), Some("require"));
        assert_eq!((sslmode("127.0.0.1"), sslmode("localhost")), (None, None));
    }

    #[test]
    fn what_a_platform_names_leads_to_no_other_place_and_no_other_password() {
        let is_taken = |change: fn(&mut BranchCredentials)| {
            let mut credentials = connection("db.example.com", None).credentials;
            change(&mut credentials);
            connecting(&mut Command::new("psql"), &credentials).is_ok()
        };
        assert!(is_taken(|_| {}));
        assert!(!is_taken(|it| it.password.clear()) && !is_taken(|it| it.hostname.clear()));
        for hostname in ["/var/run/postgresql", "@x", "db.example.com,/tmp"] {
            let mut credentials = connection(hostname, None).credentials;
            credentials.password = "p".to_owned();
            assert!(connecting(&mut Command::new("psql"), &credentials).is_err(), "{hostname}");
        }
        let mut credentials = connection("db.example.com", None).credentials;
        credentials.dbname = r"host=evil' passfile=\x".to_owned();
        assert_eq!(dbname(&credentials), r"dbname='host=evil\' passfile=\\x'");
    }

    #[test]
    fn a_certificate_is_looked_at_by_whoever_has_one_to_compare() {
        let mut far = connection("db.example.com", None);
        far.ca = Some(std::path::Path::new("/etc/coppice/ca.crt"));
        assert!(
            far.text(Format::Url).ends_with("?sslmode=verify-full&sslrootcert=%2Fetc%2Fcoppice%2Fca.crt")
        );
        assert!(
            far.text(Format::Dotnet)
                .ends_with(";SSL Mode=VerifyFull;Root Certificate=\"/etc/coppice/ca.crt\"")
        );
    }
}
