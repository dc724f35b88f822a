//! The gateway in front of a real PostgreSQL server, with real clients.

#![expect(clippy::unwrap_used, reason = "a helper of a test that fails is a failed test")]

mod addresses;
mod exchanges;
mod first_bytes;
mod gateway;
mod handed_over;
mod http;
mod lifetime;
mod pool;
mod postgres;
mod proxy;
mod raw;
mod routing;
mod sessions;
mod sign_in;
mod sleep;
mod strangers;
mod unread;
