//! Databases on their way from one account at Vercel to another.

use chrono::{DateTime, Utc};
use coppice_core::vercel::VercelInstallation;
use coppice_core::{BranchId, ProjectId, VercelInstallationId};
use sqlx::FromRow;

use crate::{Result, Store, Tx};

/// What is to get to another account.
#[derive(Clone, Debug)]
pub struct VercelTransfer {
    /// Whose they are.
    pub from: VercelInstallationId,
    /// Which databases.
    pub projects: Vec<ProjectId>,
    /// Until when it can be accepted.
    pub expires_at: DateTime<Utc>,
    /// Who accepted it.
    pub accepted_by: Option<VercelInstallationId>,
}

#[derive(FromRow)]
struct TransferRow {
    installation_id: String,
    project_ids: Vec<String>,
    expires_at: DateTime<Utc>,
    accepted_by: Option<String>,
}

impl From<TransferRow> for VercelTransfer {
    fn from(row: TransferRow) -> Self {
        Self {
            from: VercelInstallationId::from_trusted(row.installation_id),
            projects: row.project_ids.into_iter().map(ProjectId::from_trusted).collect(),
            expires_at: row.expires_at,
            accepted_by: row.accepted_by.map(VercelInstallationId::from_trusted),
        }
    }
}

impl Store {
    /// Writes down that databases of an installation are to get to another one.
    pub async fn vercel_transfer_insert_in_tx(
        &self,
        tx: &mut Tx,
        id_hash: &str,
        from: &VercelInstallationId,
        projects: &[ProjectId],
        expires_at: DateTime<Utc>,
    ) -> Result<()> {
        let projects: Vec<_> = projects.iter().map(ProjectId::as_str).collect();
        sqlx::query(
            "insert into vercel_transfers (id_hash, installation_id, project_ids, expires_at)
             values ($1, $2, $3, $4)",
        )
        .bind(id_hash)
        .bind(from.as_str())
        .bind(projects)
        .bind(expires_at)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// What is known of a transfer. Nobody else can accept it until the transaction ends.
    pub async fn vercel_transfer_lock_in_tx(
        &self,
        tx: &mut Tx,
        id_hash: &str,
    ) -> Result<Option<VercelTransfer>> {
        let row: Option<TransferRow> = sqlx::query_as(
            "select installation_id, project_ids, expires_at, accepted_by from vercel_transfers
             where id_hash = $1 for update",
        )
        .bind(id_hash)
        .fetch_optional(&mut **tx)
        .await?;
        Ok(row.map(VercelTransfer::from))
    }

    /// Notes who accepted a transfer.
    pub async fn vercel_transfer_accept_in_tx(
        &self,
        tx: &mut Tx,
        id_hash: &str,
        by: &VercelInstallationId,
    ) -> Result<()> {
        sqlx::query("update vercel_transfers set accepted_by = $2 where id_hash = $1")
            .bind(id_hash)
            .bind(by.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Gives a database to another installation, with its project and what that has used; its branches. What leads
    /// to it from its former organization ends, and Vercel is to be told other secrets. None when it is no database
    /// of `from` any more.
    pub async fn vercel_resource_move_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        from: &VercelInstallationId,
        to: &VercelInstallation,
    ) -> Result<Option<Vec<BranchId>>> {
        // First, so that no login is made meanwhile which has no end (`vercel_login_offer`).
        let moved = sqlx::query(
            "update vercel_resources r set installation_id = $3, rotations_asked = rotations_asked + 1,
                    news_due_at = now(), news_attempts = 0, former_until = now() + interval '1 day'
             from projects p, branches b
             where r.project_id = $1 and r.installation_id = $2 and p.id = r.project_id and p.deleted_at is null
               and b.id = r.branch_id and b.deleted_at is null",
        )
        .bind(project.as_str())
        .bind(from.as_str())
        .bind(to.id.as_str())
        .execute(&mut **tx)
        .await?;
        if moved.rows_affected() == 0 {
            return Ok(None);
        }
        for statement in [
            "update projects set organization_id = $2, updated_at = now() where id = $1",
            "update usage_branches set organization_id = $2 where project_id = $1",
            "update budgets set organization_id = $2 where project_id = $1",
        ] {
            let query = sqlx::query(statement).bind(project.as_str()).bind(to.organization.as_str());
            query.execute(&mut **tx).await?;
        }
        for statement in [
            "delete from github_repositories where project_id = $1",
            "update vercel_logins l set ends_at = r.former_until from vercel_resources r
             where l.project_id = $1 and r.project_id = $1 and (l.ends_at is null or l.ends_at > r.former_until)",
        ] {
            sqlx::query(statement).bind(project.as_str()).execute(&mut **tx).await?;
        }
        // Those in the trash, too: they can be brought back.
        let sql = "select id from branches where project_id = $1 and goal <> 'deleted' order by id";
        let branches: Vec<String> =
            sqlx::query_scalar(sql).bind(project.as_str()).fetch_all(&mut **tx).await?;
        Ok(Some(branches.into_iter().map(BranchId::from_trusted).collect()))
    }

    /// Databases, each with its branch and who has it now, whose former owners may not use what they were told any more.
    pub async fn vercel_resources_of_former(
        &self,
    ) -> Result<Vec<(ProjectId, BranchId, VercelInstallationId)>> {
        let rows: Vec<(String, String, String)> = sqlx::query_as(
            "select project_id, branch_id, installation_id from vercel_resources
             where former_until <= now() order by former_until limit 100",
        )
        .fetch_all(&self.pool)
        .await?;
        let named = |(project, branch, installation)| {
            let installation = VercelInstallationId::from_trusted(installation);
            (ProjectId::from_trusted(project), BranchId::from_trusted(branch), installation)
        };
        Ok(rows.into_iter().map(named).collect())
    }

    /// Has those who had a database be done with it; `by` has it now. False where nobody had it, or they are already.
    pub async fn vercel_former_end_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        by: &VercelInstallationId,
    ) -> Result<bool> {
        let done = sqlx::query(
            "update vercel_resources set former_until = null
             where project_id = $1 and installation_id = $2 and former_until is not null",
        )
        .bind(project.as_str())
        .bind(by.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Forgets transfers that can't be accepted since some days.
    pub async fn vercel_transfer_purge(&self) -> Result<()> {
        sqlx::query("delete from vercel_transfers where expires_at < now() - interval '7 days'")
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
