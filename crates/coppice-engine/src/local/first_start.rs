//! The first start of a copy: what it must not share with its source.
//!
//! A copy believes that it is its source. Left alone it would take over the
//! source's subscriptions at their publishers, and the source would lose rows.
//! So before clients are let in: inherited replication slots go before the
//! server starts; it starts unable to load what a subscription connects with;
//! subscriptions are disabled and detached from their slots; prepared
//! transactions are rolled back; statistics of statements are reset; the
//! managed role is repaired and gets the branch's own password; logins of keys
//! end, since each of them is for one branch, and so do the roles of replicas.

use super::connecting::Address;
use super::session::{Patience, Session, column};
use super::untrusted::UntrustedPath;
use super::{logins, managed_role, prepared, replica_slots};
use crate::{EngineError, Result};

/// The library whose statistics a copy inherits.
pub(super) const STATISTICS: &str = "pg_stat_statements";

/// Replication slots that are looked at before they are removed.
const SLOTS_AT_ONCE: usize = 1024;

/// Removes what only the source's server may use, before the first start. Blocks.
pub(super) fn remove_inherited_files(data: &UntrustedPath) -> Result<()> {
    let action = || EngineError::io("removing inherited replication slots");
    let data = data.require().map_err(action())?;
    let Some(slots) = data.directory("pg_replslot").map_err(action())? else { return Ok(()) };
    loop {
        let names = slots.names(SLOTS_AT_ONCE).map_err(action())?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            slots.remove(&name).map_err(action())?;
        }
    }
}

/// Makes a started copy its own, except for the reload that ends its first start.
/// Prepared transactions go first: nothing else is there that could hold a lock
/// for ever. Logins of keys end where `is_copy`: they are of another branch then.
pub(super) async fn detach_from_source(
    address: &Address,
    managed_role_verifier: &str,
    has_statistics: bool,
    is_copy: bool,
) -> Result<Session> {
    let session = address.open(Patience::CHANGE).await?;
    prepared::roll_back(address, session.major(), &prepared::all(&session).await?).await?;
    disable_subscriptions(&session).await?;
    if has_statistics {
        reset_statistics(&session).await?;
    }
    managed_role::repair(address, &session, managed_role_verifier).await?;
    if is_copy {
        logins::end_inherited(address, &session).await?;
    }
    replica_slots::drop_inherited(&session).await?;
    Ok(session)
}

/// The catalog is shared by all databases, so one session reaches all of them.
/// Detached from its slot, a subscription can also be dropped without its
/// publisher.
async fn disable_subscriptions(session: &Session) -> Result<()> {
    let statement = "UPDATE pg_catalog.pg_subscription SET subenabled = false, subslotname = NULL";
    session.execute("disabling inherited subscriptions", statement).await
}

async fn reset_statistics(session: &Session) -> Result<()> {
    let action = "resetting inherited statistics";
    let query = "SELECT quote_ident(n.nspname) FROM pg_catalog.pg_extension e
         JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'";
    let Some(place) = session.query_opt(action, query, &[]).await? else { return Ok(()) };
    let schema: String = column(&place, 0)?;
    // The server itself can't load libraries yet.
    let statements = [
        "SET LOCAL dynamic_library_path = '$libdir'".to_owned(),
        format!("SELECT {schema}.pg_stat_statements_reset()"),
    ];
    session.transaction(action, &statements).await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn slots_go_and_what_is_linked_in_their_place_stays() {
        let home = tempfile::tempdir().unwrap();
        let (data, host) = (UntrustedPath::new(home.path(), "data"), home.path().join("host"));
        let slots = data.host_path().join("pg_replslot");
        fs::create_dir_all(host.join("precious/deeper")).unwrap();
        fs::create_dir_all(slots.join("slot")).unwrap();
        fs::write(slots.join("slot/state"), "").unwrap();
        symlink(&host, slots.join("link")).unwrap();
        remove_inherited_files(&data).unwrap();
        assert_eq!(fs::read_dir(&slots).unwrap().count(), 0);

        fs::remove_dir(&slots).unwrap();
        symlink(&host, &slots).unwrap();
        assert!(remove_inherited_files(&data).is_err());
        assert!(host.join("precious/deeper").exists());
    }
}
