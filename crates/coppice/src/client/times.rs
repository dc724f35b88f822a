//! Times as people write them.

use chrono::{DateTime, TimeDelta, Utc};

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
}
