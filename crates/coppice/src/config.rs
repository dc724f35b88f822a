//! Settings of the server: flags, then `COPPICE_…` variables, then a TOML
//! file, then defaults.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use coppice_api::{ApiConfig, MetricsToken};
use coppice_core::audit::AUDIT_DAYS;
use coppice_core::limits::OrganizationLimits;
use coppice_core::proxies::TrustedProxies;
use coppice_engine::LogRetention;
use coppice_engine::local::volumes::{DriverKind, PoolMode, StorageOptions};
use coppice_mail::Mailer;
use serde::Deserialize;

use crate::auth_config::{AuthConfig, AuthFile, AuthFlags};
use crate::logging::{LogConfig, LogFormat};
use crate::mail_settings::MailArgs;

const DEFAULT_LISTEN: &str = "127.0.0.1:7070";
const DEFAULT_GATEWAY_LISTEN: &str = "127.0.0.1:7432";
const DEFAULT_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");
const DEFAULT_ADDRESS_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(20).expect("not zero");
const DEFAULT_CREATE_WAIT: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest time that sessions of a process may go on after its end was asked for.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(3500);
/// A hundred years.
const AUDIT_DAYS_MAX: u32 = 36_500;
const DEFAULT_EMAIL: &str = "admin@coppice.local";

/// Where the data of a machine is, unless told otherwise.
pub(crate) fn default_data_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/coppice");
    }
    dirs::data_local_dir().unwrap_or_else(|| PathBuf::from(".")).join("coppice")
}

/// Names the data directory.
#[derive(Args, Clone, Debug)]
pub(crate) struct DataDir {
    /// Where everything is kept [default: /var/lib/coppice as root, else ~/.local/share/coppice]
    #[arg(long, env = "COPPICE_DATA_DIR", value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,
}

impl DataDir {
    /// Whether somebody named it.
    pub(crate) fn is_given(&self) -> bool {
        self.data_dir.is_some()
    }

    /// The directory, whether or not it exists.
    pub(crate) fn path(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(default_data_dir)
    }
}

/// Flags of `coppice serve`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) data_dir: DataDir,
    /// A TOML file with settings named like these flags
    #[arg(long, env = "COPPICE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Take the place of the process that works on the data directory now: no
    /// connection is refused, and its sessions go on
    #[arg(long)]
    pub(crate) take_over: bool,
    #[command(flatten)]
    settings: Settings,
}

