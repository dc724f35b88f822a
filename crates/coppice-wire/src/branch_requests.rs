//! What branches are asked to be.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::Schema;
use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, SchemaType, Type};

use crate::{BackupConfigurationChange, Expiry, ScaleToZeroChange, Timestamp};

/// What a branch without a parent shall be made of.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomConfiguration {
    /// Where it shall run.
    #[schema(example = "local", format = "looked-up")]
    pub region: String,
    /// Its size, from listInstanceTypes.
    #[schema(example = "micro", format = "looked-up")]
    pub instance_type: String,
    /// PostgreSQL and its version; `postgres:17` is the newest 17.
    #[schema(example = "postgres:17", format = "looked-up")]
    pub image: String,
    /// Instances besides the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0, minimum = 0, maximum = 4)]
    pub replicas: Option<u32>,
    /// Most storage, in GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 10, minimum = 1, maximum = 65536)]
    pub storage: Option<u32>,
    /// Parameters over the defaults, from getBranchPostgresConfig; at most 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = first_parameters)]
    pub postgres_configuration_parameters: Option<BTreeMap<String, String>>,
    /// Libraries that every session shall have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pg_stat_statements"]), max_items = 50, format = "looked-up")]
    pub preload_libraries: Option<Vec<String>>,
}

/// Body of createBranch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum CreateBranch {
    /// A copy of another branch, as it is now or was at a moment.
    Inherit(InheritBranch),
    /// An empty database.
    Custom(CustomBranch),
}

/// A copy of another branch.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InheritBranch {
    /// Unique in the project.
    #[schema(example = "pr-12", min_length = 1, max_length = 255, format = "name")]
    pub name: String,
    /// The branch to copy.
    #[serde(rename = "parentID")]
    #[schema(example = "kq7m2kj8fr3cjdr0h2qkv5s4c0", pattern = "^[A-Za-z0-9_-]{1,64}$", format = "id")]
    pub parent_id: String,
    /// What shall be otherwise than there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<InheritedConfiguration>,
    /// Instead of what it is, what it was before it was reset or upgraded: one of `versions` of getBranchHistory.
    #[serde(rename = "versionID", default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "vol_0d3q8v1c5k2m4n6p8r0s2t4u6g", pattern = "^[A-Za-z0-9_-]{1,64}$", format = "id")]
    pub version_id: Option<String>,
    /// The time to copy it as of, within the window of getBranchHistory; before the branch was reset or upgraded, it is
    /// what it was then. Without it, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_time: Option<Timestamp>,
    /// Instead of a time, a place in its write-ahead log, as `pg_current_wal_insert_lsn()` tells it. It is looked for in
    /// what the branch is now first, then in its versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0/3000060", max_length = 17, format = "looked-up")]
    pub target_lsn: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "PR 12",
        max_length = 50,
        pattern = "^([a-zA-Z0-9]+[a-zA-Z0-9- ]*)?$",
        format = "description"
    )]
    pub description: Option<String>,
    /// What it is told apart by, for example in what is used: at most 16. A key has at most 63 letters, digits, dots,
    /// hyphens, underscores and slashes. Those of its parent are not taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = first_labels)]
    pub labels: Option<BTreeMap<String, String>>,
    /// When it may sleep, if not as the project says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroChange>,
    /// What shall be kept of what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_configuration: Option<BackupConfigurationChange>,
    /// When it shall be deleted; null is never, and absent is when the project says (`childExpiryHours`), or never.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::time::said")]
    #[schema(value_type = Option<Expiry>)]
    pub expires_at: Option<Option<Expiry>>,
}

/// What a copy shall have otherwise than its parent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InheritedConfiguration {
    /// Its size, from listInstanceTypes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "small", format = "looked-up")]
    pub instance_type: Option<String>,
    /// A later release of the same major version; `postgres:17` is the newest 17.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "postgres:17", format = "looked-up")]
    pub image: Option<String>,
    /// Most storage, in GiB; no less than that of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 20, minimum = 1, maximum = 65536)]
    pub storage: Option<u32>,
    /// PostgreSQL parameters over those of its parent; a default takes the choice away. At most 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = changed_parameters)]
    pub postgres_configuration_parameters: Option<BTreeMap<String, String>>,
    /// All libraries that every session shall have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pg_stat_statements"]), max_items = 50, format = "looked-up")]
    pub preload_libraries: Option<Vec<String>>,
}

