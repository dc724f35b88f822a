//! What a role of a running server needs to prove.

use tokio_postgres::types::Type;

use super::following::NAMES;
use super::own_relations::READS_AS_A_SIGN_IN;
use super::session::{PLATFORM_ROLE, Parameter, Session, column};
use crate::{Result, RoleVerifier, VERIFIER_LENGTH_MAX};

/// None when there is no such role, or it is one of the platform's.
///
/// # Errors
/// When the server does not answer.
pub(super) async fn of_role(session: &Session, role: &str) -> Result<Option<RoleVerifier>> {
    let query = format!(
        "SELECT CASE WHEN octet_length(rolpassword) <= $3 THEN rolpassword END
         FROM pg_catalog.pg_authid WHERE rolname = $1 AND rolname <> $2 AND rolname !~ '^pg_'
           AND rolname !~ $4 AND {READS_AS_A_SIGN_IN}"
    );
    let length_max = VERIFIER_LENGTH_MAX as i32;
    let parameters: [Parameter<'_>; 4] =
        [(&role, Type::NAME), (&PLATFORM_ROLE, Type::NAME), (&length_max, Type::INT4), (&NAMES, Type::TEXT)];
    let Some(row) = session.query_opt("reading a role's verifier", &query, &parameters).await? else {
        return Ok(None);
    };
    Ok(Some(match column::<Option<String>>(&row, 0)? {
        None => RoleVerifier::NoPassword,
        Some(text) if text.starts_with("SCRAM-SHA-256$") => RoleVerifier::Scram(text),
        Some(_) => RoleVerifier::Md5,
    }))
}
