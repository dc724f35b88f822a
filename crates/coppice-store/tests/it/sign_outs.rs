//! What a browser let in, when its session ends: it ends as well, also what came while it was ending.

use chrono::{TimeDelta, Utc};
use coppice_core::access::{CredentialId, Principal};
use coppice_core::authentication::Methods;
use coppice_core::{ApiKeyId, SessionId};
use coppice_store::{
    AuthorizationCode, BrowserSession, CodeMatch, DeviceState, NewBrowserSession, NewDevice, NewSession,
    Store, Tx,
};
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use crate::postgres::Postgres;
use crate::sign_ins::{code, rows, session_of, sign_in, soon, until_blocked, user, with_user};

/// How the session of a browser ends.
#[derive(Clone, Copy, Debug)]
enum End {
    SignedOut,
    SignedInAnew,
    Unused,
}

const ENDS: [End; 3] = [End::SignedOut, End::SignedInAnew, End::Unused];

async fn end(store: &Store, how: End) {
    match how {
        End::SignedOut => store.browser_session_end("browser").await.unwrap(),
        End::SignedInAnew => {
            let new = NewBrowserSession {
                id_hash: "anew",
                user: &user(),
                password: None,
                was_asked: true,
                methods: &Methods::password(),
                expires_at: soon(),
                replaced: Some("browser"),
            };
            let mut tx = store.begin().await.unwrap();
            assert!(store.browser_session_insert_in_tx(&mut tx, &new).await.unwrap());
            tx.commit().await.unwrap();
        }
        End::Unused => store.sign_in_purge(TimeDelta::hours(1)).await.unwrap(),
    }
}

/// Ends it while `tx` does something by right of it.
async fn end_beside(store: &Store, how: End, sql: &mut PgConnection, tx: &mut Tx) -> JoinHandle<()> {
    let store = store.clone();
    let ending = tokio::spawn(async move { end(&store, how).await });
    until_blocked(sql, tx).await;
    ending
}

/// A store with one user, who is signed in at a browser that was not used for two hours.
async fn with_browser(server: &Postgres) -> (Store, PgConnection) {
    let (store, mut sql) = with_user(&server.database(), true).await;
    assert!(sign_in(&store, "browser", None).await);
    let unused = "update browser_sessions set last_seen_at = now() - interval '2 hours'";
    sqlx::raw_sql(unused).execute(&mut sql).await.unwrap();
    (store, sql)
}

fn code_of_browser() -> AuthorizationCode {
    AuthorizationCode { browser_session: Some("browser".to_owned()), ..code() }
}

async fn keep_code(store: &Store) {
    let mut tx = store.begin().await.unwrap();
    store.code_insert_in_tx(&mut tx, &code_of_browser()).await.unwrap();
    tx.commit().await.unwrap();
}

async fn begin_in_tx(
    store: &Store,
    tx: &mut Tx,
    id: &str,
    browser_session: Option<&str>,
    is_offline: bool,
) -> bool {
    let (id, user, methods) = (SessionId::from_trusted(id), user(), Methods::password());
    let new = NewSession { browser_session, is_offline, ..session_of(&id, &user, &methods) };
    store.session_insert_in_tx(tx, &new).await.unwrap()
}

async fn begin(store: &Store, id: &str, browser_session: Option<&str>, is_offline: bool) -> bool {
    let mut tx = store.begin().await.unwrap();
    let is_begun = begin_in_tx(store, &mut tx, id, browser_session, is_offline).await;
    tx.commit().await.unwrap();
    is_begun
}

