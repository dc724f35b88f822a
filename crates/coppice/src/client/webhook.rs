//! `coppice webhook …`

use clap::{Args, Subcommand};
use coppice_wire::{
    CreateWebhook, DeliveryState, EventType, UpdateWebhook, Webhook, WebhookDelivery, WebhookDeliveryList,
    WebhookList,
};
use serde_json::json;

use super::event::{event_type, type_name};
use super::http::Client;
use super::output::{self, day};
use super::people::in_query;
use super::times::moment;

/// Most deliveries of one answer.
const PAGE: u32 = 200;

/// What to do with webhooks.
#[derive(Subcommand, Debug)]
pub(crate) enum WebhookCommand {
    /// List where events are sent to
    #[command(alias = "ls", after_help = "Example: coppice webhook list")]
    List,
    /// Have events sent somewhere; prints the secret that they are signed with, which is shown once
    #[command(
        alias = "new",
        after_help = "Example: coppice webhook create https://example.com/hook --type branch.ready"
    )]
    Create(CreateArgs),
    /// Show a webhook
    #[command(aliases = ["show", "view"], after_help = "Example: coppice webhook get whk_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    Get {
        /// Its id
        webhook: String,
    },
    /// Change a webhook
    #[command(after_help = "Example: coppice webhook update whk_06gq0m2kj8fr3cjdr0h2qkv5s4 --enabled on")]
    Update(UpdateArgs),
    /// Replace the secret of a webhook; for 24 hours the old one signs as well
    #[command(after_help = "Example: coppice webhook rotate whk_06gq0m2kj8fr3cjdr0h2qkv5s4")]
    Rotate {
        /// Its id
        webhook: String,
    },
    /// Delete a webhook
    #[command(aliases = ["rm", "remove"], after_help = "Example: coppice webhook delete whk_06gq0m2kj8fr3cjdr0h2qkv5s4 --yes")]
    Delete {
        /// Its id
        webhook: String,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
    /// Show what was sent to a webhook, the newest last
    #[command(after_help = "Example: coppice webhook deliveries whk_06gq0m2kj8fr3cjdr0h2qkv5s4 -n 20")]
    Deliveries {
        /// Its id
        webhook: String,
        /// The newest so many
        #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
        limit: u32,
    },
    /// Send a delivery again
    #[command(
        after_help = "Example: coppice webhook resend whk_06gq0m2kj8fr3cjdr0h2qkv5s4 dlv_06gq0m2kj8fr3cjdr0h2qkv5s4"
    )]
    Resend {
        /// The webhook's id
        webhook: String,
        /// The delivery's id
        delivery: String,
    },
}

/// A webhook to make.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Where to: https
    #[arg(value_name = "URL")]
    receiver: String,
    /// Only this type, like branch.ready; may be given several times
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type)]
    types: Vec<EventType>,
    /// Only what is about this project, by name or id; may be given several times
    #[arg(long = "project", value_name = "PROJECT")]
    projects: Vec<String>,
    /// For people
    #[arg(long)]
    description: Option<String>,
}

/// A webhook to change.
#[derive(Args, Debug)]
pub(crate) struct UpdateArgs {
    /// Its id
    webhook: String,
    /// Where to: https
    #[arg(long = "to", value_name = "URL")]
    receiver: Option<String>,
    /// Replaces all types; may be given several times
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type, conflicts_with = "all_types")]
    types: Vec<EventType>,
    /// Every type
    #[arg(long)]
    all_types: bool,
    /// Replaces all projects, by name or id; may be given several times
    #[arg(long = "project", value_name = "PROJECT", conflicts_with = "all_projects")]
    projects: Vec<String>,
    /// Every project, and what is about none
    #[arg(long)]
    all_projects: bool,
    /// For people
    #[arg(long)]
    description: Option<String>,
    /// Whether anything is sent
    #[arg(long, value_name = "on|off")]
    enabled: Option<output::Switch>,
}

fn path(client: &Client, webhook: &str) -> String {
    client.here(&format!("/webhooks/{}", in_query(webhook)))
}

async fn ids(client: &Client, projects: &[String]) -> anyhow::Result<Vec<String>> {
    let mut found = vec![];
    for named in projects {
        found.push(client.project(Some(named)).await?.id);
    }
    Ok(found)
}

/// What replaces a list: nothing, everything, or these.
fn replaced<T>(chosen: Vec<T>, all: bool) -> Option<Vec<T>> {
    (all || !chosen.is_empty()).then_some(chosen)
}

