//! Logical replication connections (PostgreSQL manual, section 55.4).
//!
//! A server that speaks the streaming replication protocol would also copy its
//! files, and send its log as it is written, to whoever may replicate. That is the
//! platform's, so what such a client asks for is read before it is passed on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use coppice_pgwire::encode;
use coppice_pgwire::sqlstate;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::{Connection, Duplex};
use crate::reason::Reason;
use crate::refusal::Refusal;

/// So much of a text is kept until it is clear what it asks for: its first words say that. Nobody counts how many
/// clients have begun one where the server says that it has room for them.
const BEGINNING_MAX: usize = 4 << 10;
/// Bytes that are read at once.
const READ_LENGTH: usize = 8 << 10;
/// A message's type and length.
const HEADER_LENGTH: usize = 5;

/// What the startup parameter `replication` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replication {
    /// An ordinary session.
    Off,
    /// The changes in one database.
    Logical,
}

impl Replication {
    /// Reads the parameter. As in PostgreSQL, a switch may be shortened as long as it is
    /// clear which is meant.
    pub(crate) fn parse(value: &str) -> Result<Self, Refusal> {
        let given = value.to_ascii_lowercase();
        let is_one_of = |words: [(&str, usize); 3], digit: &str| {
            given == digit
                || words.iter().any(|(word, shortest)| given.len() >= *shortest && word.starts_with(&given))
        };
        if value == "database" {
            return Ok(Self::Logical);
        }
        if is_one_of([("false", 1), ("no", 1), ("off", 2)], "0") {
            return Ok(Self::Off);
        }
        if is_one_of([("true", 1), ("yes", 1), ("on", 2)], "1") {
            return Err(physical());
        }
        let message = format!("invalid value for parameter \"replication\": \"{value}\"");
        Err(Refusal::new(Reason::Unsupported, sqlstate::INVALID_PARAMETER_VALUE, message)
            .with_hint("Valid values are: \"false\", 0, \"database\"."))
    }
}

fn physical() -> Refusal {
    Refusal::new(
        Reason::Unsupported,
        sqlstate::FEATURE_NOT_SUPPORTED,
        "physical replication is not available",
    )
    .with_hint(
        "Receive changes instead (replication=database). Who runs the platform can export the branch's backup.",
    )
}

/// A client's stream that ends at the first thing that only the platform may ask for,
/// and says so to the client as its last words.
pub(crate) struct LogicalOnly<S> {
    stream: S,
    received: BytesMut,
    /// So much of what was received may be passed on.
    passable: usize,
    /// So much of a message that is not read is still to come.
    rest: usize,
    refused: Option<Refusal>,
    last_words: BytesMut,
}

impl<S: Duplex> LogicalOnly<S> {
    /// Reads what this client says from here on.
    pub(crate) fn of(client: Connection<S>) -> Connection<Self> {
        let Connection { stream, received, outgoing } = client;
        let last_words = BytesMut::new();
        let mut stream = Self { stream, received, passable: 0, rest: 0, refused: None, last_words };
        stream.look();
        Connection { stream, received: BytesMut::new(), outgoing }
    }

    fn look(&mut self) {
        if let Err(refusal) = self.look_further() {
            encode::fatal_error(&mut self.last_words, &refusal.report());
            self.refused = Some(refusal);
        }
    }

    /// Looks at messages that are new, as far as they are there.
    fn look_further(&mut self) -> Result<(), Refusal> {
        loop {
            let new = &self.received[self.passable..];
            let unread = self.rest.min(new.len());
            self.passable += unread;
            self.rest -= unread;
            let new = &new[unread..];
            let Some([tag, length @ ..]) = new.first_chunk::<HEADER_LENGTH>() else { return Ok(()) };
            let length = u32::from_be_bytes(*length) as usize;
            let bad = || {
                Refusal::new(
                    Reason::Protocol,
                    sqlstate::PROTOCOL_VIOLATION,
                    format!("invalid message length {length}"),
                )
            };
            let whole = length.checked_add(1).filter(|_| length >= 4).ok_or_else(bad)?;
            if *tag != b'Q' {
                self.rest = whole;
                continue;
            }
            let is_all = new.len() >= whole;
            match is_physical(&new[HEADER_LENGTH..whole.min(new.len())], is_all) {
                Some(true) => return Err(physical()),
                Some(false) => self.rest = whole,
                None if new.len() < BEGINNING_MAX => return Ok(()),
                None => {
                    let message =
                        format!("a replication command says within {BEGINNING_MAX} bytes what it is for");
                    return Err(Refusal::new(Reason::Unsupported, sqlstate::PROGRAM_LIMIT_EXCEEDED, message));
                }
            }
        }
    }
}

