//! Branches as the reconciler sees them: claims, reports, what is left to do.

use coppice_core::branch::{Branch, BranchState, Reconfigure};
use coppice_core::claim::ClaimToken;
use coppice_core::organization::Holder;
use coppice_core::{BranchId, HostId, InstanceId, VolumeId};
use sqlx::{FromRow, Row as _};

use crate::branches::{BranchRow, COLUMNS};
use crate::replicas::ReplicaRow;
use crate::rotation::KeptPassword;
use crate::volumes::VolumeRow;
use crate::{Result, Store, StoreError};

/// Most characters of what is said of a branch.
const MESSAGE_MAX: usize = 2000;

/// A claimed branch with everything the reconciler needs.
#[derive(Clone, Debug)]
pub struct BranchWork {
    /// The branch.
    pub branch: Branch,
    /// Its current volume.
    pub volume: VolumeRow,
    /// The volume that is to take its place.
    pub replacement: Option<VolumeRow>,
    /// Whether that is made only to find out whether it can be.
    pub replacement_is_trial: bool,
    /// Volumes that it had, and that tombstones name.
    pub doomed: Vec<VolumeId>,
    /// Its primary.
    pub instance: InstanceId,
    /// Its replicas, in order; also those that it is not to have any more.
    pub replicas: Vec<ReplicaRow>,
    /// What the managed role must have.
    pub managed_role_verifier: String,
    /// Whether the server has to be told before it lets anybody in.
    pub role_pending: bool,
    /// What it is going to have, while a rotation goes on.
    pub next: Option<KeptPassword>,
    /// Whether the server is to keep out whoever had the branch when it is told a password.
    pub hands_over: bool,
    /// What its server needs to take the settings it has now.
    pub reconfigure: Option<Reconfigure>,
    /// Whether no server has started yet with what it is made of.
    pub is_unproven: bool,
    /// Why the last changes were taken back; empty when they were not.
    pub taken_back: String,
}

#[derive(FromRow)]
struct ClaimedRow {
    managed_role_verifier: String,
    role_pending: bool,
    next_password_sealed: Option<Vec<u8>>,
    next_verifier: Option<String>,
    hands_over: bool,
    reconfigure: Option<String>,
    is_unproven: bool,
    taken_back: String,
    replacement_is_trial: bool,
    doomed: Vec<String>,
}

impl Store {
    /// Whose a branch is, whatever became of it; none when nothing is known of it.
    pub async fn branch_holder(&self, id: &BranchId) -> Result<Option<Holder>> {
        let query = "select holder_of(p.organization_id) from branches b
                     join projects p on p.id = b.project_id where b.id = $1";
        let found: Option<String> =
            sqlx::query_scalar(query).bind(id.as_str()).fetch_optional(&self.pool).await?;
        Ok(found.map(Holder::from_trusted))
    }

