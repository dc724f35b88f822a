//! Budgets: what may be used in a month before branches are put to sleep.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

use crate::amount::Decimal;
use crate::{Error, ErrorCode};

/// What a budget counts where nobody is charged: hours of instances that were
/// to be awake, whatever their size.
pub const INSTANCE_HOURS: &str = "instance-hours";
/// Parts of a budget, in percent, that are told when they are reached. At the
/// last one branches are put to sleep.
pub const THRESHOLDS: [u32; 3] = [50, 80, USED_UP];
/// All of it.
pub const USED_UP: u32 = 100;

/// Whose use a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetCovers {
    /// Of every branch of an organization.
    Organization,
    /// Of every branch of a project.
    Project,
    /// Of one branch.
    Branch,
    /// Of the branches that were made with a key.
    Key,
}

names!(BudgetCovers { Organization = "organization", Project = "project", Branch = "branch", Key = "key" });

/// Reads a limit: more than zero, with at most nine digits before the point and
/// six after it, zeros right after it not counted.
pub fn limit(text: &str) -> Option<Decimal> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |part: &str, most: usize| {
        (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_limit = match whole {
        "0" => {
            let digits = fraction.trim_start_matches('0');
            fraction.len() - digits.len() <= 5 && are_digits(digits, 6)
        }
        _ => !whole.starts_with('0') && are_digits(whole, 9) && are_digits(fraction, 6),
    };
    text.parse().ok().filter(|_| is_limit)
}

/// The greatest part that is reached, of [`THRESHOLDS`]; 0 when none is.
pub fn reached(used: &Decimal, limit: &Decimal) -> u32 {
    let is_reached = |part: &u32| used * Decimal::from(100) >= limit * Decimal::from(*part);
    THRESHOLDS.into_iter().rev().find(is_reached).unwrap_or_default()
}

/// A budget that keeps a branch asleep, as whoever wants to wake it is told. It
/// names nothing: who may connect to a branch need not know its organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedUp {
    /// Whose use it counts.
    pub covers: BudgetCovers,
    /// How much there was.
    pub limit: String,
    /// Of what.
    pub unit: String,
    /// The day in UTC on which it begins anew.
    pub until: NaiveDate,
}

impl UsedUp {
    /// Why the branch sleeps.
    pub fn reason(&self) -> String {
        let whose = match self.covers {
            BudgetCovers::Organization => "the budget of its organization",
            BudgetCovers::Project => "the budget of its project",
            BudgetCovers::Branch => "its own budget",
            BudgetCovers::Key => "the budget of the key that it was made with",
        };
        format!("{whose}, {} {} a month, is used up", self.limit, self.unit)
    }

    /// What can be done about it, and by whom.
    pub fn remedy(&self) -> String {
        format!(
            "The owner or an admin of the organization can raise it (coppice budget set); it begins anew on {} (UTC).",
            self.until
        )
    }

    /// What whoever wants a branch to be awake is told.
    pub fn error(&self) -> Error {
        Error::Forbidden {
            code: ErrorCode::BudgetReached,
            public: format!("the branch has to sleep: {}. {}", self.reason(), self.remedy()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_plain_decimal_greater_than_zero() {
        for text in ["1", "20.00", "0.5", "0.50", "0.000001", "999999999.999999"] {
            assert_eq!(limit(text).map(|limit| limit.to_plain_string()).as_deref(), Some(text));
        }
        for text in [
            "",
            "0",
            "0.0",
            "-1",
            "+1",
            "01",
            "1.",
            ".5",
            "1e3",
            "1,5",
            "NaN",
            "1000000000",
            "1.0000001",
            " 1",
        ] {
            assert_eq!(limit(text), None, "{text}");
        }
    }

    #[test]
    fn a_part_is_reached_exactly_where_it_is_and_the_greatest_one_counts() {
        let of = |used: &str, limit: &str| {
            reached(&used.parse().expect("a number"), &limit.parse().expect("a number"))
        };
        assert_eq!([of("0", "20"), of("9.999999", "20"), of("10.00", "20")], [0, 0, 50]);
        assert_eq!([of("15.999999", "20"), of("16", "20"), of("19.999999", "20")], [50, 80, 80]);
        assert_eq!([of("20", "20.000"), of("1000000", "20"), of("-1", "20")], [100, 100, 0]);
    }
}
