//! Bases: copies of volumes in the store.

use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::lsn::Lsn;
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, VolumeId};

use crate::{Result, Store, StoreError};

/// A base, as the metastore knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseRow {
    /// Its name in the store.
    pub name: String,
    /// The volume it is a copy of.
    pub volume: VolumeId,
    /// When it was taken.
    pub taken_at: DateTime<Utc>,
    /// Bytes in its files.
    pub bytes: u64,
    /// Bytes that were written for it.
    pub new_bytes: u64,
    /// Where its log ends, if the store has what comes behind it.
    pub log_end: Option<Lsn>,
}

/// A volume whose log belongs into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLog {
    /// Its branch.
    pub branch: BranchId,
    /// Whose that is.
    pub holder: Holder,
    /// The volume.
    pub volume: VolumeId,
    /// How far it is there; none until its next base is.
    pub stored: Option<Lsn>,
    /// Whether a server may be writing it.
    pub is_up: bool,
}

/// See [`Store::volumes_from_bases`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredVolumes {
    /// How many volumes are going to be made.
    pub found: u64,
    /// Branches without a base, with their names.
    pub lost: Vec<(BranchId, String)>,
}

/// A place in a log, as the metastore has it.
pub(crate) fn stored_lsn(text: Option<String>) -> Result<Option<Lsn>> {
    let parsed = text.as_deref().map(str::parse).transpose();
    parsed.map_err(|_| StoreError::UnknownValue { what: "place in a log", value: text.unwrap_or_default() })
}

