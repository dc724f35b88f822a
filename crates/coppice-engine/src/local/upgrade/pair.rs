//! Everything in one server is taken to the other one.

use coppice_failpoint::failpoint;

use super::databases::{self, Database};
use super::evaluated;
use super::grants;
use super::programs::{Programs, RESTORER_OPTIONS, Run, platform_options};
use super::quoting::{self, in_one_line};
use super::relay::{LIST, Relay};
use super::roles::{self, Copied, said};
use super::views;
use crate::local::connecting::Address;
use crate::local::owned;
use crate::local::prepared;
use crate::local::server::make_directory;
use crate::local::session::{PLATFORM_ROLE, Patience, Session};
use crate::{EngineError, Result, UpgradePlan};

/// The two servers.
pub(super) struct Pair<'a> {
    pub(super) plan: &'a UpgradePlan,
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) programs: Programs,
    /// Who owns everything while it is restored.
    pub(super) restorer: String,
    pub(super) password: String,
}

/// What a server refuses once, it refuses again.
fn hopeless(error: EngineError) -> EngineError {
    match &error {
        EngineError::Sql { source, .. } if source.as_db_error().is_some() => {
            EngineError::NotUpgradable(in_one_line(&error.chain()))
        }
        _ => error,
    }
}

impl Pair<'_> {
    /// Takes everything from the one server to the other. Returns the names of settings
    /// that had to be left behind, and which memberships and owners.
    ///
    /// # Errors
    /// [`EngineError::NotUpgradable`] says what can't be taken there.
    pub(super) async fn carry_over(&self) -> Result<Vec<String>> {
        self.carry_over_all().await.map_err(hopeless)
    }

    async fn carry_over_all(&self) -> Result<Vec<String>> {
        let (old, new) = (self.from.open(Patience::WORK).await?, self.to.open(Patience::WORK).await?);
        refuse_what_would_be_lost(&old).await?;
        self.refuse_what_is_made_anew().await?;
        let databases = databases::all(&old).await?;
        new.execute("dropping an empty database", "DROP DATABASE IF EXISTS app").await?;
        let mighty = roles::mighty(&new).await?;
        let (copied, mut left_out) = roles::copy(&old, &new).await?;
        let restorer = quoting::name(&self.restorer);
        let make = format!("CREATE ROLE {restorer} LOGIN PASSWORD {}", quoting::text(&self.password));
        new.execute("making the role that restores", &make).await?;
        for (number, database) in databases.iter().enumerate() {
            let file = format!("{number}.dump");
            self.carry_over_database((&old, &new), &copied, database, &file).await?;
        }
        for database in &databases {
            databases::finish(database, (&old, &new), &copied).await?;
            left_out.extend(database.lost_owner(&copied));
        }
        new.execute("dropping the role that restored", &format!("DROP ROLE {restorer}")).await?;
        if roles::mighty(&new).await? != mighty {
            let why = "a role has become a superuser, or may become one, while everything was restored";
            return Err(EngineError::NotUpgradable(why.to_owned()));
        }
        left_out.extend(roles::copy_settings(&old, &new, &copied).await?);
        failpoint!("upgrade.carried_over");
        Ok(left_out)
    }

    /// The databases of PostgreSQL are made anew, and have hardly anything that is a tenant's.
    async fn refuse_what_is_made_anew(&self) -> Result<()> {
        for database in ["postgres", "template1"] {
            let inside = self.from.open_inside(database, self.plan.from.major, Patience::WORK).await?;
            for source in [owned::BY_ROLES, owned::BY_POSTGRES] {
                let query = format!(
                    "SELECT r.rolname, format('%s %s', i.type, i.identity) FROM {}
                     AND (i.type, i.identity) <> ('schema', 'public') ORDER BY 1, 2 LIMIT 1",
                    owned::things(source)
                );
                let action = "looking at the databases of PostgreSQL";
                if let Some(row) = inside.query_opt(action, &query, &[]).await? {
                    let (owner, what) = (said(&row, 0)?, said(&row, 1)?);
                    return Err(EngineError::NotUpgradable(in_one_line(&format!(
                        "the database {database} is made anew, and has {what} of the role {owner}, which would be lost: \
                         move it to another database first"
                    ))));
                }
            }
        }
        Ok(())
    }

    async fn carry_over_database(
        &self,
        (old, new): (&Session, &Session),
        copied: &Copied,
        database: &Database,
        file: &str,
    ) -> Result<()> {
        databases::open(old, database).await?;
        let (from, to) = (self.plan.from.major, self.plan.label.version.major);
        let inside_old = self.from.open_inside(&database.name, from, Patience::WORK).await?;
        refuse_what_was_added(database, &inside_old).await?;
        evaluated::refuse_of_others(database, &inside_old).await?;
        databases::make(database, &inside_old, new, &self.to, &self.restorer).await?;
        let dump = self.programs.dump(file);
        self.run_on_old(database, "pg_dump", &["--format=custom", "--compress=1", &format!("--file={dump}")])
            .await?;
        failpoint!("upgrade.dumped");
        let listed = self.listed(&dump).await?;
        let (first, filling) = views::split(&listed);
        self.restore(database, &dump, &first).await?;
        databases::forget_settings(database, new).await?;
        let inside_new = self.to.open_inside(&database.name, to, Patience::WORK).await?;
        databases::give_back((&inside_old, &inside_new), database, copied, &self.restorer).await?;
        let granted = grants::of_superusers(&inside_new).await?;
        self.grant(database, &dump, &listed).await?;
        if grants::of_superusers(&inside_new).await? != granted {
            let why = format!(
                "database {}: something is granted on what belongs to PostgreSQL or an extension: REVOKE it first",
                database.name
            );
            return Err(EngineError::NotUpgradable(in_one_line(&why)));
        }
        self.fill(&inside_new, database, &dump, &filling).await?;
        // Code of theirs may have set some meanwhile, too.
        databases::forget_settings(database, new).await?;
        inside_new.execute(&format!("counting what is in {}", database.name), "ANALYZE").await?;
        std::fs::remove_file(self.programs.dumps.join(file)).map_err(EngineError::io("removing a dump"))
    }

    async fn door(&self, to: &Address, role: &str, password: Option<&str>) -> Result<Relay> {
        let Programs { host, instance, account, .. } = &self.programs;
        let directory = host.layout().instance_runtime(instance);
        make_directory(host.layout().runtime_dir(), 0o711)?;
        make_directory(&directory, 0o711)?;
        let home = host.layout().instance(instance);
        make_directory(home.parent().unwrap_or(&home), 0o700)?;
        make_directory(&home, 0o711)?;
        let account = host.account_of_programs(*account);
        let relay = Relay::open(host, &to.instance, directory.join("door"), account).await?;
        if let Some(password) = password {
            relay.leave_password(role, password)?;
        }
        Ok(relay)
    }

    async fn run_on_old(&self, database: &Database, program: &'static str, arguments: &[&str]) -> Result<()> {
        let relay = self.door(&self.from, PLATFORM_ROLE, self.programs.host.secret()).await?;
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let (role, options) = (PLATFORM_ROLE, &platform_options(self.plan.from.major));
        self.programs
            .run(Run { program, arguments, relay: &relay, role, database: &database.name, options })
            .await?;
        Ok(())
    }

    /// The list of what is in a dump.
    async fn listed(&self, dump: &str) -> Result<String> {
        let relay = self.door(&self.to, &self.restorer, Some(&self.password)).await?;
        self.programs.read(&relay, vec!["--list".to_owned(), dump.to_owned()]).await
    }

    /// Everything but what materialized views have, as the property of a role without rights.
    async fn restore(&self, database: &Database, dump: &str, first: &str) -> Result<()> {
        let jobs = format!("--jobs={}", (self.plan.spec.cpu_millis / 1000).clamp(1, 8));
        self.restore_some(database, dump, (first, &jobs)).await?;
        failpoint!("upgrade.filled");
        Ok(())
    }

    /// Fills materialized views, when everything belongs to its owners and is granted.
    async fn fill(&self, new: &Session, database: &Database, dump: &str, filling: &str) -> Result<()> {
        if filling.is_empty() {
            return Ok(());
        }
        let owners = views::join(new, &self.restorer).await?;
        self.restore_some(database, dump, (filling, "--enable-row-security")).await?;
        views::leave(new, &self.restorer, &owners).await
    }

    /// What a list names of a dump, by the role that restores.
    async fn restore_some(
        &self,
        database: &Database,
        dump: &str,
        (list, option): (&str, &str),
    ) -> Result<()> {
        let relay = self.door(&self.to, &self.restorer, Some(&self.password)).await?;
        relay.leave(LIST, list)?;
        let list = format!("--use-list={}", self.programs.list(&relay));
        let arguments = ["--exit-on-error", "--no-owner", "--no-privileges", option, &list, dump];
        let run = Run {
            program: "pg_restore",
            arguments: arguments.map(str::to_owned).into(),
            relay: &relay,
            role: &self.restorer,
            database: &database.name,
            options: RESTORER_OPTIONS,
        };
        self.programs.run(run).await?;
        Ok(())
    }

    /// What is granted, and nothing else of the dump: it evaluates nothing.
    async fn grant(&self, database: &Database, dump: &str, listed: &str) -> Result<()> {
        let relay = self.door(&self.to, PLATFORM_ROLE, self.programs.host.secret()).await?;
        let list = format!("--use-list={}", self.programs.list(&relay));
        let arguments = || vec!["--exit-on-error".to_owned(), list.clone(), dump.to_owned()];
        let options = &platform_options(self.plan.label.version.major);
        let run = || {
            let (program, role) = ("pg_restore", PLATFORM_ROLE);
            Run { program, arguments: arguments(), relay: &relay, role, database: &database.name, options }
        };
        for some in grants::lists(listed) {
            relay.leave(LIST, &some)?;
            let script = [arguments(), vec!["--file=-".to_owned()]].concat();
            if !grants::only_grants(&self.programs.read(&relay, script).await?) {
                let why = format!(
                    "database {}: what it grants can not be told from other statements: REVOKE what is granted on, \
                     or to, what has an unusual name",
                    database.name
                );
                return Err(EngineError::NotUpgradable(in_one_line(&why)));
            }
            self.programs.run(run()).await?;
        }
        Ok(())
    }
}

