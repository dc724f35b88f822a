//! Volumes that take the place of others, and versions: what branches were.

use std::time::Duration;

use coppice_core::branch::{Branch, BranchState, BranchVersion};
use coppice_core::claim::ClaimToken;
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, VolumeId};
use sqlx::FromRow;

use crate::trash::being_removed;
use crate::{NewVolume, Result, Store, Tx};

/// Versions of one branch; one more, and the oldest goes.
const VERSIONS_MAX: i64 = 20;

#[derive(FromRow)]
struct VersionRow {
    volume_id: String,
    since: chrono::DateTime<chrono::Utc>,
    until: chrono::DateTime<chrono::Utc>,
    reason: String,
    kept_until: chrono::DateTime<chrono::Utc>,
}

#[derive(FromRow)]
struct OwnedVersionRow {
    branch_id: String,
    #[sqlx(flatten)]
    version: VersionRow,
}

impl From<VersionRow> for BranchVersion {
    fn from(row: VersionRow) -> Self {
        Self {
            volume: VolumeId::from_trusted(row.volume_id),
            since: row.since,
            until: row.until,
            reason: row.reason,
            kept_until: row.kept_until,
        }
    }
}

/// What a volume that takes the place of another brings about.
#[derive(Debug)]
pub struct Replacement<'a> {
    /// What is done, for people.
    pub reason: &'a str,
    /// What the branch is meanwhile.
    pub meanwhile: BranchState,
    /// Whether it is made only to find out whether it can be.
    pub is_trial: bool,
    /// The storage that the branch has at least.
    pub storage_gib: u32,
    /// For how long what it was can be gone back to.
    pub keep: Duration,
}

