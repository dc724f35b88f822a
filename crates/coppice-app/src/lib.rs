//! What the platform does: use cases, and the loops that make reality match
//! the rows.
//!
//! **Owns** the decisions: who may do what, what a new branch is made of, when
//! to retry.
//! **Must not know** HTTP, wire bytes, SQL or paths.
//! **Start reading** at [`App`], then [`reconciler`].
//!
//! What needs the metastore fails when that does; what else fails says so itself.

// The order of a hash differs from run to run, and a simulation plays the same again.
#![warn(clippy::iter_over_hash_type)]

mod access;
mod activity;
mod asking;
mod audit;
pub mod background;
mod backups;
mod billing;
mod bootstrap;
mod branch_metrics;
mod branches;
mod budgets;
mod configuration;
mod connections;
mod credentials;
mod drills;
mod events;
mod extensions;
mod github;
mod history;
mod idempotency;
mod identity;
mod invitations;
mod kept_roles;
mod key_file;
mod keys;
mod logins;
mod logs;
mod mail;
mod marketplace;
mod members;
mod metering;
mod metrics;
pub mod operator;
mod orb;
mod organizations;
mod outside;
mod pace;
mod past;
mod projects;
pub mod reconciler;
mod regions;
mod rekey;
mod rotation;
mod sampler;
mod secrets;
mod shares;
mod signed;
mod sleep;
mod statements;
mod storage;
mod stripe;
mod usage;
mod users;
mod vercel;
mod webhooks;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coppice_archive::Connection;
use coppice_core::branch::BranchState;
use coppice_core::limits::OrganizationLimits;
use coppice_core::price_list::PriceList;
use coppice_core::reach::Reachable;
use coppice_core::sign_up::SignUp;
use coppice_core::{HostId, InstallationId, RegionId};
use coppice_engine::SharedEngine;
use coppice_mail::Mailer;
use coppice_store::{PoolUse, Store};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

pub use access::{Access, Credential, PersonalAccess, Presented};
pub use activity::Activity;
pub use audit::{AccountEvent, AccountEventKind, AuditPage, AuditQuery};
pub use billing::{InvoicePage, InvoiceSummary, UpcomingInvoice, invoice_number};
pub use bootstrap::FirstAccount;
pub use branch_metrics::{InstanceSeries, MetricsRequest};
pub use branches::{
    Backup, BranchChange, BranchDetails, BranchInTree, BranchOrigin, CustomBranch, InstanceStatus,
    NewBranchRequest, ResetTo, SpecChange, UpgradeTo,
};
pub use budgets::BudgetLine;
pub use connections::Connectable;
pub use coppice_store::Event;
pub use coppice_store::Invoice;
pub use coppice_store::{ArrivedSubscription, BrowserSession, HalfSignIn};
pub use coppice_store::{AuditEnd, ByLabels, InvitationFilter, UsageGrouping, UsageStep};
pub use coppice_telemetry::logs::{BodyMatch, LogEntry, LogFilter, LogLevel};
pub use credentials::Credentials;
pub use events::{EventPage, EventQuery};
pub use extensions::{Extension, ExtensionKind};
pub use github::{AppKey, GithubConfig, GithubDelivery, JobKey, LinkRequest, MappingRequest};
pub use idempotency::{Begun, KeptAnswer, RepeatableCall, Uncommitted};
pub use identity::{
    Authorization, ClientClaim, Device, DeviceAnswer, Enrolment, HALF_LIFETIME, IdentityConfig,
    IdentityError, LINK_LIFETIME, NewFactor, NewRecoveryCodes, PASSWORD_MAX, PASSWORD_MIN, PasskeyRemoved,
    PasswordChange, Proof, RecoveryCodes, RotatedKey, SESSION_LIFETIME, SecondFactorRemoval, SecondStep,
    SignIn, TokenAnswer, hash_password, new_sign_in_link, rotate_signing_key,
};
pub use invitations::{Accepted, NewPerson, OfferedInvitation, VisibleInvitation};
pub use key_file::KeyFile;
pub use keys::{NewKey, Reach};
pub use logins::ActingAs;
pub use logs::{BranchLogs, LogRequest};
pub use marketplace::{Arrival, AwsIdentity, AwsMarketplaceConfig, MeteredDimension, Payable};
pub use orb::{OrbConfig, OrbDelivery};
pub use outside::{
    OutsideAnswer, OutsideAttempt, OutsideBeginning, OutsideConfig, OutsideError, OutsideRefusal, OutsideUser,
};
pub use projects::{NewProject, ProjectChange};
pub use reconciler::{Reconciler, Workload};
pub use regions::Region;
pub use rekey::seal_anew;
pub use secrets::MasterKey;
pub use shares::Shares;
pub use sleep::Clients;
pub use statements::{Compared, StatementLogin};
pub use stripe::{BillingPage, StripeConfig, StripeDelivery};
pub use usage::{UsageLine, UsageReport, UsageRequest};
pub use vercel::{
    ResourceChange, ResourceRequest, ResourceSecrets, ResourceSeen, ResourceStatus, ResourceTold,
    VercelArrival, VercelCaller, VercelConfig, VercelDelivery, VercelTerms,
};
pub use webhooks::{DeliveryPage, WebhookChange, WebhookRequest};

