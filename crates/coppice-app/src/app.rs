//! All use cases, put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coppice_core::branch::BranchState;
use coppice_core::sign_up::SignUp;
use coppice_engine::SharedEngine;
use coppice_store::{PoolUse, Store};
use tokio::sync::Notify;

use crate::AppConfig;
use crate::audit::Audit;
use crate::backups;
use crate::billing::Billing;
use crate::bootstrap::Bootstrap;
use crate::budgets::Budgets;
use crate::callers::Callers;
use crate::events::Events;
use crate::github;
use crate::idempotency::Calls;
use crate::identity::{Identity, Passwords};
use crate::invitations::Invitations;
use crate::invitations::links::InvitationLinks;
use crate::keys::{KeyUses, Keys};
use crate::logs::Logs;
use crate::mail::Mail;
use crate::marketplace::AwsMarketplace;
use crate::members::Members;
use crate::metering::Metering;
use crate::offers::Offers;
use crate::orb::{Orb, OrbApi};
use crate::organizations::{Deletions, Organizations};
use crate::outside::Outside;
use crate::projects::Projects;
use crate::reconciler::{Reconciler, Workload};
use crate::secrets::MasterKey;
use crate::sleep::Clients;
use crate::stripe::Stripe;
use crate::subscriptions::Subscriptions;
use crate::usage::UsageReports;
use crate::users::Users;
use crate::vercel;
use crate::webhooks::Webhooks;

/// How long the metastore may take to count as ready: whoever asks gives up
/// after a few seconds.
const READY_PATIENCE: Duration = Duration::from_secs(3);