impl Store {
    /// Has a volume take the place of a branch's own as soon as it is made; false
    /// when the branch is not at rest, or never came up.
    pub async fn branch_plan_replacement_in_tx(
        &self,
        tx: &mut Tx,
        branch: &Branch,
        new: &NewVolume<'_>,
        why: &Replacement<'_>,
    ) -> Result<bool> {
        self.volume_insert_in_tx(tx, new).await?;
        let done = sqlx::query(
            "update branches b set replacement_id = $2, replacement_reason = $3, state = $6, message = '',
                 replacement_is_trial = $7,
                 storage_gib = greatest(storage_gib, $4), generation = generation + 1, updated_at = now(),
                 taken_back = '', version_keep = make_interval(secs => $5)
             where id = $1 and deleted_at is null and replacement_id is null
               and ((goal, state) in (('running', 'ready'), ('hibernated', 'hibernated')) or state = 'failed')
               and exists (select from volumes v where v.id = b.volume_id and v.state in ('present', 'admitted'))",
        )
        .bind(branch.id.as_str())
        .bind(new.id.as_str())
        .bind(why.reason)
        .bind(why.storage_gib as i32)
        .bind(why.keep.as_secs_f64())
        .bind(why.meanwhile.as_str())
        .bind(why.is_trial)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Lets the volume that was made for it take the place of a branch's own,
    /// which becomes a version. What was kept for its sleep is of no
    /// use any more. False when a newer claim exists, or it was decided otherwise.
    pub async fn branch_replace(
        &self,
        id: &BranchId,
        token: ClaimToken,
        old: &VolumeId,
        new: &VolumeId,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        let reason: Option<String> = sqlx::query_scalar(
            "select replacement_reason from branches
             where id = $1 and claim_token = $2 and volume_id = $3 and replacement_id = $4
               and goal in ('running', 'hibernated') for update",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(old.as_str())
        .bind(new.as_str())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(reason) = reason else { return Ok(false) };
        sqlx::query(
            "insert into branch_versions (volume_id, branch_id, since, until, reason, kept_until)
             select v.id, b.id, coalesce((select max(until) from branch_versions where branch_id = $2), v.created_at),
                 now(), $3, now() + b.version_keep
             from volumes v, branches b where v.id = $1 and b.id = $2",
        )
        .bind(old.as_str())
        .bind(id.as_str())
        .bind(reason)
        .execute(&mut *tx)
        .await?;
        sqlx::query("update instances set volume_id = $2 where branch_id = $1 and role = 'primary'")
            .bind(id.as_str())
            .bind(new.as_str())
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "update branches b set volume_id = $2, replacement_id = null, replacement_reason = '',
                 verifiers_checkpoint = null,
                 proven_spec = case n.image_major when o.image_major then b.proven_spec end,
                 image_major = case n.image_major when o.image_major then b.image_major else n.image_major end,
                 image_minor = case n.image_major when o.image_major then b.image_minor else n.image_minor end,
                 root_id = coalesce((select nullif(coalesce(s.root_id, s.id), b.id) from volumes v
                     join volumes p on p.id = v.parent_volume_id join branches s on s.id = p.branch_id
                     where v.id = $2), root_id)
             from volumes n, volumes o where b.id = $1 and n.id = $2 and o.id = $3",
        )
        .bind(id.as_str())
        .bind(new.as_str())
        .bind(old.as_str())
        .execute(&mut *tx)
        .await?;
        doom(&mut tx, Which::TooMany(id), "it had too many versions").await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Gives up the volume that was to take the place of a branch's own, and says
    /// why. False when a newer claim exists, or it has taken the place.
    pub async fn branch_give_up_replacement(
        &self,
        id: &BranchId,
        token: ClaimToken,
        why: &str,
    ) -> Result<bool> {
        let done = sqlx::query(
            "with given_up as (
                 select b.id, v.id as volume_id, v.host_id from branches b join volumes v on v.id = b.replacement_id
                 where b.id = $1 and b.claim_token = $2 and v.state = 'planned' for update of b),
             named as (
                 insert into tombstones (volume_id, host_id, branch_id, reason)
                 select volume_id, host_id, id, 'it could not be made' from given_up on conflict do nothing)
             update branches set replacement_id = null, replacement_reason = '', taken_back = $3,
                 generation = generation + 1
             where id in (select id from given_up)",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(why)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// What a branch says until its next change.
    pub async fn branch_say(&self, id: &BranchId, token: ClaimToken, what: &str) -> Result<()> {
        let query = sqlx::query("update branches set taken_back = $3 where id = $1 and claim_token = $2");
        query.bind(id.as_str()).bind(token.0).bind(what).execute(&self.pool).await?;
        Ok(())
    }

    /// What a branch was, the latest first.
    pub async fn branch_versions(&self, id: &BranchId) -> Result<Vec<BranchVersion>> {
        let query = sqlx::query(
            "select volume_id, since, until, reason, kept_until from branch_versions where branch_id = $1
             order by until desc, volume_id",
        );
        let rows: Vec<VersionRow> = self.reads.all(query.bind(id.as_str())).await?;
        Ok(rows.into_iter().map(BranchVersion::from).collect())
    }

    /// What these branches were, of each the latest first.
    pub async fn versions_of_branches(&self, ids: &[BranchId]) -> Result<Vec<(BranchId, BranchVersion)>> {
        let ids: Vec<_> = ids.iter().map(BranchId::as_str).collect();
        let query = sqlx::query(
            "select branch_id, volume_id, since, until, reason, kept_until from branch_versions
             where branch_id = any($1) order by branch_id, until desc, volume_id",
        );
        let rows: Vec<OwnedVersionRow> = self.reads.all(query.bind(ids)).await?;
        let owned = |row: OwnedVersionRow| (BranchId::from_trusted(row.branch_id), row.version.into());
        Ok(rows.into_iter().map(owned).collect())
    }

    /// The major version of PostgreSQL that a version of a branch has; none when it has
    /// no such version. That stays as long as the transaction lasts.
    pub async fn branch_version_major_in_tx(
        &self,
        tx: &mut Tx,
        id: &BranchId,
        volume: &VolumeId,
    ) -> Result<Option<u32>> {
        let query = sqlx::query_scalar(
            "select v.image_major from branch_versions n join volumes v on v.id = n.volume_id
             where n.branch_id = $1 and n.volume_id = $2 for share of n",
        );
        let found: Option<i32> =
            query.bind(id.as_str()).bind(volume.as_str()).fetch_optional(&mut **tx).await?;
        Ok(found.map(i32::unsigned_abs))
    }

    /// Whether a volume is still to take the place of a branch's own.
    pub async fn branch_wants_replacement(&self, id: &BranchId, volume: &VolumeId) -> Result<bool> {
        let query = sqlx::query_scalar(
            "select exists (select from branches where id = $1 and replacement_id = $2
                 and goal in ('running', 'hibernated'))",
        );
        Ok(query.bind(id.as_str()).bind(volume.as_str()).fetch_one(&self.pool).await?)
    }

    /// Gives up versions that were kept for long enough, and the oldest one of an
    /// organization that has to make room. Returns branches of a host of which a
    /// tombstone names a volume that they don't have any more.
    pub async fn version_give_up(&self, host: &HostId, makes_room: Option<&Holder>) -> Result<Vec<BranchId>> {
        let mut tx = self.begin().await?;
        doom(&mut tx, Which::Due, "it was kept for long enough").await?;
        if let Some(holder) = makes_room {
            doom(&mut tx, Which::Oldest(host, holder), "there was no room for it").await?;
        }
        let ids: Vec<String> = sqlx::query_scalar(
            "select distinct b.id from tombstones t join volumes v on v.id = t.volume_id and v.state <> 'removed'
             join branches b on b.id = v.branch_id and b.state <> 'deleted' and v.id <> b.volume_id
                 and v.id is distinct from b.replacement_id
             where t.removed_at is null and v.host_id = $1",
        )
        .bind(host.as_str())
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(ids.into_iter().map(BranchId::from_trusted).collect())
    }
}

/// Versions that have to go.
enum Which<'a> {
    Due,
    Oldest(&'a HostId, &'a Holder),
    TooMany(&'a BranchId),
}

async fn doom(tx: &mut Tx, which: Which<'_>, reason: &str) -> Result<()> {
    let chosen = match which {
        Which::Due => {
            "select volume_id from branch_versions where kept_until <= now() for update skip locked".to_owned()
        }
        Which::Oldest(..) => format!(
            "select n.volume_id from branch_versions n join volumes v on v.id = n.volume_id
             join branches b on b.id = n.branch_id join projects p on p.id = b.project_id
             where v.host_id = $2 and holder_of(p.organization_id) = $3 and not {}
             order by n.until, n.volume_id limit 1 for update of n skip locked",
            being_removed("$2", "$3")
        ),
        Which::TooMany(_) => {
            "select volume_id from branch_versions where branch_id = $2 order by until desc, volume_id offset $3"
                .to_owned()
        }
    };
    let sql = format!(
        "with gone as (delete from branch_versions where volume_id in ({chosen}) returning volume_id)
         insert into tombstones (volume_id, host_id, branch_id, reason)
         select v.id, v.host_id, v.branch_id, $1 from volumes v join gone on gone.volume_id = v.id
         on conflict do nothing"
    );
    let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(reason);
    let query = match which {
        Which::Due => query,
        Which::Oldest(host, holder) => query.bind(host.as_str()).bind(holder.as_str()),
        Which::TooMany(branch) => query.bind(branch.as_str()).bind(VERSIONS_MAX),
    };
    query.execute(&mut **tx).await?;
    Ok(())
}
