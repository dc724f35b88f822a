//! The managed role: the one whose password the platform knows.
//!
//! Its owner may lock it out, rename it or drop it. Whoever sets its password
//! therefore makes it usable again: it exists, may sign in, owns its database,
//! and may do what it could do when it was made.

use coppice_core::branch::{MANAGED_DATABASE, MANAGED_ROLE};
use tokio_postgres::Client;

use crate::{EngineError, Result};

/// The verifier that the role signs in with; none when it can't sign in.
pub(super) async fn verifier(client: &Client) -> Result<Option<String>> {
    let row = client
        .query_opt(
            "SELECT rolpassword FROM pg_catalog.pg_authid WHERE rolname = $1 AND rolcanlogin
             AND rolconnlimit <> 0 AND (rolvaliduntil IS NULL OR rolvaliduntil > now())",
            &[&MANAGED_ROLE],
        )
        .await
        .map_err(EngineError::sql("reading the managed role's verifier"))?;
    Ok(row.and_then(|row| row.get(0)))
}

/// Makes the role what it was made as, with this verifier.
pub(super) async fn repair(client: &Client, verifier: &str) -> Result<()> {
    let action = || EngineError::sql("setting the managed role's password");
    let exists = client
        .query_opt("SELECT FROM pg_catalog.pg_roles WHERE rolname = $1", &[&MANAGED_ROLE])
        .await
        .map_err(action())?
        .is_some();
    let mut statements = vec!["BEGIN".to_owned()];
    if !exists {
        statements.extend(creation(client).await?);
    }
    // A verifier has no quote in it, whoever made it.
    let verifier = verifier.replace('\'', "");
    statements.push(format!(
        "ALTER ROLE {MANAGED_ROLE} LOGIN CREATEDB CREATEROLE CONNECTION LIMIT -1 PASSWORD '{verifier}' \
         VALID UNTIL 'infinity'"
    ));
    statements.push("COMMIT".to_owned());
    let done = client.batch_execute(&statements.join("; ")).await;
    if let Err(error) = done {
        // The session may be used again.
        let _ = client.batch_execute("ROLLBACK").await;
        return Err(action()(error));
    }
    let may_connect: Option<bool> = client
        .query_one(
            "SELECT (SELECT has_database_privilege($1, oid, 'CONNECT') FROM pg_catalog.pg_database
                     WHERE datname = $2)",
            &[&MANAGED_ROLE, &MANAGED_DATABASE],
        )
        .await
        .map_err(action())?
        .get(0);
    if may_connect == Some(false) {
        let grant = format!("GRANT CONNECT ON DATABASE {MANAGED_DATABASE} TO {MANAGED_ROLE}");
        client.batch_execute(&grant).await.map_err(action())?;
    }
    Ok(())
}

/// What makes the role anew where it was renamed or dropped: it gets its
/// database back, and everything that belongs to the database's owner of now.
async fn creation(client: &Client) -> Result<Vec<String>> {
    let row = client
        .query_opt(
            "SELECT quote_ident(r.rolname), r.rolsuper FROM pg_catalog.pg_database d
             JOIN pg_catalog.pg_roles r ON r.oid = d.datdba WHERE d.datname = $1",
            &[&MANAGED_DATABASE],
        )
        .await
        .map_err(EngineError::sql("looking for the owner of the managed database"))?;
    let mut statements = vec![
        format!("CREATE ROLE {MANAGED_ROLE}"),
        format!("GRANT pg_monitor, pg_signal_backend TO {MANAGED_ROLE}"),
        format!("GRANT CONNECT ON DATABASE postgres TO {MANAGED_ROLE}"),
    ];
    if let Some(row) = row {
        let (owner, is_superuser): (String, bool) = (row.get(0), row.get(1));
        if !is_superuser {
            statements.push(format!("GRANT {owner} TO {MANAGED_ROLE} WITH ADMIN OPTION"));
        }
        statements.push(format!("ALTER DATABASE {MANAGED_DATABASE} OWNER TO {MANAGED_ROLE}"));
    }
    Ok(statements)
}
