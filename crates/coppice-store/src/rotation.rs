//! Passwords of managed roles and their rotation.
//!
//! `password_sealed` and `managed_role_verifier` are what the owner is shown.
//! While a branch is up, a rotation first notes what they are going to be in
//! `next_…`, then the server is told, then they are taken over. A rotation that
//! is noted meanwhile takes the place of the one before, whose password the
//! server may have by then. While a branch is not up, they are replaced at once,
//! and `role_pending` says that the server has to be told before anybody is let
//! in: no branch becomes ready with it.

use coppice_core::BranchId;
use coppice_core::branch::{BranchState, Goal, MANAGED_ROLE};
use coppice_core::claim::ClaimToken;
use sqlx::FromRow;

use crate::sleep::KeptVerifier;
use crate::{Result, Store, StoreError, Tx};

/// A password as it is kept: encrypted, and as what a server gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPassword {
    /// Encrypted.
    pub sealed: Vec<u8>,
    /// A SCRAM-SHA-256 verifier.
    pub verifier: String,
}

impl KeptPassword {
    /// In two columns that may be empty.
    pub(crate) fn read(sealed: Option<Vec<u8>>, verifier: Option<String>) -> Option<Self> {
        sealed.zip(verifier).map(|(sealed, verifier)| Self { sealed, verifier })
    }
}

/// Everything that is known of the managed role of a branch.
#[derive(Clone, Debug)]
pub struct ManagedRole {
    /// What its owner wants.
    pub goal: Goal,
    /// What the branch is doing.
    pub state: BranchState,
    /// What the owner is shown.
    pub password: KeptPassword,
    /// What it is going to be, while a rotation goes on.
    pub next: Option<KeptPassword>,
    /// Whether the server has to be told before it lets anybody in.
    pub is_pending: bool,
    /// What was kept of it for the branch's sleep; none when nothing was kept of
    /// any role.
    pub kept: Option<KeptVerifier>,
}

#[derive(FromRow)]
struct Row {
    goal: String,
    state: String,
    password_sealed: Vec<u8>,
    managed_role_verifier: String,
    next_password_sealed: Option<Vec<u8>>,
    next_verifier: Option<String>,
    role_pending: bool,
    verifier_sealed: Option<Vec<u8>>,
    verifiers_checkpoint: Option<String>,
}

impl TryFrom<Row> for ManagedRole {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self> {
        let goal = Goal::parse(&row.goal)
            .ok_or_else(|| StoreError::UnknownValue { what: "goal", value: row.goal })?;
        let state = BranchState::parse(&row.state)
            .ok_or_else(|| StoreError::UnknownValue { what: "state", value: row.state })?;
        Ok(Self {
            goal,
            state,
            password: KeptPassword { sealed: row.password_sealed, verifier: row.managed_role_verifier },
            next: KeptPassword::read(row.next_password_sealed, row.next_verifier),
            is_pending: row.role_pending,
            kept: row
                .verifiers_checkpoint
                .map(|checkpoint| KeptVerifier { checkpoint, sealed: row.verifier_sealed }),
        })
    }
}

const SELECT: &str = "select goal, state, password_sealed, managed_role_verifier, next_password_sealed,
        next_verifier, role_pending, verifiers_checkpoint,
        (select k.verifier_sealed from branch_verifiers k where k.branch_id = branches.id and k.role = $2)
    from branches where id = $1 and goal <> 'deleted'";

impl Store {
    /// What is known of the managed role of a branch.
    pub async fn managed_role(&self, id: &BranchId) -> Result<Option<ManagedRole>> {
        let row: Option<Row> =
            sqlx::query_as(SELECT).bind(id.as_str()).bind(MANAGED_ROLE).fetch_optional(&self.pool).await?;
        row.map(ManagedRole::try_from).transpose()
    }

