//! How many requests of one are in progress, and what others have meanwhile.

use std::time::Duration;

use coppice_test_support::text_of;
use serde_json::json;

use crate::http::{Http, Paying};

/// Far more than are in progress of one, or wait for that.
const MANY: usize = 600;
const AT_ONCE: usize = 64;
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
