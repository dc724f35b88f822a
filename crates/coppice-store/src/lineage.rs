//! Who is whose child.

use coppice_core::BranchId;

use crate::{Result, Store, Tx};

impl Store {
    /// Makes a branch a base branch: of its tree no more, also when its parent
    /// comes back from the trash. False when it is one.
    pub async fn branch_detach_in_tx(&self, tx: &mut Tx, id: &BranchId) -> Result<bool> {
        let done = sqlx::query(
            "update branches set parent_id = null, former_parent_id = null, updated_at = now()
             where id = $1 and deleted_at is null and coalesce(parent_id, former_parent_id) is not null",
        )
        .bind(id.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Puts a branch in the place of its parent, which becomes its child.
    pub async fn branch_promote_in_tx(&self, tx: &mut Tx, id: &BranchId, parent: &BranchId) -> Result<()> {
        sqlx::query(
            "update branches b set parent_id = case when b.id = $1 then p.parent_id else $1 end,
                 former_parent_id = null, updated_at = now()
             from (select parent_id from branches where id = $2) p where b.id in ($1, $2)",
        )
        .bind(id.as_str())
        .bind(parent.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// How many levels there are from a branch down, without what is below one of
    /// its children.
    pub async fn branch_height_in_tx(&self, tx: &mut Tx, id: &BranchId, without: &BranchId) -> Result<u32> {
        let levels: i32 = sqlx::query_scalar(
            "with recursive below as (
                 select id, 1 as level from branches where id = $1
                 union all select b.id, level + 1 from branches b join below on b.parent_id = below.id
                 where b.id <> $2)
             select max(level) from below",
        )
        .bind(id.as_str())
        .bind(without.as_str())
        .fetch_one(&mut **tx)
        .await?;
        Ok(levels.unsigned_abs())
    }
}
