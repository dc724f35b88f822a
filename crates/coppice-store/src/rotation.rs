//! Passwords of managed roles and their rotation.
//!
//! `password_sealed` and `managed_role_verifier` are what the owner is shown.
//! While a branch is up, a rotation first notes what they are going to be in
//! `next_…`, then the server is told, then they are taken over. While it is
//! not, they are replaced at once, and `role_pending` says that the server has
//! to be told before anybody is let in: no branch becomes ready with it.

use coppice_core::BranchId;
use coppice_core::branch::{BranchState, Goal};
use coppice_core::claim::ClaimToken;
use sqlx::FromRow;

use crate::{Result, Store, StoreError, Tx};

/// A password as it is kept: encrypted, and as what a server gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPassword {
    /// Encrypted.
    pub sealed: Vec<u8>,
    /// A SCRAM-SHA-256 verifier.
    pub verifier: String,
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
    /// Verifiers of all roles, encrypted, kept for the branch's sleep, and the
    /// checkpoint they are true for.
    pub kept_roles: Option<(Vec<u8>, String)>,
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
    verifiers_sealed: Option<Vec<u8>>,
    verifiers_checkpoint: Option<String>,
}

impl TryFrom<Row> for ManagedRole {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self> {
        let goal = Goal::parse(&row.goal)
            .ok_or_else(|| StoreError::UnknownValue { what: "goal", value: row.goal })?;
        let state = BranchState::parse(&row.state)
            .ok_or_else(|| StoreError::UnknownValue { what: "state", value: row.state })?;
        let next = row.next_password_sealed.zip(row.next_verifier);
        Ok(Self {
            goal,
            state,
            password: KeptPassword { sealed: row.password_sealed, verifier: row.managed_role_verifier },
            next: next.map(|(sealed, verifier)| KeptPassword { sealed, verifier }),
            is_pending: row.role_pending,
            kept_roles: row.verifiers_sealed.zip(row.verifiers_checkpoint),
        })
    }
}

const SELECT: &str = "select goal, state, password_sealed, managed_role_verifier, next_password_sealed,
        next_verifier, role_pending, verifiers_sealed, verifiers_checkpoint
    from branches where id = $1 and deleted_at is null";

impl Store {
    /// What is known of the managed role of a branch.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn managed_role(&self, id: &BranchId) -> Result<Option<ManagedRole>> {
        let row: Option<Row> = sqlx::query_as(SELECT).bind(id.as_str()).fetch_optional(&self.pool).await?;
        row.map(ManagedRole::try_from).transpose()
    }

    /// As [`Store::managed_role`]; until the transaction ends, nothing of it
    /// changes, and neither does what the branch is doing.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn managed_role_lock_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<Option<ManagedRole>> {
        let sql = sqlx::AssertSqlSafe(format!("{SELECT} for update"));
        let row: Option<Row> = sqlx::query_as(sql).bind(id.as_str()).fetch_optional(&mut **tx).await?;
        row.map(ManagedRole::try_from).transpose()
    }

    /// Begins a rotation on a branch that is up. Whoever works on the branch,
    /// in any process, hears of it.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn rotation_begin_in_tx(&self, tx: &mut Tx, id: &BranchId, next: &KeptPassword) -> Result<()> {
        sqlx::query(
            "with begun as (
                 update branches set next_password_sealed = $2, next_verifier = $3
                 where id = $1 and next_verifier is null returning id)
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
    /// was told. `kept_roles` replaces what authenticates its clients until
    /// then, if anything does.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn rotation_store_in_tx(
        &self,
        tx: &mut Tx,
        id: &BranchId,
        password: &KeptPassword,
        kept_roles: Option<&[u8]>,
    ) -> Result<()> {
        sqlx::query(
            "update branches set password_sealed = $2, managed_role_verifier = $3, role_pending = true,
                 next_password_sealed = null, next_verifier = null,
                 verifiers_sealed = case when verifiers_sealed is null then null else $4 end
             where id = $1",
        )
        .bind(id.as_str())
        .bind(&password.sealed)
        .bind(&password.verifier)
        .bind(kept_roles)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Ends a rotation: the server of the branch has this verifier. False when
    /// a newer claim exists, or another rotation.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn rotation_finish(&self, id: &BranchId, token: ClaimToken, verifier: &str) -> Result<bool> {
        let done = sqlx::query(
            "update branches set password_sealed = next_password_sealed, managed_role_verifier = next_verifier,
                 next_password_sealed = null, next_verifier = null
             where id = $1 and claim_token = $2 and next_verifier = $3",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(verifier)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Records that the server of a branch was told its password. False when a
    /// newer claim exists, or the password was replaced meanwhile.
    ///
    /// # Errors
    /// When the metastore can't be reached.
    pub async fn managed_role_told(&self, id: &BranchId, token: ClaimToken, verifier: &str) -> Result<bool> {
        let done = sqlx::query(
            "update branches set role_pending = false
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
