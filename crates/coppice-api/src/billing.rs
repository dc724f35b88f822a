//! What organizations are asked for.

use askama::Template;
use chrono::Datelike as _;
use coppice_app::{Access, App, BillingPage, Invoice};
use coppice_core::operation::{
    CREATE_BILLING_CHECKOUT_SESSION, CREATE_BILLING_PAYMENT_METHOD_SESSION, GET_BILLING_CUSTOMER,
    GET_BILLING_INVOICE, GET_BILLING_INVOICES, GET_BILLING_UPCOMING_INVOICE, UPDATE_BILLING_CUSTOMER,
};
use coppice_core::target::OnInvoice;
use coppice_core::{Error, Result};
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::endpoint::{Body, Endpoint, Query, Shown, Text, Written, get, patch, post};
use crate::marketplace;

/// Invoices of one answer when nobody says how many.
const COUNT_DEFAULT: u32 = 20;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Billing";
    const NONE: &str = "`billing_not_configured`: there is nothing to pay with here.";
    const FAILED: &str = "`provider_failed`: Stripe does not answer, or refuses; the log says why.";
    vec![
        get("/billing/customer", &GET_BILLING_CUSTOMER)
            .says(AREA, "Show how an organization is billed", "Without prices nobody is charged: `collection_method` is `unknown`.")
            .answers("How it is billed.")
            .runs(get_customer),
        patch("/billing/customer", &UPDATE_BILLING_CUSTOMER)
            .says(AREA, "Say where invoices go", "Without this they go to the owner. Stripe is told, too, where it knows the organization.")
            .answers("How it is billed.")
            .refuses(502, FAILED)
            .runs(update_customer),
        get("/billing/invoices", &GET_BILLING_INVOICES)
            .says(AREA, "List an organization's invoices", "The newest first. One is made when a month is over in UTC and its last hour is sealed.")
            .answers("Invoices.")
            .runs(list_invoices),
        get("/billing/invoices/upcoming", &GET_BILLING_UPCOMING_INVOICE)
            .says(AREA, "Show what this month would cost if it were over now", "In UTC, with what each organization has whatever it uses.")
            .answers("What it would be.")
            .refuses(404, "`invoice_not_found`: nobody is charged here.")
            .runs(upcoming_invoice),
        get("", &GET_BILLING_INVOICE)
            .says(AREA, "Show an invoice with its lines", "As a page that can be sent or printed with `format=html`, or when `Accept` names text/html first.")
            .answers("The invoice.")
            .runs(get_invoice),
        post("/billing/checkout-session", &CREATE_BILLING_CHECKOUT_SESSION)
            .says(AREA, "Begin to put a card on file with a browser", "At a page of Stripe's. The card is what the organization pays with from then on. Without Stripe there is\nnowhere to go: invoices are paid as they say.")
            .answers("Where to go.")
            .refuses(400, NONE)
            .refuses(502, FAILED)
            .runs(open_checkout),
        post("/billing/payment-method-session", &CREATE_BILLING_PAYMENT_METHOD_SESSION)
            .says(AREA, "Begin to say with a browser what to pay with", "At Stripe's customer portal, where cards are put on file, chosen and removed. Without Stripe there is nowhere\nto go: invoices are paid as they say.")
            .answers("Where to go.")
            .refuses(400, NONE)
            .refuses(502, FAILED)
            .runs(open_portal),
    ]
}

/// Which invoices to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListInvoices {
    /// Goes on after the answer whose `next_cursor` it was.
    #[param(max_length = 64, format = "sought")]
    cursor: Option<String>,
    /// Most of them in this answer.
    #[param(minimum = 1, maximum = 100, default = 20)]
    limit: Option<u32>,
}

/// How to show an invoice.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct GetInvoice {
    /// How the answer looks. Without it `Accept` decides.
    #[param(inline)]
    format: Option<wire::InvoiceFormat>,
}

async fn get_customer(app: App, access: Access) -> Result<Shown<wire::BillingCustomer>> {
    let email = app.billing_email(&access).await?;
    Ok(Shown(customer(&app, &access, email).await?))
}

async fn update_customer(
    app: App,
    access: Access,
    Body(asked): Body<wire::UpdateBillingCustomer>,
) -> Result<Shown<wire::BillingCustomer>> {
    let email = app.set_billing_email(&access, &asked.billing_email).await?;
    Ok(Shown(customer(&app, &access, email).await?))
}

