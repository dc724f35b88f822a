//! Organizations that are billed through a cloud's marketplace.
//!
//! **Owns** what is asked of AWS, what it is told of usage, and what becomes of
//! an organization by its subscription there.
//! **Must not know** how requests reach us, or how a page looks.
//! **Start reading** at `arrivals.rs`, which is how a subscription begins; it
//! ends in `events.rs`, and what is used between goes by `usage.rs`.

mod api;
mod arrivals;
mod config;
mod events;
mod usage;

use std::sync::Arc;

use coppice_core::marketplace::{Marketplace, MarketplaceRegistration};
use coppice_core::{Error, ErrorCode, Result, name};
use coppice_store::Store;

use api::AwsApi;
pub use arrivals::{Arrival, Payable};
pub use config::{AwsIdentity, AwsMarketplaceConfig, MeteredDimension};

pub(crate) use events::LOOK as LOOK_AT_QUEUE;
pub(crate) use usage::LOOK as LOOK_AT_USAGE;

use crate::attempts::Attempts;
use crate::audit::Audit;
use crate::organizations::Organizations;
use crate::rows::lock_user_in_tx;
use crate::secrets::MasterKey;
use crate::subscriptions::Subscriptions;
use crate::{Access, PersonalAccess};

/// Organizations that are billed through AWS Marketplace.
#[derive(Clone)]
pub struct AwsMarketplace {
    store: Store,
    key: Arc<MasterKey>,
    /// Who is asked, if anybody is.
    api: Option<Arc<AwsApi>>,
    attempts: Attempts,
    audit: Audit,
    organizations: Organizations,
    subscriptions: Subscriptions,
}

impl AwsMarketplace {
    pub(crate) fn new(
        (store, key): (Store, Arc<MasterKey>),
        config: Option<AwsMarketplaceConfig>,
        audit: Audit,
        organizations: Organizations,
        subscriptions: Subscriptions,
    ) -> Self {
        let api = config.map(|config| Arc::new(AwsApi::new(config)));
        let attempts = Attempts::new(store.clone(), key.clone());
        Self { store, key, api, attempts, audit, organizations, subscriptions }
    }

    /// Whether organizations can be billed through AWS Marketplace.
    pub fn is_there(&self) -> bool {
        self.api.is_some()
    }

    /// Remembers what the caller has subscribed to; the next organization that they
    /// make is billed so. Where AWS can be asked, it has to have said so: then the
    /// caller has taken the subscription at the page to which AWS led them.
    ///
    /// # Errors
    /// `invalid_field`, `already_registered`, `invalid_token`
    pub async fn register(
        &self,
        access: &PersonalAccess,
        registration: &MarketplaceRegistration,
    ) -> Result<()> {
        for (field, text) in [
            ("company_name", &registration.company_name),
            ("aws.customer_id", &registration.customer_id),
            ("aws.product_id", &registration.product_id),
            ("aws.account_id", &registration.account_id),
        ] {
            if let Some(problem) = name::problem(text) {
                return Err(Error::invalid_field(field, problem));
            }
        }
        let is_taken = match &self.api {
            None => {
                let (user, mut tx) = (&access.user, self.store.begin().await?);
                lock_user_in_tx(&self.store, &mut tx, user, &access.caller.credential).await?;
                let is_new = self.store.marketplace_register_in_tx(&mut tx, user, registration).await?;
                tx.commit().await?;
                !is_new
            }
            Some(_) => {
                let taken = self.store.subscription_taken(&access.user, &registration.account_id).await?;
                taken.ok_or_else(not_resolved)?
            }
        };
        match is_taken {
            false => Ok(()),
            true => Err(Error::Conflict {
                code: ErrorCode::AlreadyRegistered,
                public: "user is already registered with a marketplace".to_owned(),
            }),
        }
    }

    /// The marketplace that the organization is billed through.
    pub async fn of(&self, access: &Access) -> Result<Option<Marketplace>> {
        let id = &access.organization.id;
        match self.store.subscription_is_active(id).await? {
            true => Ok(Some(Marketplace::Aws)),
            false if self.api.is_some() => Ok(None),
            false => Ok(self.store.marketplace_of(id).await?),
        }
    }
}

fn not_resolved() -> Error {
    Error::invalid_field(
        "aws.account_id",
        "is of no subscription that you have taken: choose \"Set up your account\" at AWS Marketplace, and sign in at \
         the page that opens",
    )
}
