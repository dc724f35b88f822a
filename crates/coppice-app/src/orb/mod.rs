//! Orb: it makes invoices of what is metered here, and has them charged by what is on file at Stripe.
//!
//! **Owns** what is asked of Orb, what is sent there, and what becomes of an
//! organization by its invoices and credits.
//! **Must not know** how requests reach us, or how an answer of the API looks.
//! **Start reading** at `look.rs`, which is what happens to an organization.
//!
//! As with Stripe, a delivery only marks a row (`deliveries.rs`); what is done
//! follows from what Orb answers when it is asked how things are now.

mod api;
mod config;
mod deliveries;
mod invoices;
mod look;
mod usage;

pub(crate) use api::OrbApi;
pub use config::OrbConfig;
pub use deliveries::OrbDelivery;
pub(crate) use look::LOOK;

use std::sync::Arc;

use coppice_store::Store;
use tokio::sync::Notify;

use crate::organizations::Deletions;
use crate::stripe::Stripe;

/// What organizations owe, where Orb makes the invoices.
#[derive(Clone)]
pub struct Orb {
    store: Store,
    /// Who is asked, if anybody is.
    api: Option<Arc<OrbApi>>,
    stripe: Stripe,
    deletions: Deletions,
    /// Says that Orb has told of something, or is to be told.
    nudge: Arc<Notify>,
}

impl Orb {
    pub(crate) fn new(
        store: Store,
        api: Option<Arc<OrbApi>>,
        stripe: Stripe,
        deletions: Deletions,
        nudge: Arc<Notify>,
    ) -> Self {
        Self { store, api, stripe, deletions, nudge }
    }

    /// To be notified when something is said of an organization.
    pub(crate) fn nudge(&self) -> &Arc<Notify> {
        &self.nudge
    }

    /// Whether it makes invoices here.
    pub fn is_there(&self) -> bool {
        self.api.is_some()
    }
}
