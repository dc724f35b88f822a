//! Stage: sessions that clients share.
//!
//! A client whose endpoint is `pooler` has a session of a server only while it
//! needs one: from the first message of a transaction to its end. What it takes
//! for its own (prepared statements, what it has SET) goes with it from one
//! session to the next. What can't go with it (LISTEN, temporary tables, …) makes
//! it keep the session.
//!
//! A client without a session keeps no branch awake. Its next query wakes it.
//!
//! **Start reading** at `member.rs`; `exchange.rs` is what happens in a
//! transaction, `places.rs` who gets a session, `settings.rs` what goes with a client.

mod answers;
mod backend;
mod exchange;
mod idle;
mod member;
mod pending;
mod places;
mod pools;
mod prepared;
mod requests;
mod room;
mod settings;
mod statement;
mod unused;
mod watch;

pub(crate) use member::Member;
pub(crate) use pools::Pools;
