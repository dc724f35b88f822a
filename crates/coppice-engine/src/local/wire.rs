//! What a server may tell the platform about its answers.
//!
//! `tokio-postgres` asks a server about every type that it does not know, and
//! about what that is made of, for as long as there is more to ask: a server that
//! names a type made of itself would end the whole process. The platform asks for
//! nothing but types that PostgreSQL brings, so a description of anything else
//! ends the connection before the library sees it.
//!
//! It also takes for granted that a row has the columns that were described, and
//! panics when one is missing. So a row with others ends the connection, too;
//! whoever asks has the answer described right before its rows.
//!
//! And it keeps the parameters that a server reports for as long as the session
//! lives. So one that reports more of them than any server has ends it.

use std::collections::HashSet;
use std::io;

use tokio_postgres::types::Type;

/// Longest description, and longest report of a parameter; a column takes less than a hundred bytes.
const DESCRIPTION_LENGTH_MAX: usize = 16 << 10;
/// Parameters that are reported in a session; PostgreSQL has some fifteen of those.
const REPORTED_MAX: usize = 64;
/// Type byte and length (PostgreSQL manual, section 55.1.1).
const HEADER_LENGTH: usize = 5;

/// Follows the messages of a server, however they are cut into reads.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    header: Vec<u8>,
    /// Bytes of the message that are still to come.
    left: usize,
    /// What came so far of a message that is looked at, as far as it is.
    body: Vec<u8>,
    /// How many columns the last description had.
    columns: usize,
    /// Names of the parameters that were reported.
    reported: HashSet<Box<[u8]>>,
}

impl Descriptions {
    /// Looks at more bytes of the server; returns how many rows ended in them.
    ///
    /// # Errors
    /// When a message is malformed, or describes a type that PostgreSQL does not bring.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        let mut rows = 0;
        while !bytes.is_empty() {
            if self.header.len() < HEADER_LENGTH {
                let (more, rest) = bytes.split_at(bytes.len().min(HEADER_LENGTH - self.header.len()));
                self.header.extend_from_slice(more);
                bytes = rest;
                if self.header.len() < HEADER_LENGTH {
                    return Ok(rows);
                }
                self.left = self.body_length()?;
            }
            let (more, rest) = bytes.split_at(bytes.len().min(self.left));
            let wanted = self.looked_at().saturating_sub(self.body.len());
            self.body.extend_from_slice(&more[..more.len().min(wanted)]);
            self.left -= more.len();
            bytes = rest;
            if self.left == 0 {
                self.check()?;
                rows += usize::from(self.header.first() == Some(&b'D'));
                self.header.clear();
                self.body.clear();
            }
        }
        Ok(rows)
    }

    fn is_description(&self) -> bool {
        matches!(self.header.first(), Some(b'T' | b't' | b'S'))
    }

    /// How much of a message is looked at: a description or a report, or the
    /// number of columns of a row.
    fn looked_at(&self) -> usize {
        match self.header.first() {
            Some(b'T' | b't' | b'S') => DESCRIPTION_LENGTH_MAX,
            Some(b'D') => 2,
            _ => 0,
        }
    }

    fn body_length(&self) -> io::Result<usize> {
        let length = self.header.get(1..).and_then(|length| length.try_into().ok()).map(u32::from_be_bytes);
        let length = length.and_then(|length| usize::try_from(length).ok()?.checked_sub(4));
        match length {
            Some(length) if !self.is_description() || length <= DESCRIPTION_LENGTH_MAX => Ok(length),
            _ => Err(io::Error::other("the server sent a message of an impossible length")),
        }
    }

    fn check(&mut self) -> io::Result<()> {
        let types = match self.header.first() {
            Some(b'T') => column_types(&self.body).inspect(|types| self.columns = types.len()),
            Some(b't') => parameter_types(&self.body),
            Some(b'D') => return self.check_row(),
            Some(b'S') => return self.check_report(),
            _ => return Ok(()),
        };
        let types = types.ok_or_else(|| io::Error::other("the server sent a malformed description"))?;
        match types.into_iter().find(|oid| Type::from_oid(*oid).is_none()) {
            None => Ok(()),
            Some(oid) => Err(io::Error::other(format!("the server answers with a type of its own ({oid})"))),
        }
    }
}

impl Descriptions {
    fn check_report(&mut self) -> io::Result<()> {
        let name = self.body.split(|byte| *byte == 0).next().unwrap_or_default();
        if self.reported.contains(name) {
            return Ok(());
        }
        if self.reported.len() == REPORTED_MAX {
            return Err(io::Error::other("the server reports more parameters than any server has"));
        }
        self.reported.insert(name.into());
        Ok(())
    }

