//! What organizations pay with, and what follows from it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::organization::{BillingStatus, UsageTier};

/// Why an organization is disabled that has to say first what it pays with.
pub const NO_CARD: &str = "it needs a payment method: `coppice billing add-card`";
/// Why one is that a marketplace billed, and does no more.
pub const NOT_SUBSCRIBED: &str = "its subscription at AWS Marketplace is over: subscribe there again and choose this \
    organization, or put a card on file where there are cards (`coppice billing add-card`)";
/// Why one is that has an invoice that is not paid.
pub const OVERDUE: &str = "an invoice is overdue: `coppice invoice list` has it";

/// A card on file at the provider of payments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// What the provider knows it as.
    pub id: String,
    /// Whose: `visa`, for example.
    pub brand: String,
    /// Its last four digits.
    pub last4: String,
    /// The month in which it ends, 1 to 12.
    pub expiry_month: u32,
    /// The year in which it ends.
    pub expiry_year: u32,
}

/// Something that is paid before it is used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Credit {
    /// What the provider knows it as.
    pub id: String,
    /// What is left of it, in the currency of the invoices.
    pub balance: f64,
    /// What it was at most.
    pub initial_balance: f64,
    /// From when on it counts; always, without a time.
    pub effective_at: Option<DateTime<Utc>>,
    /// Until when; without an end, without a time.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether it is paid for.
    pub is_active: bool,
}

impl Credit {
    /// Whether it can be used at a time, and there is something to be used.
    pub fn is_usable(&self, now: DateTime<Utc>) -> bool {
        self.is_active && self.is_left(now) && self.effective_at.is_none_or(|from| from <= now)
    }

    /// Whether something is left that has not ended.
    pub fn is_left(&self, now: DateTime<Utc>) -> bool {
        self.balance > 0.0 && self.expires_at.is_none_or(|until| now < until)
    }
}

/// What an organization can be charged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Means {
    /// Whether a card is on file.
    pub has_card: bool,
    /// Whether credit can be used; none where there never was any.
    pub has_credit: Option<bool>,
    /// Whether a marketplace bills it; none where none ever did.
    pub has_subscription: Option<bool>,
}

impl Means {
    fn suffice(self) -> bool {
        self.has_card || self.has_credit == Some(true) || self.has_subscription == Some(true)
    }

    /// Who has used up a credit, or has ended a subscription, goes on with a card.
    fn are_needed(self, is_required: bool) -> bool {
        is_required || self.has_credit == Some(false) || self.has_subscription == Some(false)
    }
}

/// What an organization owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Debt {
    /// Nothing.
    Nothing,
    /// What is charged in time.
    Open,
    /// What could not be charged, or is not paid in time.
    Overdue,
}

/// What an organization is after it was seen what it can be charged by: its
/// billing status, and its tier where that changes. Without `is_required` only
/// who has used up a credit needs a card.
pub fn after_look(
    status: BillingStatus,
    had: Means,
    has: Means,
    is_required: bool,
) -> (BillingStatus, Option<UsageTier>) {
    let is_lost = had.suffice() && !has.suffice();
    let is_needed = has.are_needed(is_required);
    let status = match status {
        BillingStatus::NoPaymentMethod if has.suffice() || !is_needed => BillingStatus::Ok,
        BillingStatus::Ok if is_lost && is_needed => BillingStatus::NoPaymentMethod,
        other => other,
    };
    let tier = match (had.suffice(), has.suffice()) {
        (false, true) => Some(UsageTier::T2),
        (true, false) => Some(UsageTier::T1),
        (true, true) | (false, false) => None,
    };
    (status, tier)
}

/// What an organization is after it was seen what it owes. One that was overdue goes on when everything is paid,
/// and has what it can be charged by where that is needed.
pub fn after_invoices(status: BillingStatus, debt: Debt, has: Means, is_required: bool) -> BillingStatus {
    match (status, debt) {
        (BillingStatus::Ok, Debt::Overdue) => BillingStatus::InvoiceOverdue,
        (BillingStatus::InvoiceOverdue, Debt::Nothing) => {
            let is_wanting = has.are_needed(is_required) && !has.suffice();
            if is_wanting { BillingStatus::NoPaymentMethod } else { BillingStatus::Ok }
        }
        (other, _) => other,
    }
}

/// Why an organization of this status is disabled, for its members.
pub fn reason(status: BillingStatus, has: Means) -> &'static str {
    match status {
        BillingStatus::NoPaymentMethod if has.has_subscription == Some(false) => NOT_SUBSCRIBED,
        BillingStatus::NoPaymentMethod => NO_CARD,
        BillingStatus::InvoiceOverdue => OVERDUE,
        BillingStatus::Ok | BillingStatus::Unknown | BillingStatus::DeletionRequested => "",
    }
}