impl<S: Duplex> AsyncRead for LogicalOnly<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.passable > 0 {
                let length = this.passable.min(buffer.remaining());
                buffer.put_slice(&this.received[..length]);
                this.received.advance(length);
                this.passable -= length;
                return Poll::Ready(Ok(()));
            }
            if this.refused.is_some() {
                return Poll::Ready(Ok(()));
            }
            let mut bytes = [0; READ_LENGTH];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.received.extend_from_slice(read.filled());
            this.look();
        }
    }
}

impl<S: Duplex> AsyncWrite for LogicalOnly<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.last_words.is_empty() {
            match ready!(Pin::new(&mut this.stream).poll_write(context, &this.last_words))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => this.last_words.advance(written),
            }
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

/// Whether a text is a command that has to do with files or with the log as it is; none where more of it has to come
/// before that is clear. The first word tells a command from SQL.
fn is_physical(query: &[u8], is_all: bool) -> Option<bool> {
    let end = query.iter().position(|byte| *byte == 0);
    let mut words = Words { text: &query[..end.unwrap_or(query.len())], is_all: is_all || end.is_some() };
    match words.next()?.as_slice() {
        b"BASE_BACKUP" | b"UPLOAD_MANIFEST" | b"TIMELINE_HISTORY" | b"READ_REPLICATION_SLOT" => Some(true),
        b"START_REPLICATION" => {
            let (_slot, _name) = (words.next()?, words.next()?);
            Some(words.next()? != b"LOGICAL")
        }
        b"CREATE_REPLICATION_SLOT" => {
            let (_name, mut kind) = (words.next()?, words.next()?);
            if kind == b"TEMPORARY" {
                kind = words.next()?;
            }
            Some(kind != b"LOGICAL")
        }
        _ => Some(false),
    }
}

/// Words of a replication command, as PostgreSQL takes them apart. One in quotes keeps
/// them, so that it is no keyword.
struct Words<'a> {
    text: &'a [u8],
    /// Whether nothing more comes.
    is_all: bool,
}

