//! The whole control plane through thousands of histories, without servers.
//!
//! **Owns** a scripted engine on simulated machines, a way to the metastore on
//! which statements come late or never, a clock that stands still until it is
//! moved, and what must be true whatever happens.
//! **Must not know** how anything is decided: it runs the app as it is, over a
//! real metastore.
//! **Start reading** at [`play`], then `history.rs`.
//!
//! A history is a function of its seed. Each run of a control plane has a
//! runtime of its own, so that it can end at any await; between two events all
//! of them have come to rest. One event happens at a time: a statement is
//! carried out, a step of the engine goes on, time passes, somebody asks for
//! something, something ends. Chance comes from `coppice_core::random`, and the
//! clocks of the thread stand still between the events (`time.rs`).

#![cfg(debug_assertions)]

mod answers;
mod backend;
mod checks;
mod dice;
mod engine;
mod history;
mod link;
mod metastore;
mod mishaps;
mod owner;
mod process;
mod quiet;
mod requests;
mod scene;
mod time;
mod world;

pub use history::{Outcome, play};
pub use link::WAITS_WITH_OTHERS;
pub use metastore::Metastore;
pub use scene::Scene;
