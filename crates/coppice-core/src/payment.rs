//! What organizations pay with, and what follows from it.

use crate::organization::{BillingStatus, UsageTier};

/// Why an organization is disabled that has to say first what it pays with.
pub const NO_CARD: &str = "it needs a payment method: `coppice billing add-card`";

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

/// What an organization is after it was seen whether it has a card: its billing
/// status, and its tier where that changes. Without `is_required` nobody needs
/// one.
pub fn after_look(
    status: BillingStatus,
    had_card: bool,
    has_card: bool,
    is_required: bool,
) -> (BillingStatus, Option<UsageTier>) {
    let is_lost = had_card && !has_card;
    let status = match status {
        BillingStatus::NoPaymentMethod if has_card || !is_required => BillingStatus::Ok,
        BillingStatus::Ok if is_lost && is_required => BillingStatus::NoPaymentMethod,
        other => other,
    };
    let tier = match (had_card, has_card) {
        (false, true) => Some(UsageTier::T2),
        (true, false) => Some(UsageTier::T1),
        (true, true) | (false, false) => None,
    };
    (status, tier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_lifts_only_what_the_want_of_one_did_and_its_loss_counts_once() {
        use BillingStatus::{DeletionRequested, InvoiceOverdue, NoPaymentMethod, Ok};
        let after = |status, had, has| after_look(status, had, has, true);
        assert_eq!(after(NoPaymentMethod, false, true), (Ok, Some(UsageTier::T2)));
        assert_eq!(after(NoPaymentMethod, false, false), (NoPaymentMethod, None));
        assert_eq!(after(Ok, true, false), (NoPaymentMethod, Some(UsageTier::T1)));
        assert_eq!(after(Ok, true, true), (Ok, None), "what the operator said of its tier stays");
        assert_eq!(after(Ok, false, false), (Ok, None), "who was there before goes on");
        for status in [InvoiceOverdue, DeletionRequested, BillingStatus::Unknown] {
            assert_eq!(after(status, false, true).0, status);
            assert_eq!(after(status, true, false).0, status);
        }
        assert_eq!(after_look(Ok, true, false, false), (Ok, Some(UsageTier::T1)));
        assert_eq!(after_look(NoPaymentMethod, false, false, false), (Ok, None), "nobody needs one any more");
    }
}