/// Settings as they can be written in each of the three places.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Address of the API [default: 127.0.0.1:7070]
    #[arg(long, env = "COPPICE_LISTEN", value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// URL under which people and programs reach the API [default: http:// and the address of the API]
    #[arg(long, env = "COPPICE_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Address of the gateway [default: 127.0.0.1:7432]
    #[arg(long, env = "COPPICE_GATEWAY_LISTEN", value_name = "ADDR")]
    gateway_listen: Option<SocketAddr>,
    /// Domain under which each branch has a name of its own
    #[arg(long, env = "COPPICE_GATEWAY_DOMAIN", value_name = "DOMAIN")]
    gateway_domain: Option<String>,
    /// Other names by which the API's clients may call the role `app`
    #[arg(long, env = "COPPICE_USER_ALIASES", value_name = "NAMES", value_delimiter = ',')]
    user_aliases: Option<Vec<String>>,
    /// Addresses or CIDR blocks of proxies that may say where a client is
    #[arg(long, env = "COPPICE_TRUSTED_PROXIES", value_name = "CIDRS", value_delimiter = ',')]
    trusted_proxies: Option<Vec<String>>,
    /// Directories searched for PostgreSQL besides /usr/lib/postgresql
    #[arg(long, env = "COPPICE_POSTGRES_DIRS", value_name = "DIRS", value_delimiter = ':')]
    postgres_dirs: Option<Vec<PathBuf>>,
    /// A metastore of your own instead of the embedded one
    #[arg(long, env = "COPPICE_METASTORE_URL", value_name = "URL", hide_env_values = true)]
    metastore_url: Option<String>,
    /// Whether to make a copy-on-write pool where the file system has none: auto or off
    #[arg(long, env = "COPPICE_POOL", value_name = "MODE")]
    pool: Option<String>,
    /// Size of a new pool in GiB [default: 8]
    #[arg(long, env = "COPPICE_POOL_SIZE_GIB", value_name = "GIB")]
    pool_size_gib: Option<u64>,
    /// Space the pool leaves free on the host, in GiB [default: 4]
    #[arg(long, env = "COPPICE_HOST_RESERVE_GIB", value_name = "GIB")]
    host_reserve_gib: Option<u64>,
    /// How volumes are copied: btrfs, reflink or copy [default: the best that works]
    #[arg(long, env = "COPPICE_VOLUME_DRIVER", value_name = "DRIVER")]
    volume_driver: Option<String>,
    /// Email address of the first user [default: admin@coppice.local]
    #[arg(long, env = "COPPICE_ADMIN_EMAIL", value_name = "EMAIL")]
    admin_email: Option<String>,
    /// Seconds that the creation of a branch waits for it to be ready, 0 to 25 [default: 5]
    #[arg(long, env = "COPPICE_BRANCH_CREATE_WAIT", value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(0..=25))]
    branch_create_wait: Option<u64>,
    /// Seconds that open sessions may go on after SIGTERM, up to 3500 [default: 3500]
    #[arg(long, env = "COPPICE_DRAIN", value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(0..=3500))]
    drain: Option<u64>,
    /// Days that logs of branches are kept [default: 14]
    #[arg(long, env = "COPPICE_LOGS_RETENTION_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u64).range(1..=3650))]
    logs_retention_days: Option<u64>,
    /// Most MiB of logs that are kept of a branch [default: 512]
    #[arg(long, env = "COPPICE_LOGS_SIZE_MIB", value_name = "MIB",
          value_parser = clap::value_parser!(u64).range(32..))]
    logs_size_mib: Option<u64>,
    /// Most branches of one project [default: 100]
    #[arg(long, env = "COPPICE_BRANCHES_PER_PROJECT", value_name = "N")]
    branches_per_project: Option<u32>,
    /// Most branches of one organization [default: 500]
    #[arg(long, env = "COPPICE_BRANCHES_PER_ORGANIZATION", value_name = "N")]
    branches_per_organization: Option<u32>,
    /// Most branches an organization makes within an hour [default: 200]
    #[arg(long, env = "COPPICE_BRANCHES_PER_HOUR", value_name = "N")]
    branches_per_hour: Option<u32>,
    /// Most projects of one organization [default: 100]
    #[arg(long, env = "COPPICE_PROJECTS_PER_ORGANIZATION", value_name = "N")]
    projects_per_organization: Option<u32>,
    /// Most projects an organization makes within an hour [default: 200]
    #[arg(long, env = "COPPICE_PROJECTS_PER_HOUR", value_name = "N")]
    projects_per_hour: Option<u32>,
    /// Most API keys of an organization, and of a user [default: 1000]
    #[arg(long, env = "COPPICE_API_KEYS_MAX", value_name = "N")]
    api_keys_max: Option<u32>,
    /// Most members of one organization [default: 100]
    #[arg(long, env = "COPPICE_MEMBERS_PER_ORGANIZATION", value_name = "N")]
    members_per_organization: Option<u32>,
    /// Most pending invitations of one organization [default: 50]
    #[arg(long, env = "COPPICE_INVITATIONS_PER_ORGANIZATION", value_name = "N")]
    invitations_per_organization: Option<u32>,
    /// Requests a second of one credential; five times as many may come at once [default: 1000]
    #[arg(long, env = "COPPICE_REQUESTS_PER_SECOND", value_name = "N")]
    requests_per_second: Option<NonZeroU32>,
    /// The same of one address, for requests without a credential [default: 20]
    #[arg(long, env = "COPPICE_ADDRESS_REQUESTS_PER_SECOND", value_name = "N")]
    address_requests_per_second: Option<NonZeroU32>,
    /// Days that lines of the audit log are kept [default: 400]
    #[arg(long, env = "COPPICE_AUDIT_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(AUDIT_DAYS_MAX)))]
    audit_days: Option<u32>,
    #[command(flatten)]
    #[serde(default)]
    smtp: MailArgs,
    /// What is logged: a level, or levels by part as in info,coppice_gateway=debug
    /// [default: what RUST_LOG says, else info]
    #[arg(long, env = "COPPICE_LOG", value_name = "LEVELS")]
    log: Option<String>,
    /// How a line of the log looks [default: text]
    #[arg(long, env = "COPPICE_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// A file with a token: whoever sends it may read /metrics, from anywhere
    /// [default: only this machine may]
    #[arg(long, env = "COPPICE_METRICS_TOKEN_FILE", value_name = "FILE")]
    metrics_token_file: Option<PathBuf>,
    /// Where traces are sent, by OTLP over HTTP, for example http://127.0.0.1:4318
    /// [default: what OTEL_EXPORTER_OTLP_ENDPOINT says, else nowhere]
    #[arg(long, env = "COPPICE_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
    #[command(flatten)]
    #[serde(skip)]
    auth_flags: AuthFlags,
    #[arg(skip)]
    #[serde(default)]
    auth: AuthFile,
    /// Seconds between two looks at what each instance does, 1 to 60 [default: 15]
    #[arg(long, env = "COPPICE_METRICS_INTERVAL", value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=60))]
    metrics_interval: Option<u64>,
}

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    /// Without a slash at its end; without a value it follows from the address that is listened on.
    pub(crate) public_url: Option<String>,
    pub(crate) gateway_listen: SocketAddr,
    pub(crate) gateway_domain: Option<String>,
    pub(crate) user_aliases: Vec<String>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) postgres_dirs: Vec<PathBuf>,
    pub(crate) metastore_url: Option<String>,
    pub(crate) storage: StorageOptions,
    pub(crate) admin_email: String,
    pub(crate) limits: OrganizationLimits,
    pub(crate) api: ApiConfig,
    pub(crate) audit_days: u32,
    pub(crate) mailer: Option<Mailer>,
    pub(crate) create_wait: Duration,
    pub(crate) drain: Duration,
    pub(crate) log_retention: LogRetention,
    pub(crate) log: LogConfig,
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) auth: AuthConfig,
    pub(crate) metrics_interval: Duration,
}

