//! The metastore: every SQL statement of the platform's own records.
//!
//! **Owns** the schema (`migrations/`) and all statements on it.
//! **Must not know** HTTP, processes, or files but those of an export.
//! **Start reading** at [`Store`], then [`branches`].
//!
//! One file per noun; a method's name begins with that noun, so that a search
//! for `branch_` finds every statement on branches. Methods that join a
//! caller's transaction end in `_in_tx`. Writes that race are conditional and
//! report losing as a value. Everything fails when the metastore can't be
//! reached; what else fails says so itself.

mod allowed_clients;
mod audit;
mod awake;
mod base_turns;
mod bases;
mod branches;
mod budget_parts;
mod budgets;
mod credentials;
mod deliveries;
mod devices;
mod drills;
mod error;
mod events;
mod github;
mod github_jobs;
mod github_pulls;
mod holders;
mod hosts;
mod idempotency;
mod invitations;
mod invoices;
mod keys;
mod lineage;
mod logins;
mod mails;
mod marketplace;
mod marketplace_records;
mod members;
mod metric_history;
mod metric_upkeep;
mod metrics;
mod oauth_clients;
mod oauth_sessions;
mod observations;
mod orb;
mod orb_usage;
mod organizations;
mod outside;
mod passkeys;
mod pool;
mod projects;
mod reach;
mod reads;
mod reclaim;
mod replicas;
mod rotation;
mod sealed;
mod second_factors;
mod sign_in_links;
mod sign_ins;
mod sleep;
mod spec;
mod storage;
mod stripe;
mod subscriptions;
mod transaction;
mod transfer;
mod trash;
mod usage;
mod usage_report;
mod usage_spans;
mod users;
mod vercel;
mod vercel_news;
mod vercel_people;
mod vercel_resources;
mod vercel_transfers;
mod verifiers;
mod versions;
mod volumes;
mod webhooks;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

pub use allowed_clients::{ALLOWED_CLIENTS_LISTED, AllowedClient};
pub use audit::{AuditEnd, AuditFilter, NewAuditLine};
pub use base_turns::DueBase;
pub use bases::{BaseRow, RecoveredVolumes, StoredLog};
pub use branches::{BranchNote, BranchQuotas, NewBranch};
pub use budget_parts::BudgetPart;
pub use budgets::{Budget, BudgetOutcome, BudgetReach};
pub use credentials::{CredentialMatch, LivingBrowser, LivingSession, Membership};
pub use deliveries::{AfterAttempt, AttemptEnd, ClaimedDelivery, DueDelivery};
pub use devices::{DeviceState, NewDevice, PollingDevice, WaitingDevice};
pub use drills::{Drills, DueDrill};
pub use error::StoreError;
pub use events::{Event, EventFilter, Publication};
pub use github::{MappingNote, ReachedRepository};
pub use github_pulls::{AfterLook, ClaimedPull, GithubNews, PullKey, Told};
pub use holders::Room;
pub use idempotency::{AnswerRoom, RepeatableRequest, Repetition};
pub use invitations::{InvitationFilter, InvitationRecord, NewInvitation};
pub use invoices::{Invoice, MissingInvoice};
pub use keys::{DeletedKey, NewApiKey};
pub use mails::DueMail;
pub use marketplace_records::{Telling, UnrecordedUsage};
pub use members::OrganizationChange;
pub use metric_history::{MeasuredInstance, MetricHistory, TakenSample};
pub use oauth_clients::{RegisteredClient, SigningKeyRow};
pub use oauth_sessions::{AuthorizationCode, CodeMatch, NewSession, RefreshMatch, Session};
pub use orb::{OrbFinding, OrbSubject};
pub use orb_usage::OrbUsage;
pub use outside::VerifiedUser;
pub use passkeys::{PASSKEYS_MAX, PasskeyRemoval, PasskeyRow};
use pool::Pool;
pub use reach::{ReachedBranch, ReachedProject};
use reads::Reads;
pub use reclaim::{Holdings, Owner};
pub use replicas::{NewReplica, ReplicaRow};
pub use rotation::{KeptPassword, ManagedRole};
pub use sealed::{SEALED, SealedColumn, SealedValue};
pub use second_factors::{
    AddedFactor, Addition, HalfSignIn, NewHalfSignIn, NewSecondFactor, SecondFactor, SecondProof,
};
pub use sign_ins::{Attempts, BrowserSession, NewBrowserSession, OldPassword, Renewed};
pub use sleep::{ConnectionTarget, IdleCandidate, KeptVerifier};
pub use sqlx::postgres::PgConnectOptions as ConnectOptions;
pub use stripe::{ClaimedCustomer, StripeCustomer, StripeFinding, StripeNews};
pub use subscriptions::{ArrivedSubscription, EndedSubscription};
pub use transaction::Tx;
pub use transfer::{ExportHeader, Transferred, check_export};
pub use trash::Doomed;
pub use usage::{MeteredVolume, StoredBytes, UsageReading, UsageTurn};
pub use usage_report::{ByLabels, UsageGrouping, UsageQuery, UsageRow, UsageStep};
pub use users::{NewUser, UserAccount};
pub use vercel::VercelNote;
pub use vercel_news::VercelNews;
pub use vercel_people::VercelPerson;
pub use vercel_resources::{NewVercelLogin, NewVercelResource};
pub use vercel_transfers::VercelTransfer;
pub use verifiers::SealedRole;
pub use versions::Replacement;
pub use volumes::{BaseMoment, NewVolume, Tombstone, VolumeRow};
pub use webhooks::NewWebhook;
pub use work::BranchWork;