    /// Claims the work on a branch for `lease_seconds`, or looks at it again by the
    /// claim that holds it; none when a newer claim does, another host does, or there
    /// is no work of this host.
    pub async fn branch_claim(
        &self,
        id: &BranchId,
        host: &HostId,
        token: ClaimToken,
        lease_seconds: u32,
    ) -> Result<Option<BranchWork>> {
        let claimed: Option<ClaimedRow> = sqlx::query_as(
            "update branches set claim_token = $3, claim_host = $2,
                 claim_expires = now() + make_interval(secs => $4)
             where id = $1 and claim_token <= $3
               and (claim_host is null or claim_host = $2 or claim_expires < now())
               and exists (select from volumes v where v.id = branches.volume_id and v.host_id = $2)
             returning managed_role_verifier, role_pending, next_password_sealed, next_verifier, hands_over,
                 reconfigure, proven_spec is not null as is_unproven, taken_back, replacement_is_trial,
                 array(select v.id from volumes v join tombstones t on t.volume_id = v.id
                       where v.branch_id = branches.id and v.state <> 'removed' and v.id <> branches.volume_id
                         and v.id is distinct from branches.replacement_id) as doomed",
        )
        .bind(id.as_str())
        .bind(host.as_str())
        .bind(token.0)
        .bind(f64::from(lease_seconds))
        .fetch_optional(&self.relaxed)
        .await?;
        let Some(claimed) = claimed else { return Ok(None) };
        let sql = format!(
            "select {COLUMNS}, i.id as instance from branches b join projects p on p.id = b.project_id
             join instances i on i.branch_id = b.id and i.role = 'primary' where b.id = $1"
        );
        let branch = self.reads.row(sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id.as_str()));
        let (row, (volume, replacement), replicas) =
            tokio::try_join!(branch, self.volumes_of_branch(id), self.replicas_of_branch(id))?;
        let row = row.ok_or(sqlx::Error::RowNotFound)?;
        let instance = InstanceId::from_trusted(row.try_get::<String, _>("instance")?);
        let branch = Branch::try_from(BranchRow::from_row(&row)?)?;
        Ok(Some(BranchWork {
            branch,
            volume,
            replacement,
            replacement_is_trial: claimed.replacement_is_trial,
            doomed: claimed.doomed.into_iter().map(VolumeId::from_trusted).collect(),
            instance,
            replicas,
            managed_role_verifier: claimed.managed_role_verifier,
            role_pending: claimed.role_pending,
            next: KeptPassword::read(claimed.next_password_sealed, claimed.next_verifier),
            hands_over: claimed.hands_over,
            reconfigure: claimed.reconfigure.as_deref().and_then(Reconfigure::parse),
            is_unproven: claimed.is_unproven,
            taken_back: claimed.taken_back,
        }))
    }

    /// Records that the server of a branch has the parameters of this
    /// generation, or will have them when it is started. May be lost in a
    /// crash: then it is configured again.
    pub async fn branch_configured(&self, id: &BranchId, token: ClaimToken, generation: i64) -> Result<()> {
        sqlx::query(
            "update branches set reconfigure = null
             where id = $1 and claim_token = $2 and generation = $3 and reconfigure is not null",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(generation)
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }

    /// Reports what was observed; false when a newer claim exists, or a branch is
    /// not ready because its server has to be told a password first, or to be
    /// restarted, or because another volume is to take its place.
    pub async fn branch_report(
        &self,
        id: &BranchId,
        token: ClaimToken,
        state: BranchState,
        message: &str,
    ) -> Result<bool> {
        // Servers of tenants have a say in it, and every list of branches has it.
        let message: String = message.chars().take(MESSAGE_MAX).collect();
        let done = sqlx::query(
            "update branches set state = $3, message = $4,
                 failed_since = case when $3 = 'failed' then coalesce(failed_since, now()) end
             where id = $1 and claim_token = $2 and (state, message) is distinct from ($3, $4)
               and ($3 = 'deleted' or goal <> 'deleted' or state <> 'deleted')
               and ($3 <> 'ready' or not (role_pending or coalesce(reconfigure = 'restart', false)))
               and ($3 not in ('ready', 'hibernated') or replacement_id is null)",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(state.as_str())
        .bind(message)
        .execute(&self.relaxed)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Branches of a host on which something may be left to do, oldest first;
    /// with `all`, every one that is not settled as deleted.
    pub async fn branch_unsettled(&self, host: &HostId, all: bool) -> Result<Vec<BranchId>> {
        let ids: Vec<String> = sqlx::query_scalar(
            "select b.id from branches b join volumes v on v.id = b.volume_id
             where v.host_id = $1 and not (b.goal = 'deleted' and b.state = 'deleted')
               and ($2 or b.next_verifier is not null or b.reconfigure is not null or b.replacement_id is not null
                    or (not (b.goal = 'running' and b.state = 'ready')
                           and not (b.goal in ('hibernated', 'trashed') and b.state = 'hibernated')))
             order by b.created_at, b.id",
        )
        .bind(host.as_str())
        .bind(all)
        .fetch_all(&self.pool)
        .await?;
        Ok(ids.into_iter().map(BranchId::from_trusted).collect())
    }

    /// How many branches there are in each state, deleted ones left out. Reads
    /// every branch; asked a few times a minute.
    pub async fn branch_count_by_state(&self) -> Result<Vec<(BranchState, u64)>> {
        let query =
            sqlx::query("select state, count(*) from branches where deleted_at is null group by state");
        let rows: Vec<(String, i64)> = self.reads.all(query).await?;
        let counted = rows.into_iter().map(|(state, count)| {
            let state = BranchState::parse(&state)
                .ok_or(StoreError::UnknownValue { what: "state of a branch", value: state })?;
            Ok((state, count.unsigned_abs()))
        });
        counted.collect()
    }

    /// Forgets branches and projects whose removal is done for over an hour;
    /// until then the rates of creation still count them.
    pub async fn branch_purge(&self) -> Result<()> {
        sqlx::query(
            "delete from branches where goal = 'deleted' and state = 'deleted'
               and deleted_at < now() - interval '1 hour'",
        )
        .execute(&self.relaxed)
        .await?;
        sqlx::query(
            "delete from projects p where deleted_at < now() - interval '1 hour'
               and not exists (select from branches b where b.project_id = p.id)",
        )
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }
}
