//! What an HTTP server answered.

use std::collections::HashMap;

use serde_json::Value;

/// An answer with everything in it.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HashMap<String, String>,
    /// Its body.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Status and error id.
    pub fn refusal(&self) -> (u16, String) {
        (self.status, self.json()["id"].as_str().unwrap_or_default().to_owned())
    }

    /// A header, empty when it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The body, if the status is the expected one.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// What the error says, if it is this one.
    #[track_caller]
    pub fn expect_error(&self, status: u16, id: &str) -> String {
        assert_eq!(self.refusal(), (status, id.to_owned()), "{}", self.text());
        let body = self.json();
        assert_eq!(fields(&body), ["id", "message"]);
        text_of(&body["message"])
    }
}

/// The sorted names of an object's fields.
pub fn fields(object: &Value) -> Vec<&str> {
    let mut names: Vec<_> = object.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// A JSON text.
#[track_caller]
pub fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

/// Refuses what is no time with milliseconds in UTC.
#[track_caller]
pub fn is_timestamp(value: &Value) {
    let text = text_of(value);
    let form: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(form, "0000-00-00T00:00:00.000Z", "{text}");
}