/// The sessions of clients that there are.
async fn sessions(sql: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar("select id from sessions order by id").fetch_all(sql).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_is_made_while_its_browser_is_signed_out_comes_to_nothing() {
    let server = Postgres::shared();
    for how in ENDS {
        let (store, mut sql) = with_browser(&server).await;
        let mut tx = store.begin().await.unwrap();
        assert!(store.browser_session_lives_in_tx(&mut tx, &user(), "browser").await.unwrap());
        let ending = end_beside(&store, how, &mut sql, &mut tx).await;
        store.code_insert_in_tx(&mut tx, &code_of_browser()).await.unwrap();
        tx.commit().await.unwrap();
        ending.await.unwrap();
        assert_eq!(rows(&mut sql, "authorization_codes").await, 0, "{how:?}");

        let mut tx = store.begin().await.unwrap();
        assert!(!store.browser_session_lives_in_tx(&mut tx, &user(), "browser").await.unwrap(), "{how:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_is_redeemed_while_its_browser_is_signed_out_gives_a_session_that_ends_with_it() {
    let server = Postgres::shared();
    for how in ENDS {
        let (store, mut sql) = with_browser(&server).await;
        keep_code(&store).await;
        let mut tx = store.begin().await.unwrap();
        let found = store.code_use_in_tx(&mut tx, "code").await.unwrap();
        assert!(matches!(found, Some(CodeMatch::Fresh(_))));
        let ending = end_beside(&store, how, &mut sql, &mut tx).await;
        for (id, is_offline) in [("ses_1", false), ("ses_offline", true)] {
            assert!(begin_in_tx(&store, &mut tx, id, Some("browser"), is_offline).await, "{how:?}");
        }
        tx.commit().await.unwrap();
        ending.await.unwrap();
        assert_eq!(sessions(&mut sql).await, ["ses_offline"], "{how:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_begins_in_a_browser_whose_session_has_ended() {
    let server = Postgres::shared();
    for how in ENDS {
        let (store, mut sql) = with_browser(&server).await;
        keep_code(&store).await;
        end(&store, how).await;
        let mut tx = store.begin().await.unwrap();
        assert!(store.code_use_in_tx(&mut tx, "code").await.unwrap().is_none(), "{how:?}");
        drop(tx);
        for is_offline in [false, true] {
            assert!(!begin(&store, "ses_1", Some("browser"), is_offline).await, "{how:?}");
        }
        assert!(begin(&store, "ses_device", None, false).await, "what began in none");
        assert_eq!(sessions(&mut sql).await, ["ses_device"]);
    }
}

/// Lets a device in at the browser.
async fn allow_device(store: &Store, code: &str) {
    let typed = format!("typed for {code}");
    let new = NewDevice {
        code_hash: code,
        user_code_hash: &typed,
        client_id: "app",
        scopes: &[],
        resource: "api",
        address: "127.0.0.1",
        expires_at: soon(),
    };
    assert!(store.device_insert(&new).await.unwrap());
    let by = BrowserSession {
        id_hash: "browser".to_owned(),
        user: user(),
        email: String::new(),
        signed_in_at: Utc::now(),
        was_asked: true,
        methods: Methods::password(),
    };
    let mut tx = store.begin().await.unwrap();
    assert!(store.device_answer_in_tx(&mut tx, &typed, true, &by, false).await.unwrap());
    tx.commit().await.unwrap();
}

/// What a device finds that comes for its answer.
async fn answer_to_device(store: &Store, code: &str) -> Option<DeviceState> {
    let mut tx = store.begin().await.unwrap();
    let found = store.device_poll_in_tx(&mut tx, code, "app", TimeDelta::zero()).await.unwrap();
    tx.commit().await.unwrap();
    found.map(|device| device.state)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_was_let_in_at_a_browser_comes_before_that_is_signed_out_or_gets_nothing() {
    let server = Postgres::shared();
    for how in ENDS {
        let (store, _) = with_browser(&server).await;
        allow_device(&store, "early").await;
        assert!(matches!(answer_to_device(&store, "early").await, Some(DeviceState::Allowed { .. })));
        assert!(store.allowed_client_list(&user()).await.unwrap().is_empty());
        allow_device(&store, "late").await;
        let listed = store.allowed_client_list(&user()).await.unwrap();
        let listed: Vec<_> =
            listed.iter().map(|client| (client.client_id.as_str(), client.sessions)).collect();
        assert_eq!(listed, [("app", 0)], "until it comes it can be taken back");
        end(&store, how).await;
        assert_eq!(answer_to_device(&store, "late").await, None, "{how:?}");
        assert_eq!(answer_to_device(&store, "early").await, Some(DeviceState::Redeemed), "{how:?}");
        assert!(store.allowed_client_list(&user()).await.unwrap().is_empty(), "{how:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_by_itself_takes_along_what_signing_out_does() {
    let server = Postgres::shared();
    for over in ["last_seen_at = now() - interval '2 hours'", "expires_at = now() - interval '1 second'"] {
        let (store, mut sql) = with_browser(&server).await;
        assert!(sign_in(&store, "other", None).await);
        keep_code(&store).await;
        for (id, browser, is_offline) in [
            ("ses_browser", Some("browser"), false),
            ("ses_device", None, false),
            ("ses_offline", Some("browser"), true),
            ("ses_other", Some("other"), false),
        ] {
            assert!(begin(&store, id, browser, is_offline).await);
        }
        let change = format!(
            "update browser_sessions set last_seen_at = now();
             update browser_sessions set {over} where id_hash = 'browser'"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut sql).await.unwrap();
        store.sign_in_purge(TimeDelta::hours(1)).await.unwrap();
        assert_eq!(sessions(&mut sql).await, ["ses_device", "ses_offline", "ses_other"], "{over}");
        assert_eq!(rows(&mut sql, "authorization_codes").await, 0, "{over}");
        assert_eq!(rows(&mut sql, "browser_sessions").await, 1, "{over}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_shows_does_not_end_while_something_is_done_by_right_of_it() {
    let server = Postgres::shared();
    let (store, mut sql) = with_browser(&server).await;
    assert!(begin(&store, "ses_1", None, true).await);
    sqlx::raw_sql(
        "insert into api_keys (id, user_id, name, preview, hash, scopes, projects, branches)
         values ('key_1', 'usr_1', '', '', 'hash', '{}', '{}', '{}')",
    )
    .execute(&mut sql)
    .await
    .unwrap();
    for shown in [
        CredentialId::Browser("browser".to_owned()),
        CredentialId::Session(SessionId::from_trusted("ses_1")),
        CredentialId::Key(ApiKeyId::from_trusted("key_1")),
    ] {
        let mut tx = store.begin().await.unwrap();
        assert!(store.credential_hold_in_tx(&mut tx, &shown).await.unwrap().is_some());
        let ending = tokio::spawn({
            let (store, shown) = (store.clone(), shown.clone());
            async move {
                match shown {
                    CredentialId::Session(id) => assert!(store.session_end(&id, "app").await.unwrap()),
                    CredentialId::Key(id) => {
                        let (mut tx, of) = (store.begin().await.unwrap(), Principal::User(user()));
                        store.key_delete_in_tx(&mut tx, &of, &[id.to_string()], false).await.unwrap();
                        tx.commit().await.unwrap();
                    }
                    _ => end(&store, End::SignedOut).await,
                }
            }
        });
        until_blocked(&mut sql, &mut tx).await;
        tx.commit().await.unwrap();
        ending.await.unwrap();
        let mut tx = store.begin().await.unwrap();
        let ended = store.credential_hold_in_tx(&mut tx, &shown).await.unwrap();
        assert_eq!(ended, None, "{shown:?}");
    }
}
