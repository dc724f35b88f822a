//! Regions, instance types, images and extensions on offer.

mod extensions;

use std::net::IpAddr;

use coppice_core::error::excerpt;
use coppice_core::instance_type::{InstanceType, types_that_fit};
use coppice_core::{Error, ErrorCode, RegionId, Result};
use coppice_engine::{Image, SharedEngine};

pub use extensions::{Extension, ExtensionKind};

/// A place where branches can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its id.
    pub id: RegionId,
    /// Whether its databases are reachable from the internet.
    pub is_public: bool,
}

/// What can be had where.
#[derive(Clone)]
pub struct Offers {
    engine: SharedEngine,
    /// The one there is.
    region: RegionId,
    /// Where clients reach the gateway.
    gateway_host: String,
}

impl Offers {
    pub(crate) fn new(engine: SharedEngine, region: RegionId, gateway_host: String) -> Self {
        Self { engine, region, gateway_host }
    }

    /// Regions an organization may use.
    pub fn regions(&self) -> Vec<Region> {
        let host = self.gateway_host.as_str();
        let is_loopback = host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback());
        vec![Region { id: self.region.clone(), is_public: !is_loopback }]
    }

    /// The region with this name; without one, every region.
    fn regions_named(&self, name: Option<&str>) -> Result<Vec<Region>> {
        let regions = self.regions();
        match name.filter(|name| !name.is_empty()) {
            None => Ok(regions),
            Some(name) => {
                let found: Vec<_> = regions.into_iter().filter(|region| region.id.as_str() == name).collect();
                if found.is_empty() { Err(self.unknown_region(name)) } else { Ok(found) }
            }
        }
    }

    fn unknown_region(&self, name: &str) -> Error {
        Error::invalid(ErrorCode::InvalidRegion, format!("invalid region {}", excerpt(name)))
    }

    /// Checks that branches can be made in a region.
    pub(crate) fn check_region(&self, name: &str) -> Result<RegionId> {
        let region = self.regions().into_iter().find(|region| region.id.as_str() == name);
        region.map(|region| region.id).ok_or_else(|| self.unknown_region(name))
    }

    /// Instance types by region.
    ///
    /// # Errors
    /// `invalid_region`
    pub async fn instance_types(&self, region: Option<&str>) -> Result<Vec<(RegionId, InstanceType)>> {
        let capacity = self.engine.capacity().await?;
        let regions = self.regions_named(region)?;
        Ok(regions
            .into_iter()
            .flat_map(|region| {
                types_that_fit(capacity.cpus, capacity.memory_bytes)
                    .into_iter()
                    .map(move |kind| (region.id.clone(), kind))
            })
            .collect())
    }

    /// Images, the newest version first, with the regions that offer them.
    ///
    /// # Errors
    /// `invalid_region`
    pub async fn images(&self, region: Option<&str>) -> Result<Vec<(Image, Vec<RegionId>)>> {
        let regions: Vec<_> = self.regions_named(region)?.into_iter().map(|region| region.id).collect();
        let mut images = self.engine.images().await?;
        images.sort_by_key(|image| std::cmp::Reverse(image.version));
        Ok(images.into_iter().map(|image| (image, regions.clone())).collect())
    }
}
