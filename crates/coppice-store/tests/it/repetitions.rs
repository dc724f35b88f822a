//! Answers that are kept for repeated requests.

use coppice_store::{RepeatableRequest, Repetition};

use crate::postgres::Postgres;
use crate::with_rows;

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_one_caller_have_a_room_and_those_of_others_their_own() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database().await).await;
    let request = |caller, key| RepeatableRequest { caller, path: "/p", key, body_hash: "b" };
    for (caller, key, length, room, is_kept) in [
        ("a", "1", 60, Some(100), true),
        ("a", "2", 60, Some(100), false),
        ("a", "3", 40, Some(100), true),
        ("a", "4", 60, None, true),
        ("b", "1", 60, Some(100), true),
    ] {
        let request = request(caller, key);
        assert_eq!(store.idempotency_begin(request, 60).await.unwrap(), Repetition::First);
        let answer = vec![0; length];
        let kept = store.idempotency_finish(request, 200, &answer, room).await.unwrap();
        assert_eq!(kept, is_kept, "{caller} {key}");
        let again = store.idempotency_begin(request, 60).await.unwrap();
        assert_eq!(again == Repetition::Answered(200, answer), is_kept, "{caller} {key}");
    }
}
