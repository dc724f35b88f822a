//! Events on their way to webhooks.
//!
//! A delivery is claimed by putting off the time at which it is due: whoever
//! does that tries it, and nobody else until then. So one that a crash
//! interrupts is tried again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::organization::Holder;
use coppice_core::webhook::{Delivery, DeliveryState, Interest};
use coppice_core::{DeliveryId, EventId, OrganizationId, WebhookId};
use sqlx::FromRow;
use sqlx::types::Json;

use crate::events::{Published, type_from};
use crate::holders::{IN_TURN, holder_turns};
use crate::{Result, Store, StoreError, Tx};

/// Deliveries that are looked at in one round: of receivers that are slow, and of others.
const ROUND: i64 = 1000;
/// What they are called among turns.
const QUEUE: &str = "webhook";

/// A delivery that is due, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueDelivery {
    /// The delivery.
    pub id: DeliveryId,
    /// Its webhook.
    pub webhook: WebhookId,
    /// Whose that is.
    pub organization: OrganizationId,
    /// Who answers for that.
    pub holder: Holder,
    /// Whether its receiver did not take the last delivery, or took long.
    pub is_slow: bool,
}

/// A delivery that was claimed, with all that an attempt needs.
#[derive(Clone, Debug)]
pub struct ClaimedDelivery {
    /// The delivery, and for whom.
    pub due: DueDelivery,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// Where to.
    pub url: String,
    /// What it is signed with, encrypted for the webhook's id; the one that was
    /// replaced follows while it still signs.
    pub secrets_sealed: Vec<Vec<u8>>,
    /// The event.
    pub event: EventId,
    /// Its type.
    pub kind: String,
    /// When it happened.
    pub occurred_at: DateTime<Utc>,
    /// What it is about.
    pub data: serde_json::Value,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptEnd {
    /// What comes of the delivery.
    pub next: AfterAttempt,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// Why there was none, for people.
    pub failure: Option<&'static str>,
    /// Whether the receiver comes after others from now on.
    pub is_slow: bool,
}

/// What comes of a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterAttempt {
    /// It was taken.
    Delivered,
    /// It is tried again after this time.
    Again(Duration),
    /// It is given up.
    GivenUp,
    /// The receiver wants no more, of anything.
    Gone,
}

#[derive(FromRow)]
struct DueRow {
    id: String,
    webhook_id: String,
    organization_id: String,
    holder: String,
    slow: bool,
}

impl From<DueRow> for DueDelivery {
    fn from(row: DueRow) -> Self {
        Self {
            id: DeliveryId::from_trusted(row.id),
            webhook: WebhookId::from_trusted(row.webhook_id),
            organization: OrganizationId::from_trusted(row.organization_id),
            holder: Holder::from_trusted(row.holder),
            is_slow: row.slow,
        }
    }
}

#[derive(FromRow)]
struct ClaimedRow {
    #[sqlx(flatten)]
    due: DueRow,
    attempts: i32,
    url: String,
    secret_sealed: Vec<u8>,
    former_secret_sealed: Option<Vec<u8>>,
    event_id: String,
    r#type: String,
    occurred_at: DateTime<Utc>,
    data: Json<serde_json::Value>,
}

impl From<ClaimedRow> for ClaimedDelivery {
    fn from(row: ClaimedRow) -> Self {
        Self {
            due: row.due.into(),
            attempts: row.attempts.unsigned_abs(),
            url: row.url,
            secrets_sealed: [Some(row.secret_sealed), row.former_secret_sealed]
                .into_iter()
                .flatten()
                .collect(),
            event: EventId::from_trusted(row.event_id),
            kind: row.r#type,
            occurred_at: row.occurred_at,
            data: row.data.0,
        }
    }
}

#[derive(FromRow)]
struct DeliveryRow {
    id: String,
    event_id: String,
    r#type: String,
    state: String,
    attempts: i32,
    status: Option<i32>,
    failure: Option<String>,
    created_at: DateTime<Utc>,
    attempted_at: Option<DateTime<Utc>>,
    due_at: Option<DateTime<Utc>>,
}

impl TryFrom<DeliveryRow> for Delivery {
    type Error = StoreError;

