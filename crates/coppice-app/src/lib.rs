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
mod app;
mod asking;
mod attempts;
mod audit;
mod backups;
mod billing;
mod bootstrap;
mod branch_metrics;
mod branches;
mod budgets;
mod cached;
mod callers;
mod configuration;
mod connections;
mod credentials;
mod drills;
mod events;
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
mod offers;
pub mod operator;
mod orb;
mod organizations;
mod outside;
mod pace;
mod past;
mod projects;
pub mod reconciler;
mod rekey;
mod rows;
mod sampler;
mod secrets;
mod signed;
mod sleep;
mod statements;
mod storage;
mod stripe;
mod subscriptions;
pub mod tasks;
mod turns;
mod usage;
mod users;
mod vercel;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use coppice_archive::Connection;
use coppice_core::limits::OrganizationLimits;
use coppice_core::price_list::PriceList;
use coppice_core::reach::Reachable;
use coppice_core::sign_up::SignUp;
use coppice_core::{HostId, InstallationId, RegionId};
use coppice_mail::Mailer;

pub use access::{Access, Credential, PersonalAccess};
pub use app::{App, UseCases};
pub use audit::{AccountEvent, AccountEventKind, Audit, AuditPage, AuditQuery};
pub use backups::Backups;
pub use billing::{Billing, InvoicePage, InvoiceSummary, UpcomingInvoice, invoice_number};
pub use bootstrap::{Bootstrap, FirstAccount};
pub use branch_metrics::{BranchMetrics, InstanceSeries, MetricsRequest};
pub use branches::{
    Backup, BranchChange, BranchDetails, BranchInTree, BranchOrigin, Branches, CustomBranch, InstanceStatus,
    NewBranchRequest, ResetTo, SpecChange, UpgradeTo,
};
pub use budgets::{BudgetLine, Budgets};
pub use callers::{Callers, Presented};
pub use configuration::Parameters;
pub use connections::{Connectable, Connections};
pub use coppice_store::Event;
pub use coppice_store::Invoice;
pub use coppice_store::{ArrivedSubscription, BrowserSession, HalfSignIn, Holdings};
pub use coppice_store::{AuditEnd, ByLabels, DeletedKey, InvitationFilter, UsageGrouping, UsageStep};
pub use coppice_telemetry::logs::{BodyMatch, LogEntry, LogFilter, LogLevel};
pub use credentials::{BranchCredentials, Credentials};
pub use events::{EventPage, EventQuery, Events};
pub use github::{AppKey, Github, GithubConfig, GithubDelivery, JobKey, LinkRequest, MappingRequest};
pub use history::Histories;
pub use idempotency::{Begun, Calls, KeptAnswer, RepeatableCall, Uncommitted};
pub use identity::{
    AllowedClient, Authorization, ClientClaim, Device, DeviceAnswer, Enrolment, HALF_LIFETIME, Identity,
    IdentityConfig, IdentityError, LINK_LIFETIME, NewFactor, NewRecoveryCodes, PASSWORD_MAX, PASSWORD_MIN,
    PasskeyRemoved, PasswordChange, Proof, RecoveryCodes, RotatedKey, SESSION_LIFETIME, SecondFactorRemoval,
    SecondStep, SignIn, TokenAnswer, hash_password, new_sign_in_link, rotate_signing_key,
};
pub use invitations::{
    Accepted, Invitations, InvitedAccount, NewPerson, OfferedInvitation, VisibleInvitation,
};
pub use key_file::KeyFile;
pub use keys::{Keys, NewKey, Reach};
pub use logins::{ActingAs, Logins};
pub use logs::{BranchLogs, LogRequest, Logs};
pub use mail::Mail;
pub use marketplace::{
    Arrival, AwsIdentity, AwsMarketplace, AwsMarketplaceConfig, MeteredDimension, Payable,
};
pub use members::Members;
pub use metering::Metering;
pub use offers::{Extension, ExtensionKind, Offers, Region};
pub use orb::{Orb, OrbConfig, OrbDelivery};
pub use organizations::Organizations;
pub use outside::{
    Outside, OutsideAnswer, OutsideAttempt, OutsideBeginning, OutsideConfig, OutsideError, OutsideRefusal,
    OutsideUser,
};
pub use projects::{NewProject, ProjectChange, Projects};
pub use reconciler::{Reconciler, Workload};
pub use rekey::seal_anew;
pub use sampler::Sampling;
pub use secrets::MasterKey;
pub use sleep::{Activity, Clients, Sleep};
pub use statements::{Compared, StatementLogin, Statements};
pub use stripe::{BillingPage, Stripe, StripeConfig, StripeDelivery};
pub use usage::{UsageLine, UsageReport, UsageReports, UsageRequest};
pub use users::Users;
pub use vercel::{
    ResourceChange, ResourceRequest, ResourceSecrets, ResourceSeen, ResourceStatus, ResourceTold, Vercel,
    VercelArrival, VercelCaller, VercelConfig, VercelDelivery, VercelTerms,
};
pub use webhooks::{DeliveryPage, WebhookChange, WebhookRequest, Webhooks};

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
