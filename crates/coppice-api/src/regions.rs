//! Regions, instance types, images, extensions.

use coppice_app::{Access, App, ExtensionKind};
use coppice_core::Result;
use coppice_core::image::image_name;
use coppice_core::operation::{LIST_EXTENSIONS, LIST_IMAGES, LIST_INSTANCE_TYPES, LIST_REGIONS};
use coppice_wire as wire;

use serde::Deserialize;
use utoipa::IntoParams;

use crate::endpoint::{Endpoint, Query, Shown, get};
use crate::error::as_unauthenticated;

/// The parameters of the query.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct InRegion {
    /// Only of this region.
    #[param(format = "looked-up")]
    region: Option<String>,
}

/// Which extensions to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct OfImage {
    /// The image.
    #[param(example = "postgres:17", min_length = 1, format = "looked-up")]
    image: String,
    /// Only of this region.
    #[param(format = "looked-up")]
    region: Option<String>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Projects";
    vec![
        get("/regions", &LIST_REGIONS)
            .says(AREA, "List the regions where branches can be made", "Those that are open to everybody, and those of the organization.")
            .answers("Regions the organization may use.")
            .hides_forbidden(as_unauthenticated)
            .runs(list_regions),
        get("/instanceTypes", &LIST_INSTANCE_TYPES)
            .says(AREA, "List the sizes an instance can have", "With their CPUs, memory and rates; without a region those of every region.")
            .answers("Sizes with their prices.")
            .runs(list_instance_types),
        get("/images", &LIST_IMAGES)
            .says(AREA, "List the releases of PostgreSQL", "The newest first. `postgres:17` means the newest release of 17.")
            .answers("Releases, the newest first.")
            .runs(list_images),
        get("/extensions", &LIST_EXTENSIONS)
            .says(AREA, "List the extensions an image brings", "Extensions of PostgreSQL, and libraries that can be preloaded, with their versions and manuals.")
            .answers("Extensions by name.")
            .runs(list_extensions),
    ]
}

async fn list_regions(app: App, _: Access) -> Result<Shown<wire::RegionList>> {
    let regions = app.offers.regions().into_iter().map(|region| wire::Region {
        id: region.id.to_string(),
        public_access: region.is_public,
        backups_enabled: app.branches.makes_backups(),
        provider: wire::RegionProvider::Custom,
        organization_id: None,
    });
    Ok(Shown(wire::RegionList { regions: regions.collect() }))
}

async fn list_instance_types(
    app: App,
    _: Access,
    Query(asked): Query<InRegion>,
) -> Result<Shown<wire::InstanceTypeList>> {
    let types =
        app.offers.instance_types(asked.region.as_deref()).await?.into_iter().map(|(region, kind)| {
            let (hourly_rate, storage_monthly_rate) = app.billing.rates_of(&kind);
            wire::InstanceType {
                name: kind.name,
                vcpus: kind.vcpus,
                ram: kind.ram_gib,
                hourly_rate,
                storage_monthly_rate,
                region: region.to_string(),
            }
        });
    Ok(Shown(wire::InstanceTypeList { instance_types: types.collect() }))
}

async fn list_images(app: App, _: Access, Query(asked): Query<InRegion>) -> Result<Shown<wire::ImageList>> {
    let images =
        app.offers.images(asked.region.as_deref()).await?.into_iter().map(|(image, regions)| wire::Image {
            name: image_name(image.version),
            major_version: image.version.major.to_string(),
            full_version: image.version.to_string(),
            region: regions.iter().map(ToString::to_string).collect(),
        });
    Ok(Shown(wire::ImageList { images: images.collect() }))
}

async fn list_extensions(
    app: App,
    _: Access,
    Query(asked): Query<OfImage>,
) -> Result<Shown<wire::ExtensionList>> {
    let found = app.offers.extensions(&asked.image, asked.region.as_deref()).await?;
    let extensions = found.into_iter().map(|extension| wire::Extension {
        name: extension.name,
        version: extension.version,
        description: extension.description,
        docs: extension.docs,
        preload_required: extension.preload_required,
        kind: match extension.kind {
            ExtensionKind::Extension => wire::ExtensionKind::Extension,
            ExtensionKind::Module => wire::ExtensionKind::Module,
        },
    });
    Ok(Shown(wire::ExtensionList { extensions: extensions.collect() }))
}
