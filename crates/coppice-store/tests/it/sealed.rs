//! Everything that is sealed is known, so that it can be sealed anew.

use coppice_store::{SEALED, SealedColumn};

use crate::postgres::Postgres;
use crate::with_rows;

#[tokio::test(flavor = "multi_thread")]
async fn every_sealed_column_of_the_schema_is_in_the_list() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let query = "select table_name::text, column_name::text from information_schema.columns
                 where table_schema = 'public' and data_type = 'bytea' and column_name like '%\\_sealed'
                 order by 1, 2";
    let found: Vec<(String, String)> = sqlx::query_as(query).fetch_all(&mut sql).await.unwrap();
    let mut listed: Vec<_> = SEALED.iter().map(|one| (one.table.to_owned(), one.column.to_owned())).collect();
    listed.sort();
    assert_eq!(found, listed);
    for column in SEALED {
        store.sealed_page(column, None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_read_page_by_page_and_replaced_where_they_did_not_change() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let rows = "insert into idempotent_requests (caller, path, key, body_hash, status, answer_sealed)
                select 'c', 'p', i::text, '', 200, int4send(i) from generate_series(1, 450) i";
    sqlx::raw_sql(rows).execute(&mut sql).await.unwrap();
    let column: &SealedColumn = SEALED.iter().find(|one| one.table == "idempotent_requests").unwrap();
    let (mut after, mut all) = (None, vec![]);
    loop {
        let page = store.sealed_page(column, after.as_deref()).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.place.clone());
        all.extend(page);
    }
    assert_eq!(all.len(), 450);
    assert_eq!(all[6].owner, "c p 7");
    sqlx::raw_sql("update idempotent_requests set answer_sealed = 'new' where key = '7'")
        .execute(&mut sql)
        .await
        .unwrap();
    let replaced: Vec<_> = all.into_iter().take(10).map(|value| (value, b"x".to_vec())).collect();
    store.sealed_replace(column, &replaced).await.unwrap();
    let query =
        "select count(*) filter (where answer_sealed = 'x'), count(*) filter (where answer_sealed = 'new')
                 from idempotent_requests";
    let counts: (i64, i64) = sqlx::query_as(query).fetch_one(&mut sql).await.unwrap();
    assert_eq!(counts, (9, 1));
}
