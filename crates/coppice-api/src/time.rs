//! Times as callers send them.

use chrono::{DateTime, Datelike, SecondsFormat, Utc};
use coppice_core::{Error, ErrorCode, Result};

/// What is wrong with a text that is no time.
pub(crate) const WHY_NONE: &str = "must be an RFC 3339 date-time, like 2027-01-01T00:00:00Z";

/// Length of the date that a time begins with.
const DATE_LENGTH: usize = "2027-01-01".len();

/// A time that was asked for, and how it is said back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AskedTime {
    /// The time.
    pub(crate) at: DateTime<Utc>,
    /// As it came, if it came in UTC.
    pub(crate) said: String,
}

impl AskedTime {
    /// Reads a text that was found to be a time.
    pub(crate) fn of(text: String) -> Result<Self> {
        let at = parse(&text).ok_or_else(|| Error::internal("a time that was checked is none"))?;
        let said = match text.ends_with('Z') {
            true => text,
            false => at.to_rfc3339_opts(SecondsFormat::Millis, true),
        };
        Ok(Self { at, said })
    }
}

/// An RFC 3339 time; without an offset it is UTC.
pub(crate) fn parse(text: &str) -> Option<DateTime<Utc>> {
    // RFC 3339 leaves a blank there to whoever wants one; we don't.
    if text.as_bytes().get(DATE_LENGTH).is_none_or(|byte| !byte.eq_ignore_ascii_case(&b'T')) {
        return None;
    }
    let time =
        DateTime::parse_from_rfc3339(text).or_else(|_| DateTime::parse_from_rfc3339(&format!("{text}Z")));
    let time = time.ok()?.with_timezone(&Utc);
    // Its year in UTC has to have four digits too, so that it can be written again.
    (0..=9999).contains(&time.year()).then_some(time)
}

/// Refuses a time that ends before it starts.
pub(crate) fn check_range(start: DateTime<Utc>, end: DateTime<Utc>) -> Result<()> {
    match end < start {
        true => Err(Error::invalid(ErrorCode::InvalidTimeRange, "invalid time range: end is before start")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_have_any_offset_or_none() {
        let noon = parse("2027-01-01T12:00:00Z");
        assert_eq!(parse("2027-01-01T14:00:00.000000000+02:00"), noon);
        assert_eq!(parse("2027-01-01T12:00:00"), noon, "without an offset it is UTC");
        for text in ["2027-01-01", "2027-01-01 12:00:00Z", "2027-01-01 12:00:00", "2027-01- 1T12:00:00"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("9999-12-31T23:59:59-23:00"), None, "a year with five digits");
    }

    #[test]
    fn a_time_in_utc_is_said_back_as_it_came() {
        let said = |text: &str| AskedTime::of(text.to_owned()).ok().map(|time| time.said);
        for text in ["2027-01-01T12:00:00Z", "2027-01-01T12:00:00.123456789Z"] {
            assert_eq!(said(text).as_deref(), Some(text));
        }
        assert_eq!(said("2027-01-01T14:00:00+02:00").as_deref(), Some("2027-01-01T12:00:00.000Z"));
        assert_eq!(said("soon"), None);
    }
}
