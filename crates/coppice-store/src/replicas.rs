//! Replicas: the instances of a branch besides its primary, each with a volume
//! that is a copy of the primary's.

use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::{BranchId, HostId, InstanceId, VolumeId};
use sqlx::FromRow;

use crate::volumes::{VOLUME_COLUMNS, VolumeColumns, VolumeRow};
use crate::{NewVolume, Result, Store, StoreError, Tx};

/// A replica as the metastore knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRow {
    /// The instance.
    pub instance: InstanceId,
    /// Its number among those of its branch; the primary's is 1.
    pub ordinal: u32,
    /// Its volume.
    pub volume: VolumeRow,
    /// Whether its server was seen to accept connections.
    pub is_ready: bool,
}

/// A volume that is to be made for a replica.
#[derive(Debug)]
pub struct NewReplica<'a> {
    /// Its branch.
    pub branch: &'a BranchId,
    /// Its number among those of its branch.
    pub ordinal: u32,
    /// The volume.
    pub volume: &'a VolumeId,
    /// The primary's volume, which it becomes a copy of.
    pub source: &'a VolumeId,
    /// The host that holds both.
    pub host: &'a HostId,
    /// The PostgreSQL release.
    pub version: PostgresVersion,
}

#[derive(FromRow)]
struct Row {
    #[sqlx(flatten)]
    volume: VolumeColumns,
    instance: String,
    ordinal: i32,
    is_ready: bool,
}

impl TryFrom<Row> for ReplicaRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self> {
        Ok(Self {
            instance: InstanceId::from_trusted(row.instance),
            ordinal: row.ordinal.unsigned_abs(),
            volume: row.volume.try_into()?,
            is_ready: row.is_ready,
        })
    }
}

impl NewReplica<'_> {
    fn instance(&self) -> InstanceId {
        InstanceId::new(self.branch, self.ordinal)
    }
}

impl Store {
    /// Replicas of a branch that rows know of, in order.
    pub async fn replicas_of_branch(&self, branch: &BranchId) -> Result<Vec<ReplicaRow>> {
        let sql = format!(
            "select {VOLUME_COLUMNS}, r.id as instance, r.ordinal, r.is_ready
             from instances r join volumes v on v.id = r.volume_id
             left join volumes p on p.id = v.parent_volume_id
             left join instances i on i.volume_id = v.parent_volume_id and i.role = 'primary'
             where r.branch_id = $1 and r.role = 'replica' order by r.ordinal"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(branch.as_str());
        let rows: Vec<Row> = self.reads.all(query).await?;
        rows.into_iter().map(ReplicaRow::try_from).collect()
    }

    /// Writes down that a branch has another replica; false when a newer claim
    /// exists, or the branch is not to run any more.
    pub async fn replica_add(&self, new: &NewReplica<'_>, token: ClaimToken) -> Result<bool> {
        let mut tx = self.begin().await?;
        if !self.begin_replica_in_tx(&mut tx, new, token).await? {
            return Ok(false);
        }
        sqlx::query(
            "insert into instances (id, branch_id, ordinal, role, volume_id, host_id)
             values ($1, $2, $3, 'replica', $4, $5)",
        )
        .bind(new.instance().as_str())
        .bind(new.branch.as_str())
        .bind(new.ordinal as i32)
        .bind(new.volume.as_str())
        .bind(new.host.as_str())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Gives a replica another volume, that is to be made; a tombstone names the
    /// one it had. False when a newer claim exists, or the branch is not to run any more.
    pub async fn replica_renew(&self, new: &NewReplica<'_>, token: ClaimToken) -> Result<bool> {
        let mut tx = self.begin().await?;
        if !self.begin_replica_in_tx(&mut tx, new, token).await? {
            return Ok(false);
        }
        doom_volume(&mut tx, &new.instance(), "its replica could not follow any more").await?;
        sqlx::query("update instances set volume_id = $2, is_ready = false where id = $1")
            .bind(new.instance().as_str())
            .bind(new.volume.as_str())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Writes down that a branch does not have a replica any more; a tombstone
    /// names its volume. False when a newer claim exists.
    pub async fn replica_give_up(
        &self,
        branch: &BranchId,
        replica: &InstanceId,
        token: ClaimToken,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        if !self.hold_claim_in_tx(&mut tx, branch, token).await? {
            return Ok(false);
        }
        doom_volume(&mut tx, replica, "its replica was removed").await?;
        sqlx::query("delete from instances where id = $1 and role = 'replica'")
            .bind(replica.as_str())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Reports whether an instance accepts connections: a replica, or a primary whose
    /// branch is made something else. Without effect when a newer claim exists.
    pub async fn instance_report(
        &self,
        branch: &BranchId,
        instance: &InstanceId,
        token: ClaimToken,
        is_ready: bool,
    ) -> Result<()> {
        sqlx::query(
            "update instances i set is_ready = $4 from branches b
             where i.id = $2 and i.branch_id = $1 and b.id = $1 and b.claim_token = $3 and i.is_ready <> $4",
        )
        .bind(branch.as_str())
        .bind(instance.as_str())
        .bind(token.0)
        .bind(is_ready)
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }

    /// Branches of a host that are to run with replicas.
    pub async fn replica_branches(&self, host: &HostId) -> Result<Vec<BranchId>> {
        let query = sqlx::query(
            "select b.id from branches b join volumes v on v.id = b.volume_id
             where v.host_id = $1 and b.goal = 'running' and b.state = 'ready' and b.replicas > 0
             order by b.created_at, b.id",
        );
        let rows: Vec<(String,)> = self.reads.all(query.bind(host.as_str())).await?;
        Ok(rows.into_iter().map(|(id,)| BranchId::from_trusted(id)).collect())
    }

    /// Inserts the volume, if the claim is the newest and the branch is to run.
    async fn begin_replica_in_tx(
        &self,
        tx: &mut Tx,
        new: &NewReplica<'_>,
        token: ClaimToken,
    ) -> Result<bool> {
        let is_to_run = sqlx::query_scalar("select goal = 'running' from branches where id = $1");
        if !self.hold_claim_in_tx(tx, new.branch, token).await?
            || !is_to_run.bind(new.branch.as_str()).fetch_one(&mut **tx).await?
        {
            return Ok(false);
        }
        let volume = NewVolume {
            id: new.volume,
            host: new.host,
            branch: new.branch,
            source: Some(new.source),
            moment: None,
            base: None,
            version: new.version,
        };
        self.volume_insert_in_tx(tx, &volume).await?;
        Ok(true)
    }

    /// Whether a claim is the newest on a branch; it stays so as long as the
    /// transaction lasts.
    async fn hold_claim_in_tx(&self, tx: &mut Tx, branch: &BranchId, token: ClaimToken) -> Result<bool> {
        let query = sqlx::query_scalar("select claim_token = $2 from branches where id = $1 for update");
        let holds: Option<bool> = query.bind(branch.as_str()).bind(token.0).fetch_optional(&mut **tx).await?;
        Ok(holds == Some(true))
    }
}

async fn doom_volume(tx: &mut Tx, replica: &InstanceId, reason: &str) -> Result<()> {
    sqlx::query(
        "insert into tombstones (volume_id, host_id, branch_id, reason)
         select v.id, v.host_id, v.branch_id, $2 from instances i join volumes v on v.id = i.volume_id
         where i.id = $1 and i.role = 'replica' on conflict do nothing",
    )
    .bind(replica.as_str())
    .bind(reason)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
