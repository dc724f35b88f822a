//! What happened in organizations. Triggers write it (`0260_events.sql`); here
//! it is published, read and forgotten.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use coppice_core::event::{EXPIRY_NOTICE_HOURS, EventType};
use coppice_core::{EventId, OrganizationId};
use sqlx::types::Json;
use sqlx::{FromRow, Row as _};

use crate::{Result, Store, StoreError, Tx};

/// Most events that are published at once.
const PUBLISHED_AT_ONCE: i64 = 1000;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// Its place among those of its organization.
    pub number: i64,
    /// What.
    pub kind: EventType,
    /// When.
    pub occurred_at: DateTime<Utc>,
    /// To what: ids, and names of branches.
    pub data: serde_json::Value,
}

/// Which events of an organization to list.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Only behind this number.
    pub after: i64,
    /// Only of these types; none means every one.
    pub types: Option<Vec<String>>,
    /// Only about these projects.
    pub projects: Option<Vec<String>>,
    /// Only about these branches.
    pub branches: Option<Vec<String>>,
}

/// How far publishing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Grows whenever events were published, by whomever.
    pub count: i64,
    /// Whether there are events to be published.
    pub is_due: bool,
}

/// An event that is being published.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) seq: i64,
    pub(crate) organization: String,
    pub(crate) project: Option<String>,
    pub(crate) kind: EventType,
    pub(crate) occurred_at: DateTime<Utc>,
}

#[derive(FromRow)]
struct NewRow {
    seq: i64,
    organization_id: String,
    project_id: Option<String>,
    r#type: String,
    occurred_at: DateTime<Utc>,
}

impl TryFrom<NewRow> for Published {
    type Error = StoreError;

    fn try_from(row: NewRow) -> Result<Self> {
        Ok(Self {
            seq: row.seq,
            organization: row.organization_id,
            project: row.project_id,
            kind: type_from(row.r#type)?,
            occurred_at: row.occurred_at,
        })
    }
}

/// Reads a type.
pub(crate) fn type_from(text: String) -> Result<EventType> {
    EventType::parse(&text).ok_or(StoreError::UnknownValue { what: "type of an event", value: text })
}

/// An event, or nothing, with the last number of its organization.
#[derive(FromRow)]
struct ListedRow {
    last_number: i64,
    #[sqlx(flatten)]
    event: EventRow,
}

#[derive(FromRow)]
struct EventRow {
    id: Option<String>,
    number: Option<i64>,
    r#type: Option<String>,
    occurred_at: Option<DateTime<Utc>>,
    data: Option<Json<serde_json::Value>>,
}

impl EventRow {
    fn event(self) -> Result<Option<Event>> {
        let Self { id: Some(id), number: Some(number), r#type: Some(kind), .. } = self else {
            return Ok(None);
        };
        let (Some(occurred_at), Some(data)) = (self.occurred_at, self.data) else { return Ok(None) };
        let (id, kind) = (EventId::from_trusted(id), type_from(kind)?);
        Ok(Some(Event { id, number, kind, occurred_at, data: data.0 }))
    }
}

impl Store {
    /// How far publishing has come.
    pub async fn event_publication(&self) -> Result<Publication> {
        let query = sqlx::query(
            "select count, exists (select from events where number is null) as is_due from event_publications",
        );
        let row = self.reads.row(query).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(Publication { count: row.try_get("count")?, is_due: row.try_get("is_due")? })
    }

