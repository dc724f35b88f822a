//! Formats of texts that only this program knows are not in the document:
//! pattern and length say what of them can be said.

use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, SchemaFormat};
use utoipa::openapi::{RefOr, Schema};

use crate::body::Format;

/// Leaves them out of a schema, with what it holds.
pub(crate) fn hide(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => {
            let is_ours = |format: &mut SchemaFormat| match format {
                SchemaFormat::Custom(name) => Format::named(name).is_some_and(|format| !format.is_public),
                SchemaFormat::KnownFormat(_) => false,
            };
            object.format.take_if(is_ours);
            object.properties.values_mut().for_each(hide);
            if let Some(AdditionalProperties::RefOr(values)) = object.additional_properties.as_deref_mut() {
                hide(values);
            }
            if let Some(names) = object.property_names.take() {
                let mut names = RefOr::T(*names);
                hide(&mut names);
                if let RefOr::T(names) = names {
                    object.property_names = Some(Box::new(names));
                }
            }
        }
        RefOr::T(Schema::Array(array)) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                hide(items);
            }
        }
        _ => {}
    }
}
