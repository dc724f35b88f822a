//! Settings of the server: flags, then `COPPICE_…` variables, then a TOML
//! file, then defaults.

mod auth;
mod billing;
mod data_dir;
mod gateway;
mod github;
mod mail;
mod marketplace;
mod orb;
mod settings;
mod sign_in;
mod store;
mod stripe;
mod vercel;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use coppice_api::{ApiConfig, Hosts, MetricsToken};
use coppice_app::{AwsMarketplaceConfig, GithubConfig, OrbConfig, StripeConfig, VercelConfig};
use coppice_archive::StorePlace;
use coppice_core::audit::AUDIT_DAYS;
use coppice_core::limits::OrganizationLimits;
use coppice_core::price_list::PriceList;
use coppice_core::proxies::TrustedProxies;
use coppice_core::reach::Reachable;
use coppice_engine::LogRetention;
use coppice_engine::local::volumes::{DriverKind, PoolMode, StorageOptions};
use coppice_mail::Mailer;

use crate::logging::LogConfig;
use auth::AuthConfig;
pub(crate) use data_dir::{DataDir, exports};
use gateway::{ClientLimits, PublicGateway};
use settings::{AUDIT_DAYS_MAX, Settings};

const DEFAULT_LISTEN: &str = "127.0.0.1:7070";
const DEFAULT_GATEWAY_LISTEN: &str = "127.0.0.1:7432";
const DEFAULT_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");
const DEFAULT_ADDRESS_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(20).expect("not zero");
const DEFAULT_API_CONNECTIONS_PER_ADDRESS: NonZeroU32 = NonZeroU32::new(512).expect("not zero");
const CREATE_WAIT: u32 = 5;
/// Seconds; requests themselves may take 30.
const CREATE_WAIT_MAX: u32 = 25;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest time that sessions of a process may go on after its end was asked for.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(DRAIN_SECONDS_MAX as u64);
const DRAIN_SECONDS_MAX: u32 = 3500;
const DEFAULT_EMAIL: &str = "admin@coppice.local";

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

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) data_dir: PathBuf,
    pub(crate) listen: SocketAddr,
    /// Without a slash at its end; without a value it follows from the address that is listened on.
    pub(crate) public_url: Option<String>,
    pub(crate) gateway_listen: SocketAddr,
    pub(crate) public_gateway: PublicGateway,
    pub(crate) gateway_domain: Option<String>,
    /// Files of the gateway's certificate and its key; without them it makes its own.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) client_limits: ClientLimits,
    pub(crate) user_aliases: Vec<String>,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) postgres_dirs: Vec<PathBuf>,
    /// Major versions whose templates are made ahead; none is every one.
    pub(crate) prepare: Option<Vec<u32>>,
    pub(crate) metastore_url: Option<String>,
    pub(crate) storage: StorageOptions,
    pub(crate) admin_email: String,
    pub(crate) limits: OrganizationLimits,
    pub(crate) api: ApiConfig,
    pub(crate) strangers: Strangers,
    pub(crate) trash_keep: Duration,
    pub(crate) audit_days: u32,
    pub(crate) mailer: Option<Mailer>,
    /// Where webhooks may lead.
    pub(crate) webhook_reach: Reachable,
    pub(crate) create_wait: Duration,
    pub(crate) drain: Duration,
    pub(crate) log_retention: LogRetention,
    pub(crate) log: LogConfig,
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) auth: AuthConfig,
    /// What is charged, if anybody is.
    pub(crate) prices: Option<PriceList>,
    /// The GitHub App, if there is one.
    pub(crate) github: Option<GithubConfig>,
    /// Our integration on Vercel, if there is one.
    pub(crate) vercel: Option<VercelConfig>,
    /// Where what organizations pay with is on file, if anywhere.
    pub(crate) stripe: Option<StripeConfig>,
    /// Who makes invoices, if not the platform.
    pub(crate) orb: Option<OrbConfig>,
    /// Our product at AWS Marketplace, if there is one.
    pub(crate) marketplace: Option<AwsMarketplaceConfig>,
    pub(crate) metrics_interval: Duration,
    /// Where everything is kept away from this machine, and how often that is looked at.
    pub(crate) store: Option<StorePlace>,
    pub(crate) store_interval: Duration,
    pub(crate) drill_every: Option<Duration>,
}

/// What is held for those who connect to the API, before anything is known of them.
#[derive(Clone, Debug)]
pub(crate) struct Strangers {
    /// Connections at the same time; without a value as many as there is room for.
    pub(crate) api_connections: Option<u32>,
    /// Of one address.
    pub(crate) api_connections_per_address: u32,
    /// From the connection to the end of the first request's headers.
    pub(crate) first_request: Duration,
}

/// A number that may not be outside these bounds. Those of a file are not
/// checked when it is read.
fn within(name: &str, number: u32, bounds: RangeInclusive<u32>) -> anyhow::Result<u32> {
    if !bounds.contains(&number) {
        bail!("{name} can be {} to {}, not {number}", bounds.start(), bounds.end());
    }
    Ok(number)
}

