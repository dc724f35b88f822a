//! Organizations after their end.

use crate::connect;
use crate::postgres::Postgres;

/// Organizations that were deleted so many days ago; one of them still has a
/// project, whose branches are being removed.
const ROWS: &str = "
    insert into users (id, email, name) values ('u', 'u@example.com', 'U');
    insert into organizations (id, name, deleted_at) values
        ('alive', 'o', null), ('kept', 'o', now() - interval '29 days 23 hours'),
        ('busy', 'o', now() - interval '31 days'), ('gone', 'o', now() - interval '31 days');
    insert into members (organization_id, user_id, role)
        select id, 'u', 'owner' from organizations;
    insert into projects values ('p', 'busy', 'p', true, 5, true, 5, false, '[]', now(), now(), now())";

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_organization_is_forgotten_with_its_rows_after_30_days() {
    let server = Postgres::shared();
    let (store, mut sql) = connect(&server.database()).await;
    sqlx::raw_sql(ROWS).execute(&mut sql).await.unwrap();
    assert_eq!(store.organization_purge().await.unwrap(), 1);
    for table in
        ["select id from organizations order by id", "select organization_id from members order by 1"]
    {
        let left: Vec<String> = sqlx::query_scalar(table).fetch_all(&mut sql).await.unwrap();
        assert_eq!(left, ["alive", "busy", "kept"], "{table}");
    }
    sqlx::raw_sql("delete from projects").execute(&mut sql).await.unwrap();
    assert_eq!(store.organization_purge().await.unwrap(), 1, "the busy one");
    assert_eq!(store.organization_purge().await.unwrap(), 0);
}