/// The use cases: those of each noun where the noun is, with nothing in reach but what it needs.
#[derive(Clone)]
pub struct App {
    /// Calls that may be repeated.
    pub calls: Calls,
    /// Who calls, and whether they may.
    pub callers: Callers,
    /// The first start.
    pub bootstrap: Bootstrap,
    /// Signing in.
    pub identity: Identity,
    /// The same at somebody else's provider.
    pub outside: Outside,
    /// Who changed what.
    pub audit: Audit,
    /// What happened in organizations.
    pub events: Events,
    /// Where they want to hear of it.
    pub webhooks: Webhooks,
    /// What branches' servers have logged.
    pub logs: Logs,
    /// Letters.
    pub mail: Mail,
    /// Accounts of people.
    pub users: Users,
    /// Organizations of people.
    pub organizations: Organizations,
    /// Their members.
    pub members: Members,
    /// Invitations to become one.
    pub invitations: Invitations,
    /// API keys.
    pub keys: Keys,
    /// Projects.
    pub projects: Projects,
    /// What can be had where.
    pub offers: Offers,
    /// The meter.
    pub metering: Metering,
    /// What was used, and what that costs.
    pub usage: UsageReports,
    /// What may be used in a month.
    pub budgets: Budgets,
    /// What is asked for it.
    pub billing: Billing,
    /// What organizations pay with.
    pub stripe: Stripe,
    /// What they owe, where Orb makes the invoices.
    pub orb: Orb,
    /// Those that are billed through AWS Marketplace.
    pub marketplace: AwsMarketplace,
    pub(crate) deletions: Deletions,
    pub(crate) store: Store,
    pub(crate) engine: SharedEngine,
    pub(crate) reconciler: Reconciler,
    pub(crate) key: Arc<MasterKey>,
    pub(crate) clients: Arc<dyn Clients>,
    /// When this process began to know clients.
    pub(crate) started: Instant,
    /// Whether everything is there that clients may expect.
    pub(crate) is_set_up: Arc<AtomicBool>,
    pub(crate) github: Option<Arc<github::Github>>,
    pub(crate) vercel: Option<Arc<vercel::Vercel>>,
    pub(crate) upkeep: Arc<backups::Upkeep>,
    pub(crate) config: Arc<AppConfig>,
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
        let (public_url, limits, prices) = (&config.public_url, config.limits, &config.prices);
        let audit = Audit::new(store.clone(), key.clone(), config.audit_days);
        let webhooks = Webhooks::new(store.clone(), key.clone(), config.webhook_reach.clone());
        let links = InvitationLinks::new(key.clone(), public_url.clone());
        let mail = Mail::new(store.clone(), config.mailer.clone(), links.clone(), public_url.clone());
        let (passwords, key_uses) = (Arc::<Passwords>::default(), Arc::<KeyUses>::default());
        let identity = Identity::new(kept.clone(), audit.clone(), passwords.clone(), config.identity.clone());
        let callers = Callers::new(kept.clone(), key_uses.clone(), identity.clone(), public_url.clone());
        let Paying { organizations, deletions, stripe, orb, billing, marketplace } =
            Paying::new(kept.clone(), &audit, &config);
        let may_make_accounts = config.has_passwords && config.sign_up != SignUp::Off;
        let github = config.github.clone().map(|github| Arc::new(github::Github::new(github)));
        let vercel = config.vercel.clone().map(|vercel| Arc::new(vercel::Vercel::new(vercel)));
        Self {
            calls: Calls::new(store.clone(), key.clone()),
            callers,
            bootstrap: Bootstrap::new(store.clone(), key.clone(), passwords.clone()),
            identity,
            outside: Outside::new(kept.clone(), audit.clone(), &config),
            invitations: Invitations::new(
                kept,
                (links, mail.clone()),
                audit.clone(),
                passwords,
                limits,
                may_make_accounts,
            ),
            audit,
            events: Events::new(store.clone(), webhooks.clone()),
            webhooks,
            logs: Logs::new(store.clone(), engine.clone(), key.clone()),
            users: Users::new(store.clone()),
            organizations,
            members: Members::new(store.clone()),
            keys: Keys::new(store.clone(), key.clone(), key_uses, limits.api_keys_max),
            projects: Projects::new(store.clone(), reconciler.clone(), limits),
            offers: Offers::new(engine.clone(), config.region.clone(), config.gateway.host.clone()),
            metering: Metering::new(store.clone(), engine.clone(), clients.clone(), config.host.clone()),
            usage: UsageReports::new(store.clone(), prices.clone()),
            budgets: Budgets::new(store.clone(), reconciler.clone(), mail.clone(), prices.clone()),
            mail,
            billing,
            orb,
            stripe,
            marketplace,
            deletions,
            store,
            engine,
            reconciler,
            key,
            clients,
            started: Instant::now(),
            is_set_up: Arc::default(),
            github,
            vercel,
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

/// Organizations, and what they pay.
struct Paying {
    organizations: Organizations,
    deletions: Deletions,
    stripe: Stripe,
    orb: Orb,
    billing: Billing,
    marketplace: AwsMarketplace,
}

impl Paying {
    fn new((store, key): (Store, Arc<MasterKey>), audit: &Audit, config: &AppConfig) -> Self {
        let public_url = &config.public_url;
        let orb_api = config.orb.clone().map(|orb| Arc::new(OrbApi::new(orb)));
        let orb_nudge = Arc::<Notify>::default();
        let stripe = Stripe::new(store.clone(), config.stripe.clone(), public_url.clone(), orb_nudge.clone());
        let deletions = Deletions::new(store.clone(), orb_api.is_some());
        let subscriptions = Subscriptions::new(store.clone(), stripe.clone());
        let organizations = Organizations::new(
            store.clone(),
            stripe.clone(),
            config.marketplace.is_some().then(|| subscriptions.clone()),
            deletions.clone(),
            orb_nudge.clone(),
            config.limits,
            public_url.clone(),
        );
        let marketplace = AwsMarketplace::new(
            (store.clone(), key),
            config.marketplace.clone(),
            audit.clone(),
            organizations.clone(),
            subscriptions,
        );
        let billing = Billing::new(store.clone(), config.prices.clone(), orb_api.clone(), stripe.clone());
        let orb = Orb::new(store, orb_api, stripe.clone(), deletions.clone(), orb_nudge);
        Self { organizations, deletions, stripe, orb, billing, marketplace }
    }
}
