//! What organizations are asked for by the operator's price list.

use std::sync::Arc;

use chrono::{DateTime, Datelike as _, NaiveTime, TimeDelta, Utc};
use coppice_core::amount::{Decimal, Whole, rounded};
use coppice_core::instance_type::InstanceType;
use coppice_core::invoice::{InvoiceContent, InvoiceLine, InvoiceStatus};
use coppice_core::organization::BillingStatus;
use coppice_core::payment::{Credit, after_look};
use coppice_core::price_list::{PriceList, cost, month_of, next_month, per_priced_unit};
use coppice_core::usage::Meter;
use coppice_core::{Error, ErrorCode, InvoiceId, OrganizationId, Result};
use coppice_store::{Invoice, MissingInvoice, Store, UsageGrouping, UsageQuery, UsageRow};

use crate::Access;
use crate::attempts::{Attempts, ORB};
use crate::orb::OrbApi;
use crate::rows::{lock_in_tx, lock_organization_in_tx};
use crate::secrets::MasterKey;
use crate::stripe::Stripe;

/// Decimals of a quantity.
const QUANTITY_DECIMALS: u32 = 6;
/// Most projects times what they use, that an invoice has lines for.
const LINES_MAX: u32 = 100_000;

/// What is asked for a month that is not over. Amounts are exact texts.
#[derive(Clone, Debug)]
pub struct UpcomingInvoice {
    /// When the month began.
    pub began_at: DateTime<Utc>,
    /// When it is over.
    pub target: DateTime<Utc>,
    /// What is to be paid.
    pub amount_due: String,
    /// The sum of what was used.
    pub subtotal: String,
    /// The same with what comes on top.
    pub total: String,
    /// ISO 4217.
    pub currency: String,
    /// Where it can be seen, if anywhere.
    pub page: Option<String>,
}

/// An invoice in a list.
#[derive(Clone, Debug)]
pub struct InvoiceSummary {
    /// The invoice's id at its issuer.
    pub id: String,
    /// What the customer knows it as.
    pub number: String,
    /// What is to be paid, an exact text.
    pub amount_due: String,
    /// ISO 4217.
    pub currency: String,
    /// When it was made.
    pub date: DateTime<Utc>,
    /// What became of it.
    pub status: InvoiceStatus,
    /// Where it is as PDF, if anywhere.
    pub pdf: Option<String>,
}

/// Some of an organization's invoices.
#[derive(Clone, Debug)]
pub struct InvoicePage {
    /// The newest first.
    pub invoices: Vec<InvoiceSummary>,
    /// Goes on with older ones.
    pub next_cursor: Option<String>,
}

/// What organizations are asked for.
#[derive(Clone)]
pub struct Billing {
    store: Store,
    /// What is charged, if anybody is.
    prices: Option<PriceList>,
    /// Who makes the invoices, if not the platform.
    orb: Option<Arc<OrbApi>>,
    stripe: Stripe,
    attempts: Attempts,
}

impl Billing {
    pub(crate) fn new(
        (store, key): (Store, Arc<MasterKey>),
        prices: Option<PriceList>,
        orb: Option<Arc<OrbApi>>,
        stripe: Stripe,
    ) -> Self {
        let attempts = Attempts::new(store.clone(), key);
        Self { store, prices, orb, stripe, attempts }
    }

    /// Counts what Orb is to be asked.
    async fn count(&self, organization: &OrganizationId) -> Result<()> {
        let holder = self.store.organization_holder(organization).await?;
        self.attempts.count(ORB, holder.as_str()).await
    }

    /// Whether anybody is charged here.
    pub fn has_invoices(&self) -> bool {
        self.prices.is_some() || self.orb.is_some()
    }

    /// What the organization has paid already, also what is used up.
    pub async fn credits(&self, access: &Access) -> Result<Vec<Credit>> {
        match &self.orb {
            None => Ok(vec![]),
            Some(_) => Ok(self.store.orb_credits(&access.organization.id).await?),
        }
    }

    /// What an instance type costs for an hour, and a GiB of storage for a month, by the price list; nothing without one.
    pub fn rates_of(&self, kind: &InstanceType) -> (f64, f64) {
        let now = Utc::now();
        let rate = |meter| {
            let price = self.prices.as_ref()?.unit_price(meter, &kind.name, now)?;
            price.to_plain_string().parse::<f64>().ok()
        };
        (rate(Meter::Awake).unwrap_or_default(), rate(Meter::Storage).unwrap_or_default())
    }

    /// Where invoices of the organization go.
    pub async fn email(&self, access: &Access) -> Result<String> {
        Ok(self.store.billing_email(&access.organization.id).await?)
    }

