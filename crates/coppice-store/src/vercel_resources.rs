//! Databases that people have by an installation on Vercel, and the logins that it was told.

use chrono::{DateTime, Utc};
use coppice_core::vercel::VercelResource;
use coppice_core::{BranchId, ProjectId, VercelInstallationId, VercelLoginId};
use serde_json::Value;
use sqlx::{AssertSqlSafe, FromRow, Row as _};

use crate::{Result, Store, Tx};

/// The logins with an id that are in force on a branch: they have not ended, and neither has what they were made for.
fn in_force(id: &str, branch: &str) -> String {
    format!(
        "from vercel_logins l
         join vercel_resources r on r.project_id = l.project_id and r.branch_id = {branch}
         join vercel_installations i on i.id = r.installation_id and i.ending_at is null
         join organizations o on o.id = i.organization_id and o.deleted_at is null
         join branches b on b.id = r.branch_id and b.deleted_at is null
         where l.id = {id} and (l.ends_at is null or l.ends_at > now())"
    )
}

/// A database to be written down; its project and its branch are there.
#[derive(Clone, Copy, Debug)]
pub struct NewVercelResource<'a> {
    /// By which it is had.
    pub installation: &'a VercelInstallationId,
    /// Its product, as Vercel knows that.
    pub product: &'a str,
    /// By what it is charged.
    pub plan: &'a str,
    /// What was chosen for it at Vercel.
    pub metadata: &'a Value,
}

/// A login to be written down.
#[derive(Clone, Copy, Debug)]
pub struct NewVercelLogin<'a> {
    /// Its name.
    pub id: &'a VercelLoginId,
    /// What its password is held against.
    pub verifier: &'a str,
}

#[derive(FromRow)]
struct ResourceRow {
    project_id: String,
    branch_id: String,
    name: String,
    product_id: String,
    plan_id: String,
    metadata: String,
}

impl From<ResourceRow> for VercelResource {
    fn from(row: ResourceRow) -> Self {
        Self {
            project: ProjectId::from_trusted(row.project_id),
            branch: BranchId::from_trusted(row.branch_id),
            name: row.name,
            product: row.product_id,
            plan: row.plan_id,
            metadata: row.metadata,
        }
    }
}

impl Store {
    /// Writes a new database down with its first login.
    pub async fn vercel_resource_insert_in_tx(
        &self,
        tx: &mut Tx,
        (project, branch): (&ProjectId, &BranchId),
        new: NewVercelResource<'_>,
        login: NewVercelLogin<'_>,
    ) -> Result<()> {
        sqlx::query(
            "insert into vercel_resources (project_id, branch_id, installation_id, product_id, plan_id, metadata,
                told_name, told_status)
             select $1, $2, $3, $4, $5, $6, name, 'pending' from projects where id = $1",
        )
        .bind(project.as_str())
        .bind(branch.as_str())
        .bind(new.installation.as_str())
        .bind(new.product)
        .bind(new.plan)
        .bind(new.metadata)
        .execute(&mut **tx)
        .await?;
        self.vercel_login_insert_in_tx(tx, project, login).await
    }

    /// A database of an installation, if its project and its branch are there.
    pub async fn vercel_resource(
        &self,
        installation: &VercelInstallationId,
        project: &ProjectId,
    ) -> Result<Option<VercelResource>> {
        let row: Option<ResourceRow> = sqlx::query_as(
            "select r.project_id, r.branch_id, p.name, r.product_id, r.plan_id, r.metadata::text as metadata
             from vercel_resources r
             join projects p on p.id = r.project_id and p.deleted_at is null
             join branches b on b.id = r.branch_id and b.deleted_at is null
             where r.installation_id = $1 and r.project_id = $2",
        )
        .bind(installation.as_str())
        .bind(project.as_str())
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(VercelResource::from))
    }

    /// Changes what was chosen for a database.
    pub async fn vercel_resource_update_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        metadata: &Value,
    ) -> Result<()> {
        sqlx::query("update vercel_resources set metadata = $2 where project_id = $1")
            .bind(project.as_str())
            .bind(metadata)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Locks a database, and counts its logins that go on. False when it is gone, or another installation's.
    pub async fn vercel_logins_lock_in_tx(
        &self,
        tx: &mut Tx,
        installation: &VercelInstallationId,
        project: &ProjectId,
    ) -> Result<Option<u32>> {
        let sql = "select from vercel_resources where installation_id = $1 and project_id = $2 for update";
        let query = sqlx::query(sql).bind(installation.as_str()).bind(project.as_str());
        if query.fetch_optional(&mut **tx).await?.is_none() {
            return Ok(None);
        }
        let count: i64 = sqlx::query_scalar(
            "select count(*) from vercel_logins
             where project_id = $1 and (ends_at is null or ends_at > now())",
        )
        .bind(project.as_str())
        .fetch_one(&mut **tx)
        .await?;
        Ok(Some(u32::try_from(count).unwrap_or(u32::MAX)))
    }

    /// Has the logins of a database end at a time, unless they end before, and adds one that does not.
    pub async fn vercel_logins_replace_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        end: DateTime<Utc>,
        new: NewVercelLogin<'_>,
    ) -> Result<()> {
        sqlx::query(
            "update vercel_logins set ends_at = $2 where project_id = $1 and (ends_at is null or ends_at > $2)",
        )
        .bind(project.as_str())
        .bind(end)
        .execute(&mut **tx)
        .await?;
        self.vercel_login_insert_in_tx(tx, project, new).await
    }

    async fn vercel_login_insert_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        new: NewVercelLogin<'_>,
    ) -> Result<()> {
        sqlx::query("insert into vercel_logins (id, project_id, verifier) values ($1, $2, $3)")
            .bind(new.id.as_str())
            .bind(project.as_str())
            .bind(new.verifier)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// What the password of a login is held against, if it is in force on a branch. Served by primary keys.
    pub async fn vercel_login_verifier(
        &self,
        branch: &BranchId,
        login: &VercelLoginId,
    ) -> Result<Option<String>> {
        let sql = format!("select l.verifier {}", in_force("$1", "$2"));
        let query = sqlx::query(AssertSqlSafe(sql)).bind(login.as_str()).bind(branch.as_str());
        let row = self.reads.row(query).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Which of these logins are not in force on the branch that each is used on. Served by primary keys.
    pub async fn vercel_logins_over(
        &self,
        of: &[(BranchId, VercelLoginId)],
    ) -> Result<Vec<(BranchId, VercelLoginId)>> {
        let (branches, logins): (Vec<_>, Vec<_>) =
            of.iter().map(|(branch, login)| (branch.as_str(), login.as_str())).unzip();
        let sql = format!(
            "select open.branch_id, open.id from unnest($1::text[], $2::text[]) as open (branch_id, id)
             where not exists (select {})",
            in_force("open.id", "open.branch_id")
        );
        let query = sqlx::query_as(AssertSqlSafe(sql)).bind(branches).bind(logins);
        let rows: Vec<(String, String)> = query.fetch_all(&self.pool).await?;
        let named = |(branch, login)| (BranchId::from_trusted(branch), VercelLoginId::from_trusted(login));
        Ok(rows.into_iter().map(named).collect())
    }

    /// Forgets logins that ended some days ago.
    pub async fn vercel_login_purge(&self) -> Result<()> {
        sqlx::query("delete from vercel_logins where ends_at < now() - interval '7 days'")
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
