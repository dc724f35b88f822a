//! Invoices as Orb has them.

use chrono::{DateTime, Utc};
use coppice_core::amount::Decimal;
use coppice_core::invoice::InvoiceStatus;
use coppice_core::{Error, ErrorCode, OrganizationId, Result};
use reqwest::StatusCode;
use serde::Deserialize;

use super::api::{Asked, OrbApi, OrbError, Page};
use crate::asking::is_page;
use crate::billing::{InvoicePage, InvoiceSummary, UpcomingInvoice};

#[derive(Deserialize)]
struct Invoice {
    id: String,
    invoice_number: String,
    amount_due: String,
    currency: String,
    invoice_date: DateTime<Utc>,
    status: String,
    invoice_pdf: Option<String>,
    customer: Customer,
}

#[derive(Deserialize)]
struct Customer {
    external_customer_id: Option<String>,
}

#[derive(Deserialize)]
struct Upcoming {
    created_at: DateTime<Utc>,
    target_date: DateTime<Utc>,
    amount_due: String,
    subtotal: String,
    total: String,
    currency: String,
    hosted_invoice_url: Option<String>,
    customer: Customer,
}

impl OrbApi {
    /// Invoices of an organization, those after the cursor. Whoever asks may have made the cursor up, so an invoice
    /// of somebody else's is never handed on.
    pub(crate) async fn list_invoices(
        &self,
        organization: &OrganizationId,
        cursor: Option<&str>,
        count_max: u32,
    ) -> Result<InvoicePage> {
        let limit = count_max.to_string();
        let mut query = vec![("external_customer_id", organization.as_str()), ("limit", &limit)];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let asked: Asked<Page<Invoice>> = self.get(&["invoices"], &query, "the invoices of a customer").await;
        let page = match asked {
            Err(error) if cursor.is_some() && error.status() == Some(StatusCode::BAD_REQUEST) => {
                return Err(Error::invalid(ErrorCode::InvalidCursor, "invalid cursor"));
            }
            page => page?,
        };
        if page.data.len() > count_max as usize {
            return Err(OrbError::Away("more invoices than were asked for".to_owned()).into());
        }
        let invoices = page.data.into_iter().map(|invoice| {
            belongs_to(&invoice.customer, organization)?;
            Ok(InvoiceSummary {
                status: status(&invoice.status)?,
                amount_due: amount(&invoice.amount_due)?,
                id: invoice.id,
                number: invoice.invoice_number,
                currency: invoice.currency,
                date: invoice.invoice_date,
                pdf: link(invoice.invoice_pdf),
            })
        });
        let next_cursor = page.pagination_metadata.next_cursor.filter(|_| page.pagination_metadata.has_more);
        Ok(InvoicePage { invoices: invoices.collect::<Asked<_>>()?, next_cursor })
    }

    /// What a subscription would be asked for; none where Orb says that there is nothing to come.
    pub(crate) async fn upcoming_invoice(
        &self,
        organization: &OrganizationId,
        subscription: &str,
    ) -> Result<Option<UpcomingInvoice>> {
        let query = [("subscription_id", subscription)];
        let found: Option<Upcoming> =
            self.find(&["invoices", "upcoming"], &query, "an upcoming invoice").await?;
        let Some(found) = found else { return Ok(None) };
        belongs_to(&found.customer, organization)?;
        Ok(Some(UpcomingInvoice {
            began_at: found.created_at,
            target: found.target_date,
            amount_due: amount(&found.amount_due)?,
            subtotal: amount(&found.subtotal)?,
            total: amount(&found.total)?,
            currency: found.currency,
            page: link(found.hosted_invoice_url),
        }))
    }
}

fn belongs_to(customer: &Customer, organization: &OrganizationId) -> Asked<()> {
    match customer.external_customer_id.as_deref() == Some(organization.as_str()) {
        true => Ok(()),
        false => Err(OrbError::Away(format!("an invoice that is not of {organization}"))),
    }
}

fn status(text: &str) -> Asked<InvoiceStatus> {
    InvoiceStatus::parse(text).ok_or_else(|| OrbError::Away(format!("an invoice that is {text:?}")))
}

/// An amount as it came, if it is one.
fn amount(text: &str) -> Asked<String> {
    let number = decimal(text).map_err(OrbError::Away)?;
    Ok(number.to_plain_string())
}

/// Whether somebody has to pay it.
pub(super) fn is_owed(text: &str) -> std::result::Result<bool, String> {
    Ok(decimal(text)? > 0)
}

fn decimal(text: &str) -> std::result::Result<Decimal, String> {
    let is_plain =
        text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    let number = text.parse::<Decimal>().ok().filter(|_| is_plain);
    number.ok_or_else(|| format!("an amount of {:?}", coppice_core::error::excerpt(text)))
}

fn link(text: Option<String>) -> Option<String> {
    text.filter(|text| is_page(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_decimals_and_nothing_else() {
        for (text, is_more) in [("0.00", false), ("-3.50", false), ("0.01", true), ("123456789012.34", true)]
        {
            assert_eq!(amount(text).expect("an amount"), text);
            assert_eq!(is_owed(text), Ok(is_more), "{text}");
        }
        for text in ["", "1e9", "NaN", "1,00", "0x1", &"9".repeat(41)] {
            assert!(amount(text).is_err() && is_owed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_link_leads_to_a_page_and_not_to_a_script() {
        let kept = |text: &str| link(Some(text.to_owned()));
        assert!(kept("https://assets.withorb.com/invoice/x.pdf").is_some());
        assert!(kept("javascript:alert(1)").is_none() && kept("/x.pdf").is_none());
    }
}
