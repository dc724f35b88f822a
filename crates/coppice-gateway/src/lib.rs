//! Client connections over the PostgreSQL wire protocol.
//!
//! **Owns** every stage between a client's first byte and the server session
//! it ends in.
//! **Must not know** the metastore, nor how branches are brought up: it asks
//! [`Branches`].
//! **Start reading** at [`Gateway`], then the stages in connection order.

mod branches;
mod certificate;
mod config;
mod gateway;

pub use branches::{Branches, Route};
pub use certificate::{Certificate, CertificateError};
pub use config::{GatewayConfig, Plaintext};
pub use gateway::Gateway;
