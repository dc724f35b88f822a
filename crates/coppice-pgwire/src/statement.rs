//! One statement by the extended protocol: what a client sends, and what the
//! server answers. Values are text, in both directions.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::encode::{cstr, message};
use crate::{WireError, take_cstr};

/// Parse, without a name and without types: the server infers them.
pub fn parse(buffer: &mut BytesMut, query: &str) {
    message(buffer, b'P', |body| {
        body.put_u8(0);
        cstr(body, query);
        body.put_u16(0);
    });
}

/// The beginning of Bind to the statement without a name, up to its values:
/// `count` of them follow, each as [`value_head`] and its bytes.
///
/// # Errors
/// When there are more, or longer, values than a message can have.
pub fn bind_head(buffer: &mut BytesMut, count: usize, bytes: usize) -> Result<(), WireError> {
    let count = u16::try_from(count).map_err(|_| WireError::Malformed("number of parameters"))?;
    // Its own length, two empty names, the formats of parameters, their number, theirs, those of results.
    let length = 4 + 2 + 2 + 2 + 4 * usize::from(count) + bytes + 2;
    let length = i32::try_from(length).map_err(|_| WireError::Malformed("length of parameters"))?;
    buffer.put_u8(b'B');
    buffer.put_i32(length);
    buffer.put_slice(&[0, 0, 0, 0]);
    buffer.put_u16(count);
    Ok(())
}

/// The length of a value, -1 for NULL; its bytes follow.
pub fn value_head(buffer: &mut BytesMut, value: Option<&[u8]>) {
    // Bind's own length was checked, and it is longer.
    buffer.put_i32(value.map_or(-1, |value| value.len() as i32));
}

/// What follows the values of Bind: the end of it, Describe, Execute and Sync.
pub fn run(buffer: &mut BytesMut) {
    describe(buffer);
    execute(buffer, 0);
    sync(buffer);
}

/// What follows the values of Bind where more is said later: the end of it, and Describe.
pub fn describe(buffer: &mut BytesMut) {
    buffer.put_u16(0);
    message(buffer, b'D', |body| body.put_slice(b"P\0"));
}

/// Execute, for the next `rows_max` rows; 0 is all of them.
pub fn execute(buffer: &mut BytesMut, rows_max: u32) {
    message(buffer, b'E', |body| {
        body.put_u8(0);
        body.put_u32(rows_max);
    });
}

/// Flush: answers what was asked, while more is to come.
pub fn flush(buffer: &mut BytesMut) {
    message(buffer, b'H', |_| {});
}

/// Sync
pub fn sync(buffer: &mut BytesMut) {
    message(buffer, b'S', |_| {});
}

/// Terminate.
pub fn terminate(buffer: &mut BytesMut) {
    message(buffer, b'X', |_| {});
}

/// A password in clear text.
pub fn password(buffer: &mut BytesMut, password: &str) {
    message(buffer, b'p', |body| cstr(body, password));
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, which others may have, too.
    pub name: String,
    /// The table that it is of; else 0.
    pub table_id: u32,
    /// Its number in that table; else 0.
    pub column_id: i16,
    /// Its type.
    pub type_id: u32,
    /// Bytes of a value of that type; negative if that varies.
    pub type_size: i16,
    /// What the type was made with, as in `varchar(9)`; else -1.
    pub type_modifier: i32,
}

/// Most bytes of a RowDescription: 1664 columns, `MaxTupleAttributeNumber`, with names of 63 bytes, which may
/// become four times as long in UTF-8.
pub const COLUMNS_LENGTH_MAX: usize = 512 << 10;

/// Reads the body of RowDescription.
///
/// # Errors
/// When it is cut short, or longer than [`COLUMNS_LENGTH_MAX`].
pub fn columns(mut body: Bytes) -> Result<Vec<Column>, WireError> {
    let malformed = |_| WireError::Malformed("row description");
    if body.len() > COLUMNS_LENGTH_MAX {
        return Err(WireError::Malformed("row description"));
    }
    let count = body.try_get_u16().map_err(malformed)?;
    let mut columns = vec![];
    for _ in 0..count {
        let mut rest = &body[..];
        let name = take_cstr(&mut rest).ok_or(WireError::Malformed("row description"))?;
        let name = String::from_utf8_lossy(name).into_owned();
        body.advance(body.len() - rest.len());
        columns.push(Column {
            name,
            table_id: body.try_get_u32().map_err(malformed)?,
            column_id: body.try_get_i16().map_err(malformed)?,
            type_id: body.try_get_u32().map_err(malformed)?,
            type_size: body.try_get_i16().map_err(malformed)?,
            type_modifier: body.try_get_i32().map_err(malformed)?,
        });
        body.try_get_u16().map_err(malformed)?;
    }
    Ok(columns)
}

