//! Stories against the real executable, real PostgreSQL and real storage.

mod access;
mod api;
mod cli;
mod contract;
mod crashes;
mod drivers;
mod faults;
mod handover;
mod hosting;
mod http;
mod isolation;
mod metastore;
mod orphans;
mod proxy;
mod refusals;
mod schemathesis;
mod sdk;
mod servers;
mod setup;
mod sleep;
mod soak;
mod storm;
mod supervision;
mod tour;
mod unprivileged;
mod versions;
