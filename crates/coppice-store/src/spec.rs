//! What branches are made of, and which of it a start of the server has proven.

use coppice_core::BranchId;
use coppice_core::branch::{Branch, BranchSpec, BranchState, Reconfigure};
use coppice_core::claim::ClaimToken;
use sqlx::types::Json;

use crate::{Result, Store, Tx};

impl Store {
    /// Changes what a branch is made of that is at rest; false when it is not, or
    /// was upgraded meanwhile.
    /// `how` says what a server that is up needs to take it, and `meanwhile` what
    /// the branch is while that is a restart. What it was made of is kept until a
    /// server has started with the new.
    pub async fn branch_set_spec_in_tx(
        &self,
        tx: &mut Tx,
        branch: &Branch,
        spec: &BranchSpec,
        how: Reconfigure,
        meanwhile: BranchState,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update branches set image_minor = $8, instance_type = $2, replicas = $10, storage_gib = $3, parameters = $4,
                 preload_libraries = $5, generation = generation + 1, updated_at = now(), taken_back = '',
                 proven_spec = case when state = 'failed' or (state = 'ready' and $6 = 'reload') then proven_spec
                                    else coalesce(proven_spec, $7) end,
                 reconfigure = case when state = 'hibernated' then null
                                    when reconfigure = 'restart' or state = 'failed' then 'restart'
                                    else $6 end,
                 state = case when state = 'ready' and $6 = 'restart' then $9 else state end
             where id = $1 and deleted_at is null and image_major = $11
               and ((goal, state) in (('running', 'ready'), ('hibernated', 'hibernated')) or state = 'failed')",
        )
        .bind(branch.id.as_str())
        .bind(&spec.instance_type)
        .bind(spec.storage_gib as i32)
        .bind(Json(&spec.parameters))
        .bind(&spec.preload_libraries)
        .bind(how.as_str())
        .bind(Json(&branch.spec))
        .bind(spec.version.minor as i32)
        .bind(meanwhile.as_str())
        .bind(spec.replicas as i32)
        .bind(branch.spec.version.major as i32)
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Records that a server has started with what a branch is made of by this
    /// generation. May be lost in a crash: then the next look says it again.
    pub async fn branch_spec_proven(&self, id: &BranchId, token: ClaimToken, generation: i64) -> Result<()> {
        sqlx::query(
            "update branches set proven_spec = null
             where id = $1 and claim_token = $2 and generation = $3 and proven_spec is not null",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(generation)
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }

    /// Makes a branch again of what its server last started with, all but its
    /// storage, and says why; false when nothing else is known, or a newer claim
    /// exists.
    pub async fn branch_take_back(&self, id: &BranchId, token: ClaimToken, why: &str) -> Result<bool> {
        let done = sqlx::query(
            "update branches set image_minor = (proven_spec -> 'version' ->> 'minor')::integer,
                 instance_type = proven_spec ->> 'instance_type', parameters = proven_spec -> 'parameters',
                 preload_libraries = array(select jsonb_array_elements_text(proven_spec -> 'preload_libraries')),
                 generation = generation + 1, reconfigure = null, proven_spec = null, taken_back = $3
             where id = $1 and claim_token = $2 and proven_spec is not null and goal = 'running'",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(why)
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}
