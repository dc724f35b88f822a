//! Logins of keys on branches.
//!
//! Whether one is in force is asked each time, of what the key and its maker are
//! at that moment, and stored nowhere: so nothing that ends a key has to know of
//! its logins.

use coppice_core::access::Scope;
use coppice_core::login::{DatabaseRole, Login};
use coppice_core::organization::{Holder, Role};
use coppice_core::{ApiKeyId, BranchId};
use sqlx::{AssertSqlSafe, FromRow, Row as _};

use crate::{KeptPassword, Result, Store, StoreError, Tx};

/// Whether the login `l` is in force: its key is there and has not ended, and who
/// the key acts as may still read credentials of the branch's organization. `$1`
/// has the roles of members who may.
const IN_FORCE: &str = "exists (
    select from branches b
    join projects p on p.id = b.project_id
    join organizations o on o.id = p.organization_id and o.deleted_at is null
    join api_keys k on k.id = l.key_id and (k.expiry is null or k.expiry > now())
    left join users u on u.id = k.user_id
    left join members m on m.organization_id = o.id and m.user_id = k.user_id
    where b.id = l.branch_id and b.deleted_at is null and (not k.own_branches or b.made_with = k.id)
      and (k.organization_id = o.id
           or not u.disabled and m.role = any($1) and (k.with_second_factor or not o.requires_second_factor)))";

/// Most logins of a branch that are told at once.
const PAGE: i64 = 100;

/// The roles of members who may read credentials.
fn roles() -> Vec<&'static str> {
    let all = [Role::Owner, Role::Admin, Role::Editor, Role::Viewer];
    all.into_iter().filter(|role| role.carries(Scope::CredentialsRead)).map(Role::as_str).collect()
}

#[derive(FromRow)]
struct LoginRow {
    key_id: String,
    database_role: String,
    verifier: String,
}

impl TryFrom<LoginRow> for Login {
    type Error = StoreError;

    fn try_from(row: LoginRow) -> Result<Self> {
        let database_role = database_role_from(row.database_role)?;
        Ok(Self { key: ApiKeyId::from_trusted(row.key_id), database_role, verifier: row.verifier })
    }
}

pub(crate) fn database_role_from(name: String) -> Result<DatabaseRole> {
    DatabaseRole::parse(&name).ok_or(StoreError::UnknownValue { what: "database role", value: name })
}

