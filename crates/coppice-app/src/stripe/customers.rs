//! What organizations are known as at Stripe, and the pages there that they are led to.

use coppice_core::payment::Card;
use coppice_core::{Error, ErrorCode, OrganizationId, Result};
use coppice_failpoint::failpoint;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Stripe;
use super::api::{Asked, StripeApi, StripeError};
use crate::Access;
use crate::asking::is_page;
use crate::attempts::STRIPE;

/// How often a customer is made for a page: the one there was may be gone.
const TRIES: u32 = 2;

/// How often a customer is told at most by one request that counts once: whoever says where invoices go all the time
/// would have it ask without end. Whoever says so later tells it, too.
const TELLS_MAX: u32 = 4;

/// Seconds after which it is looked what became of a page, should Stripe not say so.
const AFTER_PAGE: u32 = 900;

/// A page to be led to.
#[derive(Clone, Copy, Debug)]
pub enum BillingPage {
    /// Where a card is put on file.
    NewCard,
    /// Where cards are put on file, chosen and removed.
    Cards,
}

#[derive(Deserialize)]
struct Made {
    id: String,
}

#[derive(Deserialize)]
struct Session {
    url: String,
}

impl Stripe {
    /// What is asked when somebody pays.
    ///
    /// # Errors
    /// `billing_not_configured`
    pub(super) fn api(&self) -> Result<&StripeApi> {
        self.api
            .as_deref()
            .ok_or_else(|| Error::invalid(ErrorCode::BillingNotConfigured, "billing is not configured"))
    }

    /// Whether organizations can put something on file to pay with.
    pub fn is_there(&self) -> bool {
        self.api.is_some()
    }

    /// What the organization pays with; nothing where there is nothing to pay with.
    pub async fn card_on_file(&self, access: &Access) -> Result<Option<Card>> {
        if self.api.is_none() {
            return Ok(None);
        }
        let known = self.store.stripe_customer(&access.organization.id).await?;
        Ok(known.and_then(|customer| customer.card))
    }

    /// Where to go with a browser, to a page that is for this organization and
    /// for some minutes or hours.
    ///
    /// # Errors
    /// `billing_not_configured`, `rate_limited`, `provider_failed`
    pub async fn open_page(&self, access: &Access, page: BillingPage) -> Result<String> {
        let stripe = self.api()?;
        let organization = &access.organization;
        if self.store.subscription_is_active(&organization.id).await? {
            return Err(Error::invalid(
                ErrorCode::BillingNotConfigured,
                "this organization is billed through AWS Marketplace: what pays is chosen there",
            ));
        }
        self.count(&organization.id).await?;
        let mut tries = 1;
        let customer = loop {
            let id = self.customer_of(stripe, &organization.id).await?;
            match self.tell(stripe, &organization.id, &id, Some(&organization.name)).await? {
                Ok(()) => break id,
                Err(gone) if gone.is_missing() && tries < TRIES => {
                    self.forget_customer(&organization.id, &id).await?;
                    tries += 1;
                }
                Err(error) => return Err(error.into()),
            }
        };
        // Where the console says what is on file.
        let home = format!("{}/console/orgs/{}/usage", self.public_url, organization.id);
        let (customer, home) = (customer.as_str(), home.as_str());
        let session: Session = match page {
            BillingPage::NewCard => {
                let form = [
                    ("mode", "setup"),
                    ("customer", customer),
                    ("payment_method_types[0]", "card"),
                    ("success_url", home),
                    ("cancel_url", home),
                ];
                stripe.post(&["checkout", "sessions"], &form, "a page for a card").await?
            }
            BillingPage::Cards => {
                let form = [("customer", customer), ("return_url", home)];
                stripe.post(&["billing_portal", "sessions"], &form, "a page of the customer portal").await?
            }
        };
        if !is_page(&session.url) {
            return Err(StripeError::Away("what it leads to is no page of the web".to_owned()).into());
        }
        self.store.stripe_customer_look_by(&organization.id, AFTER_PAGE).await?;
        Ok(session.url)
    }

    /// Tells Stripe, if that knows the organization, where its letters and invoices go by now.
    ///
    /// # Errors
    /// `rate_limited`, `provider_failed`
    pub(crate) async fn tell_email(&self, organization: &OrganizationId) -> Result<()> {
        let Some(stripe) = self.api.as_deref() else { return Ok(()) };
        let known = self.store.stripe_customer(organization).await?;
        let Some(id) = known.and_then(|customer| customer.id) else { return Ok(()) };
        self.count(organization).await?;
        match self.tell(stripe, organization, &id, None).await? {
            Err(gone) if gone.is_missing() => self.forget_customer(organization, &id).await,
            told => told.map_err(Error::from),
        }
    }

    /// Tells Stripe where letters and invoices of the customer `id` go, and what it is called. If something else was
    /// said meanwhile, that is told as well: Stripe may have heard of it before.
    async fn tell(
        &self,
        stripe: &StripeApi,
        organization: &OrganizationId,
        id: &str,
        name: Option<&str>,
    ) -> Result<Asked<()>> {
        let path = ["customers", id];
        let mut email = self.store.billing_email(organization).await?;
        for _ in 0..TELLS_MAX {
            let told = [("email", email.as_str()), ("name", name.unwrap_or_default())];
            let told = if name.is_some() { &told[..] } else { &told[..1] };
            let done = stripe.post::<IgnoredAny>(&path, told, "telling it of a customer").await;
            if let Err(error) = done {
                return Ok(Err(error));
            }
            let now = self.store.billing_email(organization).await?;
            if now == email {
                return Ok(Ok(()));
            }
            email = now;
        }
        Ok(Ok(()))
    }

    /// Counts what Stripe is to be asked.
    async fn count(&self, organization: &OrganizationId) -> Result<()> {
        let holder = self.store.organization_holder(organization).await?;
        self.attempts.count(STRIPE, holder.as_str()).await
    }

    /// What Stripe knows the organization as: what was made for it, or is now.
    /// If a process ends in between, the next one is given the same.
    async fn customer_of(&self, stripe: &StripeApi, organization: &OrganizationId) -> Result<String> {
        let known = self.store.stripe_customer_begin(organization).await?;
        if let Some(id) = known.id {
            return Ok(id);
        }
        let key = format!("coppice-customer-{organization}-{}", known.number);
        let form = [("metadata[organization]", organization.as_str())];
        let made: Made = stripe.post_once(&key, &["customers"], &form, "making a customer").await?;
        failpoint!("stripe.customer");
        self.store.stripe_customer_made(organization, known.number, &made.id).await?;
        self.new_customer.notify_one();
        let known = self.store.stripe_customer_begin(organization).await?;
        known.id.ok_or_else(|| Error::internal("the customer that was made is gone already"))
    }
}
