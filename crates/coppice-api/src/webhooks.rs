//! Webhooks: where events of an organization are sent to.

use coppice_app::{Access, App, WebhookChange, WebhookRequest};
use coppice_core::Result;
use coppice_core::operation::{
    CREATE_WEBHOOK, DELETE_WEBHOOK, GET_WEBHOOK, LIST_WEBHOOK_DELIVERIES, LIST_WEBHOOKS,
    RESEND_WEBHOOK_DELIVERY, ROTATE_WEBHOOK, UPDATE_WEBHOOK,
};
use coppice_core::target::{OnDelivery, OnWebhook};
use coppice_core::webhook::{Delivery, DeliveryState, Webhook};
use coppice_wire as wire;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::endpoint::{Begun, Body, Done, Endpoint, Made, Query, Shown, delete, get, patch, post};
use crate::events::{type_from_wire, type_to_wire};

/// Deliveries of an answer when nobody says how many.
const COUNT_DEFAULT: u32 = 100;

pub(crate) fn endpoints() -> Vec<Endpoint> {
    const AREA: &str = "Events";
    vec![
        get("/webhooks", &LIST_WEBHOOKS)
            .says(AREA, "List the webhooks of an organization", "Without their secrets.")
            .answers("Its webhooks.")
            .runs(list_webhooks),
        post("/webhooks", &CREATE_WEBHOOK)
            .says(AREA, "Make a webhook", "What happens from now on is sent there, signed as Standard Webhooks says, at least once and in no order.\nIts secret is in this answer only.")
            .answers("The new webhook with its secret.")
            .runs(create_webhook),
        get("", &GET_WEBHOOK)
            .says(AREA, "Show a webhook", "Where it leads, and which events it is sent; without its secret.")
            .answers("The webhook.")
            .runs(get_webhook),
        patch("", &UPDATE_WEBHOOK)
            .says(AREA, "Change a webhook", "Lists are replaced as a whole. One whose receiver answered 410 is off until it is enabled again.")
            .answers("The webhook as it is now.")
            .runs(update_webhook),
        delete("", &DELETE_WEBHOOK)
            .says(AREA, "Delete a webhook", "With its deliveries; what is due to it is not sent any more.")
            .answers("Deleted.")
            .runs(delete_webhook),
        post("/rotate", &ROTATE_WEBHOOK)
            .says(AREA, "Replace the secret of a webhook", "For 24 hours deliveries are signed with both, the new one first. The new secret is in this answer only.")
            .answers("The webhook with its new secret.")
            .runs(rotate_webhook),
        get("/deliveries", &LIST_WEBHOOK_DELIVERIES)
            .says(AREA, "List what was sent to a webhook", "The newest first, with how it went. Of answers only the status is kept.")
            .answers("Deliveries.")
            .runs(list_webhook_deliveries),
        post("/resend", &RESEND_WEBHOOK_DELIVERY)
            .says(AREA, "Send a delivery again", "Whatever came of it, from the first attempt on and with the same `webhook-id`.")
            .answers("It is sent again soon, or once the webhook is enabled.")
            .runs(resend_webhook_delivery),
    ]
}

async fn list_webhooks(app: App, access: Access) -> Result<Shown<wire::WebhookList>> {
    let webhooks = app.webhooks.list(&access).await?;
    let webhooks = webhooks.into_iter().map(|webhook| to_wire(webhook, None)).collect::<Result<_>>()?;
    Ok(Shown(wire::WebhookList { webhooks }))
}

async fn create_webhook(
    app: App,
    access: Access,
    Body(asked): Body<wire::CreateWebhook>,
) -> Result<Made<wire::Webhook>> {
    let new = WebhookRequest {
        url: asked.url,
        description: asked.description.unwrap_or_default(),
        types: asked.types.unwrap_or_default().into_iter().map(type_from_wire).collect::<Result<_>>()?,
        projects: asked.projects.unwrap_or_default(),
    };
    let (webhook, secret) = app.webhooks.create(&access, &new).await?;
    Ok(Made(to_wire(webhook, Some(secret.to_string()))?))
}