    fn try_from(row: DeliveryRow) -> Result<Self> {
        let state = DeliveryState::parse(&row.state)
            .ok_or(StoreError::UnknownValue { what: "state of a delivery", value: row.state })?;
        Ok(Self {
            id: DeliveryId::from_trusted(row.id),
            event: EventId::from_trusted(row.event_id),
            kind: type_from(row.r#type)?,
            state,
            attempts: row.attempts.unsigned_abs(),
            status: row.status.and_then(|status| u16::try_from(status).ok()),
            failure: row.failure,
            created_at: row.created_at,
            attempted_at: row.attempted_at,
            due_at: row.due_at,
        })
    }
}

impl Store {
    /// Has events that are being published sent to the webhooks that want them.
    pub(crate) async fn delivery_insert_in_tx(&self, tx: &mut Tx, events: &[Published]) -> Result<()> {
        let organizations: Vec<&str> = events.iter().map(|event| event.organization.as_str()).collect();
        // The lock keeps them from being deleted meanwhile.
        let webhooks: Vec<(String, String, Vec<String>, Vec<String>)> = sqlx::query_as(
            "select id, organization_id, types, projects from webhooks
             where enabled and organization_id = any($1) order by id for key share",
        )
        .bind(&organizations)
        .fetch_all(&mut **tx)
        .await?;
        let (mut ids, mut to, mut seqs) = (vec![], vec![], vec![]);
        for (webhook, organization, types, projects) in webhooks {
            let interest = Interest { types, projects };
            let own = events.iter().filter(|event| event.organization == organization);
            for event in own.filter(|event| interest.wants(event.kind, event.project.as_deref())) {
                ids.push(DeliveryId::generate(event.occurred_at).to_string());
                to.push(webhook.clone());
                seqs.push(event.seq);
            }
        }
        sqlx::query(
            "insert into webhook_deliveries (id, webhook_id, event_seq)
             select * from unnest($1::text[], $2::text[], $3::bigint[])",
        )
        .bind(&ids)
        .bind(&to)
        .bind(&seqs)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// What is due, up to `each` deliveries of a webhook, by turns of holders and of their
    /// organizations. Receivers that are slow come after all others. So who has many, or many
    /// organizations, keeps no other from being seen. Served by index `webhook_deliveries_due`.
    pub async fn delivery_due(&self, each: u32) -> Result<Vec<DueDelivery>> {
        let next = holder_turns(
            QUEUE,
            "select d.id, d.due_at as since, w.id as webhook_id, w.slow, w.organization_id, w.organization_id as part
             from webhooks w cross join lateral (
                 select id, due_at from webhook_deliveries
                 where webhook_id = w.id and due_at <= now() order by due_at limit $4) d
             where w.enabled and w.slow = $5",
        );
        let sql = format!(
            "{next} select id, webhook_id, organization_id, holder, slow from next order by {IN_TURN}"
        );
        let mut due = vec![];
        for is_slow in [false, true] {
            let query = sqlx::query(sqlx::AssertSqlSafe(sql.clone()))
                .bind(Vec::<String>::new())
                .bind(ROUND)
                .bind(ROUND)
                .bind(i64::from(each))
                .bind(is_slow);
            let rows: Vec<DueRow> = self.reads.all(query).await?;
            due.extend(rows.into_iter().map(DueDelivery::from));
        }
        Ok(due)
    }

    /// Takes those of the deliveries that are still due. Nobody else gets them
    /// for `lease_seconds`; what nothing is heard of until then is due again.
    pub async fn delivery_claim(
        &self,
        ids: &[DeliveryId],
        lease_seconds: u32,
    ) -> Result<Vec<ClaimedDelivery>> {
        let ids: Vec<&str> = ids.iter().map(DeliveryId::as_str).collect();
        let rows: Vec<ClaimedRow> = sqlx::query_as(
            "with claimed as (
                 update webhook_deliveries
                 set attempts = attempts + 1, attempted_at = now(), due_at = now() + make_interval(secs => $2)
                 where id in (select id from webhook_deliveries where id = any($1) and due_at <= now()
                              order by id for update skip locked)
                 returning id, webhook_id, event_seq, attempts)
             select c.id, c.webhook_id, w.organization_id, holder_of(w.organization_id) as holder, w.slow,
                    c.attempts, w.url, w.secret_sealed,
                    case when w.former_until > now() then w.former_secret_sealed end as former_secret_sealed,
                    e.id as event_id, e.type, e.occurred_at, e.data
             from claimed c join webhooks w on w.id = c.webhook_id join events e on e.seq = c.event_seq",
        )
        .bind(&ids)
        .bind(f64::from(lease_seconds))
        .fetch_all(&self.pool)
        .await?;
        self.holder_turn_note(QUEUE, rows.iter().map(|row| row.due.holder.as_str())).await;
        Ok(rows.into_iter().map(ClaimedDelivery::from).collect())
    }

