//! Times on the wire.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A time on the wire: RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(pub DateTime<Utc>);

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
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

/// When a key ends: RFC 3339 in UTC with milliseconds, or without a fraction
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
            .description(Some("When a key ends: RFC 3339, UTC."))
            .examples([serde_json::json!("2027-01-01T00:00:00Z")])
            .into()
    }
}

impl ToSchema for Expiry {}
