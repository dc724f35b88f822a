//! Regions, instance types, images.

use axum::Json;
use axum::extract::State;
use coppice_app::App;
use coppice_core::image::image_name;
use coppice_core::operation::{LIST_IMAGES, LIST_INSTANCE_TYPES, LIST_REGIONS};
use coppice_wire::{Image, ImageList, InstanceType, InstanceTypeList, Region, RegionList};

use crate::error::ApiError;
use crate::request::{Call, as_unauthenticated};

/// `GET /organizations/{organizationID}/regions`
pub(crate) async fn list_regions(State(app): State<App>, call: Call) -> Result<Json<RegionList>, ApiError> {
    call.authorize(&app, &LIST_REGIONS).await.map_err(as_unauthenticated)?;
    let regions = app.list_regions().into_iter().map(|region| Region {
        id: region.id.to_string(),
        public_access: region.is_public,
        backups_enabled: false,
        provider: "custom".to_owned(),
        organization_id: None,
    });
    Ok(Json(RegionList { regions: regions.collect() }))
}

/// `GET /organizations/{organizationID}/instanceTypes`
pub(crate) async fn list_instance_types(
    State(app): State<App>,
    call: Call,
) -> Result<Json<InstanceTypeList>, ApiError> {
    call.authorize(&app, &LIST_INSTANCE_TYPES).await?;
    let types =
        app.list_instance_types(call.query("region"))?.into_iter().map(|(region, kind)| InstanceType {
            name: kind.name,
            vcpus: kind.vcpus,
            ram: kind.ram_gib,
            hourly_rate: f64::from(kind.hourly_rate_milli_usd) / 1000.0,
            storage_monthly_rate: f64::from(kind.storage_monthly_rate_cents) / 100.0,
            region: region.to_string(),
        });
    Ok(Json(InstanceTypeList { instance_types: types.collect() }))
}

/// `GET /organizations/{organizationID}/images`
pub(crate) async fn list_images(State(app): State<App>, call: Call) -> Result<Json<ImageList>, ApiError> {
    call.authorize(&app, &LIST_IMAGES).await?;
    let images = app.list_images(call.query("region"))?.into_iter().map(|(image, regions)| Image {
        name: image_name(image.version),
        major_version: image.version.major.to_string(),
        full_version: image.version.to_string(),
        region: regions.iter().map(ToString::to_string).collect(),
    });
    Ok(Json(ImageList { images: images.collect() }))
}
