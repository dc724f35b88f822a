//! Why a statement has no result.

use std::io;

use bytes::Bytes;
use coppice_pgwire::WireError;
use coppice_pgwire::scram::ScramError;
use coppice_pgwire::sqlstate;
use coppice_pgwire::statement;

use crate::output::Full;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server, or the gateway in its place, said why.
    #[error("the server refused")]
    Server(ServerError),
    /// The answer would be longer than it may be.
    #[error("the result has more than {0} bytes")]
    TooLarge(usize),
    /// There is no memory left for the answer.
    #[error("there is no room for the result")]
    NoRoom,
    /// The statement took too long; it goes on until it is cancelled.
    #[error("canceling statement due to statement timeout")]
    TooLong,
    /// The statement wants a conversation of which HTTP knows nothing.
    #[error("COPY from or to the client is not available over HTTP")]
    Copy,
    /// The role's password takes too long to compute with.
    #[error(
        "the password of this role is hashed more than {0} times, which only clients of the PostgreSQL protocol do for \
         themselves; set it again with a smaller scram_iterations"
    )]
    Iterations(u32),
    /// A statement ended, or left, the transaction that it was in.
    #[error("a statement ended the transaction that it was carried out in")]
    TransactionEnded,
    /// The server was lost.
    #[error("the connection to the server was lost")]
    Lost(#[source] io::Error),
    /// The other side does not speak the protocol.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(&'static str),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Full> for Failure {
    fn from(_: Full) -> Self {
        Self::NoRoom
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Malformed(what) | WireError::Length { what, .. } => Self::Protocol(what),
            WireError::Version { .. } => Self::Protocol("version"),
        }
    }
}

impl From<ScramError> for Failure {
    fn from(_: ScramError) -> Self {
        Self::Protocol("sign-in")
    }
}

/// Longest error that is kept as it came. A statement says what its error says, and that takes memory until somebody
/// has read it.
const BODY_BYTES_MAX: usize = 16 << 10;
/// What is kept of each field of a longer one.
const FIELD_BYTES_MAX: usize = 2 << 10;
/// Stands for the rest.
const CUT: &str = "\u{2026}";

/// An ErrorResponse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError(Bytes);

impl ServerError {
    /// With the body of the message.
    pub(crate) fn new(body: Bytes) -> Self {
        // Copied, since a short body may be a slice of a large buffer.
        Self(if body.len() > BODY_BYTES_MAX { shortened(&body) } else { Bytes::copy_from_slice(&body) })
    }

    /// The body of the message.
    pub fn body(&self) -> &Bytes {
        &self.0
    }

    /// Its fields, by the names that drivers give them.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let fields = statement::error_fields(&self.0).unwrap_or_default();
        // What can be read of a broken one is nothing, so there is a message in any case.
        let named = fields.into_iter().filter_map(|(letter, text)| Some((name(letter)?, text)));
        let mut named: Vec<_> = named.collect();
        if !named.iter().any(|(name, _)| *name == "message") {
            named.push(("message", "the server reported an error".to_owned()));
        }
        named
    }

    /// The SQLSTATE.
    pub fn code(&self) -> String {
        let fields = self.fields();
        let code = fields.into_iter().find(|(name, _)| *name == "code");
        code.map_or_else(|| sqlstate::INTERNAL_ERROR.to_owned(), |(_, code)| code)
    }
}

/// The same with short fields, each once; nothing of one that is broken.
fn shortened(body: &[u8]) -> Bytes {
    let (mut short, mut known) = (vec![], vec![]);
    for (letter, text) in statement::error_fields(body).unwrap_or_default() {
        if name(letter).is_none() || known.contains(&letter) {
            continue;
        }
        known.push(letter);
        short.push(letter);
        let end = text.floor_char_boundary(FIELD_BYTES_MAX);
        short.extend_from_slice(&text.as_bytes()[..end]);
        if end < text.len() {
            short.extend_from_slice(CUT.as_bytes());
        }
        short.push(0);
    }
    short.push(0);
    short.into()
}

/// PostgreSQL's manual, section 54.8 ("Error and Notice Message Fields").
fn name(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'M' => "message",
        b'C' => "code",
        b'S' => "severity",
        b'D' => "detail",
        b'H' => "hint",
        b'P' => "position",
        b'p' => "internalPosition",
        b'q' => "internalQuery",
        b'W' => "where",
        b's' => "schema",
        b't' => "table",
        b'c' => "column",
        b'd' => "dataType",
        b'n' => "constraint",
        b'F' => "file",
        b'L' => "line",
        b'R' => "routine",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(fields: &[(u8, &str)]) -> Bytes {
        let mut body = vec![];
        for (letter, text) in fields {
            body.extend([&[*letter], text.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        body.into()
    }

    #[test]
    fn a_long_error_is_kept_as_the_beginning_of_each_field() {
        let short = body(&[(b'C', "P0001"), (b'M', "no")]);
        assert_eq!(ServerError::new(short.clone()).body(), &short);
        let long = "\u{e9}\u{1}x".repeat(1 << 20);
        let mut fields = vec![(b'S', "ERROR"), (b'C', "P0001"), (b'M', &*long), (b'D', &*long)];
        fields.extend([(b'M', &*long); 20]);
        fields.extend((1..=255).map(|letter| (letter, &*long)).take(300));
        let error = ServerError::new(body(&fields));
        assert!(error.body().len() < 20 * (FIELD_BYTES_MAX + 8), "{}", error.body().len());
        assert_eq!(error.code(), "P0001");
        let known = error.fields();
        let of = |wanted: &str| {
            let mut found = known.iter().filter(|(name, _)| *name == wanted);
            (found.next().expect("it is there").1.clone(), found.count())
        };
        let (message, others) = of("message");
        assert!(long.starts_with(message.strip_suffix(CUT).expect("it is cut")) && others == 0);
        let broken = vec![b'M'; BODY_BYTES_MAX + 1];
        assert_eq!(ServerError::new(broken.into()).fields().len(), 1, "what can be said of any");
    }
}