/// A time within bounds, both in seconds.
fn seconds(
    name: &str,
    chosen: Option<u32>,
    default: u32,
    bounds: RangeInclusive<u32>,
) -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(within(name, chosen.unwrap_or(default), bounds)?.into()))
}

/// Whether a setting is on; without a value it is.
fn is_on(name: &str, chosen: Option<&str>) -> anyhow::Result<bool> {
    match chosen {
        None | Some("on") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => bail!("{name} can be `on` or `off`, not `{other}`"),
    }
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
        let set = self.settings.or(file);
        let data_dir = std::path::absolute(self.data_dir.path()?).context("finding the data directory")?;
        let trusted_proxies = trusted_proxies(set.trusted_proxies.as_deref().unwrap_or_default())?;
        let listen = address(set.listen, DEFAULT_LISTEN)?;
        let public_url = set.public_url.as_deref().map(public_url).transpose()?;
        let storage = storage_options(&set)?;
        Ok(Config {
            log_retention: log_retention(&set, &storage)?,
            store: set.store.place(&data_dir)?,
            store_interval: set.store.interval()?,
            drill_every: set.store.drill_every()?,
            data_dir,
            storage,
            limits: limits(&set),
            api: api(&set, trusted_proxies.clone(), Hosts::new(public_url.as_deref(), listen.ip()))?,
            strangers: strangers(&set)?,
            trusted_proxies,
            listen,
            public_url,
            gateway_listen: address(set.gateway_listen, DEFAULT_GATEWAY_LISTEN)?,
            public_gateway: set
                .public_gateway
                .filter(|place| !place.is_empty())
                .map_or_else(|| Ok(PublicGateway::default()), |place| PublicGateway::parse(&place))?,
            gateway_domain: set.gateway_domain,
            certificate: set.gateway.certificate()?,
            client_limits: set.gateway.limits(),
            user_aliases: set.user_aliases.unwrap_or_default(),
            postgres_dirs: set.postgres_dirs.unwrap_or_default(),
            prepare: set.prepare,
            metastore_url: set.metastore_url,
            admin_email: set.admin_email.unwrap_or_else(|| DEFAULT_EMAIL.to_owned()),
            trash_keep: DAY * within("trash_days", set.trash_days.unwrap_or(7), 0..=365)?,
            audit_days: within("audit_days", set.audit_days.unwrap_or(AUDIT_DAYS), 1..=AUDIT_DAYS_MAX)?,
            mailer: set.smtp.mailer()?,
            webhook_reach: webhook_reach(set.webhook_ranges.as_deref().unwrap_or_default())?,
            create_wait: seconds(
                "branch_create_wait",
                set.branch_create_wait,
                CREATE_WAIT,
                0..=CREATE_WAIT_MAX,
            )?,
            auth: AuthConfig::new(set.auth)?,
            orb: set.orb.orb(set.billing.uses_orb())?,
            marketplace: set.aws_marketplace.marketplace()?,
            stripe: set.stripe.stripe(set.billing.needs_stripe()?, set.billing.is_required()?)?,
            prices: set.billing.prices()?,
            github: set.github.app()?,
            vercel: set.vercel.integration()?,
            metrics_interval: seconds("metrics_interval", set.metrics_interval, 15, 1..=60)?,
            drain: seconds("drain", set.drain, DRAIN_SECONDS_MAX, 0..=DRAIN_SECONDS_MAX)?,
            log: LogConfig {
                // A variable that is set to nothing says nothing.
                filter: set.log.filter(|levels| !levels.is_empty()),
                format: set.log_format.unwrap_or_default(),
            },
            otlp_endpoint: set.otlp_endpoint.filter(|url| !url.is_empty()),
        })
    }
}

fn limits(set: &Settings) -> OrganizationLimits {
    let defaults = OrganizationLimits::default();
    OrganizationLimits {
        branches_per_project_max: set.branches_per_project.unwrap_or(defaults.branches_per_project_max),
        branches_max: set.branches_per_organization.unwrap_or(defaults.branches_max),
        branches_per_hour_max: set.branches_per_hour.unwrap_or(defaults.branches_per_hour_max),
        projects_max: set.projects_per_organization.unwrap_or(defaults.projects_max),
        projects_per_hour_max: set.projects_per_hour.unwrap_or(defaults.projects_per_hour_max),
        api_keys_max: set.api_keys_max.unwrap_or(defaults.api_keys_max),
        members_max: set.members_per_organization.unwrap_or(defaults.members_max),
        invitations_max: set.invitations_per_organization.unwrap_or(defaults.invitations_max),
        ..defaults
    }
}

fn strangers(set: &Settings) -> anyhow::Result<Strangers> {
    Ok(Strangers {
        api_connections: set.api_connections.map(NonZeroU32::get),
        api_connections_per_address: set
            .api_connections_per_address
            .unwrap_or(DEFAULT_API_CONNECTIONS_PER_ADDRESS)
            .get(),
        first_request: seconds("first_request_timeout", set.first_request_timeout, 15, 1..=120)?,
    })
}

