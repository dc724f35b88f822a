//! Stripe: what organizations pay with is on file there.
//!
//! **Owns** what is asked of Stripe, and what becomes of an organization when
//! its card comes or goes.
//! **Must not know** how requests reach us, or how an answer of the API looks.
//! **Start reading** at `look.rs`, which is what happens to a customer.
//!
//! Stripe sends deliveries in no order, some twice. So a delivery only marks a
//! row (`deliveries.rs`); what is done follows from what Stripe answers when it
//! is asked how things are now. Each customer is looked at once a day besides.

mod api;
mod config;
mod customers;
mod deliveries;
mod look;

use api::StripeApi;
pub use config::StripeConfig;
pub use customers::BillingPage;
pub use deliveries::StripeDelivery;
pub(crate) use look::LOOK;

use std::sync::Arc;

use coppice_store::Store;
use tokio::sync::Notify;

use crate::attempts::Attempts;
use crate::secrets::MasterKey;

/// What organizations pay with.
#[derive(Clone)]
pub struct Stripe {
    store: Store,
    attempts: Attempts,
    /// Who is asked, if anybody is.
    api: Option<Arc<StripeApi>>,
    /// See [`crate::AppConfig::public_url`].
    public_url: String,
    /// Says that Stripe has told of something.
    nudge: Arc<Notify>,
    /// Says that there is a customer, to whoever makes invoices for it.
    new_customer: Arc<Notify>,
}

impl Stripe {
    pub(crate) fn new(
        (store, key): (Store, Arc<MasterKey>),
        config: Option<StripeConfig>,
        public_url: String,
        new_customer: Arc<Notify>,
    ) -> Self {
        let api = config.map(|config| Arc::new(StripeApi::new(config)));
        let attempts = Attempts::new(store.clone(), key);
        Self { store, attempts, api, public_url, nudge: Arc::default(), new_customer }
    }

    /// To be notified when something is said of a customer.
    pub(crate) fn nudge(&self) -> &Arc<Notify> {
        &self.nudge
    }
}
