//! What of PostgreSQL's own is closed: system views that could be written through, and `template1`.
//!
//! A view on one table is updatable, and what is written through it is checked as its owner (PostgreSQL
//! manual, CREATE VIEW, "Updatable Views"). A few system views are such views on `pg_authid` and
//! `pg_database`, and belong to the superuser. Nobody was granted to write to them, but `pg_write_all_data`
//! is kept from catalogues only, and not from views: who has it could give roles other names and numbers,
//! and so become a superuser. In every database of a server they become what they were, and not updatable.
//!
//! Into `template1` everybody is let in as `initdb` leaves it, and nobody can make a database, which is a copy of
//! it, while somebody else is there or has a transaction prepared there. As into the platform's own database, only
//! the managed role is let in.
//!
//! A file among a server's data, which goes along with its copies, says that it is done: databases that are
//! made later are copies of these.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use coppice_core::branch::MANAGED_ROLE;
use tokio_postgres::types::Type;

use super::blockers::insist;
use super::blocking::blocking;
use super::connecting::Address;
use super::session::{PLATFORM_DATABASE, Patience, Session, column, named};
use super::untrusted::UntrustedPath;
use crate::{EngineError, Result};

/// Says that all of it is closed.
const MARK: &CStr = c"coppice.closed";
/// The database that others are copies of where nothing else is said.
pub(super) const TEMPLATE_DATABASE: &str = "template1";
/// The databases that `initdb` makes.
pub(super) const FIRST_DATABASES: [&str; 3] = [TEMPLATE_DATABASE, "template0", PLATFORM_DATABASE];
/// The work that sessions keep waiting.
const PURPOSE: &str = "closing system views";

/// Databases of a server that are looked into, and how long that may take altogether.
const DATABASES_MAX: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(15);

/// Closes the views of the database that it is run in: one that has a limit or an offset is not updatable.
/// On one line, as a single-user session reads statements, which begins with another search path than the
/// platform's sessions.
pub(super) const CLOSE: &str = "DO $$ DECLARE view pg_catalog.regclass; BEGIN \
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog', true); \
    PERFORM set_config('allow_system_table_mods', 'on', true); \
    FOR view IN SELECT oid FROM pg_class WHERE relkind = 'v' AND relowner = 10 AND oid < 16384 \
        AND pg_relation_is_updatable(oid, false) <> 0 \
        AND NOT EXISTS (SELECT FROM pg_rewrite WHERE ev_class = pg_class.oid AND ev_type <> '1') LOOP \
        EXECUTE format('CREATE OR REPLACE VIEW %s AS %s OFFSET 0', view, rtrim(pg_get_viewdef(view), ';')); \
        IF pg_relation_is_updatable(view, false) <> 0 THEN RAISE 'can still be written through: %', view; END IF; \
    END LOOP; END $$";

/// Closes `template1` to everybody but the managed role. Where that is not there, its repair lets it in.
fn close_template() -> String {
    format!(
        "DO $$ BEGIN REVOKE CONNECT ON DATABASE {TEMPLATE_DATABASE} FROM PUBLIC;
             IF EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{MANAGED_ROLE}') THEN
                 GRANT CONNECT ON DATABASE {TEMPLATE_DATABASE} TO {MANAGED_ROLE};
             END IF;
         END $$"
    )
}

/// Whether PostgreSQL's own roles are called as `initdb` called them (`pg_authid.dat`).
const HAS_ITS_ROLES: &str = "SELECT count(*) = 6 FROM pg_catalog.pg_authid WHERE (oid, rolname) IN
    ((3373, 'pg_monitor'), (4569, 'pg_read_server_files'), (4570, 'pg_write_server_files'),
     (4571, 'pg_execute_server_program'), (6181, 'pg_read_all_data'), (6182, 'pg_write_all_data'))";

/// Whether all of a server is closed. Blocks.
///
/// # Errors
/// When its directory can't be read.
pub(super) fn are_closed(data: &UntrustedPath) -> Result<bool> {
    let marked = data.require().and_then(|data| data.file(MARK));
    Ok(marked.map_err(EngineError::io("looking whether system views are closed"))?.is_some())
}

/// Notes that it is. Blocks.
///
/// # Errors
/// When its directory can't be written to.
pub(super) fn note_closed(data: &UntrustedPath) -> Result<()> {
    // Whoever takes a backup of the server reads it.
    let noted = data.require().and_then(|data| data.put_empty(MARK, c"PG_VERSION"));
    noted.map_err(EngineError::io("noting that system views are closed"))
}

/// Closes `template1` and the views in all databases of a running server, unless that is done.
///
/// # Errors
/// When that can't be done in some database, or somebody has written through them.
pub(super) async fn close(address: &Address, data: &UntrustedPath) -> Result<()> {
    let looked = data.clone();
    if blocking(move || are_closed(&looked)).await? {
        return Ok(());
    }
    let session = address.open(Patience::CHANGE).await?;
    let deadline = Instant::now() + PATIENCE;
    let mut done = vec![];
    loop {
        let left = databases(&session, &done).await?;
        if left.is_empty() {
            break;
        }
        for database in left {
            if done.len() >= DATABASES_MAX || Instant::now() > deadline {
                return Err(EngineError::Other("it has too many databases to look into".to_owned()));
            }
            close_inside(address, &session, &database).await?;
            done.push(database.number);
        }
    }
    let statement = close_template();
    insist(address, PURPOSE, session.execute("closing template1", &statement)).await?;
    let row = session.query_one("looking at PostgreSQL's own roles", HAS_ITS_ROLES, &[]).await?;
    if !column::<bool>(&row, 0)? {
        return Err(EngineError::Other("somebody has given PostgreSQL's own roles other names".to_owned()));
    }
    let data = data.clone();
    blocking(move || note_closed(&data)).await
}

/// A database of a server.
struct Database {
    number: u32,
    /// None by a name in UTF-8.
    name: Option<String>,
    takes_connections: bool,
}

/// Those whose views are still to be closed, or some of very many; nobody can use one that was dropped by half.
/// `template0` takes connections only where the closing of its own views ended in between.
async fn databases(session: &Session, done: &Vec<u32>) -> Result<Vec<Database>> {
    let query =
        "SELECT oid, datname::text, datallowconn AND datname <> 'template0' FROM pg_catalog.pg_database
                 WHERE datconnlimit <> -2 AND oid <> ALL ($1) ORDER BY datistemplate DESC, oid LIMIT 1000";
    let rows = session.query("listing databases", query, &[(done, Type::OID_ARRAY)]).await?;
    let database = |row| {
        Ok(Database { number: column(row, 0)?, name: named(row, 1)?, takes_connections: column(row, 2)? })
    };
    rows.iter().map(database).collect()
}

async fn close_inside(address: &Address, session: &Session, database: &Database) -> Result<()> {
    let Some(name) = &database.name else {
        return Err(EngineError::Other("a database of it has a name that is no UTF-8".to_owned()));
    };
    let closing = async {
        let inside = address.open_inside(name, session.major(), Patience::CHANGE).await?;
        inside.execute("closing system views", CLOSE).await
    };
    if database.takes_connections {
        return insist(address, PURPOSE, closing).await;
    }
    let let_in = async |is_let_in: bool| {
        let statement = format!(
            "UPDATE pg_catalog.pg_database SET datallowconn = {is_let_in} WHERE oid = {}",
            database.number
        );
        insist(address, PURPOSE, session.execute("opening a database", &statement)).await
    };
    let_in(true).await?;
    let closed = insist(address, PURPOSE, closing).await;
    let_in(false).await?;
    closed
}
