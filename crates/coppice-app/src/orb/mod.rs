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

pub(crate) use api::Orb;
pub use config::OrbConfig;
pub use deliveries::OrbDelivery;
pub(crate) use look::LOOK;
