//! What the document says of what Vercel asks. Vercel prescribes it, and signs
//! for who calls: these are no operations for those who have a key.

use coppice_wire::{DeleteInstallation, UpsertInstallation, VercelError};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::PathItem;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use crate::endpoint::{self, Schemas};
use crate::vercel::INSTALLATION;

/// What marks them.
pub(super) const TAG: &str = "Vercel";
/// How it is known who calls.
const SCHEME: &str = "vercel";

const REFUSALS: [(&str, &str); 9] = [
    ("400", "`validation_error`: something is wrong with the path or the body; `fields` says what"),
    (
        "403",
        "`forbidden`: the token is missing, not Vercel's, for another installation or not valid now, or its person \
             may only look; or this platform has no integration on Vercel",
    ),
    ("405", "`method_not_allowed`"),
    ("408", "`validation_error`: the body did not arrive in time"),
    ("409", "`conflict`: the installation is being deleted"),
    ("413", "`validation_error`: the body has more than 1 MiB"),
    ("415", "`validation_error`: the body is no JSON, or is encoded"),
    ("429", "`rate_limited`; `Retry-After` says when to come again"),
    ("503", "`unavailable`: the metastore, or the keys of Vercel, can't be reached; it can be tried again"),
];

/// How it is known who calls.
fn scheme() -> SecurityScheme {
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").description(Some(
        "A token that Vercel's marketplace signs for this platform's integration, and for the installation of the path.",
    ));
    SecurityScheme::Http(scheme.build())
}

/// Adds them.
pub(super) fn add(document: &mut OpenApi) {
    let mut schemas: Schemas = vec![];
    endpoint::add::<UpsertInstallation>(&mut schemas);
    endpoint::add::<DeleteInstallation>(&mut schemas);
    endpoint::add::<VercelError>(&mut schemas);
    let components = document.components.get_or_insert_default();
    components.schemas.extend(schemas);
    components.security_schemes.insert(SCHEME.to_owned(), scheme().into());
    let installation = json!({
        "put": operation(
            "upsertInstallation",
            "Make an installation, or say how it is now",
            "An installation has an organization of its own. This can be repeated.",
            (&UpsertInstallation::name(), true),
        ),
        "delete": operation(
            "deleteInstallation",
            "Delete an installation",
            "It is finished in the background: its organization goes, unless there are projects left in it. One that \
             is not known is deleted already.",
            (&DeleteInstallation::name(), false),
        ),
    });
    let item: PathItem = serde_json::from_value(installation).expect("a path item");
    document.paths.paths.insert(INSTALLATION.to_owned(), item);
}

/// With the schema of its body, and whether it needs one.
fn operation(id: &str, summary: &str, description: &str, (body, is_required): (&str, bool)) -> Value {
    let content = |schema: &str| {
        let reference = json!({ "$ref": format!("#/components/schemas/{schema}") });
        json!({ "application/json": { "schema": reference } })
    };
    let mut responses = json!({ "204": { "description": "Done." } });
    for (status, description) in REFUSALS {
        responses[status] = json!({ "description": description, "content": content(&VercelError::name()) });
    }
    json!({
        "tags": [TAG],
        "operationId": id,
        "summary": summary,
        "description": description,
        "security": [{ SCHEME: [] }],
        "parameters": [{
            "name": "installationId", "in": "path", "required": true, "description": "The installation.",
            "schema": { "type": "string", "pattern": "^icfg_[A-Za-z0-9]{1,64}$" },
            "example": "icfg_9bceb8ccT32d3U417ezb5c8p",
        }],
        "requestBody": { "required": is_required, "content": content(body) },
        "responses": responses,
    })
}
