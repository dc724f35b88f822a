//! Jobs at GitHub that get keys for the branches of their pull requests.

use chrono::{DateTime, Utc};
use coppice_core::{ApiKeyId, BranchId, OrganizationId};

use crate::{PullKey, Result, Store, Tx};

impl Store {
    /// The branch that was made for a pull request. Where there is none, and no
    /// look is planned, one is asked for, as a delivery would.
    pub async fn github_preview(&self, key: &PullKey) -> Result<Option<BranchId>> {
        let branch: Option<String> = sqlx::query_scalar(
            "select b.id from github_pulls g join branches b on b.id = g.branch_id and b.deleted_at is null
             where g.mapping_id = $1 and g.number = $2",
        )
        .bind(key.mapping.as_str())
        .bind(key.number)
        .fetch_optional(&self.pool)
        .await?;
        if branch.is_none() {
            sqlx::query(
                "insert into github_pulls as g (mapping_id, number)
                 select id, $2 from github_repositories where id = $1
                 on conflict (mapping_id, number) do update set asked = g.asked + 1, due_at = now()
                     where g.due_at is null",
            )
            .bind(key.mapping.as_str())
            .bind(key.number)
            .execute(&self.pool)
            .await?;
        }
        Ok(branch.map(BranchId::from_trusted))
    }

    /// How many keys jobs hold in an organization, which the transaction has locked, and how
    /// many of those are for one branch; those that have ended are forgotten.
    pub async fn github_job_keys_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        branch: &BranchId,
    ) -> Result<(u32, u32)> {
        sqlx::query(
            "delete from api_keys k where k.organization_id = $1 and k.expiry <= now()
             and exists (select from github_jobs where key_id = k.id)",
        )
        .bind(organization.as_str())
        .execute(&mut **tx)
        .await?;
        let (all, of_branch): (i64, i64) = sqlx::query_as(
            "select count(*), count(*) filter (where k.branches = array[$2])
             from api_keys k where k.organization_id = $1
             and exists (select from github_jobs where key_id = k.id)",
        )
        .bind(organization.as_str())
        .bind(branch.as_str())
        .fetch_one(&mut **tx)
        .await?;
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Ok((count(all), count(of_branch)))
    }

    /// Notes for which key a token was taken; false when it was taken before.
    pub async fn github_job_insert_in_tx(
        &self,
        tx: &mut Tx,
        (token, ends_at): (&str, DateTime<Utc>),
        key: &ApiKeyId,
    ) -> Result<bool> {
        let query = sqlx::query(
            "insert into github_jobs (token, ends_at, key_id) values ($1, $2, $3) on conflict do nothing",
        );
        let inserted = query.bind(token).bind(ends_at).bind(key.as_str()).execute(&mut **tx).await?;
        Ok(inserted.rows_affected() == 1)
    }

    /// Forgets keys of jobs that have ended, and tokens that ended an hour ago.
    pub async fn github_job_purge(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("delete from api_keys where expiry <= now() and id in (select key_id from github_jobs)")
            .execute(&mut *tx)
            .await?;
        sqlx::query("delete from github_jobs where key_id is null and ends_at < now() - interval '1 hour'")
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }
}
