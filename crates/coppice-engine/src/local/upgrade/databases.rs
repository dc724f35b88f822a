//! Databases: what they are as a whole, and who owns what is in them.

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::quoting::{self, in_one_line};
use super::roles::{Copied, said};
use crate::local::connecting::Address;
use crate::local::owned;
use crate::local::session::{PLATFORM_ROLE, Parameter, Patience, Session, column};
use crate::{EngineError, Result};
use coppice_core::branch::MANAGED_ROLE;

/// Objects whose owners are carried over in one go.
const OBJECTS_AT_ONCE: i64 = 1000;

/// The statement that gives such an object to its owner, made by the server that has
/// the object, of its own names. Code of the owner's may have put something else in its
/// place meanwhile, so only what the role that restores owns is given away: never a
/// member of an extension, or anything of the platform's.
fn giving() -> String {
    let kind = owned::KIND;
    format!(
        "SELECT format('ALTER %s %s OWNER TO %I', {kind}, i.identity, w.owner)
        FROM jsonb_to_recordset($1::text::jsonb) AS w (owner text, type text, names jsonb, args jsonb)
        CROSS JOIN LATERAL pg_catalog.pg_get_object_address(w.type,
            ARRAY(SELECT jsonb_array_elements_text(w.names)), ARRAY(SELECT jsonb_array_elements_text(w.args))) a
        CROSS JOIN LATERAL pg_catalog.pg_identify_object(a.classid, a.objid, a.objsubid) i
        WHERE EXISTS (SELECT FROM pg_catalog.pg_shdepend s
                JOIN pg_catalog.pg_database d ON d.oid = s.dbid AND d.datname = current_database()
                WHERE s.classid = a.classid AND s.objid = a.objid AND s.deptype = 'o'
                  AND s.refclassid = 'pg_authid'::regclass AND s.refobjid = $2::text::regrole)
           OR a.classid = 'pg_namespace'::regclass AND a.objid = (SELECT oid FROM pg_catalog.pg_namespace
                WHERE nspname = 'public' AND nspowner = 'pg_database_owner'::regrole)"
    )
}

/// A database, as it is on the old server.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) name: String,
    owner: String,
    encoding: String,
    collation: String,
    character_type: String,
    provider: String,
    locale: String,
    /// How an order of ICU differs from that of its locale; empty where it does not.
    rules: String,
    connections: i32,
    is_open: bool,
    is_template: bool,
    comment: String,
    has_grants: bool,
}

impl Database {
    /// Its name in a statement.
    fn quoted(&self) -> String {
        quoting::name(&self.name)
    }

    /// What is told of its owner, if that did not go over.
    pub(super) fn lost_owner(&self, copied: &Copied) -> Option<String> {
        let is_lost = self.owner != PLATFORM_ROLE && !copied.may_own(&self.owner);
        is_lost.then(|| in_one_line(&format!("{} as an owner", self.owner)))
    }

    /// What makes it, empty, for a role. The collation that branches of older versions
    /// have is one of the C library; where PostgreSQL brings the same order itself, it
    /// is that from now on.
    fn statement(&self, owner: &str, major: u32) -> String {
        let usual = ["C.UTF-8", "C.utf8"];
        let is_usual =
            [&self.collation, &self.character_type].iter().all(|name| usual.contains(&name.as_str()));
        let locale = match self.provider.as_str() {
            "c" if major >= 17 && is_usual && self.encoding == "UTF8" => {
                "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8'".to_owned()
            }
            "b" => format!("LOCALE_PROVIDER builtin BUILTIN_LOCALE {}", quoting::text(&self.locale)),
            "i" => {
                let rules = Some(&self.rules).filter(|rules| !rules.is_empty());
                let rules = rules.map(|rules| format!(" ICU_RULES {}", quoting::text(rules)));
                format!(
                    "LOCALE_PROVIDER icu ICU_LOCALE {}{}",
                    quoting::text(&self.locale),
                    rules.unwrap_or_default()
                )
            }
            _ => "LOCALE_PROVIDER libc".to_owned(),
        };
        format!(
            "CREATE DATABASE {} OWNER {} TEMPLATE template0 ENCODING {} LC_COLLATE {} LC_CTYPE {} {locale}",
            self.quoted(),
            quoting::name(owner),
            quoting::text(&self.encoding),
            quoting::text(&self.collation),
            quoting::text(&self.character_type),
        )
    }
}

