//! Whether the login of a key is in force.

use coppice_core::login::DatabaseRole;
use coppice_core::{ApiKeyId, BranchId, OrganizationId};
use coppice_store::{KeptPassword, Store};

use crate::postgres::Postgres;
use crate::with_rows;

/// A person who is an editor, with a key; and a key of the organization.
const KEYS: &str = "
insert into users (id, email, name) values ('u', 'u@example.com', 'U');
insert into members (organization_id, user_id, role) values ('o', 'u', 'editor');
insert into api_keys (id, user_id, name, preview, hash, scopes, projects, branches, database_role)
    values ('key_u', 'u', '', 'p', 'h1', '{}', '{}', '{}', 'writer');
insert into api_keys (id, organization_id, name, preview, hash, scopes, projects, branches, database_role)
    values ('key_o', 'o', '', 'p', 'h2', '{}', '{}', '{}', 'reader');";

fn branch() -> BranchId {
    BranchId::from_trusted("aaaaaaaaaaaaaaaaaaaaaaaaaa")
}

fn keys() -> [ApiKeyId; 2] {
    ["key_u", "key_o"].map(ApiKeyId::from_trusted)
}

/// Whether each of the keys has a login that is in force, as every question tells.
async fn in_force(store: &Store) -> [bool; 2] {
    let all = keys().map(|key| (branch(), key));
    let over = store.logins_over(&all).await.unwrap();
    let to_end = store.logins_to_end_on(&branch(), None).await.unwrap();
    let with_any = store.logins_to_end().await.unwrap();
    let mut answers = [false; 2];
    for (answer, login) in answers.iter_mut().zip(&all) {
        *answer = store.login_in_force(&login.0, &login.1).await.unwrap().is_some();
        assert_eq!(over.contains(login), !*answer, "{login:?}");
        assert_eq!(to_end.contains(&login.1), !*answer, "{login:?}");
    }
    assert_eq!(with_any.iter().any(|(found, _)| *found == branch()), !to_end.is_empty());
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_in_force_as_long_as_its_key_could_be_shown_it() {
    let server = Postgres::shared();
    let (store, mut sql) = with_rows(&server.database()).await;
    sqlx::raw_sql(KEYS).execute(&mut sql).await.unwrap();
    let new = KeptPassword { sealed: b"sealed".to_vec(), verifier: "SCRAM".to_owned() };
    for (key, role) in keys().iter().zip([DatabaseRole::Writer, DatabaseRole::Reader]) {
        assert_eq!(store.login_password(&branch(), key).await.unwrap(), None);
        assert_eq!(store.login_make(&branch(), key, role, &new).await.unwrap(), b"sealed");
        let other = KeptPassword { sealed: b"other".to_vec(), verifier: "other".to_owned() };
        assert_eq!(store.login_make(&branch(), key, role, &other).await.unwrap(), b"sealed", "it has one");
        let login = store.login_in_force(&branch(), key).await.unwrap().unwrap();
        assert_eq!((login.database_role, login.verifier.as_str()), (role, "SCRAM"));
    }
    for (change, back, expected) in [
        ("update users set disabled = true", "update users set disabled = false", [false, true]),
        ("update members set role = 'viewer'", "update members set role = 'admin'", [false, true]),
        (
            "update organizations set requires_second_factor = true",
            "update organizations set requires_second_factor = false",
            [false, true],
        ),
        (
            "update api_keys set own_branches = true where id = 'key_u'; update branches set made_with = 'key_o'",
            "update branches set made_with = 'key_u'",
            [false, true],
        ),
        (
            "update api_keys set expiry = now()",
            "update api_keys set expiry = now() + interval '1 hour'",
            [false; 2],
        ),
        (
            "update organizations set deleted_at = now()",
            "update organizations set deleted_at = null",
            [false; 2],
        ),
    ] {
        assert_eq!(in_force(&store).await, [true; 2], "before {change}");
        sqlx::raw_sql(change).execute(&mut sql).await.unwrap();
        assert_eq!(in_force(&store).await, expected, "{change}");
        sqlx::raw_sql(back).execute(&mut sql).await.unwrap();
    }
    sqlx::raw_sql("delete from members").execute(&mut sql).await.unwrap();
    assert_eq!(in_force(&store).await, [false, true]);
    sqlx::raw_sql("delete from api_keys").execute(&mut sql).await.unwrap();
    assert_eq!(in_force(&store).await, [false; 2]);

    // Nothing is done on a branch that is not up.
    sqlx::raw_sql("update branches set state = 'hibernated'").execute(&mut sql).await.unwrap();
    assert_eq!(store.logins_to_end().await.unwrap(), []);
    sqlx::raw_sql("update branches set state = 'ready'").execute(&mut sql).await.unwrap();
    let holder = store.organization_holder(&OrganizationId::from_trusted("o")).await.unwrap();
    assert_eq!(store.logins_to_end().await.unwrap(), [(branch(), holder)]);
    let on = async |after: Option<&ApiKeyId>| store.logins_to_end_on(&branch(), after).await.unwrap();
    let [first, second] = <[_; 2]>::try_from(on(None).await).unwrap();
    assert_eq!(on(Some(&first)).await, [second.clone(), first.clone()], "each is first some time");
    assert_eq!(on(Some(&second)).await, [first.clone(), second.clone()]);
    store.login_forget(&branch(), &first).await.unwrap();
    assert_eq!(on(None).await, [second]);
}
