//! Settings as they are written.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use super::auth::AuthArgs;
use super::billing::BillingArgs;
use super::gateway::GatewayArgs;
use super::github::GithubArgs;
use super::mail::MailArgs;
use super::marketplace::MarketplaceArgs;
use super::orb::OrbArgs;
use super::store::StoreArgs;
use super::stripe::StripeArgs;
use super::vercel::VercelArgs;
use crate::logging::LogFormat;

/// Most days that lines of the audit log are kept: a hundred years.
pub(super) const AUDIT_DAYS_MAX: u32 = 36_500;

/// Settings as they can be written in each of the three places.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// Address of the API [default: 127.0.0.1:7070]
    #[arg(long, env = "COPPICE_LISTEN", value_name = "ADDR")]
    pub(super) listen: Option<SocketAddr>,
    /// URL under which people and programs reach the API [default: http:// and the address of the API]
    #[arg(long, env = "COPPICE_PUBLIC_URL", value_name = "URL")]
    pub(super) public_url: Option<String>,
    /// Address of the gateway [default: 127.0.0.1:7432]
    #[arg(long, env = "COPPICE_GATEWAY_LISTEN", value_name = "ADDR")]
    pub(super) gateway_listen: Option<SocketAddr>,
    /// Where clients reach the gateway, HOST or HOST:PORT, if that is not the address that it listens on
    #[arg(long, env = "COPPICE_PUBLIC_GATEWAY", value_name = "HOST[:PORT]")]
    pub(super) public_gateway: Option<String>,
    /// Domain under which each branch has a name of its own
    #[arg(long, env = "COPPICE_GATEWAY_DOMAIN", value_name = "DOMAIN")]
    pub(super) gateway_domain: Option<String>,
    #[command(flatten)]
    #[serde(default)]
    pub(super) gateway: GatewayArgs,
    /// Other names by which the API's clients may call the role `app`
    #[arg(long, env = "COPPICE_USER_ALIASES", value_name = "NAMES", value_delimiter = ',')]
    pub(super) user_aliases: Option<Vec<String>>,
    /// Addresses or CIDR blocks of proxies that may say where a client is
    #[arg(long, env = "COPPICE_TRUSTED_PROXIES", value_name = "CIDRS", value_delimiter = ',')]
    pub(super) trusted_proxies: Option<Vec<String>>,
    /// Directories searched for PostgreSQL besides /usr/lib/postgresql
    #[arg(long, env = "COPPICE_POSTGRES_DIRS", value_name = "DIRS", value_delimiter = ':')]
    pub(super) postgres_dirs: Option<Vec<PathBuf>>,
    /// Major versions whose first branch is made as fast as the next ones [default: all that are installed]
    #[arg(long, env = "COPPICE_PREPARE", value_name = "MAJORS", value_delimiter = ',')]
    pub(super) prepare: Option<Vec<u32>>,
    /// A metastore of your own instead of the embedded one
    #[arg(long, env = "COPPICE_METASTORE_URL", value_name = "URL", hide_env_values = true)]
    pub(super) metastore_url: Option<String>,
    /// Whether to make a copy-on-write pool where the file system has none: auto or off
    #[arg(long, env = "COPPICE_POOL", value_name = "MODE")]
    pub(super) pool: Option<String>,
    /// Size of a new pool in GiB [default: 8]
    #[arg(long, env = "COPPICE_POOL_SIZE_GIB", value_name = "GIB")]
    pub(super) pool_size_gib: Option<u64>,
    /// Space the pool leaves free on the host, in GiB [default: 4]
    #[arg(long, env = "COPPICE_HOST_RESERVE_GIB", value_name = "GIB")]
    pub(super) host_reserve_gib: Option<u64>,
    /// Most of the room for volumes that history may take, in percent; 0 keeps none [default: 25]
    #[arg(long, env = "COPPICE_HISTORY_SHARE", value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(..=90))]
    pub(super) history_share: Option<u8>,
    #[command(flatten)]
    #[serde(default)]
    pub(super) store: StoreArgs,
    /// How volumes are copied: btrfs, reflink or copy [default: the best that works]
    #[arg(long, env = "COPPICE_VOLUME_DRIVER", value_name = "DRIVER")]
    pub(super) volume_driver: Option<String>,
    /// Email address of the first user [default: admin@coppice.local]
    #[arg(long, env = "COPPICE_ADMIN_EMAIL", value_name = "EMAIL")]
    pub(super) admin_email: Option<String>,
    /// Seconds that the creation of a branch waits for it to be ready, 0 to 25 [default: 5]
    #[arg(long, env = "COPPICE_BRANCH_CREATE_WAIT", value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(0..=25))]
    pub(super) branch_create_wait: Option<u32>,
    /// Seconds that open sessions may go on after SIGTERM, up to 3500 [default: 3500]
    #[arg(long, env = "COPPICE_DRAIN", value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(0..=3500))]
    pub(super) drain: Option<u32>,
    /// Days that logs of branches are kept [default: 14]
    #[arg(long, env = "COPPICE_LOGS_RETENTION_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(super) logs_retention_days: Option<u32>,
    /// Most MiB of logs that are kept of a branch [default: 512]
    #[arg(long, env = "COPPICE_LOGS_SIZE_MIB", value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(32..))]
    pub(super) logs_size_mib: Option<u32>,
    /// Most branches of one project [default: 100]
    #[arg(long, env = "COPPICE_BRANCHES_PER_PROJECT", value_name = "N")]
    pub(super) branches_per_project: Option<u32>,
    /// Most branches of one organization [default: 500]
    #[arg(long, env = "COPPICE_BRANCHES_PER_ORGANIZATION", value_name = "N")]
    pub(super) branches_per_organization: Option<u32>,
    /// Most branches an organization makes within an hour [default: 200]
    #[arg(long, env = "COPPICE_BRANCHES_PER_HOUR", value_name = "N")]
    pub(super) branches_per_hour: Option<u32>,
    /// Most projects of one organization [default: 100]
    #[arg(long, env = "COPPICE_PROJECTS_PER_ORGANIZATION", value_name = "N")]
    pub(super) projects_per_organization: Option<u32>,
    /// Most projects an organization makes within an hour [default: 200]
    #[arg(long, env = "COPPICE_PROJECTS_PER_HOUR", value_name = "N")]
    pub(super) projects_per_hour: Option<u32>,
    /// Most API keys of an organization, and of a user [default: 1000]
    #[arg(long, env = "COPPICE_API_KEYS_MAX", value_name = "N")]
    pub(super) api_keys_max: Option<u32>,
    /// Most members of one organization [default: 100]
    #[arg(long, env = "COPPICE_MEMBERS_PER_ORGANIZATION", value_name = "N")]
    pub(super) members_per_organization: Option<u32>,
    /// Most pending invitations of one organization [default: 50]
    #[arg(long, env = "COPPICE_INVITATIONS_PER_ORGANIZATION", value_name = "N")]
    pub(super) invitations_per_organization: Option<u32>,
    /// Addresses or CIDR blocks that webhooks may lead to although they are none of the internet; also without TLS
    #[arg(long, env = "COPPICE_WEBHOOK_RANGES", value_name = "CIDRS", value_delimiter = ',')]
    pub(super) webhook_ranges: Option<Vec<String>>,
    /// Requests a second of one credential; five times as many may come at once [default: 1000]
    #[arg(long, env = "COPPICE_REQUESTS_PER_SECOND", value_name = "N")]
    pub(super) requests_per_second: Option<NonZeroU32>,
    /// The same of one address, for requests without a credential [default: 20]
    #[arg(long, env = "COPPICE_ADDRESS_REQUESTS_PER_SECOND", value_name = "N")]
    pub(super) address_requests_per_second: Option<NonZeroU32>,
    /// Most connections to the API at the same time
    /// [default: 4096, or a quarter of the files that may be open, if that is less]
    #[arg(long, env = "COPPICE_API_CONNECTIONS", value_name = "N")]
    pub(super) api_connections: Option<NonZeroU32>,
    /// The same of one address [default: 512]
    #[arg(long, env = "COPPICE_API_CONNECTIONS_PER_ADDRESS", value_name = "N")]
    pub(super) api_connections_per_address: Option<NonZeroU32>,
    /// Seconds from a connection to the API to the headers of its first request, 1 to 120 [default: 15]
    #[arg(long, env = "COPPICE_FIRST_REQUEST_TIMEOUT", value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=120))]
    pub(super) first_request_timeout: Option<u32>,
    /// Days that a deleted branch can be brought back, 0 to 365; 0 removes its data at once [default: 7]
    #[arg(long, env = "COPPICE_TRASH_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u32).range(0..=365))]
    pub(super) trash_days: Option<u32>,
    /// Days that lines of the audit log are kept [default: 400]
    #[arg(long, env = "COPPICE_AUDIT_DAYS", value_name = "DAYS",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(AUDIT_DAYS_MAX)))]
    pub(super) audit_days: Option<u32>,
    #[command(flatten)]
    #[serde(default)]
    pub(super) smtp: MailArgs,
    #[command(flatten)]
    #[serde(default)]
    pub(super) billing: BillingArgs,
    #[command(flatten)]
    #[serde(default)]
    pub(super) github: GithubArgs,
    #[command(flatten)]
    #[serde(default)]
    pub(super) vercel: VercelArgs,
    #[command(flatten)]
    #[serde(default)]
    pub(super) stripe: StripeArgs,
    #[command(flatten)]
    #[serde(default)]
    pub(super) orb: OrbArgs,
    #[command(flatten)]
    #[serde(default)]
    pub(super) aws_marketplace: MarketplaceArgs,
    /// What is logged: a level, or levels by part as in info,coppice_gateway=debug
    /// [default: what RUST_LOG says, else info]
    #[arg(long, env = "COPPICE_LOG", value_name = "LEVELS")]
    pub(super) log: Option<String>,
    /// How a line of the log looks [default: text]
    #[arg(long, env = "COPPICE_LOG_FORMAT", value_name = "FORMAT")]
    pub(super) log_format: Option<LogFormat>,
    /// A file with a token: whoever sends it may read /metrics, from anywhere
    /// [default: only this machine may]
    #[arg(long, env = "COPPICE_METRICS_TOKEN_FILE", value_name = "FILE")]
    pub(super) metrics_token_file: Option<PathBuf>,
    /// Where traces are sent, by OTLP over HTTP, for example http://127.0.0.1:4318
    /// [default: what OTEL_EXPORTER_OTLP_ENDPOINT says, else nowhere]
    #[arg(long, env = "COPPICE_OTLP_ENDPOINT", value_name = "URL")]
    pub(super) otlp_endpoint: Option<String>,
    #[command(flatten)]
    #[serde(default)]
    pub(super) auth: AuthArgs,
    /// Seconds between two looks at what each instance does, 1 to 60 [default: 15]
    #[arg(long, env = "COPPICE_METRICS_INTERVAL", value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(super) metrics_interval: Option<u32>,
}