    /// Writes down how an attempt ended, unless another has begun meanwhile.
    /// When its receiver wants no more, the webhook is turned off and all that
    /// is still due to it given up; one that has another address by now is tried there.
    pub async fn delivery_end(&self, claimed: &ClaimedDelivery, end: &AttemptEnd) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("update webhooks set slow = $2 where id = $1 and url = $3 and slow <> $2")
            .bind(claimed.due.webhook.as_str())
            .bind(end.is_slow)
            .bind(&claimed.url)
            .execute(&mut *tx)
            .await?;
        let is_gone = end.next == AfterAttempt::Gone && turn_off(&mut tx, claimed).await?;
        let (state, pause) = match end.next {
            AfterAttempt::Delivered => (DeliveryState::Delivered, None),
            AfterAttempt::Again(pause) => (DeliveryState::Pending, Some(pause.as_secs_f64())),
            AfterAttempt::Gone if !is_gone => (DeliveryState::Pending, Some(0.0)),
            AfterAttempt::GivenUp | AfterAttempt::Gone => (DeliveryState::Failed, None),
        };
        if is_gone {
            sqlx::query(
                "update webhook_deliveries set state = 'failed', due_at = null
                 where webhook_id = $1 and due_at is not null",
            )
            .bind(claimed.due.webhook.as_str())
            .execute(&mut *tx)
            .await?;
        }
        sqlx::query(
            "update webhook_deliveries
             set state = $3, due_at = now() + make_interval(secs => $4), status = $5, failure = $6
             where id = $1 and attempts = $2 and state in ('pending', $3)",
        )
        .bind(claimed.due.id.as_str())
        .bind(claimed.attempts as i32)
        .bind(state.as_str())
        .bind(pause)
        .bind(end.status.map(i32::from))
        .bind(end.failure)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Deliveries to a webhook, the newest first, behind the one with this id.
    pub async fn delivery_list(
        &self,
        webhook: &WebhookId,
        before: Option<&str>,
        count_max: u32,
    ) -> Result<Vec<Delivery>> {
        let query = sqlx::query(
            "select d.id, e.id as event_id, e.type, d.state, d.attempts, d.status, d.failure, d.created_at,
                    d.attempted_at, d.due_at
             from webhook_deliveries d join events e on e.seq = d.event_seq
             where d.webhook_id = $1 and ($2::text is null or d.id < $2) order by d.id desc limit $3",
        )
        .bind(webhook.as_str())
        .bind(before)
        .bind(i64::from(count_max));
        let rows: Vec<DeliveryRow> = self.reads.all(query).await?;
        rows.into_iter().map(Delivery::try_from).collect()
    }

    /// Has a delivery tried from the beginning, at once; false when there is none.
    pub async fn delivery_resend_in_tx(
        &self,
        tx: &mut Tx,
        webhook: &WebhookId,
        id: &DeliveryId,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update webhook_deliveries set state = 'pending', attempts = 0, due_at = now()
             where webhook_id = $1 and id = $2",
        )
        .bind(webhook.as_str())
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}

/// Turns the webhook off whose receiver wants no more; false where it has another one.
async fn turn_off(tx: &mut Tx, claimed: &ClaimedDelivery) -> Result<bool> {
    let off =
        "update webhooks set enabled = false, gone = true, updated_at = now() where id = $1 and url = $2";
    let done =
        sqlx::query(off).bind(claimed.due.webhook.as_str()).bind(&claimed.url).execute(&mut **tx).await?;
    Ok(done.rows_affected() == 1)
}
