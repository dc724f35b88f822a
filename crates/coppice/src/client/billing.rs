//! `coppice billing`

use clap::Subcommand;
use coppice_wire::{BillingCustomer, BillingMarketplace, BillingSession, UpdateBillingCustomer};

use super::http::Client;
use super::output;

/// How an organization pays.
#[derive(Subcommand, Debug)]
pub(crate) enum BillingCommand {
    /// Show where invoices go, and the card on file
    #[command(alias = "get", after_help = "Example: coppice billing show")]
    Show,
    /// Say where invoices go
    #[command(after_help = "Example: coppice billing email books@example.com")]
    Email {
        /// The address
        address: String,
    },
    /// Print the address of a page where a card is put on file
    #[command(after_help = "Example: coppice billing add-card")]
    AddCard,
    /// Print the address of a page where cards are put on file, chosen and removed
    #[command(after_help = "Example: coppice billing cards")]
    Cards,
}

/// Carries out a command on how an organization pays.
pub(super) async fn run(command: BillingCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let place = client.here("/billing/customer");
    match command {
        BillingCommand::Show => show(&client.get(&place).await?, as_json),
        BillingCommand::Email { address } => {
            let body = UpdateBillingCustomer { billing_email: address };
            show(&client.patch(&place, &body).await?, as_json)
        }
        BillingCommand::AddCard => open(client, "checkout-session", as_json).await,
        BillingCommand::Cards => open(client, "payment-method-session", as_json).await,
    }
}

fn show(customer: &BillingCustomer, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(customer);
    }
    let card = customer.default_payment_method.as_ref().map(|method| &method.card);
    let card = card.map_or_else(
        || "none".to_owned(),
        |card| format!("{} …{}, until {:02}/{}", card.brand, card.last4, card.expiry_month, card.expiry_year),
    );
    let email = customer.billing_email.clone();
    match customer.marketplace {
        None => output::properties(&[("invoices go to", email), ("card on file", card)]),
        Some(BillingMarketplace::Aws) => {
            let paid = "AWS Marketplace, and what pays is chosen there".to_owned();
            output::properties(&[("billed through", paid), ("letters go to", email), ("card on file", card)]);
        }
    }
    Ok(())
}

async fn open(client: &Client, page: &str, as_json: bool) -> anyhow::Result<()> {
    let session: BillingSession = client.post_nothing(&client.here(&format!("/billing/{page}"))).await?;
    if as_json {
        return output::json(&session);
    }
    say!("{}", session.url);
    Ok(())
}
