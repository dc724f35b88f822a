//! The ledger of who used a branch.

use std::time::Duration;

use coppice_core::BranchId;
use coppice_core::awake::{APPLICATIONS_MAX, NewUse, OTHER_APPLICATIONS};

use crate::postgres::Postgres;
use crate::with_rows;

#[tokio::test]
async fn names_that_clients_make_up_take_no_more_than_their_rows() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    let branch = BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa");
    sqlx::raw_sql(
        "insert into awake_periods (branch_id, cause) values ('aaaaaaaaaaaaaaaaaaaaaaaaaa', 'creation')",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    let used = |application: String| NewUse {
        branch: branch.clone(),
        application,
        sessions: 1,
        open_for: Duration::from_secs(1),
    };
    for round in 0..10 {
        let names = (0..30).map(|number| format!("made up {round}-{number}"));
        let uses: Vec<_> = names.chain(["known".to_owned()]).map(used).collect();
        store.awake_note_uses(&uses).await.unwrap();
    }
    let periods = store.awake_list(&branch, 10).await.unwrap();
    let uses = &periods[0].uses;
    assert_eq!(uses.len(), APPLICATIONS_MAX + 1);
    let sessions_of =
        |name: &str| uses.iter().find(|used| used.application == name).map(|used| used.sessions);
    assert_eq!(sessions_of("known"), Some(10), "who was there first goes on under its name");
    assert_eq!(sessions_of(OTHER_APPLICATIONS), Some(310 - 10 - (APPLICATIONS_MAX as u32 - 1)));
    assert_eq!(uses.iter().map(|used| used.sessions).sum::<u32>(), 310, "nobody is left out");
    assert_eq!(uses[0].application, OTHER_APPLICATIONS, "longest first");
}
