//! Branches that sleep and wake, and what a connection to one needs to know.

use chrono::{DateTime, Utc};
use coppice_core::branch::Branch;
use coppice_core::budget::UsedUp;
use coppice_core::organization::Holder;
use coppice_core::project::{AllowedRange, IpFiltering};
use coppice_core::{BranchId, HostId, InstanceId};
use sqlx::types::Json;
use sqlx::{FromRow, Row as _};

use crate::branches::{BranchRow, COLUMNS};
use crate::budgets::{USED_UP, used_up};
use crate::{Result, Store, Tx};

/// See [`Store::branch_find_for_connection`].
#[derive(Clone, Debug)]
pub struct ConnectionTarget {
    /// The branch.
    pub branch: Branch,
    /// The branch that it is a copy of, at whatever distance; itself when it is no copy.
    pub root: BranchId,
    /// Replicas that accept connections.
    pub replicas: Vec<InstanceId>,
    /// Who answers for it.
    pub holder: Holder,
    /// Who may connect.
    pub ip_filtering: IpFiltering,
    /// Whether its primary accepts connections while the branch is made something else.
    pub serves_meanwhile: bool,
    /// Whether its server may still know what its former owner gave to roles.
    pub hands_over: bool,
    /// Whether its organization is disabled, so that it may not be woken.
    pub is_disabled: bool,
    /// The budget that keeps it asleep, if it sleeps.
    pub used_up: Option<UsedUp>,
    /// What was kept of the client's role when it was put to sleep; none when
    /// nothing was kept of any role.
    pub kept: Option<KeptVerifier>,
}

/// What was kept of one role, or that it has nothing to sign in with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptVerifier {
    /// The checkpoint that this is true for.
    pub checkpoint: String,
    /// Its verifier, encrypted; none when there is no such role, or it can't
    /// sign in while the branch sleeps.
    pub sealed: Option<Vec<u8>>,
}

/// See [`Store::branch_idle_candidates`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleCandidate {
    /// The branch.
    pub id: BranchId,
    /// How long nobody may use it.
    pub inactivity_minutes: u32,
    /// From when on it counts as idle, if nobody has used it since.
    pub idle_since: DateTime<Utc>,
}

impl Store {
    /// What the connection of a client that signs in as `role` needs to know of a
    /// branch; none when there is no such branch.
    pub async fn branch_find_for_connection(
        &self,
        id: &BranchId,
        role: &str,
    ) -> Result<Option<ConnectionTarget>> {
        let sql = format!(
            "select {COLUMNS}, coalesce(b.root_id, b.id) as root, p.ip_filtering_enabled, p.ip_ranges,
                    b.verifiers_checkpoint, k.verifier_sealed,
                    array(select i.id from instances i where i.branch_id = b.id and i.is_ready and i.role <> 'primary'
                          order by i.ordinal) as replica_ids,
                    b.replacement_id is not null and b.goal = 'running' and not b.role_pending
                        and b.reconfigure is distinct from 'restart'
                        and exists (select from instances i join volumes v on v.id = b.volume_id
                                    where i.branch_id = b.id and i.role = 'primary' and i.is_ready
                                      and v.state = 'admitted') as serves_meanwhile,
                    o.disabled_by_admin or o.billing_status <> 'ok' as is_disabled, b.hands_over,
                    coalesce(u.holder, o.id) as holder,
                    {USED_UP}
             from branches b join projects p on p.id = b.project_id
             join organizations o on o.id = p.organization_id
             left join members m on m.organization_id = o.id and m.role = 'owner'
             left join users u on u.id = m.user_id
             left join budgets g on b.goal = 'hibernated'
                 and g.subject_id = exhausted_budget(p.organization_id, p.id, b.id, b.made_with)
             left join branch_verifiers k on k.branch_id = b.id and k.role = $2
             where b.id = $1 and b.deleted_at is null"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(id.as_str()).bind(role);
        let row = self.reads.row(query).await?;
        row.map(|row| {
            let ranges: Json<Vec<AllowedRange>> = row.try_get("ip_ranges")?;
            let sealed: Option<Vec<u8>> = row.try_get("verifier_sealed")?;
            let checkpoint: Option<String> = row.try_get("verifiers_checkpoint")?;
            Ok(ConnectionTarget {
                branch: Branch::try_from(BranchRow::from_row(&row)?)?,
                root: BranchId::from_trusted(row.try_get::<String, _>("root")?),
                replicas: row
                    .try_get::<Vec<String>, _>("replica_ids")?
                    .into_iter()
                    .map(InstanceId::from_trusted)
                    .collect(),
                holder: Holder::from_trusted(row.try_get::<String, _>("holder")?),
                ip_filtering: IpFiltering { enabled: row.try_get("ip_filtering_enabled")?, ranges: ranges.0 },
                serves_meanwhile: row.try_get("serves_meanwhile")?,
                hands_over: row.try_get("hands_over")?,
                is_disabled: row.try_get("is_disabled")?,
                used_up: used_up(&row)?,
                kept: checkpoint.map(|checkpoint| KeptVerifier { checkpoint, sealed }),
            })
        })
        .transpose()
    }

    /// Puts a branch to sleep, unless it is, or is on the way there; false then.
    pub async fn branch_hibernate_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<bool> {
        let asleep: i64 = sqlx::query_scalar(
            "with asleep as (
                 update branches set goal = 'hibernated', generation = generation + 1
                 where id = $1 and goal = 'running' and deleted_at is null returning id),
             ended as (
                 update awake_periods set ended_at = now(), end_cause = 'request'
                 where branch_id in (select id from asleep) and ended_at is null)
             select count(*) from asleep",
        )
        .bind(id.as_str())
        .fetch_one(&mut **tx)
        .await?;
        Ok(asleep == 1)
    }

