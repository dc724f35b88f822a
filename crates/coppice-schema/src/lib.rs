//! What a database is made of, and the SQL that makes one what another one is.
//!
//! **Owns** what is asked of a server's catalogue, how objects are compared, and
//! in which order statements make, change and drop them.
//! **Must not know** servers, branches, HTTP: rows come in as texts.
//! **Start reading** at [`diff()`].

mod catalogue;
mod closure;
mod compare;
mod diff;
mod drops;
mod item;
mod normal;
mod order;
mod plan;
mod quote;
mod schema;
mod single;
mod statement;
mod write;

pub use catalogue::{SETTINGS, queries};
pub use diff::{Change, Diff, NotCompared, ObjectChange, diff};
pub use schema::{BadRow, Schema};
pub use statement::{STATEMENTS_BYTES_MAX, Statement};
