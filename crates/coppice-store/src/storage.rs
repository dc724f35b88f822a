//! How much storage branches may take, and how full it is.

use coppice_core::BranchId;
use coppice_core::storage::Fullness;

use crate::{Result, Store};

impl Store {
    /// Records how full the storage of a branch is, and that its server has to
    /// know when it becomes read-only, or is so no longer; for letting nobody in, or
    /// somebody again, it is started anew. False when that was known.
    pub async fn branch_note_fullness(&self, id: &BranchId, fullness: Fullness) -> Result<bool> {
        let done = sqlx::query(
            "update branches set fullness = $2,
                 generation = generation + (($2 in ('full', 'shut')) or fullness in ('full', 'shut'))::int,
                 reconfigure = case when 'shut' in ($2, fullness) then 'restart'
                                    when 'full' in ($2, fullness) then coalesce(reconfigure, 'reload')
                                    else reconfigure end,
                 state = case when state = 'ready' and 'shut' in ($2, fullness) then 'updating' else state end
             where id = $1 and fullness <> $2 and deleted_at is null",
        )
        .bind(id.as_str())
        .bind(fullness.as_str())
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}
