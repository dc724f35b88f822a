//! What organizations are asked for.

use askama::Template;
use chrono::{DateTime, Utc};
use coppice_app::{Access, App, BillingPage, InvoiceSummary, UpcomingInvoice, invoice_number};
use coppice_core::invoice::InvoiceStatus;
use coppice_core::operation::{
    CREATE_BILLING_CHECKOUT_SESSION, CREATE_BILLING_PAYMENT_METHOD_SESSION, GET_BILLING_CUSTOMER,
    GET_BILLING_INVOICE, GET_BILLING_INVOICES, GET_BILLING_UPCOMING_INVOICE, UPDATE_BILLING_CUSTOMER,
};
use coppice_core::payment::Credit;
use coppice_core::target::OnInvoice;
use coppice_core::{Error, Result};
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::endpoint::{Body, Endpoint, Forms, Query, Shown, Waiting, Written, get, patch, post};
use crate::{invoice_pdf, marketplace, progress};

/// Other forms of an invoice.
const HTML: &str = "text/html";
const PDF: &str = "application/pdf";
/// Invoices of one answer when nobody says how many.
const COUNT_DEFAULT: u32 = 20;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Billing";
    const NONE: &str = "`billing_not_configured`: there is nothing to pay with here.";
    const FAILED: &str = "`provider_failed`: Stripe does not answer, or refuses; the log says why.";
    const ORB_FAILED: &str = "`provider_failed`: Orb does not answer, or refuses; the log says why.";
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
            .says(AREA, "List an organization's invoices", "The newest first. One is made when a month is over in UTC and its last hour is sealed; where Orb makes them,\nthey are as it has them.")
            .answers("Invoices.")
            .refuses(502, ORB_FAILED)
            .runs(list_invoices),
        get("/billing/invoices/upcoming", &GET_BILLING_UPCOMING_INVOICE)
            .says(AREA, "Show what this month would cost if it were over now", "In UTC, with what each organization has whatever it uses.")
            .answers("What it would be.")
            .refuses(404, "`invoice_not_found`: nobody is charged here.")
            .refuses(502, ORB_FAILED)
            .runs(upcoming_invoice),
        get("", &GET_BILLING_INVOICE)
            .says(AREA, "Show an invoice with its lines", "As a page or a PDF that can be sent or printed with `format=html` or `format=pdf`, or when `Accept` names text/html\nor application/pdf first. Those that\nOrb makes are seen at their `invoice_pdf`.")
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
    #[param(max_length = 512, format = "sought")]
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
    let email = app.billing.email(&access).await?;
    Ok(Shown(customer(&app, &access, email).await?))
}

async fn update_customer(
    app: App,
    access: Access,
    Waiting(Body(asked), call): Waiting<Body<wire::UpdateBillingCustomer>>,
) -> Result<Shown<wire::BillingCustomer>> {
    let email = app.billing.set_email(&access, &asked.billing_email).await?;
    // Stripe may have taken its time, and what is on file is shown.
    let _: Access = call.authorize(&app, &UPDATE_BILLING_CUSTOMER).await?;
    Ok(Shown(customer(&app, &access, email).await?))
}

async fn customer(app: &App, access: &Access, billing_email: String) -> Result<wire::BillingCustomer> {
    let card = app.stripe.card_on_file(access).await?.map(|card| wire::PaymentCard {
        brand: card.brand,
        last4: card.last4,
        expiry_month: card.expiry_month,
        expiry_year: card.expiry_year,
    });
    let marketplace = app.marketplace.of(access).await?.map(marketplace::to_wire);
    let credits = app.billing.credits(access).await?;
    Ok(wire::BillingCustomer {
        billing_email,
        marketplace,
        collection_method: match (&card, app.billing.has_invoices()) {
            _ if marketplace.is_some() => wire::CollectionMethod::Marketplace,
            (Some(_), _) => wire::CollectionMethod::StripePaymentMethod,
            (None, true) => wire::CollectionMethod::BankTransfer,
            (None, false) => wire::CollectionMethod::Unknown,
        },
        can_collect_payment: card.is_some(),
        has_payment_method: card.is_some(),
        default_payment_method: card.map(|card| wire::PaymentMethod { card }),
        credits: left(&credits, access.organization.created_at, Utc::now()),
        credit_details: credit_details(&credits, access.organization.created_at, Utc::now()),
    })
}

/// The credits that are not used up. A credit without a beginning counts since `always`.
fn left(credits: &[Credit], always: DateTime<Utc>, now: DateTime<Utc>) -> Vec<wire::BillingCredit> {
    credits.iter().filter(|credit| credit.is_left(now)).map(|credit| credit_to_wire(credit, always)).collect()
}

fn credit_to_wire(credit: &Credit, always: DateTime<Utc>) -> wire::BillingCredit {
    wire::BillingCredit {
        id: credit.id.clone(),
        balance: credit.balance,
        effective_date: wire::Timestamp(credit.effective_at.unwrap_or(always)),
        expiry_date: credit.expires_at.map(wire::Timestamp),
        maximum_initial_balance: credit.initial_balance,
        status: if credit.is_active {
            wire::CreditStatus::Active
        } else {
            wire::CreditStatus::PendingPayment
        },
    }
}