impl Words<'_> {
    /// In capitals; an empty one where there is no other, none where it may still go on.
    fn next(&mut self) -> Option<Vec<u8>> {
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
        let begin = self.text.iter().position(|byte| !is_blank(byte)).unwrap_or(self.text.len());
        let text = &self.text[begin..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80 || b"_$".contains(byte);
        let length = match text.first() {
            None => 0,
            Some(b'"') => text[1..].iter().position(|byte| *byte == b'"').map_or(text.len(), |end| end + 2),
            Some(first) if is_part(first) => text.iter().take_while(|byte| is_part(byte)).count(),
            Some(_) => 1,
        };
        let (word, rest) = text.split_at(length);
        self.text = rest;
        (self.is_all || !rest.is_empty()).then(|| word.to_ascii_uppercase())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("is short").to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    fn query(text: &str) -> Vec<u8> {
        message(b'Q', &[text.as_bytes(), &[0]].concat())
    }

    /// The far end of a client, and what reads it.
    fn client() -> (DuplexStream, LogicalOnly<DuplexStream>) {
        let (far, near) = duplex(4 << 20);
        (far, LogicalOnly::of(Connection::new(near)).stream)
    }

    #[test]
    fn commands_for_changes_pass_and_those_for_files_and_the_log_do_not() {
        for passes in [
            "IDENTIFY_SYSTEM",
            "SHOW wal_level",
            "CREATE_REPLICATION_SLOT \"s\" LOGICAL \"pgoutput\" (SNAPSHOT 'nothing')",
            "create_replication_slot s temporary logical test_decoding",
            "START_REPLICATION SLOT \"s\" LOGICAL 0/0 (\"proto_version\" '1')",
            "START_REPLICATION SLOT\"s\"LOGICAL 0/0",
            "DROP_REPLICATION_SLOT s WAIT",
            "SELECT 'BASE_BACKUP'",
            "-- BASE_BACKUP",
            "\"base_backup\"",
            "",
        ] {
            assert_eq!(is_physical(&[passes.as_bytes(), &[0]].concat(), true), Some(false), "{passes}");
        }
        for refused in [
            "BASE_BACKUP",
            " \t\n\x0b\x0c\rbase_Backup (LABEL 'x')",
            "BASE_BACKUP(WAL)",
            "BASE_BACKUP;",
            "UPLOAD_MANIFEST",
            "TIMELINE_HISTORY 1",
            "READ_REPLICATION_SLOT s",
            "START_REPLICATION 0/0",
            "START_REPLICATION SLOT s PHYSICAL 0/0",
            "START_REPLICATION SLOT \"x LOGICAL\" 0/0",
            "START_REPLICATION SLOT s \"LOGICAL\" 0/0",
            "START_REPLICATION",
            "CREATE_REPLICATION_SLOT s PHYSICAL",
            "CREATE_REPLICATION_SLOT \"s LOGICAL\" PHYSICAL",
            "CREATE_REPLICATION_SLOT \"TEMPORARY\"\"LOGICAL\" PHYSICAL",
            "CREATE_REPLICATION_SLOT\"s\"TEMPORARY PHYSICAL RESERVE_WAL",
            "CREATE_REPLICATION_SLOT",
        ] {
            assert_eq!(is_physical(&[refused.as_bytes(), &[0]].concat(), true), Some(true), "{refused}");
            let sql = [b"x ", refused.as_bytes()].concat();
            assert_eq!(is_physical(&sql, false), Some(false), "SQL: {refused}");
        }
    }

    #[test]
    fn the_parameter_is_read_as_postgresql_reads_it() {
        let code = |value| Replication::parse(value).map_err(|refusal| refusal.code);
        for off in ["false", "F", "no", "n", "off", "of", "0"] {
            assert_eq!(code(off), Ok(Replication::Off), "{off}");
        }
        for on in ["true", "t", "YES", "on", "1"] {
            assert_eq!(code(on), Err("0A000"), "{on}");
        }
        for neither in ["", "o", "Database", "2", "falsee"] {
            assert_eq!(code(neither), Err("22023"), "{neither}");
        }
        assert_eq!(code("database"), Ok(Replication::Logical));
    }

    #[tokio::test]
    async fn a_client_that_asks_for_files_is_told_no_after_what_it_was_answered() {
        let (mut far, mut near) = client();
        let first = [query("IDENTIFY_SYSTEM"), message(b'd', &[7; 100_000])].concat();
        far.write_all(&[&first[..], &query("BASE_BACKUP"), &query("SELECT 1")].concat()).await.unwrap();
        let mut passed = vec![];
        near.read_to_end(&mut passed).await.unwrap();
        assert!(passed == first, "{} of {} bytes", passed.len(), first.len());
        near.write_all(b"answer").await.unwrap();
        near.shutdown().await.unwrap();
        drop(near);
        let mut told = vec![];
        far.read_to_end(&mut told).await.unwrap();
        assert!(told.starts_with(b"answerE"), "{}", String::from_utf8_lossy(&told));
        assert!(String::from_utf8_lossy(&told).contains("physical replication is not available"));
    }

    /// A server that says it has room for any number of clients would have all of them kept.
    #[tokio::test]
    async fn of_a_text_no_more_is_kept_than_its_first_words() {
        let (mut far, mut near) = client();
        let length = (1_u32 << 20).to_be_bytes();
        let begun = [&b"Q"[..], &length, b"SELECT '", &[b'x'; 900_000]].concat();
        far.write_all(&begun).await.unwrap();
        let mut passed = vec![0; begun.len()];
        near.read_exact(&mut passed).await.unwrap();
        assert!(passed == begun, "SQL passes as it comes");
        assert!(near.received.capacity() <= 4 * READ_LENGTH, "{}", near.received.capacity());
    }

    #[tokio::test]
    async fn a_text_that_does_not_say_what_it_is_for_ends_it() {
        let (mut far, mut near) = client();
        let length = (1_u32 << 20).to_be_bytes();
        let begun = [&b"Q"[..], &length, b"START_REPLICATION SLOT \"", &[b'x'; BEGINNING_MAX]].concat();
        far.write_all(&begun).await.unwrap();
        assert_eq!(near.read(&mut [0; 100]).await.unwrap(), 0);
        assert_eq!(near.refused.map(|refusal| refusal.code), Some("54000"));
    }

    proptest! {
        #[test]
        fn whatever_the_pieces_the_same_bytes_pass(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..8),
            cuts in proptest::collection::vec(1_usize..50, 1..8),
        ) {
            let tags = b"QdcXPf".iter().cycle();
            let sent: Vec<u8> = bodies.iter().zip(tags).flat_map(|(body, tag)| message(*tag, body)).collect();
            let (_, mut near) = client();
            let mut passed = vec![];
            let (mut left, mut cuts) = (&sent[..], cuts.iter().cycle());
            while let Some(cut) = cuts.next().filter(|_| !left.is_empty()) {
                let (piece, rest) = left.split_at(left.len().min(*cut));
                left = rest;
                near.received.extend_from_slice(piece);
                near.look();
                passed.extend_from_slice(&near.received.split_to(near.passable));
                near.passable = 0;
            }
            prop_assert!(near.refused.is_some() || passed == sent);
            prop_assert!(sent.starts_with(&passed));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = is_physical(&text, true);
        }

        #[test]
        fn what_is_clear_of_a_beginning_is_so_of_the_whole(
            text in "(BASE_BACKUP|START_REPLICATION|CREATE_REPLICATION_SLOT|x)?[ \"a]{0,3}(SLOT|TEMPORARY)?[ \"a]{0,4}(LOGICAL|PHYSICAL)?[ x\"]{0,2}",
            cut in 0_usize..60,
        ) {
            let (text, whole) = (text.as_bytes(), is_physical(text.as_bytes(), true));
            let begun = is_physical(&text[..text.len().min(cut)], false);
            prop_assert!(whole.is_some() && (begun.is_none() || begun == whole), "{begun:?} {whole:?}");
        }
    }
}