/// Runs one of the commands.
pub(super) async fn run(command: WebhookCommand, client: &Client, as_json: bool) -> anyhow::Result<()> {
    let webhook = match command {
        WebhookCommand::List => return list(client, as_json).await,
        WebhookCommand::Create(new) => {
            let body = CreateWebhook {
                url: new.receiver,
                description: new.description,
                types: Some(new.types),
                projects: Some(ids(client, &new.projects).await?),
            };
            client.post(&client.here("/webhooks"), &body).await?
        }
        WebhookCommand::Get { webhook } => client.get(&path(client, &webhook)).await?,
        WebhookCommand::Update(change) => {
            let projects = ids(client, &change.projects).await?;
            let body = UpdateWebhook {
                url: change.receiver,
                description: change.description,
                types: replaced(change.types, change.all_types),
                projects: replaced(projects, change.all_projects),
                enabled: change.enabled.map(output::Switch::is_on),
            };
            client.patch(&path(client, &change.webhook), &body).await?
        }
        WebhookCommand::Rotate { webhook } => {
            client.post(&format!("{}/rotate", path(client, &webhook)), &json!({})).await?
        }
        WebhookCommand::Delete { webhook, yes } => {
            output::confirm(&format!("Delete webhook {webhook}? What is due to it is not sent."), yes)?;
            client.delete(&path(client, &webhook)).await?;
            output::done(as_json, format!("deleted webhook {webhook}"));
            return Ok(());
        }
        WebhookCommand::Deliveries { webhook, limit } => {
            return deliveries(client, &webhook, limit, as_json).await;
        }
        WebhookCommand::Resend { webhook, delivery } => {
            let path = format!("{}/deliveries/{}/resend", path(client, &webhook), in_query(&delivery));
            client.post_for_nothing(&path, &json!({})).await?;
            output::done(as_json, format!("delivery {delivery} is sent again"));
            return Ok(());
        }
    };
    show(&webhook, as_json)
}

fn show(webhook: &Webhook, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(webhook);
    }
    let mut rows = vec![
        ("id", webhook.id.clone()),
        ("url", webhook.url.clone()),
        ("description", webhook.description.clone()),
        ("types", words(webhook.types.iter().map(|kind| type_name(*kind)))),
        ("projects", words(webhook.projects.iter().cloned())),
        ("sends", state(webhook).to_owned()),
        ("since", day(&webhook.created_at)),
    ];
    rows.extend(webhook.former_until.map(|until| ("old secret signs until", moment(until.0))));
    rows.extend(webhook.secret.clone().map(|secret| ("secret", secret)));
    output::properties(&rows);
    Ok(())
}

fn words(names: impl Iterator<Item = String>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() { "all".to_owned() } else { names.join(", ") }
}

fn state(webhook: &Webhook) -> &'static str {
    match (webhook.enabled, webhook.gone) {
        (true, _) => "yes",
        (false, true) => "no, its receiver answered 410",
        (false, false) => "no",
    }
}

async fn list(client: &Client, as_json: bool) -> anyhow::Result<()> {
    let list: WebhookList = client.get(&client.here("/webhooks")).await?;
    if as_json {
        return output::json(&list);
    }
    let rows = list.webhooks.iter().map(|webhook| {
        let types = words(webhook.types.iter().map(|kind| type_name(*kind)));
        vec![webhook.id.clone(), webhook.url.clone(), types, state(webhook).to_owned()]
    });
    output::table(&["ID", "URL", "TYPES", "SENDS"], rows.collect());
    Ok(())
}

async fn deliveries(client: &Client, webhook: &str, limit: u32, as_json: bool) -> anyhow::Result<()> {
    let (mut found, mut cursor) = (Vec::<WebhookDelivery>::new(), None::<String>);
    while (found.len() as u32) < limit {
        let wanted = PAGE.min(limit - found.len() as u32);
        let after =
            cursor.as_deref().map(|cursor| format!("&cursor={}", in_query(cursor))).unwrap_or_default();
        let path = format!("{}/deliveries?limit={wanted}{after}", path(client, webhook));
        let list: WebhookDeliveryList = client.get(&path).await?;
        found.extend(list.deliveries);
        cursor = list.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    found.reverse();
    if as_json {
        return output::json(&json!({ "deliveries": found }));
    }
    let rows = found.iter().map(|delivery| {
        let state = match delivery.state {
            DeliveryState::Pending => "pending",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
        };
        let answer = delivery.status.map(|status| status.to_string()).or_else(|| delivery.failure.clone());
        vec![
            delivery.id.clone(),
            type_name(delivery.r#type),
            moment(delivery.created_at.0),
            state.to_owned(),
            delivery.attempts.to_string(),
            answer.unwrap_or_default(),
            delivery.next_attempt_at.map(|next| moment(next.0)).unwrap_or_default(),
        ]
    });
    output::table(&["ID", "TYPE", "TIME", "STATE", "ATTEMPTS", "ANSWER", "NEXT"], rows.collect());
    Ok(())
}
