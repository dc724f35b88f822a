//! Whose base is made next.

use std::time::Duration;

use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, InstanceId, VolumeId};
use sqlx::FromRow;

use crate::holders::{IN_TURN, holder_turns};
use crate::{Result, Room, Store};

/// Branches of a host of which a base is due. Bound are $4 the host, $5 how old they are at least, and
/// $6 volumes that are left out.
const DUE: &str = "
    select b.id as branch, p.organization_id, p.id as part, v.id as volume, v.parent_volume_id, x.name, x.checkpoint,
           x.seen_at as since
    from branches b join volumes v on v.id = b.volume_id join projects p on p.id = b.project_id
    left join lateral (select name, seen_at, log_end, damage,
                              case damage when '' then checkpoint end as checkpoint from bases
                       where volume_id = v.id order by taken_at desc limit 1) x on true
    cross join lateral (select case when b.backup_day is null then 1440 else 10080 end) m (minutes)
    cross join lateral (
        select extract(dow from utc)::integer * 1440 + extract(hour from utc)::integer * 60
               + extract(minute from utc)::integer - coalesce(b.backup_day, 0) * 1440 - b.backup_minute
        from (select now() at time zone 'UTC') n (utc)) passed (minutes)
    cross join lateral (
        select date_trunc('minute', now())
               - make_interval(mins => mod(passed.minutes + 10080, m.minutes))) due (at)
    where v.host_id = $4 and v.state = 'admitted' and b.goal in ('running', 'hibernated')
      and b.created_at < now() - make_interval(secs => $5) and v.id <> all ($6)
      and (x.seen_at is null
           or x.seen_at < due.at
           or x.seen_at < now() - case when x.log_end is null or x.damage <> '' then interval '1 hour'
                                       when v.stored_lsn is null then interval '1 minute'
                                       else interval '1 day' end
           or v.stored_lsn - x.log_end > 1024 * 1024 * 1024)";

/// A volume of which a base is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueBase {
    /// Its branch.
    pub branch: BranchId,
    /// Whose that is.
    pub holder: Holder,
    /// The volume.
    pub volume: VolumeId,
    /// The branch's primary.
    pub instance: InstanceId,
    /// The newest base, and the checkpoint at which the volume rested then, if that can be gone by.
    pub newest: Option<(String, Option<String>)>,
    /// The volume, and those that it is a copy of, nearest first; without those whose newest
    /// base is damaged.
    pub lineage: Vec<VolumeId>,
    /// How much the branch may take, in bytes.
    pub storage_bytes: u64,
}

#[derive(FromRow)]
struct DueRow {
    branch: String,
    holder: String,
    volume: String,
    instance: String,
    name: Option<String>,
    checkpoint: Option<String>,
    lineage: Vec<String>,
    storage_gib: i32,
}

impl Store {
    /// Volumes of a host that need a base, as many as there is room for, of branches that are not
    /// deleted and older than `age`, besides those that are left out; by turns of their holders,
    /// of each those without one first.
    ///
    /// A base is good until its branch's time for another one, for a day while the log
    /// behind it is in the store and not too long, and for an hour where no log is kept or
    /// it is known to be damaged.
    /// One whose log has a gap is renewed within a minute.
    pub async fn base_due(
        &self,
        host: &HostId,
        age: Duration,
        room: &Room,
        besides: &[VolumeId],
    ) -> Result<Vec<DueBase>> {
        let sql = format!(
            "{next}
             select next.branch, next.holder, next.volume, i.id as instance, next.name, next.checkpoint,
                    array(with recursive line (id, parent, depth) as (
                              select next.volume, next.parent_volume_id, 0
                              union all
                              select p.id, p.parent_volume_id, line.depth + 1
                              from line join volumes p on p.id = line.parent where line.depth < 20)
                          select id from line
                          where not exists (select from bases d where d.volume_id = line.id and d.damage <> ''
                                            and not exists (select from bases later where later.volume_id = d.volume_id
                                                            and later.taken_at > d.taken_at))
                          order by depth) as lineage,
                    (select storage_gib from branches where id = next.branch) as storage_gib
             from next join instances i on i.branch_id = next.branch and i.role = 'primary'
             order by {IN_TURN}",
            next = holder_turns("base", DUE)
        );
        let besides: Vec<_> = besides.iter().map(VolumeId::as_str).collect();
        let rows: Vec<DueRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(room.holders())
            .bind(i64::from(room.each))
            .bind(i64::from(room.count))
            .bind(host.as_str())
            .bind(age.as_secs_f64())
            .bind(besides)
            .fetch_all(&self.pool)
            .await?;
        if !rows.is_empty() {
            self.holder_turn_note("base", rows.iter().map(|row| row.holder.as_str())).await;
        }
        let due = rows.into_iter().map(|row| DueBase {
            branch: BranchId::from_trusted(row.branch),
            holder: Holder::from_trusted(row.holder),
            volume: VolumeId::from_trusted(row.volume),
            instance: InstanceId::from_trusted(row.instance),
            newest: row.name.map(|name| (name, row.checkpoint)),
            lineage: row.lineage.into_iter().map(VolumeId::from_trusted).collect(),
            storage_bytes: u64::from(row.storage_gib.unsigned_abs()) << 30,
        });
        Ok(due.collect())
    }
}
