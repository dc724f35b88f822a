//! Client connections over the PostgreSQL wire protocol.
//!
//! **Owns** every stage between a client's first byte and the server session
//! it ends in.
//! **Must not know** the metastore, nor how branches are brought up: it asks
//! [`Branches`].
//! **Start reading** at [`Gateway`], then `client.rs`, which walks through the
//! stages (`entrance.rs` for clients that come by HTTP): places, proxy, negotiate, destination, lookup, waiting, authenticate,
//! address filter, reach (wake, server), then relay, or `pool/` for sessions that
//! clients share.

mod authenticate;
mod branches;
mod cancel;
mod certificate;
mod client;
mod config;
mod connection;
mod destination;
mod entrance;
mod failures;
mod gateway;
mod handshakes;
mod http;
mod keys;
mod lanes;
mod lookup;
mod metrics;
mod negotiate;
mod places;
mod pool;
mod proxy;
mod reach;
mod reason;
mod refusal;
mod relay;
mod replication;
mod server;
mod sessions;
mod shares;
mod usage;
mod visit;
mod waiting;

pub use branches::{ActingAs, Branches, ClientInfo, Route};
pub use certificate::{Certificate, CertificateError, CertificateFiles};
pub use config::{ConnectionLimits, GatewayConfig, Plaintext};
pub use coppice_pgwire::startup::CancelKey;
pub use entrance::{Entrance, Visitor};
pub use gateway::{Gateway, Occupancy, Traffic, end_untaken_after, keep_waiting, tune};
pub use reason::Reason;
pub use sessions::{Census, Hold, OpenSession, Sessions};
pub use shares::{NoneLeft, Shares};
