//! What an owner, or the server of one, gets by having it upgraded.

use coppice_test_support::psql;
use serde_json::json;

use super::{image, make, message, upgrade};
use crate::setup::every_release;

/// Functions that somebody who restores as a superuser would run as one: of a constraint
/// of a domain, of a table, of what an aggregate begins with, of an index and of a view,
/// and of a default in a schema that has the name of what grants are in a dump. What may
/// change nothing by itself calls what may. They also put an extension's functions where
/// the owner's were.
const TRAPS: &str = "
    CREATE TABLE proofs (who text, is_super boolean, how text);
    CREATE SCHEMA ext; CREATE EXTENSION pg_trgm SCHEMA ext; CREATE SCHEMA bait;
    CREATE FUNCTION bait.similarity(text, text) RETURNS real LANGUAGE sql AS 'SELECT 1.0::real';
    CREATE FUNCTION act(how text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        BEGIN RESET SESSION AUTHORIZATION; RESET ROLE; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN EXECUTE 'ALTER ROLE app SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN EXECUTE 'CREATE ROLE boss SUPERUSER LOGIN PASSWORD ''x'''; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN EXECUTE 'COPY (SELECT 1) TO PROGRAM ''id'''; EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN
            IF session_user LIKE 'coppice_restorer%' THEN
                DROP FUNCTION bait.similarity(text, text);
                DROP EXTENSION pg_trgm;
                CREATE EXTENSION pg_trgm SCHEMA bait;
            END IF;
        EXCEPTION WHEN OTHERS THEN NULL; END;
        BEGIN
            INSERT INTO public.proofs SELECT session_user, rolsuper, how FROM pg_roles WHERE rolname = current_user;
        EXCEPTION WHEN OTHERS THEN NULL; END;
    END$$;
    CREATE FUNCTION spring(i int, how text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
        $$BEGIN PERFORM public.act(how); RETURN true; END$$;
    CREATE DOMAIN trap AS int CHECK (public.spring(VALUE, 'domain'));
    CREATE FUNCTION next(trap, int) RETURNS trap LANGUAGE sql AS 'SELECT $1';
    CREATE AGGREGATE begun(int) (sfunc = next, stype = trap, initcond = '1');
    CREATE TABLE baits (i int CHECK (public.spring(i, 'table')), d trap,
        g boolean GENERATED ALWAYS AS (public.spring(i, 'generated')) STORED);
    INSERT INTO baits VALUES (1, 1);
    CREATE INDEX baits_i ON baits (public.spring(i, 'index'));
    CREATE MATERIALIZED VIEW seen AS SELECT public.spring(i, 'view') FROM baits;
    CREATE TABLE \"weird\n\\! id\" (i int); COMMENT ON TABLE \"weird\n\\! id\" IS E'\\n\\\\! id';
    CREATE ROLE \"a\nb\"; ALTER DATABASE app SET search_path = public;
    GRANT SELECT ON \"weird\n\\! id\" TO \"a\nb\";
    CREATE SCHEMA \"ACL\"; CREATE VIEW \"ACL\".v AS SELECT NULL::trap[] AS x;
    ALTER VIEW \"ACL\".v ALTER COLUMN x SET DEFAULT '{1}'::trap[]";

/// While it is restored a function decides how texts in statements are read from then on, and the name of a role is
/// one that says something else then.
const OTHER_READING: &str = r#"
    CREATE ROLE "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--";
    GRANT "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--" TO app;
    GRANT CREATE ON DATABASE app TO "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--";
    GRANT CREATE ON SCHEMA public TO "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--";
    SET ROLE "\')WHERE false;ALTER ROLE app SUPERUSER;COMMIT;SELECT $$--"; CREATE EXTENSION hstore; RESET ROLE;
    CREATE FUNCTION read_otherwise(i int) RETURNS boolean LANGUAGE plpgsql AS $f$BEGIN
        IF current_user LIKE 'coppice_restorer%' THEN
            EXECUTE 'ALTER DATABASE app SET standard_conforming_strings TO off';
            INSERT INTO public.proofs VALUES (current_user, false, 'read otherwise');
        END IF; RETURN true; END$f$;
    CREATE TABLE read_otherwise (i int CHECK (public.read_otherwise(i))); INSERT INTO read_otherwise VALUES (1)"#;

#[test]
fn nothing_of_an_owner_runs_as_a_superuser_while_it_is_upgraded() {
    let coppice = every_release();
    let url = make(&coppice, "trap", 15);
    coppice.sql("trap", TRAPS);
    coppice.sql("trap", OTHER_READING);
    coppice.sql("trap", "CREATE DATABASE \"host=/tmp dbname=x\"");
    coppice.sql("trap", "TRUNCATE proofs");
    upgrade(&coppice, "trap", &json!({ "image": "postgres:18" }));
    assert!(image(&coppice, "trap").starts_with("postgres:18"), "{}", message(&coppice, "trap"));
    let supers = "SELECT string_agg(rolname, ' ') FROM pg_roles
         WHERE rolsuper OR rolreplication AND rolname <> 'app' OR rolname = 'boss'";
    assert_eq!(psql(&url, supers).out, "platform");
    let read = psql(
        &url,
        "SELECT current_setting('standard_conforming_strings'), count(*) FROM pg_extension
         WHERE extname = 'hstore' AND extowner::regrole::text LIKE '%SUPERUSER%'",
    );
    assert_eq!(read.out, "on|1", "text is read as before, and the extension is its owner's");
    let ran = psql(&url, "SELECT count(*) > 0 FROM proofs WHERE who LIKE 'coppice_restorer%'");
    assert_eq!(ran.out, "t", "the traps were sprung");
    let as_superuser = psql(&url, "SELECT string_agg(who || ' ' || how, ', ') FROM proofs WHERE is_super");
    assert_eq!((as_superuser.is_ok, as_superuser.out.as_str()), (true, ""));
    assert_eq!(
        psql(&url, "SELECT count(*) FROM pg_proc WHERE proname = 'similarity'").out,
        "1",
        "it was swapped"
    );
    let members = "SELECT count(*) FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
         WHERE d.deptype = 'e' AND p.proowner <> (SELECT oid FROM pg_roles WHERE rolname = 'platform')";
    assert_eq!(psql(&url, members).out, "0", "what is an extension's is nobody's");
    assert_eq!(
        psql(&url, "SELECT count(*) FROM pg_class WHERE relowner::regrole::text LIKE 'coppice_restorer%'")
            .out,
        "0"
    );
    let databases = psql(&url, "SELECT count(*) FROM pg_database WHERE datname = 'host=/tmp dbname=x'");
    assert_eq!(databases.out, "1");
    let granted = "SELECT count(*) FROM pg_class WHERE relname LIKE 'weird%' AND has_table_privilege(E'a\nb', oid, 'SELECT')";
    assert_eq!(psql(&url, granted).out, "1", "what was granted is");
}

/// What whoever is superuser on the old server gives `app` there.
const GIVEN: &str = "GRANT EXECUTE ON FUNCTION lo_export(oid, text), lo_import(text) TO app;
    GRANT pg_write_server_files, pg_create_subscription TO app;
    ALTER ROLE app SET temp_file_limit = -1; ALTER ROLE app SET work_mem = '5MB';
    CREATE ROLE other; CREATE FUNCTION run(q text) RETURNS void SECURITY DEFINER LANGUAGE plpgsql AS
        $$BEGIN EXECUTE q; END$$; ALTER FUNCTION run(text) OWNER TO other; GRANT other TO app";

/// Sorts by rules of its own.
const ORDERED: &str =
    "CREATE DATABASE ordered OWNER app TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'
    ICU_RULES '&a < g'";

/// Has the old server call the role `other` that of the platform, wherever it is asked for a name.
const LIE: &str = "SET allow_system_table_mods = on;
    CREATE FUNCTION pg_catalog.lie(n name) RETURNS bytea LANGUAGE plpgsql AS
        $$BEGIN RETURN convert_to(CASE n::text WHEN 'pg_other' THEN 'platform' ELSE n::text END, 'UTF8'); END$$;
    UPDATE pg_type SET typsend = 'pg_catalog.lie'::regproc WHERE oid = 'name'::regtype";

#[test]
fn nothing_that_an_old_server_says_makes_its_owner_more_than_an_owner() {
    let coppice = every_release();
    let url = make(&coppice, "liar", 16);
    let superuser = coppice.superuser_url("liar");
    let told = |database: &str, sql: &str| {
        let done = psql(&superuser.replace("dbname=app", &format!("dbname={database}")), sql);
        assert!(done.is_ok, "{}", done.err);
    };
    told("app", GIVEN);
    told(
        "app",
        "SET allow_system_table_mods = on; UPDATE pg_authid SET rolname = 'pg_other' WHERE rolname = 'other'",
    );
    told("app", ORDERED);
    let order = "SELECT string_agg(c, '' ORDER BY c) FROM unnest(ARRAY['a', 'b', 'g', 'h']) AS u (c)";
    let ordered = super::inside(&url, "ordered");
    assert_eq!(psql(&ordered, order).out, "agbh");
    told("app", LIE);
    told("postgres", LIE);
    upgrade(&coppice, "liar", &json!({ "image": "postgres:18" }));
    let said = message(&coppice, "liar");
    assert!(said.contains("belongs to platform, which is no role of the branch's"), "{said}");
    told("app", "DROP FUNCTION run(text)");
    upgrade(&coppice, "liar", &json!({ "image": "postgres:18" }));
    assert!(image(&coppice, "liar").starts_with("postgres:18"), "{}", message(&coppice, "liar"));
    let has = "SELECT pg_has_role('platform', 'MEMBER'), pg_has_role('pg_write_server_files', 'MEMBER'),
        pg_has_role('pg_create_subscription', 'MEMBER'), has_function_privilege('lo_export(oid, text)', 'EXECUTE'),
        current_setting('temp_file_limit') = '-1'";
    assert_eq!(psql(&url, has).out, "f|f|f|f|f");
    assert_eq!(psql(&ordered, order).out, "agbh", "the rules of an order are kept");
    assert_eq!(psql(&url, "SHOW work_mem").out, "5MB", "what an owner may set is");
}

/// Of the role `guest`, which is a member of one of PostgreSQL's: what runs as that one.
const OF_POSTGRES: &str = "GRANT USAGE, CREATE ON SCHEMA guest TO pg_read_all_data;
    CREATE FUNCTION guest.who() RETURNS text SECURITY DEFINER LANGUAGE sql AS 'SELECT current_user::text';
    ALTER FUNCTION guest.who() OWNER TO pg_read_all_data;
    CREATE VIEW guest.pays AS SELECT amount FROM public.pay; ALTER VIEW guest.pays OWNER TO pg_read_all_data;
    CREATE TYPE guest.pair AS (a int, b int); ALTER TYPE guest.pair OWNER TO pg_read_all_data;
    SELECT lo_create(4711); ALTER LARGE OBJECT 4711 OWNER TO pg_read_all_data;
    CREATE TABLE guest.t (id serial PRIMARY KEY, i int); INSERT INTO guest.t (i) VALUES (1);
    CREATE FUNCTION guest.is_one(i int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS
        $$BEGIN BEGIN UPDATE public.pay SET amount = 1000; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN i = 1; END$$;
    GRANT EXECUTE ON FUNCTION guest.is_one(int) TO PUBLIC;
    CREATE INDEX one ON guest.t (guest.is_one(i)); ALTER TABLE guest.t OWNER TO pg_read_all_data";
/// A materialized view of `app`'s that writes where a trigger of the guest's has the guest's rights, one that is made of it,
/// one of the guest's, and one that is empty.
const FILLED: &str = "SET ROLE guest; CREATE TABLE guest.audit (who text);
    CREATE FUNCTION guest.audited() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS
        $$BEGIN BEGIN UPDATE public.pay SET amount = 1000; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN NEW; END$$;
    CREATE TRIGGER audited BEFORE INSERT ON guest.audit FOR EACH ROW EXECUTE FUNCTION guest.audited();
    CREATE MATERIALIZED VIEW guest.theirs AS SELECT current_user::text AS who; RESET ROLE;
    CREATE FUNCTION note() RETURNS text LANGUAGE plpgsql AS
        $$BEGIN INSERT INTO guest.audit VALUES (current_user); RETURN current_user; END$$;
    CREATE MATERIALIZED VIEW noted AS SELECT public.note() AS who; CREATE MATERIALIZED VIEW above AS SELECT * FROM noted;
    CREATE MATERIALIZED VIEW nothing AS SELECT 1 AS i WITH NO DATA";
const OWNERS: &str = "SELECT string_agg(o, ',' ORDER BY o) FROM (
    SELECT format('%s %s', proname, proowner::regrole) FROM pg_proc WHERE proname IN ('who', 'is_one')
    UNION ALL SELECT format('%s %s', relname, relowner::regrole) FROM pg_class
        WHERE relname IN ('pays', 'pair', 't', 't_id_seq', 'pay', 'of_the_owner')
    UNION ALL SELECT format('%s %s', typname, typowner::regrole) FROM pg_type WHERE typname IN ('pair', '_pair', 't')
    UNION ALL SELECT format('%s %s', nspname, nspowner::regrole) FROM pg_namespace WHERE nspname IN ('guest', 'public')
    UNION ALL SELECT format('%s %s', oid, lomowner::regrole) FROM pg_largeobject_metadata) AS owners (o)";

/// Where the newest release keeps expressions, and what the platform makes of them
/// (`crates/coppice-engine/src/local/upgrade/evaluated.rs`): it looks at them, or nobody who restores evaluates them.
const EXPRESSIONS: [(&str, &str); 16] = [
    ("pg_attrdef.adbin", "it looks at those of generated columns; rows that are restored have the others"),
    ("pg_class.relpartbound", "constants"),
    ("pg_constraint.conbin", "it looks at them"),
    ("pg_index.indexprs", "it looks at them"),
    ("pg_index.indpred", "it looks at them"),
    ("pg_partitioned_table.partexprs", "it looks at them"),
    ("pg_policy.polqual", "row_security is off, and a query that would need it fails"),
    ("pg_policy.polwithcheck", "row_security is off, and a query that would need it fails"),
    ("pg_proc.proargdefaults", "they are in the expressions that call the function"),
    ("pg_proc.prosqlbody", "what calls the function counts"),
    ("pg_publication_rel.prqual", "it is evaluated for whoever receives changes"),
    (
        "pg_rewrite.ev_action",
        "it looks at what reaches further than its owner; owners fill materialized views",
    ),
    ("pg_rewrite.ev_qual", "COPY heeds no rules"),
    ("pg_statistic_ext.stxexprs", "it looks at them"),
    ("pg_trigger.tgqual", "it has the rights of whoever writes"),
    ("pg_type.typdefaultbin", "rows that are restored have all columns"),
];

#[test]
fn what_is_given_to_roles_of_postgres_stays_theirs_and_becomes_nobody_elses() {
    let coppice = every_release();
    make(&coppice, "shared", 15);
    coppice.sql(
        "shared",
        "CREATE TABLE pay (amount int); INSERT INTO pay VALUES (1);
         CREATE TABLE of_the_owner (i int); ALTER TABLE of_the_owner OWNER TO pg_database_owner;
         CREATE ROLE guest; GRANT guest TO app; GRANT pg_read_all_data TO guest; CREATE SCHEMA guest AUTHORIZATION guest",
    );
    coppice.sql("shared", &format!("SET ROLE guest; {OF_POSTGRES}"));
    coppice.sql("shared", FILLED);
    upgrade(&coppice, "shared", &json!({ "image": "postgres:18" }));
    let said = message(&coppice, "shared");
    assert!(said.contains("index guest.one of the role pg_read_all_data runs code"), "{said}");

    // Whoever plans a query on a table evaluates what its statistics are about, if it is constant.
    coppice.sql(
        "shared",
        "SET ROLE guest; DROP INDEX guest.one; CREATE STATISTICS guest.two ON (i + (guest.is_one(2))::int) FROM guest.t",
    );
    upgrade(&coppice, "shared", &json!({ "image": "postgres:18" }));
    let said = message(&coppice, "shared");
    assert!(said.contains("statistics object guest.two of the role pg_read_all_data runs code"), "{said}");

    coppice.sql("shared", "SET ROLE guest; DROP STATISTICS guest.two");
    let before = coppice.sql("shared", OWNERS);
    assert_eq!(before.matches("pg_read_all_data").count(), 9, "{before}");
    upgrade(&coppice, "shared", &json!({ "image": "postgres:18" }));
    assert!(image(&coppice, "shared").starts_with("postgres:18"), "{}", message(&coppice, "shared"));
    assert_eq!(coppice.sql("shared", OWNERS), before);
    let who = coppice.sql("shared", "SET ROLE guest; SELECT guest.who()");
    assert_eq!(who.lines().last(), Some("pg_read_all_data"), "it runs as whom it did");
    assert_eq!(
        coppice.sql("shared", "SELECT amount FROM pay"),
        "1",
        "nothing was evaluated with more rights"
    );
    let filled = "SELECT n.who, a.who, t.who, (SELECT string_agg(who, ' ') FROM guest.audit),
         (SELECT relispopulated FROM pg_class WHERE relname = 'nothing') FROM noted n, above a, guest.theirs t";
    assert_eq!(coppice.sql("shared", filled), "app|app|guest|app app|f", "owners fill what was filled");
    let all =
        "SELECT attrelid::regclass || '.' || attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
         WHERE atttypid = 'pg_node_tree'::regtype AND relkind = 'r' ORDER BY 1";
    let known: Vec<_> = EXPRESSIONS.iter().map(|(column, _)| *column).collect();
    assert_eq!(coppice.sql("shared", all), known.join("\n"));
}
