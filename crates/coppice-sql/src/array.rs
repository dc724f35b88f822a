//! The text of an array (the manual, section 8.15.6), as JSON.

use crate::output::Piece;

/// PostgreSQL has no more dimensions.
const DEPTH_MAX: usize = 6;

/// Writes the array, and each of its elements as `write_element` does; none when
/// the text is none, and what was written then makes no sense.
pub(crate) fn write(out: &mut Piece, text: &str, write_element: impl Fn(&mut Piece, &str)) -> Option<()> {
    // Bounds are told where they don't begin with 1.
    let body = if text.starts_with('[') { text.split_once('=')?.1 } else { text };
    let mut reader = Reader { rest: body.strip_prefix('{')?, write_element, unescaped: String::new() };
    reader.items(out, 1)?;
    reader.rest.is_empty().then_some(())
}

struct Reader<'a, W> {
    rest: &'a str,
    write_element: W,
    /// Of one element; here to be used again.
    unescaped: String,
}

impl<W: Fn(&mut Piece, &str)> Reader<'_, W> {
    /// What follows a brace, up to the one that closes it.
    fn items(&mut self, out: &mut Piece, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        out.add(b"[");
        if let Some(rest) = self.rest.strip_prefix('}') {
            self.rest = rest;
            out.add(b"]");
            return Some(());
        }
        loop {
            match self.rest.as_bytes().first()? {
                b'{' => {
                    self.rest = &self.rest[1..];
                    self.items(out, depth + 1)?;
                }
                b'"' => self.quoted(out)?,
                _ => {
                    let end = self.rest.find([',', '}'])?;
                    let (item, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    match item {
                        "" => return None,
                        "NULL" => out.add(b"null"),
                        _ => (self.write_element)(out, item),
                    }
                }
            }
            let (next, rest) = self.rest.split_at_checked(1)?;
            self.rest = rest;
            match next {
                "," => out.add(b","),
                "}" => {
                    out.add(b"]");
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    fn quoted(&mut self, out: &mut Piece) -> Option<()> {
        self.unescaped.clear();
        let mut characters = self.rest.char_indices().skip(1);
        loop {
            match characters.next()? {
                (end, '"') => {
                    self.rest = &self.rest[end + 1..];
                    (self.write_element)(out, &self.unescaped);
                    return Some(());
                }
                (_, '\\') => self.unescaped.push(characters.next()?.1),
                (_, character) => self.unescaped.push(character),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value::string;

    proptest! {
        #[test]
        fn whatever_is_read_is_json(text in r#"(\[0:1\]=)?\{[a1,{}"\\ NULL]{0,24}"#) {
            let mut out = Piece::new(1000);
            if write(&mut out, &text, string).is_some() {
                prop_assert!(serde_json::from_slice::<serde_json::Value>(out.as_bytes()).is_ok());
            }
        }

        #[test]
        fn texts_come_out_as_they_went_in(texts in proptest::collection::vec(".{0,8}", 1..5)) {
            let json = serde_json::to_string(&texts).expect("JSON");
            let raw: &serde_json::value::RawValue = serde_json::from_str(&json).expect("JSON");
            let literal = crate::parameter::text(raw).expect("an array").expect("not null");
            let mut out = Piece::new(1000);
            prop_assert!(write(&mut out, &literal, string).is_some());
            let read: Vec<String> = serde_json::from_slice(out.as_bytes()).expect("JSON");
            prop_assert_eq!(read, texts);
        }
    }
}
