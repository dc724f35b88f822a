//! What becomes of deleted branches: the trash, the way back, and the end.

use std::time::Duration;

use chrono::{DateTime, Utc};
use coppice_core::branch::{Branch, TrashedBranch};
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, OrganizationId, ProjectId, VolumeId};
use sqlx::{FromRow as _, Row as _};

use crate::branches::{BranchRow, COLUMNS};
use crate::{Result, Store, StoreError, Tx};

/// Whether something of a holder began to be removed from a host a moment ago, in SQL: what room that
/// makes is still to be seen. What can't be removed keeps no room from being made, and what is a
/// neighbour's does not either.
pub(crate) fn being_removed(host: &str, holder: &str) -> String {
    format!(
        "exists (select from tombstones t join branches d on d.id = t.branch_id join projects o on o.id = d.project_id
                 where t.host_id = {host} and t.removed_at is null and t.created_at > now() - interval '2 minutes'
                   and holder_of(o.organization_id) = {holder})"
    )
}

/// Branches of a project that are to be removed for good.
#[derive(Clone, Copy, Debug)]
pub enum Doomed<'a> {
    /// A branch that is not in the trash.
    Branch(&'a BranchId),
    /// A branch in the trash.
    Trashed(&'a BranchId),
    /// All that are.
    Trash,
    /// All that there are.
    Everything,
}

impl Store {
    /// Puts a branch into the trash for so long. Children of theirs become base
    /// branches. False when there is nothing to keep: no such branch, or one
    /// whose data was never there.
    ///
    /// Data is there before the first start on it is done, as what it replaces was, and where it
    /// is to be made again from a base of it.
    pub async fn branch_trash_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        id: &BranchId,
        keep: Duration,
    ) -> Result<bool> {
        // Its replacement may be taking its place: what both statements look at is as it is after that.
        sqlx::query("select from branches where id = $1 for update")
            .bind(id.as_str())
            .execute(&mut **tx)
            .await?;
        sqlx::query(
            "with given_up as (
                 select b.id, v.id as volume_id, v.host_id from branches b join volumes v on v.id = b.replacement_id
                 where b.id = $1 and b.project_id = $2 and b.deleted_at is null)
             insert into tombstones (volume_id, host_id, branch_id, reason)
             select volume_id, host_id, id, 'its branch was deleted' from given_up on conflict do nothing",
        )
        .bind(id.as_str())
        .bind(project.as_str())
        .execute(&mut **tx)
        .await?;
        let trashed: i64 = sqlx::query_scalar(
            "with trashed as (
                 update branches b set goal = 'trashed', replacement_id = null, replacement_reason = '', deleted_at = now(),
                     purge_at = now() + make_interval(secs => $3), parent_id = null,
                     former_parent_id = coalesce(parent_id, former_parent_id), generation = generation + 1
                 where b.id = $1 and b.project_id = $2 and b.deleted_at is null
                   and exists (select from volumes v where v.id = b.volume_id
                               and (v.state in ('present', 'admitted')
                                    or exists (select from bases x where x.volume_id = v.id)))
                 returning b.id),
             ended as (
                 update awake_periods set ended_at = now(), end_cause = 'request'
                 where branch_id in (select id from trashed) and ended_at is null),
             orphaned as (
                 update branches set parent_id = null, former_parent_id = parent_id
                 where parent_id in (select id from trashed))
             select count(*) from trashed",
        )
        .bind(id.as_str())
        .bind(project.as_str())
        .bind(keep.as_secs_f64())
        .fetch_one(&mut **tx)
        .await?;
        Ok(trashed == 1)
    }

    /// Marks branches of a project deleted and writes their tombstones; returns
    /// those that were not deleted before. Children of theirs become base
    /// branches.
    pub async fn branch_delete_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        doomed: Doomed<'_>,
        reason: &str,
    ) -> Result<Vec<BranchId>> {
        let (only, is_trashed) = match doomed {
            Doomed::Branch(id) => (Some(id), Some(false)),
            Doomed::Trashed(id) => (Some(id), Some(true)),
            Doomed::Trash => (None, Some(true)),
            Doomed::Everything => (None, None),
        };
        let ids: Vec<String> = sqlx::query_scalar(
            "select id from branches where project_id = $1 and goal <> 'deleted' and ($2::text is null or id = $2)
               and ($3::boolean is null or (goal = 'trashed') = $3)
             for update",
        )
        .bind(project.as_str())
        .bind(only.map(BranchId::as_str))
        .bind(is_trashed)
        .fetch_all(&mut **tx)
        .await?;
        remove(tx, ids, reason).await
    }

    /// Of what an organization has in the trash, everything but `keep` branches is deleted for good; returns that.
    /// What goes first is the oldest of the project that has most there, and in it of the key that made most of that:
    /// whoever may only do something in a part of an organization drives out what is of that part.
    pub async fn trash_trim_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        keep: u32,
    ) -> Result<Vec<BranchId>> {
        let ids: Vec<String> = sqlx::query_scalar(
            "select id from branches where goal = 'trashed' and id in (
                 select id from (
                     select id, deleted_at, row_number() over (
                         partition by project_id order by of_maker, deleted_at desc, id) as of_project
                     from (
                         select b.id, b.deleted_at, b.project_id, row_number() over (
                             partition by b.project_id, b.made_with order by b.deleted_at desc, b.id) as of_maker
                         from branches b join projects p on p.id = b.project_id
                         where p.organization_id = $1 and b.goal = 'trashed') trashed) trashed
                 order by of_project, deleted_at desc, id offset $2)
             for update",
        )
        .bind(organization.as_str())
        .bind(i64::from(keep))
        .fetch_all(&mut **tx)
        .await?;
        remove(tx, ids, "the trash of its organization was full").await
    }

    /// Branches whose time is over, with where they are. Served by index
    /// `branches_expiry`.
    pub async fn branch_expired(&self) -> Result<Vec<(OrganizationId, ProjectId, BranchId)>> {
        let query = sqlx::query_as(
            "select p.organization_id, p.id, b.id from branches b join projects p on p.id = b.project_id
             where b.expires_at <= now() and b.deleted_at is null order by b.expires_at, b.id",
        );
        let rows: Vec<(String, String, String)> = query.fetch_all(&self.pool).await?;
        let place = |(organization, project, branch)| {
            (
                OrganizationId::from_trusted(organization),
                ProjectId::from_trusted(project),
                BranchId::from_trusted(branch),
            )
        };
        Ok(rows.into_iter().map(place).collect())
    }

    /// Names of branches of a project that can't be deleted.
    pub async fn branch_protected_in_tx(&self, tx: &mut Tx, project: &ProjectId) -> Result<Vec<String>> {
        let query =
            sqlx::query_scalar("select name from branches where project_id = $1 and protected order by name");
        Ok(query.bind(project.as_str()).fetch_all(&mut **tx).await?)
    }

    /// Deletes for good what has been in the trash for long enough; returns it.
    /// Served by index `branches_trash`.
    pub async fn trash_purge_due(&self) -> Result<Vec<BranchId>> {
        let mut tx = self.begin().await?;
        let ids: Vec<String> = sqlx::query_scalar(
            "select id from branches where goal = 'trashed' and purge_at <= now() for update skip locked",
        )
        .fetch_all(&mut *tx)
        .await?;
        let removed = remove(&mut tx, ids, "its time in the trash was over").await?;
        tx.commit().await?;
        Ok(removed)
    }

    /// Volumes of a host that are kept of what was: of branches in the trash, and
    /// former versions; each with whose it is.
    pub async fn kept_volumes(&self, host: &HostId) -> Result<Vec<(Holder, VolumeId)>> {
        let query = sqlx::query_as(
            "select holder_of(p.organization_id), v.id from volumes v
             join branches b on b.id = v.branch_id join projects p on p.id = b.project_id
             where v.host_id = $1 and v.state in ('present', 'admitted') and b.goal <> 'deleted'
               and (b.goal = 'trashed' or exists (select from branch_versions n where n.volume_id = v.id))",
        );
        let rows: Vec<(String, String)> = query.bind(host.as_str()).fetch_all(&self.pool).await?;
        let kept = |(holder, volume)| (Holder::from_trusted(holder), VolumeId::from_trusted(volume));
        Ok(rows.into_iter().map(kept).collect())
    }

    /// Deletes for good what organizations of one holder have had longest in the trash of a
    /// host, unless something of theirs is being removed there already; returns it.
    pub async fn trash_purge_oldest(&self, host: &HostId, holder: &Holder) -> Result<Option<BranchId>> {
        let mut tx = self.begin().await?;
        let sql = format!(
            "select b.id from branches b join volumes v on v.id = b.volume_id join projects p on p.id = b.project_id
             where b.goal = 'trashed' and v.host_id = $1 and holder_of(p.organization_id) = $2 and not {}
             order by b.deleted_at, b.id limit 1 for update of b skip locked",
            being_removed("$1", "$2")
        );
        let ids: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(host.as_str())
            .bind(holder.as_str())
            .fetch_all(&mut *tx)
            .await?;
        let removed = remove(&mut tx, ids, "there was no room for the trash").await?;
        tx.commit().await?;
        Ok(removed.into_iter().next())
    }

    /// What is in the trash of a project, what was deleted last first.
    pub async fn trash_list(
        &self,
        organization: &OrganizationId,
        project: &ProjectId,
    ) -> Result<Vec<TrashedBranch>> {
        let sql = format!(
            "select {COLUMNS}, b.deleted_at, b.purge_at from branches b join projects p on p.id = b.project_id
             where b.project_id = $1 and b.goal = 'trashed' and p.organization_id = $2 and p.deleted_at is null
             order by b.deleted_at desc, b.id"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(project.as_str()).bind(organization.as_str());
        let rows = query.fetch_all(&self.pool).await?;
        let trashed = rows.into_iter().map(|row| {
            Ok(TrashedBranch {
                deleted_at: row.try_get::<DateTime<Utc>, _>("deleted_at")?,
                purge_at: row.try_get::<DateTime<Utc>, _>("purge_at")?,
                branch: Branch::try_from(BranchRow::from_row(&row)?)?,
            })
        });
        trashed.collect()
    }

    /// Brings a branch back from the trash, awake, under another name if one is
    /// given, between the parent and the children it had, as far as those are
    /// there. False when it is not in the trash. The transaction must have locked
    /// its organization, and found it enabled.
    ///
    /// # Errors
    /// A unique violation of `branches_name` when the name is taken.
    pub async fn branch_undelete_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        id: &BranchId,
        name: Option<&str>,
        by: &str,
    ) -> Result<bool> {
        let done = sqlx::query(
            "with back as (
                 update branches b set goal = 'running', deleted_at = null, purge_at = null, expires_at = null,
                     name = coalesce($3, b.name), generation = generation + 1, updated_at = now(),
                     idle_since = now(), resumes_when_allowed = false,
                     parent_id = (select p.id from branches p
                                  where p.id = b.former_parent_id and p.deleted_at is null)
                 where b.id = $1 and b.project_id = $2 and b.goal = 'trashed' returning b.id)
             insert into awake_periods (branch_id, cause, woken_by) select id, 'request', $4 from back",
        )
        .bind(id.as_str())
        .bind(project.as_str())
        .bind(name)
        .bind(by)
        .execute(&mut **tx)
        .await?;
        sqlx::query(
            "update branches set parent_id = $1
             where former_parent_id = $1 and parent_id is null and deleted_at is null",
        )
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}

async fn remove(tx: &mut Tx, ids: Vec<String>, reason: &str) -> Result<Vec<BranchId>, StoreError> {
    if ids.is_empty() {
        return Ok(vec![]);
    }
    sqlx::query(
        "update branches set goal = 'deleted', replacement_id = null, replacement_reason = '', deleted_at = coalesce(deleted_at, now()), purge_at = null,
             parent_id = null, generation = generation + 1
         where id = any($1)",
    )
    .bind(&ids)
    .execute(&mut **tx)
    .await?;
    sqlx::query("update branches set parent_id = null where parent_id = any($1)")
        .bind(&ids)
        .execute(&mut **tx)
        .await?;
    sqlx::query(
        "insert into tombstones (volume_id, host_id, branch_id, reason)
         select id, host_id, branch_id, $2 from volumes where branch_id = any($1) and state <> 'removed'
         on conflict do nothing",
    )
    .bind(&ids)
    .bind(reason)
    .execute(&mut **tx)
    .await?;
    Ok(ids.into_iter().map(BranchId::from_trusted).collect())
}
