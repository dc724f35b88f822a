//! People who came from Vercel by an installation: users of its organization alone.

use chrono::{DateTime, Utc};
use coppice_core::organization::Role;
use coppice_core::vercel::{VERCEL_ADDRESSES, VercelInstallation};
use coppice_core::{UserId, VercelInstallationId};

use crate::{Result, Store, Tx};

/// A person to be asked Vercel about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VercelPerson {
    /// Their user here.
    pub user: UserId,
    /// By which they came.
    pub installation: VercelInstallationId,
    /// Who they are at Vercel.
    pub person: String,
    /// When they were taken. What Vercel answers counts unless they were taken again, or came, since.
    pub looked_at: DateTime<Utc>,
}

impl Store {
    /// Lets a person in by an installation: with the id `new` and this name if they did not come before, and with
    /// this role from now on. None when the installation was deleted.
    pub async fn vercel_person_arrives(
        &self,
        installation: &VercelInstallation,
        (person, name): (&str, &str),
        new: &UserId,
        role: Role,
    ) -> Result<Option<UserId>> {
        let mut tx = self.begin().await?;
        let sql = "select from vercel_installations where id = $1 and ending_at is null for no key update";
        if sqlx::query(sql).bind(installation.id.as_str()).fetch_optional(&mut *tx).await?.is_none() {
            return Ok(None);
        }
        let known: Option<String> = sqlx::query_scalar(
            "update vercel_people set looked_at = now(), kept_out = false
             where installation_id = $1 and person_id = $2 returning user_id",
        )
        .bind(installation.id.as_str())
        .bind(person)
        .fetch_optional(&mut *tx)
        .await?;
        let user = known.map_or_else(|| new.clone(), UserId::from_trusted);
        if user == *new {
            self.vercel_person_insert_in_tx(&mut tx, installation, person, new).await?;
        }
        sqlx::query("update users set name = $2 where id = $1 and name <> $2")
            .bind(user.as_str())
            .bind(name)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "insert into members (organization_id, user_id, role) values ($1, $2, $3)
             on conflict (organization_id, user_id) do update set role = excluded.role",
        )
        .bind(installation.organization.as_str())
        .bind(user.as_str())
        .bind(role.as_str())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(Some(user))
    }

    async fn vercel_person_insert_in_tx(
        &self,
        tx: &mut Tx,
        installation: &VercelInstallation,
        person: &str,
        new: &UserId,
    ) -> Result<()> {
        sqlx::query("insert into users (id, email, email_verified) values ($1, $1 || $2, true)")
            .bind(new.as_str())
            .bind(VERCEL_ADDRESSES)
            .execute(&mut **tx)
            .await?;
        sqlx::query("insert into vercel_people (user_id, installation_id, person_id) values ($1, $2, $3)")
            .bind(new.as_str())
            .bind(installation.id.as_str())
            .bind(person)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Whether a user came from Vercel.
    pub async fn is_from_vercel(&self, user: &UserId) -> Result<bool> {
        let sql = "select exists (select from vercel_people where user_id = $1)";
        Ok(sqlx::query_scalar(sql).bind(user.as_str()).fetch_one(&self.pool).await?)
    }

    /// Takes people whom Vercel was not asked about for an hour and who can still come in.
    pub async fn vercel_people_due(&self, at_most: u32) -> Result<Vec<VercelPerson>> {
        let rows: Vec<(String, String, String, DateTime<Utc>)> = sqlx::query_as(
            "update vercel_people set looked_at = now() where user_id in (
                 select v.user_id from vercel_people v
                 where v.looked_at < now() - interval '1 hour'
                   and (exists (select from browser_sessions s where s.user_id = v.user_id)
                        or exists (select from sessions s where s.user_id = v.user_id)
                        or exists (select from api_keys k where k.user_id = v.user_id))
                 order by v.looked_at limit $1 for update skip locked)
             returning user_id, installation_id, person_id, looked_at",
        )
        .bind(i64::from(at_most))
        .fetch_all(&self.pool)
        .await?;
        let person = |(user, installation, person, looked_at)| VercelPerson {
            user: UserId::from_trusted(user),
            installation: VercelInstallationId::from_trusted(installation),
            person,
            looked_at,
        };
        Ok(rows.into_iter().map(person).collect())
    }

    /// Writes down what a person may do from now on. Without a role they are no member until they have one again, or
    /// come; who was removed here stays so. False, and nothing changes, when it does not count any more.
    pub async fn vercel_person_role(&self, of: &VercelPerson, role: Option<Role>) -> Result<bool> {
        let mut tx = self.begin().await?;
        let sql = "select from vercel_people where user_id = $1 and looked_at = $2 for no key update";
        let query = sqlx::query(sql).bind(of.user.as_str()).bind(of.looked_at);
        if query.fetch_optional(&mut *tx).await?.is_none() {
            return Ok(false);
        }
        match role {
            Some(role) => self.vercel_person_admit_in_tx(&mut tx, &of.user, role).await?,
            None => {
                sqlx::query(
                    "with ended as (delete from members where user_id = $1 returning user_id)
                     update vercel_people v set kept_out = true from ended where v.user_id = ended.user_id",
                )
                .bind(of.user.as_str())
                .execute(&mut *tx)
                .await?;
            }
        }
        tx.commit().await?;
        Ok(true)
    }

    async fn vercel_person_admit_in_tx(&self, tx: &mut Tx, user: &UserId, role: Role) -> Result<()> {
        for statement in [
            "with back as (
                 update vercel_people set kept_out = false where user_id = $1 and kept_out
                 returning user_id, installation_id)
             insert into members (organization_id, user_id, role)
             select i.organization_id, back.user_id, $2 from back
             join vercel_installations i on i.id = back.installation_id
             on conflict (organization_id, user_id) do nothing",
            "update members set role = $2 where user_id = $1 and role <> $2",
        ] {
            sqlx::query(statement).bind(user.as_str()).bind(role.as_str()).execute(&mut **tx).await?;
        }
        Ok(())
    }

    /// Forgets a person with their user, its sessions and keys. False, and nothing changes, when it does not count
    /// any more.
    pub async fn vercel_person_forget(&self, of: &VercelPerson) -> Result<bool> {
        let done = sqlx::query("delete from vercel_people where user_id = $1 and looked_at = $2")
            .bind(of.user.as_str())
            .bind(of.looked_at)
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected() == 1)
    }
}