#[cfg(test)]
mod tests {
    use BillingStatus::{DeletionRequested, InvoiceOverdue, NoPaymentMethod, Ok, Unknown};

    use super::*;

    fn means(has_card: bool, has_credit: Option<bool>) -> Means {
        Means { has_card, has_credit, has_subscription: None }
    }

    #[test]
    fn a_card_lifts_only_what_the_want_of_one_did_and_its_loss_counts_once() {
        let after = |status, had, has| after_look(status, means(had, None), means(has, None), true);
        assert_eq!(after(NoPaymentMethod, false, true), (Ok, Some(UsageTier::T2)));
        assert_eq!(after(NoPaymentMethod, false, false), (NoPaymentMethod, None));
        assert_eq!(after(Ok, true, false), (NoPaymentMethod, Some(UsageTier::T1)));
        assert_eq!(after(Ok, true, true), (Ok, None), "what the operator said of its tier stays");
        assert_eq!(after(Ok, false, false), (Ok, None), "who was there before goes on");
        for status in [InvoiceOverdue, DeletionRequested, Unknown] {
            assert_eq!(after(status, false, true).0, status);
            assert_eq!(after(status, true, false).0, status);
        }
        let freely = |status, had| after_look(status, means(had, None), means(false, None), false);
        assert_eq!(freely(Ok, true), (Ok, Some(UsageTier::T1)));
        assert_eq!(freely(NoPaymentMethod, false), (Ok, None), "nobody needs one any more");
    }

    #[test]
    fn credit_is_as_good_as_a_card_until_it_is_used_up() {
        let after = |status, had, has, is_required| after_look(status, had, has, is_required);
        let (credit, nothing) = (means(false, Some(true)), means(false, None));
        let used_up = means(false, Some(false));
        assert_eq!(after(NoPaymentMethod, nothing, credit, true), (Ok, Some(UsageTier::T2)));
        for is_required in [true, false] {
            let stopped = after(Ok, credit, used_up, is_required);
            assert_eq!(stopped, (NoPaymentMethod, Some(UsageTier::T1)), "whoever used it up");
            assert_eq!(after(NoPaymentMethod, used_up, used_up, is_required).0, NoPaymentMethod);
            let with_card = means(true, Some(false));
            assert_eq!(after(NoPaymentMethod, used_up, with_card, is_required).0, Ok);
            assert_eq!(after(Ok, means(true, Some(true)), with_card, is_required), (Ok, None));
        }
    }

    #[test]
    fn a_subscription_is_as_good_as_a_card_until_it_is_over() {
        let of = |has_card, has_subscription| Means { has_card, has_subscription, ..Means::default() };
        for is_required in [true, false] {
            let after = |status, had, has| after_look(status, had, has, is_required);
            let (never, active, over) = (of(false, None), of(false, Some(true)), of(false, Some(false)));
            assert_eq!(after(Ok, active, over), (NoPaymentMethod, Some(UsageTier::T1)));
            assert_eq!(after(NoPaymentMethod, over, over).0, NoPaymentMethod, "nothing lifts it by itself");
            assert_eq!(after(NoPaymentMethod, over, active), (Ok, Some(UsageTier::T2)));
            assert_eq!(after(NoPaymentMethod, over, of(true, Some(false))).0, Ok);
            assert_eq!(after(Ok, of(true, Some(true)), over).0, NoPaymentMethod);
            assert_eq!(after(Ok, of(true, Some(true)), active), (Ok, None), "a card goes, AWS stays");
            assert_eq!(after(Ok, never, active), (Ok, Some(UsageTier::T2)));
            assert_eq!(after(DeletionRequested, active, over).0, DeletionRequested);
            assert!(reason(NoPaymentMethod, over).contains("AWS Marketplace"));
        }
    }

    #[test]
    fn an_overdue_invoice_disables_until_nothing_is_owed_any_more() {
        let card = means(true, None);
        let after = |status, debt, has| after_invoices(status, debt, has, true);
        assert_eq!(after(Ok, Debt::Open, card), Ok);
        assert_eq!(after(Ok, Debt::Overdue, card), InvoiceOverdue);
        assert_eq!(after(InvoiceOverdue, Debt::Overdue, card), InvoiceOverdue);
        assert_eq!(after(InvoiceOverdue, Debt::Open, card), InvoiceOverdue, "another one is still open");
        assert_eq!(after(InvoiceOverdue, Debt::Nothing, card), Ok);
        assert_eq!(after(InvoiceOverdue, Debt::Nothing, means(false, None)), NoPaymentMethod);
        for status in [NoPaymentMethod, DeletionRequested, Unknown] {
            assert_eq!(after(status, Debt::Overdue, card), status);
            assert_eq!(after(status, Debt::Nothing, card), status);
        }
    }
}
