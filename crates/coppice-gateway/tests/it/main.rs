//! The gateway in front of a real PostgreSQL server, with real clients.

mod first_bytes;
mod gateway;
mod lifetime;
mod postgres;
mod routing;
mod sessions;
mod sign_in;