async fn get_webhook(app: App, access: Access<OnWebhook>) -> Result<Shown<wire::Webhook>> {
    Ok(Shown(to_wire(app.webhooks.get(&access).await?, None)?))
}

async fn update_webhook(
    app: App,
    access: Access<OnWebhook>,
    Body(asked): Body<wire::UpdateWebhook>,
) -> Result<Shown<wire::Webhook>> {
    let types = asked.types.map(|types| types.into_iter().map(type_from_wire).collect::<Result<_>>());
    let change = WebhookChange {
        url: asked.url,
        description: asked.description,
        types: types.transpose()?,
        projects: asked.projects,
        enabled: asked.enabled,
    };
    Ok(Shown(to_wire(app.webhooks.update(&access, change).await?, None)?))
}

async fn delete_webhook(app: App, access: Access<OnWebhook>) -> Result<Done> {
    app.webhooks.delete(&access).await?;
    Ok(Done)
}

async fn rotate_webhook(app: App, access: Access<OnWebhook>) -> Result<Shown<wire::Webhook>> {
    let (webhook, secret) = app.webhooks.rotate(&access).await?;
    Ok(Shown(to_wire(webhook, Some(secret.to_string()))?))
}

/// Which deliveries to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListDeliveries {
    /// Goes on after the answer whose `next_cursor` it was.
    #[param(format = "id")]
    cursor: Option<String>,
    /// Most of them in this answer.
    #[param(minimum = 1, maximum = 200, default = 100)]
    limit: Option<u32>,
}

async fn list_webhook_deliveries(
    app: App,
    access: Access<OnWebhook>,
    Query(asked): Query<ListDeliveries>,
) -> Result<Shown<wire::WebhookDeliveryList>> {
    let count_max = asked.limit.unwrap_or(COUNT_DEFAULT);
    let page = app.webhooks.list_deliveries(&access, asked.cursor.as_deref(), count_max).await?;
    let deliveries = page.deliveries.into_iter().map(delivery).collect::<Result<_>>()?;
    Ok(Shown(wire::WebhookDeliveryList { deliveries, next_cursor: page.next_cursor }))
}

async fn resend_webhook_delivery(app: App, access: Access<OnDelivery>) -> Result<Begun> {
    app.webhooks.resend_delivery(&access).await?;
    Ok(Begun)
}

fn to_wire(webhook: Webhook, secret: Option<String>) -> Result<wire::Webhook> {
    Ok(wire::Webhook {
        id: webhook.id.to_string(),
        url: webhook.url,
        description: webhook.description,
        types: webhook.interest.types.iter().map(|name| type_to_wire(name)).collect::<Result<_>>()?,
        projects: webhook.interest.projects,
        enabled: webhook.is_enabled,
        gone: webhook.is_gone,
        former_until: webhook.former_secret_until.map(wire::Timestamp),
        created_at: wire::Timestamp(webhook.created_at),
        updated_at: wire::Timestamp(webhook.updated_at),
        secret,
    })
}

fn delivery(delivery: Delivery) -> Result<wire::WebhookDelivery> {
    Ok(wire::WebhookDelivery {
        id: delivery.id.to_string(),
        event_id: delivery.event.to_string(),
        r#type: type_to_wire(delivery.kind.as_str())?,
        state: match delivery.state {
            DeliveryState::Pending => wire::DeliveryState::Pending,
            DeliveryState::Delivered => wire::DeliveryState::Delivered,
            DeliveryState::Failed => wire::DeliveryState::Failed,
        },
        attempts: delivery.attempts,
        status: delivery.status,
        failure: delivery.failure,
        created_at: wire::Timestamp(delivery.created_at),
        attempted_at: delivery.attempted_at.map(wire::Timestamp),
        next_attempt_at: delivery.due_at.map(wire::Timestamp),
    })
}
