//! Schemas of real servers: what the statements make of one is the other.

mod cases;
mod hostile;
mod mutations;
mod server;
