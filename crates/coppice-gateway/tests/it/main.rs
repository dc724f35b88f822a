//! The gateway in front of a real PostgreSQL server, with real clients.

#![expect(clippy::unwrap_used, reason = "a helper of a test that fails is a failed test")]

mod first_bytes;
mod gateway;
mod lifetime;
mod postgres;
mod routing;
mod sessions;
mod sign_in;
mod sleep;
