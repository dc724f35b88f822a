//! Volumes and tombstones.

use chrono::{DateTime, Utc};
use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::lsn::Lsn;
use coppice_core::volume::VolumeState;
use coppice_core::{BranchId, HostId, InstanceId, VolumeId};
use sqlx::FromRow;

use crate::branches::version;
use crate::{Result, Store, StoreError, Tx};

/// A copy that could not be made for so many days in a row does not keep what it is to be made of.
const PROMISED_DAYS: i32 = 1;

/// A volume as the metastore knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRow {
    /// The volume.
    pub id: VolumeId,
    /// The host that holds it.
    pub host: HostId,
    /// The volume it is a copy of; none for a copy of a template.
    pub parent: Option<VolumeId>,
    /// The place in the parent's log that it begins at; none for a copy of what the
    /// parent is when it is made.
    pub moment: Option<Lsn>,
    /// The base in the store that it is made from, whatever it is a copy of.
    pub base: Option<String>,
    /// The time up to which the log behind the base goes into it; none for all of it.
    pub base_until: Option<DateTime<Utc>>,
    /// The release that the parent is made for; none without a parent.
    pub parent_version: Option<PostgresVersion>,
    /// The primary instance of the parent volume's branch.
    pub parent_instance: Option<InstanceId>,
    /// How far it is.
    pub state: VolumeState,
    /// Number of the account its server runs under.
    pub account: u32,
    /// The PostgreSQL release that wrote it.
    pub version: PostgresVersion,
}

/// The reason to remove a volume's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The volume.
    pub volume: VolumeId,
    /// Its branch.
    pub branch: Option<BranchId>,
}

/// A moment of a volume's past, in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseMoment {
    /// The newest base that was taken before it, by its name.
    pub base: String,
    /// The moment.
    pub until: DateTime<Utc>,
}

/// A volume to be inserted.
#[derive(Debug)]
pub struct NewVolume<'a> {
    /// The volume.
    pub id: &'a VolumeId,
    /// The host that will hold it.
    pub host: &'a HostId,
    /// The branch that it is made for.
    pub branch: &'a BranchId,
    /// The volume its data is copied from; none means the image's template.
    pub source: Option<&'a VolumeId>,
    /// The place in that volume's log to go back to; none means as it is.
    pub moment: Option<Lsn>,
    /// The base in the store that it is made from instead, and up to which time.
    pub base: Option<&'a BaseMoment>,
    /// The PostgreSQL release.
    pub version: PostgresVersion,
}

/// What [`VolumeColumns`] are read from: `volumes v`, its parent `p`, and the primary
/// `i` on that.
pub(crate) const VOLUME_COLUMNS: &str = "v.id, v.host_id, v.parent_volume_id, v.moment::text, v.base, v.base_until, \
     i.id as parent_instance, v.state, v.account, v.image_major, v.image_minor, \
     p.image_major as parent_major, p.image_minor as parent_minor";

impl VolumeRow {
    /// The release that its data is taken from, where that is one of another major version.
    pub fn upgraded_from(&self) -> Option<PostgresVersion> {
        self.parent_version.filter(|parent| self.base.is_none() && parent.major != self.version.major)
    }
}

#[derive(FromRow)]
pub(crate) struct VolumeColumns {
    id: String,
    host_id: String,
    parent_volume_id: Option<String>,
    moment: Option<String>,
    base: Option<String>,
    base_until: Option<DateTime<Utc>>,
    parent_major: Option<i32>,
    parent_minor: Option<i32>,
    parent_instance: Option<String>,
    state: String,
    account: i32,
    image_major: i32,
    image_minor: i32,
}

impl TryFrom<VolumeColumns> for VolumeRow {
    type Error = StoreError;