    /// Says where they go. Stripe is told afterwards, so nothing of who has lost the right to it by then.
    ///
    /// # Errors
    /// `rate_limited`, `provider_failed`; nothing is changed then.
    pub async fn set_email(&self, access: &Access, email: &str) -> Result<String> {
        let id = &access.organization.id;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let before = self.store.billing_set_email_in_tx(&mut tx, id, email).await?;
        tx.commit().await?;
        if let Err(error) = self.stripe.tell_email(id).await {
            let mut tx = self.store.begin().await?;
            lock_organization_in_tx(&self.store, &mut tx, id).await?;
            self.store.billing_take_back_email_in_tx(&mut tx, id, email, before.as_deref()).await?;
            tx.commit().await?;
            return Err(error);
        }
        Ok(email.to_owned())
    }

    /// Invoices of the organization, those after the cursor.
    ///
    /// # Errors
    /// `invalid_cursor`, `provider_failed`
    pub async fn list_invoices(
        &self,
        access: &Access,
        cursor: Option<&str>,
        count_max: u32,
    ) -> Result<InvoicePage> {
        let organization = &access.organization.id;
        if let Some(orb) = &self.orb {
            self.count(organization).await?;
            return orb.list_invoices(organization, cursor, count_max).await;
        }
        let after = match cursor {
            None => None,
            Some(cursor) => {
                let last = self.store.invoice_find(organization, &InvoiceId::from_trusted(cursor)).await?;
                let unknown = || Error::invalid(ErrorCode::InvalidCursor, "invalid cursor");
                Some(last.ok_or_else(unknown)?.number)
            }
        };
        let mut invoices = self.store.invoice_list(organization, after, count_max + 1).await?;
        let has_more = invoices.len() > count_max as usize;
        invoices.truncate(count_max as usize);
        let next_cursor = invoices.last().filter(|_| has_more).map(|last| last.id.to_string());
        Ok(InvoicePage { invoices: invoices.into_iter().map(summary).collect(), next_cursor })
    }

    /// An invoice of the organization.
    ///
    /// # Errors
    /// `invoice_not_found`
    pub async fn find_invoice(&self, organization: &OrganizationId, id: &InvoiceId) -> Result<Invoice> {
        let found = self.store.invoice_find(organization, id).await?;
        let public = || format!("invoice {id} not found");
        found.ok_or_else(|| Error::NotFound { code: ErrorCode::InvoiceNotFound, public: public() })
    }

    /// What this month would cost if it were over now.
    ///
    /// # Errors
    /// `invoice_not_found` when nobody is charged here; `provider_failed`.
    pub async fn upcoming(&self, access: &Access) -> Result<UpcomingInvoice> {
        let none = || {
            let public = "no upcoming invoice".to_owned();
            Error::NotFound { code: ErrorCode::InvoiceNotFound, public }
        };
        if let Some(orb) = &self.orb {
            let id = &access.organization.id;
            let subscription = self.store.orb_subscription(id).await?.ok_or_else(none)?;
            self.count(id).await?;
            return orb.upcoming_invoice(id, &subscription).await?.ok_or_else(none);
        }
        let prices = self.prices.as_ref().ok_or_else(none)?;
        let began_at = month_of(Utc::now());
        let organization = &access.organization;
        let of = MissingInvoice {
            organization: organization.id.clone(),
            name: organization.name.clone(),
            was_there: !self.store.subscription_is_active(&organization.id).await?,
        };
        let content = self.invoice_content(prices, &of, began_at).await?;
        Ok(UpcomingInvoice {
            began_at,
            target: next_month(began_at),
            amount_due: content.total.clone(),
            subtotal: content.total.clone(),
            total: content.total,
            currency: content.currency,
            page: None,
        })
    }

    /// Makes the invoices of months that are over and sealed. One that is
    /// interrupted goes on where it was: there is one of each organization and
    /// month.
    ///
    /// # Errors
    /// `unavailable`
    pub async fn issue_invoices(&self) -> Result<()> {
        // Who has prices and Orb shows costs by the one, and charges by the other.
        let Some(prices) = self.prices.as_ref().filter(|_| self.orb.is_none()) else { return Ok(()) };
        while let Some(month) = self.store.invoice_month_due().await? {
            let began_at = month.and_time(NaiveTime::MIN).and_utc();
            for of in self.store.invoice_missing(month).await? {
                let content = self.invoice_content(prices, &of, began_at).await?;
                let id = of.organization;
                if content.lines.is_empty() {
                    continue;
                }
                let invoice = InvoiceId::generate(Utc::now());
                if self.store.invoice_insert(&invoice, &id, month, &content).await? {
                    tracing::info!("organization {id} has the invoice {invoice} of {month}");
                }
            }
            self.store.invoice_month_done(month).await?;
        }
        Ok(())
    }

    /// Enables organizations that wait for something to pay with where nobody
    /// needs that any more, and those with an invoice of Orb's where that makes
    /// none any more.
    ///
    /// # Errors
    /// `unavailable`
    pub async fn lift_payment_requirement(&self) -> Result<()> {
        for id in self.store.organization_list_unpaid().await? {
            let mut tx = self.store.begin().await?;
            if let Some(organization) = self.store.organization_lock_in_tx(&mut tx, &id).await? {
                let has = self.store.means_in_tx(&mut tx, &id).await?;
                let status = match organization.billing_status {
                    BillingStatus::InvoiceOverdue if self.orb.is_none() => BillingStatus::Ok,
                    status => after_look(status, has, has, self.stripe.requires_payment_method()).0,
                };
                if status != organization.billing_status {
                    self.store.organization_set_billing_in_tx(&mut tx, &id, status, "").await?;
                }
            }
            tx.commit().await?;
        }
        Ok(())
    }