/// A number within bounds: those of a file are not checked when it is read.
fn whole(chosen: Option<u64>, default: u32, min: u32, max: u32) -> u32 {
    chosen.map_or(default, |number| u32::try_from(number).unwrap_or(max).clamp(min, max))
}

/// A number that may not be outside these bounds. Those of a file are not
/// checked when it is read.
pub(crate) fn within(name: &str, number: u32, bounds: RangeInclusive<u32>) -> anyhow::Result<u32> {
    if !bounds.contains(&number) {
        bail!("{name} can be {} to {}, not {number}", bounds.start(), bounds.end());
    }
    Ok(number)
}

fn address(chosen: Option<SocketAddr>, default: &str) -> anyhow::Result<SocketAddr> {
    Ok(match chosen {
        Some(address) => address,
        None => default.parse()?,
    })
}

impl ServeArgs {
    /// Puts flags, variables, file and defaults together.
    pub(crate) fn config(self) -> anyhow::Result<Config> {
        let file = self.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let flags = self.settings;
        let storage = storage_options(&flags, &file)?;
        let defaults = OrganizationLimits::default();
        let limit = |flag: Option<u32>, file: Option<u32>, default| flag.or(file).unwrap_or(default);
        let limits = OrganizationLimits {
            branches_per_project_max: limit(
                flags.branches_per_project,
                file.branches_per_project,
                defaults.branches_per_project_max,
            ),
            branches_max: limit(
                flags.branches_per_organization,
                file.branches_per_organization,
                defaults.branches_max,
            ),
            branches_per_hour_max: limit(
                flags.branches_per_hour,
                file.branches_per_hour,
                defaults.branches_per_hour_max,
            ),
            projects_max: limit(
                flags.projects_per_organization,
                file.projects_per_organization,
                defaults.projects_max,
            ),
            projects_per_hour_max: limit(
                flags.projects_per_hour,
                file.projects_per_hour,
                defaults.projects_per_hour_max,
            ),
            api_keys_max: limit(flags.api_keys_max, file.api_keys_max, defaults.api_keys_max),
            members_max: limit(
                flags.members_per_organization,
                file.members_per_organization,
                defaults.members_max,
            ),
            invitations_max: limit(
                flags.invitations_per_organization,
                file.invitations_per_organization,
                defaults.invitations_max,
            ),
            ..defaults
        };
        let address_requests_per_second = flags
            .address_requests_per_second
            .or(file.address_requests_per_second)
            .unwrap_or(DEFAULT_ADDRESS_REQUESTS_PER_SECOND);
        let requests_per_second =
            flags.requests_per_second.or(file.requests_per_second).unwrap_or(DEFAULT_REQUESTS_PER_SECOND);
        let trusted_proxies = trusted_proxies(flags.trusted_proxies.or(file.trusted_proxies))?;
        let metrics_token = flags.metrics_token_file.or(file.metrics_token_file);
        let metrics_token = metrics_token.as_deref().map(read_token).transpose()?;
        let data_dir = std::path::absolute(self.data_dir.path()).context("finding the data directory")?;
        Ok(Config {
            data_dir,
            listen: address(flags.listen.or(file.listen), DEFAULT_LISTEN)?,
            public_url: flags.public_url.or(file.public_url).map(|url| public_url(&url)).transpose()?,
            gateway_listen: address(flags.gateway_listen.or(file.gateway_listen), DEFAULT_GATEWAY_LISTEN)?,
            gateway_domain: flags.gateway_domain.or(file.gateway_domain),
            user_aliases: flags.user_aliases.or(file.user_aliases).unwrap_or_default(),
            trusted_proxies: trusted_proxies.clone(),
            postgres_dirs: flags.postgres_dirs.or(file.postgres_dirs).unwrap_or_default(),
            metastore_url: flags.metastore_url.or(file.metastore_url),
            storage,
            admin_email: flags.admin_email.or(file.admin_email).unwrap_or_else(|| DEFAULT_EMAIL.to_owned()),
            limits,
            api: ApiConfig {
                requests_per_second,
                address_requests_per_second,
                trusted_proxies,
                metrics_token,
            },
            audit_days: within(
                "audit_days",
                flags.audit_days.or(file.audit_days).unwrap_or(AUDIT_DAYS),
                1..=AUDIT_DAYS_MAX,
            )?,
            mailer: flags.smtp.or(file.smtp).mailer()?,
            create_wait: flags.branch_create_wait.or(file.branch_create_wait).map_or(
                DEFAULT_CREATE_WAIT,
                // Requests themselves may take 30 seconds.
                |seconds| Duration::from_secs(seconds.min(25)),
            ),
            log_retention: LogRetention {
                age: DAY * whole(flags.logs_retention_days.or(file.logs_retention_days), 14, 1, 3650),
                bytes_max: u64::from(whole(flags.logs_size_mib.or(file.logs_size_mib), 512, 32, u32::MAX))
                    << 20,
            },
            auth: AuthConfig::new(flags.auth_flags, file.auth)?,
            metrics_interval: Duration::from_secs(
                whole(flags.metrics_interval.or(file.metrics_interval), 15, 1, 60).into(),
            ),
            drain: flags.drain.or(file.drain).map_or(DRAIN_MAX, Duration::from_secs).min(DRAIN_MAX),
            log: LogConfig {
                // A variable that is set to nothing says nothing.
                filter: flags.log.or(file.log).filter(|levels| !levels.is_empty()),
                format: flags.log_format.or(file.log_format).unwrap_or_default(),
            },
            otlp_endpoint: flags.otlp_endpoint.or(file.otlp_endpoint).filter(|url| !url.is_empty()),
        })
    }
}

