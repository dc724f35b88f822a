//! What follows for an organization from what its owner has subscribed to.

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use coppice_core::payment::{Means, after_look, reason};
use coppice_core::{Error, ErrorCode, OrganizationId, Result, UserId};
use coppice_store::{Store, Tx};

use crate::stripe::Stripe;

/// Bills organizations by subscriptions.
#[derive(Clone)]
pub(crate) struct Subscriptions {
    store: Store,
    stripe: Stripe,
}

impl Subscriptions {
    pub(crate) fn new(store: Store, stripe: Stripe) -> Self {
        Self { store, stripe }
    }

    /// Has an organization billed by what its user has taken, with all that follows from it; false when there is
    /// nothing. The organization must be locked by the transaction.
    pub(crate) async fn bill_in_tx(
        &self,
        tx: &mut Tx,
        taken: (&UserId, Option<&str>),
        id: &OrganizationId,
        from: DateTime<Utc>,
    ) -> Result<bool> {
        let had = self.store.means_in_tx(tx, id).await?;
        if !self.store.subscription_bind_in_tx(tx, taken, id, from).await? {
            return Ok(false);
        }
        tracing::info!("organization {id} is billed at AWS Marketplace from {from} on");
        self.apply_in_tx(tx, id, had).await?;
        Ok(true)
    }

    /// What follows for an organization from a subscription that began or ended.
    pub(super) async fn apply_in_tx(&self, tx: &mut Tx, id: &OrganizationId, had: Means) -> Result<()> {
        let Some(organization) = self.store.organization_lock_in_tx(tx, id).await? else { return Ok(()) };
        let has = self.store.means_in_tx(tx, id).await?;
        let before = organization.billing_status;
        let (status, tier) = after_look(before, had, has, self.stripe.requires_payment_method());
        if let Some(tier) = tier {
            self.store.organization_set_tier_in_tx(tx, id, tier).await?;
        }
        if status != before {
            tracing::info!("organization {id} is {} by its subscription at AWS", status.as_str());
            self.store.organization_set_billing_in_tx(tx, id, status, reason(status, has)).await?;
        }
        Ok(())
    }
}

/// When the hour began.
pub(crate) fn hour_of(time: DateTime<Utc>) -> DateTime<Utc> {
    time.duration_trunc(TimeDelta::hours(1)).unwrap_or(time)
}

/// Why a subscription does not pay for an organization.
pub(crate) fn used() -> Error {
    Error::Conflict {
        code: ErrorCode::AlreadyRegistered,
        public: "the subscription pays for an organization already, is somebody else's, or is over; or the \
                 organization has another one"
            .to_owned(),
    }
}
