//! JSON that others sent.
//!
//! A value takes some 30 bytes of memory, an object with one field more than
//! 600, however short they are written. So values are counted before any is
//! made.

use serde::de::IgnoredAny;
use serde_json::Value;

/// Why a text was not taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is no JSON.
    Invalid,
    /// It has more values than are allowed.
    TooMany,
}

/// Takes a text apart that has at most `values_max` values.
pub(crate) fn read(bytes: &[u8], values_max: usize) -> Result<Value, Unread> {
    if count(bytes) > values_max {
        let is_json = serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
        return Err(if is_json { Unread::TooMany } else { Unread::Invalid });
    }
    serde_json::from_slice(bytes).map_err(|_| Unread::Invalid)
}

/// How many values there can be, by what stands before all but the first.
fn count(bytes: &[u8]) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (1, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' | b'{' | b',' => count += usize::from(!is_text),
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_before_any_is_made() {
        for (text, values_max, expected) in [
            (r#"{"a":[1,2,3],"b":{"c":"[,{\",\\"}}"#, 8, None),
            (r#"{"a":[1,2,3],"b":{"c":"[,{\",\\"}}"#, 6, Some(Unread::TooMany)),
            (r#"{"a":[{"":0},{"":0},{"":0}]}"#, 4, Some(Unread::TooMany)),
            ("[[[[[[[[", 4, Some(Unread::Invalid)),
            (r#"{"a":"#, 4, Some(Unread::Invalid)),
            ("", 0, Some(Unread::Invalid)),
        ] {
            assert_eq!(read(text.as_bytes(), values_max).err(), expected, "{text}");
        }
    }

    #[test]
    fn no_text_has_more_values_than_are_counted() {
        fn made(value: &Value) -> usize {
            1 + match value {
                Value::Array(items) => items.iter().map(made).sum(),
                Value::Object(fields) => fields.values().map(made).sum(),
                _ => 0,
            }
        }
        for text in ["0", "[]", "{}", "[[],[[]],{}]", r#"{"a":{"b":[1]},"c":"\\"}"#, r#"["\"", "[", 1]"#] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert!(made(&value) <= count(text.as_bytes()), "{text}");
        }
    }
}
