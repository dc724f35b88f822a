//! What Vercel sends about an installation of our integration, and what it is told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, SchemaFormat, Type};
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

/// What there is to be known of an installation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VercelInstallation {
    /// By what its databases are charged.
    pub billing_plan: VercelPlan,
    /// What people should know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification: Option<VercelNotification>,
}

/// Body of updateInstallation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateInstallation {
    /// By what its databases are charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "standard", max_length = 64)]
    pub billing_plan_id: Option<String>,
}

/// What people should know.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VercelNotification {
    /// How bad it is: `info`, `warn` or `error`.
    #[schema(example = "warn")]
    pub level: String,
    /// What it is.
    pub title: String,
}

/// By what something can be charged.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VercelPlans {
    /// All there are.
    pub plans: Vec<VercelPlan>,
}

/// By what something is charged.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VercelPlan {
    /// Its id.
    #[schema(example = "standard")]
    pub id: String,
    /// When it is to be paid: `subscription`, afterwards.
    #[serde(rename = "type")]
    #[schema(example = "subscription")]
    pub kind: String,
    /// What each has one of: `resource`, a database.
    #[schema(example = "resource")]
    pub scope: String,
    /// What it is called.
    #[schema(example = "Standard")]
    pub name: String,
    /// What there is to be known of it.
    pub description: String,
    /// Whether nothing can be had without something to pay with.
    pub payment_method_required: bool,
}

/// Body of provisionResource.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionResource {
    /// Which of our products it is, as Vercel knows that.
    #[schema(example = "iap_postgres", min_length = 1, max_length = 128)]
    pub product_id: String,
    /// What it is to be called.
    #[schema(example = "shop", min_length = 1, max_length = 128, format = "name")]
    pub name: String,
    /// What was chosen for it at Vercel; it is kept, and told again.
    #[serde(default)]
    #[schema(schema_with = metadata)]
    pub metadata: BTreeMap<String, Value>,
    /// By what it is charged.
    #[schema(example = "standard", min_length = 1, max_length = 64)]
    pub billing_plan_id: String,
}

/// Body of updateResource.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateResource {
    /// What it is to be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "shop", min_length = 1, max_length = 128, format = "name")]
    pub name: Option<String>,
    /// What was chosen for it at Vercel, in place of what was chosen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = metadata)]
    pub metadata: Option<BTreeMap<String, Value>>,
    /// By what it is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "standard", min_length = 1, max_length = 64)]
    pub billing_plan_id: Option<String>,
}

/// A database that somebody has by Vercel.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VercelResource {
    /// The id of its project here.
    #[schema(example = "prj_06cq3k5p2v8e1n4s7t0w9x2y5z")]
    pub id: String,
    /// Which of our products it is.
    #[schema(example = "iap_postgres")]
    pub product_id: String,
    /// What it is called.
    #[schema(example = "shop")]
    pub name: String,
    /// What was chosen for it at Vercel.
    #[schema(schema_with = metadata)]
    pub metadata: Value,
    /// How it is.
    pub status: VercelStatus,
    /// By what it is charged.
    pub billing_plan: VercelPlan,
    /// What to connect with; told once, when it is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<VercelSecret>,
}

/// How a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VercelStatus {
    /// It can be used, awake or asleep.
    Ready,
    /// It is being made.
    Pending,
    /// Its organization is disabled.
    Suspended,
    /// It could not be made, or does not start.
    Error,
}

/// A variable for the programs of an account.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VercelSecret {
    /// Its name.
    #[schema(example = "DATABASE_URL")]
    pub name: String,
    /// Its value, a secret.
    pub value: String,
}

/// Body of rotateResourceSecrets.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotateResourceSecrets {
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
    /// For how many hours more the former ones are good; a part of one is fine. Without it they end at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 24, minimum = 0, maximum = 720)]
    pub delay_old_secrets_expiration_hours: Option<f64>,
}

/// Secrets in place of others.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RotatedSecrets {
    /// Whether they are there already, as they always are.
    pub sync: bool,
    /// All of them.
    pub secrets: Vec<VercelSecret>,
}

/// Body of createTransfer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransferResources {
    /// Which databases are to get to another account.
    #[schema(min_items = 1, max_items = 100, max_length = 64, example = json!(["prj_06cq3k5p2v8e1n4s7t0w9x2y5z"]))]
    pub resource_ids: Vec<String>,
    /// Until when they can be taken, in milliseconds since 1970; 90 days at most.
    #[schema(example = 1_900_000_000_000_i64, minimum = 0, maximum = 8_000_000_000_000_000_i64)]
    pub expires_at: f64,
}

/// That databases can be taken; nothing has to be chosen for that.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct VerifiedTransfer {}

/// What databases can be taken by.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VercelTransfer {
    /// Whoever brings it gets them, once.
    pub provider_claim_id: String,
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

/// A schema of an object whose values can be anything.
fn metadata() -> Schema {
    let mut object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("What was chosen for it at Vercel: at most 100 values, and 16 KiB as JSON."))
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
        .max_properties(Some(100))
        .build();
    object.example = Some(json!({ "region": "fra1" }));
    object.into()
}

fn accepted_policies() -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
    let mut object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("When which policy was accepted, by its id; at most 100."))
        .property_names(Some(text().format(Some(SchemaFormat::Custom("looked-up".to_owned())))))
        .additional_properties(Some(text().format(Some(format))))
        .max_properties(Some(100))
        .build();
    object.example = Some(json!({ "toc": "2026-01-02T03:04:05Z" }));
    object.into()
}