/// What a dump does not have, and its owner has to decide about.
async fn refuse_what_would_be_lost(old: &Session) -> Result<()> {
    if !prepared::all(old).await?.is_empty() {
        let why = "it has prepared transactions (pg_prepared_xacts lists them): COMMIT PREPARED or ROLLBACK PREPARED \
                   them first";
        return Err(EngineError::NotUpgradable(why.to_owned()));
    }
    let query = "SELECT subname FROM pg_catalog.pg_subscription ORDER BY subname LIMIT 1";
    if let Some(row) = old.query_opt("looking for subscriptions", query, &[]).await? {
        let name = in_one_line(&said(&row, 0)?);
        return Err(EngineError::NotUpgradable(format!(
            "it has the subscription {name}, which would not find its place again: drop it first"
        )));
    }
    Ok(())
}

/// What is an extension's and not by its script, of which a dump has nothing: members of an
/// owner who is no superuser, and what has no owner, of types of such an owner. A language
/// is its owner's by its script, and nobody else makes one; and so may everything be whose
/// script runs as its owner.
fn added() -> String {
    let of_postgres = owned::BY_POSTGRES;
    format!(
        "SELECT e.extname, i.type, i.identity
        FROM pg_catalog.pg_depend d
        JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
        CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) i
        WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.classid <> 'pg_language'::regclass
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_available_extension_versions() v
                          WHERE v.name = e.extname AND NOT v.superuser)
          AND (EXISTS (SELECT FROM pg_catalog.pg_shdepend s
                       JOIN pg_catalog.pg_database b ON b.oid = s.dbid AND b.datname = current_database()
                       JOIN pg_catalog.pg_authid r ON r.oid = s.refobjid AND NOT r.rolsuper
                       WHERE s.classid = d.classid AND s.objid = d.objid AND s.deptype = 'o')
               OR (d.classid, d.objid) IN (SELECT o.classid, o.objid FROM ({of_postgres}) AS o (classid, objid, part, owner))
               OR EXISTS (SELECT FROM pg_catalog.pg_type t
                          JOIN pg_catalog.pg_authid r ON r.oid = t.typowner AND NOT r.rolsuper
                          WHERE d.classid = 'pg_cast'::regclass AND t.oid IN (SELECT unnest(ARRAY[castsource, casttarget])
                                                                            FROM pg_catalog.pg_cast WHERE oid = d.objid)
                             OR d.classid = 'pg_transform'::regclass
                                AND t.oid = (SELECT trftype FROM pg_catalog.pg_transform WHERE oid = d.objid)))
        ORDER BY d.classid, d.objid LIMIT 1"
    )
}

/// What its owner added to an extension would come back as its script has it: not at all.
async fn refuse_what_was_added(database: &Database, old: &Session) -> Result<()> {
    let Some(row) = old.query_opt("looking for what was added to extensions", &added(), &[]).await? else {
        return Ok(());
    };
    let (extension, kind, name) = (quoting::name(&said(&row, 0)?), said(&row, 1)?, said(&row, 2)?);
    let why = format!(
        "database {}: {kind} {name} was added to the extension {extension}, and would be lost: take it out with ALTER \
         EXTENSION {extension} DROP {} {name} first",
        database.name,
        kind.to_uppercase()
    );
    Err(EngineError::NotUpgradable(in_one_line(&why)))
}