    fn check_row(&self) -> io::Result<()> {
        let columns = number(&mut self.body.as_slice()).map(u16::from_be_bytes).map(usize::from);
        if columns == Some(self.columns) {
            return Ok(());
        }
        Err(io::Error::other("the server sent a row with other columns than it had said"))
    }
}

fn number<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (number, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*number)
}

/// Of a ParameterDescription.
fn parameter_types(mut body: &[u8]) -> Option<Vec<u32>> {
    let count = u16::from_be_bytes(number(&mut body)?);
    (0..count).map(|_| number(&mut body).map(u32::from_be_bytes)).collect()
}

/// Of a RowDescription: name, table, column, type, size, modifier, format.
fn column_types(mut body: &[u8]) -> Option<Vec<u32>> {
    let count = u16::from_be_bytes(number(&mut body)?);
    let mut column = || {
        let end = body.iter().position(|byte| *byte == 0)?;
        body = body.get(end + 1..)?;
        number::<6>(&mut body)?;
        let oid = number(&mut body).map(u32::from_be_bytes)?;
        number::<8>(&mut body)?;
        Some(oid)
    };
    (0..count).map(|_| column()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    fn columns(types: &[u32]) -> Vec<u8> {
        let mut body = u16::try_from(types.len()).unwrap().to_be_bytes().to_vec();
        for oid in types {
            body.extend(b"name\0\0\0\0\x01\0\x02");
            body.extend(oid.to_be_bytes());
            body.extend([0; 8]);
        }
        message(b'T', &body)
    }

    fn parameters(oid: u32) -> Vec<u8> {
        message(b't', &[&1_u16.to_be_bytes()[..], &oid.to_be_bytes()].concat())
    }

    fn row(columns: u16) -> Vec<u8> {
        message(b'D', &[&columns.to_be_bytes()[..], &[1; 3000]].concat())
    }

    #[test]
    fn a_row_with_other_columns_than_described_ends_the_connection() {
        for answer in [vec![columns(&[25, 20]), row(1)], vec![columns(&[25]), columns(&[25, 20]), row(1)]] {
            let bytes = answer.concat();
            for size in [1, 7, bytes.len()] {
                let mut followed = Descriptions::default();
                assert!(bytes.chunks(size).any(|chunk| followed.follow(chunk).is_err()), "{size}");
            }
        }
        assert!(Descriptions::default().follow(&row(1)).is_err(), "nothing was described");
        assert!(Descriptions::default().follow(&message(b'D', &[0])).is_err());
    }

    #[test]
    fn types_that_postgresql_brings_are_understood_however_they_arrive() {
        let answer = [columns(&[25, 20]), row(2), row(2), message(b'Z', b"I"), parameters(25)].concat();
        for size in [1, 2, 7, 64, answer.len()] {
            let mut followed = Descriptions::default();
            assert!(answer.chunks(size).all(|chunk| followed.follow(chunk).is_ok()), "{size}");
        }
    }

    #[test]
    fn a_type_of_the_servers_own_ends_the_connection() {
        for description in [columns(&[25, 16_400]), parameters(16_400), columns(&[u32::MAX])] {
            let mut followed = Descriptions::default();
            assert!(description.chunks(3).any(|chunk| followed.follow(chunk).is_err()), "{description:?}");
        }
    }

    #[test]
    fn a_server_reports_so_many_parameters_in_a_session_and_each_as_often_as_it_likes() {
        let report = |name: usize, value: usize| {
            message(b'S', &[name.to_string().as_bytes(), b"\0", &vec![b'v'; value], b"\0"].concat())
        };
        let mut followed = Descriptions::default();
        for round in 0..10 {
            assert!((0..REPORTED_MAX).all(|name| followed.follow(&report(name, round)).is_ok()));
        }
        assert!(followed.follow(&report(REPORTED_MAX, 0)).is_err());
        assert!(Descriptions::default().follow(&report(0, DESCRIPTION_LENGTH_MAX)).is_err(), "too long");
    }

    #[test]
    fn a_malformed_message_ends_the_connection() {
        let cut = message(b'T', &[0, 9, b'x']);
        let endless = [&b"T"[..], &u32::MAX.to_be_bytes()].concat();
        let short = [&b"Z"[..], &3_u32.to_be_bytes()].concat();
        for bytes in [cut, endless, short] {
            assert!(Descriptions::default().follow(&bytes).is_err(), "{bytes:?}");
        }
    }
}
