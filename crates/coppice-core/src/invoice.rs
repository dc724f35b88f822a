//! What is asked for a month.

use serde::{Deserialize, Serialize};

/// A line of an invoice. Numbers are texts: nothing is lost on their way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvoiceLine {
    /// The project, what it was last called.
    pub project: Option<(String, String)>,
    /// What was used, for people.
    pub description: String,
    /// The first day of this line.
    pub from: String,
    /// How much was used, rounded.
    pub quantity: String,
    /// What one of it costs.
    pub unit_price: String,
    /// One of what.
    pub unit: String,
    /// What it costs, rounded once from what was measured.
    pub amount: String,
}

/// All that an invoice says besides its number and date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvoiceContent {
    /// Who asks.
    pub issuer: Vec<String>,
    /// The organization, what it was called.
    pub customer: String,
    /// Where it goes; empty where nobody is known any more.
    pub email: String,
    /// ISO 4217.
    pub currency: String,
    /// By project and what was used.
    pub lines: Vec<InvoiceLine>,
    /// The sum of the lines.
    pub total: String,
}

/// What became of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

names!(InvoiceStatus { Draft = "draft", Issued = "issued", Paid = "paid", Void = "void", Synced = "synced" });