/// The values of a row, one after the other; none is NULL.
#[derive(Clone, Debug)]
pub struct Values<'a>(&'a [u8]);

/// Reads the body of DataRow.
///
/// # Errors
/// When it is cut short.
pub fn values(mut body: &[u8]) -> Result<Values<'_>, WireError> {
    body.try_get_u16().map_err(|_| WireError::Malformed("row"))?;
    Ok(Values(body))
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<Option<&'a [u8]>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let malformed = Err(WireError::Malformed("row"));
        let Ok(length) = self.0.try_get_i32() else {
            self.0 = &[];
            return Some(malformed);
        };
        let Ok(length) = usize::try_from(length) else { return Some(Ok(None)) };
        let Some((value, rest)) = self.0.split_at_checked(length) else {
            self.0 = &[];
            return Some(malformed);
        };
        self.0 = rest;
        Some(Ok(Some(value)))
    }
}

/// Reads the body of CommandComplete: what was done, and to how many rows.
///
/// # Errors
/// When it has no end.
pub fn command(mut body: &[u8]) -> Result<(String, Option<u64>), WireError> {
    let tag = take_cstr(&mut body).ok_or(WireError::Malformed("command tag"))?;
    let tag = String::from_utf8_lossy(tag);
    let name = tag.split(' ').next().unwrap_or_default();
    let count = tag.rsplit(' ').next().and_then(|last| last.parse().ok());
    Ok((name.to_owned(), count))
}

/// Reads the body of ErrorResponse: its fields by their letters.
///
/// # Errors
/// When it has no end.
pub fn error_fields(mut body: &[u8]) -> Result<Vec<(u8, String)>, WireError> {
    let malformed = || WireError::Malformed("error");
    let mut fields = vec![];
    loop {
        let (letter, rest) = body.split_first().ok_or_else(malformed)?;
        body = rest;
        if *letter == 0 {
            return Ok(fields);
        }
        let text = take_cstr(&mut body).ok_or_else(malformed)?;
        fields.push((*letter, String::from_utf8_lossy(text).into_owned()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::Frame;

    #[test]
    fn what_is_bound_has_the_length_that_is_said() {
        let mut buffer = BytesMut::new();
        let values = [Some(&b"one"[..]), None, Some(b"")];
        bind_head(&mut buffer, values.len(), 3).expect("a message");
        for value in values {
            value_head(&mut buffer, value);
            buffer.put_slice(value.unwrap_or_default());
        }
        run(&mut buffer);
        let tags: Vec<_> = std::iter::from_fn(|| Frame::decode(&mut buffer, 100).expect("a message"))
            .map(|frame| (frame.tag, frame.body.len()))
            .collect();
        assert_eq!(tags, [(b'B', 23), (b'D', 2), (b'E', 5), (b'S', 0)]);
        assert_eq!(bind_head(&mut buffer, 65_536, 0), Err(WireError::Malformed("number of parameters")));
        let long = i32::MAX as usize;
        assert_eq!(bind_head(&mut buffer, 1, long), Err(WireError::Malformed("length of parameters")));
    }

    #[test]
    fn a_command_says_what_it_was_and_how_many_rows_it_met() {
        for (tag, name, count) in [
            ("SELECT 3", "SELECT", Some(3)),
            ("INSERT 0 5", "INSERT", Some(5)),
            ("CREATE TABLE", "CREATE", None),
            ("BEGIN", "BEGIN", None),
            ("", "", None),
        ] {
            let body = [tag.as_bytes(), b"\0"].concat();
            assert_eq!(command(&body), Ok((name.to_owned(), count)));
        }
    }

    #[test]
    fn values_of_a_row_are_text_or_nothing() {
        let body = [&[0, 3][..], &[0, 0, 0, 1], b"7", &[255; 4], &[0, 0, 0, 0]].concat();
        let read: Result<Vec<_>, _> = values(&body).expect("a row").collect();
        assert_eq!(read, Ok(vec![Some(&b"7"[..]), None, Some(b"")]));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(
            body in proptest::collection::vec(prop_oneof![Just(0), any::<u8>()], 0..48),
        ) {
            let _ = columns(Bytes::from(body.clone()));
            let _ = values(&body).map(|values| values.count());
            let _ = command(&body);
            let _ = error_fields(&body);
        }
    }
}