fn api(set: &Settings, trusted_proxies: TrustedProxies, hosts: Hosts) -> anyhow::Result<ApiConfig> {
    Ok(ApiConfig {
        requests_per_second: set.requests_per_second.unwrap_or(DEFAULT_REQUESTS_PER_SECOND),
        address_requests_per_second: set
            .address_requests_per_second
            .unwrap_or(DEFAULT_ADDRESS_REQUESTS_PER_SECOND),
        trusted_proxies,
        metrics_token: set.metrics_token_file.as_deref().map(read_token).transpose()?,
        hosts,
    })
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

fn trusted_proxies(chosen: &[String]) -> anyhow::Result<TrustedProxies> {
    // A variable that is set to nothing.
    let ranges: Vec<_> = chosen.iter().filter(|range| !range.trim().is_empty()).collect();
    TrustedProxies::parse(&ranges).map_err(|range| {
        anyhow::anyhow!(
            "`{range}` among the trusted proxies is neither an address nor a CIDR block: write for example 10.0.0.0/8"
        )
    })
}

fn webhook_reach(chosen: &[String]) -> anyhow::Result<Reachable> {
    let ranges: Vec<_> = chosen.iter().filter(|range| !range.trim().is_empty()).collect();
    Reachable::parse(&ranges).map_err(|range| {
        anyhow::anyhow!(
            "`{range}` among the ranges of webhooks is neither an address nor a CIDR block: write for example 10.0.0.0/8"
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

fn log_retention(set: &Settings, storage: &StorageOptions) -> anyhow::Result<LogRetention> {
    let size_mib = within("logs_size_mib", set.logs_size_mib.unwrap_or(512), 32..=u32::MAX)?;
    Ok(LogRetention {
        age: DAY * within("logs_retention_days", set.logs_retention_days.unwrap_or(14), 1..=3650)?,
        bytes_max: u64::from(size_mib) << 20,
        free_min: storage.host_reserve_bytes / 2,
    })
}

fn storage_options(set: &Settings) -> anyhow::Result<StorageOptions> {
    let defaults = StorageOptions::default();
    let bytes = |gib: u64| gib << 30;
    let pool = match set.pool.as_deref() {
        None | Some("auto") => PoolMode::Auto,
        Some("off") => PoolMode::Off,
        Some(other) => bail!("the pool can be `auto` or `off`, not `{other}`"),
    };
    let driver = match set.volume_driver.as_deref() {
        None => None,
        Some("btrfs") => Some(DriverKind::Btrfs),
        Some("reflink") => Some(DriverKind::Reflink),
        Some("copy") => Some(DriverKind::Copy),
        Some(other) => bail!("the volume driver can be `btrfs`, `reflink` or `copy`, not `{other}`"),
    };
    let size = set.pool_size_gib.map(bytes);
    Ok(StorageOptions {
        pool,
        pool_initial_bytes: size.unwrap_or(defaults.pool_initial_bytes),
        pool_step_bytes: size.unwrap_or(defaults.pool_step_bytes),
        history_share: set.history_share.unwrap_or(defaults.history_share),
        host_reserve_bytes: set.host_reserve_gib.map_or(defaults.host_reserve_bytes, bytes),
        driver,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> anyhow::Result<Config> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let data_dir = DataDir::named("/nowhere");
        let config = Some(file.path().to_owned());
        ServeArgs { data_dir, config, take_over: false, settings: Settings::default() }.config()
    }

    #[test]
    fn numbers_of_a_file_outside_their_bounds_are_refused_by_name() {
        for (name, wrong, bounds) in [
            ("trash_days", 366, "0 to 365"),
            ("logs_retention_days", 0, "1 to 3650"),
            ("logs_size_mib", 31, "32 to"),
            ("metrics_interval", 61, "1 to 60"),
            ("branch_create_wait", 26, "0 to 25"),
            ("drain", 3501, "0 to 3500"),
            ("first_request_timeout", 0, "1 to 120"),
        ] {
            let error = config(&format!("{name} = {wrong}")).expect_err(name).to_string();
            assert!(error.contains(name) && error.contains(bounds), "{error}");
        }
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
    fn flags_beat_the_file_which_beats_defaults() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text = "admin_email = \"file@example.com\"\ngateway_domain = \"example.com\"";
        std::fs::write(file.path(), text).expect("written");
        let settings = Settings { admin_email: Some("flag@example.com".to_owned()), ..Settings::default() };
        let config = Some(file.path().to_owned());
        let data_dir = DataDir::named("/nowhere");
        let config = ServeArgs { data_dir, config, take_over: false, settings }.config().expect("settings");
        assert_eq!(config.admin_email, "flag@example.com");
        assert_eq!(config.gateway_domain.as_deref(), Some("example.com"));
        assert_eq!(config.drain, DRAIN_MAX);
        assert_eq!(config.limits, OrganizationLimits::default());
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
