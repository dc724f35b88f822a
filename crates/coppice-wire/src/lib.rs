//! Bodies of the HTTP API, shared by the server, its OpenAPI document, the
//! command line and tests.
//!
//! **Owns** names, shapes and bounds on the wire.
//! **Must not know** tables, processes or rules.
//! **Start reading** at [`Branch`].
//!
//! Bounds are in the `schema` attributes. The OpenAPI document shows them, and
//! the server checks what is sent by them, so that each complaint names its
//! field. Texts that have to be of some form name it as their `format`; the
//! server knows the names, and the document shows only those that everybody knows.

mod activity;
mod audit;
mod backups;
mod billing;
mod branch_credentials;
mod branch_requests;
mod branches;
mod budgets;
mod configuration;
mod credential;
mod diff;
mod error;
mod events;
mod github;
mod history;
mod keys;
mod logs;
mod marketplace;
mod metrics;
mod organizations;
mod people;
mod projects;
mod regions;
mod reset;
mod secrets;
mod statements;
mod time;
mod trash;
mod tree;
mod upgrade;
mod usage;
mod vercel;
mod webhooks;

pub use activity::*;
pub use audit::*;
pub use backups::*;
pub use billing::*;
pub use branch_credentials::*;
pub use branch_requests::*;
pub use branches::*;
pub use budgets::*;
pub use configuration::*;
pub use credential::*;
pub use diff::*;
pub use error::*;
pub use events::*;
pub use github::*;
pub use history::*;
pub use keys::*;
pub use logs::*;
pub use marketplace::*;
pub use metrics::*;
pub use organizations::*;
pub use people::*;
pub use projects::*;
pub use regions::*;
pub use reset::*;
pub use secrets::*;
pub use statements::*;
pub use time::*;
pub use trash::*;
pub use tree::*;
pub use upgrade::*;
pub use usage::*;
pub use vercel::*;
pub use webhooks::*;
