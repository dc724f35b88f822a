//! Who charges what: flags, variables, or the table `billing` of the file.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use coppice_core::price_list::{PriceList, PriceListFile};
use serde::Deserialize;

use super::is_on;

/// Invoices are Orb's, and charged by what is on file at Stripe.
const ORB: &str = "orb+stripe";

/// Settings as they can be written in each place.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BillingArgs {
    /// Who makes invoices: none; local, by the price list; or orb+stripe
    /// [default: local with a price list, else none]
    #[arg(long, env = "COPPICE_BILLING_PROVIDER", value_name = "PROVIDER")]
    #[serde(rename = "provider")]
    billing_provider: Option<String>,
    /// A TOML or JSON file with prices; see docs/billing.md
    #[arg(long, env = "COPPICE_BILLING_PRICES", value_name = "FILE")]
    #[serde(rename = "prices")]
    billing_prices: Option<PathBuf>,
    /// Whether a new organization needs a card on file before it may run anything: on or off; needs
    /// Stripe [default: off]
    #[arg(long, env = "COPPICE_BILLING_REQUIRED", value_name = "ON|OFF")]
    #[serde(rename = "required")]
    billing_required: Option<String>,
}

impl BillingArgs {
    /// What is set here, else what is set there.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            billing_provider: self.billing_provider.or(other.billing_provider),
            billing_prices: self.billing_prices.or(other.billing_prices),
            billing_required: self.billing_required.or(other.billing_required),
        }
    }

    /// Whether organizations need something to pay with.
    pub(super) fn is_required(&self) -> anyhow::Result<bool> {
        let chosen = self.billing_required.as_deref().filter(|chosen| !chosen.is_empty());
        is_on("billing_required", chosen.or(Some("off")))
    }

    /// Whether Orb makes invoices.
    pub(super) fn uses_orb(&self) -> bool {
        self.billing_provider.as_deref() == Some(ORB)
    }

    /// What has Stripe be needed, if anything does.
    pub(super) fn needs_stripe(&self) -> anyhow::Result<Option<&'static str>> {
        Ok(match self.is_required()? {
            true => Some("billing.required"),
            false => self.uses_orb().then_some("billing.provider orb+stripe"),
        })
    }

    /// The prices, if there are any. With Orb they only show what is used.
    pub(super) fn prices(self) -> anyhow::Result<Option<PriceList>> {
        // A variable that is set to nothing.
        let file = self.billing_prices.filter(|file| !file.as_os_str().is_empty());
        match (self.billing_provider.as_deref().filter(|provider| !provider.is_empty()), file) {
            (None, None) | (Some("none"), _) => Ok(None),
            (None | Some("local" | ORB), Some(file)) => read(&file).map(Some),
            (Some(ORB), None) => Ok(None),
            (Some("local"), None) => bail!(
                "billing.provider is local, but there is no price list: name its file by --billing-prices"
            ),
            (Some(other), _) => bail!("billing.provider can be `none`, `local` or `{ORB}`, not `{other}`"),
        }
    }
}

fn read(path: &Path) -> anyhow::Result<PriceList> {
    let said = || format!("reading the price list {}", path.display());
    let text = std::fs::read_to_string(path).with_context(said)?;
    let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let file: PriceListFile = match is_json {
        true => serde_json::from_str(&text).with_context(said)?,
        false => toml::from_str(&text).with_context(said)?,
    };
    PriceList::read(file).map_err(anyhow::Error::msg).with_context(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(provider: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<PriceList>> {
        let billing_provider = provider.map(str::to_owned);
        let billing_prices = file.map(Path::to_owned);
        BillingArgs { billing_provider, billing_prices, billing_required: None }.prices()
    }

    #[test]
    fn a_price_list_is_read_from_toml_or_json_unless_nobody_charges() {
        let directory = tempfile::tempdir().expect("a directory");
        let (toml, json) = (directory.path().join("a.toml"), directory.path().join("a.json"));
        std::fs::write(
            &toml,
            "currency = 'EUR'\n[[prices]]\nfrom = '2026-01-01'\ncompute = { micro = '0.010' }\n",
        )
        .expect("a file");
        std::fs::write(
            &json,
            r#"{"currency": "EUR", "prices": [{"from": "2026-01-01", "compute": {"micro": "0.010"}}]}"#,
        )
        .expect("a file");
        let read = prices(None, Some(&toml)).expect("a list");
        assert!(read.is_some());
        assert_eq!(prices(Some("local"), Some(&json)).expect("a list"), read);
        assert_eq!(prices(Some("none"), Some(&toml)).expect("no list"), None);
        assert_eq!(prices(None, None).expect("no list"), None);

        std::fs::write(
            &toml,
            "currency = 'EUR'\n[[prices]]\nfrom = '2026-01-01'\ncompute = { micro = 0.01 }\n",
        )
        .expect("a file");
        let said =
            |outcome: anyhow::Result<Option<PriceList>>| format!("{:#}", outcome.expect_err("is refused"));
        assert!(
            said(prices(None, Some(&toml))).contains("a.toml"),
            "a number that may be inexact is no price"
        );
        assert!(said(prices(Some("local"), None)).contains("--billing-prices"));
        assert!(said(prices(Some("orb"), None)).contains("`none`, `local` or `orb+stripe`"));
        assert_eq!(prices(Some("orb+stripe"), None).expect("Orb has them"), None);
    }
}
