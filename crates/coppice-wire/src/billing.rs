//! What organizations are asked for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// How an organization pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectionMethod {
    /// Nobody is charged here.
    Unknown,
    /// By what Stripe has on file.
    StripePaymentMethod,
    /// Through a marketplace.
    Marketplace,
    /// By what it does with the invoice.
    BankTransfer,
}

/// The marketplace that an organization is billed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BillingMarketplace {
    /// Amazon's.
    Aws,
}

/// A card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentCard {
    /// Whose.
    pub brand: String,
    /// Its last four digits.
    pub last4: String,
    /// The month in which it ends.
    pub expiry_month: u32,
    /// The year in which it ends.
    pub expiry_year: u32,
}

/// What an organization pays with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentMethod {
    /// The card.
    pub card: PaymentCard,
}

/// Whether a credit can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CreditStatus {
    /// It can.
    Active,
    /// It is not paid for.
    PendingPayment,
}

/// What is paid already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BillingCredit {
    /// Its id.
    pub id: String,
    /// What is left.
    pub balance: f64,
    /// From when on it counts.
    pub effective_date: Timestamp,
    /// Until when; null without an end.
    #[schema(required)]
    pub expiry_date: Option<Timestamp>,
    /// What it was at first.
    pub maximum_initial_balance: f64,
    /// Whether it can be used.
    pub status: CreditStatus,
}

/// All that is paid already.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreditDetails {
    /// What it ever was.
    pub total_lifetime_credits: f64,
    /// When the last of it ends.
    #[schema(required)]
    pub last_expiry: Option<Timestamp>,
    /// When the last of it ends of which something is left.
    #[schema(required)]
    pub last_expiry_with_balance: Option<Timestamp>,
    /// What can be used.
    pub active_credits: Vec<BillingCredit>,
    /// When the last of that ends.
    #[schema(required)]
    pub last_active_credit_expiry: Option<Timestamp>,
    /// The sum of that.
    pub total_active_credits: f64,
    /// In how many days the last of that ends.
    #[schema(required)]
    pub days_until_last_active_credit_expiry: Option<i64>,
    /// In how many days the last of it ends of which something is left.
    #[schema(required)]
    pub days_until_last_expiry_with_balance: Option<i64>,
}

/// How an organization is billed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BillingCustomer {
    /// Where invoices go.
    #[schema(format = "email", example = "ada@example.com")]
    pub billing_email: String,
    /// The marketplace it is billed through; null when it is not.
    #[schema(required)]
    pub marketplace: Option<BillingMarketplace>,
    /// How it pays.
    pub collection_method: CollectionMethod,
    /// Whether it can be charged without its doing.
    pub can_collect_payment: bool,
    /// Whether something to pay with is on file.
    pub has_payment_method: bool,
    /// That; null when there is nothing.
    #[schema(required)]
    pub default_payment_method: Option<PaymentMethod>,
    /// What is paid already.
    pub credits: Vec<BillingCredit>,
    /// The same, added up.
    pub credit_details: CreditDetails,
}

/// Body of updateBillingCustomer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UpdateBillingCustomer {
    /// Where invoices go.
    #[schema(max_length = 254, format = "email", example = "ada@example.com")]
    pub billing_email: String,
}

/// What became of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InvoiceStatus {
    /// It may still change.
    Draft,
    /// It does not change any more.
    Issued,
    /// It is paid.
    Paid,
    /// It is taken back.
    Void,
    /// Somebody else has it.
    Synced,
}

/// What was asked for a month.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Invoice {
    /// Its id.
    #[schema(example = "bil_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub id: String,
    /// One after the other.
    #[schema(example = "2026-000001")]
    pub invoice_number: String,
    /// What is asked for.
    pub amount_due: f64,
    /// ISO 4217.
    #[schema(example = "EUR")]
    pub currency: String,
    /// When it was made.
    pub invoice_date: Timestamp,
    /// What became of it.
    pub status: InvoiceStatus,
    /// Where it is as PDF; null when it is nowhere.
    #[schema(required)]
    pub invoice_pdf: Option<String>,
}

/// Whether there is more of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaginationMetadata {
    /// Whether there is.
    pub has_more: bool,
    /// Goes on with it; null when there is none.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// Answer of getBillingInvoices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InvoiceList {
    /// The newest first.
    pub data: Vec<Invoice>,
    /// Whether there are more.
    pub pagination_metadata: PaginationMetadata,
}

/// Answer of getBillingUpcomingInvoice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UpcomingInvoice {
    /// When its month began.
    pub created_at: Timestamp,
    /// What is to be paid.
    pub amount_due: f64,
    /// ISO 4217.
    #[schema(example = "EUR")]
    pub currency: String,
    /// When its month is over.
    pub target_date: Timestamp,
    /// The sum of what it has.
    pub subtotal: f64,
    /// The same with what comes on top.
    pub total: f64,
    /// Where it can be seen; null when that is nowhere.
    #[schema(required)]
    pub hosted_invoice_url: Option<String>,
}

/// Where to go with a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BillingSession {
    /// There.
    pub url: String,
}

/// A line of an invoice. Numbers are exact texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvoiceLine {
    /// The project; null for what the whole organization has.
    #[schema(required, example = "prj_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub project_id: Option<String>,
    /// What it was last called.
    #[schema(required, example = "shop")]
    pub project_name: Option<String>,
    /// What was used.
    #[schema(example = "Instances of type small")]
    pub description: String,
    /// The first day.
    #[schema(example = "2026-01-01")]
    pub from: String,
    /// How much was used.
    #[schema(example = "744.000000")]
    pub quantity: String,
    /// What one costs.
    #[schema(example = "0.020")]
    pub unit_price: String,
    /// One of what.
    #[schema(example = "hour")]
    pub unit: String,
    /// What it costs.
    #[schema(example = "14.88")]
    pub amount: String,
}

/// Answer of getBillingInvoice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvoiceDetails {
    /// Its id.
    #[schema(example = "bil_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub id: String,
    /// One after the other.
    #[schema(example = "2026-000001")]
    pub invoice_number: String,
    /// When it was made.
    pub invoice_date: Timestamp,
    /// The month that it is for.
    #[schema(example = "2026-01")]
    pub month: String,
    /// Who asks.
    pub issuer: Vec<String>,
    /// Who is asked: the organization, as it was called.
    pub customer: String,
    /// Where it goes; may be empty.
    pub email: String,
    /// ISO 4217.
    #[schema(example = "EUR")]
    pub currency: String,
    /// What is asked for.
    pub lines: Vec<InvoiceLine>,
    /// The sum of the lines.
    #[schema(example = "14.88")]
    pub total: String,
}

/// How an answer of getBillingInvoice looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InvoiceFormat {
    /// As the document shows it.
    Json,
    /// A page to be sent or printed.
    Html,
    /// The same as a PDF.
    Pdf,
}
