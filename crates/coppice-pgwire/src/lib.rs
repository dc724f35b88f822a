//! The PostgreSQL wire protocol.
//!
//! **Owns** startup packets, message frames, the messages of the sign-in,
//! SCRAM-SHA-256 for both sides, what a pool reads of a session's messages,
//! single statements, and the codes of errors.
//! **Must not know** sockets, time or branches: bytes in, bytes out.
//! **Start reading** at [`startup`], then [`frame`], [`backend`] and [`scram`];
//! [`session`] and [`statement`] for what comes after the first ReadyForQuery.

pub mod backend;
pub mod encode;
pub mod frame;
pub mod scram;
pub mod session;
pub mod sqlstate;
pub mod startup;
pub mod statement;

/// Bytes that are not the protocol. Nothing can be done but end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A length field is too small or over the limit.
    #[error("invalid length {length} of a {what}")]
    Length {
        /// The kind of packet.
        what: &'static str,
        /// What the length field says.
        length: i64,
    },
    /// The length is fine and the content is not.
    #[error("invalid {0}")]
    Malformed(&'static str),
    /// Not a protocol of major version 3.
    #[error("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2")]
    Version {
        /// The major version asked for.
        major: u16,
        /// The minor version asked for.
        minor: u16,
    },
}

/// Takes text up to a NUL byte off the front of `bytes`.
fn take_cstr<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = &bytes[..end];
    *bytes = &bytes[end + 1..];
    Some(text)
}