    /// As [`Store::managed_role`]; until the transaction ends, nothing of it
    /// changes, and neither does what the branch is doing.
    pub async fn managed_role_lock_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<Option<ManagedRole>> {
        let sql = sqlx::AssertSqlSafe(format!("{SELECT} for update"));
        let row: Option<Row> =
            sqlx::query_as(sql).bind(id.as_str()).bind(MANAGED_ROLE).fetch_optional(&mut **tx).await?;
        row.map(ManagedRole::try_from).transpose()
    }

    /// Has the next rotation of a branch keep out whoever had it.
    pub async fn hand_over_begin_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<()> {
        sqlx::query(
            "with begun as (
                 update branches set hands_over = true where id = $1 returning project_id)
             update projects set hand_overs = hand_overs + 1 from begun where id = begun.project_id",
        )
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Begins a rotation on a branch that is up, in place of one that goes on.
    /// Whoever works on the branch, in any process, hears of it.
    pub async fn rotation_begin_in_tx(&self, tx: &mut Tx, id: &BranchId, next: &KeptPassword) -> Result<()> {
        sqlx::query(
            "with begun as (
                 update branches set next_password_sealed = $2, next_verifier = $3 where id = $1 returning id)
             select pg_notify('coppice_branches', id) from begun",
        )
        .bind(id.as_str())
        .bind(&next.sealed)
        .bind(&next.verifier)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Replaces the password of a branch that lets nobody in before its server
    /// was told. `sealed_verifier` replaces what was kept for its sleep, if
    /// anything was: it authenticates the role's clients until then. Whoever
    /// writes by right of a claim says so; false when a newer one exists.
    pub async fn rotation_store_in_tx(
        &self,
        tx: &mut Tx,
        id: &BranchId,
        claim: Option<ClaimToken>,
        password: &KeptPassword,
        sealed_verifier: &[u8],
    ) -> Result<bool> {
        let stored = sqlx::query_scalar(
            "with stored as (
                 update branches set password_sealed = $2, managed_role_verifier = $3, role_pending = true,
                     next_password_sealed = null, next_verifier = null
                 where id = $1 and ($6::bigint is null or claim_token = $6) returning id, verifiers_checkpoint),
             kept as (
                 insert into branch_verifiers (branch_id, role, verifier_sealed)
                 select id, $4, $5 from stored where verifiers_checkpoint is not null
                 on conflict (branch_id, role) do update set verifier_sealed = excluded.verifier_sealed)
             select exists (select from stored)",
        )
        .bind(id.as_str())
        .bind(&password.sealed)
        .bind(&password.verifier)
        .bind(MANAGED_ROLE)
        .bind(sealed_verifier)
        .bind(claim.map(|claim| claim.0))
        .fetch_one(&mut **tx)
        .await?;
        Ok(stored)
    }

    /// Records that the server of a branch has the password of a rotation, which
    /// is over then; one that was begun meanwhile goes on. False when a newer claim
    /// exists, or none goes on: the password was replaced as that of a branch that
    /// is not up.
    pub async fn rotation_finish(
        &self,
        id: &BranchId,
        token: ClaimToken,
        has: &KeptPassword,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update branches set password_sealed = $3, managed_role_verifier = $4,
                 next_password_sealed = case when next_verifier <> $4 then next_password_sealed end,
                 next_verifier = nullif(next_verifier, $4), hands_over = hands_over and next_verifier <> $4
             where id = $1 and claim_token = $2 and next_verifier is not null
               and (next_verifier = $4 or not role_pending)",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(&has.sealed)
        .bind(&has.verifier)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Records that the server of a branch was told its password. A rotation that
    /// was noted meanwhile goes on, and with it a hand-over, of which whoever told
    /// it may not know. False when a newer claim exists, or the password was
    /// replaced meanwhile.
    pub async fn managed_role_told(&self, id: &BranchId, token: ClaimToken, verifier: &str) -> Result<bool> {
        let done = sqlx::query(
            "update branches set role_pending = false, hands_over = hands_over and next_verifier is not null
             where id = $1 and claim_token = $2 and managed_role_verifier = $3",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(verifier)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}