    fn try_from(row: VolumeColumns) -> Result<Self> {
        let state = VolumeState::parse(&row.state)
            .ok_or_else(|| StoreError::UnknownValue { what: "volume state", value: row.state })?;
        let moment = row.moment.map(|text| {
            text.parse().map_err(|_| StoreError::UnknownValue { what: "place in a log", value: text })
        });
        Ok(Self {
            moment: moment.transpose()?,
            base: row.base,
            base_until: row.base_until,
            id: VolumeId::from_trusted(row.id),
            host: HostId::from_trusted(row.host_id),
            parent: row.parent_volume_id.map(VolumeId::from_trusted),
            parent_version: row
                .parent_major
                .zip(row.parent_minor)
                .map(|(major, minor)| version(major, minor)),
            parent_instance: row.parent_instance.map(InstanceId::from_trusted),
            state,
            account: row.account.unsigned_abs(),
            version: version(row.image_major, row.image_minor),
        })
    }
}

impl Store {
    /// Inserts the volume of a branch that is there. What is copied is as old as anything that its source ever
    /// had, unless it is what a branch is now, whose server knows nobody of before: of a moment, a base or a version
    /// the metastore can't tell what was done by then.
    pub(crate) async fn volume_insert_in_tx(&self, tx: &mut Tx, new: &NewVolume<'_>) -> Result<()> {
        sqlx::query(
            "insert into volumes (id, host_id, branch_id, parent_volume_id, moment, state, account, image_major,
                 image_minor, base, base_until, hand_overs)
             select $1, $2, b.id, $4, $7::pg_lsn, 'planned', nextval('volume_accounts'), $5, $6, $8, $9,
                 case when $7::pg_lsn is null and $8::text is null
                           and ($4::text is null
                                or s.state = 'admitted'
                                   and exists (select from branches l where l.volume_id = s.id and not l.hands_over))
                      then p.hand_overs else coalesce(s.hand_overs, 0) end
             from branches b join projects p on p.id = b.project_id left join volumes s on s.id = $4
             where b.id = $3",
        )
        .bind(new.id.as_str())
        .bind(new.host.as_str())
        .bind(new.branch.as_str())
        .bind(new.source.map(VolumeId::as_str))
        .bind(new.version.major as i32)
        .bind(new.version.minor as i32)
        .bind(new.moment.map(|lsn| lsn.to_string()))
        .bind(new.base.map(|base| &base.base))
        .bind(new.base.map(|base| base.until))
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// The volume that a branch points at, and the one that is to take its place.
    ///
    /// # Errors
    /// When there is no such branch, or the metastore can't be reached.
    pub(crate) async fn volumes_of_branch(
        &self,
        branch: &BranchId,
    ) -> Result<(VolumeRow, Option<VolumeRow>)> {
        let sql = format!(
            "select {VOLUME_COLUMNS}
             from branches b join volumes v on v.id in (b.volume_id, b.replacement_id)
             left join volumes p on p.id = v.parent_volume_id
             left join instances i on i.volume_id = v.parent_volume_id and i.role = 'primary'
             where b.id = $1 order by v.id = b.replacement_id"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(branch.as_str());
        let rows: Vec<VolumeColumns> = self.reads.all(query).await?;
        let mut volumes = rows.into_iter().map(VolumeRow::try_from);
        let volume = volumes.next().ok_or(sqlx::Error::RowNotFound)??;
        Ok((volume, volumes.next().transpose()?))
    }

    /// Records that a volume's data is complete on disk, and what it is a copy
    /// of. May be lost in a crash: making the volume again finds it complete.
    pub async fn volume_present(
        &self,
        id: &VolumeId,
        token: ClaimToken,
        system_identifier: &str,
        timeline: u32,
        fork_lsn: &str,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update volumes set state = 'present', claim_token = $2, system_identifier = $3, timeline = $4,
                 fork_lsn = $5::pg_lsn
             where id = $1 and claim_token <= $2 and state in ('planned', 'present')",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(system_identifier)
        .bind(timeline as i32)
        .bind(fork_lsn)
        .execute(&self.relaxed)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Records that the first start is done, durably: it must never run again
    /// once clients were let in. False when a newer claim exists.
    pub async fn volume_admitted(&self, id: &VolumeId, token: ClaimToken) -> Result<bool> {
        let done = sqlx::query(
            "with branch as (
                 update branches set state = case when role_pending then state else 'ready' end, message = ''
                 where volume_id = $1 and claim_token = $2 and goal = 'running' returning id)
             update volumes set state = 'admitted', claim_token = $2
             where id = $1 and claim_token <= $2 and state in ('planned', 'present', 'admitted')
               and exists (select from branches where volume_id = $1 and claim_token = $2)",
        )
        .bind(id.as_str())
        .bind(token.0)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Whether a volume that is used for the first time may know passwords of those who had its branch.
    pub async fn volume_knows_former(&self, id: &VolumeId) -> Result<bool> {
        let query = sqlx::query_scalar(
            "select v.hand_overs < p.hand_overs
             from volumes v join branches b on b.id = v.branch_id join projects p on p.id = b.project_id
             where v.id = $1",
        );
        Ok(query.bind(id.as_str()).fetch_one(&self.pool).await?)
    }

    /// Whether a branch that goes on is to have this volume.
    pub async fn volume_is_wanted(&self, id: &VolumeId) -> Result<bool> {
        let query = sqlx::query_scalar(
            "select exists (select from branches
                 where $1 in (volume_id, replacement_id) and goal in ('running', 'hibernated'))",
        );
        Ok(query.bind(id.as_str()).fetch_one(&self.pool).await?)
    }

    /// Whether a copy of this volume is promised and not made yet. One that is made from a base needs
    /// nothing of it, and one that could not be made for long is not waited for.
    pub async fn volume_has_promised_copies(&self, id: &VolumeId) -> Result<bool> {
        Ok(sqlx::query_scalar(
            "select exists (select from volumes v join branches b on v.id in (b.volume_id, b.replacement_id)
                 where v.parent_volume_id = $1 and v.state = 'planned' and v.base is null and b.goal <> 'deleted'
                   and not (v.id = b.volume_id and b.state = 'failed'
                            and b.failed_since < now() - make_interval(days => $2)))",
        )
        .bind(id.as_str())
        .bind(PROMISED_DAYS)
        .fetch_one(&self.pool)
        .await?)
    }

