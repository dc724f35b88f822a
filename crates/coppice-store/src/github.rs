//! Installations of the GitHub App that organizations have linked, and the
//! repositories that their projects are mapped to.

use chrono::{DateTime, Utc};
use coppice_core::github::{GithubInstallation, GithubRepository, RECONCILE};
use coppice_core::organization::Holder;
use coppice_core::{BranchId, GithubInstallationId, GithubRepositoryId, OrganizationId, ProjectId};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::{Query, QueryAs};
use sqlx::{Encode, FromRow, Postgres, Type};

use crate::holders::{Room, holder_turns};
use crate::{Result, Store, Tx};

const INSTALLATION: &str = "id, installation_id, organization_id, administered, created_at, updated_at";
const REPOSITORY: &str = "g.id, g.repository_id, g.project_id, g.root_branch_id, g.previews, g.forks, g.job_keys, g.created_at, g.updated_at";

/// Of what is linked, what GitHub shall be asked about again.
const DUE: &str = "(l.looked_at is null or l.looked_at < now() - make_interval(secs => $4))";

/// What of a mapping its owner says.
#[derive(Clone, Copy, Debug)]
pub struct MappingNote<'a> {
    /// The link through which the repository is reached.
    pub installation: &'a GithubInstallationId,
    /// The repository's number at GitHub.
    pub repository: i64,
    /// What branches for pull requests are copies of.
    pub root: &'a BranchId,
    /// See [`GithubRepository::has_previews`]; none leaves it, or is true.
    pub has_previews: Option<bool>,
    /// See [`GithubRepository::takes_forks`]; none leaves it, or is false.
    pub takes_forks: Option<bool>,
    /// See [`GithubRepository::has_job_keys`].
    pub has_job_keys: bool,
}

/// A mapping with all that is needed to do what it is for.
#[derive(Clone, Debug)]
pub struct ReachedRepository {
    /// The mapping.
    pub mapping: GithubRepository,
    /// Whose.
    pub organization: OrganizationId,
    /// The installation's number at GitHub.
    pub installation: i64,
}

