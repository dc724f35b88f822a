//! All use cases, put together.

mod parts;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coppice_core::branch::BranchState;
use coppice_engine::SharedEngine;
use coppice_store::{PoolUse, Store};

use crate::AppConfig;
use crate::audit::Audit;
use crate::backups::Backups;
use crate::billing::Billing;
use crate::bootstrap::Bootstrap;
use crate::branch_metrics::BranchMetrics;
use crate::branches::Branches;
use crate::budgets::Budgets;
use crate::callers::Callers;
use crate::configuration::Parameters;
use crate::connections::Connections;
use crate::credentials::BranchCredentials;
use crate::drills::Drills;
use crate::events::Events;
use crate::github::Github;
use crate::history::Histories;
use crate::idempotency::Calls;
use crate::identity::Identity;
use crate::invitations::Invitations;
use crate::keys::Keys;
use crate::logins::Logins;
use crate::logs::Logs;
use crate::mail::Mail;
use crate::marketplace::AwsMarketplace;
use crate::members::Members;
use crate::metering::Metering;
use crate::offers::Offers;
use crate::orb::Orb;
use crate::organizations::{Deletions, Organizations};
use crate::outside::Outside;
use crate::projects::Projects;
use crate::reconciler::{Reconciler, Workload};
use crate::sampler::Sampling;
use crate::secrets::MasterKey;
use crate::sleep::{Clients, Sleep};
use crate::statements::Statements;
use crate::storage::StorageWatch;
use crate::stripe::Stripe;
use crate::usage::UsageReports;
use crate::users::Users;
use crate::vercel::Vercel;
use crate::webhooks::Webhooks;
use parts::{Paying, People, Serving};

/// How long the metastore may take to count as ready: whoever asks gives up
/// after a few seconds.
const READY_PATIENCE: Duration = Duration::from_secs(3);

/// The use cases of one platform. Every request, connection and task has a clone: as cheap as
/// one of an `Arc`.
#[derive(Clone)]
pub struct App(Arc<UseCases>);

impl Deref for App {
    type Target = UseCases;

    fn deref(&self) -> &UseCases {
        &self.0
    }
}

/// The use cases: those of each noun where the noun is, with nothing in reach but what it needs.
pub struct UseCases {
    /// Calls with an `Idempotency-Key`.
    pub calls: Calls,
    /// Authentication and authorization.
    pub callers: Callers,
    /// The first start.
    pub bootstrap: Bootstrap,
    /// Sign-ins, sessions and tokens.
    pub identity: Identity,
    /// Sign-ins at an outside OpenID Connect provider.
    pub outside: Outside,
    /// The audit log.
    pub audit: Audit,
    /// Events of organizations.
    pub events: Events,
    /// Webhooks, which deliver these events.
    pub webhooks: Webhooks,
    /// Logs of branches' servers.
    pub logs: Logs,
    /// Letters.
    pub mail: Mail,
    /// Accounts of people.
    pub users: Users,
    /// Organizations of people.
    pub organizations: Organizations,
    /// Members of organizations.
    pub members: Members,
    /// Invitations to organizations.
    pub invitations: Invitations,
    /// API keys.
    pub keys: Keys,
    /// Projects.
    pub projects: Projects,
    /// Regions, instance types, images and extensions.
    pub offers: Offers,
    /// The meter of usage.
    pub metering: Metering,
    /// Reports of usage and its price.
    pub usage: UsageReports,
    /// Budgets for a month.
    pub budgets: Budgets,
    /// Invoices.
    pub billing: Billing,
    /// Payment methods, at Stripe.
    pub stripe: Stripe,
    /// Debts, where Orb makes the invoices.
    pub orb: Orb,
    /// Organizations that are billed through AWS Marketplace.
    pub marketplace: AwsMarketplace,
    /// Branches.
    pub branches: Branches,
    /// Backups of branches in the store.
    pub backups: Backups,
    /// Histories of branches: the moments that they can be taken back to.
    pub histories: Histories,
    /// When they fall asleep and wake.
    pub sleep: Sleep,
    /// What was measured of them.
    pub metrics: BranchMetrics,
    /// Measuring it.
    pub sampling: Sampling,
    /// Their PostgreSQL parameters.
    pub parameters: Parameters,
    /// What clients connect with.
    pub credentials: BranchCredentials,
    /// What keys and Vercel have in place of the managed role's password.
    pub logins: Logins,
    /// What the gateway asks.
    pub connections: Connections,
    /// Statements of callers of the API.
    pub statements: Statements,
    /// Pull requests with branches of their own.
    pub github: Github,
    /// Databases that people have by our integration on Vercel.
    pub vercel: Vercel,
    pub(crate) deletions: Deletions,
    pub(crate) drills: Drills,
    pub(crate) storage: StorageWatch,
    pub(crate) store: Store,
    pub(crate) engine: SharedEngine,
    reconciler: Reconciler,
    key: Arc<MasterKey>,
    /// Whether everything is there that clients may expect.
    is_set_up: Arc<AtomicBool>,
    pub(crate) config: AppConfig,
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
        let kept = (store.clone(), key.clone());
        let served = (store.clone(), engine.clone(), reconciler.clone());
        let (calls, is_set_up) = (Calls::new(store.clone(), key.clone()), Arc::<AtomicBool>::default());
        let webhooks = Webhooks::new(store.clone(), key.clone(), config.webhook_reach.clone());
        let people = People::new(kept.clone(), &config);
        let paying = Paying::new(kept.clone(), &people.audit, &config);
        let serving = Serving::new(served, key.clone(), clients.clone(), &config);
        let known = (people.audit.clone(), serving.branches.clone());
        let github = Github::new(kept, known, is_set_up.clone(), &config);
        let used = serving.used_by_vercel(&calls, &people);
        let vercel = Vercel::new((store.clone(), key.clone(), reconciler.clone()), used, &config);
        let (mail, prices) = (people.mail.clone(), config.prices.clone());
        let budgets = Budgets::new(store.clone(), reconciler.clone(), mail, prices.clone());
        Self(Arc::new(UseCases {
            calls,
            callers: people.callers,
            bootstrap: people.bootstrap,
            identity: people.identity,
            outside: people.outside,
            invitations: people.invitations,
            audit: people.audit,
            users: people.users,
            members: people.members,
            keys: people.keys,
            mail: people.mail,
            events: Events::new(store.clone(), webhooks.clone()),
            webhooks,
            metering: Metering::new(store.clone(), engine.clone(), clients, config.host.clone()),
            usage: UsageReports::new(store.clone(), prices),
            budgets,
            organizations: paying.organizations,
            deletions: paying.deletions,
            billing: paying.billing,
            stripe: paying.stripe,
            orb: paying.orb,
            marketplace: paying.marketplace,
            projects: serving.projects,
            branches: serving.branches,
            offers: serving.offers,
            parameters: serving.parameters,
            sleep: serving.sleep,
            histories: serving.histories,
            backups: serving.backups,
            drills: serving.drills,
            logs: serving.logs,
            metrics: serving.metrics,
            sampling: serving.sampling,
            storage: serving.storage,
            logins: serving.logins,
            credentials: serving.credentials,
            connections: serving.connections,
            statements: serving.statements,
            github,
            vercel,
            store,
            engine,
            reconciler,
            key,
            is_set_up,
            config,
        }))
    }
}

impl UseCases {
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
