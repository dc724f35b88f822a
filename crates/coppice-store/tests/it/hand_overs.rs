//! Whom volumes know after their branch got to somebody else.

use std::time::Duration;

use chrono::Utc;
use coppice_core::branch::BranchState;
use coppice_core::claim::ClaimToken;
use coppice_core::image::PostgresVersion;
use coppice_core::lsn::Lsn;
use coppice_core::{BranchId, HostId, VolumeId};
use coppice_store::{BaseMoment, NewVolume, Replacement, Store};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::migrations::migrate_before;
use crate::postgres::Postgres;
use crate::{ROWS, connect, with_rows};

fn branch() -> BranchId {
    BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa")
}

fn token() -> ClaimToken {
    ClaimToken::new(1, 1)
}

/// What a volume is made of.
enum Of<'a> {
    Template,
    Now(&'a str),
    Moment(&'a str),
    Base(&'a str),
}

/// Makes a volume, and tells whether it may know somebody.
async fn made(store: &Store, id: &str, of: Of<'_>) -> bool {
    let claimed = store.branch_claim(&branch(), &HostId::from_trusted("h"), token(), 60).await.unwrap();
    let base = BaseMoment { base: "base".to_owned(), until: Utc::now() };
    let (source, moment, base) = match of {
        Of::Template => (None, None, None),
        Of::Now(source) => (Some(source), None, None),
        Of::Moment(source) => (Some(source), Some(Lsn(1)), None),
        Of::Base(source) => (Some(source), None, Some(&base)),
    };
    let source = source.map(VolumeId::from_trusted);
    let new = NewVolume {
        id: &VolumeId::from_trusted(id),
        host: &HostId::from_trusted("h"),
        branch: &branch(),
        source: source.as_ref(),
        moment,
        base,
        version: PostgresVersion { major: 18, minor: 0 },
    };
    let why = Replacement {
        reason: "",
        meanwhile: BranchState::Updating,
        is_trial: false,
        storage_gib: 1,
        keep: Duration::ZERO,
    };
    let mut tx = store.begin().await.unwrap();
    store.branch_plan_replacement_in_tx(&mut tx, &claimed.unwrap().branch, &new, &why).await.unwrap();
    tx.commit().await.unwrap();
    knows(store, id).await
}

async fn knows(store: &Store, id: &str) -> bool {
    store.volume_knows_former(&VolumeId::from_trusted(id)).await.unwrap()
}

async fn hand_over(store: &Store) {
    let mut tx = store.begin().await.unwrap();
    store.hand_over_begin_in_tx(&mut tx, &branch()).await.unwrap();
    tx.commit().await.unwrap();
}

/// Its server has kept out whoever had the branch.
async fn told(store: &Store) {
    assert!(store.managed_role_told(&branch(), token(), "SCRAM").await.unwrap());
}

async fn admitted(sql: &mut PgConnection, id: &str) {
    sqlx::query("update volumes set state = 'admitted' where id = $1").bind(id).execute(sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_made_of_data_of_before_a_hand_over_knows_those_who_had_it() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    admitted(&mut sql, "v").await;
    assert!(!made(&store, "version", Of::Now("v")).await, "it was nobody else's");
    admitted(&mut sql, "version").await;
    assert!(!made(&store, "promised", Of::Now("v")).await);

    hand_over(&store).await;
    assert!(knows(&store, "promised").await);
    assert!(made(&store, "meanwhile", Of::Now("v")).await, "the server of that was not told yet");
    assert!(!made(&store, "empty", Of::Template).await);
    told(&store).await;

    assert!(!made(&store, "now", Of::Now("v")).await);
    assert!(made(&store, "moment", Of::Moment("v")).await);
    assert!(made(&store, "base", Of::Base("v")).await);
    assert!(made(&store, "of version", Of::Now("version")).await);
    assert!(made(&store, "of its moment", Of::Moment("version")).await);
    // What was made of these is a version by now, also if its own server was told.
    for former in ["promised", "meanwhile", "moment", "base", "of version"] {
        admitted(&mut sql, former).await;
        assert!(made(&store, &format!("copy of {former}"), Of::Now(former)).await, "{former}");
    }
    for young in ["now", "empty"] {
        admitted(&mut sql, young).await;
        assert!(!made(&store, &format!("copy of {young}"), Of::Moment(young)).await, "{young}");
    }

    // The branch itself is one of them: it is told before anybody is let in, and is what it is from then on.
    sql.execute("update branches set volume_id = 'of version'").await.unwrap();
    sql.execute("update volumes set state = 'present' where id = 'of version'").await.unwrap();
    assert!(made(&store, "of one that was not started", Of::Now("of version")).await);
    admitted(&mut sql, "of version").await;
    assert!(!made(&store, "of one that was", Of::Now("of version")).await);
    assert!(made(&store, "of what it was before", Of::Moment("of version")).await);

    hand_over(&store).await;
    told(&store).await;
    assert!(made(&store, "of young ones before that", Of::Moment("now")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_made_after_all_volumes_were_lost_may_know_those_of_before() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    admitted(&mut sql, "v").await;
    hand_over(&store).await;
    store.branch_claim(&branch(), &HostId::from_trusted("h"), token(), 60).await.unwrap();
    told(&store).await;
    assert!(!made(&store, "copy", Of::Now("v")).await);
    let found = [(VolumeId::from_trusted("v"), "base".to_owned())];
    store.volumes_from_bases(&found).await.unwrap();
    assert!(
        knows(&store, "v").await && knows(&store, "copy").await,
        "the base may be from before it was told"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_are_there_already_are_as_old_as_they_can_be() {
    let server = Postgres::shared();
    let options = server.empty_database();
    let mut sql = PgConnection::connect_with(&options).await.unwrap();
    migrate_before(&mut sql, 630).await;
    sqlx::raw_sql(ROWS).execute(&mut sql).await.unwrap();
    sql.execute("update projects set handed_over_at = now() - interval '1 day'").await.unwrap();
    let (store, _) = connect(&options).await;
    store.migrate().await.unwrap();
    admitted(&mut sql, "v").await;
    assert!(!made(&store, "now", Of::Now("v")).await);
    assert!(made(&store, "moment", Of::Moment("v")).await);
}
