//! What happens to an organization: a look at it as Orb says it is now, and what follows. Any part of it can be the
//! last before a crash, and is found done or done again by the next look.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use coppice_core::organization::BillingStatus;
use coppice_core::payment::{Credit, Debt, after_invoices, after_look, reason};
use coppice_core::{OrganizationId, Result};
use coppice_failpoint::failpoint;
use coppice_store::{OrbFinding, OrbSubject};
use futures_util::future::join_all;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::Orb;
use super::api::{Asked, OrbApi, OrbError, Page};
use super::invoices::is_owed;

/// Organizations that are looked at at the same time.
const AT_ONCE: u32 = 4;
/// How long a look may take: some questions.
const PATIENCE: Duration = Duration::from_secs(45);
/// After so many seconds somebody else may look.
const LEASE_SECONDS: u32 = 90;
/// Seconds until an organization is looked at that nobody says anything of.
const DAILY: u32 = 86_400;
/// The same of one that ends.
const WHILE_IT_ENDS: u32 = 300;
/// Seconds until it is tried again what failed once, and the longest such pause.
const SOON: u32 = 2;
const PAUSE_MAX: u32 = 3600;
/// How often it is looked whether one is due of which nobody said anything.
pub(crate) const LOOK: Duration = Duration::from_secs(5);
/// Most parts of a list that are read.
const PAGES_MAX: usize = 5;
/// Most rows of one.
pub(super) const ROWS_MAX: &str = "100";
/// How Orb charges by what is on file at Stripe.
const BY_STRIPE: &str = "stripe_charge";

#[derive(Deserialize)]
struct Customer {
    id: String,
    name: String,
    email: String,
    payment_provider: Option<String>,
    payment_provider_id: Option<String>,
}

#[derive(Deserialize)]
struct Subscription {
    id: String,
    status: String,
}

#[derive(Deserialize)]
struct Block {
    id: String,
    balance: f64,
    maximum_initial_balance: Option<f64>,
    effective_date: Option<DateTime<Utc>>,
    expiry_date: Option<DateTime<Utc>>,
    status: String,
}

#[derive(Deserialize)]
struct Owed {
    status: String,
    amount_due: String,
    due_date: Option<DateTime<Utc>>,
    payment_failed_at: Option<DateTime<Utc>>,
}

impl Orb {
    /// Looks at all organizations that something is said of.
    pub(crate) async fn look_at_organizations(&self) -> Result<()> {
        let Some(orb) = self.api.as_deref() else { return Ok(()) };
        loop {
            let claimed = self.store.orb_customers_claim(AT_ONCE, LEASE_SECONDS).await?;
            if claimed.is_empty() {
                return Ok(());
            }
            let looks = join_all(claimed.iter().map(|one| self.look_at_organization(orb, one))).await;
            looks.into_iter().collect::<Result<()>>()?;
        }
    }

