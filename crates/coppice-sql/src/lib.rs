//! Statements in JSON, and their results in JSON.
//!
//! **Owns** what a request of SQL over HTTP says, its conversation with a
//! server, and how values look in the answer.
//! **Must not know** HTTP, sockets or branches: it is given a stream on which
//! somebody speaks the PostgreSQL protocol.
//! **Start reading** at [`Session`], then [`Request`], `parameter.rs`, `value.rs`.

mod array;
mod aside;
mod ending;
mod failure;
mod login;
mod output;
mod parameter;
mod request;
mod rows;
mod script;
mod session;
mod sign_in;
mod value;

pub use failure::{Failure, ServerError};
pub use login::Login;
pub use output::{Full, Memory, Output};
pub use request::{BadRequest, Isolation, Request, STATEMENTS_MAX, Statement, Transaction};
pub use script::ROWS_MAX;
pub use session::{Session, Shape, Wrong};
pub use sign_in::{SignedIn, sign_in};