/// How long the metastore may take to count as ready: whoever asks gives up
/// after a few seconds.
const READY_PATIENCE: Duration = Duration::from_secs(3);

/// Where clients reach the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPlace {
    /// A name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Settings of the platform that use cases need.
#[derive(Clone, Debug)]
pub struct AppConfig {
    /// Which platform this is.
    pub server: Server,
    /// The region of this host.
    pub region: RegionId,
    /// This host.
    pub host: HostId,
    /// What links to the API and its pages begin with; no slash at its end.
    pub public_url: String,
    /// Where clients reach the gateway.
    pub gateway: GatewayPlace,
    /// The domain under which every branch has a host name, if there is one.
    pub gateway_domain: Option<String>,
    /// How long a creation waits for its branch to be ready.
    pub create_wait: Duration,
    /// Other names by which clients of the API may call the managed role.
    pub user_aliases: Vec<String>,
    /// Who may get an account by signing in.
    pub sign_up: SignUp,
    /// Where people may sign in besides here, if anywhere.
    pub outside: Option<OutsideConfig>,
    /// Whether people may sign in with passwords.
    pub has_passwords: bool,
    /// Quotas of every organization.
    pub limits: OrganizationLimits,
    /// Signing in.
    pub identity: IdentityConfig,
    /// For how long deleted branches can be brought back.
    pub trash_keep: Duration,
    /// Days that lines of the audit log are kept.
    pub audit_days: u32,
    /// How mail is sent, if it is.
    pub mailer: Option<Mailer>,
    /// Where webhooks may lead.
    pub webhook_reach: Reachable,
    /// How often instances are measured.
    pub metrics_interval: Duration,
    /// Where everything is kept away from this machine, if anywhere.
    pub archive: Option<Arc<Connection>>,
    /// How often what has changed is written there.
    pub store_interval: Duration,
    /// How often the newest base of each branch is restored for proof, if ever.
    pub drill_every: Option<Duration>,
    /// What is charged, if anybody is.
    pub prices: Option<PriceList>,
    /// The GitHub App, if there is one.
    pub github: Option<GithubConfig>,
    /// Our integration on Vercel, if there is one.
    pub vercel: Option<VercelConfig>,
    /// Where what organizations pay with is on file, if anywhere.
    pub stripe: Option<StripeConfig>,
    /// Who makes invoices, if not the platform.
    pub orb: Option<OrbConfig>,
    /// Our product at AWS Marketplace, if there is one.
    pub marketplace: Option<AwsMarketplaceConfig>,
}

/// Which platform this is. No secret: it is told to everybody, so that nobody
/// takes one for another.
#[derive(Clone, Debug)]
pub struct Server {
    /// The installation, as its data directory and its metastore know it.
    pub installation: InstallationId,
    /// Another text for each process, also of the same installation.
    pub process: String,
}

