//! Values of parameters: numbers with units, words, and their bounds.

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;
pub(super) const SECOND: u64 = 1000;
pub(super) const HOUR: u64 = 3600 * SECOND;
pub(super) const DAY: u64 = 24 * HOUR;

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterKind {
    /// A whole number, from and to.
    Integer(i64, i64),
    /// A number, from and to.
    Number(f64, f64),
    /// An amount of memory or storage in bytes, from and to.
    Bytes(u64, u64),
    /// As [`ParameterKind::Bytes`], or -1: PostgreSQL chooses.
    BytesOrAuto(u64, u64),
    /// A span of time in milliseconds, from and to.
    Duration(u64, u64),
    /// As [`ParameterKind::Duration`], or -1: off.
    DurationOrOff(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// On or off, in any of PostgreSQL's spellings.
    Switch,
}

use ParameterKind::*;

/// What a value means, whatever units and spelling it was written with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meaning {
    /// A whole number, an amount in bytes or a span in milliseconds.
    Amount(i128),
    Number(f64),
    Word(String),
}

impl ParameterKind {
    /// Whether a text is a value of this kind, and within bounds.
    ///
    /// # Errors
    /// What a value has to be.
    pub fn check(self, text: &str) -> Result<(), String> {
        let is_within = match self {
            Integer(low, high) => text.parse().is_ok_and(|number: i64| (low..=high).contains(&number)),
            Number(low, high) => {
                is_number(text) && text.parse().is_ok_and(|number: f64| (low..=high).contains(&number))
            }
            Bytes(low, high) => bytes(text).is_some_and(|amount| (low..=high).contains(&amount)),
            BytesOrAuto(low, high) => {
                return if text == "-1" { Ok(()) } else { Bytes(low, high).check(text) };
            }
            Duration(low, high) => millis(text).is_some_and(|span| (low..=high).contains(&span)),
            DurationOrOff(low, high) => {
                return if text == "-1" { Ok(()) } else { Duration(low, high).check(text) };
            }
            Word(words) => words.contains(&text),
            Switch => switch(text).is_some(),
        };
        if is_within { Ok(()) } else { Err(self.wanted()) }
    }

    fn wanted(self) -> String {
        match self {
            Integer(low, high) => format!("must be a whole number from {low} to {high}"),
            Number(low, high) => format!("must be a number from {low} to {high}"),
            Bytes(low, high) | BytesOrAuto(low, high) => {
                format!("must be an amount from {} to {}, like 16MB", in_bytes(low), in_bytes(high))
            }
            Duration(low, high) | DurationOrOff(low, high) => {
                format!("must be a span of time from {} to {}, like 30s", in_time(low), in_time(high))
            }
            Word(words) => format!("must be one of {}", words.join(", ")),
            Switch => "must be on or off".to_owned(),
        }
    }

    /// What a value means; none for a text that is no value of this kind.
    pub(super) fn meaning(self, text: &str) -> Option<Meaning> {
        let amount = |amount: u64| Meaning::Amount(i128::from(amount));
        match self {
            Integer(..) => text.parse::<i64>().ok().map(|number| Meaning::Amount(i128::from(number))),
            Number(..) => text.parse().ok().map(Meaning::Number),
            BytesOrAuto(..) | DurationOrOff(..) if text == "-1" => Some(Meaning::Amount(-1)),
            Bytes(..) | BytesOrAuto(..) => bytes(text).map(amount),
            Duration(..) | DurationOrOff(..) => millis(text).map(amount),
            Word(_) => Some(Meaning::Word(text.to_owned())),
            Switch => switch(text).map(|is_on| amount(u64::from(is_on))),
        }
    }

    /// A value in the largest unit that writes it whole.
    pub(super) fn tidy(self, text: &str) -> String {
        match self {
            Bytes(..) | BytesOrAuto(..) => bytes(text).map_or_else(|| text.to_owned(), in_bytes),
            Duration(..) | DurationOrOff(..) => millis(text).map_or_else(|| text.to_owned(), in_time),
            Integer(..) | Number(..) | Word(_) | Switch => text.to_owned(),
        }
    }

    /// The lowest and the highest value, where there are such.
    pub(super) fn bounds(self) -> Option<(String, String)> {
        match self {
            Integer(low, high) => Some((low.to_string(), high.to_string())),
            Number(low, high) => Some((low.to_string(), high.to_string())),
            Bytes(low, high) => Some((in_bytes(low), in_bytes(high))),
            BytesOrAuto(_, high) => Some(("-1".to_owned(), in_bytes(high))),
            Duration(low, high) => Some((in_time(low), in_time(high))),
            DurationOrOff(_, high) => Some(("-1".to_owned(), in_time(high))),
            Word(_) | Switch => None,
        }
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// A number and its unit as a multiple of the smallest unit.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    if number == 0 && unit.is_empty() {
        return Some(0);
    }
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

pub(super) fn bytes(text: &str) -> Option<u64> {
    with_unit(text, &[("B", 1), ("kB", KIB), ("MB", MIB), ("GB", GIB), ("TB", TIB)])
}

pub(super) fn millis(text: &str) -> Option<u64> {
    with_unit(text, &[("ms", 1), ("s", SECOND), ("min", 60 * SECOND), ("h", HOUR), ("d", DAY)])
}

fn in_unit(amount: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| amount >= *factor && amount.is_multiple_of(*factor);
    let (name, factor) = units.iter().find(fits).or(units.last()).copied().unwrap_or(("", 1));
    format!("{}{name}", amount / factor)
}

pub(super) fn in_bytes(amount: u64) -> String {
    in_unit(amount, &[("TB", TIB), ("GB", GIB), ("MB", MIB), ("kB", KIB), ("B", 1)])
}

pub(super) fn in_time(amount: u64) -> String {
    in_unit(amount, &[("d", DAY), ("h", HOUR), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1)])
}
