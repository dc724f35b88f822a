//! Export and import of a whole metastore, independent of PostgreSQL's version.
//!
//! A file is a JSON header, then per table a JSON line and its rows as COPY
//! text up to `\.`, then the sequences, then a trailer with the row counts; a
//! file without a matching trailer is refused. An import is one transaction,
//! migrations included, so a metastore has all of it or nothing.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};

use crate::{MIGRATIONS, Result, Store, StoreError};

const FORMAT: &str = "coppice-metastore";
const VERSION: u32 = 1;
/// Begins the names of tables that stay out: what was measured is large, made
/// anew all the time, and no branch depends on it.
const NOT_EXPORTED: &str = "metric_";
/// Rows are sent in pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;
/// Makes the text of a value the same whatever the server's settings are.
const TEXT_SETTINGS: &str = "set local datestyle = 'ISO, MDY'; set local intervalstyle = 'postgres'; \
     set local bytea_output = 'hex'; set local timezone = 'UTC'; set local extra_float_digits = 3";

/// The first line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportHeader {
    format: String,
    version: u32,
    /// The last migration the metastore had.
    pub schema: i64,
    /// The installation it belongs to, if it was already named.
    pub installation: Option<String>,
    /// When the export began.
    pub exported_at: DateTime<Utc>,
}

/// What was exported or imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// The header of the file.
    pub header: ExportHeader,
    /// Rows of each table.
    pub rows: BTreeMap<String, u64>,
}

