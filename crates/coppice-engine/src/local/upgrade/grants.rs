//! What a dump grants. Only the platform can grant in the names of others, so it restores
//! that itself: and nothing else, whatever the owner called what is in there.

use crate::Result;
use crate::local::session::{Session, column};

/// Entries of a dump that are restored in one go: what they say is read first.
const AT_ONCE: usize = 1000;
/// The catalogue that a dump names for privileges: none,
pub(super) const NO_CATALOGUE: &str = "0";
/// and for those that objects get later: `pg_default_acl`.
const DEFAULTS: &str = "826";

/// Schemas of the system's; no other one has a name that begins like these.
const SYSTEM: [&str; 2] = ["pg_catalog", "information_schema"];

const OF_SUPERUSERS: &str = "WITH mighty AS (SELECT oid FROM pg_catalog.pg_authid WHERE rolsuper),
    granted (class, object, part, owner, privileges) AS (
        SELECT 'pg_class'::regclass, oid, 0, relowner, relacl FROM pg_catalog.pg_class
        UNION ALL SELECT 'pg_class'::regclass, attrelid, attnum, relowner, attacl
            FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = attrelid WHERE attacl IS NOT NULL
        UNION ALL SELECT 'pg_proc'::regclass, oid, 0, proowner, proacl FROM pg_catalog.pg_proc
        UNION ALL SELECT 'pg_type'::regclass, oid, 0, typowner, typacl FROM pg_catalog.pg_type
        UNION ALL SELECT 'pg_namespace'::regclass, oid, 0, nspowner, nspacl FROM pg_catalog.pg_namespace
        UNION ALL SELECT 'pg_language'::regclass, oid, 0, lanowner, lanacl FROM pg_catalog.pg_language
        UNION ALL SELECT 'pg_foreign_data_wrapper'::regclass, oid, 0, fdwowner, fdwacl
            FROM pg_catalog.pg_foreign_data_wrapper
        UNION ALL SELECT 'pg_foreign_server'::regclass, oid, 0, srvowner, srvacl FROM pg_catalog.pg_foreign_server
        UNION ALL SELECT 'pg_largeobject_metadata'::regclass, oid, 0, lomowner, lomacl
            FROM pg_catalog.pg_largeobject_metadata
        UNION ALL SELECT 'pg_default_acl'::regclass, oid, 0, defaclrole, defaclacl FROM pg_catalog.pg_default_acl
        UNION ALL SELECT 'pg_database'::regclass, oid, 0, datdba, datacl FROM pg_catalog.pg_database
        UNION ALL SELECT 'pg_tablespace'::regclass, oid, 0, spcowner, spcacl FROM pg_catalog.pg_tablespace
        UNION ALL SELECT 'pg_parameter_acl'::regclass, p.oid, 0, mighty.oid, paracl
            FROM pg_catalog.pg_parameter_acl p, mighty)
    SELECT coalesce(md5(string_agg(md5(format('%s %s %s %s', class::oid, object, part, privileges)), ''
                                   ORDER BY class::oid, object, part, owner)), '')
    FROM granted JOIN mighty ON mighty.oid = owner WHERE privileges IS NOT NULL";

/// What the statements begin with, and what they all have, beside those that only prepare.
const KINDS: [(&str, &str); 5] = [
    ("GRANT ", " ON "),
    ("REVOKE ", " ON "),
    ("ALTER DEFAULT PRIVILEGES ", ""),
    ("SET ", ""),
    ("RESET SESSION AUTHORIZATION", ""),
];
const PREPARES: &str = "SELECT pg_catalog.set_config('search_path', '', false)";
/// What is not quoted has these, letters and digits; no expression can be made of it that
/// is not told by how its statement begins.
const PLAIN: &str = "_(),.=-[]* \n";
/// For psql; no server gets to see it.
const FOR_PSQL: [&str; 2] = ["\\restrict ", "\\unrestrict "];

/// Of a list of what is in a dump, lists of what it grants.
pub(super) fn lists(listed: &str) -> Vec<String> {
    let lines: Vec<_> = listed.lines().filter(|line| is_grant(line)).collect();
    lines.chunks(AT_ONCE).map(|some| some.iter().map(|line| format!("{line}\n")).collect()).collect()
}

/// A digest of what is granted on everything that belongs to superusers, in a database and in the
/// cluster. No owner can grant that, so nothing of it may come from a dump.
pub(super) async fn of_superusers(session: &Session) -> Result<String> {
    let row = session.query_one("looking at what is granted", OF_SUPERUSERS, &[]).await?;
    column(&row, 0)
}

/// Whether a line of such a list is of privileges that an owner can grant: `3425; 0 0 ACL public TABLE t app`, or
/// `3426; 826 16391 DEFAULT ACL public DEFAULT PRIVILEGES FOR TABLES app`. A kind alone
/// does not tell: `3427; 2604 16393 DEFAULT ACL t i app` is of a column in a schema ACL.
fn is_grant(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_entry =
        words.next().and_then(|word| word.strip_suffix(';')).is_some_and(|id| id.parse::<u32>().is_ok());
    let (catalogue, mut kind) = (words.next(), words.skip(1));
    is_entry
        && match (catalogue, kind.next()) {
            // What superusers grant there is the platform's affair in each version.
            (Some(NO_CATALOGUE), Some("ACL")) => kind.next().is_none_or(|schema| !SYSTEM.contains(&schema)),
            (Some(DEFAULTS), Some("DEFAULT")) => kind.next() == Some("ACL"),
            _ => false,
        }
}

/// Whether a script of pg_restore's does nothing but grant.
pub(super) fn only_grants(script: &str) -> bool {
    let is_one = |statement: &String| {
        let is_of =
            |(begin, middle): &(&str, &str)| statement.starts_with(begin) && statement.contains(middle);
        statement == PREPARES || KINDS.iter().any(is_of)
    };
    statements(script).is_some_and(|statements| statements.iter().all(is_one))
}

