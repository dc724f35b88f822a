//! AWS Marketplace as the operator set it up.

use coppice_core::usage::Meter;
use reqwest::Url;
use zeroize::Zeroizing;

/// Who asks AWS.
#[derive(Clone)]
pub enum AwsIdentity {
    /// Whoever has this key.
    Key {
        /// Its id.
        id: String,
        /// What requests are signed with.
        secret: Zeroizing<String>,
    },
    /// The account of the `AWS_…` variables, or of the machine.
    Machine,
}

/// What the product calls something that is metered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeteredDimension {
    /// What is metered.
    pub meter: Meter,
    /// The type of the instances, where those are counted; else empty.
    pub instance_type: String,
    /// What it is called there.
    pub dimension: String,
}

/// AWS Marketplace as the operator set it up.
#[derive(Clone)]
pub struct AwsMarketplaceConfig {
    /// The product, as AWS calls it.
    pub product_code: String,
    /// The region in which AWS is told what is used.
    pub region: String,
    /// Who asks.
    pub identity: AwsIdentity,
    /// What is charged; what is not in it costs nothing.
    pub dimensions: Vec<MeteredDimension>,
    /// Where AWS is told what is used.
    pub metering: Url,
    /// The queue with what AWS tells of subscriptions.
    pub queue: Url,
    /// The region of that.
    pub queue_region: String,
}

impl std::fmt::Debug for AwsMarketplaceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsMarketplaceConfig")
            .field("product_code", &self.product_code)
            .field("dimensions", &self.dimensions)
            .field("metering", &self.metering.as_str())
            .field("queue", &self.queue.as_str())
            .finish_non_exhaustive()
    }
}

impl AwsMarketplaceConfig {
    /// What the product calls something, if it is charged.
    pub(super) fn dimension(&self, meter: Meter, instance_type: &str) -> Option<&str> {
        let mut all = self.dimensions.iter();
        let found = all.find(|one| one.meter == meter && one.instance_type == instance_type)?;
        Some(&found.dimension)
    }
}
