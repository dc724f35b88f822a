//! Parameters: from JSON to the text that a server reads. Numbers stay as they
//! were written, so that none loses a digit.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::aside::aside;
use crate::request::BadRequest;

/// How deep arrays may lie in each other; PostgreSQL has 6 dimensions at most.
const DEPTH_MAX: usize = 16;

/// The texts of the parameters of a statement.
pub(crate) fn texts<'a>(values: &[&'a RawValue]) -> Result<Vec<Option<Cow<'a, str>>>, BadRequest> {
    let bytes = values.iter().map(|value| value.get().len()).sum();
    aside(bytes, || values.iter().map(|value| text(value)).collect())
}

/// The text of a parameter; none is NULL.
pub(crate) fn text(value: &RawValue) -> Result<Option<Cow<'_, str>>, BadRequest> {
    let json = value.get();
    match json.as_bytes().first() {
        Some(b'n') => Ok(None),
        Some(b'"') => string(json).map(Some),
        Some(b'[') => literal(json).map(|literal| Some(literal.into())),
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

/// An array as a server reads one (PostgreSQL manual, "Array Value Input"). What is read is valid
/// JSON, and is read once, however deep arrays lie in each other.
fn literal(json: &str) -> Result<String, BadRequest> {
    let mut out = String::with_capacity(json.len());
    let (mut rest, mut depth) = (json, 0);
    while let Some(first) = rest.bytes().next() {
        let (token, after) = rest.split_at(token_length(rest));
        rest = after;
        match first {
            b'[' if depth == DEPTH_MAX => {
                return Err(BadRequest("invalid parameter: arrays that lie too deep in each other".into()));
            }
            b'[' => {
                depth += 1;
                out.push('{');
            }
            b']' => {
                depth -= 1;
                out.push('}');
            }
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'n' => out.push_str("NULL"),
            b'"' => quote(&string(token)?, &mut out),
            b'{' => quote(token, &mut out),
            _ => out.push_str(token),
        }
    }
    Ok(out)
}

/// Bytes of what an array begins with: a bracket, a comma, a space, or an element that is no array.
fn token_length(json: &str) -> usize {
    match json.as_bytes()[0] {
        b'"' => string_length(json.as_bytes()),
        b'{' => object_length(json.as_bytes()),
        b'[' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r' => 1,
        _ => json.find([',', ']', ' ', '\t', '\n', '\r']).unwrap_or(json.len()),
    }
}

/// Bytes of the string that this begins with.
fn string_length(json: &[u8]) -> usize {
    let mut is_escaped = true;
    let is_last = |byte: &u8| {
        let is_last = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_last
    };
    json.iter().position(is_last).map_or(json.len(), |last| last + 1)
}

/// Bytes of the object that this begins with.
fn object_length(json: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at += string_length(&json[at..]) - 1,
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
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
    use proptest::prelude::*;

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
            (
                r#" [ {"a}":["}\\", {"b": "\"{"}] , "c":{}} , [ "[\\" ] ]"#.trim(),
                Some(r#"{"{\"a}\":[\"}\\\\\", {\"b\": \"\\\"{\"}] , \"c\":{}}",{"[\\"}}"#),
            ),
        ] {
            assert_eq!(read(json), Ok(expected.map(str::to_owned)), "{json}");
        }
    }

    /// What an array is for a server.
    fn expected(value: &serde_json::Value) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        match value {
            serde_json::Value::Null => "NULL".to_owned(),
            serde_json::Value::String(text) => quoted(text),
            serde_json::Value::Array(elements) => {
                format!("{{{}}}", elements.iter().map(expected).collect::<Vec<_>>().join(","))
            }
            serde_json::Value::Object(_) => quoted(&value.to_string()),
            other => other.to_string(),
        }
    }

    fn values() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            r#"[a\[\]{},:"\\ \n]{0,6}"#.prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let object = proptest::collection::btree_map(r#"[a{}"\\]{0,3}"#, inner.clone(), 0..4);
            prop_oneof![
                proptest::collection::vec(inner, 0..6).prop_map(Into::into),
                object.prop_map(|object| object.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_array_is_written_element_by_element(elements in proptest::collection::vec(values(), 0..6)) {
            let array = serde_json::Value::from(elements);
            prop_assert_eq!(read(&array.to_string()), Ok(Some(expected(&array))));
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