/// Everything but what `initdb` made; nobody can give its names to another one.
pub(super) async fn all(old: &Session) -> Result<Vec<Database>> {
    let locale = if old.major() >= 17 { "datlocale" } else { "daticulocale" };
    let rules = if old.major() >= 16 { "daticurules" } else { "NULL" };
    let query = format!(
        "SELECT datname, rolname, pg_encoding_to_char(encoding), datcollate, datctype, datlocprovider::text,
                coalesce({locale}, ''), datconnlimit, datallowconn, datistemplate,
                coalesce(shobj_description(d.oid, 'pg_database'), ''), datacl IS NOT NULL,
                coalesce({rules}, '')
         FROM pg_catalog.pg_database d JOIN pg_catalog.pg_authid r ON r.oid = d.datdba
         WHERE datname NOT IN ('postgres', 'template0', 'template1') AND datconnlimit <> -2 ORDER BY d.oid"
    );
    let rows = old.query("listing databases", &query, &[]).await?;
    let read = |row: &Row| -> Result<Database> {
        Ok(Database {
            name: said(row, 0)?,
            owner: said(row, 1)?,
            encoding: said(row, 2)?,
            collation: said(row, 3)?,
            character_type: said(row, 4)?,
            provider: said(row, 5)?,
            locale: said(row, 6)?,
            connections: column(row, 7)?,
            is_open: column(row, 8)?,
            is_template: column(row, 9)?,
            comment: said(row, 10)?,
            has_grants: column(row, 11)?,
            rules: said(row, 12)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Opens a database on the old server, which is a copy that nobody else uses.
pub(super) async fn open(old: &Session, database: &Database) -> Result<()> {
    match database.is_open {
        true => Ok(()),
        false => {
            let statement = format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", database.quoted());
            old.execute("opening a database", &statement).await
        }
    }
}

/// Makes it on the new server, with the schemas that it has there.
pub(super) async fn make(
    database: &Database,
    old: &Session,
    new: &Session,
    to: &Address,
    owner: &str,
) -> Result<()> {
    let action = format!("making the database {}", database.name);
    new.execute(&action, &database.statement(owner, new.major())).await?;
    let public = "SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'public'";
    if old.query_opt("looking for the schema public", public, &[]).await?.is_none() {
        let inside = to.open_inside(&database.name, new.major(), Patience::WORK).await?;
        inside.execute("dropping the schema public", "DROP SCHEMA public").await?;
    }
    Ok(())
}

/// Forgets what code of the owner's set for a database while it was restored. What they set on the old server is
/// copied at the end.
pub(super) async fn forget_settings(database: &Database, new: &Session) -> Result<()> {
    let statement = format!("ALTER DATABASE {} RESET ALL", database.quoted());
    new.execute("forgetting settings of a database", &statement).await
}

/// Gives everything in a database to whom it belongs; what nobody knows of, which code of
/// the owner's may have made meanwhile, to the managed role. `old` and `new` are sessions
/// in that database.
///
/// # Errors
/// [`EngineError::NotUpgradable`] names what belongs to a role that does not go over: whoever had it
/// would run it as whoever got it.
pub(super) async fn give_back(
    (old, new): (&Session, &Session),
    database: &Database,
    copied: &Copied,
    restorer: &str,
) -> Result<()> {
    let quoted_restorer = quoting::name(restorer);
    for source in [owned::BY_ROLES, owned::BY_POSTGRES] {
        let query = format!(
            "SELECT s.classid, s.objid, r.rolname,
                 (SELECT jsonb_build_object('type', a.type, 'names', a.object_names, 'args', a.object_args)::text
                  FROM pg_catalog.pg_identify_object_as_address(s.classid, s.objid, s.objsubid) a),
                 format('%s %s', i.type, i.identity)
             FROM {} AND (s.classid, s.objid) > ($1, $2) ORDER BY s.classid, s.objid LIMIT $3",
            owned::things(source)
        );
        let (mut class, mut object) = (0_u32, 0_u32);
        loop {
            let place: [Parameter<'_>; 3] =
                [(&class, Type::OID), (&object, Type::OID), (&OBJECTS_AT_ONCE, Type::INT8)];
            let rows = old.query("reading owners", &query, &place).await?;
            let Some(last) = rows.last() else { break };
            (class, object) = (column(last, 0)?, column(last, 1)?);
            let wanted = rows.iter().map(|row| wanted(row, database, copied)).collect::<Result<Vec<_>>>()?;
            let wanted = serde_json::Value::Array(wanted).to_string();
            let wanted: [Parameter<'_>; 2] = [(&wanted, Type::TEXT), (&quoted_restorer, Type::TEXT)];
            let statements = new.query("finding what was restored", &giving(), &wanted).await?;
            let statements = statements.iter().map(|row| said(row, 0)).collect::<Result<Vec<_>>>()?;
            new.transaction("giving objects to their owners", &statements).await?;
        }
    }
    give_extensions((old, new), copied, &quoted_restorer).await?;
    let rest = format!(
        "REASSIGN OWNED BY {quoted_restorer} TO {}; DROP OWNED BY {quoted_restorer}",
        quoting::name(MANAGED_ROLE)
    );
    new.execute("giving away what is left", &rest).await
}

/// What is given to whom.
fn wanted(row: &Row, database: &Database, copied: &Copied) -> Result<serde_json::Value> {
    let (owner, known, what) = (said(row, 2)?, said(row, 3)?, said(row, 4)?);
    if !copied.may_own(&owner) {
        let why = format!(
            "database {}: {what} belongs to {owner}, which is no role of the branch's: look at what it does, and drop it \
             or give it to {MANAGED_ROLE} (ALTER … OWNER TO {MANAGED_ROLE})",
            database.name
        );
        return Err(EngineError::NotUpgradable(in_one_line(&why)));
    }
    let mut known: serde_json::Value = serde_json::from_str(&known)
        .map_err(|error| EngineError::Other(format!("reading owners: {error}")))?;
    known["owner"] = owner.into();
    Ok(known)
}

/// No statement gives an extension to somebody else.
async fn give_extensions(
    (old, new): (&Session, &Session),
    copied: &Copied,
    quoted_restorer: &str,
) -> Result<()> {
    let query = "SELECT extname, rolname FROM pg_catalog.pg_extension e
         JOIN pg_catalog.pg_authid r ON r.oid = e.extowner";
    for row in old.query("reading extensions", query, &[]).await? {
        let owner = said(&row, 1)?;
        if !copied.may_own(&owner) {
            continue;
        }
        let (extension, owner) = (quoting::text(&said(&row, 0)?), quoting::text(&owner));
        let owner = format!("(SELECT oid FROM pg_catalog.pg_authid WHERE rolname = {owner})");
        let own = format!("extname = {extension} AND extowner = {}::regrole", quoting::text(quoted_restorer));
        let statements = [
            format!(
                "UPDATE pg_catalog.pg_shdepend s SET refobjid = {owner} FROM pg_catalog.pg_extension e,
                     pg_catalog.pg_database d
                 WHERE d.datname = current_database() AND s.dbid = d.oid AND s.classid = 'pg_extension'::regclass
                   AND s.objid = e.oid AND s.deptype = 'o' AND {own}"
            ),
            format!("UPDATE pg_catalog.pg_extension SET extowner = {owner} WHERE {own}"),
        ];
        new.transaction("giving an extension to its owner", &statements).await?;
    }
    Ok(())
}

/// Gives a database itself to its owner, with what is granted on it.
pub(super) async fn finish(
    database: &Database,
    (old, new): (&Session, &Session),
    copied: &Copied,
) -> Result<()> {
    let name = database.quoted();
    let owner = Some(database.owner.as_str()).filter(|owner| copied.may_own(owner)).unwrap_or(MANAGED_ROLE);
    let owner = quoting::name(owner);
    let mut statements = vec![format!("ALTER DATABASE {name} OWNER TO {owner}")];
    if database.has_grants {
        statements.push(format!("REVOKE ALL ON DATABASE {name} FROM PUBLIC, {owner}"));
        let query = "SELECT coalesce(g.rolname, ''), a.privilege_type, a.is_grantable
             FROM pg_catalog.pg_database d CROSS JOIN LATERAL pg_catalog.aclexplode(d.datacl) a
             LEFT JOIN pg_catalog.pg_authid g ON g.oid = a.grantee WHERE d.datname = $1";
        let parameter: &(dyn ToSql + Sync) = &database.name;
        for row in old.query("reading grants", query, &[(parameter, Type::NAME)]).await? {
            let to = match said(&row, 0)?.as_str() {
                "" => "PUBLIC".to_owned(),
                role => quoting::name(role),
            };
            let privilege = privilege(&said(&row, 1)?)?;
            let option = if column(&row, 2)? { " WITH GRANT OPTION" } else { "" };
            statements.push(format!("GRANT {privilege} ON DATABASE {name} TO {to}{option}"));
        }
    }
    if !database.comment.is_empty() {
        statements.push(format!("COMMENT ON DATABASE {name} IS {}", quoting::text(&database.comment)));
    }
    let (connections, is_open, is_template) = (database.connections, database.is_open, database.is_template);
    statements.push(format!(
        "ALTER DATABASE {name} WITH CONNECTION LIMIT {connections} ALLOW_CONNECTIONS {is_open} IS_TEMPLATE {is_template}"
    ));
    new.transaction(&format!("finishing the database {}", database.name), &statements).await
}

fn privilege(name: &str) -> Result<&'static str> {
    let known = ["CREATE", "CONNECT", "TEMPORARY"].into_iter().find(|known| *known == name);
    known.ok_or_else(|| EngineError::Other("a database grants what no database has".to_owned()))
}
