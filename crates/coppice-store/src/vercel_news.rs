//! What Vercel is to be told of databases by itself.

use std::time::Duration;

use coppice_core::{BranchId, ProjectId, VercelInstallationId, VercelLoginId};
use sqlx::FromRow;

use crate::vercel_resources::NewVercelLogin;
use crate::{Result, Store, Tx};

/// A database of which something is otherwise than Vercel knows.
#[derive(Clone, Debug)]
pub struct VercelNews {
    /// Which.
    pub project: ProjectId,
    /// Where its data is.
    pub branch: BranchId,
    /// By which it is had.
    pub installation: VercelInstallationId,
    /// Which product of ours it is, as Vercel knows that.
    pub product: String,
    /// What it is called now.
    pub name: String,
    /// How it is now, in the words of Vercel.
    pub status: String,
    /// Whether it was deleted.
    pub is_gone: bool,
    /// Whether its name or its status is another one.
    pub is_changed: bool,
    /// How many times other secrets were asked for, if Vercel does not have the last.
    pub rotation: Option<i64>,
    /// How often it was tried since Vercel last took something.
    pub attempts: u32,
}

#[derive(FromRow)]
struct NewsRow {
    project_id: String,
    branch_id: String,
    installation_id: String,
    product_id: String,
    name: String,
    status: String,
    is_gone: bool,
    is_changed: bool,
    rotation: Option<i64>,
    news_attempts: i32,
}

impl From<NewsRow> for VercelNews {
    fn from(row: NewsRow) -> Self {
        Self {
            project: ProjectId::from_trusted(row.project_id),
            branch: BranchId::from_trusted(row.branch_id),
            installation: VercelInstallationId::from_trusted(row.installation_id),
            product: row.product_id,
            name: row.name,
            status: row.status,
            is_gone: row.is_gone,
            is_changed: row.is_changed,
            rotation: row.rotation,
            attempts: row.news_attempts.unsigned_abs(),
        }
    }
}

impl Store {
    /// Databases that Vercel is to be told something of now, who waits longest first.
    pub async fn vercel_news(&self, at_most: u32) -> Result<Vec<VercelNews>> {
        let rows: Vec<NewsRow> = sqlx::query_as(
            "select * from (
                 select r.project_id, r.branch_id, r.installation_id, r.product_id, p.name, s.status,
                        p.deleted_at is not null or b.deleted_at is not null as is_gone,
                        (p.name, s.status) is distinct from (r.told_name, r.told_status) as is_changed,
                        case when r.rotations_asked > r.rotations_told then r.rotations_asked end as rotation,
                        r.news_attempts, r.news_due_at
                 from vercel_resources r
                 join vercel_installations i on i.id = r.installation_id and i.ending_at is null
                 join organizations o on o.id = i.organization_id
                 join projects p on p.id = r.project_id
                 join branches b on b.id = r.branch_id
                 cross join lateral (select case
                     when b.state = 'failed' then 'error'
                     when o.disabled_by_admin or o.billing_status <> 'ok' then 'suspended'
                     when b.state = 'creating' then 'pending'
                     else 'ready' end as status) s
                 where r.news_due_at <= now()) n
             where is_gone or is_changed or rotation is not null
             order by news_due_at, project_id limit $1",
        )
        .bind(i64::from(at_most))
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(VercelNews::from).collect())
    }

    /// Notes what Vercel was told of a database.
    pub async fn vercel_news_told(&self, news: &VercelNews) -> Result<()> {
        sqlx::query(
            "update vercel_resources set told_name = $3, told_status = $4, news_attempts = 0
             where project_id = $1 and installation_id = $2",
        )
        .bind(news.project.as_str())
        .bind(news.installation.as_str())
        .bind(&news.name)
        .bind(&news.status)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Has Vercel told of a database after a while: it could not be told now.
    pub async fn vercel_news_later(&self, news: &VercelNews, after: Duration) -> Result<()> {
        sqlx::query(
            "update vercel_resources set news_due_at = now() + make_interval(secs => $3),
                    news_attempts = news_attempts + 1
             where project_id = $1 and installation_id = $2",
        )
        .bind(news.project.as_str())
        .bind(news.installation.as_str())
        .bind(after.as_secs_f64())
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Forgets that a project is a database of an installation; its logins end.
    pub async fn vercel_resource_forget(
        &self,
        installation: &VercelInstallationId,
        project: &ProjectId,
    ) -> Result<()> {
        sqlx::query("delete from vercel_resources where project_id = $1 and installation_id = $2")
            .bind(project.as_str())
            .bind(installation.as_str())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Asks for other secrets of what a branch is to Vercel, if it is anything.
    pub async fn vercel_rotation_ask_in_tx(&self, tx: &mut Tx, branch: &BranchId) -> Result<()> {
        sqlx::query(
            "update vercel_resources set rotations_asked = rotations_asked + 1, news_due_at = now()
             where branch_id = $1",
        )
        .bind(branch.as_str())
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Adds a login that Vercel is about to be told. Those that it was to be told an hour ago or earlier go. False
    /// when the database is gone, or another installation's by now.
    pub async fn vercel_login_offer(&self, news: &VercelNews, new: NewVercelLogin<'_>) -> Result<bool> {
        let mut tx = self.begin().await?;
        // Whoever gives it to another installation has this row first, and waits for a login that is to end with the
        // former ones.
        let sql = "select from vercel_resources where project_id = $1 and installation_id = $2 for share";
        let query = sqlx::query(sql).bind(news.project.as_str()).bind(news.installation.as_str());
        if query.fetch_optional(&mut *tx).await?.is_none() {
            return Ok(false);
        }
        sqlx::query(
            "delete from vercel_logins where project_id = $1 and offered_at < now() - interval '1 hour'",
        )
        .bind(news.project.as_str())
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "insert into vercel_logins (id, project_id, verifier, offered_at) values ($1, $2, $3, now())",
        )
        .bind(new.id.as_str())
        .bind(news.project.as_str())
        .bind(new.verifier)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Notes that Vercel has a login: those that it had before end now. Where the database is another installation's by
    /// now they stay as they are: all end when that one has a login of its own, a day later at most.
    pub async fn vercel_login_taken_in_tx(
        &self,
        tx: &mut Tx,
        news: &VercelNews,
        login: &VercelLoginId,
        rotation: i64,
    ) -> Result<()> {
        let told = sqlx::query(
            "update vercel_resources set rotations_told = greatest(rotations_told, $3), news_attempts = 0
             where project_id = $1 and installation_id = $2",
        )
        .bind(news.project.as_str())
        .bind(news.installation.as_str())
        .bind(rotation)
        .execute(&mut **tx)
        .await?;
        sqlx::query("update vercel_logins set offered_at = null where project_id = $1 and id = $2")
            .bind(news.project.as_str())
            .bind(login.as_str())
            .execute(&mut **tx)
            .await?;
        if told.rows_affected() == 1 {
            sqlx::query(
                "update vercel_logins l set ends_at = now() from vercel_logins taken
                 where taken.id = $2 and l.project_id = $1 and taken.project_id = $1 and l.id <> taken.id
                   and l.created_at <= taken.created_at and (l.ends_at is null or l.ends_at > now())",
            )
            .bind(news.project.as_str())
            .bind(login.as_str())
            .execute(&mut **tx)
            .await?;
        }
        Ok(())
    }
}