/// The statements of a script, without comments and without what names hold; none where it
/// has what no grant has.
fn statements(script: &str) -> Option<Vec<String>> {
    let (mut done, mut statement, mut rest) = (vec![], String::new(), script);
    while let Some(c) = rest.chars().next() {
        let behind = &rest[c.len_utf8()..];
        let is_new = statement.trim().is_empty();
        rest = match c {
            ';' => {
                done.push(std::mem::take(&mut statement).trim().to_owned());
                behind
            }
            '"' => {
                statement.push_str("\"\"");
                behind.split_once('"')?.1
            }
            '\'' => {
                let (value, behind) = behind.split_once('\'').filter(|(value, _)| !value.contains('\\'))?;
                statement.extend(["'", value, "'"]);
                behind
            }
            '-' if behind.starts_with('-') => behind.split_once(['\n', '\r'])?.1,
            '\\' if is_new && FOR_PSQL.iter().any(|word| rest.starts_with(word)) => {
                behind.split_once('\n')?.1
            }
            _ if c.is_ascii_alphanumeric() || PLAIN.contains(c) => {
                statement.push(c);
                behind
            }
            _ => return None,
        };
    }
    statement.trim().is_empty().then_some(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_told_from_what_is_called_like_them() {
        assert!(is_grant("3425; 0 0 ACL public TABLE t app"));
        assert!(is_grant("3426; 826 16391 DEFAULT ACL public DEFAULT PRIVILEGES FOR TABLES app"));
        assert!(!is_grant("3427; 0 0 ACL pg_catalog FUNCTION lo_import(text) platform"));
        assert!(is_grant("3428; 0 0 ACL - SCHEMA s app"));
        assert!(!is_grant("3427; 1259 16392 TABLE public ACL app"));
        assert!(!is_grant("3428; 2604 16393 DEFAULT public t id"));
        assert!(!is_grant("3429; 2604 16395 DEFAULT ACL v x app"));
        assert!(!is_grant("3430; 0 16396 TABLE DATA ACL t app"));
        assert!(!is_grant("5; 2615 16390 SCHEMA - DEFAULT ACL app"));
        assert!(!is_grant("; 0 0 ACL public TABLE t app"));
    }

    #[test]
    fn what_is_granted_is_restored_in_parts() {
        let line = "3425; 0 0 ACL public TABLE t app\n3427; 1259 16392 TABLE public t app\n";
        let lists = lists(&line.repeat(AT_ONCE + 1));
        assert_eq!(lists.iter().map(|list| list.lines().count()).collect::<Vec<_>>(), [AT_ONCE, 1]);
    }

    /// Of pg_restore 18.4, of all kinds of objects.
    const GRANTS: &str = r#"--
-- PostgreSQL database dump
--

\restrict zVmQGzP22D7P4yMaC6v2svJhVqO4Qe2mA2w7ACdYeWuEsjgHqUB2GmwlEDaj338

-- Dumped from database version 18.4

SET statement_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET xmloption = content;

--
-- Name: SCHEMA public; Type: ACL; Schema: -; Owner: pg_database_owner
--

REVOKE USAGE ON SCHEMA public FROM PUBLIC;
REVOKE ALL ON FUNCTION public.f(a integer[], VARIADIC b "char"[]) FROM PUBLIC;
GRANT ALL ON FUNCTION public.agg(*) TO bob;

--
-- Name: TABLE t; Type: ACL; Schema: public; Owner: postgres
--

GRANT SELECT ON TABLE public.t TO ann WITH GRANT OPTION;
SET SESSION AUTHORIZATION ann;
GRANT SELECT ON TABLE public.t TO bob;
RESET SESSION AUTHORIZATION;
GRANT SELECT(i),UPDATE(i) ON TABLE public.t TO bob;

--
-- Name: TABLE "we""ird; x'y -- z"; Type: ACL; Schema: public; Owner: postgres
--

GRANT SELECT ON TABLE public."we""ird; x'y
-- z\! $$ é" TO bob;
GRANT SELECT ON LARGE OBJECT 4711 TO bob;
ALTER DEFAULT PRIVILEGES FOR ROLE postgres IN SCHEMA "ACL" GRANT SELECT ON TABLES  TO bob;

--
-- PostgreSQL database dump complete
--

\unrestrict zVmQGzP22D7P4yMaC6v2svJhVqO4Qe2mA2w7ACdYeWuEsjgHqUB2GmwlEDaj338

"#;

    #[test]
    fn a_script_that_grants_does_nothing_else() {
        assert!(only_grants(GRANTS), "{:#?}", statements(GRANTS));
        for other in [
            "ALTER TABLE ONLY \"ACL\".v ALTER COLUMN x SET DEFAULT '{1}'::public.d[];",
            "GRANT SELECT ON TABLE t TO bob; SELECT public.f();",
            "GRANT SELECT ON TABLE t TO bob\n--;\n; DROP TABLE t;",
            "-- a comment\rSELECT 1;\n",
            "GRANT pg_execute_server_program TO app;",
            "GRANT pg_execute_server_program TO \" ON \";",
            "SELECT pg_catalog.set_config('role', '', false);",
            "SET client_encoding = E'\\'; SELECT 1; --';",
            "SET x = $$'$$; SELECT 1; --';\n",
            "DO $$BEGIN END$$;",
            "SET x = 1 /* ; */;",
            "\\! id\n",
            "GRANT SELECT ON TABLE \"t TO bob;",
            "GRANT SELECT ON TABLE t TO bob",
        ] {
            assert!(!only_grants(other), "{other}: {:?}", statements(other));
        }
    }
}
