//! Verifiers of a sleeping branch's roles, a row each.
//!
//! They are kept when the branch is put to sleep, and are true as long as
//! `branches.verifiers_checkpoint` is that of its data. Without a checkpoint
//! nothing is kept.

use coppice_core::BranchId;
use coppice_core::claim::ClaimToken;

use crate::{Result, Store, Tx};

/// A role and its verifier, encrypted.
pub type SealedRole = (String, Vec<u8>);

impl Store {
    /// Keeps, or forgets, what authenticates the clients of a sleeping branch,
    /// and the checkpoint it is true for; false when a newer claim exists.
    pub async fn branch_keep_verifiers_in_tx(
        &self,
        tx: &mut Tx,
        id: &BranchId,
        token: ClaimToken,
        kept: Option<(&[SealedRole], &str)>,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update branches set verifiers_sealed = null, verifiers_checkpoint = $3
             where id = $1 and claim_token = $2",
        )
        .bind(id.as_str())
        .bind(token.0)
        .bind(kept.map(|(_, checkpoint)| checkpoint))
        .execute(&mut **tx)
        .await?;
        if done.rows_affected() != 1 {
            return Ok(false);
        }
        self.verifiers_replace_in_tx(tx, id, kept.map_or(&[], |(roles, _)| roles)).await?;
        Ok(true)
    }

    /// Asks as an engine asks a branch's server for a role's verifier, and as
    /// long, of the metastore's own server.
    pub async fn verifier_of_nobody(&self) -> Result<()> {
        let query = "select oid from pg_catalog.pg_roles where rolname = $1 and rolname !~ '^pg_'";
        self.reads.row(sqlx::query(query).bind("nobody")).await.map(drop)
    }

    async fn verifiers_replace_in_tx(&self, tx: &mut Tx, id: &BranchId, roles: &[SealedRole]) -> Result<()> {
        let (names, sealed): (Vec<_>, Vec<_>) =
            roles.iter().map(|(role, sealed)| (role.as_str(), sealed.as_slice())).unzip();
        sqlx::query("delete from branch_verifiers where branch_id = $1")
            .bind(id.as_str())
            .execute(&mut **tx)
            .await?;
        sqlx::query(
            "insert into branch_verifiers (branch_id, role, verifier_sealed)
             select $1, role, sealed from unnest($2::text[], $3::bytea[]) kept (role, sealed)",
        )
        .bind(id.as_str())
        .bind(names)
        .bind(sealed)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// A branch whose verifiers were kept all together, as they were before
    /// each had a row, and what was kept; none when there is no such branch.
    pub async fn verifiers_together(&self) -> Result<Option<(BranchId, Vec<u8>)>> {
        let row: Option<(String, Vec<u8>)> = sqlx::query_as(
            "select id, verifiers_sealed from branches where verifiers_sealed is not null limit 1",
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|(id, sealed)| (BranchId::from_trusted(id), sealed)))
    }

    /// Gives each of the verifiers that were kept together a row; none forgets
    /// what was kept.
    pub async fn verifiers_spread(&self, id: &BranchId, roles: Option<&[SealedRole]>) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query(
            "update branches set verifiers_sealed = null,
                 verifiers_checkpoint = case when $2 then verifiers_checkpoint end
             where id = $1",
        )
        .bind(id.as_str())
        .bind(roles.is_some())
        .execute(&mut *tx)
        .await?;
        self.verifiers_replace_in_tx(&mut tx, id, roles.unwrap_or_default()).await?;
        tx.commit().await?;
        Ok(())
    }
}
