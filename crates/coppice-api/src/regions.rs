//! Regions, instance types, images, extensions.

use axum::Json;
use axum::extract::State;
use coppice_app::{App, ExtensionKind};
use coppice_core::image::image_name;
use coppice_core::operation::{LIST_EXTENSIONS, LIST_IMAGES, LIST_INSTANCE_TYPES, LIST_REGIONS};
use coppice_wire as wire;

use crate::error::ApiError;
use crate::request::{Call, InOrganization, as_unauthenticated};

/// List the regions where branches can be made
///
/// Those that are open to everybody, and those of the organization.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/regions", operation_id = "listRegions", tag = "Projects",
    params(InOrganization),
    responses((status = 200, description = "Regions the organization may use.", body = wire::RegionList))
)]
pub(crate) async fn list_regions(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::RegionList>, ApiError> {
    call.authorize(&app, &LIST_REGIONS).await.map_err(as_unauthenticated)?;
    let regions = app.list_regions().into_iter().map(|region| wire::Region {
        id: region.id.to_string(),
        public_access: region.is_public,
        backups_enabled: false,
        provider: wire::RegionProvider::Custom,
        organization_id: None,
    });
    Ok(Json(wire::RegionList { regions: regions.collect() }))
}

/// List the sizes an instance can have
///
/// With their CPUs, memory and rates; without a region those of every region.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/instanceTypes", operation_id = "listInstanceTypes",
    tag = "Projects",
    params(InOrganization, ("region" = Option<String>, Query, description = "Only of this region.")),
    responses((status = 200, description = "Sizes with their prices.", body = wire::InstanceTypeList))
)]
pub(crate) async fn list_instance_types(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::InstanceTypeList>, ApiError> {
    call.authorize(&app, &LIST_INSTANCE_TYPES).await?;
    let types =
        app.list_instance_types(call.query("region"))?.into_iter().map(|(region, kind)| wire::InstanceType {
            name: kind.name,
            vcpus: kind.vcpus,
            ram: kind.ram_gib,
            hourly_rate: f64::from(kind.hourly_rate_milli_usd) / 1000.0,
            storage_monthly_rate: f64::from(kind.storage_monthly_rate_cents) / 100.0,
            region: region.to_string(),
        });
    Ok(Json(wire::InstanceTypeList { instance_types: types.collect() }))
}

/// List the releases of PostgreSQL
///
/// The newest first. `postgres:17` means the newest release of 17.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/images", operation_id = "listImages", tag = "Projects",
    params(InOrganization, ("region" = Option<String>, Query, description = "Only of this region.")),
    responses((status = 200, description = "Releases, the newest first.", body = wire::ImageList))
)]
pub(crate) async fn list_images(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::ImageList>, ApiError> {
    call.authorize(&app, &LIST_IMAGES).await?;
    let images = app.list_images(call.query("region"))?.into_iter().map(|(image, regions)| wire::Image {
        name: image_name(image.version),
        major_version: image.version.major.to_string(),
        full_version: image.version.to_string(),
        region: regions.iter().map(ToString::to_string).collect(),
    });
    Ok(Json(wire::ImageList { images: images.collect() }))
}

/// List the extensions an image brings
///
/// Extensions of PostgreSQL, and libraries that can be preloaded, with their versions and manuals.
#[utoipa::path(
    get, path = "/organizations/{organizationID}/extensions", operation_id = "listExtensions",
    tag = "Projects",
    params(
        InOrganization,
        ("image" = String, Query, description = "The image.", example = "postgres:17", min_length = 1),
        ("region" = Option<String>, Query, description = "Only of this region.")
    ),
    responses((status = 200, description = "Extensions by name.", body = wire::ExtensionList))
)]
pub(crate) async fn list_extensions(
    State(app): State<App>,
    call: Call,
) -> Result<Json<wire::ExtensionList>, ApiError> {
    call.authorize(&app, &LIST_EXTENSIONS).await?;
    let found = app.list_extensions(call.required_query("image")?, call.query("region")).await?;
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
    Ok(Json(wire::ExtensionList { extensions: extensions.collect() }))
}