impl Store {
    /// Records a base of a branch.
    pub async fn base_insert(
        &self,
        branch: &BranchId,
        base: &BaseRow,
        checkpoint: Option<&str>,
    ) -> Result<()> {
        sqlx::query(
            "with log as (update volumes set stored_lsn = coalesce(stored_lsn, $8::pg_lsn) where id = $2)
             insert into bases (name, volume_id, branch_id, taken_at, seen_at, checkpoint, bytes, new_bytes, log_end,
                 complete_at)
             values ($1, $2, $3, $4, now(), $5, $6, $7, $8::pg_lsn, now()) on conflict do nothing",
        )
        .bind(&base.name)
        .bind(base.volume.as_str())
        .bind(branch.as_str())
        .bind(base.taken_at)
        .bind(checkpoint)
        .bind(base.bytes as i64)
        .bind(base.new_bytes as i64)
        .bind(base.log_end.map(|lsn| lsn.to_string()))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Records whether a base that is due of a branch could not be made.
    pub async fn base_failing(&self, branch: &BranchId, failing: bool) -> Result<()> {
        sqlx::query("update branches set backup_failing = $2 where id = $1 and backup_failing <> $2")
            .bind(branch.as_str())
            .bind(failing)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Records that a volume is still what it was when this base was taken.
    pub async fn base_seen(&self, name: &str) -> Result<()> {
        sqlx::query(
            "with base as (update bases set seen_at = now() where name = $1 returning volume_id, log_end)
             update volumes v set stored_lsn = base.log_end from base
             where v.id = base.volume_id and v.stored_lsn is null",
        )
        .bind(name)
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }

    /// Volumes of a host whose log goes on in the store, or will behind their next base;
    /// how far it is there, and whether a server may be writing it. Those of which no
    /// base can be made are left out, and those whose bases have no log.
    pub async fn log_stored(&self, host: &HostId) -> Result<Vec<StoredLog>> {
        let rows: Vec<(String, String, String, Option<String>, bool)> = sqlx::query_as(
            "with logs as materialized (
                 select b.id as branch, p.organization_id, v.id as volume, v.stored_lsn::text as stored,
                        b.goal = 'running' or b.state <> 'hibernated' as is_up
                 from branches b join volumes v on v.id = b.volume_id join projects p on p.id = b.project_id
                 where v.host_id = $1 and v.state = 'admitted' and b.goal in ('running', 'hibernated', 'trashed')
                   and (v.stored_lsn is not null
                        or not b.backup_failing and b.goal <> 'trashed'
                           and not exists (select from bases x where x.volume_id = v.id and x.log_end is null
                                           and not exists (select from bases later where later.volume_id = v.id
                                                           and later.taken_at > x.taken_at)))),
             held as materialized (
                 select organization_id, holder_of(organization_id) as holder
                 from (select distinct organization_id from logs) o)
             select branch, holder, volume, stored, is_up from logs join held using (organization_id)",
        )
        .bind(host.as_str())
        .fetch_all(&self.pool)
        .await?;
        let logs = rows.into_iter().map(|(branch, holder, volume, lsn, is_up)| {
            let (branch, volume) = (BranchId::from_trusted(branch), VolumeId::from_trusted(volume));
            let holder = Holder::from_trusted(holder);
            Ok(StoredLog { branch, holder, volume, stored: stored_lsn(lsn)?, is_up })
        });
        logs.collect()
    }

    /// How far the log of a volume is in the store; none when it does not go on there.
    pub async fn log_stored_of(&self, volume: &VolumeId) -> Result<Option<Lsn>> {
        let query = "select stored_lsn::text from volumes where id = $1";
        let found: Option<Option<String>> =
            sqlx::query_scalar(query).bind(volume.as_str()).fetch_optional(&self.pool).await?;
        stored_lsn(found.flatten())
    }

    /// Records that the log of a volume is in the store from one place to another; false when it is
    /// not known to go as far as the first any more.
    pub async fn log_advance(&self, volume: &VolumeId, from: Lsn, to: Lsn) -> Result<bool> {
        let query = "update volumes set stored_lsn = $3::pg_lsn where id = $1 and stored_lsn = $2::pg_lsn";
        let done = sqlx::query(query)
            .bind(volume.as_str())
            .bind(from.to_string())
            .bind(to.to_string())
            .execute(&self.relaxed)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Records that what comes next of the log of a volume is lost: it goes on behind the next base.
    pub async fn log_lose(&self, volume: &VolumeId) -> Result<()> {
        let query = sqlx::query("update volumes set stored_lsn = null where id = $1");
        query.bind(volume.as_str()).execute(&self.relaxed).await?;
        Ok(())
    }

    /// A base that is the newest of its volume and was not read through within `every`,
    /// the one that waits longest first, besides those that could not be read. A damaged one may have been mended.
    pub async fn base_to_verify(&self, every: Duration, besides: &[String]) -> Result<Option<String>> {
        Ok(sqlx::query_scalar(
            "select name from bases x
             where (verified_at is null
                    or verified_at < now() - case damage when '' then make_interval(secs => $1)
                                                         else interval '5 minutes' end)
               and name <> all($2)
               and not exists (select from bases later
                               where later.volume_id = x.volume_id and later.taken_at > x.taken_at)
             order by verified_at nulls first, taken_at limit 1",
        )
        .bind(every.as_secs_f64())
        .bind(besides)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Records that a base was read through, and what is wrong with it.
    pub async fn base_verified(&self, name: &str, damage: &str) -> Result<()> {
        sqlx::query("update bases set verified_at = now(), damage = $2 where name = $1")
            .bind(name)
            .bind(damage)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// What is wrong with some base that is the newest of its volume; none when nothing is known to be.
    pub async fn base_damage(&self) -> Result<Option<String>> {
        let query = "select damage from bases x where damage <> ''
                     and not exists (select from bases later
                                     where later.volume_id = x.volume_id and later.taken_at > x.taken_at)
                     order by verified_at limit 1";
        Ok(sqlx::query_scalar(query).fetch_optional(&self.pool).await?)
    }

    /// When the oldest base of each volume was taken.
    pub async fn base_oldest(&self) -> Result<Vec<(VolumeId, DateTime<Utc>)>> {
        let rows: Vec<(String, DateTime<Utc>)> =
            sqlx::query_as("select volume_id, min(taken_at) from bases group by volume_id")
                .fetch_all(&self.pool)
                .await?;
        Ok(rows.into_iter().map(|(volume, taken)| (VolumeId::from_trusted(volume), taken)).collect())
    }

    /// Of these names of bases, and their volumes, those that are not recorded though
    /// their volume is known: a process that made one may have ended before it said so.
    pub async fn base_unrecorded(&self, names: &[String], volumes: &[String]) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "select f.name from unnest($1::text[], $2::text[]) f (name, volume)
             join volumes v on v.id = f.volume and v.branch_id is not null
             where not exists (select from bases x where x.name = f.name)",
        )
        .bind(names)
        .bind(volumes)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Records a base that was found in the store, and when it was complete. How its log goes on
    /// is not known, so another one is due.
    pub async fn base_adopt(
        &self,
        name: &str,
        volume: &VolumeId,
        taken_at: DateTime<Utc>,
        complete_at: DateTime<Utc>,
    ) -> Result<()> {
        sqlx::query(
            "insert into bases (name, volume_id, branch_id, taken_at, seen_at, bytes, new_bytes, complete_at)
             select $1, v.id, v.branch_id, $3, 'epoch', 0, 0, $4
             from volumes v where v.id = $2 and v.branch_id is not null
             on conflict do nothing",
        )
        .bind(name)
        .bind(volume.as_str())
        .bind(taken_at)
        .bind(complete_at)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Bases that are recorded and not among these.
    pub async fn base_recorded_besides(&self, names: &[String]) -> Result<Vec<String>> {
        let query = "select name from bases where name <> all ($1) order by name";
        Ok(sqlx::query_scalar(query).bind(names).fetch_all(&self.pool).await?)
    }

    /// Bases to delete: those of deleted branches; those of which a newer one, verified (anybody
    /// who can write to the store can put an object of that name there), is itself past what the
    /// branch keeps; and those past it of a volume that the branch neither has nor had as a
    /// version. Never one that a volume is still to be made from.
    pub async fn base_surplus(&self) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "select x.name from bases x left join branches b on b.id = x.branch_id
             where (b.id is null or b.goal = 'deleted'
                    or x.volume_id <> b.volume_id
                       and greatest(x.taken_at, x.seen_at) < now() - make_interval(days => b.backup_retention_days)
                       and not exists (select from branch_versions n where n.volume_id = x.volume_id)
                    or exists (select from bases later where later.volume_id = x.volume_id
                               and later.taken_at > x.taken_at
                               and later.taken_at < now() - make_interval(days => b.backup_retention_days)
                               and later.damage = ''
                               and (later.complete_at is not null or later.verified_at is not null)))
               and not exists (select from volumes v where v.base = x.name and v.state = 'planned')",
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// The newest base of a volume that was complete by a time.
    pub async fn base_before(&self, volume: &VolumeId, time: DateTime<Utc>) -> Result<Option<String>> {
        Ok(sqlx::query_scalar(
            "select name from bases where volume_id = $1 and complete_at <= $2 order by complete_at desc limit 1",
        )
        .bind(volume.as_str())
        .bind(time)
        .fetch_optional(&self.pool)
        .await?)
    }

    /// When the oldest and the newest base of a volume were complete.
    pub async fn base_span(&self, volume: &VolumeId) -> Result<Option<(DateTime<Utc>, DateTime<Utc>)>> {
        let query = "select min(complete_at), max(complete_at) from bases where volume_id = $1 having count(complete_at) > 0";
        Ok(sqlx::query_as(query).bind(volume.as_str()).fetch_optional(&self.pool).await?)
    }

    /// When the newest base of each of these volumes was last seen to have all that the
    /// volume has.
    pub async fn base_seen_at(&self, volumes: &[VolumeId]) -> Result<Vec<(VolumeId, DateTime<Utc>)>> {
        let ids: Vec<_> = volumes.iter().map(VolumeId::as_str).collect();
        let query = "select volume_id, max(seen_at) from bases
             where volume_id = any($1) and complete_at is not null and seen_at > 'epoch' group by volume_id";
        let rows: Vec<(String, DateTime<Utc>)> =
            sqlx::query_as(query).bind(&ids).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|(volume, seen)| (VolumeId::from_trusted(volume), seen)).collect())
    }

    /// Forgets bases that are not in the store any more. The log of a volume whose newest
    /// one that was goes on behind its next base.
    pub async fn base_forget(&self, names: &[String]) -> Result<()> {
        sqlx::query(
            "with gone as (delete from bases where name = any ($1) returning volume_id, taken_at)
             update volumes v set stored_lsn = null from gone
             where v.id = gone.volume_id
               and not exists (select from bases x where x.volume_id = v.id and x.taken_at > gone.taken_at
                               and x.name <> all ($1))",
        )
        .bind(names)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The branch whose data is to be made from a base in this volume, and is not there;
    /// none when there is no such branch.
    pub async fn volume_to_come(&self, volume: &VolumeId) -> Result<Option<BranchId>> {
        let found: Option<String> = sqlx::query_scalar(
            "select b.id from volumes v join branches b on b.volume_id = v.id
             where v.id = $1 and v.state = 'planned' and v.base is not null
               and b.goal in ('running', 'hibernated')",
        )
        .bind(volume.as_str())
        .fetch_optional(&self.pool)
        .await?;
        Ok(found.map(BranchId::from_trusted))
    }

    /// In an installation whose volumes are lost: has each of these volumes be made
    /// again from a base.
    pub async fn volumes_from_bases(&self, found: &[(VolumeId, String)]) -> Result<RecoveredVolumes> {
        let volumes: Vec<_> = found.iter().map(|(volume, _)| volume.to_string()).collect();
        let names: Vec<_> = found.iter().map(|(_, name)| name.clone()).collect();
        let mut tx = self.begin().await?;
        let updated = sqlx::query(
            "update volumes v set state = 'planned', base = f.name, base_until = null, stored_lsn = null
             from unnest($1::text[], $2::text[]) f (volume, name) where v.id = f.volume and v.state <> 'removed'",
        )
        .bind(&volumes)
        .bind(&names)
        .execute(&mut *tx)
        .await?;
        // Copies that are still to be made are made of that, whatever their sources were when they were promised.
        sqlx::query("update branches set failed_since = null where failed_since is not null")
            .execute(&mut *tx)
            .await?;
        sqlx::query("update volumes set hand_overs = 0 where state = 'planned' and id <> all ($1)")
            .bind(&volumes)
            .execute(&mut *tx)
            .await?;
        // Replicas are made anew from their primary.
        sqlx::query(
            "with gone as (delete from instances where role = 'replica' returning volume_id)
             update volumes set state = 'removed' where id in (select volume_id from gone)",
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "update branches b set state = 'creating', message = ''
             from volumes v where v.id = b.volume_id and v.base is not null and b.goal = 'running'",
        )
        .execute(&mut *tx)
        .await?;
        let lost: Vec<(String, String)> = sqlx::query_as(
            "select b.id, b.name from branches b join volumes v on v.id = b.volume_id
             where b.goal in ('running', 'hibernated') and v.state in ('present', 'admitted')
             order by b.created_at, b.id",
        )
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        let lost = lost.into_iter().map(|(branch, name)| (BranchId::from_trusted(branch), name));
        Ok(RecoveredVolumes { found: updated.rows_affected(), lost: lost.collect() })
    }
}