/// The use cases with their collaborators.
#[derive(Clone)]
pub struct App {
    store: Store,
    engine: SharedEngine,
    reconciler: Reconciler,
    key: Arc<MasterKey>,
    key_uses: Arc<keys::KeyUses>,
    events: Arc<events::EventFeed>,
    log_readers: Arc<logs::Readers>,
    identity: Arc<identity::Identity>,
    clients: Arc<dyn Clients>,
    metering: Arc<metering::Metering>,
    /// What is still to be written down of what happened to accounts.
    late_notes: TaskTracker,
    /// Says that there is mail to be sent.
    mail_nudge: Arc<Notify>,
    /// Says that there is something to be sent to webhooks.
    webhook_nudge: Arc<Notify>,
    /// When this process began to know clients.
    started: Instant,
    /// Whether everything is there that clients may expect.
    is_set_up: Arc<AtomicBool>,
    outside: Option<Arc<outside::OutsideIssuer>>,
    github: Option<Arc<github::Github>>,
    vercel: Option<Arc<vercel::Vercel>>,
    stripe: Option<Arc<stripe::Stripe>>,
    /// Says that Stripe has told of something.
    stripe_nudge: Arc<Notify>,
    orb: Option<Arc<orb::Orb>>,
    /// Says that Orb has told of something, or is to be told.
    orb_nudge: Arc<Notify>,
    marketplace: Option<Arc<marketplace::AwsMarketplace>>,
    upkeep: Arc<backups::Upkeep>,
    config: Arc<AppConfig>,
}

impl App {
    /// Puts the collaborators together.
    pub fn new(
        store: Store,
        engine: SharedEngine,
        reconciler: Reconciler,
        key: Arc<MasterKey>,
        clients: Arc<dyn Clients>,
        config: AppConfig,
    ) -> Self {
        let (key_uses, started) = (Arc::default(), Instant::now());
        let identity = Arc::new(identity::Identity::new(config.identity.clone(), &key));
        let outside = config.outside.clone().map(|outside| {
            let redirect_uri = format!("{}/oauth/outside/callback", config.public_url);
            Arc::new(outside::OutsideIssuer::new(outside, redirect_uri))
        });
        let github = config.github.clone().map(|github| Arc::new(github::Github::new(github)));
        let vercel = config.vercel.clone().map(|vercel| Arc::new(vercel::Vercel::new(vercel)));
        let stripe = config.stripe.clone().map(|stripe| Arc::new(stripe::Stripe::new(stripe)));
        let orb = config.orb.clone().map(|orb| Arc::new(orb::Orb::new(orb)));
        let marketplace =
            config.marketplace.clone().map(|config| Arc::new(marketplace::AwsMarketplace::new(config)));
        Self {
            store,
            engine,
            reconciler,
            key,
            key_uses,
            events: Arc::default(),
            log_readers: Arc::default(),
            identity,
            clients,
            metering: Arc::default(),
            late_notes: TaskTracker::new(),
            mail_nudge: Arc::default(),
            webhook_nudge: Arc::default(),
            started,
            is_set_up: Arc::default(),
            outside,
            github,
            vercel,
            stripe,
            stripe_nudge: Arc::default(),
            orb,
            orb_nudge: Arc::default(),
            marketplace,
            upkeep: Arc::default(),
            config: Arc::new(config),
        }
    }

    /// Settings of the platform.
    pub fn config(&self) -> &AppConfig {
        &self.config
    }

    /// Makes up salts for roles that don't exist.
    pub fn fake_salt_secret(&self) -> [u8; 32] {
        self.key.fake_salt_secret()
    }

    /// Says that the first start is complete: the account, its file and its
    /// branch are there.
    pub fn note_set_up(&self) {
        self.is_set_up.store(true, Ordering::Relaxed);
    }

    /// Whether the first start is complete and the metastore answers.
    ///
    /// # Errors
    /// `unavailable`
    pub async fn check_ready(&self) -> coppice_core::Result<()> {
        if !self.is_set_up.load(Ordering::Relaxed) {
            return Err(coppice_core::Error::unavailable("the start is not complete yet"));
        }
        let answered = tokio::time::timeout(READY_PATIENCE, self.store.ping()).await;
        Ok(answered
            .map_err(|_| coppice_core::Error::unavailable("the metastore does not answer in time"))??)
    }

    /// How many branches there are in each state, deleted ones left out.
    ///
    /// # Errors
    /// `unavailable`
    pub async fn count_branches(&self) -> coppice_core::Result<Vec<(BranchState, u64)>> {
        Ok(self.store.branch_count_by_state().await?)
    }

    /// Its connections to the metastore.
    pub fn metastore_connections(&self) -> [PoolUse; 3] {
        self.store.connections()
    }

    /// What is being worked on.
    pub fn workload(&self) -> Workload {
        self.reconciler.workload()
    }
}