    async fn invoice_content(
        &self,
        prices: &PriceList,
        of: &MissingInvoice,
        month: DateTime<Utc>,
    ) -> Result<InvoiceContent> {
        let (end, organization) = (next_month(month), &of.organization);
        let boundaries = prices.boundaries(month, end);
        let query = UsageQuery {
            organization,
            from: month,
            to: end,
            grouping: UsageGrouping { by_project: true, ..UsageGrouping::default() },
            boundaries: &boundaries,
            is_own_only: self.store.subscription_exists(organization).await?,
            rows_max: LINES_MAX,
        };
        let rows = self.store.usage_report(&query).await?;
        if rows.len() == LINES_MAX as usize {
            return Err(Error::internal(format!("the invoice of {organization} has too many lines")));
        }
        let mut lines = vec![];
        for row in rows {
            let from = began(&boundaries, &row);
            if let Some(price) = prices.unit_price(row.meter, &row.instance_type, from) {
                lines.push(usage_line(prices, &row, price, from)?);
            }
        }
        if of.was_there {
            lines.extend(fixed_lines(prices, month));
        }
        let total: Decimal = lines.iter().map(|(_, amount)| amount).sum();
        Ok(InvoiceContent {
            issuer: prices.issuer.clone(),
            customer: of.name.clone(),
            email: self.store.billing_email(organization).await?,
            currency: prices.currency.clone(),
            lines: lines.into_iter().map(|(line, _)| line).collect(),
            total: total.with_scale(i64::from(prices.decimals)).to_plain_string(),
        })
    }
}

/// What the customer knows an invoice of ours as.
pub fn invoice_number(invoice: &Invoice) -> String {
    format!("{}-{:06}", invoice.month.year(), invoice.number)
}

fn summary(invoice: Invoice) -> InvoiceSummary {
    InvoiceSummary {
        number: invoice_number(&invoice),
        id: invoice.id.to_string(),
        amount_due: invoice.content.total,
        currency: invoice.content.currency,
        date: invoice.issued_at,
        status: InvoiceStatus::Issued,
        pdf: None,
    }
}

/// When the part of the time began in which a row was used.
pub(crate) fn began(boundaries: &[DateTime<Utc>], row: &UsageRow) -> DateTime<Utc> {
    let first = boundaries.first().copied().unwrap_or_default();
    row.period.checked_sub(1).and_then(|index| boundaries.get(index).copied()).unwrap_or(first)
}

fn usage_line(
    prices: &PriceList,
    row: &UsageRow,
    price: &Decimal,
    from: DateTime<Utc>,
) -> Result<(InvoiceLine, Decimal)> {
    let quantity: Whole = row.quantity.parse().map_err(Error::internal)?;
    let amount = cost(&quantity, price, row.meter, from, prices.decimals);
    let (description, unit) = match row.meter {
        Meter::Awake => (format!("Instances of type {}", row.instance_type), "hour"),
        Meter::Asleep => ("Branches asleep".to_owned(), "hour"),
        Meter::Storage => ("Storage".to_owned(), "GiB and month"),
        Meter::Shared => ("Storage that branches share".to_owned(), "GiB and month"),
        Meter::Egress => ("Data sent to clients".to_owned(), "GiB"),
    };
    let shown = rounded(&quantity, &per_priced_unit(row.meter, from), QUANTITY_DECIMALS);
    let line = InvoiceLine {
        project: row.project.as_ref().map(|(id, name)| (id.to_string(), name.clone())),
        description,
        from: from.format("%Y-%m-%d").to_string(),
        quantity: shown.to_plain_string(),
        unit_price: price.to_plain_string(),
        unit: unit.to_owned(),
        amount: amount.to_plain_string(),
    };
    Ok((line, amount))
}

/// What each organization has whatever it uses, by the prices of the month's end.
fn fixed_lines(prices: &PriceList, month: DateTime<Utc>) -> Vec<(InvoiceLine, Decimal)> {
    let last = next_month(month) - TimeDelta::seconds(1);
    let fixed = prices.at(last).map(|prices| prices.fixed.as_slice()).unwrap_or_default();
    let line = |(name, price): &(String, Decimal)| {
        let (digits, scale) = price.as_bigint_and_exponent();
        let scale = u32::try_from(scale).unwrap_or_default();
        let amount = rounded(&digits, &Whole::from(10).pow(scale), prices.decimals);
        let line = InvoiceLine {
            project: None,
            description: name.clone(),
            from: month.format("%Y-%m-%d").to_string(),
            quantity: "1".to_owned(),
            unit_price: price.to_plain_string(),
            unit: "month".to_owned(),
            amount: amount.to_plain_string(),
        };
        (line, amount)
    };
    fixed.iter().map(line).collect()
}
