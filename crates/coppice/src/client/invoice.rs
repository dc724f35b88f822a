//! `coppice invoice`

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use coppice_wire::{InvoiceDetails, InvoiceList, InvoiceStatus, UpcomingInvoice};

use super::http::Client;
use super::people::in_query;
use super::{output, times};

/// Most invoices of one answer.
const PAGE: u32 = 100;

/// Invoices.
#[derive(Subcommand, Debug)]
pub(crate) enum InvoiceCommand {
    /// List them, the newest first
    #[command(alias = "ls", after_help = "Example: coppice invoice list")]
    List,
    /// Show one with its lines
    #[command(after_help = "Example: coppice invoice show bil_… --pdf invoice.pdf")]
    Show {
        /// Its id
        invoice: String,
        /// As a page that can be sent or printed
        #[arg(long)]
        html: bool,
        /// The same as a PDF, written to a file
        #[arg(long, value_name = "FILE", conflicts_with = "html")]
        pdf: Option<PathBuf>,
    },
    /// Show what this month would cost if it were over now
    #[command(after_help = "Example: coppice invoice upcoming")]
    Upcoming,
}

/// Carries out a command on invoices.
pub(super) async fn run(command: InvoiceCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    match command {
        InvoiceCommand::List => list(client, as_json).await,
        InvoiceCommand::Show { invoice, pdf: Some(file), .. } => save(client, &invoice, &file).await,
        InvoiceCommand::Show { invoice, html, pdf: None } => show(client, &invoice, html, as_json).await,
        InvoiceCommand::Upcoming => {
            let upcoming: UpcomingInvoice = client.get(&client.here("/billing/invoices/upcoming")).await?;
            if as_json {
                return output::json(&upcoming);
            }
            let until = times::moment(upcoming.target_date.0);
            say!("{} {} so far; the month is over at {until}", upcoming.total, upcoming.currency);
            Ok(())
        }
    }
}

async fn list(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let mut invoices = vec![];
    let mut cursor = String::new();
    loop {
        let path = client.here(&format!("/billing/invoices?limit={PAGE}&cursor={}", in_query(&cursor)));
        let page: InvoiceList = client.get(&path).await?;
        invoices.extend(page.data);
        match page.pagination_metadata.next_cursor {
            Some(next) => cursor = next,
            None => break,
        }
    }
    if as_json {
        return output::json(&invoices);
    }
    let rows = invoices.into_iter().map(|invoice| {
        let date = times::moment(invoice.invoice_date.0);
        let (amount, status) = (invoice.amount_due.to_string(), status(invoice.status).to_owned());
        vec![invoice.id, invoice.invoice_number, date, amount, invoice.currency, status]
    });
    output::table(&["ID", "NUMBER", "DATE", "AMOUNT", "CURRENCY", "STATUS"], rows.collect());
    Ok(())
}

fn status(status: InvoiceStatus) -> &'static str {
    match status {
        InvoiceStatus::Draft => "draft",
        InvoiceStatus::Issued => "issued",
        InvoiceStatus::Paid => "paid",
        InvoiceStatus::Void => "void",
        InvoiceStatus::Synced => "synced",
    }
}

async fn save(client: &Client, invoice: &str, file: &Path) -> anyhow::Result<()> {
    let path = client.here(&format!("/billing/invoices/{}?format=pdf", in_query(invoice)));
    let bytes = client.bytes(&path).await?;
    std::fs::write(file, bytes).with_context(|| format!("writing {}", file.display()))
}

async fn show(client: &Client, invoice: &str, html: bool, as_json: bool) -> anyhow::Result<()> {
    let path = client.here(&format!("/billing/invoices/{}", in_query(invoice)));
    if html {
        crate::say::whole(&client.text(&format!("{path}?format=html")).await?);
        return Ok(());
    }
    let invoice: InvoiceDetails = client.get(&path).await?;
    if as_json {
        return output::json(&invoice);
    }
    say!("{} for {}: {} {}", invoice.invoice_number, invoice.month, invoice.total, invoice.currency);
    let rows = invoice.lines.into_iter().map(|line| {
        let price = format!("{} / {}", line.unit_price, line.unit);
        let project = line.project_name.unwrap_or_default();
        vec![project, line.description, line.from, line.quantity, price, line.amount]
    });
    output::table(&["PROJECT", "WHAT", "FROM", "QUANTITY", "PRICE", "AMOUNT"], rows.collect());
    Ok(())
}
