//! Values of results: from the text that a server writes to JSON.

use std::io::Write;

use crate::array;
use crate::output::Piece;

/// How a value looks in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bool,
    Integer,
    /// Not a number, and infinities, are no numbers of JSON: they are text.
    Float,
    Json,
    Array(&'static Kind),
}

impl Kind {
    /// Of a type by its number, which is the same in every database (the
    /// server's catalog, `pg_type.dat`).
    pub(crate) fn of(type_id: u32) -> Self {
        match type_id {
            16 => Self::Bool,
            21 | 23 => Self::Integer,
            700 | 701 => Self::Float,
            114 | 3802 => Self::Json,
            1000 => Self::Array(&Self::Bool),
            1005 | 1007 => Self::Array(&Self::Integer),
            1021 | 1022 => Self::Array(&Self::Float),
            199 | 3807 => Self::Array(&Self::Json),
            // Of int8, numeric, text, varchar and char.
            1016 | 1231 | 1009 | 1015 | 1014 => Self::Array(&Self::Text),
            _ => Self::Text,
        }
    }
}

/// Writes a value as JSON.
pub(crate) fn write(out: &mut Piece, kind: Kind, text: &str) {
    match kind {
        Kind::Bool if text == "t" => out.add(b"true"),
        Kind::Bool if text == "f" => out.add(b"false"),
        Kind::Integer if is_integer(text) => out.add(text.as_bytes()),
        Kind::Float if is_finite(text) => out.add(text.as_bytes()),
        Kind::Json => out.add(text.as_bytes()),
        Kind::Array(element) => {
            let start = out.len();
            if array::write(out, text, |out, text| write(out, *element, text)).is_none() {
                out.truncate(start);
                string(out, text);
            }
        }
        Kind::Text | Kind::Bool | Kind::Integer | Kind::Float => string(out, text),
    }
}

/// Writes text as a string of JSON.
pub(crate) fn string(out: &mut impl Write, text: &str) {
    // Writing to memory does not fail, and text is always a string of JSON.
    let _ = serde_json::to_writer(out, text);
}

fn is_integer(text: &str) -> bool {
    text.parse::<i32>().is_ok()
}

fn is_finite(text: &str) -> bool {
    // The servers' forms are JSON's, but for the words.
    text.ends_with(|last: char| last.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_form() {
        for (type_id, text, expected) in [
            (16, "t", "true"),
            (16, "f", "false"),
            (21, "-7", "-7"),
            (23, "2147483647", "2147483647"),
            (20, "9007199254740993", r#""9007199254740993""#),
            (1700, "1.10", r#""1.10""#),
            (700, "1.5", "1.5"),
            (701, "1e+300", "1e+300"),
            (701, "-0", "-0"),
            (701, "NaN", r#""NaN""#),
            (701, "-Infinity", r#""-Infinity""#),
            (114, r#"{"a" : 1}"#, r#"{"a" : 1}"#),
            (3802, "null", "null"),
            (25, "a\"\n\u{1}é", "\"a\\\"\\n\\u0001é\""),
            (2950, "x", r#""x""#),
            (1007, "{1,NULL,3}", "[1,null,3]"),
            (1000, "{t,f}", "[true,false]"),
            (1016, "{1,2}", r#"["1","2"]"#),
            (1022, "{1.5,NaN}", r#"[1.5,"NaN"]"#),
            (3807, r#"{"{\"a\": [1]}","null",NULL}"#, r#"[{"a": [1]},null,null]"#),
            (1009, r#"{a,"b c","d\"e",NULL,"NULL",""}"#, r#"["a","b c","d\"e",null,"NULL",""]"#),
            (1007, "[0:1]={1,2}", "[1,2]"),
            (1007, "{{1,2},{3,4}}", "[[1,2],[3,4]]"),
            (1007, "{}", "[]"),
            // No array of a server, so no array.
            (1007, "{1", r#""{1""#),
        ] {
            let mut out = Piece::new(100);
            write(&mut out, Kind::of(type_id), text);
            assert_eq!(String::from_utf8_lossy(out.as_bytes()), expected, "{type_id} {text}");
        }
    }
}