/// A URL that links begin with: `https://host[:port][/path]`, without a slash at its end.
fn public_url(text: &str) -> anyhow::Result<String> {
    let url = reqwest::Url::parse(text).ok();
    let usable = url.filter(|url| {
        let has_more =
            url.query().or(url.fragment()).or(url.password()).is_some() || !url.username().is_empty();
        matches!(url.scheme(), "http" | "https") && url.has_host() && !has_more
    });
    match usable {
        Some(url) => Ok(url.as_str().trim_end_matches('/').to_owned()),
        None => {
            bail!("the public URL `{text}` is no address of a site: write for example https://db.example.com")
        }
    }
}

fn trusted_proxies(chosen: Option<Vec<String>>) -> anyhow::Result<TrustedProxies> {
    let chosen = chosen.unwrap_or_default();
    // A variable that is set to nothing.
    let ranges: Vec<_> = chosen.iter().filter(|range| !range.trim().is_empty()).collect();
    TrustedProxies::parse(&ranges).map_err(|range| {
        anyhow::anyhow!(
            "`{range}` among the trusted proxies is neither an address nor a CIDR block: write for example 10.0.0.0/8"
        )
    })
}

fn read_token(path: &Path) -> anyhow::Result<MetricsToken> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the token for /metrics from {}", path.display()))?;
    MetricsToken::new(text.trim()).with_context(|| {
        format!(
            "{} holds no token for /metrics: write at least {} letters, digits and signs, for example by \
             `openssl rand -hex 32`",
            path.display(),
            MetricsToken::LENGTH_MIN
        )
    })
}

