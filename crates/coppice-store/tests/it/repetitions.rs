//! Answers that are kept for repeated requests.

use coppice_store::{AnswerRoom, RepeatableRequest, Repetition};

use crate::postgres::Postgres;
use crate::with_rows;

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_one_caller_have_a_room_and_those_of_others_their_own() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
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
        assert_eq!(store.idempotency_begin(request, 60).await.unwrap(), Repetition::First(None));
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

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_kept_with_what_it_tells_of_is_kept_once_and_outlives_a_failure() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let request = RepeatableRequest { caller: "a", path: "/p", key: "1", body_hash: "b" };
    let keep = async |answer: &[u8], is_committed: bool| {
        let mut tx = store.begin().await.unwrap();
        let kept = store.idempotency_keep_in_tx(&mut tx, request, 200, answer).await.unwrap();
        if is_committed {
            tx.commit().await.unwrap();
        }
        kept
    };
    assert!(!keep(b"unknown", true).await);
    assert_eq!(store.idempotency_begin(request, 60).await.unwrap(), Repetition::First(None));
    assert!(keep(b"rolled back", false).await);
    // Whoever gave the first one up after a while began another one; the first to commit wins.
    assert_eq!(store.idempotency_begin(request, 0).await.unwrap(), Repetition::First(None));
    assert!(keep(b"first", true).await);
    assert!(!keep(b"second", true).await);
    store.idempotency_forget(request).await.unwrap();
    let again = store.idempotency_begin(request, 0).await.unwrap();
    assert_eq!(again, Repetition::Answered(200, b"first".to_vec()));
    assert!(store.idempotency_finish(request, 200, b"last", None).await.unwrap());
    let again = store.idempotency_begin(request, 0).await.unwrap();
    assert_eq!(again, Repetition::Answered(200, b"last".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_request_did_is_known_to_those_that_repeat_it_until_it_is_answered() {
    let server = Postgres::shared();
    let (store, _) = with_rows(&server.database()).await;
    let request = RepeatableRequest { caller: "a", path: "/p", key: "1", body_hash: "b" };
    let note = async |effect: &str, is_committed: bool| {
        let mut tx = store.begin().await.unwrap();
        let noted = store.idempotency_note_in_tx(&mut tx, request, effect).await.unwrap();
        if is_committed {
            tx.commit().await.unwrap();
        }
        noted
    };
    assert!(!note("unknown", true).await);
    assert_eq!(store.idempotency_begin(request, 60).await.unwrap(), Repetition::First(None));
    assert!(note("rolled back", false).await);
    assert!(note("one", true).await);
    assert!(!note("two", true).await, "it is done once");
    // It could not say how it went.
    store.idempotency_forget(request).await.unwrap();
    assert_eq!(store.idempotency_begin(request, 60).await.unwrap(), Repetition::Running);
    let other = RepeatableRequest { body_hash: "c", ..request };
    assert_eq!(store.idempotency_begin(other, 0).await.unwrap(), Repetition::Mismatch);
    let again = store.idempotency_begin(request, 0).await.unwrap();
    assert_eq!(again, Repetition::First(Some("one".to_owned())));
    assert!(store.idempotency_finish(request, 201, b"answer", None).await.unwrap());
    let again = store.idempotency_begin(request, 0).await.unwrap();
    assert_eq!(again, Repetition::Answered(201, b"answer".to_vec()));
}
