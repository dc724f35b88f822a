//! What Vercel sends about an installation of our integration, and what it is told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{KnownFormat, Schema};

/// Body of upsertInstallation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpsertInstallation {
    /// What the installation lets us do at Vercel.
    #[schema(example = json!(["read:project"]), max_items = 100, max_length = 200)]
    pub scopes: Vec<String>,
    /// When which policy was accepted, by its id; at most 100.
    #[schema(schema_with = accepted_policies)]
    pub accepted_policies: BTreeMap<String, String>,
    /// By what we may do it.
    pub credentials: InstallationCredentials,
    /// Who installed the integration.
    pub account: InstallationAccount,
}

/// By what we may act on an installation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct InstallationCredentials {
    /// A secret of the installation.
    #[schema(min_length = 1, max_length = 4096)]
    pub access_token: String,
    /// How it is shown.
    #[schema(example = "Bearer", min_length = 1, max_length = 64)]
    pub token_type: String,
}

/// Who installed the integration.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct InstallationAccount {
    /// Their page at Vercel.
    #[schema(example = "https://vercel.com/acme", min_length = 1, max_length = 2000)]
    pub url: String,
    /// What they are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Acme", max_length = 500)]
    pub name: Option<String>,
    /// Whom to write to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<InstallationContact>,
}

/// Whom to write to about an installation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct InstallationContact {
    /// Their address.
    #[schema(example = "ada@example.com", min_length = 1, max_length = 320)]
    pub email: String,
    /// Their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Ada", max_length = 500)]
    pub name: Option<String>,
}

/// Body of deleteInstallation.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteInstallation {
    /// Whether its projects are deleted, too.
    #[serde(default)]
    pub cascade_resource_deletion: Option<bool>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
}

/// What Vercel is told when something is refused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VercelError {
    /// What.
    pub error: VercelProblem,
}

/// Why something is refused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VercelProblem {
    /// What programs tell refusals apart by.
    #[schema(example = "validation_error")]
    pub code: String,
    /// What happened, in words.
    pub message: String,
    /// Which fields are wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<VercelField>,
}

/// A field that is wrong.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VercelField {
    /// Its name.
    #[serde(rename = "key")]
    #[schema(example = "credentials.access_token")]
    pub name: String,
    /// What is wrong with it.
    pub message: String,
}

fn accepted_policies() -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
    let mut object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("When which policy was accepted, by its id; at most 100."))
        .property_names(Some(text()))
        .additional_properties(Some(text().format(Some(format))))
        .max_properties(Some(100))
        .build();
    object.example = Some(json!({ "toc": "2026-01-02T03:04:05Z" }));
    object.into()
}
