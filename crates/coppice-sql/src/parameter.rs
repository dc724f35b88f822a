//! Parameters: from JSON to the text that a server reads. Numbers stay as they
//! were written, so that none loses a digit.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::request::BadRequest;

/// How deep arrays may lie in each other; PostgreSQL has 6 dimensions at most.
const DEPTH_MAX: usize = 16;

/// The texts of the parameters of a statement.
pub(crate) fn texts<'a>(values: &[&'a RawValue]) -> Result<Vec<Option<Cow<'a, str>>>, BadRequest> {
    values.iter().map(|value| text(value)).collect()
}

/// The text of a parameter; none is NULL.
pub(crate) fn text(value: &RawValue) -> Result<Option<Cow<'_, str>>, BadRequest> {
    let json = value.get();
    match json.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'"') => string(json).map(Some),
        Some(b'[') => {
            let mut literal = String::new();
            write_array(json, &mut literal, 1).map_err(|error| {
                let is_deep = error.to_string().starts_with("arrays lie");
                let what = if is_deep { "arrays that lie too deep in each other" } else { "no valid array" };
                BadRequest(format!("invalid parameter: {what}").into())
            })?;
            Ok(Some(literal.into()))
        }
        // Numbers, booleans, and objects, which are JSON for the server, too.
        _ => Ok(Some(json.into())),
    }
}

fn string(json: &str) -> Result<Cow<'_, str>, BadRequest> {
    // Without an escape it is what stands between the quotes.
    if let Some(plain) = json.get(1..json.len() - 1).filter(|text| !text.contains('\\')) {
        return Ok(plain.into());
    }
    // Half of a pair of surrogates is JSON, and no text.
    let read: Result<String, _> = serde_json::from_str(json);
    read.map(Cow::from).map_err(|_| BadRequest("invalid parameter: a string that is no text".into()))
}

fn write_array(json: &str, out: &mut String, depth: usize) -> Result<(), serde_json::Error> {
    if depth > DEPTH_MAX {
        return Err(serde_json::Error::custom("arrays lie too deep in each other"));
    }
    serde_json::Deserializer::from_str(json).deserialize_seq(Elements { out, depth })
}

/// Writes elements as they are read.
struct Elements<'o> {
    out: &'o mut String,
    depth: usize,
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self { out, depth } = self;
        out.push('{');
        let mut is_first = true;
        while let Some(element) = elements.next_element::<&RawValue>()? {
            if !std::mem::take(&mut is_first) {
                out.push(',');
            }
            let json = element.get();
            match json.as_bytes().first() {
                Some(b'n') => out.push_str("NULL"),
                Some(b'[') => write_array(json, out, depth + 1).map_err(A::Error::custom)?,
                Some(b'"') => quote(&string(json).map_err(A::Error::custom)?, out),
                Some(b'{') => quote(json, out),
                _ => out.push_str(json),
            }
        }
        out.push('}');
        Ok(())
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Option<String>, String> {
        let value: &RawValue = serde_json::from_str(json).expect("JSON");
        text(value).map(|text| text.map(Cow::into_owned)).map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_are_text_arrays_are_literals_and_objects_are_json() {
        for (json, expected) in [
            ("null", None),
            (r#""a""#, Some("a")),
            (r#""a\n\u00e9\"""#, Some("a\né\"")),
            (r#""""#, Some("")),
            ("true", Some("true")),
            ("12345678901234567890.10", Some("12345678901234567890.10")),
            ("-1e3", Some("-1e3")),
            (r#"{"a" : [1, "b"]}"#, Some(r#"{"a" : [1, "b"]}"#)),
            ("[]", Some("{}")),
            ("[1, null, true]", Some("{1,NULL,true}")),
            (r#"["a", "b,c", "d\"e", "f\\g", "NULL", ""]"#, Some(r#"{"a","b,c","d\"e","f\\g","NULL",""}"#)),
            ("[[1,2],[3,4]]", Some("{{1,2},{3,4}}")),
            (r#"[{"a":"b"}]"#, Some(r#"{"{\"a\":\"b\"}"}"#)),
        ] {
            assert_eq!(read(json), Ok(expected.map(str::to_owned)), "{json}");
        }
    }

    #[test]
    fn what_no_server_could_read_is_refused() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(
            read(&deep).expect_err("too deep"),
            "invalid parameter: arrays that lie too deep in each other"
        );
        let half = r#""\ud800""#;
        assert_eq!(read(half).expect_err("half"), "invalid parameter: a string that is no text");
        assert!(read(&format!("[{half}]")).is_err());
    }
}
