//! Messages of a session, as far as whoever shares it between clients has to
//! understand them.

use crate::{WireError, take_cstr};

/// Length of a message's type and length field.
pub const HEADER_LENGTH: usize = 5;
/// Longest message, its length field included: less than a server ever takes
/// or makes (`PQ_LARGE_MESSAGE_LIMIT` is 1 GB).
const LENGTH_MAX: u32 = i32::MAX as u32;

/// A message's type, and how much follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its type.
    pub tag: u8,
    /// Bytes after the length field.
    pub body_length: usize,
}

impl Header {
    /// Reads the beginning of a message; none until it is there.
    ///
    /// # Errors
    /// When no message can be that long.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let Some([tag, length @ ..]) = bytes.first_chunk::<HEADER_LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length);
        if !(4..=LENGTH_MAX).contains(&length) {
            return Err(WireError::Length { what: "message", length: i64::from(length) });
        }
        Ok(Some(Self { tag: *tag, body_length: length as usize - 4 }))
    }

    /// Length of the whole message.
    pub fn length(self) -> usize {
        HEADER_LENGTH + self.body_length
    }
}

/// The body of a Parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// Of the statement; empty for the unnamed one.
    pub name: &'a [u8],
    /// Text and types, as the message has them.
    pub rest: &'a [u8],
    /// The text alone.
    pub text: &'a [u8],
}

/// Reads the body of a Parse.
///
/// # Errors
/// When it is cut short.
pub fn parse(body: &[u8]) -> Result<Parse<'_>, WireError> {
    let malformed = WireError::Malformed("parse message");
    let mut rest = body;
    let name = take_cstr(&mut rest).ok_or(malformed)?;
    let text = take_cstr(&mut { rest }).ok_or(malformed)?;
    Ok(Parse { name, rest, text })
}

/// The beginning of the body of a Bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// The portal to make.
    pub portal: &'a [u8],
    /// The statement that it is made of.
    pub statement: &'a [u8],
}

impl Bind<'_> {
    /// Bytes of the body that the two names take.
    pub fn length(&self) -> usize {
        self.portal.len() + self.statement.len() + 2
    }
}

/// Reads the beginning of the body of a Bind, of which more may follow.
///
/// # Errors
/// When the names are not there.
pub fn bind(body: &[u8]) -> Result<Bind<'_>, WireError> {
    let malformed = WireError::Malformed("bind message");
    let mut rest = body;
    let portal = take_cstr(&mut rest).ok_or(malformed)?;
    let statement = take_cstr(&mut rest).ok_or(malformed)?;
    Ok(Bind { portal, statement })
}

/// What a Describe or a Close is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The statement of this name.
    Statement(&'a [u8]),
    /// A portal.
    Portal,
}

/// Reads the body of a Describe or a Close.
///
/// # Errors
/// When it is neither about a statement nor about a portal.
pub fn subject(body: &[u8]) -> Result<Subject<'_>, WireError> {
    let malformed = WireError::Malformed("describe or close message");
    let (kind, mut rest) = body.split_first().ok_or(malformed)?;
    let name = take_cstr(&mut rest).ok_or(malformed)?;
    match kind {
        b'S' => Ok(Subject::Statement(name)),
        b'P' => Ok(Subject::Portal),
        _ => Err(malformed),
    }
}

/// Text at the beginning of a body, up to its end: of a Query or a
/// CommandComplete, say.
pub fn text(body: &[u8]) -> &[u8] {
    take_cstr(&mut { body }).unwrap_or(body)
}

/// Reads the body of a ParameterStatus: a name and its value.
///
/// # Errors
/// When it is cut short.
pub fn parameter_status(body: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let malformed = WireError::Malformed("parameter status");
    let mut rest = body;
    let name = take_cstr(&mut rest).ok_or(malformed)?;
    Ok((name, take_cstr(&mut rest).ok_or(malformed)?))
}

/// A field of an ErrorResponse, by its letter.
pub fn error_field(mut body: &[u8], letter: u8) -> Option<&[u8]> {
    loop {
        let (field, rest) = body.split_first()?;
        body = rest;
        let text = take_cstr(&mut body)?;
        if *field == letter {
            return Some(text);
        }
    }
}

/// The values of a DataRow; nulls are empty.
///
/// # Errors
/// When it is cut short.
pub fn data_row(body: &[u8]) -> Result<Vec<&[u8]>, WireError> {
    let malformed = WireError::Malformed("data row");
    let (count, mut rest) = body.split_first_chunk::<2>().ok_or(malformed)?;
    let mut values = vec![];
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>().ok_or(malformed)?;
        let length = i32::from_be_bytes(*length).max(0) as usize;
        let (value, after) = after.split_at_checked(length).ok_or(malformed)?;
        values.push(value);
        rest = after;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_names_in_messages_are_found() {
        let body = b"name\0select 1\0\0\x01\0\0\0\x17";
        let expected = Parse { name: b"name", rest: b"select 1\0\0\x01\0\0\0\x17", text: b"select 1" };
        assert_eq!(parse(body), Ok(expected));
        let found = bind(b"portal\0name\0\0\0").expect("a bind");
        assert_eq!((found.portal, found.statement, found.length()), (&b"portal"[..], &b"name"[..], 12));
        assert_eq!(subject(b"Sname\0"), Ok(Subject::Statement(b"name")));
        assert_eq!(subject(b"P\0"), Ok(Subject::Portal));
        assert!(subject(b"X\0").is_err() && subject(b"").is_err());
        assert_eq!(parameter_status(b"TimeZone\0UTC\0"), Ok((&b"TimeZone"[..], &b"UTC"[..])));
        assert_eq!(error_field(b"SERROR\0C0A000\0\0", b'C'), Some(&b"0A000"[..]));
        assert_eq!(error_field(b"SERROR\0\0", b'C'), None);
        assert_eq!(data_row(b"\0\x02\0\0\0\x01x\xff\xff\xff\xff"), Ok(vec![&b"x"[..], b""]));
    }

    #[test]
    fn a_header_is_read_before_its_body_is_there() {
        assert_eq!(Header::decode(b"Q\0\0\0"), Ok(None));
        let header = Header { tag: b'Q', body_length: 252 };
        assert_eq!(Header::decode(b"Q\0\0\x01\0"), Ok(Some(header)));
        assert_eq!(header.length(), 257);
        for length in [[0, 0, 0, 3], [0x80, 0, 0, 0]] {
            assert!(Header::decode(&[&b"Q"[..], &length].concat()).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(
            body in proptest::collection::vec(prop_oneof![Just(0), Just(b'S'), any::<u8>()], 0..32),
        ) {
            let _ = (Header::decode(&body), parse(&body), bind(&body), subject(&body), text(&body));
            let _ = (parameter_status(&body), error_field(&body, b'C'), data_row(&body));
        }
    }
}