#[derive(FromRow)]
struct InstallationRow {
    id: String,
    installation_id: i64,
    organization_id: String,
    administered: Vec<i64>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<InstallationRow> for GithubInstallation {
    fn from(row: InstallationRow) -> Self {
        Self {
            id: GithubInstallationId::from_trusted(row.id),
            installation: row.installation_id,
            organization: OrganizationId::from_trusted(row.organization_id),
            administered: row.administered,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

#[derive(FromRow)]
struct RepositoryRow {
    id: String,
    repository_id: i64,
    project_id: String,
    root_branch_id: String,
    previews: bool,
    forks: bool,
    job_keys: bool,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<RepositoryRow> for GithubRepository {
    fn from(row: RepositoryRow) -> Self {
        Self {
            id: GithubRepositoryId::from_trusted(row.id),
            repository: row.repository_id,
            project: ProjectId::from_trusted(row.project_id),
            root: BranchId::from_trusted(row.root_branch_id),
            has_previews: row.previews,
            takes_forks: row.forks,
            has_job_keys: row.job_keys,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

#[derive(FromRow)]
struct ReachedRow {
    #[sqlx(flatten)]
    mapping: RepositoryRow,
    organization_id: String,
    installation_number: i64,
}

impl From<ReachedRow> for ReachedRepository {
    fn from(row: ReachedRow) -> Self {
        Self {
            mapping: row.mapping.into(),
            organization: OrganizationId::from_trusted(row.organization_id),
            installation: row.installation_number,
        }
    }
}

/// A mapping that is due, and whose.
#[derive(FromRow)]
struct DueRow {
    holder: String,
    #[sqlx(flatten)]
    reached: ReachedRow,
}

type Asked<'q, Row> = QueryAs<'q, Postgres, Row, PgArguments>;

/// A statement about a link: which, whose, to which installation, for which repositories.
fn of_link<'q>(
    sql: String,
    (id, organization): (&'q GithubInstallationId, &'q OrganizationId),
    installation: i64,
    administered: &'q [i64],
) -> Asked<'q, InstallationRow> {
    let query = sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.as_str()).bind(organization.as_str());
    query.bind(installation).bind(administered)
}

/// A statement about the mapping of a project: that one, and what its owner says in the order of the note.
fn of_mapping<'q>(sql: String, project: &'q ProjectId, note: &MappingNote<'q>) -> Asked<'q, RepositoryRow> {
    sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(project.as_str())
        .bind(note.installation.as_str())
        .bind(note.repository)
        .bind(note.root.as_str())
        .bind(note.has_previews)
        .bind(note.takes_forks)
        .bind(note.has_job_keys)
}

/// The mapping of a project of an organization.
fn repository_of<'q>(
    organization: &'q OrganizationId,
    project: &'q ProjectId,
) -> Query<'q, Postgres, PgArguments> {
    let sql = format!(
        "select {REPOSITORY} from github_repositories g join projects p on p.id = g.project_id
         where g.project_id = $2 and p.organization_id = $1 and p.deleted_at is null"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql)).bind(organization.as_str()).bind(project.as_str())
}

/// A statement that takes what there is room for of what is due.
fn in_room<'q, Row>(sql: &str, room: &'q Room) -> Asked<'q, Row>
where
    Row: for<'r> FromRow<'r, PgRow>,
{
    sqlx::query_as(sqlx::AssertSqlSafe(sql.to_owned()))
        .bind(room.holders())
        .bind(i64::from(room.each))
        .bind(i64::from(room.count))
        .bind(RECONCILE.as_secs_f64())
}

impl Store {
    /// Installations that an organization has linked, oldest first.
    pub async fn github_installations(
        &self,
        organization: &OrganizationId,
    ) -> Result<Vec<GithubInstallation>> {
        let sql = format!(
            "select {INSTALLATION} from github_installations where organization_id = $1 order by created_at, id"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(organization.as_str());
        let rows: Vec<InstallationRow> = self.reads.all(query).await?;
        Ok(rows.into_iter().map(GithubInstallation::from).collect())
    }

    /// Links an installation, for these repositories of it.
    ///
    /// # Errors
    /// A unique violation of `github_installations_once`.
    pub async fn github_installation_insert_in_tx(
        &self,
        tx: &mut Tx,
        id: &GithubInstallationId,
        organization: &OrganizationId,
        installation: i64,
        administered: &[i64],
    ) -> Result<GithubInstallation> {
        let sql = format!(
            "insert into github_installations (id, organization_id, installation_id, administered)
             values ($1, $2, $3, $4)
             returning {INSTALLATION}"
        );
        let row = of_link(sql, (id, organization), installation, administered).fetch_one(&mut **tx).await?;
        Ok(row.into())
    }

    /// Has a link lead to another installation; none when there is no such link.
    /// Mappings through it are looked at again.
    ///
    /// # Errors
    /// A unique violation of `github_installations_once`.
    pub async fn github_installation_update_in_tx(
        &self,
        tx: &mut Tx,
        id: &GithubInstallationId,
        organization: &OrganizationId,
        installation: i64,
        administered: &[i64],
    ) -> Result<Option<GithubInstallation>> {
        let sql = format!(
            "with looked_at as (update github_repositories set looked_at = null where installation_id = $1)
             update github_installations set installation_id = $3, administered = $4, looked_at = null,
                    updated_at = now()
             where id = $1 and organization_id = $2 returning {INSTALLATION}"
        );
        let query = of_link(sql, (id, organization), installation, administered);
        Ok(query.fetch_optional(&mut **tx).await?.map(GithubInstallation::from))
    }

    /// Forgets an installation that is gone, with all mappings through it, whoever has linked it.
    pub async fn github_installation_forget(&self, installation: i64) -> Result<()> {
        sqlx::query("delete from github_installations where installation_id = $1")
            .bind(installation)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// The mapping of a project.
    pub async fn github_repository_of(
        &self,
        organization: &OrganizationId,
        project: &ProjectId,
    ) -> Result<Option<GithubRepository>> {
        let row: Option<RepositoryRow> = self.reads.optional(repository_of(organization, project)).await?;
        Ok(row.map(GithubRepository::from))
    }

    /// As [`Store::github_repository_of`], within a transaction.
    pub async fn github_repository_of_in_tx(
        &self,
        tx: &mut Tx,
        organization: &OrganizationId,
        project: &ProjectId,
    ) -> Result<Option<GithubRepository>> {
        let row = repository_of(organization, project).fetch_optional(&mut **tx).await?;
        Ok(row.map(|row| RepositoryRow::from_row(&row)).transpose()?.map(GithubRepository::from))
    }

    /// Maps a project to a repository.
    ///
    /// # Errors
    /// A unique violation of `github_repositories_project` or `github_repositories_repository`.
    pub async fn github_repository_insert_in_tx(
        &self,
        tx: &mut Tx,
        id: &GithubRepositoryId,
        project: &ProjectId,
        note: &MappingNote<'_>,
    ) -> Result<GithubRepository> {
        let sql = format!(
            "insert into github_repositories as g
                 (id, project_id, installation_id, repository_id, root_branch_id, previews, forks, job_keys)
             values ($8, $1, $2, $3, $4, coalesce($5, true), coalesce($6, false), $7) returning {REPOSITORY}"
        );
        let query = of_mapping(sql, project, note).bind(id.as_str());
        Ok(query.fetch_one(&mut **tx).await?.into())
    }

    /// Changes the mapping of a project; none when it has none. What was known
    /// of another repository's pull requests is forgotten.
    ///
    /// # Errors
    /// A unique violation of `github_repositories_repository`.
    pub async fn github_repository_update_in_tx(
        &self,
        tx: &mut Tx,
        project: &ProjectId,
        note: &MappingNote<'_>,
    ) -> Result<Option<GithubRepository>> {
        let sql = format!(
            "with forgotten as (
                 delete from github_pulls where mapping_id in (
                     select id from github_repositories where project_id = $1 and repository_id <> $3))
             update github_repositories g set installation_id = $2, repository_id = $3, root_branch_id = $4,
                 previews = coalesce($5, previews), forks = coalesce($6, forks), looked_at = null,
                 job_keys = $7 or job_keys and repository_id = $3 and root_branch_id = $4
                     and coalesce($5, previews) <= previews and coalesce($6, forks) <= forks,
                 updated_at = now()
             where project_id = $1 returning {REPOSITORY}"
        );
        let query = of_mapping(sql, project, note);
        Ok(query.fetch_optional(&mut **tx).await?.map(GithubRepository::from))
    }

    /// Ends the mapping of a project; false when it has none.
    pub async fn github_repository_delete_in_tx(&self, tx: &mut Tx, project: &ProjectId) -> Result<bool> {
        let query = sqlx::query("delete from github_repositories where project_id = $1");
        Ok(query.bind(project.as_str()).execute(&mut **tx).await?.rows_affected() == 1)
    }

    /// Ends a mapping whose repository is out of reach.
    pub async fn github_repository_forget(&self, id: &GithubRepositoryId) -> Result<()> {
        let query = sqlx::query("delete from github_repositories where id = $1");
        query.bind(id.as_str()).execute(&self.pool).await?;
        Ok(())
    }

    /// Has GitHub asked again about everything that is linked.
    pub async fn github_look_again(&self) -> Result<()> {
        for all in [
            "update github_installations set looked_at = null",
            "update github_repositories set looked_at = null",
        ] {
            sqlx::query(all).execute(&self.pool).await?;
        }
        Ok(())
    }

    /// Takes installations that GitHub shall be asked about again, as it was not for an hour, by
    /// turns of holders, each with its holder, and who has linked it.
    pub async fn github_installations_due(&self, room: Room) -> Result<Vec<(Holder, (OrganizationId, i64))>> {
        let due = format!(
            "select l.id, l.looked_at as since, l.organization_id, l.id as part
             from github_installations l where {DUE}"
        );
        let sql = format!(
            "{}
             update github_installations i set looked_at = now()
             from (select l.id, next.holder from next join github_installations l on l.id = next.id
                   where {DUE} for update of l skip locked) free
             where i.id = free.id returning free.holder, i.organization_id, i.installation_id",
            holder_turns("installation", &due)
        );
        let taken: Vec<(String, String, i64)> = in_room(&sql, &room).fetch_all(&self.pool).await?;
        self.holder_turn_note("installation", taken.iter().map(|(holder, ..)| holder.as_str())).await;
        let link = |(holder, organization, number): (String, String, i64)| {
            (Holder::from_trusted(holder), (OrganizationId::from_trusted(organization), number))
        };
        Ok(taken.into_iter().map(link).collect())
    }

    /// The same of mappings.
    pub async fn github_repositories_due(&self, room: Room) -> Result<Vec<(Holder, ReachedRepository)>> {
        let due = format!(
            "select l.id, l.looked_at as since, i.organization_id, i.installation_id as part
             from github_repositories l join github_installations i on i.id = l.installation_id where {DUE}"
        );
        let sql = format!(
            "{}
             update github_repositories g set looked_at = now()
             from github_installations i,
                  (select l.id, next.holder from next join github_repositories l on l.id = next.id
                   where {DUE} for update of l skip locked) free
             where i.id = g.installation_id and g.id = free.id
             returning free.holder, {REPOSITORY}, i.organization_id, i.installation_id as installation_number",
            holder_turns("comparison", &due)
        );
        let rows: Vec<DueRow> = in_room(&sql, &room).fetch_all(&self.pool).await?;
        self.holder_turn_note("comparison", rows.iter().map(|row| row.holder.as_str())).await;
        Ok(rows.into_iter().map(|row| (Holder::from_trusted(row.holder), row.reached.into())).collect())
    }

    /// Has GitHub asked again about a mapping, soon: it could not be asked now.
    pub async fn github_repository_look_again(&self, id: &GithubRepositoryId, seconds: u32) -> Result<()> {
        sqlx::query(
            "update github_repositories set looked_at = now() - make_interval(secs => $2)
             where id = $1 and looked_at is not null",
        )
        .bind(id.as_str())
        .bind(RECONCILE.as_secs_f64() - f64::from(seconds))
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// A mapping, if it is still there.
    pub async fn github_reached(&self, id: &GithubRepositoryId) -> Result<Option<ReachedRepository>> {
        self.reached("g.id", id.to_string()).await
    }

    /// The mapping of a repository, by its number at GitHub.
    pub async fn github_reached_repository(&self, repository: i64) -> Result<Option<ReachedRepository>> {
        self.reached("g.repository_id", repository).await
    }

    async fn reached<T>(&self, column: &str, value: T) -> Result<Option<ReachedRepository>>
    where
        T: for<'q> Encode<'q, Postgres> + Type<Postgres>,
    {
        let sql = format!(
            "select {REPOSITORY}, i.organization_id, i.installation_id as installation_number
             from github_repositories g join github_installations i on i.id = g.installation_id
             where {column} = $1"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(value);
        let row: Option<ReachedRow> = self.reads.optional(query).await?;
        Ok(row.map(ReachedRepository::from))
    }
}