/// A branch with an empty database.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomBranch {
    /// Unique in the project.
    #[schema(example = "main", min_length = 1, max_length = 255, format = "name")]
    pub name: String,
    /// What it shall be made of.
    pub configuration: CustomConfiguration,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "production",
        max_length = 50,
        pattern = "^([a-zA-Z0-9]+[a-zA-Z0-9- ]*)?$",
        format = "description"
    )]
    pub description: Option<String>,
    /// What it is told apart by, for example in what is used: at most 16. A key has at most 63 letters, digits, dots,
    /// hyphens, underscores and slashes. Those of its parent are not taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = first_labels)]
    pub labels: Option<BTreeMap<String, String>>,
    /// When it may sleep, if not as the project says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroChange>,
    /// What shall be kept of what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_configuration: Option<BackupConfigurationChange>,
    /// When it shall be deleted, if it shall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Expiry>,
}

/// Body of updateBranch; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateBranch {
    /// Its new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "main", min_length = 1, max_length = 255, format = "name")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(
        example = "production",
        max_length = 50,
        pattern = "^([a-zA-Z0-9]+[a-zA-Z0-9- ]*)?$",
        format = "description"
    )]
    pub description: Option<String>,
    /// Labels over those it has, of which there are at most 16; an empty value takes one away. What it uses counts for
    /// the new ones from this hour on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = changed_labels)]
    pub labels: Option<BTreeMap<String, String>>,
    /// When it may sleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_to_zero: Option<ScaleToZeroChange>,
    /// True lets nobody delete it, nor its project, and time neither. To change it needs the scope `project:write`, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = false)]
    pub protected: Option<bool>,
    /// When it is deleted; null is never.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::time::said")]
    #[schema(value_type = Option<Expiry>)]
    pub expires_at: Option<Option<Expiry>>,
    /// What is kept of what it was; at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_configuration: Option<BackupConfigurationChange>,
    /// True puts it to sleep, false wakes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = true)]
    pub hibernate: Option<bool>,
    /// Instances besides the primary, which only read; made or removed while the primary goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1, minimum = 0, maximum = 4)]
    pub replicas: Option<u32>,
    /// Most storage, in GiB; may only grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 20, minimum = 1, maximum = 65536)]
    pub storage: Option<u32>,
    /// Its size, from listInstanceTypes; restarts the server. Parameters that were not chosen follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "small", format = "looked-up")]
    pub instance_type: Option<String>,
    /// A later release of the same major version; `postgres:17` is the newest 17. Restarts the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "postgres:17", format = "looked-up")]
    pub image: Option<String>,
    /// PostgreSQL parameters over those it has; a default takes the choice away. At most 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = changed_parameters)]
    pub postgres_configuration_parameters: Option<BTreeMap<String, String>>,
    /// All libraries that every session shall have; restarts the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["pg_stat_statements"]), max_items = 50, format = "looked-up")]
    pub preload_libraries: Option<Vec<String>>,
}

fn first_parameters() -> Schema {
    parameters("Parameters over the defaults, from getBranchPostgresConfig; at most 200.")
}

fn changed_parameters() -> Schema {
    parameters("PostgreSQL parameters over those it has; a default takes the choice away. At most 200.")
}

pub(crate) fn first_labels() -> Schema {
    labels("What it is told apart by; at most 16. Those of its parent are not taken over.", 1)
}

fn changed_labels() -> Schema {
    labels("Labels over those it has, of which there are at most 16; an empty value takes one away.", 0)
}

fn labels(description: &str, value_min: usize) -> Schema {
    let text = |format: &str| {
        let format = SchemaFormat::Custom(format.to_owned());
        ObjectBuilder::new().schema_type(Type::String).format(Some(format))
    };
    let key = text("label-key").min_length(Some(1)).max_length(Some(63));
    let key = key.pattern(Some("^[A-Za-z0-9][A-Za-z0-9._/-]*$"));
    let value = text("remark").min_length(Some(value_min)).max_length(Some(255));
    let mut object = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some(description))
        .property_names(Some(key))
        .additional_properties(Some(value))
        .max_properties(Some(32))
        .build();
    object.example = Some(json!({ "team": "shop" }));
    object.into()
}

/// A refusal names every parameter that is wrong; there are far fewer that can be set.
fn parameters(description: &str) -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let value = text().format(Some(SchemaFormat::Custom("looked-up".to_owned())));
    let mut object = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some(description))
        .property_names(Some(text().format(Some(SchemaFormat::Custom("looked-up".to_owned())))))
        .additional_properties(Some(value))
        .max_properties(Some(200))
        .build();
    object.example = Some(json!({ "work_mem": "16MB" }));
    object.into()
}
