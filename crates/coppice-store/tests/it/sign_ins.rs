//! Sessions that begin while a password is set: they begin before, and end, or
//! they do not begin.

use chrono::{DateTime, TimeDelta, Utc};
use coppice_core::authentication::Methods;
use coppice_core::{SessionId, UserId};
use coppice_store::{
    AddedFactor, Addition, AuthorizationCode, CodeMatch, ConnectOptions, Holdings, NewBrowserSession,
    NewDevice, NewSecondFactor, NewSession, NewUser, OldPassword, Owner, PASSKEYS_MAX, PasskeyRemoval,
    Renewed, SecondProof, Store, Tx, VerifiedUser,
};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::connect;
use crate::postgres::Postgres;

pub(crate) fn user() -> UserId {
    UserId::from_trusted("usr_1")
}

pub(crate) fn soon() -> DateTime<Utc> {
    Utc::now() + TimeDelta::hours(1)
}

/// A store with one user, whose password has the hash `old`.
pub(crate) async fn with_user(options: &ConnectOptions, is_email_verified: bool) -> (Store, PgConnection) {
    let (store, sql) = connect(options).await;
    let mut tx = store.begin().await.unwrap();
    let email = "ada@example.com";
    let new =
        NewUser { id: &user(), email, is_email_verified, name: "", password: Some("old"), guest_of: None };
    store.user_insert_in_tx(&mut tx, &new).await.unwrap();
    tx.commit().await.unwrap();
    (store, sql)
}

pub(crate) async fn sign_in(store: &Store, id_hash: &str, password: Option<&str>) -> bool {
    sign_in_by(store, id_hash, password, &Methods::password()).await
}

async fn sign_in_by(store: &Store, id_hash: &str, password: Option<&str>, methods: &Methods) -> bool {
    let new = NewBrowserSession {
        id_hash,
        user: &user(),
        password,
        was_asked: true,
        methods,
        expires_at: soon(),
        replaced: None,
    };
    let mut tx = store.begin().await.unwrap();
    let is_begun = store.browser_session_insert_in_tx(&mut tx, &new).await.unwrap();
    tx.commit().await.unwrap();
    is_begun
}

pub(crate) fn code() -> AuthorizationCode {
    AuthorizationCode {
        code_hash: "code".to_owned(),
        client_id: "app".to_owned(),
        redirect_uri: "https://app.example.com".to_owned(),
        challenge: None,
        scopes: vec![],
        resource: "agents".to_owned(),
        nonce: None,
        user_id: user().to_string(),
        browser_session: None,
        signed_in_at: Utc::now(),
        methods: Methods::password(),
        is_stale: false,
        expires_at: soon(),
    }
}

async fn begin_session(store: &Store, tx: &mut Tx) -> bool {
    begin_session_of(store, tx, "ses_1", "app", &user()).await
}

/// Begins a session of a client for an hour.
pub(crate) async fn begin_session_of(
    store: &Store,
    tx: &mut Tx,
    id: &str,
    client_id: &str,
    user: &UserId,
) -> bool {
    let (id, methods) = (SessionId::from_trusted(id), Methods::password());
    let new = NewSession { client_id, ..session_of(&id, user, &methods) };
    store.session_insert_in_tx(tx, &new).await.unwrap()
}

/// A session of the client `app` that goes on offline for an hour, and began in no browser.
pub(crate) fn session_of<'a>(id: &'a SessionId, user: &'a UserId, methods: &'a Methods) -> NewSession<'a> {
    NewSession {
        id,
        user,
        client_id: "app",
        scopes: &[],
        resource: "api",
        browser_session: None,
        is_offline: true,
        signed_in_at: Utc::now(),
        methods,
        is_stale: false,
        idle_until: soon(),
        expires_at: soon(),
    }
}

async fn set_password(store: &Store) -> bool {
    store.user_set_password(&user(), "new", OldPassword::Any, None).await.unwrap()
}

