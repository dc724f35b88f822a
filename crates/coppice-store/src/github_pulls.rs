//! What GitHub tells happened, and the pull requests that are looked at for it.
//!
//! A delivery says only that something may be otherwise: its id and the mark
//! that has somebody look are one transaction. So deliveries may come twice,
//! late and in any order, and none is lost after it was answered.

use coppice_core::github::{DELIVERY_DAYS, Pull};
use coppice_core::organization::Holder;
use coppice_core::{BranchId, GithubRepositoryId};
use sqlx::FromRow;

use crate::holders::{Room, holder_turns};
use crate::{Result, Store, Tx};

/// What may be otherwise after a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GithubNews {
    /// A pull request: of this repository, and its number.
    pub pull: Option<(i64, i64)>,
    /// Whether an installation is still there.
    pub installation: Option<i64>,
    /// Whether these repositories are still in reach.
    pub repositories: Vec<i64>,
}

/// Which pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullKey {
    /// The mapping of its repository.
    pub mapping: GithubRepositoryId,
    /// Its number there.
    pub number: i64,
}

/// A pull request that somebody looks at now.
#[derive(Clone, Debug)]
pub struct ClaimedPull {
    /// Which.
    pub key: PullKey,
    /// The branch that was made for it.
    pub branch: Option<BranchId>,
    /// Which look this is.
    pub asked: i64,
    /// Looks since one succeeded, with this one.
    pub attempts: u32,
    /// What GitHub was told.
    pub told: Told,
}

/// What GitHub was told of a pull request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Of which commit.
    pub commit: Option<String>,
    /// What.
    pub what: Option<String>,
    /// The comment that says so.
    pub comment: Option<i64>,
}

/// What comes of a pull request after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLook {
    /// All is as it should be until something happens.
    Rest,
    /// There is nothing to know of it any more.
    Forget,
    /// It is looked at again after so many seconds.
    Again(u32),
}

#[derive(FromRow)]
struct ClaimedRow {
    holder: String,
    mapping_id: String,
    number: i64,
    branch_id: Option<String>,
    asked: i64,
    attempts: i32,
    told_commit: Option<String>,
    told: Option<String>,
    comment_id: Option<i64>,
}

impl From<ClaimedRow> for ClaimedPull {
    fn from(row: ClaimedRow) -> Self {
        Self {
            key: PullKey { mapping: GithubRepositoryId::from_trusted(row.mapping_id), number: row.number },
            branch: row.branch_id.map(BranchId::from_trusted),
            asked: row.asked,
            attempts: row.attempts.unsigned_abs(),
            told: Told { commit: row.told_commit, what: row.told, comment: row.comment_id },
        }
    }
}

