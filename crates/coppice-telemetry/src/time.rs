//! Times as answers write them: in milliseconds.

use chrono::{DateTime, Utc};

/// The first millisecond that is not before a time, since the Unix epoch.
pub fn ceil_ms(time: DateTime<Utc>) -> i64 {
    let floor = time.timestamp_millis();
    floor + i64::from(!time.timestamp_subsec_nanos().is_multiple_of(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_two_milliseconds_belong_to_the_later_one() {
        let time = |text: &str| ceil_ms(text.parse().expect("a time"));
        assert_eq!(time("1970-01-01T00:00:00.001Z"), 1);
        assert_eq!(time("1970-01-01T00:00:00.000001Z"), 1);
        assert_eq!(time("1969-12-31T23:59:59.9985Z"), -1);
    }
}
