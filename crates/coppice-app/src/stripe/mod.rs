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

pub(crate) use api::Stripe;
pub use config::StripeConfig;
pub use customers::BillingPage;
pub use deliveries::StripeDelivery;
pub(crate) use look::LOOK;
