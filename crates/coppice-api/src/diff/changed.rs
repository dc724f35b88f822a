//! How much of each table of a branch differs on the disk from that of another one.
//!
//! Which file is whose is asked of the branch's own catalogue, which its owner may have
//! written to: it gives names to numbers of files, and nothing is opened by it.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use coppice_app::{App, Compared};
use coppice_core::organization::Holder;
use coppice_core::storage::{ChangedBytes, FileBytes};
use coppice_core::{Error, Result};
use coppice_wire as wire;
use serde::Deserialize;

use super::{Written, in_turn, read};
use crate::request::{Call, Sender};

/// Most relations of an answer.
const RELATIONS_MAX: usize = 1000;

/// The database's number, and until when its server has written everything to its files.
const DATABASE: &str = "SELECT pg_catalog.json_build_object('database', d.oid::pg_catalog.int8, \
    'checkpoint', (SELECT c.checkpoint_time FROM pg_catalog.pg_control_checkpoint() c)) \
    FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()";

/// Files by the table they belong to: those of its indexes, too, and of what is kept
/// apart for it, with that one's index. Shared catalogues and temporary tables are
/// elsewhere.
const FILES: &str = "SELECT pg_catalog.json_build_object('kind', min(x.kind), 'name', x.name, \
    'files', pg_catalog.json_agg(x.file)) FROM (\
    SELECT CASE WHEN n.nspname = 'pg_catalog' THEN 'catalog' ELSE CASE t.relkind \
        WHEN 'm' THEN 'materialized view' WHEN 'S' THEN 'sequence' ELSE 'table' END END AS kind, \
      CASE WHEN n.nspname = 'pg_catalog' THEN 'pg_catalog' \
        ELSE pg_catalog.format('%I.%I', n.nspname, t.relname) END AS name, \
      pg_catalog.pg_relation_filenode(c.oid)::pg_catalog.int8 AS file \
    FROM pg_catalog.pg_class c \
    LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
    LEFT JOIN pg_catalog.pg_class o ON o.reltoastrelid <> 0 AND o.reltoastrelid = coalesce(i.indrelid, c.oid) \
    JOIN pg_catalog.pg_class t ON t.oid = coalesce(o.oid, i.indrelid, c.oid) \
    JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
    WHERE c.relkind IN ('r', 'i', 't', 'm', 'S') AND c.reltablespace = 0 AND c.relpersistence <> 't'\
    ) x WHERE x.file IS NOT NULL GROUP BY x.name";

#[derive(Deserialize)]
struct Database {
    database: u32,
    checkpoint: Option<DateTime<Utc>>,
}

#[derive(Deserialize)]
struct Relation {
    kind: String,
    name: String,
    files: Vec<u32>,
}

/// How many bytes of each table the first branch has that the second one has not.
pub(super) async fn bytes(
    app: &App,
    holder: &Holder,
    [branch, against]: [&Compared; 2],
    database: &str,
    asked: (&Sender, &Call),
) -> Result<wire::ChangedBytes> {
    let queries = [DATABASE, FILES].map(str::to_owned);
    let found = read(app, &branch.login, database, asked, &queries).await?;
    let (database, relations) = in_turn(holder, move || relations(&found.rows)).await?;
    let files = app.statements.changed_bytes(branch, against, database.database).await?;
    Ok(wire::ChangedBytes {
        checkpointed_at: database.checkpoint.map(wire::Timestamp),
        ..match files {
            ChangedBytes::Known(files) => sums(relations, &files),
            ChangedBytes::Unknown(why) => {
                wire::ChangedBytes { unknown: Some(why.to_owned()), ..sums(vec![], &BTreeMap::new()) }
            }
        }
    })
}

fn relations(written: &[u8]) -> Result<(Database, Vec<Relation>)> {
    let written: Written<'_> = serde_json::from_slice(written).map_err(Error::internal)?;
    let mut results = written.results.iter();
    let mut rows =
        || results.next().into_iter().flat_map(|result| &result.rows).map(|(text,)| text.0.as_ref());
    let database = rows().next().ok_or_else(|| Error::internal("the database is not in its catalogue"))?;
    let database = serde_json::from_str(database).map_err(Error::internal)?;
    let relations = rows().map(serde_json::from_str).collect::<serde_json::Result<_>>();
    Ok((database, relations.map_err(Error::internal)?))
}

fn sums(relations: Vec<Relation>, files: &BTreeMap<u32, FileBytes>) -> wire::ChangedBytes {
    let sum = |relation: Relation| {
        let own = relation.files.iter().filter_map(|file| files.get(file));
        let sum = own.fold(FileBytes::default(), |sum, file| FileBytes {
            bytes: sum.bytes.saturating_add(file.bytes),
            changed: sum.changed.saturating_add(file.changed),
        });
        let Relation { kind, name, .. } = relation;
        wire::RelationBytes { kind, name, bytes: sum.bytes, changed_bytes: sum.changed }
    };
    let all: Vec<_> = relations.into_iter().map(sum).collect();
    let add = |part: fn(&wire::RelationBytes) -> u64| all.iter().map(part).fold(0, u64::saturating_add);
    let (total_bytes, changed_bytes) = (add(|of| of.bytes), add(|of| of.changed_bytes));
    let mut changed: Vec<_> = all.into_iter().filter(|of| of.changed_bytes > 0).collect();
    changed.sort_by(|a, b| (b.changed_bytes, &a.name).cmp(&(a.changed_bytes, &b.name)));
    let left_off = changed.len().saturating_sub(RELATIONS_MAX) as u64;
    changed.truncate(RELATIONS_MAX);
    wire::ChangedBytes {
        unknown: None,
        checkpointed_at: None,
        total_bytes,
        changed_bytes,
        relations: changed,
        left_off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_bytes_of_its_files_and_the_most_changed_come_first() {
        let relation = |name: &str, files: &[u32]| Relation {
            kind: "table".to_owned(),
            name: name.to_owned(),
            files: files.to_vec(),
        };
        let files = [(1, 100, 10), (2, 50, 50), (3, 70, 0), (4, 90, 90), (9, 1000, 1000)];
        let files =
            files.into_iter().map(|(file, bytes, changed)| (file, FileBytes { bytes, changed })).collect();
        let relations =
            vec![relation("a", &[1, 2]), relation("b", &[3]), relation("c", &[4, 5]), relation("d", &[])];
        let found = sums(relations, &files);
        let told: Vec<_> =
            found.relations.iter().map(|of| (of.name.as_str(), of.bytes, of.changed_bytes)).collect();
        assert_eq!(told, [("c", 90, 90), ("a", 150, 60)]);
        assert_eq!((found.total_bytes, found.changed_bytes, found.left_off), (310, 150, 0));
    }

    #[test]
    fn of_many_relations_some_are_left_off_and_counted() {
        let many = (0..RELATIONS_MAX as u32 + 7).map(|file| Relation {
            kind: "table".to_owned(),
            name: format!("t{file:05}"),
            files: vec![file],
        });
        let files = (0..2000).map(|file| (file, FileBytes { bytes: 8192, changed: 8192 })).collect();
        let found = sums(many.collect(), &files);
        assert_eq!((found.relations.len(), found.left_off), (RELATIONS_MAX, 7));
        assert_eq!(found.relations[0].name, "t00000");
        assert_eq!(found.changed_bytes, (RELATIONS_MAX as u64 + 7) * 8192);
    }
}
