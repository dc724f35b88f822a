//! Webhooks: sending what happens to where organizations want to hear of it.
//!
//! **Owns** what a webhook may be, how deliveries are signed, which of them are
//! tried when, and where they may go.
//! **Must not know** how an answer of the API looks.
//! **Start reading** at [`Webhooks::send`] in `sender.rs`.
//!
//! A delivery is a row that is written together with the number of its event.
//! It is tried at least once: a crash right after an attempt repeats it, with
//! the same `webhook-id`. No order is promised.

mod guard;
mod queue;
mod secret;
mod sender;

use std::sync::Arc;

use chrono::Utc;
use coppice_core::access::Scope;
use coppice_core::event::EventType;
use coppice_core::limits::WEBHOOKS_MAX;
use coppice_core::reach::Reachable;
use coppice_core::target::{InOrganization, OnDelivery, OnWebhook};
use coppice_core::webhook::{Delivery, Interest, Webhook};
use coppice_core::{Error, ErrorCode, Result, WebhookId};
use coppice_store::{NewWebhook, Store};
use tokio::sync::Notify;
use zeroize::Zeroizing;

use self::guard::Lookups;
use crate::Access;
use crate::idempotency::commit_with_answer;
use crate::rows::lock_in_tx;
use crate::secrets::MasterKey;

/// A webhook to be made; its fields were checked by the caller.
#[derive(Clone, Debug)]
pub struct WebhookRequest {
    /// Where to.
    pub url: String,
    /// For people.
    pub description: String,
    /// Only these types.
    pub types: Vec<EventType>,
    /// Only about these projects.
    pub projects: Vec<String>,
}

/// A change of a webhook; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct WebhookChange {
    /// See [`WebhookRequest::url`].
    pub url: Option<String>,
    /// See [`WebhookRequest::description`].
    pub description: Option<String>,
    /// See [`WebhookRequest::types`].
    pub types: Option<Vec<EventType>>,
    /// See [`WebhookRequest::projects`].
    pub projects: Option<Vec<String>>,
    /// Whether anything is sent.
    pub enabled: Option<bool>,
}

/// Deliveries, and where the next ones are.
#[derive(Clone, Debug)]
pub struct DeliveryPage {
    /// The newest first.
    pub deliveries: Vec<Delivery>,
    /// For the next answer; none when these are the last.
    pub next_cursor: Option<String>,
}

/// A webhook as this caller may see it. Many receivers know a sender by nothing
/// but the path or the query of the URL that they gave out.
fn shown<T>(access: &Access<T>, webhook: Webhook) -> Webhook {
    match access.check(Scope::OrgWrite) {
        Ok(()) => webhook,
        Err(_) => Webhook { url: guard::without_path(&webhook.url), ..webhook },
    }
}

fn not_found(id: &WebhookId) -> Error {
    Error::NotFound { code: ErrorCode::WebhookNotFound, public: format!("no webhook {id}") }
}

/// Webhooks of organizations.
#[derive(Clone)]
pub struct Webhooks {
    store: Store,
    key: Arc<MasterKey>,
    /// Where they may lead.
    reach: Reachable,
    lookups: Lookups,
    /// Says that there is something to be sent.
    nudge: Arc<Notify>,
}

impl Webhooks {
    pub(crate) fn new(store: Store, key: Arc<MasterKey>, reach: Reachable) -> Self {
        Self { store, key, reach, lookups: Lookups::default(), nudge: Arc::default() }
    }

    /// Says that something has happened that may have to be sent.
    pub(crate) fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// Makes a webhook. Its secret is told now and never again.
    ///
    /// # Errors
    /// `invalid_field`, `webhook_limit_reached`, `organization_disabled`
    pub async fn create(
        &self,
        access: &Access,
        new: &WebhookRequest,
    ) -> Result<(Webhook, Zeroizing<String>)> {
        let url = guard::checked_url(&new.url, &self.reach)?;
        let (id, secret) = (WebhookId::generate(Utc::now()), secret::generate());
        let row = NewWebhook {
            id: &id,
            url: &url,
            description: &new.description,
            interest: &Interest { types: EventType::names(&new.types), projects: new.projects.clone() },
            secret_sealed: &self.key.seal(id.as_str(), &secret),
        };
        let organization = &access.organization.id;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        if self.store.webhook_count_in_tx(&mut tx, organization).await? >= WEBHOOKS_MAX {
            return Err(Error::invalid(
                ErrorCode::WebhookLimitReached,
                format!("no more than {WEBHOOKS_MAX} webhooks are allowed: delete or change another one"),
            ));
        }
        let webhook = self.store.webhook_insert_in_tx(&mut tx, organization, &row).await?;
        commit_with_answer(tx, None).await?;
        Ok((webhook, secret))
    }