fn read_file(path: &Path) -> anyhow::Result<Settings> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("understanding {}", path.display()))
}

fn storage_options(flags: &Settings, file: &Settings) -> anyhow::Result<StorageOptions> {
    let defaults = StorageOptions::default();
    let bytes = |gib: u64| gib << 30;
    let pool = match flags.pool.as_deref().or(file.pool.as_deref()) {
        None | Some("auto") => PoolMode::Auto,
        Some("off") => PoolMode::Off,
        Some(other) => bail!("the pool can be `auto` or `off`, not `{other}`"),
    };
    let driver = match flags.volume_driver.as_deref().or(file.volume_driver.as_deref()) {
        None => None,
        Some("btrfs") => Some(DriverKind::Btrfs),
        Some("reflink") => Some(DriverKind::Reflink),
        Some("copy") => Some(DriverKind::Copy),
        Some(other) => bail!("the volume driver can be `btrfs`, `reflink` or `copy`, not `{other}`"),
    };
    let size = flags.pool_size_gib.or(file.pool_size_gib).map(bytes);
    Ok(StorageOptions {
        pool,
        pool_initial_bytes: size.unwrap_or(defaults.pool_initial_bytes),
        pool_step_bytes: size.unwrap_or(defaults.pool_step_bytes),
        host_reserve_bytes: flags
            .host_reserve_gib
            .or(file.host_reserve_gib)
            .map_or(defaults.host_reserve_bytes, bytes),
        driver,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> anyhow::Result<Config> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let data_dir = DataDir { data_dir: Some("/nowhere".into()) };
        let config = Some(file.path().to_owned());
        ServeArgs { data_dir, config, take_over: false, settings: Settings::default() }.config()
    }

    #[test]
    fn days_of_the_audit_log_outside_the_bounds_are_refused_by_name() {
        for days in ["0", "36501", "4294967295"] {
            let error = config(&format!("audit_days = {days}")).expect_err(days).to_string();
            assert!(error.contains("audit_days") && error.contains("1 to 36500"), "{error}");
        }
        assert_eq!(config("audit_days = 36500").expect("settings").audit_days, 36_500);
        assert_eq!(config("").expect("settings").audit_days, AUDIT_DAYS);
    }

    #[test]
    fn a_public_url_names_a_site_and_nothing_more() {
        for (text, expected) in [
            ("https://db.example.com", "https://db.example.com"),
            ("HTTPS://DB.example.com:443/", "https://db.example.com"),
            ("http://[::1]:7070/coppice//", "http://[::1]:7070/coppice"),
        ] {
            assert_eq!(public_url(text).expect("usable"), expected);
        }
        for text in
            ["", "db.example.com", "ftp://x", "https://x/?a", "https://x/#a", "https://a@x", "https://a:b@x"]
        {
            assert!(public_url(text).is_err(), "{text}");
        }
    }
}
