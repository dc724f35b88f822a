//! The fields of an object: unknown ones are ignored, null is the same as
//! absent, and every complaint names its field.

use coppice_core::operation::is_record_id;
use coppice_core::project::ScaleToZeroChange;
use coppice_core::{Error, ErrorCode, Result};
use serde_json::{Map, Value};

use crate::time::{self, AskedTime};
/// The fields of an object, with the object's own place for complaints.
#[derive(Debug)]
pub(crate) struct Fields {
    path: String,
    fields: Map<String, Value>,
}

impl Fields {
    /// Those of a whole body.
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self { path: String::new(), fields }
    }

    fn name(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// Whether no field is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.fields.values().all(Value::is_null)
    }

    /// Whether a field is there as null, where that does not mean the same as
    /// being absent.
    pub(crate) fn is_null(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(Value::is_null)
    }

    fn invalid(&self, field: &str, why: &str) -> Error {
        Error::invalid_field(&self.name(field), why)
    }

    fn too_many(&self, field: &str, count_max: usize) -> Error {
        Error::invalid(
            ErrorCode::TooManyItems,
            format!("{} accepts at most {count_max} items", self.name(field)),
        )
    }

    /// The complaint about an absent field.
    pub(crate) fn missing(&self, field: &str) -> Error {
        Error::invalid(ErrorCode::MissingField, format!("{} is required", self.name(field)))
    }

    /// A text, if it is there.
    pub(crate) fn text(&self, field: &str) -> Result<Option<&str>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.invalid(field, "must be a string")),
        }
    }

    /// A time, if it is there.
    pub(crate) fn time(&self, field: &str) -> Result<Option<AskedTime>> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        AskedTime::parse(text).map(Some).ok_or_else(|| self.invalid(field, time::WHY_NONE))
    }

    /// A time that must be there.
    pub(crate) fn required_time(&self, field: &str) -> Result<AskedTime> {
        self.time(field)?.ok_or_else(|| self.missing(field))
    }

    /// A text that must be there.
    pub(crate) fn required_text(&self, field: &str) -> Result<&str> {
        self.text(field)?.ok_or_else(|| self.missing(field))
    }

    /// An id that must be there.
    pub(crate) fn required_id(&self, field: &str) -> Result<&str> {
        let id = self.required_text(field)?;
        match is_record_id(id) {
            true => Ok(id),
            false => Err(self.invalid(field, "must be an id: 1 to 64 letters, digits, - and _")),
        }
    }

    /// A name: trimmed, 1 to `length_max` characters, nothing that can't be seen.
    pub(crate) fn name_of(&self, field: &str, length_max: usize) -> Result<String> {
        self.optional_name(field, length_max)?.ok_or_else(|| self.missing(field))
    }

    /// As [`Fields::name_of`], if it is there.
    pub(crate) fn optional_name(&self, field: &str, length_max: usize) -> Result<Option<String>> {
        let Some(name) = self.text(field)?.map(str::trim) else { return Ok(None) };
        if name.is_empty() || name.chars().count() > length_max {
            return Err(self.invalid(field, &format!("must have 1 to {length_max} characters")));
        }
        match coppice_core::name::problem(name) {
            Some(why) => Err(self.invalid(field, &why)),
            None => Ok(Some(name.to_owned())),
        }
    }

    /// What a person wants to be called, if it is there: as a name, or empty.
    pub(crate) fn display_name(&self, field: &str, length_max: usize) -> Result<Option<String>> {
        match self.text(field)?.map(str::trim) {
            Some("") => Ok(Some(String::new())),
            Some(_) | None => self.optional_name(field, length_max),
        }
    }

    /// A remark for people, if it is there: up to `length_max` characters.
    pub(crate) fn remark(&self, field: &str, length_max: usize) -> Result<String> {
        let text = self.text(field)?.unwrap_or_default();
        if text.chars().count() > length_max {
            return Err(self.invalid(field, &format!("must have at most {length_max} characters")));
        }
        match coppice_core::name::problem(text) {
            Some(why) => Err(self.invalid(field, &why)),
            None => Ok(text.to_owned()),
        }
    }

    /// A branch's description: empty, or up to 50 letters, digits, hyphens and
    /// blanks that begin with a letter or digit.
    pub(crate) fn description(&self, field: &str) -> Result<Option<String>> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        let is_allowed =
            |(index, c): (usize, char)| c.is_ascii_alphanumeric() || (index > 0 && (c == '-' || c == ' '));
        if text.len() > 50 || !text.chars().enumerate().all(is_allowed) {
            return Err(self.invalid(
                field,
                "must have at most 50 letters, digits, hyphens and blanks, and begin with a letter or digit",
            ));
        }
        Ok(Some(text.to_owned()))
    }

    /// A truth value, if it is there.
    pub(crate) fn flag(&self, field: &str) -> Result<Option<bool>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.invalid(field, "must be true or false")),
        }
    }

    /// A whole number within bounds, if it is there.
    pub(crate) fn integer(&self, field: &str, min: u32, max: u32) -> Result<Option<u32>> {
        let Some(value) = self.get(field) else { return Ok(None) };
        // One with a fraction or an exponent is none, whatever it comes to.
        match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(self.invalid(field, &format!("must be a whole number from {min} to {max}"))),
        }
    }

    /// An object, if it is there.
    pub(crate) fn object(&self, field: &str) -> Result<Option<Fields>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => {
                Ok(Some(Fields { path: self.name(field), fields: fields.clone() }))
            }
            Some(_) => Err(self.invalid(field, "must be an object")),
        }
    }

    /// How many items an array has, if it is there.
    pub(crate) fn list_length(&self, field: &str) -> Result<Option<usize>> {
        Ok(self.list(field, usize::MAX)?.map(<[Value]>::len))
    }

    /// An array, if it is there.
    pub(crate) fn list(&self, field: &str, count_max: usize) -> Result<Option<&[Value]>> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(items)) if items.len() > count_max => Err(self.too_many(field, count_max)),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(self.invalid(field, "must be an array")),
        }
    }

    /// An array of texts, if it is there.
    pub(crate) fn texts(&self, field: &str, count_max: usize) -> Result<Option<Vec<String>>> {
        let Some(items) = self.list(field, count_max)? else { return Ok(None) };
        let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
        texts
            .collect::<Option<_>>()
            .map(Some)
            .ok_or_else(|| self.invalid(field, "must be an array of strings"))
    }

    /// An object of texts, if it is there.
    pub(crate) fn text_map(
        &self,
        field: &str,
        count_max: usize,
    ) -> Result<std::collections::BTreeMap<String, String>> {
        let Some(object) = self.object(field)? else { return Ok(Default::default()) };
        if object.fields.len() > count_max {
            return Err(self.too_many(field, count_max));
        }
        let texts = object.fields.into_iter().map(|(name, value)| Some((name, value.as_str()?.to_owned())));
        texts.collect::<Option<_>>().ok_or_else(|| self.invalid(field, "must be an object of strings"))
    }

    /// A change of a scale-to-zero setting, as far as it is there.
    pub(crate) fn scale_to_zero(&self, field: &str) -> Result<ScaleToZeroChange> {
        let Some(setting) = self.object(field)? else { return Ok(ScaleToZeroChange::default()) };
        Ok(ScaleToZeroChange {
            enabled: setting.flag("enabled")?,
            inactivity_period_minutes: setting.integer("inactivityPeriodMinutes", 1, 10_080)?,
        })
    }

    /// Fields of one item of an array.
    pub(crate) fn item(&self, field: &str, index: usize, value: &Value) -> Result<Fields> {
        let path = format!("{}[{index}]", self.name(field));
        match value {
            Value::Object(fields) => Ok(Fields { path, fields: fields.clone() }),
            _ => Err(Error::invalid_field(&path, "must be an object")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(value: Value) -> Fields {
        match value {
            Value::Object(fields) => Fields::new(fields),
            _ => panic!("not an object"),
        }
    }

    #[test]
    fn null_is_the_same_as_absent() {
        let body = fields(serde_json::json!({ "name": null }));
        assert_eq!(body.required_text("name").expect_err("missing").to_string(), "name is required");
    }

    #[test]
    fn names_are_trimmed_and_bounded() {
        let body = fields(serde_json::json!({ "a": " x ", "b": "  ", "c": "x\u{7}", "d": "é".repeat(129) }));
        assert_eq!(body.name_of("a", 128).expect("valid"), "x");
        for field in ["b", "c", "d"] {
            assert_eq!(body.name_of(field, 128).expect_err("invalid").code(), "invalid_field");
        }
        assert!(body.name_of("d", 129).is_ok());
    }

    #[test]
    fn nothing_that_people_are_shown_has_what_they_can_not_see() {
        let body = fields(serde_json::json!({ "turned": "\u{202e}ppice", "hidden": "Ada\u{200b}" }));
        for field in ["turned", "hidden"] {
            let refused = [
                body.name_of(field, 128),
                body.display_name(field, 128).map(|_| String::new()),
                body.remark(field, 100),
            ];
            for refused in refused {
                let error = refused.expect_err("it has something unseen");
                assert_eq!(error.code(), "invalid_field");
                assert!(error.to_string().contains("U+20"), "{error}");
            }
        }
    }

    #[test]
    fn a_whole_number_has_no_fraction_and_no_exponent() {
        for (text, expected) in [("30", Some(30)), ("30.0", None), ("3e1", None), ("1e3", None), ("-0", None)]
        {
            let body = fields(serde_json::from_str(&format!("{{\"n\": {text}}}")).expect("JSON"));
            assert_eq!(body.integer("n", 0, 1000).ok().flatten(), expected, "{text}");
        }
    }

    #[test]
    fn a_complaint_names_the_whole_path() {
        let body = fields(serde_json::json!({ "scaleToZero": { "inactivityPeriodMinutes": 0 } }));
        let error = body.scale_to_zero("scaleToZero").expect_err("out of range");
        assert_eq!(
            error.to_string(),
            "invalid scaleToZero.inactivityPeriodMinutes: must be a whole number from 1 to 10080"
        );
    }

    #[test]
    fn descriptions_follow_the_documented_pattern() {
        let body =
            fields(serde_json::json!({ "ok": "PR 12 - fix", "bad": "-x", "long": "x".repeat(51), "no": "" }));
        assert!(body.description("ok").is_ok() && body.description("no").is_ok());
        assert!(body.description("bad").is_err() && body.description("long").is_err());
    }
}
