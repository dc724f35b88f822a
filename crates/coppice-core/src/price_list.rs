//! What an operator asks for: prices by day from which on they are valid.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Datelike as _, Months, NaiveDate, NaiveTime, Utc};
use serde::Deserialize;

use crate::amount::{Decimal, Whole, rounded};
use crate::usage::Meter;

/// Most digits of a price before its point, and after it.
const DIGITS_MAX: (usize, usize) = (9, 12);
/// Most decimals of an amount.
const DECIMALS_MAX: u32 = 6;

/// A price list as it is written in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceListFile {
    currency: String,
    #[serde(default = "cents")]
    decimals: u32,
    #[serde(default)]
    issuer: Vec<String>,
    prices: Vec<PricesFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PricesFile {
    from: String,
    #[serde(default)]
    compute: BTreeMap<String, String>,
    storage: Option<String>,
    shared: Option<String>,
    egress: Option<String>,
    #[serde(default)]
    fixed: Vec<FixedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FixedFile {
    name: String,
    amount: String,
}

fn cents() -> u32 {
    2
}

/// A price list that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// ISO 4217, for example `EUR`.
    pub currency: String,
    /// Decimals of an amount that is charged.
    pub decimals: u32,
    /// Who asks, and where they are: lines for people.
    pub issuer: Vec<String>,
    /// By the time from which on they are valid.
    prices: BTreeMap<DateTime<Utc>, Prices>,
}

/// Prices that are valid at the same time. What has none is not charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    /// The price of an instance for an hour, by its type.
    pub compute: BTreeMap<String, Decimal>,
    /// The price of a GiB for a month that no other branch pays for.
    pub storage: Option<Decimal>,
    /// The same for data that another branch pays for, too.
    pub shared: Option<Decimal>,
    /// The price of a GiB that is sent.
    pub egress: Option<Decimal>,
    /// Prices of other things for a month, by name: each organization has them.
    pub fixed: Vec<(String, Decimal)>,
}

impl PriceList {
    /// Reads what a file says.
    ///
    /// # Errors
    /// Says what makes no sense, for the operator.
    pub fn read(file: PriceListFile) -> Result<Self, String> {
        if file.currency.len() != 3 || !file.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(format!("currency is {:?}: write three capital letters, like EUR", file.currency));
        }
        if file.decimals > DECIMALS_MAX {
            return Err(format!("decimals is {}: it can be 0 to {DECIMALS_MAX}", file.decimals));
        }
        let mut prices = BTreeMap::new();
        for one in file.prices {
            let day: NaiveDate = one
                .from
                .parse()
                .map_err(|_| format!("from is {:?}: write a day, like 2026-01-01", one.from))?;
            let from = day.and_time(NaiveTime::MIN).and_utc();
            let optional = |name: &str, text: Option<String>| text.map(|text| price(name, &text)).transpose();
            let valid = Prices {
                compute: (one.compute.into_iter())
                    .map(|(kind, text)| price(&kind, &text).map(|price| (kind, price)))
                    .collect::<Result<_, _>>()?,
                storage: optional("storage", one.storage)?,
                shared: optional("shared", one.shared)?,
                egress: optional("egress", one.egress)?,
                fixed: (one.fixed.into_iter())
                    .map(|fixed| price(&fixed.name, &fixed.amount).map(|amount| (fixed.name, amount)))
                    .collect::<Result<_, _>>()?,
            };
            if prices.insert(from, valid).is_some() {
                return Err(format!("two lists of prices begin on {day}"));
            }
        }
        Ok(Self { currency: file.currency, decimals: file.decimals, issuer: file.issuer, prices })
    }

    /// The prices of a time.
    pub fn at(&self, time: DateTime<Utc>) -> Option<&Prices> {
        self.prices.range(..=time).next_back().map(|(_, prices)| prices)
    }

    /// Times of a span between which a quantity costs the same: its beginning,
    /// and when prices change or a month begins in it, in order.
    pub fn boundaries(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<DateTime<Utc>> {
        let mut times: BTreeSet<_> =
            self.prices.keys().copied().filter(|time| from < *time && *time < to).collect();
        times.insert(from);
        let mut month = next_month(from);
        while month < to {
            times.insert(month);
            month = next_month(month);
        }
        times.into_iter().collect()
    }

    /// What one unit of something costs at a time: an instance-hour, a GiB for
    /// that month, a GiB; none when it is not charged.
    pub fn unit_price(&self, meter: Meter, instance_type: &str, time: DateTime<Utc>) -> Option<&Decimal> {
        let prices = self.at(time)?;
        match meter {
            Meter::Awake => prices.compute.get(instance_type),
            Meter::Asleep => None,
            Meter::Storage => prices.storage.as_ref(),
            Meter::Shared => prices.shared.as_ref(),
            Meter::Egress => prices.egress.as_ref(),
        }
    }
}