/// A result of the store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!();

/// Connections to the metastore.
#[derive(Clone, Debug)]
pub struct Store {
    /// Commits are durable when they return.
    pool: Pool,
    /// Commits may be lost in a crash (never torn): for what is observed again
    /// after one, such as states, so that observing does not wait for the disk.
    relaxed: Pool,
    /// For what nearly every request reads.
    reads: Reads,
    options: Arc<PgConnectOptions>,
}

impl Store {
    /// Connects, waiting at most `patience` for the server.
    ///
    /// # Errors
    /// When no connection can be made in that time.
    pub async fn connect(options: PgConnectOptions, patience: Duration) -> Result<Self> {
        metrics::describe();
        // Creating what is already there is no news. No statement takes so long as to compile it.
        let quiet = [("client_min_messages", "warning"), ("jit", "off")];
        let options = options.application_name("coppice").options(quiet);
        let store = Self {
            pool: Pool::new(options.clone(), 16, patience),
            relaxed: Pool::new(options.clone().options([("synchronous_commit", "off")]), 8, patience),
            reads: Reads::new(options.clone(), 16, patience),
            options: Arc::new(options),
        };
        sqlx::query("select 1").execute(&store.pool).await?;
        Ok(store)
    }

    /// Brings the schema to the one this program knows.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`] when the metastore was already migrated by
    /// a newer program.
    pub async fn migrate(&self) -> Result<()> {
        MIGRATIONS.run(self.pool.unshared()).await.map_err(|error| match error {
            sqlx::migrate::MigrateError::VersionMissing(version) => StoreError::NewerSchema { version },
            other => StoreError::Migration(other),
        })
    }

    /// Like [`Store::migrate`], but when a metastore in use has migrations
    /// before it, an export of it is first written into the directory
    /// `exports`. Returns where.
    ///
    /// # Errors
    /// As for [`Store::migrate`], and when the export can't be written; then
    /// nothing was migrated.
    pub async fn migrate_after_export(&self, exports: &Path) -> Result<Option<PathBuf>> {
        let mut connection = self.pool.unshared().acquire().await?;
        let applied = transfer::schema_version(&mut connection).await?;
        drop(connection);
        let pending = MIGRATIONS.iter().find(|one| applied.is_some_and(|applied| one.version > applied));
        let mut written = None;
        if let Some(pending) = pending {
            let time = chrono::Utc::now().format("%Y%m%dT%H%M%S%.3fZ");
            let path = exports.join(format!("before-{}-{time}.coppice", pending.version));
            self.export_to_file(&path).await?;
            written = Some(path);
        }
        self.migrate().await?;
        Ok(written)
    }

    /// Whether the metastore answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query("select 1").execute(&self.pool).await?;
        Ok(())
    }

    /// How its connections are used.
    pub fn connections(&self) -> [PoolUse; 3] {
        let (open, idle) = self.reads.open_and_idle();
        [
            self.pool.used("durable"),
            self.relaxed.used("relaxed"),
            PoolUse { pool: "reads", used: open.saturating_sub(idle), idle },
        ]
    }

    /// Begins a transaction.
    pub async fn begin(&self) -> Result<Tx> {
        self.pool.begin().await
    }

    /// Listens for branches whose goal or generation changed, in any process.
    pub async fn branch_listener(&self) -> Result<BranchListener> {
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with((*self.options).clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen("coppice_branches").await?;
        Ok(BranchListener { listener })
    }

    /// The installation this metastore belongs to; the first caller names it.
    pub async fn installation_ensure(
        &self,
        own: &coppice_core::InstallationId,
        may_create: bool,
    ) -> Result<Option<coppice_core::InstallationId>> {
        if may_create {
            sqlx::query("insert into installation (id) values ($1) on conflict do nothing")
                .bind(own.as_str())
                .execute(&self.pool)
                .await?;
        }
        let id: Option<String> =
            sqlx::query_scalar("select id from installation").fetch_optional(&self.pool).await?;
        Ok(id.map(coppice_core::InstallationId::from_trusted))
    }
}

/// How the connections of one kind are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// `durable`: commits are waited for; `relaxed`: they are not; `reads`: single statements.
    pub pool: &'static str,
    /// Connections with which something is being done.
    pub used: usize,
    /// Connections that wait for work.
    pub idle: usize,
}

/// See [`Store::branch_listener`].
#[derive(Debug)]
pub struct BranchListener {
    listener: PgListener,
}

impl BranchListener {
    /// The next branch that changed. Reconnects by itself; what changed in
    /// between is lost, so a timer must look as well.
    ///
    /// # Errors
    /// When the connection is lost and can't be made again.
    pub async fn next(&mut self) -> Result<coppice_core::BranchId> {
        let notification = self.listener.recv().await?;
        Ok(coppice_core::BranchId::from_trusted(notification.payload()))
    }
}
