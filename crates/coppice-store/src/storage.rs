//! How much storage branches may take, and how full it is.

use coppice_core::BranchId;
use coppice_core::storage::Fullness;

use crate::{Result, Store, Tx};

impl Store {
    /// Records how full the storage of a branch is, and that its server has to
    /// know when it becomes read-only, or is so no longer. False when that was
    /// known.
    pub async fn branch_note_fullness(&self, id: &BranchId, fullness: Fullness) -> Result<bool> {
        let done = sqlx::query(
            "update branches set fullness = $2,
                 generation = generation + (($2 in ('full', 'shut')) or fullness in ('full', 'shut'))::int,
                 reconfigure = case when $2 in ('full', 'shut') or fullness in ('full', 'shut')
                                    then coalesce(reconfigure, 'reload') else reconfigure end
             where id = $1 and fullness <> $2 and deleted_at is null",
        )
        .bind(id.as_str())
        .bind(fullness.as_str())
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Gives a branch that is at rest more storage; false when it is not.
    pub async fn branch_set_storage_in_tx(&self, tx: &mut Tx, id: &BranchId, gib: u32) -> Result<bool> {
        let done = sqlx::query(
            "update branches set storage_gib = $2, generation = generation + 1, updated_at = now(),
                 reconfigure = case when state = 'hibernated' then null
                                    else coalesce(reconfigure, 'reload') end
             where id = $1 and deleted_at is null
               and ((goal, state) in (('running', 'ready'), ('running', 'updating'), ('hibernated', 'hibernated'))
                    or state = 'failed')",
        )
        .bind(id.as_str())
        .bind(i32::try_from(gib).unwrap_or(i32::MAX))
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}