    /// As [`Store::branch_hibernate_in_tx`], if scale-to-zero still says so and
    /// nothing has happened since `idle_since`.
    pub async fn branch_hibernate_idle(&self, candidate: &IdleCandidate) -> Result<bool> {
        let asleep: i64 = sqlx::query_scalar(
            "with asleep as (
                 update branches set goal = 'hibernated', generation = generation + 1
                 where id = $1 and goal = 'running' and state = 'ready' and deleted_at is null
                   and scale_to_zero and inactivity_minutes = $2 and idle_since = $3 returning id),
             ended as (
                 update awake_periods set ended_at = now(), end_cause = 'idle'
                 where branch_id in (select id from asleep) and ended_at is null)
             select count(*) from asleep",
        )
        .bind(candidate.id.as_str())
        .bind(candidate.inactivity_minutes as i32)
        .bind(candidate.idle_since)
        .fetch_one(&self.pool)
        .await?;
        Ok(asleep == 1)
    }

    /// Wakes a branch, unless it is awake or on the way there; false then.
    /// `by` says who or what does it, for people. The transaction must have
    /// locked its organization, and found it enabled.
    pub async fn branch_wake_in_tx(&self, tx: &mut Tx, id: &BranchId, by: &str) -> Result<bool> {
        let done = sqlx::query(
            "with woken as (
                 update branches set goal = 'running', resumes_when_allowed = false,
                     generation = generation + 1, idle_since = now()
                 where id = $1 and goal = 'hibernated' and deleted_at is null returning id)
             insert into awake_periods (branch_id, cause, woken_by) select id, 'request', $2 from woken",
        )
        .bind(id.as_str())
        .bind(by)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Wakes a branch for a client that connects, if it may be: scale-to-zero is
    /// on and its organization enabled. The organization's row is locked before
    /// the branch's, so that one that is being disabled finds the branch awake,
    /// or keeps it asleep. Returns whether it may, also when it was on the way
    /// already.
    pub async fn branch_wake_for_client(&self, id: &BranchId, by: &str) -> Result<bool> {
        let done = sqlx::query(
            "with woken as (
                 update branches b set goal = 'running', resumes_when_allowed = false,
                     generation = generation + 1, idle_since = now()
                 from (select s.id from branches s join projects p on p.id = s.project_id
                       join organizations o on o.id = p.organization_id
                       where s.id = $1 and s.goal = 'hibernated' and s.scale_to_zero
                         and not o.disabled_by_admin and o.billing_status = 'ok'
                       for share of o) allowed
                 where b.id = allowed.id and b.goal = 'hibernated' and b.deleted_at is null and b.scale_to_zero
                 returning b.id)
             insert into awake_periods (branch_id, cause, woken_by) select id, 'connection', $2 from woken",
        )
        .bind(id.as_str())
        .bind(by)
        // Lost in a crash it costs a client another wake, and nobody waits for the disk.
        .execute(&self.relaxed)
        .await?;
        if done.rows_affected() == 1 {
            return Ok(true);
        }
        let goal: Option<String> =
            sqlx::query_scalar("select goal from branches where id = $1 and deleted_at is null")
                .bind(id.as_str())
                .fetch_optional(&self.pool)
                .await?;
        Ok(goal.as_deref() == Some("running"))
    }

    /// Branches of a host that scale-to-zero may put to sleep when nobody uses
    /// them. A time that has not come yet, from before the clock was set back,
    /// counts as now. Served by index `branches_sleepy`.
    pub async fn branch_idle_candidates(&self, host: &HostId) -> Result<Vec<IdleCandidate>> {
        sqlx::query(
            "update branches set idle_since = now()
             where goal = 'running' and scale_to_zero and idle_since > now() + interval '1 minute'",
        )
        .execute(&self.relaxed)
        .await?;
        let rows: Vec<(String, i32, DateTime<Utc>)> = sqlx::query_as(
            "select b.id, b.inactivity_minutes, b.idle_since from branches b
             join volumes v on v.id = b.volume_id and v.host_id = $1
             where b.goal = 'running' and b.scale_to_zero and b.state = 'ready'
               and b.idle_since < now() - make_interval(mins => b.inactivity_minutes)
             order by b.idle_since, b.id",
        )
        .bind(host.as_str())
        .fetch_all(&self.pool)
        .await?;
        let candidate = |(id, minutes, idle_since): (String, i32, _)| IdleCandidate {
            id: BranchId::from_trusted(id),
            inactivity_minutes: minutes.unsigned_abs(),
            idle_since,
        };
        Ok(rows.into_iter().map(candidate).collect())
    }
}
