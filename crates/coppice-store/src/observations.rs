//! What servers counted, remembered for while they sleep.

use coppice_core::BranchId;
use coppice_core::parameter::Observed;
use sqlx::types::Json;

use crate::{Result, Store};

/// A remembered observation is this old before it is written anew.
const REFRESH_SECONDS: f64 = 60.0;

impl Store {
    /// What the server of a branch counted when it was last asked.
    pub async fn branch_observed(&self, id: &BranchId) -> Result<Option<Observed>> {
        let observed: Option<Json<Observed>> =
            sqlx::query_scalar("select observed from branches where id = $1")
                .bind(id.as_str())
                .fetch_optional(&self.pool)
                .await?
                .flatten();
        Ok(observed.map(|json| json.0))
    }

    /// Remembers what the server of a branch counted, unless that was done
    /// within a minute. `is_last` is for one that goes to sleep: nothing comes
    /// after it. May be lost in a crash.
    pub async fn branch_note_observed(
        &self,
        id: &BranchId,
        observed: &Observed,
        is_last: bool,
    ) -> Result<()> {
        sqlx::query(
            "update branches set observed = $2, observed_at = now()
             where id = $1
               and ($3 or observed_at is null or observed_at < now() - make_interval(secs => $4))",
        )
        .bind(id.as_str())
        .bind(Json(observed))
        .bind(is_last)
        .bind(REFRESH_SECONDS)
        .execute(&self.relaxed)
        .await?;
        Ok(())
    }
}