    /// Webhooks of the organization; of their URLs no more than the caller may see.
    pub async fn list(&self, access: &Access) -> Result<Vec<Webhook>> {
        let webhooks = self.store.webhook_list(&access.organization.id).await?;
        Ok(webhooks.into_iter().map(|webhook| shown(access, webhook)).collect())
    }

    /// One webhook; of its URL no more than the caller may see.
    ///
    /// # Errors
    /// `webhook_not_found`
    pub async fn get(&self, access: &Access<OnWebhook>) -> Result<Webhook> {
        let OnWebhook { within: InOrganization { organization }, webhook } = &access.target;
        let found = self.store.webhook_find(organization, webhook).await?;
        found.map(|found| shown(access, found)).ok_or_else(|| not_found(webhook))
    }

    /// Changes a webhook. One that is turned on goes on with what is due to it.
    ///
    /// # Errors
    /// `invalid_field`, `webhook_not_found`
    pub async fn update(&self, access: &Access<OnWebhook>, change: WebhookChange) -> Result<Webhook> {
        let OnWebhook { within: InOrganization { organization }, webhook: id } = &access.target;
        let url = change.url.map(|url| guard::checked_url(&url, &self.reach)).transpose()?;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let current = self.store.webhook_lock_in_tx(&mut tx, organization, id).await?;
        let current = current.ok_or_else(|| not_found(id))?;
        let changed = Webhook {
            url: url.unwrap_or_else(|| current.url.clone()),
            description: change.description.unwrap_or_else(|| current.description.clone()),
            interest: Interest {
                types: change
                    .types
                    .map_or_else(|| current.interest.types.clone(), |types| EventType::names(&types)),
                projects: change.projects.unwrap_or_else(|| current.interest.projects.clone()),
            },
            is_enabled: change.enabled.unwrap_or(current.is_enabled),
            ..current.clone()
        };
        if changed == current {
            return Ok(current);
        }
        let webhook = self.store.webhook_update_in_tx(&mut tx, &changed).await?;
        tx.commit().await?;
        Ok(webhook)
    }

    /// Deletes a webhook; what is due to it is not sent any more.
    ///
    /// # Errors
    /// `webhook_not_found`
    pub async fn delete(&self, access: &Access<OnWebhook>) -> Result<()> {
        let OnWebhook { within: InOrganization { organization }, webhook } = &access.target;
        match self.store.webhook_delete(organization, webhook).await? {
            true => Ok(()),
            false => Err(not_found(webhook)),
        }
    }

    /// Gives a webhook another secret, which is told now and never again. For a
    /// day deliveries are signed with both.
    ///
    /// # Errors
    /// `webhook_not_found`
    pub async fn rotate(&self, access: &Access<OnWebhook>) -> Result<(Webhook, Zeroizing<String>)> {
        let OnWebhook { within: InOrganization { organization }, webhook: id } = &access.target;
        let secret = secret::generate();
        let sealed = self.key.seal(id.as_str(), &secret);
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        let rotated = self.store.webhook_rotate_in_tx(&mut tx, organization, id, &sealed).await?;
        let rotated = rotated.ok_or_else(|| not_found(id))?;
        commit_with_answer(tx, None).await?;
        Ok((rotated, secret))
    }

    /// Deliveries to a webhook, the newest first, behind the one with the id `cursor`.
    ///
    /// # Errors
    /// `webhook_not_found`
    pub async fn list_deliveries(
        &self,
        access: &Access<OnWebhook>,
        cursor: Option<&str>,
        count_max: u32,
    ) -> Result<DeliveryPage> {
        let webhook = self.get(access).await?;
        let deliveries = self.store.delivery_list(&webhook.id, cursor, count_max).await?;
        let is_full = deliveries.len() as u64 == u64::from(count_max);
        let next_cursor = deliveries.last().filter(|_| is_full).map(|last| last.id.to_string());
        Ok(DeliveryPage { deliveries, next_cursor })
    }

    /// Has a delivery sent again, whatever came of it, with the same `webhook-id`.
    ///
    /// # Errors
    /// `webhook_not_found`, `delivery_not_found`
    pub async fn resend_delivery(&self, access: &Access<OnDelivery>) -> Result<()> {
        let OnDelivery { on: OnWebhook { within, webhook }, delivery } = &access.target;
        let found = self.store.webhook_find(&within.organization, webhook).await?;
        let found = found.ok_or_else(|| not_found(webhook))?;
        let mut tx = self.store.begin().await?;
        lock_in_tx(&self.store, &mut tx, access).await?;
        if !self.store.delivery_resend_in_tx(&mut tx, &found.id, delivery).await? {
            let public = format!("no delivery {delivery} to webhook {webhook}");
            return Err(Error::NotFound { code: ErrorCode::DeliveryNotFound, public });
        }
        tx.commit().await?;
        self.nudge();
        Ok(())
    }

    /// Forgets secrets that sign no more.
    pub(crate) async fn forget_former_secrets(&self) -> Result<()> {
        Ok(self.store.webhook_forget_former_secrets().await?)
    }
}
