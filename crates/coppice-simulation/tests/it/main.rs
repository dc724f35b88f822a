//! Histories that seeds decide.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a failed step fails its test")]

mod histories;
mod regressions;
mod scenes;