    /// Gives events their ids and numbers, up to a thousand, in the order in
    /// which they were written, and has them sent to the webhooks that want
    /// them. One process at a time does so; only then are they seen.
    pub async fn event_publish(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("select from event_publications for update").fetch_one(&mut *tx).await?;
        // A statement of its own, to see what was published until the row was had.
        let new: Vec<NewRow> = sqlx::query_as(
            "select seq, organization_id, project_id, type, occurred_at from events
             where number is null order by seq limit $1",
        )
        .bind(PUBLISHED_AT_ONCE)
        .fetch_all(&mut *tx)
        .await?;
        if new.is_empty() {
            return Ok(());
        }
        let new = new.into_iter().map(Published::try_from).collect::<Result<Vec<_>>>()?;
        self.event_number_in_tx(&mut tx, &new).await?;
        self.delivery_insert_in_tx(&mut tx, &new).await?;
        sqlx::query("update event_publications set count = count + 1").execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Numbers events within each organization, on from where it is.
    async fn event_number_in_tx(&self, tx: &mut Tx, new: &[Published]) -> Result<()> {
        let organizations: Vec<&str> = new.iter().map(|event| event.organization.as_str()).collect();
        let first_numbers: Vec<(String, i64)> = sqlx::query_as(
            "with new as (select organization_id, count(*) from unnest($1) as organization_id group by 1),
             fed as (
                 insert into event_feeds (organization_id, last_number) select * from new
                 on conflict (organization_id)
                     do update set last_number = event_feeds.last_number + excluded.last_number
                 returning organization_id, last_number)
             select organization_id, last_number - count + 1 from fed join new using (organization_id)",
        )
        .bind(&organizations)
        .fetch_all(&mut **tx)
        .await?;
        let mut next: BTreeMap<String, i64> = first_numbers.into_iter().collect();
        let (mut seqs, mut ids, mut numbers) = (vec![], vec![], vec![]);
        for event in new {
            let Some(number) = next.get_mut(&event.organization) else { continue };
            seqs.push(event.seq);
            ids.push(EventId::generate(event.occurred_at).to_string());
            numbers.push(*number);
            *number += 1;
        }
        sqlx::query(
            "update events e set id = n.id, number = n.number
             from unnest($1::bigint[], $2::text[], $3::bigint[]) as n (seq, id, number) where e.seq = n.seq",
        )
        .bind(&seqs)
        .bind(&ids)
        .bind(&numbers)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Published events of an organization, oldest first, and the number up to
    /// which these are all; none when the filter's number was never given.
    /// Served by index `events_number`.
    pub async fn event_list(
        &self,
        organization: &OrganizationId,
        filter: &EventFilter,
        count_max: u32,
    ) -> Result<Option<(Vec<Event>, i64)>> {
        // One statement, so that what it says of the last number is true of the rows.
        let query = sqlx::query(
            "select f.last_number, e.id, e.number, e.type, e.occurred_at, e.data
             from (select coalesce(max(last_number), 0) as last_number from event_feeds
                   where organization_id = $1) f
             left join lateral (
                 select * from events
                 where organization_id = $1 and number > $2 and ($3::text[] is null or type = any($3))
                   and ($4::text[] is null or project_id = any($4))
                   and ($5::text[] is null or branch_id = any($5))
                 order by number limit $6) e on true
             order by e.number",
        )
        .bind(organization.as_str())
        .bind(filter.after)
        .bind(&filter.types)
        .bind(&filter.projects)
        .bind(&filter.branches)
        .bind(i64::from(count_max));
        let rows: Vec<ListedRow> = self.reads.all(query).await?;
        let last_number = rows.first().map_or(0, |row| row.last_number);
        if filter.after > last_number {
            return Ok(None);
        }
        let found: Result<Vec<_>> =
            rows.into_iter().filter_map(|row| row.event.event().transpose()).collect();
        let events = found?;
        let is_full = events.len() as u64 == u64::from(count_max);
        let until = events.last().filter(|_| is_full).map_or(last_number, |event| event.number);
        Ok(Some((events, until)))
    }

    /// Forgets published events that are older than so many days, and of each
    /// organization all but the newest so many; and the numbers of
    /// organizations that are forgotten themselves.
    pub async fn event_purge(&self, days: u32, count_max: u32) -> Result<u64> {
        let old = sqlx::query(
            "delete from events where number is not null and occurred_at < now() - make_interval(days => $1)",
        );
        let many = sqlx::query(
            "delete from events e using event_feeds f
             where e.organization_id = f.organization_id and e.number <= f.last_number - $1",
        );
        let mut removed = 0;
        for query in [old.bind(days as i32), many.bind(i64::from(count_max))] {
            removed += query.execute(&self.relaxed).await?.rows_affected();
        }
        sqlx::query(
            "delete from event_feeds f
             where not exists (select from organizations o where o.id = f.organization_id)
               and not exists (select from events e where e.organization_id = f.organization_id)",
        )
        .execute(&self.relaxed)
        .await?;
        Ok(removed)
    }

    /// Tells of branches whose time is over within [`EXPIRY_NOTICE_HOURS`], of
    /// each end once. Served by index `branches_expiry`.
    pub async fn branch_tell_expiring(&self) -> Result<()> {
        sqlx::query(
            "update branches set expiry_told = expires_at where id in (
                 select id from branches
                 where expires_at <= now() + make_interval(hours => $1) and expires_at > now()
                   and deleted_at is null and expiry_told is distinct from expires_at
                 order by id for update skip locked)",
        )
        .bind(EXPIRY_NOTICE_HOURS as i32)
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
