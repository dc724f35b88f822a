//! What a primary has for each of its replicas: a slot, and a role of the same name.

use tokio_postgres::types::Type;

use super::following::NAMES;
use super::session::{Session, column};
use crate::{Result, SlotState};

/// What a row of `pg_replication_slots` says.
pub(super) fn state(is_active: bool, is_lost: bool) -> SlotState {
    match (is_lost, is_active) {
        (true, _) => SlotState::Lost,
        (false, true) => SlotState::Active,
        (false, false) => SlotState::Idle,
    }
}

/// How the slot is; none when there is none.
pub(super) async fn slot(session: &Session, name: &str) -> Result<Option<SlotState>> {
    let query = "SELECT active, wal_status IS NOT DISTINCT FROM 'lost' FROM pg_replication_slots \
                 WHERE slot_name = $1";
    let row = session.query_opt("looking at the slot of a replica", query, &[(&name, Type::NAME)]).await?;
    row.map(|row| Ok(state(column(&row, 0)?, column(&row, 1)?))).transpose()
}

/// A role with nothing but the right to replicate, whoever had its name before.
pub(super) async fn ensure_role(session: &Session, name: &str, password: &str) -> Result<()> {
    let action = "letting a replica in";
    let look = "SELECT EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid OR roleid = r.oid) \
                    OR EXISTS (SELECT FROM pg_db_role_setting WHERE setrole = r.oid) OR NOT rolreplication \
                FROM pg_authid r WHERE rolname = $1";
    let found = session.query_opt(action, look, &[(&name, Type::NAME)]).await?;
    let is_other: Option<bool> = found.as_ref().map(|row| column(row, 0)).transpose()?;
    if is_other == Some(true) {
        drop_role(session, name).await?;
    }
    // Before 16, whoever may create roles could drop or become any that is not a
    // superuser; it signs in by replication only, whatever it is.
    let rank = if session.major() < 16 { "SUPERUSER" } else { "NOSUPERUSER" };
    let rights = format!(
        "{rank} LOGIN REPLICATION NOCREATEDB NOCREATEROLE NOBYPASSRLS NOINHERIT CONNECTION LIMIT -1 \
         PASSWORD '{password}' VALID UNTIL 'infinity'"
    );
    let verb = if is_other == Some(false) { "ALTER" } else { "CREATE" };
    session.execute(action, &format!("{verb} ROLE {name} {rights}")).await
}

/// Drops the roles of all replicas: a copy has none.
pub(super) async fn drop_inherited(session: &Session) -> Result<()> {
    let query = "SELECT rolname::text FROM pg_authid WHERE rolreplication AND rolname ~ $1";
    for row in session.query("looking for roles of replicas", query, &[(&NAMES, Type::TEXT)]).await? {
        drop_role(session, &column::<String>(&row, 0)?).await?;
    }
    Ok(())
}

/// Drops a role, or, where something hangs on it, leaves it without any right
/// under another name.
pub(super) async fn drop_role(session: &Session, name: &str) -> Result<()> {
    let action = "dropping the role of a replica";
    if session.execute(action, &format!("DROP ROLE IF EXISTS {name}")).await.is_ok() {
        return Ok(());
    }
    let statements = [
        format!("ALTER ROLE {name} NOLOGIN NOSUPERUSER NOREPLICATION PASSWORD NULL"),
        format!("ALTER ROLE {name} RENAME TO former_{name}_{}", chrono::Utc::now().timestamp_millis()),
    ];
    session.transaction(action, &statements).await
}
