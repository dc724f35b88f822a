//! Builds the groups of use cases that need each other.

use std::sync::Arc;

use coppice_core::sign_up::SignUp;
use coppice_engine::SharedEngine;
use coppice_store::Store;
use tokio::sync::Notify;

use crate::AppConfig;
use crate::audit::Audit;
use crate::backups::Backups;
use crate::billing::Billing;
use crate::bootstrap::Bootstrap;
use crate::branch_metrics::BranchMetrics;
use crate::branches::Branches;
use crate::callers::Callers;
use crate::configuration::Parameters;
use crate::connections::Connections;
use crate::credentials::BranchCredentials;
use crate::drills::Drills;
use crate::history::Histories;
use crate::idempotency::Calls;
use crate::identity::{Identity, Passwords};
use crate::invitations::Invitations;
use crate::invitations::links::InvitationLinks;
use crate::keys::{KeyUses, Keys};
use crate::logins::Logins;
use crate::logs::Logs;
use crate::mail::Mail;
use crate::marketplace::AwsMarketplace;
use crate::members::Members;
use crate::offers::Offers;
use crate::orb::{Orb, OrbApi};
use crate::organizations::{Deletions, Organizations};
use crate::outside::Outside;
use crate::past::Moments;
use crate::projects::Projects;
use crate::reconciler::Reconciler;
use crate::sampler::Sampling;
use crate::secrets::MasterKey;
use crate::sleep::{Clients, Sleep};
use crate::statements::Statements;
use crate::storage::StorageWatch;
use crate::stripe::Stripe;
use crate::subscriptions::Subscriptions;
use crate::users::Users;
use crate::vercel::Used;

/// People, and what they may.
pub(super) struct People {
    pub(super) audit: Audit,
    pub(super) mail: Mail,
    pub(super) callers: Callers,
    pub(super) bootstrap: Bootstrap,
    pub(super) identity: Identity,
    pub(super) outside: Outside,
    pub(super) invitations: Invitations,
    pub(super) users: Users,
    pub(super) members: Members,
    pub(super) keys: Keys,
}

impl People {
    pub(super) fn new((store, key): (Store, Arc<MasterKey>), config: &AppConfig) -> Self {
        let (kept, public_url, limits) = ((store.clone(), key.clone()), &config.public_url, config.limits);
        let audit = Audit::new(store.clone(), key.clone(), config.audit_days);
        let links = InvitationLinks::new(key.clone(), public_url.clone());
        let mail = Mail::new(store.clone(), config.mailer.clone(), links.clone(), public_url.clone());
        let (passwords, key_uses) = (Arc::<Passwords>::default(), Arc::<KeyUses>::default());
        let identity = Identity::new(kept.clone(), audit.clone(), passwords.clone(), config.identity.clone());
        let may_make_accounts = config.has_passwords && config.sign_up != SignUp::Off;
        Self {
            callers: Callers::new(kept.clone(), key_uses.clone(), identity.clone(), public_url),
            bootstrap: Bootstrap::new(store.clone(), key.clone(), passwords.clone()),
            identity,
            outside: Outside::new(kept.clone(), audit.clone(), config),
            invitations: Invitations::new(
                kept,
                (links, mail.clone()),
                audit.clone(),
                passwords,
                limits,
                may_make_accounts,
            ),
            users: Users::new(store.clone()),
            members: Members::new(store.clone()),
            keys: Keys::new(store, key, key_uses, limits.api_keys_max),
            mail,
            audit,
        }
    }
}

/// Organizations, and what they pay.
pub(super) struct Paying {
    pub(super) organizations: Organizations,
    pub(super) deletions: Deletions,
    pub(super) stripe: Stripe,
    pub(super) orb: Orb,
    pub(super) billing: Billing,
    pub(super) marketplace: AwsMarketplace,
}

