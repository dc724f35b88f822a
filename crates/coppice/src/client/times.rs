//! Times as people write them.

use anyhow::{Context, bail};
use chrono::{DateTime, Duration, NaiveDate, TimeDelta, Utc};

/// How long ago something was: 30s, 15m, 1h or 2d, or as people say it, 10 minutes ago.
pub(super) fn ago(text: &str) -> Option<TimeDelta> {
    let text = text.strip_suffix(" ago").unwrap_or(text);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "s" | "second" | "seconds" => 1,
        "m" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 60 * 60,
        "d" | "day" | "days" => 24 * 60 * 60,
        _ => return None,
    };
    let digits = digits.strip_suffix(' ').unwrap_or(digits);
    let number = digits.parse::<i64>().ok().filter(|number| *number >= 0)?;
    TimeDelta::try_seconds(number.checked_mul(seconds)?)
}

/// A time to the second, with its zone.
pub(crate) fn moment(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// A time, or how long ago it was.
pub(crate) fn since(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(time) = text.parse::<DateTime<Utc>>() {
        return Ok(time);
    }
    let time = ago(text).and_then(|ago| Utc::now().checked_sub_signed(ago));
    time.ok_or_else(|| {
        "write how long ago, like 30s, 15m, 1h or 2d, or a time like 2026-01-02T03:04:05Z".to_owned()
    })
}

/// When something ends, as people write it.
pub(super) fn expiry(text: &str) -> Result<DateTime<Utc>, String> {
    parse_expiry(text, Utc::now()).map_err(|error| error.to_string())
}

fn parse_expiry(text: &str, now: DateTime<Utc>) -> anyhow::Result<DateTime<Utc>> {
    let span = [("h", Duration::hours(1)), ("d", Duration::days(1))].into_iter().find_map(|(unit, each)| {
        let count: i32 = text.strip_suffix(unit)?.parse().ok()?;
        Some(each * count)
    });
    if let Some(span) = span {
        return now.checked_add_signed(span).context("that is too far away");
    }
    if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        return Ok(day.and_time(chrono::NaiveTime::MIN).and_utc());
    }
    match DateTime::parse_from_rfc3339(text) {
        Ok(time) => Ok(time.with_timezone(&Utc)),
        Err(_) => bail!("can't read {text} as a time: write 12h, 30d, 2027-01-31 or 2027-01-31T12:00:00Z"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_can_be_written_as_how_long_ago() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86_400), ("0s", 0)] {
            assert_eq!(ago(text), Some(TimeDelta::seconds(seconds)), "{text}");
        }
        for (text, seconds) in
            [("10 minutes ago", 600), ("1 hour ago", 3600), ("2 days", 172_800), ("5s ago", 5)]
        {
            assert_eq!(ago(text), Some(TimeDelta::seconds(seconds)), "{text}");
        }
        let then = since("2h").expect("a time");
        assert_eq!((Utc::now() - then).num_hours(), 2);
        assert_eq!(since("2026-01-02T03:04:05Z").expect("a time").timestamp(), 1_767_323_045);
        for text in
            ["", "h", "1", "-1h", "1w", "1é", "99999999999999999d", "soon", "ago", "1  h", "minutes ago"]
        {
            assert!(ago(text).is_none() && since(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_expiry_is_read_as_people_write_it() {
        let now = DateTime::UNIX_EPOCH;
        let read = |text| parse_expiry(text, now).map(|time| time.to_rfc3339()).unwrap_or_default();
        assert_eq!(read("12h"), "1970-01-01T12:00:00+00:00");
        assert_eq!(read("30d"), "1970-01-31T00:00:00+00:00");
        assert_eq!(read("2027-01-31"), "2027-01-31T00:00:00+00:00");
        assert_eq!(read("2027-01-31T12:00:00+02:00"), "2027-01-31T10:00:00+00:00");
        assert_eq!(read("tomorrow"), "");
    }
}
