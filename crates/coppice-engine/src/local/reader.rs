//! The reader: the role that statements are carried out as which may only read.
//!
//! It is made right before it is used, on whatever is there: a branch that was
//! made before there was such a role, a copy that has its parent's, or one whose
//! owner dropped, renamed or changed it. Nobody is told its password. What it may
//! read is what its owner's roles may, too, so there is nothing to gain by
//! becoming it; that it writes nothing is the business of the transaction that
//! its statements are in.

use tokio_postgres::types::Type;

use coppice_core::branch::READER_ROLE;

use super::session::{Session, column};
use crate::{EngineError, Result};

/// Most sessions of it at once.
const SESSIONS_MAX: i32 = 8;
/// How often it is looked at again after somebody else changed it meanwhile.
const ATTEMPTS_MAX: u32 = 4;

/// How the role was found.
enum Found {
    /// It is not there.
    Missing,
    /// It may do what it should, and signs in with the verifier.
    Ready,
    /// It may do what it should.
    Other,
    /// It may do more or less, or another role has its name. This is its oid.
    Changed(u32),
}

/// Has the role be there with this verifier, and do no more than read.
///
/// # Errors
/// When the server does not answer, or somebody changes the role all the time.
pub(super) async fn ensure(session: &Session, verifier: &str) -> Result<()> {
    let mut last = None;
    for _ in 0..ATTEMPTS_MAX {
        let done = match look(session, verifier).await? {
            Found::Ready => return Ok(()),
            Found::Missing => make(session, verifier).await,
            Found::Other => give_verifier(session, verifier).await,
            Found::Changed(oid) => set_aside(session, oid).await,
        };
        // Somebody else may have done the same at the same time.
        last = done.err().or(last);
    }
    Err(last.unwrap_or_else(|| EngineError::Other(format!("the role {READER_ROLE} is changed all the time"))))
}

/// Ends a session of a role, also one that does not want to.
///
/// # Errors
/// When the server does not answer.
pub(super) async fn end_session(session: &Session, role: &str, process: i32) -> Result<()> {
    let query = "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
                 WHERE pid = $1 AND usename = $2";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&process, Type::INT4), (&role, Type::NAME)];
    session.query("ending a session", query, &parameters).await.map(drop)
}

async fn look(session: &Session, verifier: &str) -> Result<Found> {
    let query = "
        SELECT r.oid,
               rolcanlogin AND rolconnlimit = $3 AND rolpassword IS NOT DISTINCT FROM $2
                   AND (rolvaliduntil IS NULL OR rolvaliduntil > now()),
               rolinherit AND rolbypassrls AND NOT (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication)
                   AND 1 = (SELECT count(*) FROM pg_catalog.pg_auth_members WHERE member = r.oid OR roleid = r.oid)
                   AND EXISTS (SELECT FROM pg_catalog.pg_auth_members m
                               JOIN pg_catalog.pg_roles a ON a.oid = m.roleid
                               WHERE m.member = r.oid AND a.rolname = 'pg_read_all_data' AND NOT m.admin_option)
                   AND NOT EXISTS (SELECT FROM pg_catalog.pg_db_role_setting WHERE setrole = r.oid)
        FROM pg_catalog.pg_authid r WHERE rolname = $1";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&READER_ROLE, Type::NAME), (&verifier, Type::TEXT), (&SESSIONS_MAX, Type::INT4)];
    let Some(row) = session.query_opt("looking at the reader", query, &parameters).await? else {
        return Ok(Found::Missing);
    };
    let (oid, is_ready, is_pure): (u32, bool, bool) = (column(&row, 0)?, column(&row, 1)?, column(&row, 2)?);
    Ok(match (is_pure, is_ready) {
        (true, true) => Found::Ready,
        (true, false) => Found::Other,
        (false, _) => Found::Changed(oid),
    })
}

async fn make(session: &Session, verifier: &str) -> Result<()> {
    let statements = [
        format!(
            "CREATE ROLE {READER_ROLE} LOGIN INHERIT BYPASSRLS CONNECTION LIMIT {SESSIONS_MAX} PASSWORD '{}'",
            unquoted(verifier)
        ),
        format!("GRANT pg_read_all_data TO {READER_ROLE}"),
    ];
    session.transaction("making the reader", &statements).await
}

async fn give_verifier(session: &Session, verifier: &str) -> Result<()> {
    let statement = format!(
        "ALTER ROLE {READER_ROLE} LOGIN CONNECTION LIMIT {SESSIONS_MAX} PASSWORD '{}' VALID UNTIL 'infinity'",
        unquoted(verifier)
    );
    session.execute("giving the reader its verifier", &statement).await
}

/// Makes room for the role: what has its name goes, or, where something hangs
/// on it, keeps what it has under another name.
async fn set_aside(session: &Session, oid: u32) -> Result<()> {
    let action = "setting a role aside that has the reader's name";
    if session.execute(action, &format!("DROP ROLE {READER_ROLE}")).await.is_ok() {
        return Ok(());
    }
    let statements = [
        format!("ALTER ROLE {READER_ROLE} NOLOGIN PASSWORD NULL"),
        format!("ALTER ROLE {READER_ROLE} RENAME TO {READER_ROLE}_{oid}"),
    ];
    session.transaction(action, &statements).await
}

/// A verifier has no quote in it, whoever made it.
fn unquoted(verifier: &str) -> String {
    verifier.replace('\'', "")
}