impl Store {
    /// The password of a key's login on a branch, encrypted, if it has one there.
    pub async fn login_password(&self, branch: &BranchId, key: &ApiKeyId) -> Result<Option<Vec<u8>>> {
        let sql = "select password_sealed from logins where branch_id = $1 and key_id = $2";
        let row = self.reads.row(sqlx::query(sql).bind(branch.as_str()).bind(key.as_str())).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Gives a key a login on a branch, unless it has one there, and returns its
    /// password, encrypted.
    pub async fn login_make(
        &self,
        branch: &BranchId,
        key: &ApiKeyId,
        role: DatabaseRole,
        new: &KeptPassword,
    ) -> Result<Vec<u8>> {
        // Whoever comes at the same time gets the same.
        let password = sqlx::query_scalar(
            "insert into logins (branch_id, key_id, database_role, password_sealed, verifier)
             values ($1, $2, $3, $4, $5)
             on conflict (branch_id, key_id) do update set key_id = excluded.key_id
             returning password_sealed",
        )
        .bind(branch.as_str())
        .bind(key.as_str())
        .bind(role.as_str())
        .bind(&new.sealed)
        .bind(&new.verifier)
        .fetch_one(&self.pool)
        .await?;
        Ok(password)
    }

    /// Gives a key's login on a branch another password, and makes it where there is none.
    pub async fn login_set_password_in_tx(
        &self,
        tx: &mut Tx,
        branch: &BranchId,
        key: &ApiKeyId,
        role: DatabaseRole,
        new: &KeptPassword,
    ) -> Result<()> {
        sqlx::query(
            "insert into logins (branch_id, key_id, database_role, password_sealed, verifier)
             values ($1, $2, $3, $4, $5)
             on conflict (branch_id, key_id) do update
             set password_sealed = excluded.password_sealed, verifier = excluded.verifier",
        )
        .bind(branch.as_str())
        .bind(key.as_str())
        .bind(role.as_str())
        .bind(&new.sealed)
        .bind(&new.verifier)
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// The login of a key on a branch, if it is in force. Served by primary keys.
    pub async fn login_in_force(&self, branch: &BranchId, key: &ApiKeyId) -> Result<Option<Login>> {
        let sql = format!(
            "select key_id, database_role, verifier from logins l
             where branch_id = $2 and key_id = $3 and {IN_FORCE}"
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(roles()).bind(branch.as_str()).bind(key.as_str());
        let row = self.reads.row(query).await?;
        row.map(|row| LoginRow::from_row(&row)?.try_into()).transpose()
    }

    /// Which of these logins, each of a key on a branch, are not in force.
    pub async fn logins_over(&self, of: &[(BranchId, ApiKeyId)]) -> Result<Vec<(BranchId, ApiKeyId)>> {
        let (branches, keys): (Vec<_>, Vec<_>) =
            of.iter().map(|(branch, key)| (branch.as_str(), key.as_str())).unzip();
        let sql = format!(
            "select open.branch_id, open.key_id from unnest($2::text[], $3::text[]) as open (branch_id, key_id)
             where not exists (select from logins l
                               where l.branch_id = open.branch_id and l.key_id = open.key_id and {IN_FORCE})"
        );
        let rows: Vec<(String, String)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(roles())
            .bind(branches)
            .bind(keys)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(named).collect())
    }

    /// Branches that are up with logins that are not in force any more, and whose they are: roles can be taken off
    /// their servers.
    pub async fn logins_to_end(&self) -> Result<Vec<(BranchId, Holder)>> {
        let sql = format!(
            "with due as materialized (
                 select distinct l.branch_id, home.organization_id
                 from logins l join branches up on up.id = l.branch_id join projects home on home.id = up.project_id
                 where up.state = 'ready' and up.goal = 'running' and not {IN_FORCE}),
             held as materialized (
                 select organization_id, holder_of(organization_id) as holder
                 from (select distinct organization_id from due) o)
             select branch_id, holder from due join held using (organization_id) order by branch_id"
        );
        let rows: Vec<(String, String)> =
            sqlx::query_as(AssertSqlSafe(sql)).bind(roles()).fetch_all(&self.pool).await?;
        let named = |(branch, holder): (String, String)| {
            (BranchId::from_trusted(branch), Holder::from_trusted(holder))
        };
        Ok(rows.into_iter().map(named).collect())
    }

    /// Keys whose logins on a branch are not in force any more, a page of them: first those behind `after`.
    pub async fn logins_to_end_on(
        &self,
        branch: &BranchId,
        after: Option<&ApiKeyId>,
    ) -> Result<Vec<ApiKeyId>> {
        let sql = format!(
            "select key_id from logins l where branch_id = $2 and not {IN_FORCE}
             order by key_id <= $3, key_id limit {PAGE}"
        );
        let keys: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(roles())
            .bind(branch.as_str())
            .bind(after.map_or("", ApiKeyId::as_str))
            .fetch_all(&self.pool)
            .await?;
        Ok(keys.into_iter().map(ApiKeyId::from_trusted).collect())
    }

    /// Forgets a login whose role is gone, unless it is in force again.
    pub async fn login_forget(&self, branch: &BranchId, key: &ApiKeyId) -> Result<()> {
        let sql = format!("delete from logins l where branch_id = $2 and key_id = $3 and not {IN_FORCE}");
        sqlx::query(AssertSqlSafe(sql))
            .bind(roles())
            .bind(branch.as_str())
            .bind(key.as_str())
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

fn named((branch, key): (String, String)) -> (BranchId, ApiKeyId) {
    (BranchId::from_trusted(branch), ApiKeyId::from_trusted(key))
}