    async fn look_at_organization(&self, orb: &OrbApi, subject: &OrbSubject) -> Result<()> {
        failpoint!("orb.claimed");
        let found = tokio::time::timeout(PATIENCE, orb.look(subject, Utc::now())).await;
        let why = match found {
            Ok(Ok((finding, debt))) => {
                failpoint!("orb.looked");
                return self.apply_finding(subject, &finding, debt).await;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it takes too long".to_owned(),
        };
        tracing::warn!("organization {} at Orb: {why}", subject.organization);
        let pause = SOON.saturating_mul(1 << subject.attempts.min(11)).min(PAUSE_MAX);
        Ok(self.store.orb_look_again(subject, pause).await?)
    }

    /// Writes down what was found, with all that follows from it.
    async fn apply_finding(&self, subject: &OrbSubject, finding: &OrbFinding, debt: Debt) -> Result<()> {
        let (id, is_required) = (&subject.organization, self.stripe.requires_payment_method());
        let mut tx = self.store.begin().await?;
        let organization = self.store.organization_lock_in_tx(&mut tx, id).await?;
        let had = self.store.means_in_tx(&mut tx, id).await?;
        let again = match (subject.is_ending, finding.is_settled) {
            (false, _) => Some(DAILY),
            (true, false) => Some(WHILE_IT_ENDS),
            (true, true) => None,
        };
        self.store.orb_looked_in_tx(&mut tx, subject, finding, again).await?;
        let has = self.store.means_in_tx(&mut tx, id).await?;
        let mut is_to_end = false;
        if let Some(organization) = organization {
            let before = organization.billing_status;
            let (status, tier) = after_look(before, had, has, is_required);
            let status = after_invoices(status, debt, has, is_required);
            if let Some(tier) = tier {
                self.store.organization_set_tier_in_tx(&mut tx, id, tier).await?;
            }
            if status != before {
                tracing::info!("organization {id} is {} by what Orb says", status.as_str());
                self.store.organization_set_billing_in_tx(&mut tx, id, status, reason(status, has)).await?;
            }
            is_to_end = status == BillingStatus::DeletionRequested && finding.is_settled;
        }
        tx.commit().await?;
        if is_to_end {
            self.deletions.do_one(id).await?;
        }
        Ok(())
    }

    /// Has Orb be told from now on what is used, or no more.
    ///
    /// # Errors
    /// `unavailable`
    pub async fn set_up(&self) -> Result<()> {
        Ok(self.store.orb_set_up(self.api.is_some()).await?)
    }
}

impl OrbApi {
    /// Has an organization be there as it should, and says how it stands.
    async fn look(&self, subject: &OrbSubject, now: DateTime<Utc>) -> Asked<(OrbFinding, Debt)> {
        let Some(customer_id) = self.customer(subject).await? else {
            return Ok((nobody(), Debt::Nothing));
        };
        let subscription_id = self.subscription(subject).await?;
        let credits = self.credits(&subject.organization).await?;
        let (debt, has_drafts) = self.debt(&subject.organization, now).await?;
        let is_over = subject.is_sent && subscription_id.is_none();
        let finding = OrbFinding {
            customer_id: Some(customer_id),
            subscription_id,
            has_credit: (!credits.is_empty()).then(|| credits.iter().any(|credit| credit.is_usable(now))),
            credits,
            is_settled: subject.is_ending && is_over && debt == Debt::Nothing && !has_drafts,
        };
        Ok((finding, debt))
    }

    /// The customer of an organization: as it is called here, charged by what is on file at Stripe. One that ends
    /// without having been there needs none any more.
    async fn customer(&self, subject: &OrbSubject) -> Asked<Option<String>> {
        let organization = subject.organization.as_str();
        let path = ["customers", "external_customer_id", organization];
        let found: Option<Customer> = self.find(&path, &[], "a customer").await?;
        let Some(customer) = found else {
            if subject.is_ending && subject.customer_id.is_none() && subject.is_sent {
                return Ok(None);
            }
            let mut told = json!({
                "external_customer_id": organization,
                "name": subject.name,
                "email": subject.email,
                "auto_collection": true,
            });
            if let Some(id) = &subject.stripe_id {
                told["payment_provider"] = json!(BY_STRIPE);
                told["payment_provider_id"] = json!(id);
            }
            // What Orb has for a key it has for a day or so; one that is told otherwise is another request.
            let key = format!("coppice-customer-{organization}-{}", subject.asked);
            let made: Customer = self.post(&key, (&["customers"], &[]), &told, "making a customer").await?;
            failpoint!("orb.customer");
            return Ok(Some(made.id));
        };
        let mut told = json!({});
        if customer.name != subject.name {
            told["name"] = json!(subject.name);
        }
        if customer.email != subject.email && !subject.email.is_empty() {
            told["email"] = json!(subject.email);
        }
        if let Some(id) = &subject.stripe_id
            && (customer.payment_provider.as_deref(), &customer.payment_provider_id)
                != (Some(BY_STRIPE), &Some(id.clone()))
        {
            told["payment_provider"] = json!(BY_STRIPE);
            told["payment_provider_id"] = json!(id);
        }
        if told.as_object().is_some_and(|told| !told.is_empty()) {
            self.put::<IgnoredAny>(&path, &told, "telling it of a customer").await?;
        }
        Ok(Some(customer.id))
    }

