//! A client of a pool that has no session.

use std::io;

use bytes::{Buf as _, BytesMut};
use coppice_pgwire::encode;
use coppice_pgwire::session::{self, HEADER_LENGTH, Header, Subject};
use tokio::io::AsyncReadExt as _;

use crate::connection::{Connection, Duplex};
use crate::pool::statement::ClientStatements;
use crate::refusal::{End, Refusal};

/// Room for the first bytes of a client that has said nothing yet.
const ROOM: usize = 2 << 10;
/// A client of which so much has come gets a session, for which there is room:
/// many that wait in the middle of a message would take much memory together.
const RECEIVED_MAX: usize = 16 << 10;

/// What a client without a session wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Session,
    Leave,
}

/// What to do with a message.
enum Step {
    /// It was answered here.
    Done(usize),
    More,
    Wish(Wish),
}

/// Waits until a client needs a session. What needs none is answered here: a
/// driver that tidies its statements up wakes no branch.
pub(crate) async fn wait<S: Duplex>(
    connection: &mut Connection<S>,
    statements: &mut ClientStatements,
) -> Result<Wish, End> {
    loop {
        match step(&connection.received, statements, &mut connection.outgoing)? {
            Step::Done(length) => connection.received.advance(length),
            Step::Wish(wish) => {
                connection.flush().await?;
                return Ok(wish);
            }
            Step::More => {
                connection.flush().await?;
                if connection.received.is_empty() {
                    // Many clients wait here for long.
                    connection.received = BytesMut::with_capacity(ROOM);
                    connection.outgoing = BytesMut::new();
                }
                if connection.stream.read_buf(&mut connection.received).await? == 0 {
                    return Ok(Wish::Leave);
                }
            }
        }
    }
}

fn step(received: &[u8], statements: &mut ClientStatements, outgoing: &mut BytesMut) -> Result<Step, End> {
    let Some(header) = Header::decode(received)? else { return Ok(Step::More) };
    if header.tag == b'X' {
        return Ok(Step::Wish(Wish::Leave));
    }
    if received.len() < header.length().min(RECEIVED_MAX) {
        return Ok(Step::More);
    }
    let Some(body) = received.get(HEADER_LENGTH..header.length()) else {
        return Ok(Step::Wish(Wish::Session));
    };
    match header.tag {
        b'C' => match session::subject(body)? {
            Subject::Statement(name) if !name.is_empty() => {
                statements.remove(name);
                encode::empty(outgoing, b'3');
            }
            _ => return Ok(Step::Wish(Wish::Session)),
        },
        b'H' => {}
        b'S' => encode::ready_for_query(outgoing),
        _ => return Ok(Step::Wish(Wish::Session)),
    }
    Ok(Step::Done(header.length()))
}

/// Tells a client that gets no session why, and skips what it has asked for. It
/// may ask again.
pub(crate) async fn excuse<S: Duplex>(connection: &mut Connection<S>, refusal: &Refusal) -> Result<(), End> {
    encode::error(&mut connection.outgoing, &refusal.report());
    connection.flush().await?;
    loop {
        let header = loop {
            match Header::decode(&connection.received)? {
                Some(header) => break header,
                None => receive(connection).await?,
            }
        };
        if header.tag == b'X' {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut left = header.length();
        while left > 0 {
            if connection.received.is_empty() {
                receive(connection).await?;
            }
            let length = left.min(connection.received.len());
            connection.received.advance(length);
            left -= length;
        }
        if matches!(header.tag, b'Q' | b'F' | b'S') {
            encode::ready_for_query(&mut connection.outgoing);
            return Ok(connection.flush().await?);
        }
    }
}

async fn receive<S: Duplex>(connection: &mut Connection<S>) -> Result<(), End> {
    match connection.stream.read_buf(&mut connection.received).await? {
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_in_the_middle_of_a_long_message_gets_a_session_before_it_costs_much() {
        let header = |tag: u8, length: u32| [&[tag][..], &length.to_be_bytes()].concat();
        let begun = |tag: u8, length: usize| {
            let message = [header(tag, 200_000), vec![b'a'; length - HEADER_LENGTH]].concat();
            step(&message, &mut ClientStatements::default(), &mut BytesMut::new())
        };
        for tag in *b"PQC" {
            assert!(matches!(begun(tag, RECEIVED_MAX - 1), Ok(Step::More)), "{tag}");
            assert!(matches!(begun(tag, RECEIVED_MAX), Ok(Step::Wish(Wish::Session))), "{tag}");
        }
    }
}