impl Settings {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            public_url: self.public_url.or(other.public_url),
            gateway_listen: self.gateway_listen.or(other.gateway_listen),
            public_gateway: self.public_gateway.or(other.public_gateway),
            gateway_domain: self.gateway_domain.or(other.gateway_domain),
            gateway: self.gateway.or(other.gateway),
            user_aliases: self.user_aliases.or(other.user_aliases),
            trusted_proxies: self.trusted_proxies.or(other.trusted_proxies),
            postgres_dirs: self.postgres_dirs.or(other.postgres_dirs),
            prepare: self.prepare.or(other.prepare),
            metastore_url: self.metastore_url.or(other.metastore_url),
            pool: self.pool.or(other.pool),
            pool_size_gib: self.pool_size_gib.or(other.pool_size_gib),
            host_reserve_gib: self.host_reserve_gib.or(other.host_reserve_gib),
            history_share: self.history_share.or(other.history_share),
            store: self.store.or(other.store),
            volume_driver: self.volume_driver.or(other.volume_driver),
            admin_email: self.admin_email.or(other.admin_email),
            branch_create_wait: self.branch_create_wait.or(other.branch_create_wait),
            drain: self.drain.or(other.drain),
            logs_retention_days: self.logs_retention_days.or(other.logs_retention_days),
            logs_size_mib: self.logs_size_mib.or(other.logs_size_mib),
            branches_per_project: self.branches_per_project.or(other.branches_per_project),
            branches_per_organization: self.branches_per_organization.or(other.branches_per_organization),
            branches_per_hour: self.branches_per_hour.or(other.branches_per_hour),
            projects_per_organization: self.projects_per_organization.or(other.projects_per_organization),
            projects_per_hour: self.projects_per_hour.or(other.projects_per_hour),
            api_keys_max: self.api_keys_max.or(other.api_keys_max),
            webhook_ranges: self.webhook_ranges.or(other.webhook_ranges),
            members_per_organization: self.members_per_organization.or(other.members_per_organization),
            invitations_per_organization: self
                .invitations_per_organization
                .or(other.invitations_per_organization),
            requests_per_second: self.requests_per_second.or(other.requests_per_second),
            address_requests_per_second: self
                .address_requests_per_second
                .or(other.address_requests_per_second),
            api_connections: self.api_connections.or(other.api_connections),
            api_connections_per_address: self
                .api_connections_per_address
                .or(other.api_connections_per_address),
            first_request_timeout: self.first_request_timeout.or(other.first_request_timeout),
            trash_days: self.trash_days.or(other.trash_days),
            audit_days: self.audit_days.or(other.audit_days),
            smtp: self.smtp.or(other.smtp),
            billing: self.billing.or(other.billing),
            github: self.github.or(other.github),
            vercel: self.vercel.or(other.vercel),
            stripe: self.stripe.or(other.stripe),
            orb: self.orb.or(other.orb),
            aws_marketplace: self.aws_marketplace.or(other.aws_marketplace),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
            metrics_token_file: self.metrics_token_file.or(other.metrics_token_file),
            otlp_endpoint: self.otlp_endpoint.or(other.otlp_endpoint),
            auth: self.auth.or(other.auth),
            metrics_interval: self.metrics_interval.or(other.metrics_interval),
        }
    }
}