impl Transferred {
    /// Rows of all tables.
    pub fn rows_total(&self) -> u64 {
        self.rows.values().sum()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Sequence {
    name: String,
    last_value: i64,
    is_called: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Section {
    Table { name: String, columns: Vec<String> },
    Sequences(Vec<Sequence>),
    End { rows: BTreeMap<String, u64> },
}

fn unusable(why: impl Into<String>) -> StoreError {
    StoreError::UnusableExport { why: why.into() }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn quoted_list(names: &[String]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

async fn write_line(out: &mut (impl AsyncWrite + Unpin), line: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(line).map_err(std::io::Error::from)?;
    text.push(b'\n');
    out.write_all(&text).await?;
    Ok(())
}

impl Store {
    /// Writes the whole metastore, as it is at one moment, to `out`.
    ///
    /// # Errors
    /// When the metastore has no schema yet or can't be read, or `out` can't
    /// be written.
    pub async fn export(&self, mut out: impl AsyncWrite + Unpin) -> Result<Transferred> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        let mut tx = connection.begin_with("begin isolation level repeatable read read only").await?;
        sqlx::raw_sql(TEXT_SETTINGS).execute(&mut *tx).await?;
        let schema = sqlx::query_scalar("select max(version) from _sqlx_migrations where success");
        let schema: Option<i64> = schema.fetch_one(&mut *tx).await?;
        let schema = schema.ok_or_else(|| unusable("the metastore has no schema yet"))?;
        let installation = sqlx::query_scalar("select id from installation");
        let header = ExportHeader {
            format: FORMAT.to_owned(),
            version: VERSION,
            schema,
            installation: installation.fetch_optional(&mut *tx).await?,
            exported_at: Utc::now(),
        };
        write_line(&mut out, &header).await?;
        let mut rows = BTreeMap::new();
        for (name, columns) in tables(&mut tx).await? {
            let select =
                format!("copy (select {} from public.{}) to stdout", quoted_list(&columns), quoted(&name));
            write_line(&mut out, &Section::Table { name: name.clone(), columns }).await?;
            let mut count = 0;
            let mut pieces = tx.copy_out_raw(&select).await?;
            while let Some(piece) = pieces.try_next().await? {
                // Line breaks within values are escaped.
                count += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
                out.write_all(&piece).await?;
            }
            out.write_all(b"\\.\n").await?;
            rows.insert(name, count);
        }
        // Sequences know no snapshots: read last, they are never behind the rows.
        write_line(&mut out, &Section::Sequences(sequences(&mut tx).await?)).await?;
        write_line(&mut out, &Section::End { rows: rows.clone() }).await?;
        out.flush().await?;
        tx.commit().await?;
        Ok(Transferred { header, rows })
    }

    /// Exports into a new file, mode 0600. After a crash the file is whole or
    /// not there; its directory is made where missing.
    ///
    /// # Errors
    /// As for [`Store::export`], and when the file exists.
    pub async fn export_to_file(&self, path: &Path) -> Result<Transferred> {
        let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        // Left by an export that was interrupted.
        let _ = fs::remove_file(&temporary);
        let outcome = self.export_and_link(&temporary, path).await;
        let _ = fs::remove_file(&temporary);
        let transferred = outcome?;
        fs::File::open(directory)?.sync_all()?;
        Ok(transferred)
    }

    async fn export_and_link(&self, temporary: &Path, path: &Path) -> Result<Transferred> {
        let file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(temporary)?;
        let mut out = tokio::io::BufWriter::new(tokio::fs::File::from_std(file));
        let transferred = self.export(&mut out).await?;
        out.get_ref().sync_all().await?;
        // Unlike a rename, never replaces a file.
        fs::hard_link(temporary, path)?;
        Ok(transferred)
    }

    /// Fills an empty metastore from an export, and brings its schema to the
    /// one this program knows. On an error nothing has changed.
    ///
    /// # Errors
    /// When the metastore is not empty, or the file is no complete export or
    /// one of a newer schema.
    pub async fn import(&self, input: impl AsyncBufRead + Unpin) -> Result<Transferred> {
        let mut reader = Reader::open(input).await?;
        // A connection of its own: a failed migration leaves its lock behind.
        let mut connection = PgConnection::connect_with(&self.options).await?;
        let mut tx = connection.begin().await?;
        if !tables(&mut tx).await?.is_empty() || schema_version(&mut tx).await?.is_some() {
            return Err(StoreError::NotEmpty);
        }
        MIGRATIONS.run_to(reader.header.schema, &mut *tx).await.map_err(StoreError::Migration)?;
        // Rows that the migrations themselves make are in the file too.
        let known = tables(&mut tx).await?;
        if !known.is_empty() {
            let names: Vec<_> = known.iter().map(|(name, _)| name.clone()).collect();
            let truncate = format!("truncate {}", quoted_list(&names));
            sqlx::query(AssertSqlSafe(truncate)).execute(&mut *tx).await?;
        }
        sqlx::raw_sql(TEXT_SETTINGS).execute(&mut *tx).await?;
        // Neither foreign keys nor triggers look at rows that come in any order.
        sqlx::query("set local session_replication_role = replica").execute(&mut *tx).await?;
        let mut piece = Vec::new();
        while let Some(section) = reader.section().await? {
            match section {
                Section::Table { name, columns } => {
                    if !known.iter().any(|(table, _)| *table == name) {
                        return Err(unusable(format!("its schema has no table {name:?}")));
                    }
                    let copy =
                        format!("copy public.{} ({}) from stdin", quoted(&name), quoted_list(&columns));
                    let mut copying = tx.copy_in_raw(&copy).await?;
                    while reader.rows(&name, &mut piece).await? {
                        copying.send(piece.as_slice()).await?;
                    }
                    copying.finish().await?;
                }
                Section::Sequences(sequences) => set_sequences(&mut tx, &sequences).await?,
                Section::End { .. } => {}
            }
        }
        if let Some((missing, _)) = known.iter().find(|(name, _)| !reader.counted.contains_key(name)) {
            return Err(unusable(format!("it lacks the table {missing:?}")));
        }
        sqlx::query("set local session_replication_role = origin").execute(&mut *tx).await?;
        MIGRATIONS.run(&mut *tx).await.map_err(StoreError::Migration)?;
        tx.commit().await?;
        Ok(Transferred { header: reader.header, rows: reader.counted })
    }
}

/// Reads an export to its end without a metastore.
///
/// # Errors
/// When it is no complete export, or one of a newer schema.
pub async fn check_export(input: impl AsyncBufRead + Unpin) -> Result<Transferred> {
    let mut reader = Reader::open(input).await?;
    let mut piece = Vec::new();
    while let Some(section) = reader.section().await? {
        if let Section::Table { name, .. } = section {
            while reader.rows(&name, &mut piece).await? {}
        }
    }
    Ok(Transferred { header: reader.header, rows: reader.counted })
}

/// The last migration applied; none where there is no table of migrations.
pub(crate) async fn schema_version(connection: &mut PgConnection) -> Result<Option<i64>> {
    let is_there = sqlx::query_scalar("select to_regclass('public._sqlx_migrations') is not null");
    if !is_there.fetch_one(&mut *connection).await? {
        return Ok(None);
    }
    let version = sqlx::query_scalar("select max(version) from _sqlx_migrations where success");
    Ok(version.fetch_one(connection).await?)
}

async fn tables(connection: &mut PgConnection) -> Result<Vec<(String, Vec<String>)>> {
    let query = sqlx::query_as(
        "select c.relname::text, array_agg(a.attname::text order by a.attnum) \
         from pg_class c join pg_attribute a on a.attrelid = c.oid \
         where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') \
           and not c.relispartition and c.relname <> '_sqlx_migrations' \
           and not starts_with(c.relname, $1) and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' \
         group by c.relname order by c.relname",
    )
    .bind(NOT_EXPORTED);
    Ok(query.fetch_all(connection).await?)
}

async fn sequences(connection: &mut PgConnection) -> Result<Vec<Sequence>> {
    let names = sqlx::query_scalar(
        "select relname::text from pg_class \
         where relnamespace = 'public'::regnamespace and relkind = 'S' \
           and not starts_with(relname, $1) order by relname",
    )
    .bind(NOT_EXPORTED);
    let names: Vec<String> = names.fetch_all(&mut *connection).await?;
    let mut found = Vec::new();
    for name in names {
        let select = format!("select last_value, is_called from public.{}", quoted(&name));
        let (last_value, is_called) =
            sqlx::query_as(AssertSqlSafe(select)).fetch_one(&mut *connection).await?;
        found.push(Sequence { name, last_value, is_called });
    }
    Ok(found)
}

async fn set_sequences(connection: &mut PgConnection, sequences: &[Sequence]) -> Result<()> {
    for sequence in sequences {
        sqlx::query("select setval($1::text::regclass, $2, $3)")
            .bind(format!("public.{}", quoted(&sequence.name)))
            .bind(sequence.last_value)
            .bind(sequence.is_called)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Reads an export piece by piece and checks that it is whole.
struct Reader<R> {
    input: R,
    header: ExportHeader,
    counted: BTreeMap<String, u64>,
    has_ended: bool,
    /// The end of the table's rows was read, its last piece handed out.
    at_table_end: bool,
}

impl<R: AsyncBufRead + Unpin> Reader<R> {
    async fn open(mut input: R) -> Result<Self> {
        let mut line = Vec::new();
        input.read_until(b'\n', &mut line).await?;
        let header: Option<ExportHeader> = serde_json::from_slice(&line).ok();
        let header = header
            .filter(|header| header.format == FORMAT)
            .ok_or_else(|| unusable("it is not an export of a metastore"))?;
        if header.version != VERSION {
            return Err(unusable(format!("its format {} is unknown: use a newer coppice", header.version)));
        }
        if MIGRATIONS.iter().all(|migration| migration.version < header.schema) {
            return Err(StoreError::NewerExport { version: header.schema });
        }
        if !MIGRATIONS.version_exists(header.schema) {
            return Err(unusable(format!("its schema {} is unknown", header.schema)));
        }
        Ok(Self { input, header, counted: BTreeMap::new(), has_ended: false, at_table_end: false })
    }

    /// The next section; none after a trailer that agrees with what was read.
    async fn section(&mut self) -> Result<Option<Section>> {
        let mut line = Vec::new();
        self.input.read_until(b'\n', &mut line).await?;
        if self.has_ended {
            return if line.is_empty() { Ok(None) } else { Err(unusable("something follows its end")) };
        }
        if !line.ends_with(b"\n") {
            return Err(unusable("it is cut off"));
        }
        let section: Section =
            serde_json::from_slice(&line).map_err(|_| unusable("a section of it is damaged"))?;
        match &section {
            Section::Table { name, .. } => {
                if self.counted.insert(name.clone(), 0).is_some() {
                    return Err(unusable(format!("it has the table {name:?} twice")));
                }
            }
            Section::Sequences(_) => {}
            Section::End { rows } => {
                if *rows != self.counted {
                    return Err(unusable("rows are missing from it"));
                }
                self.has_ended = true;
            }
        }
        Ok(Some(section))
    }

    /// Puts the next rows of the table into `piece`; false after the last.
    async fn rows(&mut self, table: &str, piece: &mut Vec<u8>) -> Result<bool> {
        piece.clear();
        if std::mem::take(&mut self.at_table_end) {
            return Ok(false);
        }
        let mut count = 0;
        while piece.len() < PIECE_BYTES {
            let before = piece.len();
            self.input.read_until(b'\n', piece).await?;
            let line = &piece[before..];
            if !line.ends_with(b"\n") {
                return Err(unusable("it is cut off"));
            }
            if line == b"\\.\n" {
                piece.truncate(before);
                self.at_table_end = true;
                break;
            }
            count += 1;
        }
        if let Some(counted) = self.counted.get_mut(table) {
            *counted += count;
        }
        Ok(true)
    }
}
