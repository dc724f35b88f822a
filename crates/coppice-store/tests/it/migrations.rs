//! Schemas of every earlier version, brought to the newest.

use std::borrow::Cow;

use coppice_store::Store;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::postgres::Postgres;
use crate::{ROWS, connect};

static ALL: Migrator = sqlx::migrate!("./migrations");

/// The first `count` migrations, as a program of that time had them.
async fn migrate_to(sql: &mut PgConnection, count: usize) {
    let earlier = Migrator {
        migrations: Cow::Owned(ALL.migrations.iter().take(count).cloned().collect()),
        ..Migrator::DEFAULT
    };
    earlier.run(sql).await.unwrap();
}

/// Every migration with a smaller number.
pub(crate) async fn migrate_before(sql: &mut PgConnection, version: i64) {
    migrate_to(sql, ALL.migrations.iter().filter(|migration| migration.version < version).count()).await;
}

/// Whether what [`ROWS`] has is there, after so many migrations and others.
async fn has_rows(sql: &mut PgConnection, count: usize) {
    for table in ["organizations", "projects", "branches", "volumes", "instances", "api_keys"] {
        assert_eq!(rows_of(sql, table).await, 1, "{table} after migration {count}");
    }
}

async fn rows_of(sql: &mut PgConnection, table: &str) -> i64 {
    let query = format!("select count(*) from {table}");
    sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(sql).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_schemas_with_rows_become_the_newest_one() {
    let server = Postgres::shared();
    // A migration and rows of the schema before it have a test of their own.
    for count in (1..ALL.migrations.len()).step_by(16) {
        let options = server.empty_database();
        let mut sql = PgConnection::connect_with(&options).await.unwrap();
        migrate_to(&mut sql, count).await;
        sqlx::raw_sql(ROWS).execute(&mut sql).await.unwrap();

        let exports = tempfile::tempdir().unwrap();
        let (store, _) = connect(&options).await;
        let export = store.migrate_after_export(exports.path()).await.unwrap();
        assert!(export.is_some_and(|path| path.exists()), "an export is taken first");
        has_rows(&mut sql, count).await;
        let applied: i64 = rows_of(&mut sql, "_sqlx_migrations").await;
        assert_eq!(applied as usize, ALL.migrations.len());
        assert_eq!(store.migrate_after_export(exports.path()).await.unwrap(), None, "nothing is left to do");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_migration_takes_the_rows_of_the_schema_before_it() {
    let server = Postgres::shared();
    let mut sql = PgConnection::connect_with(&server.empty_database()).await.unwrap();
    let rows = ROWS.replace("begin;", "").replace("commit;", "set constraints all immediate;");
    for (before, migration) in ALL.migrations.iter().enumerate().skip(1) {
        migrate_to(&mut sql, before).await;
        let mut tx = sql.begin().await.unwrap();
        for part in [&rows, migration.sql.as_str()] {
            let done = sqlx::raw_sql(AssertSqlSafe(part.to_owned())).execute(&mut *tx).await;
            done.unwrap_or_else(|error| panic!("{}: {error}", migration.version));
        }
        has_rows(&mut tx, before).await;
        tx.rollback().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_of_the_first_schema_keep_the_libraries_that_were_always_preloaded() {
    let server = Postgres::shared();
    let options = server.empty_database();
    let mut sql = PgConnection::connect_with(&options).await.unwrap();
    migrate_to(&mut sql, 1).await;
    sqlx::raw_sql(ROWS).execute(&mut sql).await.unwrap();
    let store = Store::connect(options, std::time::Duration::from_secs(30)).await.unwrap();
    store.migrate().await.unwrap();
    let libraries: Vec<String> =
        sqlx::query_scalar("select preload_libraries from branches").fetch_one(&mut sql).await.unwrap();
    assert_eq!(libraries, ["pg_stat_statements", "auto_explain"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_earlier_schemas_get_the_maker_and_the_end_of_the_keys_that_led_to_them() {
    let server = Postgres::shared();
    let options = server.empty_database();
    let mut sql = PgConnection::connect_with(&options).await.unwrap();
    migrate_to(&mut sql, 11).await;
    sqlx::raw_sql(
        "insert into organizations (id, name) values ('o', 'o');
         insert into api_keys (id, organization_id, name, preview, hash, scopes, projects, branches, expiry,
                               created_by, created_by_key)
         select id, 'o', '', '', id, '{}', '{}', '{}', expiry::timestamptz, maker, parent
         from (values ('short', '2030-01-01', 'ada', null), ('child', null, null, 'short'),
                      ('grandchild', '2029-01-01', null, 'child'), ('long', '2031-01-01', 'bob', 'short'),
                      ('endless', null, 'bob', null), ('orphan', null, null, 'gone'))
              as keys (id, expiry, maker, parent);",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    let store = Store::connect(options, std::time::Duration::from_secs(30)).await.unwrap();
    store.migrate().await.unwrap();
    let keys: Vec<String> = sqlx::query_scalar(
        "select concat_ws(' ', id, coalesce(maker, 'nobody'), extract(year from expiry)) from api_keys order by id",
    )
    .fetch_all(&mut sql)
    .await
    .unwrap();
    let expected = [
        "child ada 2030",
        "endless bob",
        "grandchild ada 2029",
        "long bob 2030",
        "orphan nobody",
        "short ada 2030",
    ];
    assert_eq!(keys, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn lengths_of_ranges_lose_their_zeros() {
    let server = Postgres::shared();
    let options = server.empty_database();
    let mut sql = PgConnection::connect_with(&options).await.unwrap();
    let before = ALL.migrations.iter().take_while(|migration| migration.version < 170).count();
    migrate_to(&mut sql, before).await;
    sqlx::raw_sql(ROWS).execute(&mut sql).await.unwrap();
    let ranges = r#"[{"cidr": "10.0.0.0/08", "description": "/08"}, {"cidr": "::/0", "description": ""}]"#;
    sqlx::query("update projects set ip_ranges = $1::jsonb").bind(ranges).execute(&mut sql).await.unwrap();
    let store = Store::connect(options, std::time::Duration::from_secs(30)).await.unwrap();
    store.migrate().await.unwrap();
    let kept: String =
        sqlx::query_scalar("select ip_ranges::text from projects").fetch_one(&mut sql).await.unwrap();
    assert_eq!(kept, ranges.replace("0.0/08", "0.0/8"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_earlier_schemas_come_down_from_the_personal_keys_that_led_to_them() {
    let server = Postgres::shared();
    let options = server.empty_database();
    let mut sql = PgConnection::connect_with(&options).await.unwrap();
    migrate_before(&mut sql, 780).await;
    sqlx::raw_sql(
        "insert into organizations (id, name) values ('o', 'o');
         insert into users (id, email, name) values ('u', 'u@example.com', 'u');
         insert into api_keys (id, user_id, organization_id, name, preview, hash, scopes, projects, branches,
                               created_by_key)
         select id, case of when 'u' then of end, case of when 'o' then of end, '', '', id, '{}', '{}', '{}', maker
         from (values ('a', 'u', null), ('b', 'u', 'a'), ('c', 'o', 'b'), ('d', 'o', 'c'), ('e', 'o', 'd'))
              as keys (id, of, maker);
         delete from api_keys where id = 'd'",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    let store = Store::connect(options, std::time::Duration::from_secs(30)).await.unwrap();
    store.migrate().await.unwrap();
    let lines: Vec<String> = sqlx::query_scalar(
        "select key_id || ' ' || coalesce(user_id, organization_id) || ' '
                || string_agg(ancestor_id, '' order by ancestor_id)
         from key_lines group by key_id, user_id, organization_id order by 1",
    )
    .fetch_all(&mut sql)
    .await
    .unwrap();
    assert_eq!(lines, ["b u a", "c o ab", "e o abcd"], "and of 'd', which is gone, nothing is asked");
}
