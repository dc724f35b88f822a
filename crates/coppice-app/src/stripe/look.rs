//! What happens to a customer: a look at it as Stripe says it is now, and what follows for its organization. Any part
//! of it can be the last before a crash, and is found done or done again by the next look.

use std::time::Duration;

use coppice_core::payment::{Card, Means, after_look, reason};
use coppice_core::{OrganizationId, Result};
use coppice_failpoint::failpoint;
use coppice_store::{ClaimedCustomer, StripeFinding};
use futures_util::future::join_all;
use serde::Deserialize;

use super::Stripe;
use super::api::{Asked, StripeApi};

/// Customers that are looked at at the same time.
const AT_ONCE: u32 = 4;
/// How long a look may take: three questions.
const PATIENCE: Duration = Duration::from_secs(30);
/// After so many seconds somebody else may look.
const LEASE_SECONDS: u32 = 60;
/// Seconds until a customer is looked at that nobody says anything of.
const DAILY: u32 = 86_400;
/// Seconds until it is tried again what failed once, and the longest such pause.
const SOON: u32 = 2;
const PAUSE_MAX: u32 = 3600;
/// How often it is looked whether one is due of which nobody said anything.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
struct Customer {
    #[serde(default)]
    deleted: bool,
    invoice_settings: Option<Settings>,
}

#[derive(Deserialize)]
struct Settings {
    default_payment_method: Option<String>,
}

#[derive(Deserialize)]
struct Methods {
    data: Vec<Method>,
}

#[derive(Deserialize)]
struct Method {
    id: String,
    created: i64,
    card: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    brand: String,
    last4: String,
    exp_month: u32,
    exp_year: u32,
}

impl Method {
    /// What is kept of it, if it is a card.
    fn card(self) -> Option<Card> {
        let Self { id, card: Some(Details { brand, last4, exp_month, exp_year }), .. } = self else {
            return None;
        };
        Some(Card { id, brand, last4, expiry_month: exp_month, expiry_year: exp_year })
    }
}

impl Stripe {
    /// Looks at all customers that something is said of.
    pub(crate) async fn look_at_customers(&self) -> Result<()> {
        let Some(stripe) = self.api.as_deref() else { return Ok(()) };
        loop {
            let claimed = self.store.stripe_customers_claim(AT_ONCE, LEASE_SECONDS).await?;
            if claimed.is_empty() {
                return Ok(());
            }
            let looks = join_all(claimed.iter().map(|one| self.look_at_customer(stripe, one))).await;
            looks.into_iter().collect::<Result<()>>()?;
        }
    }

    async fn look_at_customer(&self, stripe: &StripeApi, claimed: &ClaimedCustomer) -> Result<()> {
        failpoint!("stripe.claimed");
        let found = tokio::time::timeout(PATIENCE, stripe.look(claimed)).await;
        let why = match found {
            Ok(Ok(finding)) => {
                failpoint!("stripe.looked");
                return self.apply_finding(claimed, &finding, stripe.config.is_required).await;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it takes too long".to_owned(),
        };
        tracing::warn!("the customer of organization {}: {why}", claimed.organization);
        let pause = SOON.saturating_mul(1 << claimed.attempts.min(11)).min(PAUSE_MAX);
        Ok(self.store.stripe_look_again(claimed, pause).await?)
    }

    /// Has an organization made a customer anew that Stripe knows no more.
    pub(super) async fn forget_customer(&self, organization: &OrganizationId, id: &str) -> Result<()> {
        let claimed = ClaimedCustomer {
            organization: organization.clone(),
            id: id.to_owned(),
            newest_card_at: 0,
            asked: 0,
            attempts: 0,
        };
        let is_required = self.api()?.config.is_required;
        self.apply_finding(&claimed, &StripeFinding::Gone, is_required).await
    }

    /// Writes down what is on file, with all that follows from it.
    async fn apply_finding(
        &self,
        claimed: &ClaimedCustomer,
        finding: &StripeFinding,
        is_required: bool,
    ) -> Result<()> {
        let id = &claimed.organization;
        let mut tx = self.store.begin().await?;
        let organization = self.store.organization_lock_in_tx(&mut tx, id).await?;
        let means = self.store.means_in_tx(&mut tx, id).await?;
        let had_card = self.store.stripe_looked_in_tx(&mut tx, claimed, finding, DAILY).await?;
        if let (Some(organization), Some(had_card)) = (organization, had_card) {
            let has_card = matches!(finding, StripeFinding::There { card: Some(_), .. });
            let (had, has) = (Means { has_card: had_card, ..means }, Means { has_card, ..means });
            let (status, tier) = after_look(organization.billing_status, had, has, is_required);
            if let Some(tier) = tier {
                self.store.organization_set_tier_in_tx(&mut tx, id, tier).await?;
                tracing::info!("organization {id} has {} card on file", if has_card { "a" } else { "no" });
            }
            if status != organization.billing_status {
                self.store.organization_set_billing_in_tx(&mut tx, id, status, reason(status, has)).await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// Whether an organization has to say what it pays with before it may run anything.
    pub(crate) fn requires_payment_method(&self) -> bool {
        self.api.as_deref().is_some_and(|stripe| stripe.config.is_required)
    }
}

impl StripeApi {
    /// What a customer pays with. A card that was never seen takes the place of the one before; if that is gone and
    /// there are others, whoever has them chooses.
    async fn look(&self, claimed: &ClaimedCustomer) -> Asked<StripeFinding> {
        let path = ["customers", claimed.id.as_str()];
        let customer: Customer = match self.get(&path, &[], "a customer").await {
            Err(error) if error.is_missing() => return Ok(StripeFinding::Gone),
            customer => customer?,
        };
        if customer.deleted {
            return Ok(StripeFinding::Gone);
        }
        let chosen = customer.invoice_settings.and_then(|settings| settings.default_payment_method);
        let query = [("customer", claimed.id.as_str()), ("type", "card"), ("limit", "100")];
        let mut methods =
            self.get::<Methods>(&["payment_methods"], &query, "the cards of a customer").await?.data;
        let newest = methods.iter().max_by_key(|method| method.created);
        let newest_at = newest.map_or(0, |method| method.created);
        let new = newest.filter(|_| newest_at > claimed.newest_card_at).map(|method| method.id.clone());
        if let Some(new) = new.as_deref().filter(|new| chosen.as_deref() != Some(*new)) {
            let form = [("invoice_settings[default_payment_method]", new)];
            self.post::<Customer>(&path, &form, "choosing a card").await?;
        }
        let chosen = new.or(chosen);
        let at = methods.iter().position(|method| chosen.as_deref() == Some(method.id.as_str()));
        Ok(StripeFinding::There {
            card: at.map(|at| methods.swap_remove(at)).and_then(Method::card),
            newest_card_at: newest_at.max(claimed.newest_card_at),
        })
    }
}
