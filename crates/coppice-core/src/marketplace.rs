//! Subscriptions by way of a cloud's marketplace.

use chrono::{DateTime, Datelike as _, TimeDelta, Utc};

/// A marketplace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marketplace {
    /// Amazon's.
    Aws,
}

impl Marketplace {
    /// As the metastore has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
        }
    }

    /// The marketplace of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        (name == Self::Aws.as_str()).then_some(Self::Aws)
    }
}

/// What was bought at AWS Marketplace, as AWS says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// The account at AWS that pays.
    pub account: String,
    /// What was granted to it; each agreement has another one.
    pub license_arn: String,
}

impl Purchase {
    /// What tells its license apart from every other one.
    pub fn license(&self) -> &str {
        license_of(&self.license_arn)
    }
}

/// What tells a license apart, of its ARN: AWS writes the beginning of that differently in different places.
pub fn license_of(arn: &str) -> &str {
    arn.rsplit_once([':', '/']).map_or(arn, |(_, id)| id)
}

/// What AWS says became of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionNews {
    /// What tells its license apart.
    pub license: String,
    /// The same as AWS writes it here.
    pub license_arn: String,
    /// The account that pays.
    pub account: String,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// Whether it is over; else it goes on, or begins.
    pub is_end: bool,
}

/// What AWS is told that an organization used of something in an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRecord {
    /// What tells the license apart by which it pays.
    pub license: String,
    /// The same with all that AWS wants.
    pub license_arn: String,
    /// The account that pays.
    pub account: String,
    /// What the product calls what was used.
    pub dimension: String,
    /// When the hour began.
    pub hour: DateTime<Utc>,
    /// How much, with six decimals.
    pub quantity: String,
    /// What AWS said against it last.
    pub refused: Option<String>,
}

/// Hours after which AWS takes no usage, and the hour of the first day of a month from which on it takes none of the
/// month before.
const HOURS_MAX: i64 = 24;
const MONTH_CLOSES_AT: u32 = 6;

impl UsageRecord {
    /// When AWS takes it no more.
    pub fn deadline(&self) -> DateTime<Utc> {
        let by_age = self.hour + TimeDelta::hours(HOURS_MAX);
        let next = self.hour.date_naive() + TimeDelta::days(1);
        if next.month() == self.hour.month() {
            return by_age;
        }
        let closed = next.and_hms_opt(MONTH_CLOSES_AT, 0, 0).map(|time| time.and_utc());
        closed.map_or(by_age, |closed| closed.min(by_age))
    }
}

/// What somebody says they have subscribed to. It is their word: nothing is paid,
/// and nobody is let off paying, because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarketplaceRegistration {
    /// Where.
    pub marketplace: Marketplace,
    /// For which company.
    pub company_name: String,
    /// What the marketplace calls the customer.
    pub customer_id: String,
    /// What was subscribed to.
    pub product_id: String,
    /// The account at the cloud.
    pub account_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_takes_usage_for_a_day_and_of_a_month_until_six_on_the_first_of_the_next() {
        let deadline = |hour: &str| {
            let record = UsageRecord {
                license: String::new(),
                license_arn: String::new(),
                account: String::new(),
                dimension: String::new(),
                hour: hour.parse().expect("a time"),
                quantity: String::new(),
                refused: None,
            };
            record.deadline().to_rfc3339()
        };
        assert_eq!(deadline("2026-11-23T10:00:00Z"), "2026-11-24T10:00:00+00:00");
        assert_eq!(deadline("2026-11-30T23:00:00Z"), "2026-12-01T06:00:00+00:00");
        assert_eq!(deadline("2026-12-31T05:00:00Z"), "2027-01-01T05:00:00+00:00");
        assert_eq!(deadline("2028-02-28T23:00:00Z"), "2028-02-29T23:00:00+00:00");
    }

    #[test]
    fn a_license_is_the_same_however_its_arn_begins() {
        for arn in [
            "arn:aws:license-manager::294406891311:license:l-e52c",
            "aws:license-manager:us-east-1:123456789012:l-e52c",
            "l-e52c",
        ] {
            assert_eq!(license_of(arn), "l-e52c");
        }
    }
}