async fn customer(app: &App, access: &Access, billing_email: String) -> Result<wire::BillingCustomer> {
    let card = app.card_on_file(access).await?.map(|card| wire::PaymentCard {
        brand: card.brand,
        last4: card.last4,
        expiry_month: card.expiry_month,
        expiry_year: card.expiry_year,
    });
    let marketplace = app.marketplace_of(access).await?.map(marketplace::to_wire);
    Ok(wire::BillingCustomer {
        billing_email,
        marketplace,
        collection_method: match (&card, app.has_prices()) {
            _ if marketplace.is_some() => wire::CollectionMethod::Marketplace,
            (Some(_), _) => wire::CollectionMethod::StripePaymentMethod,
            (None, true) => wire::CollectionMethod::BankTransfer,
            (None, false) => wire::CollectionMethod::Unknown,
        },
        can_collect_payment: card.is_some(),
        has_payment_method: card.is_some(),
        default_payment_method: card.map(|card| wire::PaymentMethod { card }),
        credits: vec![],
        credit_details: wire::CreditDetails::default(),
    })
}

async fn list_invoices(
    app: App,
    access: Access,
    Query(asked): Query<ListInvoices>,
) -> Result<Shown<wire::InvoiceList>> {
    let limit = asked.limit.unwrap_or(COUNT_DEFAULT);
    let page = app.list_invoices(&access, asked.cursor.as_deref(), limit).await?;
    let invoice = |invoice: Invoice| wire::Invoice {
        invoice_number: number(&invoice),
        amount_due: amount(&invoice.content.total),
        id: invoice.id.to_string(),
        currency: invoice.content.currency,
        invoice_date: wire::Timestamp(invoice.issued_at),
        status: wire::InvoiceStatus::Issued,
        invoice_pdf: None,
    };
    let pagination_metadata =
        wire::PaginationMetadata { has_more: page.next_cursor.is_some(), next_cursor: page.next_cursor };
    Ok(Shown(wire::InvoiceList {
        data: page.invoices.into_iter().map(invoice).collect(),
        pagination_metadata,
    }))
}

async fn upcoming_invoice(app: App, access: Access) -> Result<Shown<wire::UpcomingInvoice>> {
    let upcoming = app.upcoming_invoice(&access).await?;
    let total = amount(&upcoming.content.total);
    Ok(Shown(wire::UpcomingInvoice {
        created_at: wire::Timestamp(upcoming.began_at),
        amount_due: total,
        currency: upcoming.content.currency,
        target_date: wire::Timestamp(upcoming.target),
        subtotal: total,
        total,
        hosted_invoice_url: None,
    }))
}

async fn get_invoice(
    app: App,
    access: Access<OnInvoice>,
    Query(asked): Query<GetInvoice>,
) -> Result<Written<wire::InvoiceDetails>> {
    let OnInvoice { organization, invoice } = &access.target;
    let found = app.find_invoice(organization, invoice).await?;
    let invoice_number = number(&found);
    let content = found.content;
    let lines = content.lines.into_iter().map(|line| {
        let (project_id, project_name) = line.project.unzip();
        wire::InvoiceLine {
            project_id,
            project_name,
            description: line.description,
            from: line.from,
            quantity: line.quantity,
            unit_price: line.unit_price,
            unit: line.unit,
            amount: line.amount,
        }
    });
    let shown = wire::InvoiceDetails {
        id: found.id.to_string(),
        invoice_number,
        invoice_date: wire::Timestamp(found.issued_at),
        month: found.month.format("%Y-%m").to_string(),
        issuer: content.issuer,
        customer: content.customer,
        email: content.email,
        currency: content.currency,
        lines: lines.collect(),
        total: content.total,
    };
    Ok(Written { shown, is_text: asked.format.map(|format| format == wire::InvoiceFormat::Html) })
}

async fn open_checkout(app: App, access: Access) -> Result<Shown<wire::BillingSession>> {
    let url = app.open_billing_page(&access, BillingPage::NewCard).await?;
    Ok(Shown(wire::BillingSession { url }))
}

async fn open_portal(app: App, access: Access) -> Result<Shown<wire::BillingSession>> {
    let url = app.open_billing_page(&access, BillingPage::Cards).await?;
    Ok(Shown(wire::BillingSession { url }))
}

fn number(invoice: &Invoice) -> String {
    format!("{}-{:06}", invoice.month.year(), invoice.number)
}

/// An exact text as the number that the contract asks for.
fn amount(text: &str) -> f64 {
    text.parse().unwrap_or_default()
}

#[derive(Template)]
#[template(path = "invoice.html")]
struct Page<'a> {
    invoice: &'a wire::InvoiceDetails,
    date: String,
}

impl Text for wire::InvoiceDetails {
    const KIND: &'static str = "text/html";

    fn text(&self) -> Result<String> {
        let date = self.invoice_date.0.format("%-d %B %Y").to_string();
        Page { invoice: self, date }.render().map_err(Error::internal)
    }
}