impl Paying {
    pub(super) fn new((store, key): (Store, Arc<MasterKey>), audit: &Audit, config: &AppConfig) -> Self {
        let public_url = &config.public_url;
        let orb_api = config.orb.clone().map(|orb| Arc::new(OrbApi::new(orb)));
        let orb_nudge = Arc::<Notify>::default();
        let kept = (store.clone(), key);
        let stripe = Stripe::new(kept.clone(), config.stripe.clone(), public_url.clone(), orb_nudge.clone());
        let deletions = Deletions::new(store.clone(), orb_api.is_some());
        let subscriptions = Subscriptions::new(store.clone(), stripe.clone());
        let organizations = Organizations::new(
            store.clone(),
            stripe.clone(),
            config.marketplace.is_some().then(|| subscriptions.clone()),
            deletions.clone(),
            orb_nudge.clone(),
            config.limits,
        );
        let marketplace = AwsMarketplace::new(
            kept.clone(),
            config.marketplace.clone(),
            audit.clone(),
            organizations.clone(),
            subscriptions,
        );
        let billing = Billing::new(kept, config.prices.clone(), orb_api.clone(), stripe.clone());
        let orb = Orb::new(store, orb_api, stripe.clone(), deletions.clone(), orb_nudge);
        Self { organizations, deletions, stripe, orb, billing, marketplace }
    }
}

/// Branches, and all that serves them.
pub(super) struct Serving {
    pub(super) projects: Projects,
    pub(super) branches: Branches,
    pub(super) offers: Offers,
    pub(super) parameters: Parameters,
    pub(super) sleep: Sleep,
    pub(super) histories: Histories,
    pub(super) backups: Backups,
    pub(super) drills: Drills,
    pub(super) logs: Logs,
    pub(super) metrics: BranchMetrics,
    pub(super) sampling: Sampling,
    pub(super) storage: StorageWatch,
    pub(super) logins: Logins,
    pub(super) credentials: BranchCredentials,
    pub(super) connections: Connections,
    pub(super) statements: Statements,
}

impl Serving {
    pub(super) fn new(
        served: (Store, SharedEngine, Reconciler),
        key: Arc<MasterKey>,
        clients: Arc<dyn Clients>,
        config: &AppConfig,
    ) -> Self {
        let (store, engine, reconciler) = served.clone();
        let (host, archive) = (&config.host, &config.archive);
        let offers = Offers::new(engine.clone(), config.region.clone(), config.gateway.host.clone());
        let projects = Projects::new(store.clone(), reconciler.clone(), config.limits);
        let sleep =
            Sleep::new(store.clone(), engine.clone(), reconciler.clone(), clients.clone(), host.clone());
        let histories = Histories::new(store.clone(), engine.clone(), host.clone());
        let backups = Backups::new(
            store.clone(),
            engine.clone(),
            key.clone(),
            archive.clone(),
            host.clone(),
            config.store_interval,
        );
        let moments = Moments::new(store.clone(), histories.clone(), backups.clone(), archive.is_some());
        let logins = Logins::new(store.clone(), engine.clone(), key.clone());
        let credentials = BranchCredentials::new(served.clone(), key.clone(), logins.clone(), config);
        let connections = Connections::new(served.clone(), key.clone(), logins.clone(), credentials.clone());
        Self {
            branches: Branches::new(
                served,
                key.clone(),
                (offers.clone(), projects.clone()),
                (moments, backups.clone()),
                sleep.clone(),
                config,
            ),
            projects,
            parameters: Parameters::new(store.clone(), engine.clone(), offers.clone()),
            offers,
            statements: Statements::new(
                (store.clone(), engine.clone(), key.clone()),
                (logins.clone(), credentials.clone()),
                connections.clone(),
                sleep.clone(),
            ),
            logs: Logs::new(store.clone(), engine.clone(), key),
            metrics: BranchMetrics::new(store.clone()),
            sampling: Sampling::new(
                store.clone(),
                engine.clone(),
                clients,
                host.clone(),
                config.metrics_interval,
            ),
            drills: Drills::new(store.clone(), engine.clone(), host.clone(), config.drill_every),
            storage: StorageWatch::new(store, engine, reconciler, host.clone()),
            sleep,
            histories,
            backups,
            logins,
            credentials,
            connections,
        }
    }

    /// What the integration on Vercel uses.
    pub(super) fn used_by_vercel(&self, calls: &Calls, people: &People) -> Used {
        Used {
            calls: calls.clone(),
            audit: people.audit.clone(),
            identity: people.identity.clone(),
            offers: self.offers.clone(),
            projects: self.projects.clone(),
            branches: self.branches.clone(),
            credentials: self.credentials.clone(),
        }
    }
}
