//! Subscriptions by way of a cloud's marketplace.

/// A marketplace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marketplace {
    /// Amazon's.
    Aws,
}

impl Marketplace {
    /// As the metastore has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
        }
    }

    /// The marketplace of that name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        (name == Self::Aws.as_str()).then_some(Self::Aws)
    }
}

/// What somebody says they have subscribed to. It is their word: nothing is paid,
/// and nobody is let off paying, because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarketplaceRegistration {
    /// Where.
    pub marketplace: Marketplace,
    /// For which company.
    pub company_name: String,
    /// What the marketplace calls the customer.
    pub customer_id: String,
    /// What was subscribed to.
    pub product_id: String,
    /// The account at the cloud.
    pub account_id: String,
}
