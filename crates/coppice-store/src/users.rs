//! Users.

use chrono::{DateTime, Utc};
use coppice_core::organization::{Holder, User};
use coppice_core::{OrganizationId, UserId, email};
use sqlx::FromRow;

use crate::{Result, Store, Tx};

const COLUMNS: &str = "id, email, email_verified, name, created_at";
/// What decides whether they may sign in.
const ACCOUNT: &str = "password, disabled, has_second_factor";

#[derive(FromRow)]
struct UserRow {
    id: String,
    email: String,
    email_verified: bool,
    name: String,
    created_at: DateTime<Utc>,
}

impl From<UserRow> for User {
    fn from(row: UserRow) -> Self {
        Self {
            id: UserId::from_trusted(row.id),
            email: row.email,
            is_email_verified: row.email_verified,
            name: row.name,
            created_at: row.created_at,
        }
    }
}

/// A user to be inserted.
#[derive(Clone, Copy)]
pub struct NewUser<'a> {
    /// Their id.
    pub id: &'a UserId,
    /// Nobody else's, whatever the case.
    pub email: &'a str,
    /// Whether it is certain that it is theirs.
    pub is_email_verified: bool,
    /// What they want to be called; may be empty.
    pub name: &'a str,
    /// Hash of their password, as a PHC string, if they have one.
    pub password: Option<&'a str>,
    /// The organization whose guest they are, as long as their address is not certain to be theirs: the guests
    /// of all organizations of a holder, and their guests, have one holder, who is nobody else.
    pub guest_of: Option<&'a OrganizationId>,
}

impl std::fmt::Debug for NewUser<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewUser({})", self.id)
    }
}

/// A person with what decides whether they may sign in.
#[derive(Clone)]
pub struct UserAccount {
    /// The person.
    pub user: User,
    /// Hash of their password, as a PHC string, if they have one.
    pub password: Option<String>,
    /// Nothing of them is let in.
    pub is_disabled: bool,
    /// Whether a second factor is asked for, too.
    pub has_second_factor: bool,
}

impl std::fmt::Debug for UserAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UserAccount({})", self.user.id)
    }
}

#[derive(FromRow)]
struct AccountRow {
    #[sqlx(flatten)]
    user: UserRow,
    password: Option<String>,
    disabled: bool,
    has_second_factor: bool,
}

impl From<AccountRow> for UserAccount {
    fn from(row: AccountRow) -> Self {
        Self {
            user: row.user.into(),
            password: row.password,
            is_disabled: row.disabled,
            has_second_factor: row.has_second_factor,
        }
    }
}

impl Store {
    /// The installation's first user, if there is one yet.
    pub async fn user_first(&self) -> Result<Option<UserId>> {
        let id: Option<String> = sqlx::query_scalar("select id from users order by created_at, id limit 1")
            .fetch_optional(&self.pool)
            .await?;
        Ok(id.map(UserId::from_trusted))
    }

    /// A user.
    pub async fn user_find(&self, id: &UserId) -> Result<Option<User>> {
        let sql = format!("select {COLUMNS} from users where id = $1");
        let row: Option<UserRow> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(id.as_str()).fetch_optional(&self.pool).await?;
        Ok(row.map(User::from))
    }

    /// Who answers for a user; none where there is no such user.
    pub async fn user_holder(&self, id: &UserId) -> Result<Option<Holder>> {
        let query = sqlx::query_scalar("select holder from users where id = $1").bind(id.as_str());
        let holder: Option<String> = query.fetch_optional(&self.pool).await?;
        Ok(holder.map(Holder::from_trusted))
    }

    /// The person with an email address, whatever the case of its ASCII letters
    /// (index `users_email`).
    pub async fn user_find_by_email(&self, email: &str) -> Result<Option<UserAccount>> {
        let sql = format!("select {COLUMNS}, {ACCOUNT} from users where lower(email) = $1");
        let row: Option<AccountRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(email::folded(email))
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.map(UserAccount::from))
    }

    /// Everybody who has an account, the first one first.
    pub async fn user_list_all(&self) -> Result<Vec<UserAccount>> {
        let sql = format!("select {COLUMNS}, {ACCOUNT} from users order by created_at, id");
        let rows: Vec<AccountRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(UserAccount::from).collect())
    }

    /// Lets nothing of a user in any more, and ends their sessions; or lets them
    /// in again. Their keys stay, and are of no use meanwhile.
    pub async fn user_set_disabled(&self, id: &UserId, is_disabled: bool) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::query("update users set disabled = $2 where id = $1")
            .bind(id.as_str())
            .bind(is_disabled)
            .execute(&mut *tx)
            .await?;
        if is_disabled {
            self.user_end_sessions_in_tx(&mut tx, id, None).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Renames a user and returns them.
    pub async fn user_rename_in_tx(&self, tx: &mut Tx, id: &UserId, name: &str) -> Result<Option<User>> {
        let sql = format!("update users set name = $2 where id = $1 returning {COLUMNS}");
        let row: Option<UserRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(id.as_str())
            .bind(name)
            .fetch_optional(&mut **tx)
            .await?;
        Ok(row.map(User::from))
    }

    /// Inserts a user.
    ///
    /// # Errors
    /// When the metastore can't be reached, or somebody has that address.
    pub async fn user_insert_in_tx(&self, tx: &mut Tx, new: &NewUser<'_>) -> Result<()> {
        sqlx::query(
            "insert into users (id, email, email_verified, name, password, guest_of)
             values ($1, $2, $3, $4, $5, 'guests of ' || regexp_replace(holder_of($6), '^guests of ', ''))",
        )
        .bind(new.id.as_str())
        .bind(new.email)
        .bind(new.is_email_verified)
        .bind(new.name)
        .bind(new.password)
        .bind(new.guest_of.map(OrganizationId::as_str))
        .execute(&mut **tx)
        .await?;
        Ok(())
    }

    /// Keeps a user's password as it is, and their browser sessions from ending,
    /// until the transaction ends; several may do so at once. To be done before
    /// anything is locked that setting a password, or signing out, takes away.
    /// False when they are disabled; nobody disables them either until then.
    pub async fn user_hold_in_tx(&self, tx: &mut Tx, id: &UserId) -> Result<bool> {
        let query = sqlx::query_scalar("select not disabled from users where id = $1 for share");
        Ok(query.bind(id.as_str()).fetch_optional(&mut **tx).await?.unwrap_or(false))
    }

    /// Makes changes of what one user owns wait for each other, so that quotas
    /// are counted right, until the transaction ends.
    pub async fn user_lock_in_tx(&self, tx: &mut Tx, id: &UserId) -> Result<()> {
        sqlx::query("select from users where id = $1 for no key update")
            .bind(id.as_str())
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}
