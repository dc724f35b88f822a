//! What belongs to whom in a database.

/// A source of [`things`]: what `pg_shdepend` has, which is what belongs to all roles but PostgreSQL's own.
pub(super) const BY_ROLES: &str = "SELECT s.classid, s.objid, s.objsubid, s.refobjid
    FROM pg_catalog.pg_shdepend s
    JOIN pg_catalog.pg_database d ON d.oid = s.dbid AND d.datname = current_database()
    WHERE s.deptype = 'o' AND s.refclassid = 'pg_authid'::regclass
      AND s.classid NOT IN ('pg_default_acl'::regclass, 'pg_extension'::regclass, 'pg_user_mapping'::regclass)";

/// Another one: what belongs to those roles that PostgreSQL has of its own (`FirstUnpinnedObjectId` is 12000). Nothing is
/// written down of them but in the catalogs themselves. A tenant is none of them, and has their things as a member.
pub(super) const BY_POSTGRES: &str = "SELECT class::oid, object, 0, owner FROM (
        SELECT 'pg_class'::regclass, oid, relowner FROM pg_catalog.pg_class WHERE relkind NOT IN ('c', 'i', 'I', 't')
        UNION ALL SELECT 'pg_proc'::regclass, oid, proowner FROM pg_catalog.pg_proc
        UNION ALL SELECT 'pg_type'::regclass, oid, typowner FROM pg_catalog.pg_type
        UNION ALL SELECT 'pg_namespace'::regclass, oid, nspowner FROM pg_catalog.pg_namespace
        UNION ALL SELECT 'pg_operator'::regclass, oid, oprowner FROM pg_catalog.pg_operator
        UNION ALL SELECT 'pg_opclass'::regclass, oid, opcowner FROM pg_catalog.pg_opclass
        UNION ALL SELECT 'pg_opfamily'::regclass, oid, opfowner FROM pg_catalog.pg_opfamily
        UNION ALL SELECT 'pg_collation'::regclass, oid, collowner FROM pg_catalog.pg_collation
        UNION ALL SELECT 'pg_conversion'::regclass, oid, conowner FROM pg_catalog.pg_conversion
        UNION ALL SELECT 'pg_language'::regclass, oid, lanowner FROM pg_catalog.pg_language
        UNION ALL SELECT 'pg_ts_config'::regclass, oid, cfgowner FROM pg_catalog.pg_ts_config
        UNION ALL SELECT 'pg_ts_dict'::regclass, oid, dictowner FROM pg_catalog.pg_ts_dict
        UNION ALL SELECT 'pg_statistic_ext'::regclass, oid, stxowner FROM pg_catalog.pg_statistic_ext
        UNION ALL SELECT 'pg_foreign_data_wrapper'::regclass, oid, fdwowner FROM pg_catalog.pg_foreign_data_wrapper
        UNION ALL SELECT 'pg_foreign_server'::regclass, oid, srvowner FROM pg_catalog.pg_foreign_server
        UNION ALL SELECT 'pg_event_trigger'::regclass, oid, evtowner FROM pg_catalog.pg_event_trigger
        UNION ALL SELECT 'pg_publication'::regclass, oid, pubowner FROM pg_catalog.pg_publication
        UNION ALL SELECT 'pg_largeobject'::regclass, oid, lomowner FROM pg_catalog.pg_largeobject_metadata
    ) AS owned (class, object, owner)
    WHERE owner IN (SELECT oid FROM pg_catalog.pg_authid WHERE oid < 12000 AND NOT rolsuper)";

/// What a statement calls the kind of an object that is `i` of [`things`].
pub(super) const KIND: &str = "CASE i.type WHEN 'statistics object' THEN 'statistics'
    WHEN 'composite type' THEN 'type' WHEN 'function' THEN 'routine' WHEN 'procedure' THEN 'routine'
    WHEN 'aggregate' THEN 'routine' ELSE i.type END";

/// What a source has, but for what goes with something else: `s` is its place in the catalogs, `r` its owner, and `i` what
/// it is called. Sequences of columns go with their tables, parts with their wholes; an extension has no statement that
/// gives it away.
pub(super) fn things(source: &str) -> String {
    format!(
        "({source}) AS s (classid, objid, objsubid, owner)
        JOIN pg_catalog.pg_authid r ON r.oid = s.owner
        CROSS JOIN LATERAL pg_catalog.pg_identify_object(s.classid, s.objid, s.objsubid) i
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_depend p
            WHERE p.classid = s.classid AND p.objid = s.objid AND p.objsubid = 0
              AND (p.deptype IN ('i', 'e') OR p.deptype = 'a' AND p.refobjsubid > 0
                   AND s.classid = 'pg_class'::regclass))"
    )
}
