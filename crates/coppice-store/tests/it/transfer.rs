use coppice_store::{StoreError, check_export};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::postgres::Postgres;
use crate::{connect, with_rows};

async fn text(sql: &mut PgConnection, query: String) -> String {
    let found: Option<String> = sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(sql).await.unwrap();
    found.unwrap_or_default()
}

/// All rows of all tables and the sequence, as one text.
async fn everything(sql: &mut PgConnection) -> String {
    let names = "select string_agg(relname, ',' order by relname) from pg_class \
                 where relnamespace = 'public'::regnamespace and relkind = 'r' and relname !~ '^(_sqlx|metric_)'";
    let names = text(sql, names.to_owned()).await;
    let mut all =
        text(sql, "select last_value::text || is_called::text from volume_accounts".to_owned()).await;
    for name in names.split(',') {
        all += &format!("\n{name}\n");
        all +=
            &text(sql, format!("select string_agg(t::text, chr(10) order by t::text) from {name} t")).await;
    }
    all
}

async fn relations(sql: &mut PgConnection) -> String {
    let query = "select count(*)::text from pg_class where relnamespace = 'public'::regnamespace";
    text(sql, query.to_owned()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_imported_elsewhere_is_equal_row_by_row() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let mut file = Vec::new();
    let exported = store.export(&mut file).await.unwrap();
    assert_eq!(exported.header.installation.as_deref(), Some("ins_1"));
    assert_eq!(
        exported.rows_total(),
        15,
        "with two events, how often some were published, what is metered, and what is not charged yet"
    );
    assert_eq!(check_export(file.as_slice()).await.unwrap(), exported);

    let (other, mut other_sql) = connect(&server.empty_database()).await;
    assert_eq!(other.import(file.as_slice()).await.unwrap(), exported);
    let before = everything(&mut sql).await;
    assert!(before.contains("ß🌳") && before.contains("00ff5c0a2e"), "{before}");
    assert_eq!(everything(&mut other_sql).await, before);
    assert_eq!(text(&mut other_sql, "select nextval('volume_accounts')::text".to_owned()).await, "3");
    other.migrate().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_export_is_refused_and_nothing_is_left() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let mut file = Vec::new();
    store.export(&mut file).await.unwrap();
    let (other, mut sql) = connect(&server.empty_database()).await;
    // Each line break is a place where a file can end and look tidy.
    let ends = (0..file.len()).filter(|at| file[*at] == b'\n').map(|at| at + 1);
    let ends: Vec<_> = ends.filter(|end| *end < file.len()).chain([0, 10, file.len() - 1]).collect();
    for end in &ends {
        check_export(&file[..*end]).await.unwrap_err();
    }
    // An import reads as a check does, and makes the whole schema before.
    for end in ends.iter().rev().step_by(ends.len() / 8) {
        let refused = other.import(&file[..*end]).await.unwrap_err();
        assert!(matches!(refused, StoreError::UnusableExport { .. }), "{end}: {refused}");
        assert_eq!(relations(&mut sql).await, "0", "after {end} bytes");
    }
    other.import(file.as_slice()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_lacks_a_row_is_refused() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let mut file = Vec::new();
    store.export(&mut file).await.unwrap();
    let file = String::from_utf8(file).unwrap();
    let row = file.lines().find(|line| line.starts_with("t\tins_1")).unwrap();
    let file = file.replace(&format!("{row}\n"), "");
    let (other, mut sql) = connect(&server.empty_database()).await;
    let refused = other.import(file.as_bytes()).await.unwrap_err();
    assert!(refused.to_string().contains("rows are missing"), "{refused}");
    assert_eq!(relations(&mut sql).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_into_a_metastore_that_is_not_empty_is_refused() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let mut file = Vec::new();
    store.export(&mut file).await.unwrap();
    let before = everything(&mut sql).await;
    assert!(matches!(store.import(file.as_slice()).await, Err(StoreError::NotEmpty)));
    assert_eq!(everything(&mut sql).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_schemas_are_refused() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let newer = "insert into _sqlx_migrations select 9999, 'later', now(), true, '', 0";
    sqlx::raw_sql(newer).execute(&mut sql).await.unwrap();
    assert!(matches!(store.migrate().await, Err(StoreError::NewerSchema { version: 9999 })));
    let mut file = Vec::new();
    store.export(&mut file).await.unwrap();
    let (other, mut other_sql) = connect(&server.empty_database()).await;
    let refused = other.import(file.as_slice()).await;
    assert!(matches!(refused, Err(StoreError::NewerExport { version: 9999 })), "{refused:?}");
    assert_eq!(relations(&mut other_sql).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_file_is_whole_private_and_never_overwritten() {
    use std::os::unix::fs::PermissionsExt;
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("exports/one.coppice");
    let exported = store.export_to_file(&path).await.unwrap();
    let written = std::fs::read(&path).unwrap();
    assert_eq!(check_export(written.as_slice()).await.unwrap(), exported);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    store.export_to_file(&path).await.unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), written);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}
