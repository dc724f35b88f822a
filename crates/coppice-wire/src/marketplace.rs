//! Subscriptions by way of a cloud's marketplace.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::BillingMarketplace;

/// What Amazon calls a customer and what they subscribed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AwsSubscription {
    /// The customer.
    #[schema(example = "ifAPi5AcF3", min_length = 1, max_length = 255)]
    pub customer_id: String,
    /// The product.
    #[schema(example = "prod-5f3k2example", min_length = 1, max_length = 255)]
    pub product_id: String,
    /// The account.
    #[schema(example = "123456789012", min_length = 1, max_length = 255)]
    pub account_id: String,
}

/// Body of registerMarketplace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MarketplaceRegister {
    /// Where.
    pub marketplace: BillingMarketplace,
    /// For which company.
    #[schema(example = "Acme", min_length = 1, max_length = 128)]
    pub company_name: String,
    /// What was subscribed to there.
    pub aws: AwsSubscription,
}

/// It is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MarketplaceRegistered {}