impl Store {
    /// Writes down that a delivery came, with all that follows from it; false
    /// when it came before.
    pub async fn github_delivery(&self, id: &str, news: &GithubNews) -> Result<bool> {
        let mut tx = self.begin().await?;
        let inserted = sqlx::query("insert into github_deliveries (id) values ($1) on conflict do nothing")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 0 {
            return Ok(false);
        }
        if let Some((repository, number)) = news.pull {
            sqlx::query(
                "insert into github_pulls as g (mapping_id, number)
                 select id, $2 from github_repositories where repository_id = $1
                 on conflict (mapping_id, number) do update
                     set asked = g.asked + 1, attempts = 0, due_at = now()",
            )
            .bind(repository)
            .bind(number)
            .execute(&mut *tx)
            .await?;
        }
        sqlx::query("update github_installations set looked_at = null where installation_id = $1")
            .bind(news.installation)
            .execute(&mut *tx)
            .await?;
        sqlx::query("update github_repositories set looked_at = null where repository_id = any($1)")
            .bind(&news.repositories)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Forgets deliveries that nobody sends again.
    pub async fn github_delivery_purge(&self) -> Result<()> {
        sqlx::query("delete from github_deliveries where received_at < now() - make_interval(days => $1)")
            .bind(DELIVERY_DAYS as i32)
            .execute(&self.relaxed)
            .await?;
        Ok(())
    }

    /// Has those pull requests of a repository looked at that are otherwise than
    /// was told, given those that are open, of which `wanted` shall have a
    /// branch. Branches of the others that are open get `lifetime` from now on,
    /// unless their end was changed to none.
    pub async fn github_pulls_compare(
        &self,
        mapping: &GithubRepositoryId,
        wanted: &[Pull],
        lifetime_seconds: f64,
    ) -> Result<()> {
        let numbers: Vec<i64> = wanted.iter().map(|pull| pull.number).collect();
        let commits: Vec<&str> = wanted.iter().map(|pull| pull.commit.as_str()).collect();
        let mut tx = self.begin().await?;
        sqlx::query(
            "insert into github_pulls as g (mapping_id, number)
             select $1, w.number from unnest($2::bigint[], $3::text[]) w (number, commit)
             where exists (select from github_repositories where id = $1)
             on conflict (mapping_id, number) do update set asked = g.asked + 1, due_at = now()
                 where g.due_at is null and not exists (
                     select from unnest($2::bigint[], $3::text[]) w (number, commit)
                     join branches b on b.id = g.branch_id and b.deleted_at is null
                     where w.number = g.number and w.commit = g.told_commit)",
        )
        .bind(mapping.as_str())
        .bind(&numbers)
        .bind(&commits)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "update github_pulls set asked = asked + 1, due_at = now()
             where mapping_id = $1 and due_at is null and number <> all($2)",
        )
        .bind(mapping.as_str())
        .bind(&numbers)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "update branches set expires_at = now() + make_interval(secs => $3)
             where expires_at is not null and deleted_at is null and id in (
                 select branch_id from github_pulls where mapping_id = $1 and number = any($2))",
        )
        .bind(mapping.as_str())
        .bind(&numbers)
        .bind(lifetime_seconds)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Gives the branch of a pull request so much time from now on, unless it has no end.
    pub async fn github_pull_touch(&self, branch: &BranchId, lifetime_seconds: f64) -> Result<()> {
        sqlx::query(
            "update branches set expires_at = now() + make_interval(secs => $2)
             where id = $1 and expires_at is not null and deleted_at is null",
        )
        .bind(branch.as_str())
        .bind(lifetime_seconds)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Takes pull requests that are due, by turns of holders, each with its holder. Nobody else gets
    /// them for `lease_seconds`; what nothing is heard of until then is due again. Served by index
    /// `github_pulls_next`.
    pub async fn github_pulls_claim(
        &self,
        room: Room,
        lease_seconds: u32,
    ) -> Result<Vec<(Holder, ClaimedPull)>> {
        let next = holder_turns(
            "pull",
            "select r.id as mapping_id, d.number, d.due_at as since, i.organization_id, i.installation_id as part
             from github_repositories r join github_installations i on i.id = r.installation_id
             cross join lateral (
                 select number, due_at from github_pulls
                 where mapping_id = r.id and due_at <= now() order by due_at limit $3) d",
        );
        let sql = format!(
            "{next}
             update github_pulls g set attempts = attempts + 1, due_at = now() + make_interval(secs => $4)
             from (select p.mapping_id, p.number, next.holder
                   from next join github_pulls p on p.mapping_id = next.mapping_id and p.number = next.number
                   where p.due_at <= now() for update of p skip locked) free
             where g.mapping_id = free.mapping_id and g.number = free.number
             returning free.holder, g.mapping_id, g.number, g.branch_id, g.asked, g.attempts, g.told_commit, g.told,
                       g.comment_id"
        );
        let rows: Vec<ClaimedRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(room.holders())
            .bind(i64::from(room.each))
            .bind(i64::from(room.count))
            .bind(f64::from(lease_seconds))
            .fetch_all(&self.pool)
            .await?;
        self.holder_turn_note("pull", rows.iter().map(|row| row.holder.as_str())).await;
        Ok(rows.into_iter().map(|row| (Holder::from_trusted(&row.holder), row.into())).collect())
    }

    /// Has every pull request looked at now that is to be looked at some time.
    pub async fn github_pulls_hasten(&self) -> Result<()> {
        sqlx::query("update github_pulls set due_at = now() where due_at > now()")
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Notes the branch that is made for a pull request.
    pub async fn github_pull_made_in_tx(&self, tx: &mut Tx, key: &PullKey, branch: &BranchId) -> Result<()> {
        sqlx::query("update github_pulls set branch_id = $3 where mapping_id = $1 and number = $2")
            .bind(key.mapping.as_str())
            .bind(key.number)
            .bind(branch.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Writes down what a look came to. If another look was asked for
    /// meanwhile, it is begun at once.
    pub async fn github_pull_end(&self, claimed: &ClaimedPull, told: &Told, next: AfterLook) -> Result<()> {
        let ClaimedPull { key, asked, .. } = claimed;
        if next == AfterLook::Forget {
            let done =
                sqlx::query("delete from github_pulls where mapping_id = $1 and number = $2 and asked = $3")
                    .bind(key.mapping.as_str())
                    .bind(key.number)
                    .bind(asked)
                    .execute(&self.pool)
                    .await?;
            if done.rows_affected() == 1 {
                return Ok(());
            }
        }
        let pause = match next {
            AfterLook::Again(seconds) => Some(f64::from(seconds)),
            AfterLook::Rest | AfterLook::Forget => None,
        };
        sqlx::query(
            "update github_pulls set told_commit = $4, told = $5, comment_id = $6,
                 attempts = case when asked = $3 and $7::float8 is not null then attempts else 0 end,
                 due_at = case when asked <> $3 then now() else now() + make_interval(secs => $7) end
             where mapping_id = $1 and number = $2",
        )
        .bind(key.mapping.as_str())
        .bind(key.number)
        .bind(asked)
        .bind(&told.commit)
        .bind(&told.what)
        .bind(told.comment)
        .bind(pause)
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
