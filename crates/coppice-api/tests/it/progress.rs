//! How many requests of one are in progress, and what others have meanwhile.

use std::time::Duration;

use coppice_test_support::text_of;
use serde_json::json;

use crate::http::{Http, Paying};

/// Far more than are in progress of one, or wait for that.
const MANY: usize = 600;
pub(crate) const AT_ONCE: usize = 64;
pub(crate) const OF_PERSON_AT_ONCE: usize = 256;
const WAITING_MAX: usize = 448;
/// Others are answered long before this.
const PATIENCE: Duration = Duration::from_secs(20);

/// A key of an organization that is nobody's but its own.
fn neighbour(http: &Http) -> (String, String) {
    let id = http.new_organization("neighbour");
    let key = http.new_token(&format!("/organizations/{id}/api-keys"), json!({}));
    http.metastore(&format!("delete from members where organization_id = '{id}'"));
    (id, key)
}

#[test]
fn requests_that_get_nowhere_keep_nobody_else_waiting() {
    let http = Http::start(Paying::default());
    let (id, key) = neighbour(&http);
    let own = http.new_token("/organizations/{org}/api-keys", json!({}));
    let path = format!("/organizations/{}", http.organization());
    let statement = format!(
        "lock table webhooks in access exclusive mode;
         select from organizations where id = '{}' for update",
        http.organization()
    );
    let (reads, changes) = http.while_locked(&statement, async |http| {
        let changed = json!({ "name": "Changed" });
        // What only reads, and what changes something: they need other connections.
        let reads = http.begin_many(AT_ONCE / 2, &own, ("GET", &format!("{path}/webhooks")), None);
        let changes = http.begin_many(MANY, http.key(), ("PUT", &path), Some(&changed));
        http.locks_waited_for(4).await;
        for (method, path, body) in [
            ("GET", format!("/organizations/{id}"), None),
            ("PUT", format!("/organizations/{id}"), Some(json!({ "name": "Neighbour" }))),
        ] {
            let asked = http.begin_many(1, &key, (method, &path), body.as_ref());
            let answer = tokio::time::timeout(PATIENCE, asked.into_iter().next().expect("one")).await;
            let answer = answer.expect("it is answered meanwhile").expect("no panic");
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        (reads, changes)
    });
    let reads = http.finish(reads);
    let answers = http.finish(changes);
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!(refused.len(), MANY - AT_ONCE - WAITING_MAX);
    for answer in refused {
        assert_eq!(answer.header("retry-after"), "1");
        assert_eq!(text_of(&answer.json()["id"]), "rate_limited");
    }
    let carried_out = answers.iter().chain(&reads).filter(|answer| answer.status == 200);
    assert_eq!(carried_out.count(), AT_ONCE + WAITING_MAX + reads.len(), "the others only waited");
    http.get(&path).expect(200);
}

/// A guest of somebody, and so many keys of theirs.
pub(crate) fn guest(http: &Http, id: &str, keys: usize) -> Vec<String> {
    http.metastore(&format!(
        "insert into users (id, email, email_verified, guest_of)
             values ('{id}', '{id}@example.com', false, 'guests of somebody');
         insert into members (organization_id, user_id, role) values ('{{org}}', '{id}', 'admin')"
    ));
    let new_key = |_| {
        let key = http.new_key("/api-keys", json!({}));
        http.metastore(&format!("update api_keys set user_id = '{id}' where id = '{}'", text_of(&key["id"])));
        text_of(&key["token"])
    };
    (0..keys).map(new_key).collect()
}

#[test]
fn no_guest_is_refused_for_what_another_one_asks() {
    let http = Http::start(Paying::default());
    let (greedy, modest) = (guest(&http, "usr_greedy", MANY / AT_ONCE + 3), guest(&http, "usr_modest", 1));
    let path = format!("/organizations/{}", http.organization());
    let asked = http.while_locked("lock table webhooks in access exclusive mode", async |http| {
        let webhooks = format!("{path}/webhooks");
        // Who has been answered came in behind all that were sent before, so few are still at the door.
        let all_are_in = async || {
            let own = http.begin_many(1, http.key(), ("GET", &path), None);
            assert_eq!(own.into_iter().next().expect("one").await.expect("no panic").status, 200);
        };
        let mut many = vec![];
        for key in &greedy {
            many.extend(http.begin_many(AT_ONCE, key, ("GET", &webhooks), None));
            all_are_in().await;
        }
        let refused = many.len() - OF_PERSON_AT_ONCE - WAITING_MAX;
        while many.iter().filter(|one| one.is_finished()).count() < refused {
            tokio::task::yield_now().await;
        }
        let other = http.begin_many(1, &modest[0], ("GET", &path), None);
        all_are_in().await;
        (many, other)
    });
    assert_eq!(http.finish(asked.1)[0].status, 200, "it only waited");
    let refused = http.finish(asked.0).iter().filter(|answer| answer.status == 429).count();
    assert_eq!(refused, greedy.len() * AT_ONCE - OF_PERSON_AT_ONCE - WAITING_MAX);
}
