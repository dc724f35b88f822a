//! Webhooks: where events of an organization are sent to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{EventType, Timestamp};

/// Where events of an organization are sent to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// Its id.
    #[schema(example = "whk_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// Where to. Its path and query may be a secret of the receiver: unless both the credential and the role allow org:write there is `…` in their place.
    #[schema(example = "https://shop.example/hook", max_length = 2000)]
    pub url: String,
    /// For people; empty when there is none.
    #[schema(example = "chat", max_length = 100)]
    pub description: String,
    /// Only these types; without one every type.
    #[schema(max_items = 50)]
    pub types: Vec<EventType>,
    /// Only what is about these projects; without one everything.
    #[schema(max_items = 50)]
    pub projects: Vec<String>,
    /// Whether anything is sent.
    pub enabled: bool,
    /// Whether its receiver answered 410, and it was turned off for that.
    pub gone: bool,
    /// Until when deliveries are signed with the replaced secret, too; null when there is none.
    #[schema(required)]
    pub former_until: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// What deliveries are signed with; only in the answer that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    pub secret: Option<String>,
}

/// Answer of listWebhooks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    /// Oldest first.
    pub webhooks: Vec<Webhook>,
}

/// Body of createWebhook.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CreateWebhook {
    /// Where to: https, and an address of the internet unless the operator allows others.
    #[schema(example = "https://shop.example/hook", min_length = 1, max_length = 2000, format = "looked-up")]
    pub url: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "chat", max_length = 100, format = "remark")]
    pub description: Option<String>,
    /// Only these types; without one every type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 50)]
    pub types: Option<Vec<EventType>>,
    /// Only what is about these projects; without one everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["prj_06gq0m2kj8fr3cjdr0h2qkv5s4"]), max_items = 50, format = "id")]
    pub projects: Option<Vec<String>>,
}

/// Body of updateWebhook; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct UpdateWebhook {
    /// Where to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "https://shop.example/hook", min_length = 1, max_length = 2000, format = "looked-up")]
    pub url: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "chat", max_length = 100, format = "remark")]
    pub description: Option<String>,
    /// Replaces all types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 50)]
    pub types: Option<Vec<EventType>>,
    /// Replaces all projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["prj_06gq0m2kj8fr3cjdr0h2qkv5s4"]), max_items = 50, format = "id")]
    pub projects: Option<Vec<String>>,
    /// Whether anything is sent. What is due meanwhile waits; what happens meanwhile is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// To be tried, for the first time or again.
    Pending,
    /// Its receiver answered with a status from 200 to 299.
    Delivered,
    /// Given up.
    Failed,
}

/// An event on its way to a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookDelivery {
    /// Its id.
    #[schema(example = "dlv_06gq0m2kj8fr3cjdr0h2qkv5s4", pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub id: String,
    /// The event; the `webhook-id` of every attempt.
    #[schema(example = "evt_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub event_id: String,
    /// Its type.
    pub r#type: EventType,
    /// How far it is.
    pub state: DeliveryState,
    /// How often it was tried since it was last begun anew.
    #[schema(example = 1)]
    pub attempts: u32,
    /// The status of the last answer; null when there was none.
    #[schema(required, example = 200)]
    pub status: Option<u16>,
    /// Why the last attempt got no answer; null when it got one.
    #[schema(required, example = "no connection could be made")]
    pub failure: Option<String>,
    /// When the event was published.
    pub created_at: Timestamp,
    /// When it was last tried; null when it was not.
    #[schema(required)]
    pub attempted_at: Option<Timestamp>,
    /// When it is tried next; null when it is not.
    #[schema(required)]
    pub next_attempt_at: Option<Timestamp>,
}

/// Answer of listWebhookDeliveries.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookDeliveryList {
    /// The newest first.
    pub deliveries: Vec<WebhookDelivery>,
    /// Goes on with older ones; null when these are the last.
    #[schema(required, example = "dlv_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    pub next_cursor: Option<String>,
}
