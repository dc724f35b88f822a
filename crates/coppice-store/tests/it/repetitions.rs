//! Answers that are kept for repeated requests.

use coppice_store::{AnswerRoom, RepeatableRequest, Repetition};

use crate::postgres::Postgres;
use crate::with_rows;

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_one_caller_have_a_room_and_those_of_others_their_own() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database().await).await;
    let request = |caller, key| RepeatableRequest { caller, path: "/p", key, body_hash: "b" };
    let room = |requests| Some(AnswerRoom { bytes: 100, requests });
    for (caller, key, length, room, is_kept) in [
        ("a", "1", 60, room(9), true),
        ("a", "2", 60, room(9), false),
        ("a", "3", 40, room(9), true),
        ("a", "4", 60, None, true),
        ("b", "1", 20, room(2), true),
        ("b", "2", 20, room(2), true),
        ("b", "3", 20, room(2), false),
        ("b", "4", 20, None, true),
    ] {
        let request = request(caller, key);
        assert_eq!(store.idempotency_begin(request, 60).await.unwrap(), Repetition::First);
        let answer = vec![0; length];
        let kept = store.idempotency_finish(request, 200, &answer, room).await.unwrap();
        assert_eq!(kept, is_kept, "{caller} {key}");
        if !kept {
            store.idempotency_forget(request).await.unwrap();
        }
        let again = store.idempotency_begin(request, 60).await.unwrap();
        assert_eq!(again == Repetition::Answered(200, answer), is_kept, "{caller} {key}");
    }
}