    /// The tombstone that names a volume, if one does.
    pub async fn tombstone_find(&self, id: &VolumeId) -> Result<Option<Tombstone>> {
        let row: Option<(String, Option<String>)> =
            sqlx::query_as("select volume_id, branch_id from tombstones where volume_id = $1")
                .bind(id.as_str())
                .fetch_optional(&self.pool)
                .await?;
        Ok(row.map(|(volume, branch)| Tombstone {
            volume: VolumeId::from_trusted(volume),
            branch: branch.map(BranchId::from_trusted),
        }))
    }

    /// Records that a volume's data is gone, and settles its deleted branch.
    pub async fn volume_removed(&self, id: &VolumeId) -> Result<()> {
        sqlx::query(
            "with volume as (update volumes set state = 'removed' where id = $1),
                  branch as (update branches set state = 'deleted' where volume_id = $1 and goal = 'deleted')
             update tombstones set removed_at = coalesce(removed_at, now()) where volume_id = $1",
        )
        .bind(id.as_str())
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }

    /// Which of these volumes the metastore knows, be it by a row or by a
    /// tombstone.
    pub async fn volume_known(&self, ids: &[String]) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "select id from volumes where id = any($1) union select volume_id from tombstones where volume_id = any($1)",
        )
        .bind(ids)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Which of these instances belong to branches that are not settled as deleted.
    pub async fn instance_known(&self, ids: &[String]) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "select i.id from instances i join branches b on b.id = i.branch_id
             where i.id = any($1) and not (b.goal = 'deleted' and b.state = 'deleted')",
        )
        .bind(ids)
        .fetch_all(&self.pool)
        .await?)
    }
}