fn credit_details(credits: &[Credit], always: DateTime<Utc>, now: DateTime<Utc>) -> wire::CreditDetails {
    let last = |is_meant: &dyn Fn(&Credit) -> bool| {
        credits.iter().filter(|credit| is_meant(credit)).filter_map(|credit| credit.expires_at).max()
    };
    let days = |until: Option<DateTime<Utc>>| until.map(|until| (until - now).num_days());
    let last_left = last(&|credit| credit.is_left(now));
    let last_active = last(&|credit| credit.is_usable(now));
    let active = || credits.iter().filter(|credit| credit.is_usable(now));
    wire::CreditDetails {
        total_lifetime_credits: credits.iter().map(|credit| credit.initial_balance).sum(),
        last_expiry: last(&|_| true).map(wire::Timestamp),
        last_expiry_with_balance: last_left.map(wire::Timestamp),
        active_credits: active().map(|credit| credit_to_wire(credit, always)).collect(),
        last_active_credit_expiry: last_active.map(wire::Timestamp),
        total_active_credits: active().map(|credit| credit.balance).sum(),
        days_until_last_active_credit_expiry: days(last_active),
        days_until_last_expiry_with_balance: days(last_left),
    }
}

async fn list_invoices(
    app: App,
    access: Access,
    Waiting(Query(asked), call): Waiting<Query<ListInvoices>>,
) -> Result<Shown<wire::InvoiceList>> {
    let limit = asked.limit.unwrap_or(COUNT_DEFAULT);
    let page = app.billing.list_invoices(&access, asked.cursor.as_deref(), limit).await?;
    let _: Access = call.authorize(&app, &GET_BILLING_INVOICES).await?;
    let invoice = |invoice: InvoiceSummary| wire::Invoice {
        amount_due: amount(&invoice.amount_due),
        id: invoice.id,
        invoice_number: invoice.number,
        currency: invoice.currency,
        invoice_date: wire::Timestamp(invoice.date),
        status: status_to_wire(invoice.status),
        invoice_pdf: invoice.pdf,
    };
    let pagination_metadata =
        wire::PaginationMetadata { has_more: page.next_cursor.is_some(), next_cursor: page.next_cursor };
    Ok(Shown(wire::InvoiceList {
        data: page.invoices.into_iter().map(invoice).collect(),
        pagination_metadata,
    }))
}

async fn upcoming_invoice(
    app: App,
    access: Access,
    Waiting((), call): Waiting<()>,
) -> Result<Shown<wire::UpcomingInvoice>> {
    let UpcomingInvoice { began_at, target, amount_due, subtotal, total, currency, page } =
        progress::report(app.billing.upcoming(&access)).await?;
    let _: Access = call.authorize(&app, &GET_BILLING_UPCOMING_INVOICE).await?;
    Ok(Shown(wire::UpcomingInvoice {
        created_at: wire::Timestamp(began_at),
        amount_due: amount(&amount_due),
        currency,
        target_date: wire::Timestamp(target),
        subtotal: amount(&subtotal),
        total: amount(&total),
        hosted_invoice_url: page,
    }))
}

async fn get_invoice(
    app: App,
    access: Access<OnInvoice>,
    Waiting(Query(asked), call): Waiting<Query<GetInvoice>>,
) -> Result<Written<wire::InvoiceDetails>> {
    let OnInvoice { organization, invoice } = &access.target;
    let found = progress::report(app.billing.find_invoice(organization, invoice)).await?;
    let _: Access<OnInvoice> = call.authorize(&app, &GET_BILLING_INVOICE).await?;
    let invoice_number = invoice_number(&found);
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
    let kind = asked.format.map(|format| match format {
        wire::InvoiceFormat::Json => "application/json",
        wire::InvoiceFormat::Html => HTML,
        wire::InvoiceFormat::Pdf => PDF,
    });
    Ok(Written { shown, kind })
}

async fn open_checkout(
    app: App,
    access: Access,
    Waiting((), call): Waiting<()>,
) -> Result<Shown<wire::BillingSession>> {
    let url = app.stripe.open_page(&access, BillingPage::NewCard).await?;
    // Stripe may have taken its time, and who has the URL is let in there.
    let _: Access = call.authorize(&app, &CREATE_BILLING_CHECKOUT_SESSION).await?;
    Ok(Shown(wire::BillingSession { url }))
}

async fn open_portal(
    app: App,
    access: Access,
    Waiting((), call): Waiting<()>,
) -> Result<Shown<wire::BillingSession>> {
    let url = app.stripe.open_page(&access, BillingPage::Cards).await?;
    let _: Access = call.authorize(&app, &CREATE_BILLING_PAYMENT_METHOD_SESSION).await?;
    Ok(Shown(wire::BillingSession { url }))
}

fn status_to_wire(status: InvoiceStatus) -> wire::InvoiceStatus {
    match status {
        InvoiceStatus::Draft => wire::InvoiceStatus::Draft,
        InvoiceStatus::Issued => wire::InvoiceStatus::Issued,
        InvoiceStatus::Paid => wire::InvoiceStatus::Paid,
        InvoiceStatus::Void => wire::InvoiceStatus::Void,
        InvoiceStatus::Synced => wire::InvoiceStatus::Synced,
    }
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

impl Forms for wire::InvoiceDetails {
    const KINDS: &'static [&'static str] = &[HTML, PDF];

    async fn form(self, kind: &str) -> Result<Vec<u8>> {
        if kind == PDF {
            return invoice_pdf::write_in_turn(self).await;
        }
        let date = self.invoice_date.0.format("%-d %B %Y").to_string();
        Page { invoice: &self, date }.render().map(String::into_bytes).map_err(Error::internal)
    }

    fn file_name(&self, kind: &str) -> Option<String> {
        (kind == PDF).then(|| format!("invoice-{}.pdf", self.invoice_number))
    }
}