/// How many of what is counted make one of what has a price.
pub fn per_priced_unit(meter: Meter, time: DateTime<Utc>) -> Whole {
    match meter {
        Meter::Storage | Meter::Shared => {
            let month = month_of(time);
            let length = next_month(month) - month;
            Whole::from(length.num_microseconds().unwrap_or(i64::MAX)) * (1_i64 << 30)
        }
        Meter::Awake | Meter::Asleep | Meter::Egress => meter.per_unit(),
    }
}

/// What a quantity costs that was used in one month at one price, rounded once.
pub fn cost(quantity: &Whole, price: &Decimal, meter: Meter, time: DateTime<Utc>, decimals: u32) -> Decimal {
    let (digits, scale) = price.as_bigint_and_exponent();
    let scale = u32::try_from(scale).unwrap_or_default();
    rounded(&(quantity * digits), &(per_priced_unit(meter, time) * Whole::from(10).pow(scale)), decimals)
}

/// When the month of a time began.
pub fn month_of(time: DateTime<Utc>) -> DateTime<Utc> {
    let date = time.date_naive();
    date.with_day(1).unwrap_or(date).and_time(NaiveTime::MIN).and_utc()
}

/// When the month after that of a time begins.
pub fn next_month(time: DateTime<Utc>) -> DateTime<Utc> {
    month_of(time).checked_add_months(Months::new(1)).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

fn price(name: &str, text: &str) -> Result<Decimal, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |part: &str, most: usize| {
        (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !are_digits(whole, DIGITS_MAX.0) || !are_digits(fraction, DIGITS_MAX.1) {
        return Err(format!(
            "the price of {name} is {text:?}: write it as a text like \"0.010\", with at most {} digits before \
             the point and {} after it",
            DIGITS_MAX.0, DIGITS_MAX.1
        ));
    }
    text.parse().map_err(|error| format!("the price of {name} is {text:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(prices: Vec<PricesFile>) -> Result<PriceList, String> {
        PriceList::read(PriceListFile { currency: "EUR".to_owned(), decimals: 2, issuer: vec![], prices })
    }

    fn storage(from: &str, price: &str) -> PricesFile {
        PricesFile {
            from: from.to_owned(),
            compute: BTreeMap::from([("micro".to_owned(), "0.010".to_owned())]),
            storage: Some(price.to_owned()),
            shared: None,
            egress: None,
            fixed: vec![],
        }
    }

    fn time(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    #[test]
    fn prices_are_valid_from_their_day_until_the_next() {
        let list =
            list(vec![storage("2026-02-10", "2"), storage("2026-01-01", "1"), storage("9999-12-31", "0")])
                .expect("a list");
        let at = |text| list.unit_price(Meter::Storage, "", time(text)).map(ToString::to_string);
        assert_eq!(at("2025-12-31T23:59:59Z"), None, "nothing is charged before the first");
        assert_eq!(at("2026-02-09T23:59:59Z").as_deref(), Some("1"));
        assert_eq!(at("2026-02-10T00:00:00Z").as_deref(), Some("2"));
        let found = list.boundaries(time("2026-01-05T00:00:00Z"), time("2026-03-01T00:00:00Z"));
        assert_eq!(
            found,
            [time("2026-01-05T00:00:00Z"), time("2026-02-01T00:00:00Z"), time("2026-02-10T00:00:00Z")]
        );
    }

    #[test]
    fn a_month_of_storage_costs_its_price_however_long_it_is() {
        for (month, days) in [("2026-02-01T00:00:00Z", 28_i64), ("2026-03-01T00:00:00Z", 31)] {
            let quantity = Whole::from(days * 86_400) * 1_000_000 * 10 * (1_i64 << 30);
            let price = "0.123456789012".parse().expect("a number");
            let found = cost(&quantity, &price, Meter::Storage, time(month), 11);
            assert_eq!(found.to_plain_string(), "1.23456789012");
        }
        let price = "999999999.999999999999".parse().expect("a number");
        let found =
            cost(&Whole::from(3_600_000_000_i64), &price, Meter::Awake, time("2026-02-01T00:00:00Z"), 2);
        assert_eq!(found.to_plain_string(), "1000000000.00");
    }

    #[test]
    fn a_price_of_zero_charges_nothing_however_much_it_is_of() {
        let quantity = Whole::from(i64::MAX) * i64::MAX;
        for price in ["0", "0.000000000000"] {
            let price = price.parse().expect("a number");
            let found = cost(&quantity, &price, Meter::Egress, time("2026-02-01T00:00:00Z"), 2);
            assert_eq!(found.to_plain_string(), "0.00");
        }
    }

    #[test]
    fn a_list_that_makes_no_sense_is_refused() {
        for text in ["", "-1", "1e3", "0,5", "NaN", "1.", "1234567890", "0.1234567890123", "٣"] {
            assert!(list(vec![storage("2026-01-01", text)]).is_err(), "{text}");
        }
        assert!(list(vec![storage("January", "1")]).is_err());
        assert!(list(vec![storage("2026-01-01", "1"), storage("2026-01-01", "2")]).is_err());
        assert!(list(vec![storage("2026-01-01", "0")]).is_ok());
    }
}