/// Keeps that the user allows a client something.
async fn allow(store: &Store) {
    let mut tx = store.begin().await.unwrap();
    let place = "https://app.example.com";
    store.consent_grant_in_tx(&mut tx, &user(), "app", place, "api", &[]).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) async fn rows(sql: &mut PgConnection, table: &str) -> i64 {
    let query = format!("select count(*) from {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(sql).await.unwrap()
}

/// Waits until somebody waits for a lock that `tx` holds.
pub(crate) async fn until_blocked(sql: &mut PgConnection, tx: &mut Tx) {
    let holder: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut **tx).await.unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let blocked = "select exists (select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))";
        if sqlx::query_scalar(blocked).bind(holder).fetch_one(&mut *sql).await.unwrap() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "nobody waits");
        tokio::task::yield_now().await;
    }
}

/// Sets a password while somebody redeems: their session is begun, and ends.
async fn a_new_password_ends(mut redeeming: Tx, store: &Store, sql: &mut PgConnection) {
    let setting = tokio::spawn({
        let store = store.clone();
        async move { set_password(&store).await }
    });
    until_blocked(sql, &mut redeeming).await;
    assert!(begin_session(store, &mut redeeming).await, "neither waits for the other");
    redeeming.commit().await.unwrap();
    assert!(setting.await.unwrap());
    assert_eq!(rows(sql, "sessions").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knew_the_password_before_it_was_set_is_not_signed_in_after() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    assert!(sign_in(&store, "before", Some("old")).await);
    assert!(set_password(&store).await);
    assert_eq!(rows(&mut sql, "browser_sessions").await, 0);
    assert!(!sign_in(&store, "late", Some("old")).await);
    assert!(sign_in(&store, "right", Some("new")).await);
    assert!(sign_in(&store, "outside", None).await, "who showed otherwise who they are");
    let (old, none) = (OldPassword::Exactly(Some("old")), OldPassword::Exactly(None));
    for stale in [old, none] {
        assert!(!store.user_set_password(&user(), "third", stale, None).await.unwrap(), "{stale:?}");
    }
    assert_eq!(rows(&mut sql, "browser_sessions").await, 2, "nothing was ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_ended_meanwhile_sets_no_password() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    sqlx::raw_sql("update users set password = null").execute(&mut sql).await.unwrap();
    assert!(sign_in(&store, "ended", None).await && sign_in(&store, "own", None).await);
    store.browser_session_end("ended").await.unwrap();
    let set = async |old| {
        let renewed = Renewed { old, new: "anew" };
        store.user_set_password(&user(), "new", OldPassword::Exactly(None), Some(renewed)).await.unwrap()
    };
    assert!(!set("ended").await);
    assert_eq!(rows(&mut sql, "browser_sessions").await, 1, "nothing was ended");
    assert!(set("own").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_password_leaves_one_session_under_another_secret() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    assert!(sign_in(&store, "elsewhere", Some("old")).await && sign_in(&store, "here", Some("old")).await);
    sqlx::raw_sql("update browser_sessions set signed_in_at = now() - interval '1 hour'")
        .execute(&mut sql)
        .await
        .unwrap();
    let mut tx = store.begin().await.unwrap();
    assert!(begin_session(&store, &mut tx).await);
    tx.commit().await.unwrap();
    sqlx::raw_sql("update sessions set browser_session = 'here'").execute(&mut sql).await.unwrap();
    allow(&store).await;
    let (old, renewed) = (OldPassword::Exactly(Some("old")), Renewed { old: "here", new: "anew" });
    assert!(store.user_set_password(&user(), "new", old, Some(renewed)).await.unwrap());
    let found = async |id_hash: &str| store.browser_session_find(id_hash, TimeDelta::hours(1)).await.unwrap();
    assert!(found("elsewhere").await.is_none());
    assert!(found("here").await.is_none(), "whoever copied it is signed out");
    let signed_in_at = found("anew").await.expect("it goes on").signed_in_at;
    assert!(Utc::now() - signed_in_at > TimeDelta::minutes(59), "nothing else was shown anew");
    assert_eq!(rows(&mut sql, "sessions").await, 0, "nor does a client of it go on");
    assert_eq!(rows(&mut sql, "consents").await, 0, "nor is one let in that somebody left there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_is_being_redeemed_gives_no_session_that_outlives_a_new_password() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    let mut tx = store.begin().await.unwrap();
    store.code_insert_in_tx(&mut tx, &code()).await.unwrap();
    tx.commit().await.unwrap();

    let mut redeeming = store.begin().await.unwrap();
    let found = store.code_use_in_tx(&mut redeeming, "code").await.unwrap();
    assert!(matches!(found, Some(CodeMatch::Fresh(_))));
    a_new_password_ends(redeeming, &store, &mut sql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_being_connected_gets_no_session_that_outlives_a_new_password() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    let new = NewDevice {
        code_hash: "code",
        user_code_hash: "user code",
        client_id: "app",
        scopes: &[],
        resource: "api",
        address: "127.0.0.1",
        expires_at: soon(),
    };
    assert!(store.device_insert(&new).await.unwrap());
    assert!(sign_in(&store, "browser", Some("old")).await);
    let mut tx = store.begin().await.unwrap();
    let by = store.browser_session_find("browser", TimeDelta::hours(1)).await.unwrap().unwrap();
    assert!(store.device_answer_in_tx(&mut tx, "user code", true, &by, false).await.unwrap());
    tx.commit().await.unwrap();

    let mut redeeming = store.begin().await.unwrap();
    let found = store.device_poll_in_tx(&mut redeeming, "code", "app", TimeDelta::zero()).await.unwrap();
    assert!(found.is_some());
    a_new_password_ends(redeeming, &store, &mut sql).await;
}

async fn add_second_factor(store: &Store, factor: AddedFactor<'_>) -> Addition {
    let mut tx = store.begin().await.unwrap();
    let new =
        NewSecondFactor { user: &user(), factor, recovery_codes: &["one".to_owned()], session: "browser" };
    let added = store.second_factor_add_in_tx(&mut tx, &new).await.unwrap();
    if added != Addition::Refused {
        tx.commit().await.unwrap();
    }
    added
}

const APP: AddedFactor<'static> = AddedFactor::Totp { sealed: b"x", step: 1 };

async fn add_passkey(store: &Store, id: &str, credential: &Value) -> Addition {
    add_second_factor(store, AddedFactor::Passkey { id, name: "key", credential }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_is_a_second_factor_and_the_first_one_ends_what_was_begun_without() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    assert!(sign_in(&store, "browser", Some("old")).await);
    assert_eq!(add_passkey(&store, "a", &json!(1)).await, Addition::First);
    assert_eq!(rows(&mut sql, "browser_sessions").await, 0);
    assert!(!sign_in(&store, "later", Some("old")).await);
    assert_eq!(add_passkey(&store, "b", &json!(1)).await, Addition::Refused, "its session has ended");
    assert!(sign_in_by(&store, "browser", None, &Methods::password().and_key()).await);
    assert_eq!(add_passkey(&store, "a", &json!(1)).await, Addition::Refused, "it is somebody's");
    assert_eq!(add_passkey(&store, "b", &json!(1)).await, Addition::Another);
    assert_eq!(add_second_factor(&store, APP).await, Addition::Another);
    assert_eq!(rows(&mut sql, "browser_sessions").await, 1, "it was begun with one");
    for count in 3..=PASSKEYS_MAX {
        assert_eq!(add_passkey(&store, &count.to_string(), &json!(1)).await, Addition::Another);
    }
    assert_eq!(add_passkey(&store, "too many", &json!(1)).await, Addition::Refused);

    let mut tx = store.begin().await.unwrap();
    assert!(store.second_factor_remove_in_tx(&mut tx, &user()).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(rows(&mut sql, "passkeys").await, 0);
    assert!(sign_in(&store, "later", Some("old")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passkey_counts_as_it_was_when_it_was_asked_and_each_question_once() {
    let server = Postgres::shared();
    let (store, _) = with_user(&server.database(), true).await;
    assert!(sign_in(&store, "browser", Some("old")).await);
    let (first, second) = (json!({ "counter": 1 }), json!({ "counter": 2 }));
    add_passkey(&store, "a", &first).await;
    let used = async |before: &Value, after: &Value| {
        let mut tx = store.begin().await.unwrap();
        let proof = SecondProof::Passkey { id: "a", before, after };
        let used = store.second_factor_use_in_tx(&mut tx, &user(), proof).await.unwrap();
        tx.commit().await.unwrap();
        used
    };
    assert!(used(&first, &second).await);
    assert!(!used(&first, &second).await, "another one has used it meanwhile");
    assert!(store.passkey_list(&user()).await.unwrap()[0].last_used_at.is_some());

    store.passkey_question_keep("browser", &json!("old"), soon()).await.unwrap();
    store.passkey_question_keep("browser", &json!("new"), soon()).await.unwrap();
    assert_eq!(store.passkey_question_take("other").await.unwrap(), None);
    assert_eq!(store.passkey_question_take("browser").await.unwrap(), Some(json!("new")));
    assert_eq!(store.passkey_question_take("browser").await.unwrap(), None);
    let past = Utc::now() - TimeDelta::seconds(1);
    store.passkey_question_keep("browser", &json!("late"), past).await.unwrap();
    assert_eq!(store.passkey_question_take("browser").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_second_factor_is_not_removed_by_the_way() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    assert!(sign_in(&store, "browser", Some("old")).await);
    add_passkey(&store, "a", &json!(1)).await;
    assert!(sign_in_by(&store, "browser", None, &Methods::password().and_key()).await);
    let same = Renewed { old: "browser", new: "browser" };
    let remove = async |id: &str| {
        let mut tx = store.begin().await.unwrap();
        let removed = store.passkey_remove_in_tx(&mut tx, &user(), id, same).await.unwrap();
        if removed == PasskeyRemoval::Done {
            tx.commit().await.unwrap();
        }
        removed
    };
    assert_eq!(remove("a").await, PasskeyRemoval::Last);
    add_passkey(&store, "b", &json!(1)).await;
    assert_eq!(remove("c").await, PasskeyRemoval::Absent);
    assert_eq!(remove("a").await, PasskeyRemoval::Done);
    assert_eq!(remove("b").await, PasskeyRemoval::Last);
    assert_eq!(add_second_factor(&store, APP).await, Addition::Another);
    assert_eq!(remove("b").await, PasskeyRemoval::Done);
    assert_eq!(rows(&mut sql, "browser_sessions").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_factor_ends_also_the_session_it_is_added_in() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    assert!(sign_in(&store, "browser", Some("old")).await);
    add_second_factor(&store, APP).await;
    assert_eq!(rows(&mut sql, "browser_sessions").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_alone_begins_no_session_while_a_second_factor_is_added_or_after() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    let mut adding = store.begin().await.unwrap();
    let add = "update users set has_second_factor = true";
    sqlx::query(add).execute(&mut *adding).await.unwrap();
    let late = tokio::spawn({
        let store = store.clone();
        async move { sign_in(&store, "late", Some("old")).await }
    });
    until_blocked(&mut sql, &mut adding).await;
    adding.commit().await.unwrap();
    assert!(!late.await.unwrap());
    assert!(!sign_in(&store, "later", Some("old")).await);
    assert_eq!(rows(&mut sql, "browser_sessions").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_allowed_in_a_browser_that_is_signed_out_meanwhile_comes_to_nothing() {
    let server = Postgres::shared();
    let (store, _) = with_user(&server.database(), true).await;
    assert!(sign_in(&store, "browser", Some("old")).await);
    let mut tx = store.begin().await.unwrap();
    assert!(store.browser_session_lives_in_tx(&mut tx, &user(), "browser").await.unwrap());
    drop(tx);
    assert!(set_password(&store).await);
    let mut tx = store.begin().await.unwrap();
    assert!(!store.browser_session_lives_in_tx(&mut tx, &user(), "browser").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_reclaimed_once_and_only_where_nobody_had_verified_it() {
    let server = Postgres::shared();
    let new = UserId::from_trusted("usr_2");
    for is_email_verified in [true, false] {
        let (store, mut sql) = with_user(&server.database(), is_email_verified).await;
        assert!(sign_in(&store, "browser", Some("old")).await);
        add_second_factor(&store, APP).await;
        let found = store.user_by_verified_email(&new, "ADA@example.com", "", true).await.unwrap();
        match found {
            VerifiedUser::Account(id) => assert!(is_email_verified && id == user()),
            VerifiedUser::Reclaimed(id, taken) => {
                assert!(!is_email_verified && id == user() && taken.has_second_factor);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(rows(&mut sql, "recovery_codes").await, i64::from(is_email_verified));
        assert_eq!(store.second_factor_find(&user()).await.unwrap().is_some(), is_email_verified);
        assert!(!sign_in(&store, "late", Some("old")).await);
        let again = store.user_by_verified_email(&new, "ada@example.com", "", true).await.unwrap();
        assert_eq!(again, VerifiedUser::Account(user()));
        let account = store.user_find(&user()).await.unwrap().unwrap();
        assert!(account.is_email_verified);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_an_account_is_told_what_let_somebody_in_and_is_let_in_by_their_own() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), false).await;
    assert!(sign_in(&store, "browser", Some("old")).await);
    let mut tx = store.begin().await.unwrap();
    assert!(begin_session(&store, &mut tx).await);
    tx.commit().await.unwrap();
    allow(&store).await;
    store.sign_in_source_note(&user(), "theirs").await.unwrap();
    sqlx::raw_sql(
        "insert into api_keys (id, user_id, name, preview, hash, scopes, projects, branches)
         values ('key_1', 'usr_1', '', '', 'hash', '{}', '{}', '{}')",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    let held = Holdings { has_password: true, keys: 1, sessions: 2, clients: 1, ..Holdings::default() };
    assert_eq!(store.unverified_holdings(&user()).await.unwrap(), Some(held));
    let reclaim = async || {
        let mut tx = store.begin().await.unwrap();
        let owner = Owner { name: Some("Ada"), password: Some("new") };
        let taken = store.user_reclaim_in_tx(&mut tx, &user(), owner).await.unwrap();
        tx.commit().await.unwrap();
        taken
    };
    assert_eq!(reclaim().await, Some(held));
    for table in ["api_keys", "sessions", "browser_sessions", "consents", "sign_in_sources"] {
        assert_eq!(rows(&mut sql, table).await, 0, "{table}");
    }
    assert_eq!(store.user_find(&user()).await.unwrap().unwrap().name, "Ada");
    assert!(!sign_in(&store, "late", Some("old")).await);
    assert!(sign_in(&store, "own", Some("new")).await);
    assert_eq!(reclaim().await, None, "it is theirs");
    assert_eq!(store.unverified_holdings(&user()).await.unwrap(), None);
    assert_eq!(rows(&mut sql, "browser_sessions").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_places_are_remembered_from_which_somebody_signed_in() {
    let server = Postgres::shared();
    let (store, mut sql) = with_user(&server.database(), true).await;
    let is_known =
        async |email: &str, source: &str| store.sign_in_source_is_known(email, source).await.unwrap();
    assert!(!is_known("ada@example.com", "home").await);
    for source in ["home", "home", "work"] {
        store.sign_in_source_note(&user(), source).await.unwrap();
    }
    assert!(is_known("Ada@example.com", "home").await && is_known("ada@example.com", "work").await);
    assert!(!is_known("eve@example.com", "home").await, "it is hers alone");
    sqlx::raw_sql("update sign_in_sources set seen_at = now() - interval '1 day' where source = 'home'")
        .execute(&mut sql)
        .await
        .unwrap();
    for number in 0..31 {
        store.sign_in_source_note(&user(), &number.to_string()).await.unwrap();
    }
    assert!(!is_known("ada@example.com", "home").await, "the one longest ago is forgotten");
    assert!(is_known("ada@example.com", "work").await);
}