    /// The subscription that is not over. One who never had any gets one; of one who ends it is over when all
    /// usage is there.
    async fn subscription(&self, subject: &OrbSubject) -> Asked<Option<String>> {
        let organization = subject.organization.as_str();
        let query = [("external_customer_id[]", organization), ("limit", ROWS_MAX)];
        let all: Page<Subscription> =
            self.get(&["subscriptions"], &query, "the subscriptions of a customer").await?;
        let current = all.data.iter().find(|one| one.status != "ended");
        match current {
            Some(current) if subject.is_ending && subject.is_sent => {
                let key = format!("coppice-end-{}-{}", current.id, subject.asked);
                let path = ["subscriptions", current.id.as_str(), "cancel"];
                let body = json!({ "cancel_option": "immediate" });
                self.post::<IgnoredAny>(&key, (&path, &[]), &body, "ending a subscription").await?;
                failpoint!("orb.ended");
                Ok(None)
            }
            Some(current) => Ok(Some(current.id.clone())),
            None if all.data.is_empty() && !(subject.is_ending && subject.is_sent) => {
                let body = json!({
                    "external_customer_id": organization,
                    "external_plan_id": self.config.plan,
                    "start_date": subject.billed_from.to_rfc3339_opts(SecondsFormat::Secs, true),
                });
                let key = format!("coppice-subscription-{organization}");
                let made: Subscription =
                    self.post(&key, (&["subscriptions"], &[]), &body, "making a subscription").await?;
                Ok(Some(made.id))
            }
            None => Ok(None),
        }
    }

    /// What is paid already, also what is used up.
    async fn credits(&self, organization: &OrganizationId) -> Asked<Vec<Credit>> {
        let path = ["customers", "external_customer_id", organization.as_str(), "credits"];
        let (mut credits, mut cursor) = (vec![], String::new());
        for _ in 0..PAGES_MAX {
            let mut query = vec![("include_all_blocks", "true"), ("limit", ROWS_MAX)];
            if !cursor.is_empty() {
                query.push(("cursor", &cursor));
            }
            let page: Page<Block> = self.get(&path, &query, "the credits of a customer").await?;
            credits.extend(page.data.into_iter().map(Block::credit));
            match page.pagination_metadata.next_cursor {
                Some(next) if page.pagination_metadata.has_more => cursor = next,
                _ => break,
            }
        }
        Ok(credits)
    }

    /// What is owed, and whether there are invoices that are still to be issued.
    async fn debt(&self, organization: &OrganizationId, now: DateTime<Utc>) -> Asked<(Debt, bool)> {
        let query = [
            ("external_customer_id", organization.as_str()),
            ("status[]", "issued"),
            ("status[]", "draft"),
            ("limit", ROWS_MAX),
        ];
        let invoices: Page<Owed> = self.get(&["invoices"], &query, "what a customer owes").await?;
        let (mut debt, mut has_drafts) = (Debt::Nothing, false);
        for invoice in invoices.data {
            if !is_owed(&invoice.amount_due).map_err(OrbError::Away)? {
                continue;
            }
            let is_late =
                invoice.payment_failed_at.is_some() || invoice.due_date.is_some_and(|due| due < now);
            match (invoice.status.as_str(), is_late) {
                ("issued", true) => debt = Debt::Overdue,
                ("issued", false) => debt = debt.max(Debt::Open),
                ("draft", _) => has_drafts = true,
                _ => {}
            }
        }
        Ok((debt, has_drafts))
    }
}

/// Of an organization that ended before Orb knew it.
fn nobody() -> OrbFinding {
    OrbFinding {
        customer_id: None,
        subscription_id: None,
        credits: vec![],
        has_credit: None,
        is_settled: true,
    }
}

impl Block {
    fn credit(self) -> Credit {
        Credit {
            id: self.id,
            balance: self.balance,
            initial_balance: self.maximum_initial_balance.unwrap_or(self.balance),
            effective_at: self.effective_date,
            expires_at: self.expiry_date,
            is_active: self.status == "active",
        }
    }
}
