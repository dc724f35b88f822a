//! Times on the wire.

use chrono::{DateTime, Datelike, SecondsFormat, Timelike, Utc};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A time on the wire: RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(pub DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match digits(&self.0) {
            Some(text) => serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default()),
            None => serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true)),
        }
    }
}

/// The same as `to_rfc3339_opts`, many times faster: an answer may hold 100,000
/// times. None beyond years of four digits.
fn digits(time: &DateTime<Utc>) -> Option<[u8; 24]> {
    let year = u32::try_from(time.year()).ok().filter(|year| *year <= 9999)?;
    let mut text = *b"0000-00-00T00:00:00.000Z";
    let mut write = |mut number: u32, places: std::ops::Range<usize>| {
        for place in places.rev() {
            text[place] = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    write(year, 0..4);
    write(time.month(), 5..7);
    write(time.day(), 8..10);
    write(time.hour(), 11..13);
    write(time.minute(), 14..16);
    // A leap second counts as part of the one before it.
    write(time.second(), 17..19);
    write(time.timestamp_subsec_millis().min(999), 20..23);
    Some(text)
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DateTime::<Utc>::deserialize(deserializer).map(Self)
    }
}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("A time: RFC 3339, UTC, milliseconds."))
            .examples([serde_json::json!("2026-01-02T03:04:05.678Z")])
            .into()
    }
}

impl ToSchema for Timestamp {}

/// When a key or a branch ends: RFC 3339 in UTC with milliseconds, or without a fraction
/// when they are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry(pub DateTime<Utc>);

impl Serialize for Expiry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match self.0.timestamp_subsec_millis() {
            0 => SecondsFormat::Secs,
            _ => SecondsFormat::Millis,
        };
        serializer.serialize_str(&self.0.to_rfc3339_opts(form, true))
    }
}

impl<'de> Deserialize<'de> for Expiry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DateTime::<Utc>::deserialize(deserializer).map(Self)
    }
}

impl PartialSchema for Expiry {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("When something ends: RFC 3339, UTC."))
            .examples([serde_json::json!("2027-01-01T00:00:00Z")])
            .into()
    }
}

impl ToSchema for Expiry {}

/// Null says something, too.
pub(crate) fn said<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Expiry>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_says() {
        let first = DateTime::<Utc>::UNIX_EPOCH;
        for number in 0..20_000_i64 {
            // Odd steps over many years, back and forth.
            let time = first + chrono::Duration::milliseconds(number * 7_919_333_771 % 200_000_000_000_000);
            let expected = time.to_rfc3339_opts(SecondsFormat::Millis, true);
            assert_eq!(serde_json::to_value(Timestamp(time)).expect("JSON"), expected);
        }
        let far = DateTime::<Utc>::MAX_UTC;
        let expected = far.to_rfc3339_opts(SecondsFormat::Millis, true);
        assert_eq!(serde_json::to_value(Timestamp(far)).expect("JSON"), expected);
    }
}
